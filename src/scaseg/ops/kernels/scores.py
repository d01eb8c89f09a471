"""The dependency predictor's last steps and their gradients: scores, ReLU, sums over neurons.

The scores of a pair are w' . f_i + b and w'' . f_j: thin products, for which a matrix library
wants the features in float32 first, an array twice as large as they are.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from scaseg.ops.kernels import device_scores, tiles
from scaseg.ops.kernels.launch import Piece, launch
from scaseg.ops.kernels.plan import Plan
from scaseg.ops.kernels.smooth import Scores, new_buffer
from scaseg.ops.kernels.tiles import LAST, LAYER, PARTS, SCORE, chunks_of, features_of_a_tile

RELU = {width: {"BLOCK": LAYER.rows, "BLOCK_K": width} for width in (16, 32, 64, 128, 256, 512)}
ADD = {"PARTS": PARTS, "WIDTH": tiles.FINISH}
LOWER = {"BLOCK": 4096}
AT_ONCE = 10  # tensors that `lower` copies


def lower(parameters: Sequence[Tensor], dtype: torch.dtype) -> Tensor:
    """The elements of all parameters one after another, in another dtype."""
    counts = [one.numel() for one in parameters]
    apart = any(not one.is_contiguous() or one.dtype != torch.float32 for one in parameters)
    if apart or len(parameters) > AT_ONCE:
        return torch.cat([one.reshape(-1) for one in parameters]).to(dtype)
    out = torch.empty(sum(counts), dtype=dtype, device=parameters[0].device)
    spare = AT_ONCE - len(parameters)
    launch(
        device_scores.lower,
        (-(-max(counts) // LOWER["BLOCK"]), len(parameters), 1),
        (out, *parameters, *[parameters[0]] * spare),
        (),
        (*counts, *(0,) * spare),
        LOWER,
        dtypes=(dtype,),
    )
    return out


def scores_of(plan: Plan, scores: Tensor) -> Scores:
    """Scores (B * n, 2R) as `score` gives them: s, then t."""
    count, channels = plan.problem.sources, plan.problem.channels
    strides = 2 * channels * count, 2 * channels, 1
    return Scores(Piece.of(scores, 0), Piece.of(scores, channels), (*strides, *strides))


def score(
    plan: Plan,
    features: Tensor,
    weight: Tensor,
    bias: Tensor,
    mask: Tensor | None,
    scratch: Tensor,
) -> tuple[Tensor, Scores]:
    """Score features (B * n, K) by weight (R, 2K) and bias (R,): (B * n, 2R) float32.

    With a bound they pass through bound * tanh(score / bound).
    """
    problem = plan.problem
    count, channels = problem.sources, problem.channels
    width = features.shape[1]
    scores = new_buffer(problem.batch * count * 2 * channels, features)
    _, peaks, places = plan.scratch.of(scratch)
    launch(
        device_scores.score,
        (plan.blocks, problem.batch, 1),
        (scores, peaks, places, features, weight, bias, features if mask is None else mask),
        (width, features.stride(0)),
        (count, plan.blocks, problem.bound),
        plan.with_tile("score", features_of_a_tile(width, SCORE.features)),
        dtypes=(features.dtype,),
        warps=SCORE.warps,
    )
    return scores, scores_of(plan, scores)._replace(peaks=peaks, places=places)


class LayerSums:
    """Sums over all neurons, in parts: gradients of the score's weight and of all biases.

    widths: features of each layer. `stretches` of at most `most` neurons are added one by one.
    """

    def __init__(self, plan: Plan, widths: list[int], stretches: int, most: int) -> None:
        channels = plan.problem.channels
        self.plan, self.stretches = plan, stretches
        self.score_width = 2 * channels * widths[-1]
        self.offsets = [self.score_width + channels]
        for width in widths:
            self.offsets.append(self.offsets[-1] + width)
        self.tiles = [features_of_a_tile(width, LAYER.features) for width in widths]
        count = -(-max(widths) // max(self.tiles))
        self.chunks, self.chunk = chunks_of(most, max(1, count // 4), LAYER.rows)
        self.parts: Tensor | None = None

    def _part(self, stretch: int, offset: int, like: Tensor) -> Piece:
        if self.parts is None:
            self.parts = new_buffer(self.stretches * self.chunks * self.offsets[-1], like)
        return Piece.of(self.parts, stretch * self.chunks * self.offsets[-1] + offset)

    def score_backward(
        self,
        stretch: int,
        out: Tensor,
        grad_s: Piece,
        grad_t: Piece,
        scores: Piece,
        features: Tensor,
        weight: Tensor,
    ) -> None:
        """From the gradients of scores to those of the features, past their ReLU: `out` (N, K)."""
        count, width = features.shape
        last = len(self.tiles) - 1
        tile = features_of_a_tile(width, LAST.features)
        launch(
            device_scores.score_backward,
            (self.chunks, -(-width // tile), 1),
            (out, self._part(stretch, 0, out), self._part(stretch, self.offsets[last], out),
             grad_s, grad_t, scores, features, weight),
            (width, out.stride(0), features.stride(0)),
            (count, self.chunk, self.offsets[-1], self.plan.problem.bound),
            self.plan.with_tile("score_backward", tile),
            dtypes=(features.dtype,),
            warps=LAYER.warps,
        )  # fmt: skip

    def relu_backward(self, stretch: int, layer: int, grad: Tensor, features: Tensor) -> None:
        """Leave the gradient (N, K) where the layer's features are positive; 0 elsewhere."""
        count, width = features.shape
        launch(
            device_scores.relu_backward,
            (self.chunks, -(-width // self.tiles[layer]), 1),
            (grad, self._part(stretch, self.offsets[layer], grad), grad, features),
            (width, grad.stride(0)),
            (count, self.chunk, self.offsets[-1]),
            RELU[self.tiles[layer]],
            dtypes=(features.dtype,),
            warps=LAYER.warps,
        )

    def totals(self) -> Tensor:
        """The gradients of the score's weight (R, 2K), of its bias, of the layers' biases."""
        assert self.parts is not None
        width = self.offsets[-1]
        sums = new_buffer(width, self.parts)
        launch(
            device_scores.add_parts,
            (-(-width // tiles.FINISH), 1, 1),
            (sums, self.parts),
            (),
            (self.stretches * self.chunks, width),
            ADD,
            dtypes=(),
        )
        return sums
