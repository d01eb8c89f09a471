"""The paper's predictor, several times side by side."""

from __future__ import annotations

import torch
from torch import Tensor

from scaseg.errors import UserError
from scaseg.nn.context import Context, MapFactors, Mask, Source
from scaseg.nn.predictor import SCORE_BOUND, DependencyPredictor
from scaseg.ops.activation import ACTIVATIONS
from scaseg.ops.checks import MOST_PAIRS, check_whole_number
from scaseg.ops.dense import dense_coefficients, reciprocal
from scaseg.ops.dispatch import check_backend, selective_context
from scaseg.ops.scores import Scores


class HeadsContext(Context):
    """`sca` with the M channels in groups: each head weighs the sources by scores of its own.

    One score for all channels must point to everything that matters at once. With H heads, the
    same features f give H pairs s, t, so that each group of M / H channels has its own order of
    the sources, at the cost of one: the operator is linear in n and M. Within a head the order is
    still the same for all neurons.

    No single coefficient stands for a pair: the maps show the mean of the heads' shares.
    score_std is ten times that of `sca`: heads that start alike would stay alike.
    """

    reference = "the paper, with the heads of Vaswani et al. 2017"
    score_parts = ("predictor",)

    def __init__(
        self,
        in_channels: int,
        out_channels: int | None = None,
        *,
        heads: int = 8,
        layers: int = 3,
        hidden: int = 512,
        activation: str = "sigmoid",
        score_bound: float | None = SCORE_BOUND,
        score_std: float | None = 0.1,
        share_features: bool = False,
        backend: str = "auto",
    ) -> None:
        super().__init__(in_channels, out_channels, share_features=share_features)
        check_backend(backend)
        check_whole_number("heads", heads, 1, MOST_PAIRS)
        if self.out_channels % heads:
            problem = f"{heads} for {self.out_channels} channels"
            raise UserError("heads", problem, "give a divisor of the number of channels")
        if activation == "identity" and heads > 1:
            raise UserError("activation", "identity with several heads", "use sigmoid, exp or relu")
        self.heads = heads
        self.backend = backend
        self.predictor = DependencyPredictor(
            in_channels,
            layers=layers,
            hidden=hidden,
            activation=activation,
            pair_channels=heads,
            score_bound=score_bound,
            score_std=score_std,
        )
        self.predictor.raw_channel_weight = None  # the heads are not added up

    def target_context(self, x: Tensor, source: Source, source_mask: Mask) -> Tensor:
        values = self.values(x if source is None else source)
        target_score, source_score = self.predictor(x, source)  # (B, n, H)
        groups = values.unflatten(2, (self.heads, -1)).transpose(1, 2).flatten(0, 1)
        context = selective_context(
            groups,  # (B H, source, M / H)
            target_score.mT.flatten(0, 1),
            source_score.mT.flatten(0, 1),
            activation=self.predictor.activation,
            exclude_self=source is None,
            source_mask=self._of_all_heads(source_mask),
            score_bound=self.predictor.score_bound,
            backend=self.backend,
        )
        return context.unflatten(0, (values.shape[0], self.heads)).transpose(1, 2).flatten(2)

    def coefficient_rows(
        self, x: Tensor, source: Source, targets: Tensor, source_mask: Mask
    ) -> Tensor:
        target_score, source_score = self.predictor(x, source)
        scores = Scores(
            target=target_score[:, targets].mT.flatten(0, 1).unsqueeze(1),
            source=source_score.mT.flatten(0, 1).unsqueeze(1),
            activation=ACTIVATIONS[self.predictor.activation],
            channel_weight=None,
            own=targets if source is None else None,
            source_mask=self._of_all_heads(source_mask),
        )
        rows = dense_coefficients(scores)  # (B H, rows, source)
        shares = rows * reciprocal(rows.sum(-1)).unsqueeze(-1)
        return shares.unflatten(0, (len(x), self.heads)).mean(1)

    def map_factors(self, x: Tensor) -> MapFactors:
        # a head's share is its coefficient over its own row sum: a weight for each target
        target, source = (score[0] for score in self.predictor(x))  # (n, H)
        name, is_exp = self.predictor.activation, self.predictor.activation == "exp"
        sums = []  # (n, H); of exp their logarithms
        for rows in torch.arange(len(target), device=x.device).split(64):
            scores = target[rows, None] + source  # (rows, n, H)
            found = scores if is_exp else ACTIVATIONS[name].phi(scores)
            found[torch.arange(len(rows)), rows] = -torch.inf if is_exp else 0
            sums.append(found.logsumexp(1) if is_exp else found.sum(1))
        total = torch.cat(sums)
        if is_exp:
            return MapFactors("additive", target - total, source, target.new_ones(self.heads), name)
        return MapFactors("additive", target, source, reciprocal(total), name)

    def _of_all_heads(self, source_mask: Mask) -> Tensor | None:
        return None if source_mask is None else source_mask.repeat_interleave(self.heads, 0)
