"""What values mean together: names off by one, 0 for unlabelled, gaps, ids, nothing labelled."""

import re
import shlex

import numpy as np
import pytest
from PIL import Image

from scaseg.cli import main
from scaseg.data.datasets.folder import FolderDataset
from scaseg.data.validation.check import Part, check_data, quick_check, require_valid
from tests.data.validation.spoilt import label_map, labels_everywhere, lines
from tests.data.validation.spoilt import root as root  # a fixture
from tests.faults.catalogue import LIGHT

TRAIN = ("train", *LIGHT, "--context", "sca")


def refused(capsys, *arguments):
    with pytest.raises(SystemExit, match="2"):
        main([*map(str, arguments)])
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith("error: ")
    return said


def train(root, *more):
    main([*TRAIN, "--data", str(root), "--out", str(root / "run"), *more])


def names(root, text):
    (root / "classes.txt").write_text("\n".join(text.split()))


@pytest.mark.parametrize("first", ["unlabelled", "Unlabeled", "background", "void", "other"])
def test_a_first_name_of_the_unlabelled_is_that_of_0(root, first):
    """Every name was off by one: sky was called unlabelled."""
    names(root, f"{first} sky tree")
    data = FolderDataset(root, reduce_zero_label=True)
    assert (data.classes, data.first_name) == (("sky", "tree"), first)
    report = check_data(FolderDataset, root, reduce_zero_label=True)
    assert report.errors == ()
    assert dict(zip(report.classes, report.pixels, strict=True)) == {"sky": 288, "tree": 288}
    is_doubtful = first in ("background", "other")
    said = f"'{first}' is the name of 0, which is unlabelled, and 'sky' that of 1; where"
    assert any(said in line for line in lines(report.warnings)) == is_doubtful


@pytest.mark.parametrize("values", [[0], [0, 255]])
def test_one_class_is_nothing_to_train_on(root, values):
    """Such a training had a loss of 0 and 100 % of everything."""
    labels_everywhere(root, values)
    (root / "classes.txt").unlink()
    [error] = check_data(FolderDataset, root, label_map={255: 255}).errors
    assert "all labelled pixels are of one class: there is nothing to tell apart" in str(error)
    with pytest.raises(ValueError, match="of one class"):
        require_valid([Part("train", FolderDataset(root, "train", label_map={255: 255}))])
    require_valid([Part("test", FolderDataset(root, "test", label_map={255: 255}))], training=False)


def test_names_that_may_be_off_by_one_are_refused_with_both_readings(root):
    """Three names, and with 0 for unlabelled two classes."""
    [error] = check_data(FolderDataset, root, reduce_zero_label=True).errors
    assert "3 classes are named and with reduce_zero_label the values are 1 to 2" in str(error)
    assert "is 1 'sky' or 'tree'?; take 'sky' out of the names if it stands for 0" in str(error)
    with pytest.raises(ValueError, match=r"is 1 'sky' or 'tree'\?"):
        require_valid([Part("train", FolderDataset(root, "train", reduce_zero_label=True))])
    for way_on, expected in (
        ("tree road", ("tree", "road")),
        ("unlabelled sky tree road", ("sky", "tree", "road")),
    ):
        names(root, way_on)
        report = check_data(FolderDataset, root, reduce_zero_label=True)
        assert (report.errors, report.classes) == ((), expected)


def test_a_first_class_that_was_taken_for_the_unlabelled(root):
    names(root, "background sky tree")
    labels_everywhere(root, [0, 1, 2, 3])
    [said, *_] = lines(check_data(FolderDataset, root, reduce_zero_label=True).errors)
    assert "the name 'background' was taken for 0; where it is a class, name 'unlabelled'" in said


def test_zero_may_be_unlabelled_where_nothing_has_names(root, capsys):
    """It was trained as a class without a word."""
    labels_everywhere(root, [0, 1, 2])
    (root / "classes.txt").unlink()
    said = "0 is a class like the others, and no pixel is unlabelled; where 0 means unlabelled, "
    assert f"{said}give --data.reduce_zero_label true" in "\n".join(
        lines(check_data(FolderDataset, root).warnings)
    )
    train(root)
    assert f"note: {root}: {said}give --data.reduce_zero_label true" in capsys.readouterr().err
    evaluate = ("evaluate", "--model", str(root / "run"), "--device", "cpu", "--workers", "0")
    main([*evaluate])
    assert f"{said}give --data.label_map '{{0: 255}}'" in capsys.readouterr().err
    main([*evaluate, "--data.label_map", "{0: 255}"])
    assert "note" not in capsys.readouterr().err
    quick = []
    quick_check(FolderDataset(root), notify=quick.append)
    assert said in quick[0]


