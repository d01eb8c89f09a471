import shutil
from itertools import chain

from scaseg.cli import main
from scaseg.data.datasets.loveda import CLASSES, LoveDA
from scaseg.data.datasets.recognition import recognize
from scaseg.data.prepare import prepare
from tests.data import replicas
from tests.data.base_dataset import PairedDatasetTests


def loveda(root):
    for name in ("Train/Rural/{}/0", "Train/Urban/{}/1366", "Val/Urban/{}/3514"):
        replicas.photograph(root / f"{name.format('images_png')}.png")
        replicas.png(root / f"{name.format('masks_png')}.png", [[0, 1, 7], [3, 4, 0]])
    replicas.photograph(root / "Test" / "Rural" / "images_png" / "4191.png")
    return root


class TestLoveDA(PairedDatasetTests):
    dataset, classes = LoveDA, CLASSES
    splits = {"train": ["train/Rural/0", "train/Urban/1366"], "val": ["val/Urban/3514"]}
    labels = [[255, 0, 6], [2, 3, 255]]

    def replica(self, root):
        return loveda(root)


def test_the_unlabelled_test_images_are_said(tmp_path, capsys):
    left = "Test/Rural/images_png/ has no label maps beside it: not used"
    assert prepare(LoveDA, loveda(tmp_path / "LoveDA"), tmp_path / "ours").notes == (left,)
    replicas.enlarge(tmp_path / "LoveDA")
    main(["data", "check", str(tmp_path / "LoveDA")])
    assert left in " ".join(capsys.readouterr().out.split())
    assert LoveDA(tmp_path / "LoveDA" / "Train").names == ["Rural/0", "Urban/1366"]


def test_archives_that_were_unpacked_into_folders(tmp_path):
    for split in ("Train", "Val"):
        shutil.move(loveda(tmp_path / "as published") / split, tmp_path / "in" / split / split)
    assert recognize(tmp_path / "in")[0].name == "loveda"
    assert LoveDA(tmp_path / "in").names == list(chain(*TestLoveDA.splits.values()))
