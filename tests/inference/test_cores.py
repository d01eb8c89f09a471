"""A CPU's cores, each with an image of its own."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from scaseg.inference.predict import predict_stream
from tests.inference.models import picture, small_model


def threads_of(model, monkeypatch):
    """The names of the threads that compute, as they are used."""
    used, coarse = [], model.coarse

    def noted(*batch):
        used.append(threading.current_thread().name.partition("_")[0])
        return coarse(*batch)

    monkeypatch.setattr(model, "coarse", noted)
    return used


def test_they_find_the_same_in_the_same_order(monkeypatch):
    model = small_model("sca").train()
    images = [picture(20 + 7 * index, 50) for index in range(7)]
    expected = model.predict(images)
    used = threads_of(model, monkeypatch)
    found = list(predict_stream(model, enumerate(images), cores=3, confidence=True))
    assert [key for key, _ in found] == list(range(7))
    for (_, one), other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one.labels, other.labels)
        np.testing.assert_allclose(one.confidence, other.confidence, atol=1e-6)
    assert used == ["segmenting"] * 7
    assert model.training


def test_threads_of_others_are_as_before():
    def fresh():
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(torch.get_num_threads).result()

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        list(predict_stream(small_model(), [(0, picture(16, 16))], cores=3))
        assert (torch.get_num_threads(), fresh()) == (2, 2)
    finally:
        torch.set_num_threads(before)


def test_a_large_image_has_all_of_them(monkeypatch):
    monkeypatch.setattr("scaseg.inference.predict.MOST_ASIDE", 40 * 50)
    model = small_model("sca")
    used = threads_of(model, monkeypatch)
    images = [picture(side, 50) for side in (40, 41, 40)]
    found = list(predict_stream(model, enumerate(images), cores=2))
    assert [one.size for _, one in found] == [(40, 50), (41, 50), (40, 50)]
    ours = threading.current_thread().name.partition("_")[0]
    assert used == ["segmenting", ours, "segmenting"]


def test_no_more_are_read_than_are_computed():
    taken = []

    def stream():
        for index in range(40):
            taken.append(index)
            yield index, picture(16, 16)

    found = predict_stream(small_model(), stream(), cores=2)
    next(found)
    assert len(taken) <= 3
    found.close()
    assert len(taken) <= 3


def test_what_was_computed_before_a_fault_is_kept(monkeypatch):
    model = small_model("sca")
    coarse = model.coarse

    def sometimes(images, *sizes):
        if images.shape[-2] == 40:
            raise RuntimeError("not enough memory")
        return coarse(images, *sizes)

    monkeypatch.setattr(model, "coarse", sometimes)
    images = [picture(side, 50) for side in (24, 40, 24, 24, 24)]
    found = predict_stream(model, enumerate(images), cores=2)
    assert next(found)[0] == 0
    with pytest.raises(RuntimeError, match="not enough memory"):
        list(found)
