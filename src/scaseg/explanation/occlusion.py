"""Whether decisions depend on what dependency maps point to.

For a neuron and its class: the sources with the largest coefficients are taken out of every
neuron's context until they hold a given part of the map, and the probability of the class is
computed again at that neuron. Then as many others, drawn at random. Their own features stay: only
the context loses them, not the feature map that the head reads. If maps are faithful, the sources
that they point to cost more than as many others.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from scaseg.errors import UserError
from scaseg.explanation.features import ContextFeatures, extract_features
from scaseg.explanation.selectivity import Mean, Measurement
from scaseg.inference.preprocessing import ImageLike
from scaseg.models.segmenter import Segmenter, evaluating

AT_ONCE = 8  # decisions in a batch


@dataclass(frozen=True)
class Occlusion(Measurement):
    """How much the probability of a decision drops without the sources that its map points to.

    pointed: without those; random: without as many others, drawn at random; difference: pointed
    minus random, decision by decision. removed: the part of all other neurons that was taken out.
    Means over `decisions` decisions, with standard errors over the images (over the decisions
    where there is one image only: decisions of one image are no independent evidence).
    """

    LABELS: ClassVar = {
        "pointed": "drop without the sources of {mass:.0%} of a map",
        "random": "drop without as many others at random",
        "difference": "difference",
        "removed": "part of the neurons that this was",
    }
    pointed: Mean
    random: Mean
    difference: Mean
    removed: Mean
    mass: float
    decisions: int
    images: int


@torch.no_grad()
def occlusion(
    model: Segmenter,
    images: Iterable[ImageLike],
    *,
    mass: float = 0.25,
    decisions: int = 16,
    repeats: int = 4,
    seed: int = 0,
) -> Occlusion:
    """Measure whether decisions depend on what their maps point to.

    mass: how much of a map to take out, its largest coefficients first. decisions: neurons drawn
    from each photograph. repeats: random removals for each of them.
    """
    if not 0 < mass < 1:
        raise UserError("mass", f"{mass!r}", "give a part of the map between 0 and 1")
    if decisions < 1 or repeats < 1:
        raise UserError("decisions, repeats", f"{decisions} and {repeats}", "give 1 at least")
    drops: list[NDArray[np.float64]] = []  # of each image (decisions, 3)
    for number, image in enumerate(images, start=1):
        generator = torch.Generator().manual_seed(1_000_003 * seed + number)
        features = extract_features(model, image)
        neurons = features.grid.map_size[0] * features.grid.map_size[1]
        if neurons < 3:
            raise UserError("images", f"number {number} has {neurons} neurons", "give larger ones")
        chosen = torch.randperm(neurons, generator=generator)[:decisions]
        drops.append(_drops(features, chosen, mass, repeats, generator))
    if not drops:
        raise UserError("images", "none", "give at least one photograph")
    # images are evidence, one against another; with a single one its decisions have to do
    table = np.stack([own.mean(0) for own in drops]) if len(drops) > 1 else drops[0]
    pointed, random, removed = table.T
    values = (pointed, random, pointed - random, removed)
    means = dict(zip(Occlusion.LABELS, map(Mean.of, values), strict=True))
    return Occlusion(**means, mass=mass, decisions=sum(map(len, drops)), images=len(drops))


def _drops(
    features: ContextFeatures,
    chosen: Tensor,
    mass: float,
    repeats: int,
    generator: torch.Generator,
) -> NDArray[np.float64]:
    """Drops without the sources pointed to, and without others; the part removed: (P, 3)."""
    rows = features.coefficients(chosen).cpu()
    neurons = rows.shape[1]
    kept = torch.ones(len(chosen), 1 + repeats, neurons, dtype=torch.bool)  # sources that stay
    for row, own, stays in zip(rows, chosen.tolist(), kept, strict=True):
        strongest = strongest_sources(row, own, mass, generator)
        stays[0, strongest] = False
        others = torch.cat([torch.arange(own), torch.arange(own + 1, neurons)])
        for repeat in range(1, 1 + repeats):
            order = torch.randperm(neurons - 1, generator=generator)
            stays[repeat, others[order[: len(strongest)]]] = False
    before = occluded(features, torch.ones(1, neurons, dtype=torch.bool))[0]  # (classes, n)
    targets = chosen.repeat_interleave(1 + repeats)
    decided = before.argmax(0)[targets], targets
    parts = [occluded(features, part) for part in kept.flatten(0, 1).split(AT_ONCE)]
    after = torch.cat(parts)[torch.arange(len(targets)), *decided]
    drops = (before[decided] - after).double().view(-1, 1 + repeats).numpy()
    removed_part = (~kept[:, 0]).sum(1).numpy() / (neurons - 1)
    return np.stack([drops[:, 0], drops[:, 1:].mean(1), removed_part], 1)


def strongest_sources(row: Tensor, own: int, mass: float, generator: torch.Generator) -> Tensor:
    """Return the sources with the largest coefficients that together hold `mass` of a map (n,).

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


@torch.no_grad()
def occluded(features: ContextFeatures, kept: Tensor) -> Tensor:
    """Return probabilities (B, classes, n) where only the sources `kept` (B, n) are context."""
    context = features.context
    batch = features.features.expand(len(kept), -1, -1, -1)
    with evaluating(features.model):
        # not context(x, mask=...): that would take the neurons out of the map too
        remaining = context.target_context(batch, None, kept.to(batch.device))
        scores = features.scores(context.combine(batch, remaining))
    return scores.float().softmax(1).flatten(2).cpu()
