"""Tables of Hugging Face: tests/data/hugging_face was written by datasets 5.2.0 (pyarrow 26)."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from scaseg.cli import main
from scaseg.data.datasets.folder import FolderDataset
from scaseg.data.datasets.hugging_face import HuggingFace
from scaseg.data.datasets.recognition import recognize
from scaseg.data.decode import table
from scaseg.data.prepare import prepare
from scaseg.data.validation.check import check_data
from tests.data.annotations import CLASSES, EMPTY, SCENE, png_bytes

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")
MADE = Path(__file__).parent / "hugging_face"
PHOTOGRAPH = png_bytes(np.zeros((6, 8, 3)))


def write(path, columns):
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pyarrow.table(columns), path)
    return path


def image(data):
    return {"bytes": data, "path": None}


@pytest.mark.parametrize("form", ["hub", "saved"])
def test_photographs_and_label_maps(form, tmp_path, capsys):
    root = shutil.copytree(MADE / form, tmp_path / form)
    (root / "id2label.json").write_text('{"0": "background", "1": "car", "2": "tree"}')
    assert [(one.name, one.root) for one in recognize(root)] == [("hf", root)]
    assert HuggingFace.splits(root) == ("train", "val")
    train = HuggingFace(root, "train")
    assert (train.classes, train.names) == (CLASSES, ["train/000000", "train/000001"])
    assert [sample.labels.tolist() for sample in train] == [SCENE, SCENE[::-1]]
    assert HuggingFace(root, "val")[0].labels.tolist() == EMPTY
    assert train.size(0) == (6, 8)
    assert len({HuggingFace(root).fingerprint(index) for index in range(3)}) == 3
    assert check_data(HuggingFace, root).pixels == tuple(2 * np.bincount(np.ravel(SCENE)))
    main(["data", "prepare", "auto", str(root), str(tmp_path / "ours")])
    ours = FolderDataset(tmp_path / "ours", "train")
    assert ours[1].labels.tolist() == SCENE[::-1]
    assert np.array_equal(ours[1].image, train[1].image)
    assert ours.pairs[0].image.suffix == ".jpg"  # as it was stored, not encoded again
    assert ours.pairs[0].image.read_bytes() == train.read_photograph(train.pairs[0].image)
    assert prepare(HuggingFace, root, tmp_path / "ours").skipped == 3


def test_rows_of_numbers_whose_classes_have_names():
    data = HuggingFace(MADE / "grid")
    assert (data.classes, data.names) == (CLASSES, ["train/000000"])
    assert data[0].labels.tolist() == SCENE


def test_ids_with_gaps_and_unlabelled_ones(tmp_path):
    """Names decide: values without one are refused, 255 is unlabelled."""
    values = np.array([[0, 7, 40], [7, 255, 40]], np.uint8)
    columns = {"image": [image(png_bytes(np.zeros((2, 3, 3))))], "mask": [image(png_bytes(values))]}
    write(tmp_path / "a.parquet", columns)
    (tmp_path / "id2label.json").write_text('{"40": "road", "7": "sky", "0": "unlabeled"}')
    data = HuggingFace(tmp_path)
    assert (data.classes, data.splits(tmp_path)) == (("sky", "road"), ())
    assert data[0].labels.tolist() == [[255, 0, 1], [0, 255, 1]]
    (tmp_path / "id2label.json").write_text('{"40": "road"}')
    with pytest.raises(ValueError, match=r"a.parquet: mask, row 0: holds 0; 1 ids are named"):
        HuggingFace(tmp_path)[0]
    (tmp_path / "id2label.json").unlink()
    assert HuggingFace(tmp_path).classes is None
    assert HuggingFace(tmp_path)[0].labels.tolist() == values.tolist()
    (tmp_path / "names.txt").write_text("\n".join(f"c{n}" for n in range(41)))
    named = HuggingFace.configured(classes_file=str(tmp_path / "names.txt"))(tmp_path)
    assert named[0].labels.tolist() == values.tolist()


def test_columns_are_known_by_their_types_and_names_or_given(tmp_path):
    columns = {"left": [image(PHOTOGRAPH)], "right": [image(PHOTOGRAPH)]}
    columns |= {"label": [3], "semantic": [image(png_bytes(SCENE))]}
    write(tmp_path / "a.parquet", columns)
    assert recognize(tmp_path) == []
    with pytest.raises(ValueError, match=r"columns left, right, label, semantic; say which: --im"):
        HuggingFace(tmp_path)
    chosen = HuggingFace.configured(image_column="right", label_column="semantic")
    assert chosen(tmp_path)[0].labels.tolist() == SCENE
    write(tmp_path / "a.parquet", {name: columns[name] for name in ("left", "semantic")})
    one_given = HuggingFace.configured(label_column="semantic")
    assert one_given(tmp_path)[0].labels.tolist() == SCENE
    with pytest.raises(ValueError, match="--label-column: 'semantics'; did you mean semantic"):
        HuggingFace.configured(label_column="semantics")(tmp_path)


def test_groups_of_rows_are_read_once_and_not_all_are_held(tmp_path, monkeypatch):
    rows = [image(PHOTOGRAPH)] * 20
    content = pyarrow.table({"image": rows, "mask": [image(png_bytes(SCENE))] * 20})
    parquet.write_table(content, tmp_path / "a.parquet", row_group_size=2)

    class Counted(parquet.ParquetFile):
        reads = 0

        def read_row_group(self, *arguments, **options):
            Counted.reads += 1
            return super().read_row_group(*arguments, **options)

    monkeypatch.setattr(parquet, "ParquetFile", Counted)
    data, opened = HuggingFace(tmp_path), table.open_table(tmp_path / "a.parquet")
    assert sum(sample.labels.sum() for sample in data) == 20 * np.sum(SCENE)
    assert Counted.reads == 20  # 10 groups, 2 columns
    # photographs and labels of all files together: a shuffled dataset opens many
    monkeypatch.setattr(table, "MOST_HELD", 5 * opened._column(0, "image").nbytes)
    for name in "bcdefghi":
        shutil.copy(tmp_path / "a.parquet", tmp_path / f"{name}.parquet")
        assert table.open_table(tmp_path / f"{name}.parquet").value(0, "image")
    assert sum(one.nbytes for one in table._held.values()) <= table.MOST_HELD
    assert data[0].labels.tolist() == SCENE
    monkeypatch.setattr(table, "MOST_BYTES", 10)
    with pytest.raises(ValueError, match=r"a.parquet: more than 10 bytes in a group of rows"):
        data[10]


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        (image(None), "a.parquet: mask, row 0: holds no image, a path alone"),
        (image(b"hello"), "a.parquet: mask, row 0: not an image"),
        (image(png_bytes(np.zeros((6, 8, 3)))), "mask, row 0: a RGB label map"),
        (image(png_bytes([[0, 1]])), r"label/0.png: 1 x 2 but its photograph is 6 x 8"),
        ([[1, 2], [3]], "mask, row 0: no rows of whole numbers"),
    ],
)
def test_label_maps_that_are_none(tmp_path, cell, said):
    write(tmp_path / "a.parquet", {"image": [image(PHOTOGRAPH)], "mask": [cell]})
    with pytest.raises(ValueError, match=said):
        HuggingFace(tmp_path)[0]


def test_files_that_are_damaged_or_of_two_configurations(tmp_path):
    whole = write(tmp_path / "a" / "train.parquet", {"image": [image(PHOTOGRAPH)], "mask": [[[1]]]})
    data = whole.read_bytes()
    for damaged in (b"", b"PAR1", data[:-20], data[:40] + b"\xff" * 40 + data[80:]):
        whole.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"train.parquet"):
            HuggingFace(tmp_path)[0]
    whole.write_bytes(data)
    write(tmp_path / "b" / "train.parquet", {"image": [image(PHOTOGRAPH)], "mask": [[[1]]]})
    with pytest.raises(ValueError, match=r"several configurations \(a, b\); give the folder of o"):
        HuggingFace(tmp_path)


READ = """
import sys
from pathlib import Path
from scaseg.data.decode.table import Table
from scaseg.errors import UserError
whole, path = Path(sys.argv[1]).read_bytes(), Path(sys.argv[2])
for at in map(int, sys.argv[3:]):
    path.write_bytes(whole[:at] + bytes([255]) + whole[at + 1:])
    try:
        table = Table(path)
        for row in range(len(table)):
            for column in ("pixel_values", "label"):
                table.value(row, column)
    except UserError as error:
        print(error)
