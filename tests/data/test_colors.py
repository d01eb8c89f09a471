import shutil

import numpy as np
import pytest
from PIL import Image

from scaseg.cli import main
from scaseg.data.datasets.color_table import ColorTable, built_in, read_table
from scaseg.data.datasets.colors import ColorDataset
from scaseg.data.datasets.folder import FolderDataset
from scaseg.data.datasets.recognition import recognize
from scaseg.data.prepare import IncompleteError, prepare
from tests.data import replicas

CAR, SKY, VOID, TREE = (64, 0, 128), (128, 128, 128), (0, 0, 0), (128, 128, 0)
# as Kaggle's CamVid has it, blanks and all
TABLE = "name,r,g,b\nCar,64, 0, 128\nSky,128, 128, 128\nVoid,0, 0, 0\nTree,128, 128, 0"
COLORS = [[CAR, SKY, VOID], [TREE, TREE, SKY]]
LABELS = [[0, 1, 255], [2, 2, 1]]


def color_png(path, colors, mode="RGB"):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.uint8(colors)).convert(mode, palette=Image.Palette.ADAPTIVE).save(path)


def camvid(root, table=TABLE):
    """Kaggle's layout: train/, train_labels/NAME_L.png, class_dict.csv."""
    for split, name in (("train", "0001TP_006690"), ("val", "0016E5_07959"), ("test", "x_1")):
        replicas.photograph(root / split / f"{name}.png")
        color_png(root / f"{split}_labels" / f"{name}_L.png", COLORS)
    if table:
        replicas.text(root / "class_dict.csv", table)
    return root


