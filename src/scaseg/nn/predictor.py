"""The dependency predictor: from a feature map to the scores of its neurons."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scaseg.errors import UserError
from scaseg.nn.convolution import watched
from scaseg.ops.activation import ACTIVATIONS
from scaseg.ops.checks import LARGEST_BOUND, MOST_PAIRS, check_number, check_whole_number
from scaseg.ops.precision import without_autocast

# Smooth activations get scores within this bound: 32 virtual targets then do in float32,
# whatever the image, and a source can still outweigh another one 10,000 times.
SCORE_BOUND = 5.0
MOST_LAYERS = 1000  # the paper tries up to 4
# neurons whose features stay in a core's cache from layer to layer
SLICE = 1024


class DependencyPredictor(nn.Module):
    """Predict a_ij = phi(w . [f_i ; f_j] + b) as s_i and t_j with w . [f_i ; f_j] + b = s_i + t_j.

    `layers` 1x1 convolutions of `hidden` channels with ReLU give f (0: f is the input); one more
    on the concatenation [f_i ; f_j], applied half by half, gives the scores. With
    `pair_channels` R > 1 there are R scores for each pair and a_ij = sum_r w_r phi(score_r):
    then the ranking of the sources can differ between targets, which a single channel cannot do.

    Sigmoid and softplus scores pass through bound * tanh(score / bound), the identity near 0, so
    that the number of interpolation nodes is fixed; score_bound=None leaves them as they are.
    The exact forms (identity, exp, relu) need no bound and get none, but for one: identity with a
    bound under half of its score_bias. Its scores then stay that close to where they start, so
    every coefficient stays positive, and no row sum can vanish (docs/results/index.md says why
    the plain identity does not train).

    Initialisation: training starts at the plain average and departs from it. The score weights
    are small (score_std 0.01), so all coefficients are nearly equal, yet every gradient flows.
    Several pair channels start ten times larger: alike, they would stay alike and never become
    dynamic. identity and relu start at a score_bias of 1, others at 0: around 0 the row sums of
    those two vanish. score_std and score_bias say otherwise (0 for both with sigmoid is exactly
    the average, with gradients all the same).
    """

    def __init__(
        self,
        in_channels: int,
        *,
        layers: int = 3,
        hidden: int = 512,
        activation: str = "sigmoid",
        pair_channels: int = 1,
        score_bound: float | None = SCORE_BOUND,
        score_std: float | None = None,
        score_bias: float | None = None,
    ) -> None:
        super().__init__()
        if activation not in ACTIVATIONS:
            raise UserError.choice("activation", activation, ACTIVATIONS)
        check_whole_number("in_channels", in_channels, 1)
        check_whole_number("layers", layers, 0, MOST_LAYERS)
        check_whole_number("hidden", hidden, 1)
        check_whole_number("pair_channels", pair_channels, 1, MOST_PAIRS)
        if score_bound is not None:
            check_number("score_bound", score_bound, 0, LARGEST_BOUND)
            if score_bound == 0:
                raise UserError("score_bound", "0 makes all scores equal", "give more, or None")
        if score_std is not None:
            check_number("score_std", score_std, 0)
        if score_bias is not None:
            check_number("score_bias", score_bias)
        if activation == "identity" and pair_channels > 1:
            raise UserError(
                "pair_channels",
                f"{pair_channels} with activation identity: sums of identities are an identity",
                "use relu, sigmoid, softplus or exp",
            )
        steps: list[nn.Module] = []
        width = in_channels
        for _ in range(layers):
            steps += [nn.Conv2d(width, hidden, kernel_size=1), nn.ReLU(inplace=True)]
            width = hidden
        self.features = nn.Sequential(*steps)
        self.score = nn.Conv2d(2 * width, pair_channels, kernel_size=1)
        self.raw_channel_weight = None
        if pair_channels > 1:
            self.raw_channel_weight = nn.Parameter(torch.empty(pair_channels))
        self.activation = activation
        interpolated = ACTIVATIONS[activation].form == "interpolated"
        self.score_bound = score_bound if interpolated else None
        usual = 0.01 if pair_channels == 1 else 0.1
        self.score_std = usual if score_std is None else score_std
        usual = 1.0 if activation in ("identity", "relu") else 0.0
        self.score_bias = usual if score_bias is None else score_bias
        self.guard = None
        if activation == "identity" and score_bound is not None:
            self.guard = score_bound if 2 * score_bound < self.score_bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Start at the plain average; the class says why."""
        for layer in self.features:
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
                nn.init.zeros_(layer.bias)  # type: ignore[arg-type]
        nn.init.normal_(self.score.weight, std=self.score_std)
        nn.init.constant_(self.score.bias, self.score_bias)  # type: ignore[arg-type]
        if self.raw_channel_weight is not None:
            nn.init.constant_(self.raw_channel_weight, math.log(math.e - 1))  # softplus -> 1

    @property
    def channel_weight(self) -> Tensor | None:
        """The non-negative weights w_r of the pair channels, (R,), or None for a single one."""
        return None if self.raw_channel_weight is None else F.softplus(self.raw_channel_weight)

    def forward(self, target: Tensor, source: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Score the neurons of two maps (of one, if no source is given).

        target (B, C, H, W), source (B, C, H', W') -> s (B, H * W, R), t (B, H' * W', R), in
        float32 at least: the coefficients depend on them.
        """
        if source is None and self._in_slices(target):
            lines = max(1, SLICE // (len(target) * target.shape[-1]))
            parts = zip(*(self._score(part, None) for part in target.split(lines, 2)), strict=True)
            target_score, source_score = (torch.cat(part, 1) for part in parts)
            return target_score, source_score
        return self._score(target, source)

    def _in_slices(self, x: Tensor) -> bool:
        """Whether a map is better gone through in slices: on a CPU, where none needs to be kept."""
        if torch.is_grad_enabled() or x.device.type != "cpu" or torch.compiler.is_compiling():
            return False
        if len(self.features) == 0 or len(x) * x.shape[-2] * x.shape[-1] < 2 * SLICE:
            return False
        return not any(map(watched, self.features))  # they see whole maps

    def _score(self, target: Tensor, source: Tensor | None) -> tuple[Tensor, Tensor]:
        features = self.features(target)
        source_features = features if source is None else self.features(source)
        target_weight, source_weight = self.score.weight.flatten(1).chunk(2, dim=1)  # (R, K)
        with without_autocast(target):
            return (
                self._scores(features, target_weight, self.score.bias, self.score_bias),
                self._scores(source_features, source_weight, None, 0.0),
            )

    def _scores(
        self, features: Tensor, weight: Tensor, bias: Tensor | None, start: float
    ) -> Tensor:
        """Score features (B, K, H, W) by a weight (R, K) and a bias (R,): (B, n, R)."""
        dtype = torch.promote_types(features.dtype, torch.float32)
        neurons = features.flatten(2).transpose(1, 2).to(dtype)  # (B, n, K)
        score = F.linear(neurons, weight.to(dtype), None if bias is None else bias.to(dtype))
        if self.guard is not None:
            return start + self.guard * torch.tanh((score - start) / self.guard)
        if self.score_bound is None:
            return score
        return self.score_bound * torch.tanh(score / self.score_bound)
