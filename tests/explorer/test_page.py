import numpy as np
import pytest
import torch
from PIL import Image

from scaseg.cli import main
from scaseg.explanation.features import extract_features
from tests.explorer.browser import needs_browser, open_page
from tests.explorer.test_payload import network, picture

PLACES = [(5, 5), (70, 20), (44, 58)]
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
def test_the_map_under_the_pointer_is_that_of_python(page_file):
    with open_page(page_file.as_uri()) as page:
        for stage, context in enumerate(("sca", "dot")):
            features = extract_features(network(context), picture())
            columns = features.grid.map_size[1]
            for x, y in PLACES:
                move(page, x, y, stage)
                row, column = features.grid.neuron_at(x, y)
                target = row * columns + column
                share = features.coefficients(torch.tensor([target]))[0].numpy()
                even = 1 / (len(share) - (context == "sca"))
                top = max(2 * even, np.sort(share)[int(0.995 * (len(share) - 1))])
                levels = np.clip(np.round(255 * share / top), 0, 255).reshape(-1, columns)
                found = drawn(page, stage)
                if context == "sca":
                    assert found[row, column] == -1
                    levels[row, column] = -1
                assert np.abs(found - levels).max() <= 2
        assert "no context" in page.locator("figcaption").nth(2).inner_text()


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
        for button, start in (("#keep-png", b"\x89PNG"), ("#keep-svg", b"<svg")):
            with page.expect_download() as download:
                page.click(button)
            with open(download.value.path(), "rb") as file:
                assert file.read(4) == start
        address = page.url
        page.check('input[value="difference"]')
        assert page.locator("#scale-low").inner_text().startswith("\u2212")
    with open_page(address) as page:  # the state is in the address
        assert page.locator("#pins > li").count() == 2
        page.locator("#pins .remove").first.click()
        assert page.locator("#pins > li").count() == 1


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
def test_it_works_by_keyboard(page_file):
    with open_page(page_file.as_uri()) as page:
        page.locator(".surface").first.focus()
        page.keyboard.press("ArrowRight")
        here = page.locator("#announce").inner_text()
        page.keyboard.press("Shift+ArrowDown")
        assert page.locator("#announce").inner_text() != here
        page.keyboard.press("Enter")
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