def test_kaggles_camvid(tmp_path):
    root, ours = camvid(tmp_path / "CamVid"), tmp_path / "ours"
    [found] = recognize(root)
    assert (found.name, "class_dict.csv" in found.found) == ("colors", True)
    assert ColorDataset.splits(root) == ("train", "val", "test")
    data = ColorDataset(root, "train")
    assert (data.classes, data.palette) == (("Car", "Sky", "Tree"), (CAR, SKY, TREE))
    assert data[0].labels.tolist() == LABELS
    written = prepare(ColorDataset, root, ours)
    assert written.splits == {"train": 1, "val": 1, "test": 1}
    assert written.notes == ("the colour of Void is read as unlabelled",)
    for split in written.splits:
        assert FolderDataset(ours, split)[0].labels.tolist() == LABELS
    assert FolderDataset(ours).classes == ("Car", "Sky", "Tree")
    with Image.open(FolderDataset(ours, "train").pairs[0].labels) as image:
        assert np.asarray(image.convert("RGB"))[1, 0].tolist() == list(TREE)
    [photograph] = (ours / "images" / "val").iterdir()
    assert photograph.read_bytes() == (root / "val" / photograph.name).read_bytes()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("class_dict.csv", TABLE),
        ("class_dict.csv", "r;g;b;id;class\n64;0;128;1;Car\n128;128;128;2;Sky\n0;0;0;3;Void\n"
         "128;128;0;4;Tree\n"),
        ("label_colors.txt", "64 0 128\t\tCar\n128 128 128\tSky\n0 0 0\tVoid\n128 128 0\tTree\n"),
        ("classes.txt", "Car 64 0 128\nSky 128 128 128\nVoid 0 0 0\nTree 128 128 0\n"),
        ("classes.txt", "0 Car 64 0 128\n1 Sky 128 128 128\n2 Void 0 0 0\n3 Tree 128 128 0\n"),
        ("class_dict_seg.csv", '"name", "r", "g", "b"\n"Car", 64, 0, 128\nSky, 128, 128, 128\n'
         "Void, 0, 0, 0\nTree, 128, 128, 0\n"),
        ("labelmap.txt", "# label:color_rgb:parts:actions\nCar:64,0,128::\nSky:128,128,128::\n"
         "Void:0,0,0::\nTree:128,128,0:a,b:c\n"),
        ("LABEL_COLORS.TXT", "(64, 0, 128): Car\n(128, 128, 128): Sky\n(0, 0, 0): Void\n"
         "(128, 128, 0): Tree\n"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("mode", ["RGB", "RGBA", "P"])
def test_tables(tmp_path, name, content, mode):
    replicas.photograph(tmp_path / "images" / "a.jpg")
    color_png(tmp_path / "labels" / "a.png", COLORS, mode)
    replicas.text(tmp_path / name, content)
    data = ColorDataset(tmp_path)
    assert data.classes == ("Car", "Sky", "Tree")
    assert data[0].labels.tolist() == LABELS


def test_several_colors_of_one_class(tmp_path):
    """As the eleven classes of CamVid are made from its 32."""
    replicas.text(tmp_path / "t.txt", "Car 1 2 3\nSky 128 128 128\nCar 64 0 128\n")
    table = ColorTable.of(tmp_path / "t.txt")
    assert (table.names, table.palette) == (("Car", "Sky"), ((1, 2, 3), (128, 128, 128)))
    labels, unknown = table.look_up(np.uint8([[CAR, (1, 2, 3), SKY]]))
    assert (labels.tolist(), unknown) == ([[0, 0, 1]], {})


def test_unknown_colors_are_counted_and_named(tmp_path, capsys):
    root = camvid(tmp_path / "CamVid")
    strange = [[(64, 0, 120), (64, 0, 120), VOID], [(250, 250, 250), TREE, SKY]]
    color_png(root / "train_labels" / "0001TP_006690_L.png", strange)
    with pytest.raises(IncompleteError) as refused:
        prepare(ColorDataset, root, tmp_path / "ours")
    [problem] = refused.value.problems
    assert problem.place.endswith("0001TP_006690_L.png")
    assert problem.detail == (
        "2 pixels of 64 0 120, nearest is Car 64 0 128; "
        "1 pixels of 250 250 250, nearest is Sky 128 128 128"
    )
    assert problem.remedy.endswith("class_dict.csv, or give --unknown-colors ignore, or nearest")
    for what, expected in (("ignore", [255, 255]), ("nearest", [0, 1])):
        out = tmp_path / what
        main(["data", "prepare", "colors", str(root), str(out), "--unknown-colors", what])
        labels = FolderDataset(out, "train")[0].labels
        assert [labels[0, 0], labels[1, 0]] == expected
        assert "2 pixels of 64 0 120, nearest is Car" in capsys.readouterr().out
    with pytest.raises(ValueError, match="--unknown-colors: 'x'; give one of error, ignore, near"):
        ColorDataset.configured(unknown_colors="x")(root)


def test_a_split_without_labels_is_left_out_with_a_word(tmp_path):
    root = camvid(tmp_path / "CamVid")
    shutil.rmtree(root / "test_labels")
    written = prepare(ColorDataset, root, tmp_path / "ours")
    assert written.splits == {"train": 1, "val": 1}
    assert written.notes[0] == "test/ has no label maps beside it: not used"


def test_thousands_of_unknown_colors_in_bounded_time():
    """A label map that was a JPEG once; each colour becomes the class that a search finds."""
    colors = np.random.default_rng(0).integers(0, 256, (300, 300, 3), np.uint8)
    table = built_in("camvid")
    labels, unknown = table.look_up(colors, "nearest")
    assert len(unknown) > 80_000
    for row, column in ((0, 0), (17, 250), (299, 299)):
        near = table.nearest(tuple(colors[row, column].tolist()))
        distance = [np.sum((np.int32(one) - colors[row, column]) ** 2) for one in (near,)]
        own = [one for one, label in table.by_color.items() if label == labels[row, column]]
        assert min(np.sum((np.int32(one) - colors[row, column]) ** 2) for one in own) == distance


def test_jpeg_label_maps_by_the_nearest_color(tmp_path):
    """As Kvasir-SEG has its masks: black and white, blurred by JPEG."""
    square = np.zeros((16, 16, 3), np.uint8)
    square[4:12, 4:12] = 255
    for name in ("a", "b"):
        replicas.photograph(tmp_path / "images" / f"{name}.jpg", 16, 16)
        color_png(tmp_path / "masks" / f"{name}.jpg", square)
    [found] = recognize(tmp_path)
    assert found.name == "colors"
    with pytest.raises(ValueError, match=r"a.jpg: a JPEG label map, and no table.*and --unknown-"):
        ColorDataset(tmp_path)
    replicas.text(tmp_path / "classes.txt", "background 0 0 0\npolyp 255 255 255\n")
    with pytest.raises(ValueError, match=r"a.jpg: a JPEG label map; .*or --unknown-colors nearest"):
        ColorDataset(tmp_path)[0]
    data = ColorDataset.configured(unknown_colors="nearest")(tmp_path)
    assert data[0].labels.tolist() == (square[..., 0] // 255).tolist()


def test_two_folders_of_photographs_are_no_labels(tmp_path):
    for name in ("cats/1.jpg", "dogs/1.jpg", "scene_1.jpg", "scene_2.jpg"):
        replicas.photograph(tmp_path / ("shots" if "scene" in name else "kinds") / name)
    assert recognize(tmp_path / "kinds") == recognize(tmp_path / "shots") == []


def test_gray_that_is_the_index(tmp_path):
    """RGB with R = G = B = index, as some editors save a label map."""
    replicas.photograph(tmp_path / "images" / "a.jpg")
    color_png(tmp_path / "labels" / "a.png", [[(0, 0, 0), (1, 1, 1), (255,) * 3]] * 2)
    data = ColorDataset(tmp_path)
    assert (data.classes, data.palette, data[0].labels.tolist()) == (None, None, [[0, 1, 255]] * 2)
    replicas.text(tmp_path / "classes.txt", "sky\ntree\n")
    assert ColorDataset(tmp_path).classes == ("sky", "tree")


def test_one_label_map_in_colors_among_others_is_a_fault(tmp_path):
    for name in "abc":
        replicas.photograph(tmp_path / "images" / f"{name}.jpg")
        replicas.png(tmp_path / "labels" / f"{name}.png", LABELS)
    color_png(tmp_path / "labels" / "a.png", COLORS)
    assert recognize(tmp_path) == []
    with pytest.raises(ValueError, match=r"a RGB label map; .*: .* prepare colors SRC"):
        FolderDataset(tmp_path)[0]


def test_without_a_table(tmp_path):
    root = camvid(tmp_path / "CamVid", table=None)
    color_png(
        root / "train_labels" / "0001TP_006690_L.png",
        [[CAR, (128, 64, 128), VOID], [TREE, TREE, SKY]],
    )
    said = r"CamVid: no table .* colour is \(5 colours: .*, or camvid or camvid11, which has"
    with pytest.raises(ValueError, match=said):
        prepare(ColorDataset, root, tmp_path / "ours")
    assert not (tmp_path / "ours").exists()
    named = ColorDataset.configured(classes_file="camvid")(root, "train")
    assert len(named.classes) == 31
    eleven = ColorDataset.configured(classes_file="camvid11")(root, "train")
    assert (len(eleven.classes), eleven.classes[5], eleven[0].labels[1, 0]) == (11, "tree", 5)
    assert [named.classes[label] for label in named[0].labels[1]] == ["Tree", "Tree", "Sky"]
    assert named[0].labels[0, 2] == 255


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "names no class; give lines such as"),
        ("name,r,g,b\nCar,64,0,x\n", "line 2 has no colour; give r, g, b from 0 to 255"),
        ("name,r,g,b\nCar,64,0\n", "line 2 has no colour"),
        ("Car 1 2 3\nSky 1 2 300\n", "line 2 has no colour"),
        ("Car 1 2 3\nSky\n", "line 2: 'Sky'; give `name r g b`"),
        ("Car 1 2 3\nSky 1 2 3\n", "Sky has the colour 1 2 3 of another class"),
        ("Void 0 0 0\n", "names no class"),
        ("\n".join(f"c{n}x 0 {n // 256} {n % 256}" for n in range(300)), "names 300 classes; 255"),
        ("name,r,g,b\n,1,2,3\n", "line 2 has no name"),
        ("# of 2010\n\nname,r,g,b\n\nCar,64,0,x\n", "line 5 has no colour"),
        ("# of 2010\n\nCar 1 2 3\n\nSky\n", "line 5: 'Sky'; give"),
    ],
)
def test_damaged_tables_are_one_line(tmp_path, content, said):
    root = camvid(tmp_path, table=None)
    (root / "class_dict.csv").write_text(content)
    with pytest.raises(ValueError, match=f"class_dict.csv: {said}"):
        ColorDataset(root, "train")


