"""The demo: train, evaluate, predict, explain, report."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from PIL import Image

from scaseg.comparison.compare import PICTURE as PLOT
from scaseg.comparison.compare import compare
from scaseg.comparison.jobs import Job
from scaseg.comparison.results import RESULTS
from scaseg.comparison.tables import CSV_TABLE, TABLE
from scaseg.config.recipe import load_recipe
from scaseg.config.run import MachineConfig, RunConfig
from scaseg.data.datasets.context_scenes import ContextScenesGlobal
from scaseg.data.scenes.mirage import FIRST_GROUND
from scaseg.demo.report import Findings, Row, write_report
from scaseg.errors import UserError, WorkError
from scaseg.explanation.disagreement import largest_disagreements
from scaseg.explanation.maps import explain
from scaseg.explanation.occlusion import occlusion
from scaseg.explanation.selectivity import selectivity
from scaseg.io.atomic import whole_file, write_json
from scaseg.io.paths import not_writable
from scaseg.io.table import read_rows
from scaseg.models.build import load_model
from scaseg.models.segmenter import Segmenter
from scaseg.progress import progress_bar
from scaseg.training.evaluation import Evaluation, evaluate
from scaseg.training.run_folder import METRICS, MODEL, RECIPE

CONTEXTS = ("none", "average", "sca")
IMAGES, EPOCHS = 1200, 10  # what three trainings on two cores do in about two minutes
POINTS = ((64, 10), (20, 60), (64, 72), (112, 84))  # (x, y): in the sky, and on the sand
PREDICTED = 12  # scenes that are written as files, to be tried by hand
SCENES, PREDICTIONS = "scenes", "predictions"
EXPLAINED = 40  # scenes that are searched for pictures and measured
NUMBERS = "demo.json"
OURS = (
    *("runs", "logs", RECIPE, RESULTS, TABLE, CSV_TABLE, PLOT),  # of the comparison
    *(NUMBERS, "report.html", "report.png", "picture.png", SCENES, PREDICTIONS),
)


def demo_run(epochs: int = EPOCHS, images: int = IMAGES) -> RunConfig:
    """The recipe context_scenes_global, shortened for two cores."""
    recipe = load_recipe("context_scenes_global")
    return replace(
        recipe,
        data=replace(recipe.data, limit=images),
        training=replace(
            recipe.training, epochs=epochs, validate_every=epochs, checkpoint_every=epochs
        ),
        machine=MachineConfig(device="cpu", workers=0),
    )


def run_demo(
    out: str | Path,
    *,
    epochs: int = EPOCHS,
    images: int = IMAGES,
    overwrite: bool = False,
    log: Callable[[str], None] = lambda line: None,
    bars: bool = True,
) -> Findings:
    """Run everything into a folder: a comparison, report.html, report.png, demo.json.

    UserError where the folder holds something else; WorkError where a training fails.
    """
    test = ContextScenesGlobal("test")
    most = len(ContextScenesGlobal("train"))
    if images > most:
        raise UserError("--images", f"{images}", f"there are {most} training scenes")
    folder = Path(out)
    _open_folder(folder, overwrite=overwrite)
    started = time.monotonic()
    run = demo_run(epochs, images)
    log(
        f"training {len(CONTEXTS)} networks ({', '.join(CONTEXTS)}) on {images} generated scenes, "
        f"{epochs} epochs, in parallel"
    )
    with progress_bar("training", shown=bars) as progress:
        found = compare(run, CONTEXTS, out=folder, seeds=1, jobs=len(CONTEXTS), progress=progress)
    if found.failed:
        raise WorkError("training", found.failed[0])
    minutes, seconds = divmod(int(time.monotonic() - started), 60)
    log(f"trained in {minutes}:{seconds:02d}; evaluating on scenes never seen")
    models, rows = {}, []
    for name in CONTEXTS:
        place = model_folder(folder, name)
        model = models[name] = load_model(place / MODEL)
        result = evaluate(model, test, machine=run.machine, quiet=not bars)
        rows.append(_make_row(name, model, result, place))
    log("predicting, and measuring what decisions depend on")
    _predict(models[CONTEXTS[-1]], folder)
    findings = replace(_explain(models, rows), seconds=time.monotonic() - started)
    write_report(findings, folder)
    numbers = {
        "contexts": [row._asdict() for row in rows],
        "seconds": findings.seconds,
        "selectivity": findings.selectivity.to_dict(),
        "occlusion": findings.occlusion.to_dict(),
    }
    write_json(folder / NUMBERS, numbers)
    return findings


def model_folder(folder: str | Path, context: str) -> Path:
    """Where the demo keeps the run of a context."""
    return Job(context, 0).run_folder(folder)


def _predict(model: Segmenter, folder: Path) -> None:
    """Write some scenes as files, with the model's predictions."""
    scenes, predictions = folder / SCENES, folder / PREDICTIONS
    for place in (scenes, predictions):
        place.mkdir(exist_ok=True)
    test = ContextScenesGlobal("test")
    samples = [test[index] for index in range(PREDICTED)]
    found = model.predict([sample.image for sample in samples])
    for sample, segmentation in zip(samples, found, strict=True):
        with whole_file(scenes / f"{sample.name}.png") as temporary:
            Image.fromarray(sample.image).save(temporary, format="PNG")
        segmentation.save(predictions / f"{sample.name}.png")


def _explain(models: dict[str, Segmenter], rows: list[Row]) -> Findings:
    """Compare the first model with the last, and measure the maps of the last."""
    names = list(models)
    first, last = models[names[0]], models[names[-1]]
    test = ContextScenesGlobal("test")
    scenes = [test[index] for index in range(EXPLAINED)]
    found = largest_disagreements(first, last, scenes, top=4)
    shown = found[0].image if found else scenes[0].image
    return Findings(
        rows=rows,
        disagreements=found,
        names=(names[0], names[-1]),
        classes=last.config.classes,
        palette=ContextScenesGlobal.palette,
        maps=explain(last, shown, points=POINTS),
        selectivity=selectivity(last, [scene.image for scene in scenes[:16]]),
        occlusion=occlusion(last, [scene.image for scene in scenes]),
        seconds=0.0,
    )


def _make_row(name: str, model: Segmenter, result: Evaluation, place: Path) -> Row:
    grounds = result.scores.ious[FIRST_GROUND:]
    return Row(
        context=name,
        scores=result.scores.summary(),
        sand=100 * sum(grounds) / len(grounds),
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        seconds=sum(float(row["seconds"]) for row in read_rows(place / METRICS)),
    )


def _open_folder(folder: Path, *, overwrite: bool) -> None:
    there = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    there = [name for name in there if not name.startswith(".")]  # files of the system
    for name in there:
        if name not in OURS:
            raise UserError("--out", f"{folder} holds {name}, and no demo", "give another folder")
    if there and not overwrite:
        raise UserError("--out", f"{folder} holds a demo already", "use --overwrite, or another")
    for name in there:
        path = folder / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise not_writable(folder, error).within("--out") from error
