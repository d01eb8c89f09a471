"""One base test for datasets of files; a new dataset is a replica and a few expected values."""

from itertools import chain

import numpy as np
import pytest
from PIL import Image

from scaseg.data.datasets.folder import FolderDataset
from scaseg.data.prepare import prepare


class PairedDatasetTests:
    """Subclass it; `replica` writes a small dataset in the official form."""

    dataset = None
    splits = {}  # the names of each
    classes = ()
    labels = []  # of the first sample of the first split
    no_split = "has no split 'dev'; there are {}"

    def replica(self, root):
        raise NotImplementedError

    @pytest.fixture
    def root(self, tmp_path):
        return self.replica(tmp_path / "official")

    def test_splits_names_classes_and_labels(self, root):
        assert self.dataset.splits(root) == tuple(self.splits)
        for split, names in self.splits.items():
            data = self.dataset(root, split)
            assert [sample.name for sample in data] == list(data.names) == names
            assert data.classes == self.classes
        everything = self.dataset(root)
        assert sorted(everything.names) == sorted(chain(*self.splits.values()))
        first = self.dataset(root, next(iter(self.splits)))[0]
        assert first.labels.tolist() == self.labels
        assert first.labels.dtype == np.int32

    def test_a_split_that_is_not_there(self, root):
        with pytest.raises(ValueError, match=self.no_split.format(", ".join(self.splits))):
            self.dataset(root, "dev")

    @pytest.mark.parametrize(
        ("file", "said"), [(0, "has no photograph"), (1, "has no label map for a photograph")]
    )
    def test_what_is_missing_is_named(self, root, file, said):
        split, *_ = self.splits
        pair = self.dataset(root, split).pairs[0]
        for folder in (pair.image.parent, pair.labels.parent):
            (folder / f"._{pair[file].name}").write_bytes(b"macOS's own")
        pair[file].unlink()
        data = self.dataset(root, split, strict=False)
        if data.problems:  # a split that takes what is there does not miss a photograph
            assert said in data.problems[0].problem
            assert pair.name.rpartition("/")[2] in data.problems[0].detail
            with pytest.raises(ValueError, match=said):
                self.dataset(root, split)
        assert len(data.problems) + len(data) == len(self.splits[split]) - (not data.problems)

    def test_a_subset_and_the_cache_key(self, root):
        data = self.dataset(root)
        part = data.subset([1])
        assert part.names == [data.names[1]]
        assert part.fingerprint(0) == data.fingerprint(1) != data.fingerprint(0)
        other = self.dataset(root, ignore_index=254)
        assert other.fingerprint(0) != data.fingerprint(0)
        assert other[0].labels.tolist() == data[0].labels.tolist()

    def test_a_prepared_folder_holds_the_same(self, root, tmp_path):
        ours, seen = tmp_path / "ours", []
        result = prepare(self.dataset, root, ours, progress=lambda *done: seen.append(done))
        total = sum(map(len, self.splits.values()))
        assert result[:3] == ({split: len(names) for split, names in self.splits.items()}, total, 0)
        assert seen == [(done, total) for done in range(total + 1)]
        assert FolderDataset.splits(ours) == tuple(self.splits)
        for split in self.splits:
            official, there = self.dataset(root, split), FolderDataset(ours, split)
            assert there.classes == official.classes
            for pair, mine, theirs in zip(official.pairs, there, official, strict=True):
                assert mine.name == theirs.name == pair.name
                np.testing.assert_array_equal(mine.labels, theirs.labels)
                copy = ours / "images" / f"{pair.name}{pair.image.suffix}"
                assert copy.read_bytes() == pair.image.read_bytes()
        with Image.open(there.pairs[0].labels) as label_map:
            assert (label_map.format, label_map.mode) == ("PNG", "P" if official.palette else "L")
            if official.palette:
                colors = np.reshape(label_map.getpalette(), (-1, 3))[: len(official.palette)]
                assert colors.tolist() == [list(color) for color in official.palette]
