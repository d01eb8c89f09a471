import numpy as np
import pytest
from PIL import Image

from scaseg.data.datasets.folder import FolderDataset
from scaseg.data.validation.check import check_data, quick_check
from scaseg.data.validation.findings import Finding
from scaseg.data.validation.report import Report, render

TRAIN, TEST = ("a", "b", "c"), ("x", "y")


def photograph(path, seed, size=(16, 24)):
    pixels = np.random.default_rng(seed).integers(0, 255, (*size, 3), np.uint8)
    Image.fromarray(pixels).save(path)


def label_map(path, values, size=(16, 24)):
    labels = np.resize(np.asarray(values, np.uint8), size)
    Image.fromarray(labels).save(path)


@pytest.fixture
def root(tmp_path):
    """A clean data set: three classes, five pairs, train and test."""
    for folder in ("images", "labels"):
        (tmp_path / folder).mkdir()
    for seed, name in enumerate(TRAIN + TEST):
        photograph(tmp_path / "images" / f"{name}.jpg", seed)
        label_map(tmp_path / "labels" / f"{name}.png", [0, 1, 2, 255])
    (tmp_path / "classes.txt").write_text("sky\ntree\nroad\n")
    (tmp_path / "train.txt").write_text("\n".join(TRAIN))
    (tmp_path / "test.txt").write_text("\n".join(TEST))
    return tmp_path


def labels_everywhere(root, values):
    for path in (root / "labels").iterdir():
        label_map(path, values)


def exif_rotated(root):
    upright = Image.new("RGB", (24, 16))
    exif = upright.getexif()
    exif[0x0112] = 6
    upright.save(root / "images" / "a.jpg", exif=exif)


def truncate(path):
    path.write_bytes(path.read_bytes()[:-120])


def as_jpeg(path):
    Image.new("L", (24, 16)).save(path, format="JPEG")


ERRORS = {
    "no label map": (
        lambda root: (root / "labels/a.png").unlink(),
        "labels: has no label map for a photograph ('a'); add what is missing",
    ),
    "no photograph": (
        lambda root: (root / "images/x.jpg").unlink(),
        "images: has no photograph that test.txt names ('x')",
    ),
    "two photographs of one name": (
        lambda root: photograph(root / "images/a.png", 9),
        "images/a.png: a.jpg has the same name; keep one of them",
    ),
    "truncated photograph": (
        lambda root: truncate(root / "images/a.jpg"),
        "images/a.jpg: cannot be read (",
    ),
    "truncated label map": (
        lambda root: (root / "labels/a.png").write_bytes(b"\x89PNG\r\n\x1a\n"),
        "labels/a.png: not an image",
    ),
    "size": (
        lambda root: label_map(root / "labels/b.png", [0], (8, 24)),
        "labels/b.png: has another size than its photograph (8 x 24, not 16 x 24)",
    ),
    "turned, but not by EXIF": (
        lambda root: label_map(root / "labels/b.png", [0], (24, 16)),
        "labels/b.png: has another size than its photograph (24 x 16, not 16 x 24)",
    ),
    "EXIF": (
        exif_rotated,
        "labels/a.png: has the orientation of its photograph before EXIF rotation "
        "(16 x 24, not 24 x 16)",
    ),
    "RGB": (
        lambda root: Image.new("RGB", (24, 16)).save(root / "labels/a.png"),
        "labels/a.png: a RGB label map; give one channel",
    ),
    "JPEG": (lambda root: as_jpeg(root / "labels/a.png"), "labels/a.png: a JPEG label map; "),
    "out of range": (
        lambda root: label_map(root / "labels/y.png", [0, 9]),
        "labels/y.png: holds labels that are no class, 0 to 2 (9); rename them",
    ),
    "zero is unlabelled": (
        lambda root: label_map(root / "labels/y.png", [0, 3]),
        "labels/y.png: holds labels that are no class, 0 to 2 (3); where 0 is unlabelled, give "
        "--data.reduce_zero_label true",
    ),
    "binary": (
        lambda root: labels_everywhere(root, [0, 255]),
        "labels/a.png: holds only 0 and 255, like all label maps here: probably binary masks; give "
        "--data.label_map '{255: 1}'",
    ),
    "counted from one": (
        lambda root: labels_everywhere(root, [1, 2, 3, 255]),
        "labels/a.png: labels run from 1 to 3, but class indices start at 0; give "
        "--data.reduce_zero_label true",
    ),
    "in two lists": (
        lambda root: (root / "test.txt").write_text("x\ny\nb"),
        "images/b.jpg: is in train and in test",
    ),
    "twice in one list": (
        lambda root: (root / "test.txt").write_text("x\ny\nx.jpg"),
        "images/x.jpg: is listed more than once in test",
    ),
    "the same photograph": (
        lambda root: (
            Image.open(root / "images/c.jpg").save(root / "images/x.png")
            or (root / "images/x.jpg").unlink()
        ),
        "images/x.png: is in test, and a copy of it in train (c.jpg)",
    ),
    "small": (
        lambda root: (
            photograph(root / "images/a.jpg", 9, (7, 40)),
            label_map(root / "labels/a.png", [0], (7, 40)),
        ),
        "images/a.jpg: is smaller than 8 x 8 pixels (7 x 40)",
    ),
    "empty split": (
        lambda root: (root / "test.txt").write_text("\n"),
        "test.txt: names no photograph",
    ),
    "nothing labelled": (
        lambda root: labels_everywhere(root, [255]),
        "no pixel of the training images is labelled",
    ),
    "a class named twice": (
        lambda root: (root / "classes.txt").write_text("sky\nsky\nroad"),
        "classes: a class name occurs twice (sky)",
    ),
}

