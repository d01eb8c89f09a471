"""scaseg bench --what run: CUDA graphs, augmentation on the GPU, processes that read."""

import json

import pytest
import torch

from scaseg.cli import main
from tests.cli.test_bench_run import PREDICT, TRAIN

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]


def test_training_and_prediction_beside_their_parts(monkeypatch, capsys):
    monkeypatch.setattr("scaseg.bench.measure.LEAST", 0.0)
    options = ["--batch", "2", "--workers", "2", "--repeats", "1", "--json"]
    main(["bench", "--what", "run", "--device", "cuda", *options])
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["part"] for row in rows] == TRAIN + PREDICT
    assert all(row["images_per_second"] > 0 for row in rows)
