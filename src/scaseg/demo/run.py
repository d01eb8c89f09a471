"""The demo: train, evaluate, predict, explain, report."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from PIL import Image

from scaseg.config.run import DataConfig, MachineConfig, NetworkConfig, RunConfig, TrainingConfig
from scaseg.data.datasets.context_scenes import ContextScenesGlobal
from scaseg.data.scenes.mirage import FIRST_GROUND
from scaseg.demo.report import Findings, Row, write_report
from scaseg.demo.trainings import train_side_by_side
from scaseg.explanation.disagreement import most_telling
from scaseg.explanation.maps import dependency_maps
from scaseg.explanation.occlusion import occlusion
from scaseg.explanation.selectivity import selectivity
from scaseg.io.table import read_rows
from scaseg.models.build import load_model
from scaseg.models.segmenter import Segmenter
from scaseg.progress import progress_bar
from scaseg.training.evaluation import Evaluation, evaluate
from scaseg.training.run_folder import METRICS, MODEL

CONTEXTS = ("none", "average", "sca")
IMAGES, EPOCHS = 1200, 10  # what three trainings on two cores do in about two minutes
POINTS = ((64, 10), (20, 60), (64, 72), (112, 84))  # (x, y): in the sky, and on the sand
PREDICTED = 12  # scenes that are written as files, to be tried by hand
SCENES, PREDICTIONS = "scenes", "predictions"
EXPLAINED = 40  # scenes that are looked through for pictures and measured
NUMBERS = "demo.json"

Say = Callable[[str], None]


def describe_run(context: str) -> RunConfig:
    """The run of one context: recipes/context_scenes_global.yaml, shortened."""
    name: Any = context
    return RunConfig(
        data=DataConfig(name="context_scenes_global", limit=IMAGES, cache="ram"),
        model=NetworkConfig(
            backbone="tiny", context=name, head="pointwise", context_options={"hidden": 64}
        ),
        training=TrainingConfig(
            epochs=EPOCHS,
            batch_size=16,
            optimizer="AdamW",
            lr=0.003,
            head_lr=0.003,
            weight_decay=1e-4,
            warmup=50,
            class_weights="none",
            validate_every=EPOCHS,
            checkpoint_every=EPOCHS,
        ),
        machine=MachineConfig(device="cpu", workers=0),
    )


def run_demo(
    out: str | Path,
    *,
    contexts: Sequence[str] = CONTEXTS,
    epochs: int = EPOCHS,
    images: int = IMAGES,
    overwrite: bool = False,
    say: Say = lambda line: None,
    bars: bool = True,
) -> Findings:
    """Do everything, into a folder: runs, report.html, report.png, demo.json.

    ValueError where the folder holds something else; WorkError where a training fails.
    """
    most = len(ContextScenesGlobal("train"))
    if images > most:
        raise ValueError(f"--images: {images}; there are {most} training scenes")
    folder = Path(out)
    _open(folder, overwrite=overwrite)
    begun = time.monotonic()
    runs = {name: _shortened(describe_run(name), epochs, images) for name in contexts}
    say(
        f"training {len(runs)} networks ({', '.join(runs)}) on {images} generated scenes, "
        f"{epochs} epochs, side by side"
    )
    with progress_bar("training", shown=bars) as progress:
        train_side_by_side(runs, folder, progress=progress)
    say(f"trained in {_minutes(time.monotonic() - begun)}; judging them on scenes never seen")
    test = ContextScenesGlobal("test")
    models = {name: load_model(folder / name / MODEL) for name in runs}
    rows = []
    for name, model in models.items():
        with progress_bar(f"evaluating {name}", len(test), shown=bars) as progress:
            judged = evaluate(model, test, machine=runs[name].machine, progress=progress)
        rows.append(_row(name, model, judged, folder))
    say("predicting, and looking at what decisions depend on")
    _predict(models[list(models)[-1]], folder)
    findings = _explain(models, rows)
    findings = replace(findings, seconds=time.monotonic() - begun)
    write_report(findings, folder)
    plain = {"contexts": [row._asdict() for row in rows], "seconds": findings.seconds}
    plain |= {"selectivity": findings.selectivity.to_dict()}
    plain |= {"occlusion": findings.occlusion.to_dict()}
    (folder / NUMBERS).write_text(json.dumps(plain, indent=1) + "\n", encoding="utf-8")
    return findings


def _predict(model: Segmenter, folder: Path) -> None:
    """Write some scenes as files, and what the model makes of them."""
    scenes, predictions = folder / SCENES, folder / PREDICTIONS
    for place in (scenes, predictions):
        place.mkdir(exist_ok=True)
    test = ContextScenesGlobal("test")
    samples = [test[index] for index in range(PREDICTED)]
    found = model.predict([sample.image for sample in samples])
    for sample, segmentation in zip(samples, found, strict=True):
        Image.fromarray(sample.image).save(scenes / f"{sample.name}.png")
        segmentation.save(predictions / f"{sample.name}.png")


def _explain(models: dict[str, Segmenter], rows: list[Row]) -> Findings:
    """Compare the first model with the last, and look at the last's maps."""
    names = list(models)
    first, last = models[names[0]], models[names[-1]]
    test = ContextScenesGlobal("test")
    scenes = [test[index] for index in range(EXPLAINED)]
    telling = most_telling(first, last, scenes, top=4)
    shown = telling[0].image if telling else scenes[0].image
    return Findings(
        rows=rows,
        telling=telling,
        names=(names[0], names[-1]),
        classes=last.config.classes,
        palette=ContextScenesGlobal.palette,
        maps=dependency_maps(last, shown, POINTS),
        selectivity=selectivity(last, [scene.image for scene in scenes[:16]]),
        occlusion=occlusion(last, [scene.image for scene in scenes]),
        seconds=0.0,
    )


def _row(name: str, model: Segmenter, judged: Evaluation, folder: Path) -> Row:
    grounds = judged.scores.ious[FIRST_GROUND:]
    seconds = sum(float(row["seconds"]) for row in read_rows(folder / name / METRICS))
    return Row(
        context=name,
        scores=judged.scores.summary(),
        sand=100 * sum(grounds) / len(grounds),
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        seconds=seconds,
    )


def _shortened(run: RunConfig, epochs: int, images: int) -> RunConfig:
    training = replace(run.training, epochs=epochs, validate_every=epochs, checkpoint_every=epochs)
    return replace(run, data=replace(run.data, limit=images), training=training)


def _open(folder: Path, *, overwrite: bool) -> None:
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"--out: {folder} is a file; give a folder")
    there = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    there = [name for name in there if not name.startswith(".")]  # a system's own
    ours = {f"{name}{end}" for name in CONTEXTS for end in ("", ".yaml", ".log")}
    ours |= {NUMBERS, "report.html", "report.png", "picture.png", SCENES, PREDICTIONS}
    others = [name for name in there if name not in ours]
    if others:
        raise ValueError(f"--out: {folder} holds {others[0]}, and no demo; give another folder")
    if there and not overwrite:
        raise ValueError(f"--out: {folder} holds a demo already; use --overwrite, or another")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as fault:
        raise ValueError(
            f"--out: {folder} cannot be written ({fault.strerror}); give another folder"
        ) from fault


def _minutes(seconds: float) -> str:
    return f"{int(seconds // 60)}:{int(seconds % 60):02d}"
