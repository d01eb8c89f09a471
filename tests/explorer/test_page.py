import dataclasses
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from PIL import Image

from scaseg.cli import main
from scaseg.explanation.features import extract_features
from scaseg.nn.context import Context
from scaseg.registry import CONTEXTS
from tests.explorer.browser import needs_browser, open_page
from tests.explorer.test_payload import network, picture

PLACES = [(5, 5), (70, 20), (44, 58)]
MAPPED = [
    name
    for name, kind in CONTEXTS.items()
    if name != "none" and kind.coefficient_rows is not Context.coefficient_rows
]
DRAWN = """stage => {
  const canvas = document.querySelectorAll("canvas.map")[stage];
  const [height, width] = [canvas.height - 2, canvas.width - 2];
  const pixels = canvas.getContext("2d").getImageData(1, 1, width, height).data;
  const scale = document.querySelector("#scale canvas").getContext("2d").getImageData(0, 0, 256, 1);
  return {height, width, pixels: Array.from(pixels), colors: Array.from(scale.data)};
}"""


@pytest.fixture(scope="module")
def page_file(tmp_path_factory):
    """Two pictures as three models see them."""
    folder = tmp_path_factory.mktemp("explore")
    Image.fromarray(picture()).save(folder / "x.png")
    Image.fromarray(picture(48, 48)).save(folder / "y.png")
    for context in ("sca", "dot", "none"):
        network(context).save_pretrained(folder / context)
    models = [str(folder / context) for context in ("sca", "dot", "none")]
    images = [str(folder / name) for name in ("x.png", "y.png")]
    main(["explore", *images, "--model", *models, "--export", str(folder / "page.html"), "--quiet"])
    return folder / "page.html"


def move(page, x, y, stage=0):
    box = page.locator(".surface").nth(stage).bounding_box()
    at = box["x"] + (x + 0.5) / 90 * box["width"], box["y"] + (y + 0.5) / 61 * box["height"]
    page.mouse.move(*at)
    return at


def drawn(page, stage):
    """The map on the page, from its colors: levels 0 to 255; -1: gray, the neuron itself."""
    found = page.evaluate(DRAWN, stage)
    pixels = np.array(found["pixels"]).reshape(found["height"], found["width"], 4)[..., :3]
    colors = np.array(found["colors"]).reshape(256, 4)[:, :3]
    away = np.abs(pixels[:, :, None].astype(int) - colors).sum(-1)
    assert (away.min(-1)[(pixels != 128).any(-1)] == 0).all()
    return np.where((pixels == 128).all(-1), -1, away.argmin(-1))


@needs_browser
def test_the_map_under_the_pointer_is_that_of_python_for_every_context(tmp_path):
    Image.fromarray(picture()).save(tmp_path / "x.png")
    for context in (*MAPPED, "none", "psp"):
        network(context).save_pretrained(tmp_path / context)
    models = [str(tmp_path / context) for context in (*MAPPED, "none", "psp")]
    page_file = tmp_path / "page.html"
    arguments = [str(tmp_path / "x.png"), "--model", *models, "--export", str(page_file)]
    main(["explore", *arguments, "--quiet"])
    seen = {context: extract_features(network(context), picture()) for context in MAPPED}
    with open_page(page_file.as_uri()) as page:
        for x, y in PLACES:
            move(page, x, y)  # of the first: the others follow
            for stage, features in enumerate(seen.values()):
                row, column = features.grid.neuron_at(x, y)
                with torch.no_grad():
                    share = features.context.dependency_map(features.features, row, column)[0]
                assert_drawn(drawn(page, stage), share.numpy(), row, column, features.context)
        captions = page.locator("figcaption").all_inner_texts()
        assert "take no context" in captions[-2]
        assert "no weighted mean" in captions[-1]


def assert_drawn(found, share, row, column, context):
    """Compare the levels of a drawn map with those that the shares of Python should have."""
    even = 1 / (share.size - context.exclude_self)
    top = max(2 * even, np.sort(share, None)[int(0.995 * (share.size - 1))])
    levels = np.clip(np.round(255 * share / top), 0, 255)
    if context.exclude_self:
        levels[row, column] = -1
    assert np.abs(found - levels).max() <= 2, type(context).__name__
    assert len(np.unique(found)) > 2 or not context.input_dependent  # it shows something


