"""Each format is recognized by its files, by one format alone, and the command can be pasted."""

import shlex

import pytest

from scaseg.cli import main
from scaseg.data.datasets.base import SegmentationDataset
from scaseg.data.datasets.folder import FolderDataset
from scaseg.data.datasets.recognition import recognize
from tests.data import replicas
from tests.data.test_ade20k import ade20k
from tests.data.test_atlantis import atlantis
from tests.data.test_cityscapes import cityscapes
from tests.data.test_loveda import loveda
from tests.data.test_mapillary import mapillary
from tests.data.test_roboflow import roboflow
from tests.data.test_voc import voc

FORMATS = {
    "sift_flow": replicas.sift_flow,
    "coco_stuff_10k": replicas.coco_stuff_10k,
    "coco_stuff_164k": replicas.coco_stuff_164k,
    "pascal_context": lambda root: replicas.pascal_context(root, "mmseg"),
    "voc": voc,
    "cityscapes": cityscapes,
    "ade20k": ade20k,
    "atlantis": atlantis,
    "loveda": loveda,
    "mapillary": mapillary,
    "roboflow": roboflow,
}


@pytest.mark.parametrize("name", FORMATS)
def test_a_format_is_recognized_and_its_command_works(name, tmp_path, capsys):
    root = FORMATS[name](tmp_path / "with space" / "data")
    [found] = recognize(root)
    assert (found.name, found.root) == (name, root)
    assert recognize(tmp_path)[0].root == root  # alone in a folder, as archives unpack
    main(shlex.split(found.command)[1:])
    prepared = root.parent / "data_prepared"
    assert f"{prepared}: " in capsys.readouterr().out
    assert recognize(prepared) == []  # it is ours now
    split, *_ = FolderDataset.splits(prepared)
    assert len(FolderDataset(prepared, split))
    main(["data", "prepare", "auto", str(root.parent / "data"), str(tmp_path / "auto"), "--quiet"])
    assert (tmp_path / "auto" / f"{split}.txt").is_file()


def test_what_the_user_sees(tmp_path, monkeypatch, capsys):
    replicas.sift_flow(tmp_path / "SiftFlow")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "60")
    with pytest.raises(SystemExit, match="1"):  # the replica's photographs are tiny
        main(["data", "check", "SiftFlow"])
    printed = capsys.readouterr().out
    assert "train  2 images" in printed
    assert printed.endswith(
        "Recognized as sift_flow: Images/ and SemanticLabels/ of SIFT\n"
        "Flow. Correct the errors before you convert it.\n"  # prepare would keep them
    )
    monkeypatch.chdir("SiftFlow")
    with pytest.raises(
        ValueError, match=r"run `scaseg data prepare sift_flow \. \.\./SiftFlow_pre"
    ):
        FolderDataset(".")


def test_several_formats_or_none(tmp_path, capsys):
    root = replicas.coco_stuff_10k(replicas.coco_stuff_164k(tmp_path / "coco"))
    assert [one.name for one in recognize(root)] == ["coco_stuff_10k", "coco_stuff_164k"]
    (tmp_path / "empty").mkdir()
    for source, said in (
        (root, r"coco: several formats fit (coco_stuff_10k: "),
        (tmp_path / "empty", "empty: its format is not recognized; give a format by name"),
        (tmp_path / "nowhere", "nowhere: no such folder"),
    ):
        with pytest.raises(SystemExit, match="2"):
            main(["data", "prepare", "auto", str(source), str(tmp_path / "out")])
        assert said in capsys.readouterr().err
    with pytest.raises(ValueError, match=r"coco_stuff_10k .*`; or it has .*coco_stuff_164k "):
        FolderDataset(root)
    assert not (tmp_path / "out").exists()


def test_our_own_form_further_in(tmp_path, monkeypatch, capsys):
    """An archive that unpacks as road/tiff/train and road/tiff/train_labels."""
    for split in ("train", "train_labels"):
        replicas.png(tmp_path / "road" / "tiff" / split / "a.png", [[0, 1, 255]] * 2)
    [found] = recognize(tmp_path / "road")
    assert (found.name, found.root) == ("folder", tmp_path / "road" / "tiff")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"did you mean --data road/tiff\?"):
        FolderDataset("road")
    main(["data", "prepare", "auto", "road", "out"])
    assert FolderDataset("out", "train")[0].labels.tolist() == [[0, 1, 255]] * 2


def test_a_deep_nest_of_folders_is_left_soon(tmp_path):
    place = tmp_path
    for _ in range(60):
        place = place / "a"
    place.mkdir(parents=True)
    assert recognize(tmp_path) == []
    with pytest.raises(ValueError, match="no such folder"):
        FolderDataset(tmp_path)


def test_options_of_formats(tmp_path):
    class Format(SegmentationDataset):
        options = ("label_suffix",)
        label_suffix = ""

    assert Format.configured() is Format
    assert Format.configured(label_suffix="_m.png").label_suffix == "_m.png"
    with pytest.raises(ValueError, match=r"--classes-file: not an .*\(--label-suffix\)"):
        Format.configured(classes_file="x")
    with pytest.raises(ValueError, match=r"--classes-file: not an option .*\(none\); leave it out"):
        FolderDataset.configured(classes_file="x")


def test_two_photographs_of_one_name_are_not_lost(tmp_path):
    """x/0.jpg and x/0.png are two photographs."""
    from scaseg.data.prepare import IncompleteError, prepare

    for split, suffix in (("train", ".jpg"), ("val", ".png")):
        replicas.photograph(tmp_path / "mm" / f"x/0{suffix}")
        replicas.png(tmp_path / "mm" / f"{split}.png", [[0] * 3] * 2)
        (tmp_path / "mm" / f"{split}.txt").write_text(f"x/0{suffix} {split}.png")
    with pytest.raises(IncompleteError) as refused:
        prepare(FolderDataset, tmp_path / "mm", tmp_path / "ours")
    [problem] = refused.value.problems
    assert "x/0.jpg has the same name; rename one of them" in str(problem)