WARNINGS = {
    "label map alone": (
        lambda root: label_map(root / "labels/lonely.png", [0]),
        "labels/lonely.png: has no photograph",
    ),
    "class never used": (
        lambda root: (root / "classes.txt").write_text("sky\ntree\nroad\nmoon"),
        "class moon: never occurs; ",
    ),
    "class never trained": (
        lambda root: [label_map(root / f"labels/{name}.png", [0, 1]) for name in TRAIN],
        "class road: never occurs in train",
    ),
    "all unlabelled": (
        lambda root: label_map(root / "labels/a.png", [255]),
        "labels/a.png: is all unlabelled",
    ),
    "no names": (
        lambda root: (root / "classes.txt").unlink(),
        "class names are missing, so they are class 0, class 1, ...; write classes.txt",
    ),
    "counted from one, perhaps": (
        lambda root: (root / "classes.txt").unlink() or labels_everywhere(root, [1, 2]),
        "labels/a.png: labels run from 1 to 2, but class indices start at 0",
    ),
    "no list": (
        lambda root: (root / "test.txt").write_text("x"),
        "images/y.jpg: is in no list",
    ),
    "twin in one split": (
        lambda root: (root / "images/b.jpg").write_bytes((root / "images/a.jpg").read_bytes()),
        "images/b.jpg: is a copy of another photograph of train (a.jpg)",
    ),
}


def lines(findings):
    return [str(finding) for finding in findings]


@pytest.mark.parametrize(
    "spoil", [exif_rotated, lambda root: label_map(root / "labels/a.png", [0], (8, 12))]
)
def test_what_can_be_mended_names_the_command(root, spoil):
    spoil(root)
    [error] = check_data(FolderDataset, root).errors
    assert f": `scaseg data fix {root} DST` does so" in error.remedy


def test_another_shape_is_not_said_to_be_mended(root):
    label_map(root / "labels/a.png", [0], (20, 20))
    [error] = check_data(FolderDataset, root).errors
    assert "data fix" not in error.remedy


def test_a_clean_data_set(root):
    label_map(root / "labels/a_labelTrainIds.png", [0])  # left there by another tool
    report = check_data(FolderDataset, root, workers=2)
    assert report.findings == ()
    assert report.splits == {"train": 3, "test": 2}
    assert report.sizes == dict.fromkeys(("smallest", "median", "largest"), (16, 24))
    assert report.classes == ("sky", "tree", "road")
    assert (report.counted, report.pixels, report.unlabelled) == ("train", (288, 288, 288), 288)
    assert (report.eta, report.weights) == (1 / 3, (1, 1, 1))