@pytest.mark.parametrize("values", [[0, 1, 2, 255], [0, 1]])
def test_zero_is_a_class_beside_255_or_of_two(root, values):
    (root / "classes.txt").unlink()
    labels_everywhere(root, values)
    assert not any(
        "0 is a class" in line for line in lines(check_data(FolderDataset, root).warnings)
    )


@pytest.mark.parametrize(
    ("text", "place", "option"),
    [
        ("unlabelled sky tree", "class 0 'unlabelled'", "--data.reduce_zero_label true"),
        ("sky tree Void", "class 2 'Void'", "--data.label_map '{2: 255}'"),
    ],
)
def test_a_class_called_unlabelled_is_said(root, text, place, option):
    names(root, text)
    said = f"{place}: its name says unlabelled, and it is a class like the others; {option} leaves"
    report = check_data(FolderDataset, root)
    assert (len(report.errors), len(report.warnings)) == (0, 1)
    assert said in str(report.warnings[0])
    notes = []
    for _ in range(2):  # the second time from the cache
        require_valid([Part("train", FolderDataset(root, "train"))], notify=notes.append)
    assert [said in note for note in notes] == [True, True]
    evaluated = []
    part = [Part("test", FolderDataset(root, "test"))]
    require_valid(part, training=False, notify=evaluated.append)
    assert "--data.label_map '{" in evaluated[0]


def test_sparse_values_are_one_finding_with_the_map_to_paste(root, capsys):
    """There were 157 warnings, and a network of 161 classes."""
    (root / "classes.txt").unlink()
    labels_everywhere(root, [0, 40, 80, 160, 255])
    report = check_data(FolderDataset, root)
    assert len(report.findings) == 2  # this, and that there are no names
    said = refused(capsys, *TRAIN, "--data", root, "--out", root / "run")
    assert "of the labels 0 to 160 only 4 occur (0, 40, 80, 160); give --data.label_map" in said
    paste = shlex.split(re.search(r"give (--data.label_map '\{.*?\}')", said)[1])
    main(["data", "check", str(root), *paste])
    assert "No errors" in capsys.readouterr().out
    train(root, *paste)
    assert "4 classes" in capsys.readouterr().err
    refused(capsys, *TRAIN, "--data", root, "--out", root / "b", "--data.check", "quick")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, "--data.label_map '{20: 1, 40: 2}'"),
        ({"reduce_zero_label": True}, "--data.label_map '{20: 1, 40: 2}'"),
        ({"ignore_index": 0}, "--data.label_map '{0: 255, 20: 0, 40: 1}' --data.ignore_index 255"),
        ({"label_map": {20: 255}}, "--data.label_map '{20: 255, 40: 1}'"),
        ({"label_map": {20: 0}}, "--data.label_map '{20: 0, 40: 1}'"),
    ],
)
def test_the_map_goes_with_the_other_options(root, options, expected):
    (root / "classes.txt").unlink()
    labels_everywhere(root, [0, 20, 40])
    [error] = check_data(FolderDataset, root, **options).errors
    assert f"give {expected}, or name" in str(error)
    mapped = eval(re.search(r"\{.*\}", expected)[0])
    ignore = 255 if "ignore_index" in expected else options.get("ignore_index", 255)
    after = {**options, "label_map": mapped, "ignore_index": ignore}
    sample = FolderDataset(root, **after)[0].labels
    before = FolderDataset(root, **options)[0].labels
    assert set(np.unique(sample)) - {255} == set(range(len(set(np.unique(before)) - {255})))
    assert ((sample == 255) == (before == 255)).all()


def test_sparse_values_with_as_many_names(root):
    labels_everywhere(root, [0, 40, 80])
    report = check_data(FolderDataset, root)
    assert {one.remedy for one in report.errors} == {
        "in the order of the names: --data.label_map '{40: 1, 80: 2}'"
    }
    assert not check_data(FolderDataset, root, label_map={40: 1, 80: 2}).errors


def test_a_gap_or_two_are_no_error(root):
    (root / "classes.txt").unlink()
    labels_everywhere(root, [0, 1, 3, 6, 255])
    assert not check_data(FolderDataset, root).errors