def test_a_table_that_is_not_there(tmp_path):
    with pytest.raises(ValueError, match=r"nowhere.csv: no such file"):
        ColorDataset.configured(classes_file="nowhere.csv")(camvid(tmp_path), "train")


def test_the_built_in_tables(tmp_path):
    assert (len(built_in("camvid").names), len(built_in("voc").names)) == (31, 21)
    assert built_in("camvid").by_color[(64, 192, 0)] == 30  # Wall, the last
    labels, _ = built_in("voc").look_up(np.uint8([[(0, 0, 0), (192, 128, 128), (224, 224, 192)]]))
    assert labels.tolist() == [[0, 15, 255]]
    replicas.text(tmp_path / "t.txt", "just a name\nother\n")
    assert read_table(tmp_path / "t.txt") == [("just a name", None), ("other", None)]


def test_check_reads_colors_and_names_the_command(tmp_path, monkeypatch, capsys):
    """Until now: `a RGB label map`, once for each file, and no way on."""
    replicas.enlarge(camvid(tmp_path / "CamVid"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "60")
    main(["data", "check", "CamVid"])
    printed = capsys.readouterr().out
    assert "RGB label map" not in printed
    command = "scaseg data prepare colors CamVid CamVid_prepared"
    assert printed.endswith(f"{command}\n")
    main(["data", "check", "CamVid", "--classes-file", "camvid11"])
    assert capsys.readouterr().out.endswith(f"{command} \\\n    --classes-file camvid11\n")


def test_a_command_that_would_fail_is_not_proposed(tmp_path, capsys):
    """With the option that the errors name it is, and the folder that failed can be used again."""
    root, out = camvid(tmp_path / "CamVid", TABLE.replace("Void,0, 0, 0\n", "")), tmp_path / "out"
    replicas.enlarge(root)
    command = ["data", "prepare", "colors", str(root), str(out)]
    with pytest.raises(SystemExit, match="1"):
        main(["data", "check", str(root)])
    printed = capsys.readouterr().out
    assert "data prepare" not in printed
    assert printed.endswith("convert it.\n")
    main(["data", "check", str(root), "--unknown-colors", "ignore"])
    assert capsys.readouterr().out.endswith("--unknown-colors ignore\n")
    with pytest.raises(SystemExit, match="1"):
        main(command)
    main([*command, "--unknown-colors", "ignore"])
    assert len(FolderDataset(out, "train")) == 1
    with pytest.raises(SystemExit, match="2"):  # now it has pairs
        main([*command, "--unknown-colors", "nearest"])
    assert f"out: holds colors prepared from {root}, with other" in capsys.readouterr().err
