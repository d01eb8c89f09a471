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
    for name in ("dense_context", "linear_context"):
        original = getattr(dispatch, name)
        monkeypatch.setattr(
            dispatch,
            name,
            lambda *a, _name=name, _original=original, **k: (
                taken.append(_name),
                _original(*a, **k),
            )[1],
        )
    score = torch.randn(1, n)
    with caplog.at_level(logging.DEBUG, logger="scaseg"):
        selective_context(torch.randn(1, n, 2), score, score)
    assert taken == [f"{expected}_context"]
    assert expected in caplog.text


@pytest.mark.parametrize("backend", ["dense", "linear"])
def test_a_named_backend_is_taken_whatever_the_size(backend, monkeypatch):
    def unused(*args, **options):
        raise AssertionError("not the backend that was asked for")

    other = "linear" if backend == "dense" else "dense"
    monkeypatch.setattr(dispatch, f"{other}_context", unused)
    for n in (4, 500):
        score = torch.randn(1, n)
        selective_context(torch.randn(1, n, 2), score, score, backend=backend)
