"""Other classes for a trained model: all of it stays but the last layer, and of that what fits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from scaseg.errors import UserError
from scaseg.models.heads import Head
from scaseg.models.segmenter import Segmenter
from scaseg.nn.auxiliary import AuxiliaryClassifier
from scaseg.plots.palette import Color, default_palette


def shared_classes(old: Sequence[str], new: Sequence[str]) -> list[int | None]:
    """For each new class, the index of the old one of its name; None where there is none.

    Capitals make no difference, unless a class is only told from another by them.

    >>> shared_classes(["sky", "tree", "road"], ["Road", "car", "sky"])
    [2, None, 0]
    """
    exact = {name: index for index, name in enumerate(old)}
    folded = [name.casefold() for name in old]

    def find(name: str) -> int | None:
        low = name.casefold()
        is_alone = folded.count(low) == 1 and [one.casefold() for one in new].count(low) == 1
        return exact.get(name, folded.index(low) if is_alone else None)

    return [find(name) for name in new]


def change_classes(
    model: Segmenter, classes: Sequence[str], *, palette: tuple[Color, ...] | None = None
) -> tuple[str, ...]:
    """Give a model other classes, in place; return those that it knew before.

    They keep their weights and bias in the last layer, and in a classifier within the context; the
    others start fresh, and the rest of the model stays as it is. With the same classes in the same
    order, so does the last layer. palette: of the new classes (None: known ones keep their color).
    The record of its training goes: it tells how other labels were read.
    """
    if isinstance(classes, str):
        raise UserError("classes", f"{classes!r}", "give a list of names")
    old, new = model.config, tuple(classes)
    kept = shared_classes(old.classes, new)
    if palette is None and old.palette is not None:
        known = {old.palette[row] for row in kept if row is not None}
        colors = default_palette(len(old.classes) + len(new))
        unused = (color for color in colors if color not in known)
        palette = tuple(next(unused) if row is None else old.palette[row] for row in kept)
    # first: it refuses names that cannot be told apart
    config = replace(old, classes=new, palette=palette, training={})
    if kept != list(range(len(old.classes))):
        if not isinstance(model.head, Head):
            problem = f"the head is a {type(model.head).__name__}"
            raise UserError("classes", problem, "change the last layer of your own head yourself")
        model.head.replace_classes(kept)
        for module in model.modules():
            if isinstance(module, AuxiliaryClassifier):
                module.replace_classes(kept)
    model.config = config
    return tuple(name for name, row in zip(new, kept, strict=True) if row is not None)
