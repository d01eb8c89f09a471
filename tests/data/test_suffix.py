import pytest

from scaseg.cli import main
from scaseg.data.datasets.folder import FolderDataset
from scaseg.data.datasets.recognition import recognize
from scaseg.data.datasets.suffix import SuffixDataset
from scaseg.data.folders.endings import Endings, find_endings
from tests.data import replicas

LABELS = [[0, 1, 255]] * 2


def write(root, images, labels):
    """Two photographs and their label maps, from patterns such as train/{}_mask.png."""
    for name in ("a_1", "b_2"):
        replicas.photograph(root / images.format(name))
        replicas.png(root / labels.format(name), LABELS)
    return root


@pytest.mark.parametrize(
    ("images", "labels", "names"),
    [
        ("{}.jpg", "{}_mask.png", ["a_1", "b_2"]),
        ("{}.png", "{}_mask.png", ["a_1", "b_2"]),
        ("{}.jpg", "{}.png", ["a_1", "b_2"]),
        ("{}_leftImg8bit.png", "{}_gtFine_labelIds.png", ["a_1", "b_2"]),
        ("{}_sat.jpg", "{}_mask.png", ["a_1", "b_2"]),
        ("images/{}.JPG", "masks/{}_mask.PNG", ["a_1", "b_2"]),
        ("images/x/{}.jpg", "labels/x/{}-label.tif", ["x/a_1", "x/b_2"]),
        ("images/{}.jpg", "annotations/trimaps/{}.png", ["a_1", "b_2"]),
        ("photos_raw/{}.jpg", "my_labels_full/{}_L.png", ["a_1", "b_2"]),
        ("photos_raw/{}.jpg", "my_labels_full/{}.png", ["a_1", "b_2"]),
        ("train/{}.jpg", "train/{}_seg.png", ["train/a_1", "train/b_2"]),
        ("train/{}.jpg", "train_labels/{}_L.png", ["train/a_1", "train/b_2"]),
    ],
)
def test_endings_are_found(tmp_path, images, labels, names):
    root = write(tmp_path, images, labels)
    data = SuffixDataset(root)
    assert data.names == names
    assert [sample.labels.tolist() for sample in data] == [LABELS] * 2
    assert {pair.image.name for pair in data.pairs}.isdisjoint(p.labels.name for p in data.pairs)
    assert [one.name for one in recognize(root)] == ["suffix"]


def test_lists_and_splits(tmp_path):
    root = write(tmp_path / "listed", "images/{}.jpg", "labels/{}_mask.png")
    replicas.text(root / "train.txt", "b_2.jpg\n")
    replicas.text(root / "val.txt", "a_1\n")
    assert SuffixDataset.splits(root) == ("train", "val")
    replicas.text(root / "test.txt", "a_1\n")
    assert SuffixDataset.splits(root) == ("train", "val", "test")
    (root / "test.txt").unlink()
    assert SuffixDataset(root, "train").names == ["b_2"]
    with pytest.raises(ValueError, match="has no split 'test'; there are train, val"):
        SuffixDataset(root, "test")
    for split in ("train", "val"):
        write(tmp_path / "folders", f"{split}/{{}}.jpg", f"{split}_masks/{{}}_m.png")
    assert SuffixDataset.splits(tmp_path / "folders") == ("train", "val")
    assert SuffixDataset(tmp_path / "folders", "val").names == ["val/a_1", "val/b_2"]


def test_options_decide_where_several_endings_fit(tmp_path):
    root = write(tmp_path, "images/{}.jpg", "labels/{}_labelIds.png")
    for name in ("a_1", "b_2"):
        replicas.png(root / "labels" / f"{name}_instance.png", [[7] * 3] * 2)
    with pytest.raises(ValueError, match=r"several endings fit: .*_labelIds.png.*--label-suffix"):
        SuffixDataset(root)
    assert recognize(root) == []
    chosen = SuffixDataset.configured(label_suffix="_labelIds.png")
    assert [sample.labels.tolist() for sample in chosen(root)] == [LABELS] * 2
    given = SuffixDataset.configured(image_suffix=".jpg", label_suffix="_instance.png")
    assert given(root)[0].labels.tolist() == [[7] * 3] * 2


def test_an_ending_given_is_taken_even_where_another_fits_better(tmp_path):
    root = write(tmp_path, "images/{}.jpg", "labels/{}_labelIds.png")
    replicas.png(root / "labels" / "a_1_rare.png", [[3] * 3] * 2)
    data = SuffixDataset.configured(label_suffix="_rare.png")(root, strict=False)
    assert [sample.labels.tolist() for sample in data] == [[[3] * 3] * 2]
    assert "'b_2'" in str(data.problems[0])


def test_folders_of_splits_come_before_their_lists(tmp_path):
    """As Datumaro writes CamVid: train/, trainannot/ and train.txt of pairs."""
    root = write(tmp_path, "train/{}.jpg", "trainannot/{}_L.png")
    replicas.text(root / "train.txt", "/train/a_1.jpg /trainannot/a_1_L.png\n")
    assert SuffixDataset(root, "train").names == ["train/a_1", "train/b_2"]


def test_a_label_map_alone_in_one_folder_is_named(tmp_path):
    root = write(tmp_path, "{}.jpg", "{}_mask.png")
    replicas.png(root / "c_3_mask.png", LABELS)
    [problem] = SuffixDataset(root, strict=False).problems
    assert "has no photograph that its label map names ('c_3')" in str(problem)