"""


def test_damaged_arrow_files_do_not_end_the_process(tmp_path):
    """Lengths and offsets: pyarrow aborts at each where it is not asked to look at them first."""
    file = MADE / "saved" / "train" / "data-00000-of-00001.arrow"
    places = ["983", "999", "1031", "1075", "1077", "1079", "1083", "2416", "2419", "2421"]
    command = [sys.executable, "-c", READ, str(file), str(tmp_path / "a.arrow"), *places]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("a.arrow: cannot be read (") == len(places)


def test_saved_folders_that_are_refused(tmp_path):
    root = shutil.copytree(MADE / "saved", tmp_path / "saved")
    state = root / "train" / "state.json"
    content = json.loads(state.read_text())
    for change, said in (
        ({"_indices_data_files": [{"filename": "i.arrow"}]}, "a selection of rows; save it again"),
        ({"_data_files": [{"filename": "../validation/state.json"}]}, "state.json: no such file"),
        ({"_data_files": [{"filename": "gone.arrow"}]}, "gone.arrow: no such file"),
    ):
        state.write_text(json.dumps(content | change))
        with pytest.raises(ValueError, match=said):
            HuggingFace(root, "train")


def test_without_pyarrow_the_extra_is_named(tmp_path, monkeypatch):
    write(tmp_path / "train.parquet", {"image": [image(PHOTOGRAPH)], "mask": [[[1]]]})
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert recognize(tmp_path)[0].name == "hf"  # by the names of its files
    with pytest.raises(ValueError, match=r"train.parquet: needs pyarrow; .*'scaseg\[data\]'"):
        HuggingFace(tmp_path)


def test_one_dataset_alone_that_was_saved():
    data = HuggingFace(MADE / "saved" / "train")
    assert (HuggingFace.splits(data.root), data.names) == ((), ["000000", "000001"])
    assert data[0].labels.tolist() == SCENE


@pytest.mark.parametrize(
    ("names", "options", "said"),
    [
        ('{"a": "car"}', {}, "id2label.json: not every key is a number; give ids and names"),
        (json.dumps({str(id_): f"c{id_}" for id_ in range(256)}), {}, "256 classes; 255 are the"),
        ("{}", {"bands": 4}, "data.bands: photographs in other files are read as RGB; convert it"),
    ],
)
def test_names_and_bands_that_are_refused(names, options, said, tmp_path):
    root = shutil.copytree(MADE / "hub", tmp_path / "hub")
    (root / "id2label.json").write_text(names)
    with pytest.raises(ValueError, match=said):
        HuggingFace(root, **options)[0]
