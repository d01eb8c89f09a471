from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from scaseg.data.loading import (
    UNLABELLED,
    EpochBatchSampler,
    EvaluationDataset,
    EvaluationSampler,
    SamplerState,
    TrainingDataset,
)
from scaseg.data.sample import Sample, collate
from scaseg.data.transforms import ColorJitter, RandomCrop, RandomHorizontalFlip, RandomResize


class Noise:
    """Photographs that tell which one they are."""

    def __init__(self, count=7, height=20, width=24):
        self.count, self.shape = count, (height, width)

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        random = np.random.default_rng(index)
        image = random.integers(0, 256, (*self.shape, 3), np.uint8)
        return Sample(image, random.integers(0, 4, self.shape, np.int32), f"image {index}")


def batches(count=10, size=3, *, seed=0, epoch=0, rank=0, processes=1):
    place = SamplerState(epoch, rank, processes)
    return EpochBatchSampler(count, size, seed=seed, state=lambda: place)


def order(**options):
    return [index for batch in batches(**options) for _, index in batch]


def test_an_epoch_has_an_order_of_its_own():
    first = order(count=50, seed=1, epoch=2)
    assert first == order(count=50, seed=1, epoch=2)
    assert sorted(first) == list(range(50))
    others = [order(count=50, seed=s, epoch=e) for s, e in ((1, 3), (2, 2), (2, 1))]
    assert len({tuple(o) for o in (first, sorted(first), *others)}) == 5
    assert order(count=50, seed=1, epoch=2, size=7) == first  # batches do not change it


def test_the_place_is_asked_anew_each_epoch():
    """Lightning keeps one sampler for the whole run."""
    epoch = 0
    sampler = EpochBatchSampler(20, 4, seed=0, state=lambda: SamplerState(epoch, 0, 1))
    first = list(sampler)
    epoch = 1
    second = list(sampler)
    assert {epoch for batch in first for epoch, _ in batch} == {0}
    assert {epoch for batch in second for epoch, _ in batch} == {1}
    assert [i for b in first for _, i in b] != [i for b in second for _, i in b]


@given(st.integers(1, 40), st.integers(1, 9), st.integers(1, 5))
def test_processes_share_an_epoch(count, size, processes):
    shares = [
        list(batches(count, size, rank=rank, processes=processes)) for rank in range(processes)
    ]
    lengths = {len(share) for share in shares}
    assert lengths == {len(batches(count, size, processes=processes))}
    for step in zip(*shares, strict=True):  # the same number of images, too: DDP means over them
        assert len({len(batch) for batch in step}) == 1
    for share in shares:
        assert all(len(batch) == size for batch in share[:-1])
        assert 1 <= len(share[-1]) <= size
    seen = Counter(index for share in shares for batch in share for _, index in batch)
    assert set(seen) == set(range(count))
    assert seen.total() - count <= processes - 1


def test_an_epoch_that_is_continued_leaves_out_what_is_done():
    whole = list(batches(count=10, size=3, epoch=2))
    place = SamplerState(2, 0, 1, batches_done=2)
    rest = EpochBatchSampler(10, 3, seed=0, state=lambda: place)
    assert list(rest) == whole[2:]
    assert len(rest) == len(whole)  # of the epoch, as Lightning counts them


def test_what_one_process_has_does_not_depend_on_the_others_batches():
    single = order(count=12)
    shares = [order(count=12, rank=rank, processes=3) for rank in range(3)]
    assert [index for step in zip(*shares, strict=True) for index in step] == single


@given(st.integers(0, 30), st.integers(1, 6))
def test_evaluation_sees_every_image_once(count, processes):
    samplers = [
        EvaluationSampler(count, state=lambda rank=rank: SamplerState(0, rank, processes))
        for rank in range(processes)
    ]
    shares = [list(sampler) for sampler in samplers]
    assert all(shares)  # a process without an image gets one that counts nothing
    real = [index for share in shares for index in share if index != UNLABELLED]
    assert sorted(real) == list(range(count))
    assert all(share == [UNLABELLED] for share in shares if UNLABELLED in share)
    assert [len(sampler) for sampler in samplers] == [len(share) for share in shares]


def test_a_photograph_that_counts_nothing_is_unlabelled():
    photographs = EvaluationDataset(Noise())
    assert photographs[UNLABELLED].labels.unique().tolist() == [255]
    assert photographs[0].labels.unique().tolist() != [255]


def examples(seed=3):
    transforms = [RandomHorizontalFlip(), ColorJitter(), RandomResize(0.7, 1.5), RandomCrop(16, 16)]
    return TrainingDataset(Noise(), transforms, seed=seed)


def epoch_of(workers, epoch=1):
    loader = DataLoader(
        examples(),
        batch_sampler=batches(7, 2, seed=3, epoch=epoch),
        num_workers=workers,
        collate_fn=collate,
    )
    return list(loader)


def test_workers_change_nothing():
    alone, together = epoch_of(0), epoch_of(2)
    assert len(alone) == len(together) == 4
    for one, two in zip(alone, together, strict=True):
        assert one.names == two.names
        assert all(torch.equal(a, b) for a, b in zip(one[:3], two[:3], strict=True))


def test_an_example_is_a_function_of_seed_epoch_and_index():
    def image(key, seed=3):
        return examples(seed)[key].image

    assert torch.equal(image((1, 2)), image((1, 2)))
    for other in (image((2, 2)), image((1, 3)), image((1, 2), seed=4)):
        assert not torch.equal(other, image((1, 2)))
    assert len(examples()) == 7


def test_without_transforms_an_example_is_the_photograph():
    plain, expected = TrainingDataset(Noise(), [], seed=0)[0, 4], Noise()[4]
    np.testing.assert_array_equal(plain.image.permute(1, 2, 0), expected.image)
    np.testing.assert_array_equal(plain.labels, expected.labels)
    assert plain.name == "image 4"


@pytest.mark.parametrize("mirrored", [False, True])
def test_evaluation_sees_photographs_as_they_are(mirrored):
    class Mirrored(Noise):
        def __getitem__(self, index):
            sample = super().__getitem__(index)
            image = sample.image[:, ::-1] if mirrored else sample.image  # not contiguous
            return Sample(image, sample.labels, sample.name)

    photographs = EvaluationDataset(Mirrored())
    image, labels, name = photographs[2]
    assert len(photographs) == 7
    assert image.dtype == torch.uint8
    assert labels.dtype == torch.int32
    sample = Mirrored()[2]
    np.testing.assert_array_equal(image.permute(1, 2, 0).numpy(), sample.image)
    np.testing.assert_array_equal(labels.numpy(), sample.labels)
    assert name == "image 2"
