"""Device code of the scores of neurons: thin products with the predictor's features."""

import triton
import triton.language as tl

from scaseg.ops.kernels.device import _dot, _dot_table


@triton.jit(do_not_specialize=["N"])
def score(scores, f, weight, bias, K, f_n, N, bound,
          R: tl.constexpr, QP: tl.constexpr, SPLIT: tl.constexpr,
          BLOCK: tl.constexpr, BLOCK_K: tl.constexpr):  # fmt: skip
    """Bounded scores of a block of neurons: s of each channel, then t, (N, 2R)."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = i < N
    q = tl.arange(0, QP)
    row = (q % R) * 2 * K + (q // R) * K
    found = tl.zeros((BLOCK, QP), tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        inside = there[:, None] & (k < K)[None, :]
        v = tl.load(f + i.to(tl.int64)[:, None] * f_n + k[None, :], mask=inside, other=0.0)
        known = (q < 2 * R)[None, :] & (k < K)[:, None]
        found = _dot_table(
            v, tl.load(weight + row[None, :] + k[:, None], mask=known, other=0.0), found, SPLIT
        )
    found += tl.load(bias + q, mask=q < R, other=0.0)[None, :]
    if bound > 0:
        small = tl.exp(-2 * tl.abs(found) / bound)
        size = bound * (1 - small) / (1 + small)
        found = tl.where(found < 0, -size, size)
    inside = there[:, None] & (q < 2 * R)[None, :]
    tl.store(scores + i.to(tl.int64)[:, None] * 2 * R + q[None, :], found, mask=inside)


@triton.jit(do_not_specialize=["N", "chunk"])
def score_backward(grad_f, parts, grad_s, grad_t, scores, f, weight, K, f_n, KP, N, chunk, bound,
                   R: tl.constexpr, QP: tl.constexpr, SPLIT: tl.constexpr,
                   BLOCK: tl.constexpr, BLOCK_K: tl.constexpr):  # fmt: skip
    """Gradients of a chunk of neurons' features, and one part of those of weight and bias."""
    part = tl.program_id(0)
    q = tl.arange(0, QP)
    k = tl.program_id(1) * BLOCK_K + tl.arange(0, BLOCK_K)
    row = (q % R) * 2 * K + (q // R) * K
    known = (q < 2 * R)[:, None] & (k < K)[None, :]
    table = tl.load(weight + row[:, None] + k[None, :], mask=known, other=0.0)  # (QP, BLOCK_K)
    of_weight = tl.zeros((QP, BLOCK_K), tl.float32)
    of_bias = tl.zeros((QP,), tl.float32)
    column = tl.zeros((BLOCK_K,), tl.float32)
    for start in range(part * chunk, tl.minimum(part * chunk + chunk, N), BLOCK):
        i = start + tl.arange(0, BLOCK)
        there = i < tl.minimum(part * chunk + chunk, N)
        place = i.to(tl.int64)[:, None]
        of_s = there[:, None] & (q < R)[None, :]
        of_t = there[:, None] & (q >= R)[None, :] & (q < 2 * R)[None, :]
        grad = tl.load(grad_s + place * R + q[None, :], mask=of_s, other=0.0)
        grad += tl.load(grad_t + place * R + q[None, :] - R, mask=of_t, other=0.0)
        if bound > 0:
            score = tl.load(scores + place * 2 * R + q[None, :], mask=of_s | of_t, other=0.0)
            grad = grad * (1 - (score / bound) * (score / bound))
        inside = there[:, None] & (k < K)[None, :]
        v = tl.load(f + place * f_n + k[None, :], mask=inside, other=0.0)
        of_features = tl.dot(grad, table, input_precision="tf32x3")
        of_features = tl.where(v.to(tl.float32) > 0, of_features, 0.0)
        tl.store(grad_f + place * K + k[None, :], of_features, mask=inside)
        column += tl.sum(of_features, 0)
        of_weight = _dot(tl.trans(grad), v, of_weight, SPLIT)
        of_bias += tl.sum(grad, 0)
    base = parts + part.to(tl.int64) * (QP + 1) * KP
    tl.store(base + q[:, None] * KP + k[None, :], of_weight, mask=(k < K)[None, :])
    tl.store(base + QP * KP + k, column, mask=k < K)
    if tl.program_id(1) == 0:
        tl.store(base + q * KP + K, of_bias)