def test_ids_of_16_bits_are_refused_in_a_line(root, capsys):
    """64,997 warnings, and then a training that took 33 GB and died."""
    (root / "classes.txt").unlink()
    ids = np.arange(16 * 24, dtype=np.uint16).reshape(16, 24) + 64_000
    for path in (root / "labels").iterdir():
        Image.fromarray(ids).save(path)
    report = check_data(FolderDataset, root)
    assert len(report.findings) < 10
    said = refused(capsys, *TRAIN, "--data", root, "--out", root / "run")
    assert "a.png: holds labels that are no class, 0 to 999 (64000, 64001, 64002, ...); are" in said
    assert len(said) < 500


def test_validation_without_a_label_is_refused(root, capsys):
    """Every score was n/a, and the exit code 0."""
    (root / "test.txt").rename(root / "val.txt")
    for name in "xy":
        label_map(root / f"labels/{name}.png", [255])
    for check in ("all", "quick"):
        said = refused(capsys, *TRAIN, "--data", root, "--out", root / "run", "--data.check", check)
        assert f"{root}: no pixel of the validation images is labelled; label some" in said
    train(root, "--data.val", "null")
    capsys.readouterr()
    evaluate = ("evaluate", "--model", root / "run", "--split", "val", "--device", "cpu")
    for check in ("all", "quick"):
        said = refused(capsys, *evaluate, "--workers", "0", "--data.check", check)
        assert "no pixel of the evaluation images is labelled" in said


def test_validation_and_test_may_share_and_it_is_said(root, capsys):
    """val.txt = test.txt is common practice; a test score is then none."""
    (root / "val.txt").write_text((root / "test.txt").read_text())
    report = check_data(FolderDataset, root)
    said = "test: shares 2 of 2 photographs with val, which chooses the epoch; a score on test is"
    assert (report.errors, [said in line for line in lines(report.warnings)]) == ((), [True])
    train(root)
    assert f"note: {said}" in capsys.readouterr().err
    main(["evaluate", "--model", str(root / "run"), "--device", "cpu", "--workers", "0"])
    said = "2 images: the split test, 2 of them in val too: as optimistic as a validation score\n"
    assert said in capsys.readouterr().err


def test_a_leak_names_the_way_on(root):
    (root / "test.txt").write_text("x\ny\nb")
    [error] = check_data(FolderDataset, root).errors
    assert f"`scaseg data fix {root} DST --drop-duplicates` does so" in str(error)


UNLABELLED_FIRST = "write 'unlabelled' before the names and give --data.reduce_zero_label true"


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([0, 1, 2], "0 is 'sky', and 'car' never occurs: or is 0 unlabelled, and 1 'sky'?"),
        ([1, 2, 3, 255], "no label is 0, 'sky', and 1 is 'tree': or is 1 'sky'?"),
    ],
)
def test_names_that_may_be_off_by_one_are_said_with_both_readings(root, capsys, values, said):
    """Every class was learned under its neighbour's name, without a word."""
    names(root, "sky tree road car")
    labels_everywhere(root, values)
    full = f"{root}: {said}; then {UNLABELLED_FIRST}; else leave it"
    report = check_data(FolderDataset, root)
    assert (report.errors, full in lines(report.warnings)) == ((), True)
    train(root)
    assert f"note: {full}" in capsys.readouterr().err
    main(["evaluate", "--model", str(root / "run"), "--device", "cpu", "--workers", "0"])
    said_there = capsys.readouterr().err
    assert f"{said}; then give --data.reduce_zero_label true; else leave it" in said_there
    quick = []
    quick_check(FolderDataset(root), notify=quick.append)  # a few maps: nothing follows
    assert quick == []
    names(root, "sky tree road car bus")  # and nothing from few classes, where few are evaluated
    part = [Part("test", FolderDataset(root, "test"))]
    require_valid(part, training=False, notify=quick.append)
    assert quick == []
    names(root, "unlabelled sky tree road car")  # the advice
    report = check_data(FolderDataset, root, reduce_zero_label=True)
    assert (report.errors, report.classes[0], report.reading) == ((), "sky", "")
    assert not any("or is" in line for line in lines(report.warnings))


@pytest.mark.parametrize(
    ("text", "values", "is_said"),
    [
        ("sky tree road", [0, 1, 2], True),
        ("sky tree road", [0, 1, 2, 255], False),
        ("background tree road", [0, 1, 2], False),
        ("sky tree", [0, 1], False),
    ],
)
def test_what_zero_is_taken_for_where_every_class_occurs(root, capsys, text, values, is_said):
    """No warning: data that are labelled everywhere look like this, too."""
    names(root, text)
    labels_everywhere(root, values)
    main(["data", "check", str(root)])
    out = " ".join(capsys.readouterr().out.split())
    said = "No pixel is unlabelled: 0 is 'sky', 1 'tree', 2 'road'. Where 0 means unlabelled and"
    assert (f"{said} 1 is 'sky', {UNLABELLED_FIRST}." in out) == is_said
    assert "No problems found." in out


