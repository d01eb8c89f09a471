"""scaseg predict."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scaseg.cli.limits import add_max_pixels
from scaseg.cli.loading import add_model, find, load, say_builtin
from scaseg.cli.parser import Parser, positive, whole
from scaseg.cli.photographs import without_label_maps
from scaseg.cli.places import cannot_be_written, check_folder
from scaseg.cli.windows import add_windows, check_windows, read_looks

if TYPE_CHECKING:
    from scaseg.inference.predict_folder import Tally
    from scaseg.inference.test_time import TestTimeAugmentation

PRECISIONS = {"32": "fp32", "bf16": "bf16", "16": "fp16"}  # as `evaluate` spells them


def add_predict(add: Callable[..., Parser]) -> None:
    """Describe the command."""
    parser = add(
        "predict",
        help="label maps of photographs: files, whole folders, of any size",
        description="Segment photographs. Each gets DIR/NAME.png: a palette PNG of the "
        "photograph's exact size (upright, as its EXIF says) whose values are the classes, in the "
        "model's order. Sub-folders of a folder are kept. Files appear whole or not at all, the "
        "PNG last; nothing is overwritten unless you say so.",
        epilog="example: scaseg predict photos --model runs/first --out labels --overlay; in the "
        "simplest case scaseg predict photo.jpg, by the built-in model, into predictions/; after "
        "an interruption add --skip-existing",
    )
    parser.add_argument(
        "images",
        nargs="+",
        metavar="IMAGES",
        help="photographs, folders of them (with all below; of a data set its images/ alone), or "
        "patterns such as 'a/*/*.jpg'",
    )
    add_model(parser)
    parser.add_argument(
        "--out",
        metavar="DIR",
        type=Path,
        default=Path("predictions"),
        help="where results go (%(default)s)",
    )
    group = parser.add_argument_group("what is written beside the label map")
    group.add_argument(
        "--overlay",
        action="store_true",
        help="NAME.overlay.jpg: the classes over the photograph, with a legend",
    )
    group.add_argument(
        "--scores",
        action="store_true",
        help="NAME.npz: scores (H, W, classes), probabilities in float16, and the classes",
    )
    group.add_argument(
        "--json", action="store_true", help="NAME.json: the share of the area of each class"
    )
    group = parser.add_argument_group("how a photograph is looked at")
    group.add_argument(
        "--tta", action="store_true", help="at scales 0.75, 1, 1.25 and mirrored, averaged"
    )
    add_windows(group)
    group = parser.add_argument_group("many files")
    group.add_argument(
        "--skip-existing",
        action="store_true",
        help="do what is not done yet; results of another model are refused, not mixed in",
    )
    group.add_argument("--overwrite", action="store_true", help="replace results that are there")
    group.add_argument(
        "--skip-bad", action="store_true", help="name and count what cannot be read, do the rest"
    )
    add_max_pixels(group)
    group.add_argument(
        "--shard",
        type=_shard,
        metavar="I/N",
        help="the I-th of N shares: machines divide the work without talking to each other",
    )
    group.add_argument("--quiet", action="store_true", help="no progress bar, no summary")
    group = parser.add_argument_group("machine")
    group.add_argument(
        "--device", choices=("auto", "cpu", "cuda", "mps"), default="auto", help="(%(default)s)"
    )
    group.add_argument(
        "--precision", choices=tuple(PRECISIONS), default="32", help="of activations (%(default)s)"
    )
    group.add_argument(
        "--batch-size",
        type=positive,
        metavar="N",
        help="photographs of similar size, or windows, at once (1 on a CPU, else 8)",
    )
    group.add_argument(
        "--workers", type=positive, metavar="N", help="threads that read photographs (4 at most)"
    )
    parser.set_defaults(run=_predict)


def _predict(options: argparse.Namespace, parser: Parser) -> None:
    if options.skip_existing and options.overwrite:
        parser.error("--overwrite: came with --skip-existing; give one of the two")
    try:
        check_folder("--out", options.out)
        folder = find("--model", options.model)
        images, notes = without_label_maps(options.images, options.out)
    except ValueError as fault:
        parser.error(str(fault))

    from scaseg.inference.inputs import Listed, Shard, listed
    from scaseg.inference.outputs import Outputs, check_outputs

    shard = None if options.shard is None else Shard(*options.shard)
    outputs = Outputs(options.out, options.overlay, options.scores, options.json)

    def photographs() -> Iterator[Listed]:
        return listed(images, options.out, shard)

    try:
        to_do, there = check_outputs(
            photographs,
            outputs,
            skip_existing=options.skip_existing,
            overwrite=options.overwrite,
        )
    except ValueError as fault:
        parser.error(str(fault))

    from scaseg.inference.predict_folder import Options, WorkError, predict_files, usual_workers
    from scaseg.inference.provenance import Record

    try:
        scales = (0.75, 1.0, 1.25) if options.tta else (1.0,)
        how = read_looks(options, scales, flip=options.tta)
        record = Record(options.out, folder, _decisive(options, how))
        if options.overwrite:
            record.check_replaced(photograph.name for photograph in photographs())
        else:
            record.check()
        model = load("--model", folder, options.device)
        check_windows(how, model, quiet=options.quiet)
    except ValueError as fault:
        parser.error(str(fault))
    missing = (
        photograph
        for photograph in photographs()
        if not (options.skip_existing and outputs.is_done(photograph.name))
    )

    def begin() -> None:  # not before: what is refused is answered with one line
        say_builtin(options.model, quiet=options.quiet)
        for note in () if options.quiet else notes:
            print(note, file=sys.stderr)
        record.begin()

    try:
        with _bar(to_do, shown=not options.quiet) as progress:
            tally = predict_files(
                model,
                missing,
                outputs,
                Options(
                    how,
                    options.batch_size,
                    PRECISIONS[options.precision],  # type: ignore[arg-type]
                    options.workers or usual_workers(),
                    options.max_pixels,
                    options.skip_bad,
                ),
                on_begin=begin,
                on_bad=_say,
                on_done=progress,
            )
    except (WorkError, ValueError) as fault:
        # bad input, as long as nothing was written for it
        code = 2 if isinstance(fault, ValueError) and not record.begun else 1
        more = "; --skip-bad goes on without it" if isinstance(fault, ValueError) else ""
        parser.fail(code, f"{fault}{more}")
    except OSError as fault:
        if record.begun:
            raise
        parser.error(cannot_be_written("--out", options.out, fault))
    if not tally.left:
        record.finish()
    if tally.bad and not tally.done and not there:
        parser.error(f"IMAGES: none of {tally.bad} photographs could be read; give others")
    if not options.quiet:
        print(_summary(tally, there, options.out))


def _decisive(options: argparse.Namespace, how: TestTimeAugmentation) -> dict[str, Any]:
    """The options that change results, as they are typed."""
    found: dict[str, Any] = {"--tta": options.tta, "--precision": options.precision}
    if how.window is not None:
        found |= {"--window": how.window, "--overlap": how.overlap}
        found["--context-scope"] = how.context_scope
    return found


def _say(line: str) -> None:
    print(f"skipped: {' '.join(line.split())}", file=sys.stderr)


def _summary(tally: Tally, there: int, out: Path) -> str:
    rate = _rate(tally.done, tally.seconds)
    count = f"{tally.done} photograph{'' if tally.done == 1 else 's'}"
    parts = [f"{count} segmented in {tally.seconds:.1f} s{rate and f', {rate}'}"]
    if there:
        parts.append(f"{there} were there already")
    if tally.bad:
        parts.append(f"{tally.bad} bad ones skipped")
    return f"{'; '.join(parts)}: {out}"


def _rate(done: int, seconds: float) -> str:
    if not done or not seconds:
        return ""
    rate = done / seconds
    return f"{rate:.0f} images/s" if rate >= 100 else f"{rate:.2g} images/s"


@contextmanager
def _bar(total: int, *, shown: bool) -> Iterator[Callable[[int], None]]:
    """A progress bar with images/s, on stderr, and only where that is a terminal."""
    if not shown or not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        Task,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(_rate(int(task.completed), task.elapsed or 0.0))

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        Rate(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True, expand=True) as bar:
        task = bar.add_task("predicting", total=total)
        yield lambda done: bar.update(task, completed=done)


def _shard(text: str) -> tuple[int, int]:
    index, _, count = text.partition("/")
    try:
        return whole(index, 1, positive(count)) - 1, positive(count)
    except argparse.ArgumentTypeError as fault:
        said = f"{text!r}; give I/N with I from 1 to N, such as 2/8"
        raise argparse.ArgumentTypeError(said) from fault