@needs_browser
def test_points_are_pinned_kept_and_found_again(page_file):
    with open_page(page_file.as_uri()) as page:
        for x, y in PLACES[:2]:
            page.mouse.click(*move(page, x, y))
        assert page.locator("#pins > li").count() == 2
        assert "pins=5%2C5%3B70%2C20" in page.url
        with page.expect_download() as download:
            page.click("#keep-npz")
        kept = np.load(download.value.path())
        features = extract_features(network("sca"), picture())
        targets = [features.grid.neuron_at(*place) for place in PLACES[:2]]
        assert kept["neurons"].tolist() == [list(one) for one in targets]
        rows, columns = features.grid.map_size
        flat = torch.tensor([row * columns + column for row, column in targets])
        shares = features.coefficients(flat).numpy().reshape(2, rows, columns)
        np.testing.assert_allclose(kept["maps"], shares, rtol=1e-4, atol=1e-7)
        assert kept["maps_2"].shape == (2, rows, columns)
        with page.expect_download() as download:
            page.click("#keep-png")
        kept = np.asarray(Image.open(download.value.path()).convert("RGB"))
        assert kept.shape == (61 + 28, 3 * 90 + 2 * 12, 3)  # captions, gaps
        mapped, plain = kept[:61, :90], kept[:61, 2 * 102 : 2 * 102 + 90]
        assert np.abs(mapped.astype(int) - plain).max() > 100
        assert (kept[61:] < 128).any()  # the caption
        with page.expect_download() as download:
            page.click("#keep-svg")
        root = ElementTree.parse(download.value.path()).getroot()
        images = root.findall(".//{http://www.w3.org/2000/svg}image")
        assert len(images) == 6  # a photograph and what lies over it, of three models
        assert all(one.get("href").startswith("data:image/") for one in images)
        assert len(root.findall(".//{http://www.w3.org/2000/svg}circle")) == 2 * 3 * 2
        page.check('input[value="difference"]')
        assert page.locator("#scale-low").inner_text().startswith("\u2212")
        difference = drawn(page, 0)
        found = shares[1] - shares[0]  # the last pin minus the one before
        found.reshape(-1)[flat] = 0
        expected = np.round(255 * (found / np.abs(found).max() + 1) / 2)
        assert np.abs(difference - expected).max() <= 2
        page.check("#reversed")
        page.check('input[value="shares"]')
        everyone = features.coefficients(torch.arange(rows * columns)).numpy()
        who = everyone[:, flat[1]].reshape(rows, columns)
        assert_drawn(drawn(page, 0), who, *targets[1], features.context)
        page.check("#doubtful")
        page.locator("#doubt").fill("80")
        page.check("#disagree")
        address = page.url
    with open_page(address) as page:  # the state is in the address
        assert page.locator("#pins > li").count() == 2
        for control in ("#reversed", "#doubtful", "#disagree"):
            assert page.locator(control).is_checked()
        assert page.locator("#doubt").input_value() == "80"
        page.locator("#pins .remove").first.click()
        assert page.locator("#pins > li").count() == 1
        page.evaluate("location.hash = '#mode=coefficients&class=1'")
        page.wait_for_selector('input[value="coefficients"]:checked')
        assert not page.locator("#reversed").is_checked()
    with open_page(f"{address.partition('#')[0]}#image=7&pins=1,1") as page:
        assert "not here" in page.locator("#problem").inner_text()
        assert page.locator("#pins > li").count() == 0


@needs_browser
def test_a_class_alone_and_another_picture(page_file):
    alpha = """() => {
      const canvas = document.querySelector("canvas.labels");
      const {data} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
      return data.filter((_, at) => at % 4 === 3).reduce((sum, one) => sum + one, 0) / 255
        / (canvas.width * canvas.height);
    }"""
    with open_page(page_file.as_uri()) as page:
        assert page.evaluate(alpha) == 1
        first = page.locator("#classes button").first
        first.click()
        area = float(first.locator(".number").inner_text().split()[0]) / 100
        assert abs(page.evaluate(alpha) - area) < 0.006
        assert first.get_attribute("aria-pressed") == "true"
        page.locator("#images button").nth(1).click()
        page.wait_for_selector('body[data-image="y.png"]')
        assert "image=1" in page.url
        assert page.evaluate(alpha) == 1


