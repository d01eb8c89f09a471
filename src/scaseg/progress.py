"""The progress bar of every command: on stderr, and only where that is a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

REFRESH = 0.2  # seconds between two drawings
Progress = Callable[[int, int], None]  # what long work is given: call it with (done, total)


@contextmanager
def progress_bar(
    description: str, total: int | None = None, *, shown: bool = True
) -> Iterator[Callable[..., None]]:
    """Yield a function (done, total, note=None) that moves the bar; it goes away at the end.

    note returns text, such as images/s, and is only called when the bar is drawn.

    >>> with progress_bar("reading", 2, shown=False) as progress:
    ...     progress(1, 2)
    """
    if not shown or not sys.stderr.isatty():
        yield lambda done, total, note=None: None
        return
    from rich import progress as rich
    from rich.console import Console

    columns = (
        rich.TextColumn("{task.description}"),
        rich.BarColumn(bar_width=None),
        rich.MofNCompleteColumn(),
        rich.TextColumn("{task.fields[note]}"),
        rich.TimeRemainingColumn(compact=True),
    )
    console = Console(stderr=True)
    bar = rich.Progress(*columns, console=console, transient=True, expand=True, auto_refresh=False)
    with bar:  # drawn by the work: a thread for it would be forked along with loader processes
        task, drawn = bar.add_task(description, total=total, note=""), 0.0

        def draw(done: int, total: int, note: Callable[[], str] | None = None) -> None:
            nonlocal drawn
            if done == total or time.monotonic() - drawn >= REFRESH:
                drawn = time.monotonic()
                text = "" if note is None else note()
                bar.update(task, completed=done, total=total, note=text, refresh=True)

        yield draw
