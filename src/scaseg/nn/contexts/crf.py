"""A dense conditional random field, trained."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scaseg.nn.auxiliary import AuxiliaryClassifier
from scaseg.nn.context import Mask, Source
from scaseg.nn.contexts.branches import BranchContext
from scaseg.nn.contexts.parts import counted, line_of, neurons, refuse_source
from scaseg.ops.attention import dot_context
from scaseg.ops.checks import check_whole_number
from scaseg.ops.dense import reciprocal
from scaseg.ops.precision import without_autocast

WIDEST = 64  # channels of a fused attention
NEAR, FAR = 3.0, 10.0  # neurons: how far the two kernels reach at first


class MeanFieldClassifier(AuxiliaryClassifier):
    """Scores of the classes, refined by mean field: a recurrent network, trained as a whole.

    Q = softmax(u), and `steps` times Q_i(l) ~ exp(u_i(l) + sum_l' m(l, l') sum_k w_k(l') sum_j
    g_k(i, j) Q_j(l')). The two kernels are Gaussian: one of places, one of places and of
    key_channels learned features; their sizes, the weights w and the compatibility m (from Potts'
    on) are learned. The kernels of a neuron sum to 1.

    exp(-|f_i - f_j|^2 / 2) is exp(f_i . f_j - |f_j|^2 / 2) but for a factor of row i, so that a
    normalized Gaussian filter is attention: exact, O(n^2) time and O(n) memory. That of places
    alone is one along the rows, then along the columns: exact too, O(n sqrt(n)).
    """

    def __init__(self, in_channels: int, classes: int, *, key_channels: int, steps: int) -> None:
        super().__init__(in_channels, classes)
        self.steps = steps
        self.feature = nn.Conv2d(in_channels, key_channels, kernel_size=1, bias=False)
        self.reach = nn.Parameter(torch.tensor([NEAR, FAR]).log())
        self.kernel_weight = nn.Parameter(torch.ones(2, classes))
        self.compatibility = nn.Parameter(torch.eye(classes))

    def forward(self, x: Tensor, source_mask: Mask = None) -> Tensor:
        """(B, C, H, W), source_mask (B, n) -> (B, classes, H, W)."""
        height, width = x.shape[-2:]
        unary = neurons(super().forward(x))
        feature = neurons(self.feature(x))
        with without_autocast(x):
            near, far = self.reach.to(feature.dtype).exp()
            lines = [line_of(feature, length) for length in (height, width)]
            place = torch.stack(torch.meshgrid(*lines, indexing="ij"), -1).flatten(0, 1) / far
            of_places = [(-0.5 * ((one[:, None] - one) / near).square()).exp() for one in lines]
            features = torch.cat([place.expand(x.shape[0], -1, -1), feature], -1)
            weight = self.kernel_weight.to(unary.dtype)
            scores = unary
            for _ in range(self.steps):
                share = scores.softmax(-1)
                found = weight[0] * separable_mean(of_places, share, source_mask)
                found = found + weight[1] * gaussian_mean(features, share, source_mask)
                scores = unary + found @ self.compatibility.to(unary.dtype).mT
        return scores.mT.unflatten(2, (height, width)).to(x.dtype)

    def replace_classes(self, kept: Sequence[int | None]) -> None:
        super().replace_classes(kept)
        new = [row for row, before in enumerate(kept) if before is not None]
        old = [before for before in kept if before is not None]
        weight, compatibility = torch.ones(2, len(kept)), torch.eye(len(kept))
        weight, compatibility = weight.to(self.reach), compatibility.to(self.reach)
        with torch.no_grad():
            weight[:, new] = self.kernel_weight[:, old]
            for row, before in zip(new, old, strict=True):
                compatibility[row, new] = self.compatibility[before, old]
        self.kernel_weight = nn.Parameter(weight)
        self.compatibility = nn.Parameter(compatibility)


class CrfContext(BranchContext):
    """A dense CRF over the neurons by mean field; each gets the mixture of its classes' vectors.

    A neuron's classes follow from its own scores and from those of neurons that lie near it, or
    near it with similar features (`MeanFieldClassifier`). Its context is P sum_l Q_i(l) v_l, where
    v_l is the classifier's weight of class l. The refined scores have a loss of their own, as in
    the paper, where they are the network's result. O(n^2 classes) time, O(n) memory.

    Zheng et al., "Conditional random fields as recurrent neural networks", 2015, after Kraehenbuehl
    and Koltun, "Efficient inference in fully connected CRFs with Gaussian edge potentials", 2011.
    There kernels compare colours of pixels; here features of neurons, and their own learned sizes.
    """

    order = "n^2"
    neuron_selective = True
    reference = (
        "Zheng et al., Conditional random fields as recurrent neural networks (CRF-RNN), ICCV 2015"
    )

    def __init__(
        self,
        in_channels: int,
        out_channels: int | None = None,
        *,
        classes: int,
        key_channels: int = 8,
        steps: int = 5,
    ) -> None:
        super().__init__(in_channels, out_channels, channels=in_channels)
        check_whole_number("classes", classes, 1, 2**16)
        check_whole_number("key_channels", key_channels, 1)
        check_whole_number("steps", steps, 1, 100)
        self.classifier = MeanFieldClassifier(
            in_channels, classes, key_channels=key_channels, steps=steps
        )

    def branches(self, x: Tensor, source: Source, source_mask: Mask) -> Tensor:
        refuse_source(self, source)
        share = neurons(self.classifier(x, source_mask)).softmax(-1)
        vectors = self.classifier.weight.flatten(1) * self.in_channels**0.5  # about as large as x
        return (share.to(x.dtype) @ vectors.to(x.dtype)).mT.unflatten(2, x.shape[-2:])


def separable_mean(kernels: list[Tensor], values: Tensor, source_mask: Mask) -> Tensor:
    """Give each neuron the mean of values weighted by a kernel of rows times one of columns.

    kernels (H, H), (W, W), values (B, n, M), source_mask (B, n) -> (B, n, M). O(n (H + W) M).
    """
    rows, columns = kernels
    counts = torch.cat([values, torch.ones_like(values[..., :1])], -1)  # its sum of weights too
    maps = counted(counts, source_mask).unflatten(1, (rows.shape[0], columns.shape[0]))
    found = columns @ torch.einsum("rh,bhwm->brwm", rows, maps)
    found = found.flatten(1, 2)
    return found[..., :-1] * reciprocal(found[..., -1:])


def gaussian_mean(feature: Tensor, values: Tensor, source_mask: Mask) -> Tensor:
    """Give each neuron the mean of values weighted by exp(-|f_i - f_j|^2 / 2), its own too.

    feature (B, n, d), values (B, n, M), source_mask (B, n) -> (B, n, M).
    """
    feature = feature - feature.mean(1, keepdim=True)  # digits: |f|^2 stays small
    length = feature.square().sum(-1, keepdim=True)
    # as wide as the values, up to a point: these go in slices of that width, each with its own exp
    more = (0, max(0, min(values.shape[-1], WIDEST) - feature.shape[-1] - 1))
    query = F.pad(torch.cat([feature, torch.ones_like(length)], -1), more)
    key = F.pad(torch.cat([feature, -0.5 * length], -1), more)
    query = query * query.shape[-1] ** 0.5  # undoes the division
    return dot_context(query, key, values, source_mask=source_mask)
