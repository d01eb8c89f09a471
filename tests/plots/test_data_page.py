import base64
import io
import re
from collections import defaultdict

import numpy as np
import pytest
from PIL import Image

from scaseg.cli import main
from scaseg.data.datasets.context_scenes import ContextScenesGlobal
from scaseg.data.datasets.folder import FolderDataset
from scaseg.plots.data_page import NO_CLASS, SAMPLED, dataset_page
from scaseg.plots.palette import default_palette


@pytest.fixture
def root(tmp_path):
    """Four photographs: 0 is sky over sea, 1 sky alone, 2 holds a stray label, 3 is too small."""
    maps = {"0": [[0, 1]], "1": [[0, 0]], "2": [[0, 7]], "3": [[0]]}
    for name, values in maps.items():
        labels = np.kron(np.array(values), np.ones((40, 30))).astype(np.uint8)
        for folder in ("images", "labels"):
            (tmp_path / "data" / folder).mkdir(parents=True, exist_ok=True)
        photograph = Image.new("RGB", (60, 40), (10 * int(name), 200, 100))
        photograph.save(tmp_path / "data" / "images" / f"{name}.png")
        Image.fromarray(labels).save(tmp_path / "data" / "labels" / f"{name}.png")
    (tmp_path / "data" / "classes.txt").write_text("sky\nsea & <b>\n")
    return tmp_path / "data"


def figures(page):
    """The figures of each section: caption and pictures, decoded."""
    found = defaultdict(list)
    for title, body in re.findall(r'<h2 id="s\d+">(.*?)<small>.*?</h2>\n(.*?)\n', page, re.S):
        for pictures, caption in re.findall(r"<figure>(.*?)<figcaption>(.*?)</fig", body):
            decoded = [
                np.asarray(Image.open(io.BytesIO(base64.b64decode(data))))
                for data in re.findall(r"base64,([^\"]+)", pictures)
            ]
            found[re.sub("<i.*?></i>", "", title).strip()].append((caption, *decoded))
    return found


def test_every_class_and_every_problem_is_shown(root, tmp_path, capsys):
    page = tmp_path / "page.html"
    main(["data", "look", str(root), "--out", str(page)])
    assert "2 classes, 2 errors" in capsys.readouterr().out
    text = page.read_text()
    shown = figures(text)
    sky, sea = default_palette(2)
    assert "<b>" not in text
    assert "http" not in text.replace("https://www.w3.org", "")

    assert [one[0] for one in shown["sky"]] == ["images/1.png", "images/0.png", "images/2.png"]
    [(caption, photograph, labels)] = shown["sea &amp; &lt;b&gt;"]
    assert caption == "images/0.png"
    assert np.abs(photograph[5, 5].astype(int) - (0, 200, 100)).max() < 4
    assert labels[5, 5].tolist() == [0, 0, 0, 0]  # sky is not colored among the sea
    assert labels[5, 55].tolist() == [*sea, 255]

    [(_, _, labels)] = [one for one in shown["All classes"] if one[0] == "images/0.png"]
    assert labels[5, 5].tolist() == [*sky, 255]
    [(caption, _, labels)] = shown["error: holds labels that are no class, 0 to 1"]
    assert caption == "labels/2.png: 7"
    assert labels[5, 55].tolist() == [*NO_CLASS, 255]
    [small] = shown["error: has another size than its photograph"]
    assert small[2].shape[:2] == small[1].shape[:2]  # its labels, stretched over the photograph
    assert "images/3.png" not in [one[0] for one in shown["sky"]]  # there they would mislead


def test_what_is_counted_is_what_is_shown(root, tmp_path, capsys):
    for name in "012":  # as 3 is: none fits
        Image.new("L", (30, 40)).save(root / "labels" / f"{name}.png")
    page = tmp_path / "page.html"
    main(["data", "look", str(root), "--out", str(page), "--per-class", "3"])
    assert "4 errors and 1 warning shown" in capsys.readouterr().out
    text = page.read_text()
    assert "4 errors, 1 warning<br>" in text
    assert "<small>3 of 4 shown; " in text
    assert "<small>1 time; " in text  # the sea never occurs
    assert "All classes" not in text


def test_the_overview_has_those_that_fit(root, tmp_path):
    for number in range(10):  # of 14, every second one does not fit, and every second one is taken
        for folder in ("images", "labels"):
            copied = (root / folder / "0.png").read_bytes()
            (root / folder / f"a{number}.png").write_bytes(copied)
    for path in sorted((root / "labels").iterdir())[::2]:
        Image.new("L", (30, 20)).save(path)
    main(["data", "look", str(root), "--out", str(tmp_path / "page.html"), "--quiet"])
    overview = figures((tmp_path / "page.html").read_text())["All classes"]
    assert [one[0] for one in overview][:2] == ["images/1.png", "images/a1.png"]


def test_only_a_page_of_ours_is_replaced(root, tmp_path, capsys):
    photograph = root / "images" / "0.png"
    before = photograph.read_bytes()
    with pytest.raises(SystemExit) as stop:
        main(["data", "look", str(root), "--out", str(photograph), "--overwrite"])
    assert stop.value.code == 2
    assert photograph.read_bytes() == before
    assert capsys.readouterr().err.count("\n") == 1
    page = str(tmp_path / "page.html")
    main(["data", "look", str(root), "--out", page, "--quiet"])
    with pytest.raises(SystemExit):
        main(["data", "look", str(root), "--out", page, "--quiet"])
    main(["data", "look", str(root), "--out", page, "--quiet", "--overwrite"])


def test_the_page_of_a_training_reads_some_of_its_images(root):
    scenes = ContextScenesGlobal("train")
    page = dataset_page(scenes, scenes.classes)
    assert f"{SAMPLED} of {len(scenes)} training images" in page
    assert len(figures(page)) == len(scenes.classes) + 1
    good = FolderDataset(root, strict=False).subset([0, 1])
    assert [one[0] for one in figures(dataset_page(good, good.classes))["sky"]] == ["1", "0"]
