import logging

import pytest
import torch

from scaseg import choose_backend, selective_context
from scaseg.ops import dispatch


def test_auto_says_what_and_why():
    small, large = choose_backend(8 * 8, 8 * 8), choose_backend(128 * 256, 128 * 256)
    assert small.backend == "dense"
    assert "64 x 64 coefficients on cpu are at most 147456" in small.reason
    assert large.backend == "linear"
    assert "32768 x 32768 coefficients on cpu are more than 147456" in large.reason
    assert choose_backend(3136, 3136).backend == "linear"
    assert choose_backend(3136, 3136, "cuda").backend == "dense"


@pytest.mark.parametrize(("n", "expected"), [(16, "dense"), (400, "linear")])
def test_auto_takes_what_it_says_and_logs_it(n, expected, monkeypatch, caplog):
    taken = []
    for name, compute in dispatch.BACKENDS.items():

        def noted(values, scores, name=name, compute=compute):
            taken.append(name)
            return compute(values, scores)

        monkeypatch.setitem(dispatch.BACKENDS, name, noted)
    score = torch.randn(1, n)
    with caplog.at_level(logging.DEBUG, logger="scaseg"):
        selective_context(torch.randn(1, n, 2), score, score)
    assert taken == [expected]
    assert expected in caplog.text


@pytest.mark.parametrize("backend", ["dense", "linear"])
def test_a_named_backend_is_taken_whatever_the_size(backend, monkeypatch):
    def unused(values, scores):
        raise AssertionError("not the backend that was asked for")

    other = "linear" if backend == "dense" else "dense"
    monkeypatch.setitem(dispatch.BACKENDS, other, unused)
    for n in (4, 500):
        score = torch.randn(1, n)
        selective_context(torch.randn(1, n, 2), score, score, backend=backend)
