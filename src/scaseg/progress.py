"""The progress bar of every command: on stderr, and only where that is a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

REFRESH = 0.2  # seconds between two drawings
Progress = Callable[[int, int], None]  # what work that takes long is given: (done, total)


class NotedProgress(Protocol):
    """A `Progress` that can show a note, such as images/s; called only when the bar is drawn."""

    def __call__(self, done: int, total: int, note: Callable[[], str] | None = None, /) -> None: ...


@contextmanager
def progress_bar(
    description: str, total: int | None = None, *, shown: bool = True
) -> Iterator[NotedProgress]:
    """Yield a function to call with (done, total) or (done, total, note); the bar is transient.

    >>> with progress_bar("reading", 2, shown=False) as progress:
    ...     progress(1, 2)
    """
    if not shown or not sys.stderr.isatty():
        yield lambda done, total, note=None: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"),
        TimeRemainingColumn(compact=True),
    )
    console, drawn = Console(stderr=True), 0.0
    # drawn by the work itself: a thread for it would be forked along with loader processes
    with Bar(*columns, console=console, transient=True, expand=True, auto_refresh=False) as bar:
        task = bar.add_task(description, total=total, note="")

        def progress(done: int, total: int, note: Callable[[], str] | None = None, /) -> None:
            nonlocal drawn
            if done == total or time.monotonic() - drawn >= REFRESH:
                drawn = time.monotonic()
                text = "" if note is None else note()
                bar.update(task, completed=done, total=total, note=text, refresh=True)

        yield progress