@pytest.mark.parametrize("split", ["valid", "test"])
def test_a_split_without_label_maps_is_passed_over(tmp_path, split):
    """As DeepGlobe publishes its land cover."""
    root = write(tmp_path, "train/{}_sat.jpg", "train/{}_mask.png")
    for number in range(3):
        replicas.photograph(root / split / f"{number}_sat.jpg")
    assert SuffixDataset.splits(root) == ("train",)
    assert SuffixDataset(root).names == ["train/a_1", "train/b_2"]
    assert SuffixDataset(root).notes == [f"{split}/ has no label maps: not used"]
    assert [one.name for one in recognize(root)] == ["suffix"]
    given = SuffixDataset.configured(image_suffix="_sat.jpg", label_suffix="_mask.png")
    assert given.splits(root) == ("train",)
    for path in root.glob("train/*_mask.png"):  # none is left
        path.unlink()
    with pytest.raises(ValueError, match="no pair of endings explains its files"):
        SuffixDataset(root)


@pytest.mark.parametrize("label", ["0_mask.png", "0_gt.png"])
def test_a_split_with_some_label_maps_is_not_passed_over(tmp_path, label):
    root = write(tmp_path, "train/{}_sat.jpg", "train/{}_mask.png")
    for number in range(9):
        replicas.photograph(root / "valid" / f"{number}_sat.jpg")
    replicas.png(root / "valid" / label, LABELS)
    with pytest.raises(ValueError, match="valid: no pair of endings explains its files"):
        SuffixDataset(root)


@pytest.mark.parametrize("folder", [".", "train"])
def test_pairs_of_folders_further_in_do_not_hide_files(tmp_path, folder):
    root = write(tmp_path, f"{folder}/{{}}.jpg", f"{folder}/{{}}_mask.png")
    write(root, "more/b/images/{}.jpg", "more/b/labels/{}.png")
    data = SuffixDataset(root, strict=False)
    assert [pair.image.parent for pair in data.pairs] == [root / folder] * 2


def test_splits_may_end_differently(tmp_path):
    root = write(tmp_path, "train/{}.jpg", "train/{}_mask.png")
    write(root, "val/{}_sat.png", "val/{}_gt.png")
    assert SuffixDataset(root).names == ["train/a_1", "train/b_2", "val/a_1", "val/b_2"]


def test_a_photograph_is_not_taken_for_its_own_label_map(tmp_path):
    root = write(tmp_path, "{}.jpg", "{}_mask.png")
    replicas.photograph(root / "c_3.jpg")
    [problem] = SuffixDataset(root, strict=False).problems
    assert "has no label map for a photograph ('c_3')" in str(problem)


def test_what_is_missing_is_named(tmp_path):
    root = write(tmp_path, "images/{}.jpg", "labels/{}_mask.png")
    write(root, "images/{}c.jpg", "labels/{}c_mask.png")
    (root / "labels" / "b_2c_mask.png").unlink()
    (root / "images" / "a_1c.jpg").unlink()
    found = [str(problem) for problem in SuffixDataset(root, strict=False).problems]
    assert "images: has no photograph that its label map names ('a_1c')" in found[0]
    assert "labels: has no label map for a photograph ('b_2c')" in found[1]


def test_values_are_renamed_while_preparing(tmp_path, capsys):
    root = write(tmp_path / "isic", "images/{}.jpg", "masks/{}_segmentation.png")
    for name in ("a_1", "b_2"):
        replicas.png(root / "masks" / f"{name}_segmentation.png", [[0, 255, 255]] * 2)
    given = ["--label-map", "{255: 1}", "--classes", "skin,lesion"]
    command = ["data", "prepare", "auto", str(root), str(tmp_path / "ours")]
    main([*command, *given])
    data = FolderDataset(tmp_path / "ours")
    assert (data.classes, data[0].labels.tolist()) == (("skin", "lesion"), [[0, 1, 1]] * 2)
    main([*command, *given])
    assert "0 pairs written, 2 were there" in capsys.readouterr().out
    scenes = [*command[:2], "context_scenes_global", str(tmp_path / "new"), *given]
    wrong = {"with other options": command, "--classes: given, but context_scenes": scenes}
    for said, other in wrong.items():
        with pytest.raises(SystemExit, match="2"):
            main(other)
        assert said in capsys.readouterr().err
    replicas.enlarge(root)
    main(["data", "check", str(root), *given])
    assert capsys.readouterr().out.endswith("--classes skin,lesion --label-map '{255: 1}'\n")


def test_nothing_fits(tmp_path):
    replicas.photograph(tmp_path / "holiday.jpg")
    replicas.photograph(tmp_path / "other.jpg")
    with pytest.raises(ValueError, match="no pair of endings explains its files; give --image-suf"):
        SuffixDataset(tmp_path)
    assert recognize(tmp_path) == []
    replicas.photograph(tmp_path / "ours" / "images" / "a.jpg")
    replicas.png(tmp_path / "ours" / "labels" / "a.png", LABELS)
    assert recognize(tmp_path / "ours") == []
    assert FolderDataset(tmp_path / "ours").names == ["a"]


def test_one_missing_file_does_not_hide_the_endings():
    files = [f"{index}{end}" for index in range(9) for end in (".jpg", "_mask.png")]
    assert find_endings([*files, "9.jpg", "10.png"]) == [Endings("", "_mask.png")]