@needs_browser
def test_what_is_doubtful_and_where_models_disagree_is_hatched(tmp_path):
    Image.fromarray(picture()).save(tmp_path / "x.png")
    one, other = network("sca"), network("none")
    names = ("ground", "sky", "water")
    one.config = dataclasses.replace(one.config, classes=names)
    # the same names in another order: an index says nothing
    other.config = dataclasses.replace(other.config, classes=(*names[1:], names[0]))
    for name, model in (("one", one), ("other", other)):
        model.save_pretrained(tmp_path / name)
    models = ["--model", str(tmp_path / "one"), str(tmp_path / "other")]
    page_file = tmp_path / "page.html"
    main(["explore", str(tmp_path / "x.png"), *models, "--export", str(page_file), "--quiet"])
    first, second = (model.predict(picture(), scores=True) for model in (one, other))
    y, x = np.indices(first.labels.shape)
    apart = np.array(first.classes)[first.labels] != np.array(second.classes)[second.labels]
    doubtful = np.round(255 * first.scores.max(0)) < 0.5 * 255
    read = """stage => {
      const canvas = document.querySelectorAll("canvas.labels")[stage];
      return Array.from(canvas.getContext("2d").getImageData(0, 0, 90, 61).data);
    }"""
    with open_page(page_file.as_uri()) as page:

        def pixels(stage):
            return np.array(page.evaluate(read, stage)).reshape(61, 90, 4)[..., :3]

        def hatched():
            return (pixels(0) == 255).all(-1)

        assert not hatched().any()
        # one name, one color, which the legend shows
        colors = [
            {
                name: "#{:02x}{:02x}{:02x}".format(*seen[model.labels == label][0])
                for label, name in enumerate(model.classes)
                if (model.labels == label).any()
            }
            for seen, model in ((pixels(0), first), (pixels(1), second))
        ]
        assert all(colors[1].get(name, color) == color for name, color in colors[0].items())
        assert colors[0].keys() & colors[1].keys()
        page.check("#disagree")
        assert np.array_equal(hatched(), apart & ((x - y) % 8 < 3))
        assert 0 < apart.mean() < 1
        page.uncheck("#disagree")
        page.check("#doubtful")
        assert np.array_equal(hatched(), doubtful & ((x + y) % 8 < 3))
        move(page, 30, 30)
        assert page.locator("canvas.map").first.is_visible()
        page.check('input[value="classes"]')
        move(page, 31, 30)
        assert not page.locator("canvas.map").first.is_visible()
        assert first.classes[first.labels[30, 31]] in page.locator("#here").inner_text()


@needs_browser
def test_it_works_by_touch(page_file):
    with open_page(page_file.as_uri(), has_touch=True, size=(360, 740)) as page:
        box = page.locator(".surface").first.bounding_box()
        page.touchscreen.tap(box["x"] + 40, box["y"] + 40)
        assert page.locator("#pins > li").count() == 1
        touch = page.context.new_cdp_session(page)
        moved = "here => document.querySelector('#here').innerText != here"
        for kind, place in (("touchStart", 60), ("touchMove", 90), ("touchMove", 140)):
            here = page.locator("#here").inner_text()
            points = [{"x": box["x"] + place, "y": box["y"] + place}]
            touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
            page.wait_for_function(moved, arg=here)  # the map follows the finger
        there = page.locator("#here").inner_text()
        touch.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
        assert page.locator("#here").inner_text() == there  # and stays
        assert page.locator("#pins > li").count() == 1


@needs_browser
def test_it_works_by_keyboard(page_file):
    with open_page(page_file.as_uri()) as page:
        page.locator(".surface").first.focus()
        page.keyboard.press("ArrowRight")
        here = page.locator("#announce").inner_text()
        page.keyboard.press("Shift+ArrowDown")
        assert page.locator("#announce").inner_text() != here
        page.keyboard.press("Enter")
        assert page.locator("#pins > li").count() == 1
        page.keyboard.press("ArrowUp")
        page.keyboard.press(" ")
        assert page.locator("#pins > li").count() == 2
        page.keyboard.press("Delete")
        assert page.locator("#pins > li").count() == 1
        page.keyboard.press("Escape")
        assert page.locator("#pins > li").count() == 0


@needs_browser
@pytest.mark.parametrize("size", [(360, 740), (1280, 900), (2560, 1300)])
def test_nothing_is_wider_than_the_page(page_file, size):
    with open_page(page_file.as_uri(), size=size, color_scheme="dark") as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= size[0]


def test_only_a_page_of_ours_is_replaced(page_file, capsys):
    photograph = page_file.with_name("x.png")
    before = photograph.read_bytes()
    with pytest.raises(SystemExit) as stop:
        main(["explore", str(photograph), "--export", str(photograph), "--overwrite"])
    assert stop.value.code == 2
    assert photograph.read_bytes() == before
    assert capsys.readouterr().err.count("\n") == 1


@needs_browser
@pytest.mark.parametrize("color_scheme", ["light", "dark"])
def test_it_is_accessible(page_file, color_scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    with open_page(f"{page_file.as_uri()}#pins=5,5;70,20", color_scheme=color_scheme) as page:
        found = axe.Axe().run(page)
    assert not found.response["violations"], found.generate_report()
