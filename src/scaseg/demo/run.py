"""The demo: train, evaluate, predict, explain, report."""

from __future__ import annotations

import shutil
import statistics
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
from scaseg.demo.report import PAGE, PICTURE, Findings, Row, write_report
from scaseg.errors import UserError, WorkError
from scaseg.explanation.disagreement import largest_disagreements
from scaseg.explanation.maps import explain
from scaseg.explanation.occlusion import occlusion
from scaseg.explanation.selectivity import selectivity
from scaseg.io.atomic import write_json
from scaseg.io.model_folder import MODEL, RECIPE
from scaseg.io.paths import not_writable
from scaseg.io.table import read_rows
from scaseg.models.build import load_model
from scaseg.progress import progress_bar
from scaseg.training.evaluation import evaluate
from scaseg.training.run_folder import METRICS

CONTEXTS = ("none", "average", "sca")
IMAGES, EPOCHS = 1200, 10  # what three trainings on two cores do in about two minutes
POINTS = ((64, 10), (20, 60), (64, 72), (112, 84))  # (x, y): in the sky, and on the sand
PREDICTED = 12  # scenes that are written as files, to be tried by hand
SCENES, PREDICTIONS = "scenes", "predictions"
EXPLAINED = 40  # scenes that are searched for pictures and measured
NUMBERS = "demo.json"
MARKER = ".scaseg-demo"  # there from the beginning: only a demo is replaced by one
OURS = (
    *("runs", "logs", RECIPE, RESULTS, TABLE, CSV_TABLE, PLOT),  # of the comparison
    *(NUMBERS, PAGE, PICTURE, SCENES, PREDICTIONS, "report.png"),  # the last: of earlier versions
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
    """Run everything into a folder: a comparison, report.html, picture.png, demo.json.

    UserError where the folder holds something else; WorkError where a training fails.
    """
    test, most = ContextScenesGlobal("test"), len(ContextScenesGlobal("train"))
    if images > most:
        raise UserError("--images", f"{images}", f"there are {most} training scenes")
    folder = Path(out)
    _open_folder(folder, overwrite=overwrite)
    started = time.monotonic()
    run = demo_run(epochs, images)
    networks = f"{len(CONTEXTS)} networks ({', '.join(CONTEXTS)})"
    log(f"training {networks} on {images} generated scenes, {epochs} epochs, in parallel")
    with progress_bar("training", shown=bars) as progress:
        found = compare(run, CONTEXTS, out=folder, seeds=1, jobs=len(CONTEXTS), progress=progress)
    if found.failed:
        raise WorkError("training", found.failed[0])
    minutes, seconds = divmod(int(time.monotonic() - started), 60)
    log(f"trained in {minutes}:{seconds:02d}; evaluating on scenes never seen")
    models, rows = [], []
    for name in CONTEXTS:
        place = model_folder(folder, name)
        models.append(load_model(place / MODEL))
        scores = evaluate(models[-1], test, machine=run.machine, quiet=not bars).scores
        parameters = sum(parameter.numel() for parameter in models[-1].parameters())
        seconds_of_epochs = (float(row["seconds"]) for row in read_rows(place / METRICS))
        sand = 100 * statistics.fmean(scores.ious[FIRST_GROUND:])
        rows.append(Row(name, scores.summary(), sand, parameters, sum(seconds_of_epochs)))
    log("predicting, and measuring what decisions depend on")
    scenes = [test[index] for index in range(EXPLAINED)]
    photographs = [scene.image for scene in scenes]
    for place in (folder / SCENES, folder / PREDICTIONS):
        place.mkdir(exist_ok=True)
    first, last = models[0], models[-1]
    predicted = last.predict(photographs[:PREDICTED])
    for scene, segmentation in zip(scenes[:PREDICTED], predicted, strict=True):
        Image.fromarray(scene.image).save(folder / SCENES / f"{scene.name}.png")
        segmentation.save(folder / PREDICTIONS / f"{scene.name}.png")
    disagreements = largest_disagreements(first, last, scenes, top=4).wins
    shown = disagreements[0].image if disagreements else photographs[0]
    findings = Findings(
        rows=rows,
        disagreements=disagreements,
        maps=explain(last, shown, points=POINTS),
        selectivity=selectivity(last, photographs[:16]),
        occlusion=occlusion(last, photographs),
        seconds=time.monotonic() - started,
    )
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


def _open_folder(folder: Path, *, overwrite: bool) -> None:
    there = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    is_demo = MARKER in there or NUMBERS in there
    there = [name for name in there if not name.startswith(".")]  # files of the system
    runs = sorted(path.name for path in (folder / "runs").glob("*"))
    own = [model_folder(folder, context).name for context in CONTEXTS]
    others = [name for name in there if not (is_demo and name in OURS)]
    others += [f"runs/{name}" for name in runs if name not in own]  # somebody trained into it
    if others:
        raise UserError("--out", f"{folder} holds {others[0]}, and no demo", "give another folder")
    if there and not overwrite:
        raise UserError("--out", f"{folder} holds a demo already", "use --overwrite, or another")
    for name in there:
        path = folder / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / MARKER).touch()
    except OSError as error:
        raise not_writable(folder, error).within("--out") from error