@pytest.mark.parametrize("kind", ERRORS)
def test_every_error_names_its_file(root, kind):
    spoil, expected = ERRORS[kind]
    spoil(root)
    found = lines(check_data(FolderDataset, root).errors)
    assert len(found) == 1, found
    assert expected in found[0]


@pytest.mark.parametrize("kind", WARNINGS)
def test_every_warning_names_its_file_and_is_no_error(root, kind):
    spoil, expected = WARNINGS[kind]
    spoil(root)
    report = check_data(FolderDataset, root)
    assert report.errors == ()
    assert any(expected in line for line in lines(report.warnings)), report.warnings


def test_all_problems_are_told_together(root):
    kinds = ["truncated photograph", "size", "out of range", "no photograph"]
    (root / "images/more.jpg").write_bytes((root / "images/c.jpg").read_bytes())
    label_map(root / "labels/more.png", [0])
    for kind in kinds:
        ERRORS[kind][0](root)
    (root / "test.txt").write_text("x\ny\ny\nmore")
    found = "\n".join(lines(check_data(FolderDataset, root).errors))
    for kind in kinds:
        assert ERRORS[kind][1] in found
    assert "images/y.jpg: is listed more than once in test" in found
    assert "images/more.jpg: is in test, and a copy of it in train (c.jpg)" in found
    assert found.count("\n") == 5


@pytest.mark.parametrize(
    ("values", "options"),
    [([0, 255], {"label_map": {255: 1}}), ([1, 2, 3], {"reduce_zero_label": True})],
)
def test_the_advice_helps(root, values, options):
    labels_everywhere(root, values)
    assert check_data(FolderDataset, root).errors
    assert not check_data(FolderDataset, root, **options).errors
    with pytest.raises(ValueError, match=r"a\.png: .*--data\."):
        quick_check(FolderDataset(root))
    quick_check(FolderDataset(root, **options))


def test_unlabelled_255_can_be_said(root):
    labels_everywhere(root, [0, 255])
    assert not check_data(FolderDataset, root, label_map={255: 255}).errors


def test_without_lists_everything_is_one_set_and_mmseg_has_its_folders(root, tmp_path):
    for name in ("train.txt", "test.txt"):
        (root / name).unlink()
    report = check_data(FolderDataset, root)
    assert (report.splits, report.counted) == ({"all images": 5}, "all images")
    for split, names in (("train", TRAIN), ("val", TEST)):
        for ours, theirs, suffix in (("images", "img_dir", "jpg"), ("labels", "ann_dir", "png")):
            (root / theirs / split).mkdir(parents=True)
            for position, name in enumerate(names):  # the same names in both are no leak
                (root / ours / f"{name}.{suffix}").rename(
                    root / theirs / split / f"{position}.{suffix}"
                )
    (root / "img_dir" / "test").mkdir()
    report = check_data(FolderDataset, root)
    assert (report.splits, report.errors) == ({"train": 3, "val": 2}, ())
    assert "img_dir/test/ has no label maps beside it: not used" in str(report.warnings[0])


def test_a_folder_that_is_no_data_set(tmp_path):
    with pytest.raises(ValueError, match="images: no such folder"):
        check_data(FolderDataset, tmp_path)


QUICK = ("size", "EXIF", "RGB", "JPEG", "out of range", "binary", "counted from one")


@pytest.mark.parametrize("kind", QUICK)
def test_the_quick_check_says_it_in_one_line(root, kind):
    quick_check(FolderDataset(root))
    spoil, expected = ERRORS[kind]
    spoil(root)
    with pytest.raises(ValueError, match="; ") as refusal:
        quick_check(FolderDataset(root))
    assert f"{root}/{expected}" in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("place", ["here", "../here", "."])
