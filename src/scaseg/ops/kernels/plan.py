"""What of the kernels does not depend on data: nodes, tiles, buffers, constants."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from scaseg.ops.chebyshev import TOLERANCE, node_count
from scaseg.ops.kernels import tiles
from scaseg.ops.kernels.launch import Cut
from scaseg.ops.kernels.support import CODES
from scaseg.ops.kernels.tiles import (
    FINISH,
    LAYER,
    PARTS,
    SCORE,
    chunks_of,
    features_of_a_tile,
    tile,
)

EXP, IDENTITY, RELU = CODES["exp"], CODES["identity"], CODES["relu"]


class Nodes(NamedTuple):
    """The nodes of a bound: how many, padded to a power of two with room for the top row."""

    used: int
    padded: int
    half: float

    @staticmethod
    @lru_cache
    def of(activation: int, bound: float) -> Nodes:
        half = max(bound, 1.0)
        count = node_count(half, TOLERANCE[torch.float32]) if activation < EXP else 1
        if activation == IDENTITY:
            count = 2
        return Nodes(count, max(16, 1 << count.bit_length()), half)


@lru_cache(maxsize=64)
def node_table(nodes: Nodes, place: torch.device) -> Tensor:
    """Nodes in two float32 parts, barycentric weights, scores: (4, padded)."""
    angle = (torch.arange(nodes.padded, dtype=torch.float64) + 0.5) * (math.pi / nodes.used)
    used = torch.arange(nodes.padded) < nodes.used
    node = torch.where(used, torch.cos(angle), 2.0)
    sign = 1 - 2 * (torch.arange(nodes.padded) % 2)
    weight = torch.where(used, torch.sin(angle) * sign, 0.0)
    high = node.float()
    parts = [high, (node - high.double()).float(), weight.float(), (node * nodes.half).float()]
    return torch.stack(parts).to(place)


def prepare(activation: int, bound: float, kind: str, index: int | None) -> bool:
    """Make what is held for good before a CUDA graph is recorded, whose memory is its own."""
    place = torch.device(kind) if index is None else torch.device(kind, index)
    node_table(Nodes.of(activation, bound), place)
    return True


prepare._dynamo_marked_constant = True  # type: ignore[attr-defined] # done while tracing


class Problem(NamedTuple):
    """All that a plan depends on."""

    batch: int
    targets: int
    sources: int
    features: int
    channels: int
    activation: int
    bound: float
    own: bool
    masked: bool
    weighted: bool
    slopes: bool  # a backward pass will follow
    dtype: torch.dtype  # of the values
    place: torch.device


class Plan:
    """Grids, buffers and constants of the kernels for one problem."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        batch, targets, sources, features, channels, activation, bound, own, masked = problem[:9]
        self.nodes = nodes = Nodes.of(activation, bound)
        self.split = tiles.is_split(problem.dtype, problem.place)
        slopes = problem.slopes and activation < EXP
        rows = nodes.padded * (1 + slopes)
        pairs = batch * channels
        self.padded = features + 16 - features % 16
        self.few = rows * self.padded  # elements of one channel's table
        self.kept = kept_by(problem)
        self.table_dtype = problem.dtype if self.split else torch.float32
        self.blocks = -(-sources // SCORE.rows)
        self.tiles = {name: tile(name, nodes.padded, features, self.split) for name in tiles.WIDE}
        gather = self.tiles["sources_to_nodes"]
        self.source_tiles = -(-features // gather.features)
        programs = tiles.LARGE if gather.features > 128 else tiles.PROGRAMS
        self.source_chunks = chunks_of(sources, self.source_tiles * pairs, gather.rows, programs)
        spread = self.tiles["targets_to_nodes"]
        self.target_tiles = -(-features // spread.features)
        self.target_chunks = chunks_of(targets, self.target_tiles * pairs, spread.rows, programs)
        parts = self.source_chunks[0] * pairs * self.few
        places = 2 * pairs * self.blocks, torch.int32
        self.scratch = Cut.into(parts, 5 * pairs * self.blocks, places)
        table = nodes.padded * self.padded
        count = batch * targets * channels
        self.gradient = Cut.into(
            *(count,) * 5,
            batch * targets,
            self.target_chunks[0] * pairs * table,
            (pairs * table, self.table_dtype),
            pairs * nodes.padded,
        )
        self.finish = features_of_a_tile(features, FINISH)
        shared = {"R": channels, "KP": nodes.padded, "OWN": own, "ACT": activation}
        split = {"SPLIT": self.split}
        known = {"HAS_MASK": masked}
        summed = {
            "KP": nodes.padded,
            "ACT": activation,
            "SLOPES": slopes,
            "PARTS": PARTS,
            "BLOCK_M": self.finish,
        }
        weighted = {"HAS_W": problem.weighted}
        padded = {"RP": 1 << (channels - 1).bit_length()}
        self.constants: dict[Any, dict[str, Any]] = {
            "sources_to_nodes": shared | split | known | {"SLOPES": slopes, "SCAN": 256},
            "nodes_to_targets": shared | split | known | weighted | {"SLOPES": slopes},
            "target_gradients": shared | split | known | weighted | padded,
            "targets_to_nodes": shared | split,
            "source_gradients": shared | split | known,
        }
        self.shapes = {
            name: {"warps": one.warps, "stages": one.stages} for name, one in self.tiles.items()
        }
        for name, one in self.tiles.items():
            self.constants[name] |= {"BLOCK": one.rows, "BLOCK_M": one.features}
        self.constants["finish"] = summed | split
        self.constants["strongest"] = known | {"R": channels, "BLOCK": SCORE.rows}
        self.constants["strongest"] |= {"ACT": activation}
        adding = self.constants["nodes_to_targets"]
        self.adding = {added: adding | {"ADD": added} for added in (False, True)}
        copying = self.constants["source_gradients"]
        self.copying = {copied: copying | {"COPY": copied} for copied in (False, True)}
        self.constants["finish_pulls"] = self.constants["finish"] | {
            "BLOCK_M": features_of_a_tile(features, 4 * FINISH)
        }
        pair = {"R": channels, "QP": max(16, 1 << (2 * channels - 1).bit_length())}
        self.constants["score"] = self.constants["strongest"] | split | pair
        self.constants["score_backward"] = split | pair | {"BLOCK": LAYER.rows}

    def with_tile(self, name: str, width: int) -> dict[str, Any]:
        """Constants of a kernel of the predictor for tiles of so many features."""
        found = self.constants.get((name, width))
        if found is None:
            found = self.constants[name, width] = self.constants[name] | {"BLOCK_K": width}
        return found


class SortedPlan(Plan):
    """The same for relu, whose kernels are those of device_relu."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.border = border = tiles.BORDER._replace(
            features=features_of_a_tile(problem.features, tiles.BORDER.features)
        )
        rows = problem.batch * problem.targets
        self.gradient = Cut.into(*(rows,) * 4, *_prefixes(problem, problem.targets))
        own = {"OWN": problem.own}
        known = {"HAS_MASK": problem.masked}
        shape = {"BLOCK": border.rows, "BLOCK_O": tiles.OTHERS, "BLOCK_M": border.features}
        shape |= own | {"SPLIT": self.split}
        self.constants["gradients_of_targets"] = shape | known
        self.adding = {added: shape | known | {"ADD": added} for added in (False, True)}
        self.copying = {copied: shape | {"COPY": copied} for copied in (False, True)}
        block = own | {"BLOCK": tiles.OTHERS, "BLOCK_M": border.features}
        self.summing = {weighted: block | {"HAS_W": weighted} for weighted in (False, True)}
        self.constants["prefix_sums"] = {"BLOCK": 64, "BLOCK_M": 16}
        cut = {"BLOCK": border.rows, "BLOCK_O": tiles.OTHERS, "SCAN": 1024}
        self.constants["cut_rows"] = cut

    def blocks_of(self, count: int) -> int:
        """Blocks of so many sorted rows."""
        return -(-count // tiles.OTHERS)

    def most_tiles(self, rows: int, others: int) -> int:
        """Tiles into which `cut_rows` may cut them."""
        return -(-rows // self.border.rows) + self.blocks_of(others) + 1


def _prefixes(problem: Problem, count: int) -> tuple[tuple[int, torch.dtype], int, int]:
    """Sizes of cuts by blocks of `count` sorted rows, of their prefix sums and anchors."""
    blocks = problem.batch * -(-count // tiles.OTHERS)
    cuts = 3 * (blocks + problem.batch), torch.int32
    return cuts, blocks * 2 * (problem.features + 16 - problem.features % 16), blocks


def kept_by(problem: Problem) -> Cut:
    """What the backward pass needs: sums, means, the strongest source and its score.

    For relu: sorted scores and their places, of targets and of sources, 1 / sums of coefficients,
    prefix sums and their anchors.
    """
    if problem.activation == RELU:
        targets, sources = problem.batch * problem.targets, problem.batch * problem.sources
        orders = [one for n in (targets, sources) for one in (n, (2 * n, torch.int64))]
        return Cut.into(*orders, targets, *_prefixes(problem, problem.sources))
    features, padded = problem.features, Nodes.of(problem.activation, problem.bound).padded
    pairs = problem.batch * problem.channels
    rows = padded * (1 + (problem.slopes and problem.activation < EXP))
    means = pairs * rows * (features + 16 - features % 16)
    dtype = problem.dtype if tiles.is_split(problem.dtype, problem.place) else torch.float32
    quotients = 2 * problem.batch * problem.targets * (problem.activation == IDENTITY)
    tables = 2 * pairs * padded, (means, dtype)
    return Cut.into(*tables, (pairs, torch.int32), 2 * pairs, quotients)


@lru_cache(maxsize=1024)
def plan_of(problem: Problem) -> Plan:
    """The plan of a problem; the same one each time."""
    return SortedPlan(problem) if problem.activation == RELU else Plan(problem)