def labels_of_16_bits(root, values):
    row = np.resize(np.array(values, np.uint16), 24)
    for path in (root / "labels").iterdir():
        Image.fromarray(np.tile(row, (16, 1))).save(path)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0, 1, 2, 65535], "--data.ignore_index 65535"),
        ([0, 1, 65535], "--data.ignore_index 65535"),  # as many values as names
        ([0, 1, 2, 255, 65535], "--data.label_map '{65535: 255}'"),
    ],
)
@pytest.mark.parametrize("named", [True, False])
def test_65535_is_unlabelled_where_it_alone_is_no_class(root, values, expected, named):
    if not named:
        (root / "classes.txt").unlink()
    labels_of_16_bits(root, values)
    remedies = {one.remedy for one in check_data(FolderDataset, root).errors}
    assert remedies == {f"where 65535 means unlabelled, give {expected}"}
    options = {"ignore_index": 65535} if "ignore" in expected else {"label_map": {65535: 255}}
    assert not check_data(FolderDataset, root, **options).errors


def test_a_few_large_values_get_the_map_to_paste(root):
    (root / "classes.txt").unlink()
    labels_of_16_bits(root, [0, 1000, 65000])
    remedies = {one.remedy for one in check_data(FolderDataset, root).errors}
    paste = "--data.label_map '{1000: 1, 65000: 2}'"
    assert remedies == {f"where each value is a class, give {paste}; ids of objects are none"}
    assert not check_data(FolderDataset, root, label_map={1000: 1, 65000: 2}).errors


def test_label_maps_that_were_all_refused_are_not_called_unlabelled(root):
    labels_everywhere(root, [7, 8])
    assert {one.problem for one in check_data(FolderDataset, root).errors} == {
        "holds labels that are no class, 0 to 2"
    }
    for path in (root / "labels").iterdir():
        path.write_bytes(b"no image")
    errors = check_data(FolderDataset, root).errors
    assert errors
    assert not any("no pixel" in line for line in lines(errors))


def test_masks_of_two_kinds_are_said(root):
    """Half of 0 and 255, half of 0 and 1: half of the foreground was unlabelled."""
    labels_everywhere(root, [0, 1])
    label_map(root / "labels/b.png", [0, 255])
    names(root, "ground wall")
    [said] = lines(check_data(FolderDataset, root).warnings)
    assert said.startswith("labels/b.png: holds 255 where other label maps hold 1: masks of two")
    assert said.endswith("give --data.label_map '{255: 1}'")
    assert not check_data(FolderDataset, root, label_map={255: 1}).findings
    label_map(root / "labels/a.png", [0, 1, 255])
    assert not check_data(FolderDataset, root).findings


def test_names_that_differ_in_case_alone_are_said(root):
    names(root, "Car tree car")
    [said] = lines(check_data(FolderDataset, root).warnings)
    assert said.startswith("classes: 'Car' and 'car' are two classes; give both one name")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("sky,tree,road", "one line with commas; write one name a line"),
        ("# mine\nsky\ntree", "begins with a comment ('# mine'); write the names alone"),
        ("#1\n#2", None),
        ("0 sky\n1 tree\n2 road", "numbers stand before the names ('0 sky'); write the names"),
        ("1: sky\n2: tree\n3: road", "and 'unlabelled' before them where 0 is no class"),
        ("1 sky\n3 tree\n2 road", None),
    ],
)
def test_lines_of_classes_txt_are_names(root, text, said):
    """Labels were called '0 sky', or all of them one class."""
    (root / "classes.txt").write_text(text)
    if said is None:
        assert FolderDataset(root).classes == tuple(text.splitlines())
    else:
        with pytest.raises(ValueError, match=re.escape(said)):
            FolderDataset(root)


def test_hold_out_beside_a_val_list_is_refused(root, capsys):
    (root / "test.txt").rename(root / "val.txt")
    hold_out = ("--data.hold_out", "0.5")
    for command in ((*TRAIN, "--out", root / "run"), ("compare", "--out", root / "comparison")):
        said = refused(capsys, *command, "--data", root, *hold_out)
        assert "--data.hold_out: has no effect: there is a val list; leave it out" in said
    (root / "val.txt").rename(root / "test.txt")
    train(root, *hold_out)
    assert "held out" in capsys.readouterr().err