def test_relative_folders_are_named_as_they_were_given(root, monkeypatch, place):
    home = root / "here"
    home.mkdir()
    for name in ("images", "labels"):
        (root / name).rename(home / name)
    monkeypatch.chdir(home if place != "here" else root)
    (home / "images/b.jpg").write_bytes(b"")
    with pytest.raises(ValueError, match=r"b\.jpg: not an image") as refusal:
        quick_check(FolderDataset(place))
    expected = "images/b.jpg: " if place == "." else f"{place}/images/b.jpg: "
    assert str(refusal.value).startswith(expected)
    [error] = check_data(FolderDataset, place).errors
    assert error.place == "images/b.jpg"


def test_the_quick_check_counts_the_rest(root):
    for name in "abx":
        label_map(root / f"labels/{name}.png", [0], (9, 9))
    with pytest.raises(ValueError, match=r"a.png: .* \(and 2 more files; `scaseg data check`"):
        quick_check(FolderDataset(root))


def test_the_quick_check_decodes_no_photograph(root, monkeypatch):
    """A file cut off after its header passes: time is spent on label maps only, and on few."""
    path = root / "images" / "a.png"
    photograph(path, 0)
    (root / "images" / "a.jpg").unlink()
    truncate(path)
    truncate(root / "images" / "b.jpg")
    quick_check(FolderDataset(root))
    assert len(check_data(FolderDataset, root).errors) == 2
    monkeypatch.setattr("scaseg.data.validation.check.DECODED", 2)
    Image.new("RGB", (24, 16)).save(root / "labels" / "y.png")
    quick_check(FolderDataset(root))  # looks at a and c
    Image.new("RGB", (24, 16)).save(root / "labels" / "c.png")
    with pytest.raises(ValueError, match=r"c\.png: a RGB label map"):
        quick_check(FolderDataset(root))


def test_labels_that_are_no_images_are_compared_when_read(root):
    class Arrays(FolderDataset):
        def read_values(self, path):
            return np.load(path)

    dataset = Arrays(root)
    for index, pair in enumerate(dataset.pairs):
        path = pair.labels.with_suffix(".npy")
        np.save(path, np.zeros((16, 24 if index else 23), np.int32))
        dataset.pairs[index] = pair._replace(labels=path)
    with pytest.raises(ValueError, match=r"a.npy: has another size .* \(16 x 23, not 16 x 24\)"):
        quick_check(dataset)
    dataset.pairs = dataset.pairs[1:]
    quick_check(dataset)


def report_with(findings=(), classes=("sky", "a very long name of a class that goes on", "道路")):
    return Report(
        root="somewhere",
        splits={"train": 3},
        sizes={},
        classes=classes,
        counted="train",
        pixels=(600, 399, 1),
        unlabelled=10,
        eta=0.3,
        weights=(1.0, 1.0, 8.0),
        weighting="the paper's, clamped to 1 to 16, as in the recipe own_folder",
        findings=tuple(findings),
    )


@pytest.mark.parametrize("width", [40, 60, 80, 300])
@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "ascii"])
def test_the_chart_fits_the_terminal(width, encoding):
    from rich.cells import cell_len

    text = render(report_with(), width=width, encoding=encoding)
    assert max(map(cell_len, text.splitlines())) == min(width, 100)
    text.encode(encoding)
    signs = ("█", "eta = 0.3") if encoding == "utf-8" else ("###", "eta = 0.3")
    for sign in signs:
        assert sign in text


def test_class_names_are_no_markup():
    text = render(report_with(classes=("[red]sky[/red]", ":smile:", "[/]")))
    assert all(name in text for name in ("[red]sky[/red]", ":smile:", "[/]"))
    assert "\x1b" not in text


def test_problems_of_one_kind_are_shown_together():
    same = [Finding(f"{i}.png", "a RGB label map", "give one channel") for i in range(300)]
    other = Finding("z.png", "cannot be read", "repair it", "torn")
    text = render(report_with([*same, other]), width=60)
    assert "error, 300 times: a RGB label map; give one channel" in text
    assert "    4.png\n    and 295 more\n" in text
    assert "5.png" not in text
    assert "error: z.png: cannot be read (torn); repair it" in text
    assert text.endswith("301 errors, 0 warnings.")
    [rgb, torn] = report_with([*same, other]).to_dict()["errors"]
    assert len(rgb["places"]) == 300
    assert torn["places"] == [{"place": "z.png", "detail": "torn"}]
