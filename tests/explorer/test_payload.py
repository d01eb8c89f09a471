import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

from scaseg import create_model
from scaseg.explanation.features import extract_features
from scaseg.explorer.page import STATIC
from scaseg.explorer.payload import MOST_SIDE, picture_payloads, shrink
from scaseg.nn.context import Context
from scaseg.registry import CONTEXTS

NODE = shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="node is not installed")
OPTIONS = {
    "sca": [{}, {"activation": "exp", "pair_channels": 3}, {"activation": "relu"}],
    "heads": [{}, {"activation": "exp"}],
    "ccnet": [{}, {"rounds": 3}],
}
CASES = [
    (name, options)
    for name, kind in CONTEXTS.items()
    if name != "none" and kind.coefficient_rows is not Context.coefficient_rows
    for options in OPTIONS.get(name, [{}])
]
ROWS = """
import {readModel} from "STATIC/stage.js";
import {coefficientRow, shareColumn, shareRow} from "STATIC/maps.js";
let text = "";
for await (const part of process.stdin) text += part;
const {model, targets} = JSON.parse(text);
const {factors} = await readModel(model);
const rows = (row) => targets.map((target) => Array.from(row(factors, target)));
console.log(JSON.stringify([shareRow, shareColumn, coefficientRow].map(rows)));
"""


def network(context, **options):
    torch.manual_seed(3)
    model = create_model("tiny", context, "pointwise", classes=3, **options).eval()
    for name, weight in model.context.named_parameters():
        if "score" in name or "query" in name or "key" in name:
            torch.nn.init.normal_(weight, std=0.3)  # maps that are far from even
    return model


def picture(height=61, width=90):
    return np.random.default_rng(5).integers(0, 256, (height, width, 3), np.uint8)


def seen_by(model):
    [(payload, _)] = picture_payloads([("x.png", picture())], {"m": model})
    return payload


@needs_node
def test_the_modules_do_what_their_comments_say():
    tests = Path(__file__).parent / "modules.test.mjs"
    done = subprocess.run([NODE, "--test", tests], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@needs_node
@pytest.mark.parametrize(("context", "options"), CASES, ids=str)
def test_maps_of_the_page_are_those_of_python(context, options):
    model = network(context, **options)
    payload = seen_by(model)
    targets = [0, 17, 40]
    script = ROWS.replace("STATIC", Path(str(STATIC)).as_uri())
    done = subprocess.run(
        [NODE, "--input-type=module", "-e", script],
        input=json.dumps({"model": payload["models"][0], "targets": targets}),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    rows, columns, coefficients = (np.array(one) for one in json.loads(done.stdout))
    features = extract_features(model, picture())
    everyone = torch.arange(features.grid.map_size[0] * features.grid.map_size[1])
    shares = features.coefficients(everyone).numpy()
    # queries and keys, and coefficients themselves, travel in 16 bits
    form = payload["models"][0]["factors"]["form"]
    tolerance = {"rtol": {"dot": 1e-2, "matrix": 1e-3, "cross": 3e-3}.get(form, 1e-4), "atol": 1e-6}
    np.testing.assert_allclose(rows, shares[targets], **tolerance)
    np.testing.assert_allclose(columns, shares[:, targets].T, **tolerance)
    normal = coefficients / coefficients.sum(1, keepdims=True)
    np.testing.assert_allclose(normal, shares[targets], **tolerance)


def test_a_model_without_context_has_classes_but_no_maps():
    [seen] = seen_by(network("none"))["models"]
    assert seen["factors"] is None
    assert seen["labels"]["shape"] == [61, 90]
    assert abs(sum(seen["areas"]) - 1) < 1e-9
    rows, columns = seen["grid"]["map"]
    assert seen["neurons"]["shape"] == [rows * columns]


def test_a_context_without_coefficients_has_no_maps(monkeypatch):
    monkeypatch.setitem(CONTEXTS._homes, "pooled", "tests.nn.test_contexts:Pooled")
    [seen] = seen_by(network("pooled"))["models"]
    assert seen["factors"] is None


def test_large_pictures_are_made_smaller(monkeypatch):
    models = {"m": network("none")}
    assert shrink(picture(), models).shape == (61, 90, 3)
    assert max(shrink(np.zeros((100, 4000, 3), np.uint8), models).shape) == MOST_SIDE
    monkeypatch.setattr("scaseg.explorer.payload.MOST_SCORES", 300_000)
    assert shrink(np.zeros((1000, 1000, 3), np.uint8), models).shape[0] == 316
    bands = np.zeros((1000, 1000, 5), np.float32)
    bands[::2] = 1000
    small = shrink(bands, models)
    assert small.shape == (316, 316, 5)
    assert small.min() >= 0  # means of what was measured
    assert small.max() <= 1000
