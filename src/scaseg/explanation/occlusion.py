"""Are the maps true? Remove the context that a map points to, and see whether the decision minds.

For a neuron and the class it decided for: the sources with the largest coefficients are taken out
of everybody's context until they hold a given part of the map, and the probability of the class is
read again at that neuron. Then as many others, drawn at random. What both are for themselves stays:
only the context loses them, not the feature map that the head looks at. A map that says something
points to sources whose loss costs more than that of as many others.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from scaseg.explanation.features import context_of, look, shares
from scaseg.explanation.statistics import Mean, mean_of
from scaseg.inference.image_input import Photograph
from scaseg.inference.predict import evaluating
from scaseg.models.segmenter import Segmenter

AT_ONCE = 8  # decisions in a batch


@dataclass(frozen=True)
class Occlusion:
    """How much the probability of a decision drops without the sources that its map points to.

    pointed: without those; random: without as many others, drawn at random; difference: pointed
    minus random, decision by decision. removed: the part of all other neurons that was taken out.
    Means over `decisions` decisions, with standard errors over the images (over the decisions
    where there is one image only: decisions of one image are no independent evidence).
    """

    pointed: Mean
    random: Mean
    difference: Mean
    removed: Mean
    mass: float
    decisions: int
    images: int

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, for JSON."""
        return asdict(self)

    def table(self) -> str:
        """A line a number, for people."""
        lines = (
            (f"drop without the sources of {100 * self.mass:g} % of a map", self.pointed),
            ("drop without as many others at random", self.random),
            ("difference", self.difference),
            ("part of the neurons that this was", self.removed),
        )
        return "\n".join(f"{said:<53} {mean}" for said, mean in lines)


@torch.no_grad()
def occlusion(
    model: Segmenter,
    images: Iterable[Photograph],
    *,
    mass: float = 0.25,
    decisions: int = 16,
    repeats: int = 4,
    seed: int = 0,
) -> Occlusion:
    """Test whether decisions hang on what their maps point to.

    mass: how much of a map to take out, its largest coefficients first. decisions: neurons drawn
    from each photograph. repeats: random removals for each of them.
    """
    if not 0 < mass < 1:
        raise ValueError(f"mass is {mass!r}; give a part of the map between 0 and 1")
    if decisions < 1 or repeats < 1:
        raise ValueError(f"decisions and repeats are {decisions} and {repeats}; give 1 at least")
    context = context_of(model)
    drops: list[np.ndarray[Any, np.dtype[np.float64]]] = []  # of each image (decisions, 3)
    for number, image in enumerate(images, start=1):
        generator = torch.Generator().manual_seed(1_000_003 * seed + number)
        seen = look(model, image)
        neurons = seen.grid.map[0] * seen.grid.map[1]
        if neurons < 3:
            raise ValueError(f"images: number {number} has {neurons} neurons; give larger ones")
        chosen = torch.randperm(neurons, generator=generator)[:decisions]
        rows = shares(context, seen.features, chosen.to(seen.features.device)).cpu()
        with evaluating(model):
            drops.append(_drops(model, seen.features, chosen, rows, mass, repeats, generator))
    if not drops:
        raise ValueError("images: none; give at least one photograph")
    # images are evidence, one against another; with a single one its decisions have to do
    table = np.stack([own.mean(0) for own in drops]) if len(drops) > 1 else drops[0]
    pointed, random, removed = table.T
    return Occlusion(
        pointed=mean_of(pointed.tolist()),
        random=mean_of(random.tolist()),
        difference=mean_of((pointed - random).tolist()),
        removed=mean_of(removed.tolist()),
        mass=mass,
        decisions=sum(map(len, drops)),
        images=len(drops),
    )


def _drops(
    model: Segmenter,
    features: Tensor,
    chosen: Tensor,
    rows: Tensor,
    mass: float,
    repeats: int,
    generator: torch.Generator,
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Drops without the sources pointed to, and without others; the part removed: (P, 3)."""
    neurons = rows.shape[1]
    whole = torch.ones(1, neurons, dtype=torch.bool)
    before = _probabilities(model, features, whole)[0]  # (classes, n)
    decided = before.argmax(0)
    kept, targets = [], []
    for row, own in zip(rows, chosen.tolist(), strict=True):
        first = strongest_sources(row, own, mass, generator)
        others = torch.cat([torch.arange(own), torch.arange(own + 1, neurons)])
        sets = [first]
        for _ in range(repeats):
            order = torch.randperm(neurons - 1, generator=generator)
            sets.append(others[order[: len(first)]])
        for removed in sets:
            stays = torch.ones(neurons, dtype=torch.bool)
            stays[removed] = False
            kept.append(stays)
            targets.append(own)
    drops = []
    for part in range(0, len(kept), AT_ONCE):
        after = _probabilities(model, features, torch.stack(kept[part : part + AT_ONCE]))
        for own, scores in zip(targets[part : part + AT_ONCE], after, strict=True):
            drops.append(float(before[decided[own], own] - scores[decided[own], own]))
    table = np.array(drops).reshape(len(chosen), 1 + repeats)
    removed_part = (~torch.stack(kept[:: 1 + repeats])).sum(1).numpy() / (neurons - 1)
    return np.stack([table[:, 0], table[:, 1:].mean(1), removed_part], 1)


def strongest_sources(row: Tensor, own: int, mass: float, generator: torch.Generator) -> Tensor:
    """The sources with the largest coefficients that together hold `mass` of a map (n,).

    Never the neuron itself. Ties in an order drawn at random: an even map would else point to the
    top of the picture. One source at least stays.
    """
    size = row.abs().clone()
    size[own] = 0
    shuffled = torch.randperm(len(row), generator=generator)
    shuffled = shuffled[shuffled != own]
    order = shuffled[size[shuffled].argsort(descending=True, stable=True)]
    held = size[order].double().cumsum(0) / size.sum().clamp(min=1e-30)
    count = int((held < mass - 1e-9).sum()) + 1
    return order[: min(count, len(order) - 1)]


def _probabilities(model: Segmenter, features: Tensor, kept: Tensor) -> Tensor:
    """Probabilities (B, classes, n) where only the sources `kept` (B, n) are anybody's context."""
    context = context_of(model)
    batch = features.expand(len(kept), -1, -1, -1)
    # not context(x, mask=...): that would take the neurons out of the map too
    remaining = context.target_context(batch, None, kept.to(features.device))
    scores = model.head(torch.relu(context.combine(batch, remaining)))
    return scores.float().softmax(1).flatten(2).cpu()
