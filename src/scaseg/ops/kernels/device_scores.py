"""Device code of the dependency predictor: scores of neurons, and gradients of its layers."""

import triton
import triton.language as tl

from scaseg.ops.kernels.device_forward import add_up, store_strongest
from scaseg.ops.kernels.device_shared import dot_values

SIZES = ["N", "P", "chunk", "chunks", "width"]


@triton.jit(do_not_specialize=SIZES)
def score(
        scores, peaks, places, f, weight, bias, mask, K, f_n, N, P, bound, R: tl.constexpr,
        QP: tl.constexpr, HAS_MASK: tl.constexpr, ACT: tl.constexpr, SPLIT: tl.constexpr,
        BLOCK: tl.constexpr, BLOCK_K: tl.constexpr):  # fmt: skip
    """Bounded scores of a block of neurons: s of each channel, then t, (B * N, 2R).

    Of t also what `strongest` finds.
    """
    b = tl.program_id(1).to(tl.int64)
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = i < N
    line = b * N + i
    q = tl.arange(0, QP)
    row = (q % R) * 2 * K + (q // R) * K
    found = tl.zeros((BLOCK, QP), tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        inside = there[:, None] & (k < K)[None, :]
        v = tl.load(f + line[:, None] * f_n + k[None, :], mask=inside, other=0.0)
        known = (q < 2 * R)[None, :] & (k < K)[:, None]
        a = tl.load(weight + row[None, :] + k[:, None], mask=known, other=0.0)
        if SPLIT:
            high = a.to(v.dtype)
            found = tl.dot(v, high, found)
            found = tl.dot(v, (a - high.to(tl.float32)).to(v.dtype), found)
        else:
            found = tl.dot(v.to(tl.float32), a, found, input_precision="tf32x3")
    found += tl.load(bias + q, mask=q < R, other=0.0)[None, :]
    if bound > 0:
        small = tl.exp(-2 * tl.abs(found) / bound)
        size = bound * (1 - small) / (1 + small)
        found = tl.where(found < 0, -size, size)
    inside = there[:, None] & (q < 2 * R)[None, :]
    tl.store(scores + line[:, None] * 2 * R + q[None, :], found, mask=inside)
    if HAS_MASK:
        there = there & (tl.load(mask + line, mask=there, other=0) != 0)
    counts = there[:, None] & (q >= 0)[None, :]
    part = (b * R + q - R) * P + tl.program_id(0)
    is_source = (q >= R) & (q < 2 * R)
    place = i[:, None] + 0 * q[None, :]
    store_strongest(peaks, places, part, found, counts, place, N, is_source, ACT)


@triton.jit(do_not_specialize=SIZES)
def score_backward(
        grad_f, parts, of_layer, grad_s, grad_t, scores, f, weight, K, o_n, f_n, N, chunk, width,
        bound,
        R: tl.constexpr, QP: tl.constexpr, SPLIT: tl.constexpr, BLOCK: tl.constexpr,
        BLOCK_K: tl.constexpr):  # fmt: skip
    """Gradients of a chunk of neurons' features past their ReLU, and one part of three sums.

    parts (chunks, width) gets that of the score's weight (R, 2K) and, after it, of its bias (R,);
    of_layer, in the same rows, that of the bias of the layer that made the features.
    """
    part = tl.program_id(0).to(tl.int64) * width
    q = tl.arange(0, QP)
    k = tl.program_id(1) * BLOCK_K + tl.arange(0, BLOCK_K)
    row = (q % R) * 2 * K + (q // R) * K
    known = (q < 2 * R)[:, None] & (k < K)[None, :]
    if R == 1:
        weight_s = tl.load(weight + k, mask=k < K, other=0.0)[None, :]
        weight_t = tl.load(weight + K + k, mask=k < K, other=0.0)[None, :]
        # in two dimensions: a sum over rows for each block would wait for all threads
        of_weight_s = tl.zeros((BLOCK, BLOCK_K), tl.float32)
        of_weight_t = tl.zeros((BLOCK, BLOCK_K), tl.float32)
        of_bias_s = tl.zeros((BLOCK,), tl.float32)
    else:
        table = tl.load(weight + row[:, None] + k[None, :], mask=known, other=0.0)  # (QP, BLOCK_K)
        of_weight = tl.zeros((QP, BLOCK_K), tl.float32)
        of_bias = tl.zeros((QP,), tl.float32)
    column = tl.zeros((BLOCK, BLOCK_K), tl.float32)
    first = tl.program_id(0) * chunk
    for start in range(first, tl.minimum(first + chunk, N), BLOCK):
        i = start + tl.arange(0, BLOCK)
        there = i < tl.minimum(first + chunk, N)
        place = i.to(tl.int64)[:, None]
        inside = there[:, None] & (k < K)[None, :]
        v = tl.load(f + place * f_n + k[None, :], mask=inside, other=0.0)
        if R == 1:  # two columns: no matrix product
            line = i.to(tl.int64)
            d_s = tl.load(grad_s + line, mask=there, other=0.0)
            d_t = tl.load(grad_t + line, mask=there, other=0.0)
            if bound > 0:
                s = tl.load(scores + 2 * line, mask=there, other=0.0) / bound
                t = tl.load(scores + 2 * line + 1, mask=there, other=0.0) / bound
                d_s = d_s * (1 - s * s)
                d_t = d_t * (1 - t * t)
            of_features = d_s[:, None] * weight_s + d_t[:, None] * weight_t
            wide = v.to(tl.float32)
            of_weight_s += d_s[:, None] * wide
            of_weight_t += d_t[:, None] * wide
            of_bias_s += d_s
        else:
            of_s = there[:, None] & (q < R)[None, :]
            of_t = there[:, None] & (q >= R)[None, :] & (q < 2 * R)[None, :]
            grad = tl.load(grad_s + place * R + q[None, :], mask=of_s, other=0.0)
            grad += tl.load(grad_t + place * R + q[None, :] - R, mask=of_t, other=0.0)
            if bound > 0:
                both = tl.load(scores + place * 2 * R + q[None, :], mask=of_s | of_t, other=0.0)
                grad = grad * (1 - (both / bound) * (both / bound))
            of_features = tl.dot(grad, table, input_precision="tf32x3")
            of_weight = dot_values(tl.trans(grad), v, of_weight, SPLIT)
            of_bias += tl.sum(grad, 0)
        of_features = tl.where(v.to(tl.float32) > 0, of_features, 0.0)
        tl.store(grad_f + place * o_n + k[None, :], of_features, mask=inside)
        column += of_features
    tl.store(of_layer + part + k, tl.sum(column, 0), mask=k < K)
    if R == 1:
        tl.store(parts + part + k, tl.sum(of_weight_s, 0), mask=k < K)
        tl.store(parts + part + K + k, tl.sum(of_weight_t, 0), mask=k < K)
        if tl.program_id(1) == 0:
            tl.store(parts + part + 2 * K, tl.sum(of_bias_s, 0))
    else:
        tl.store(parts + part + row[:, None] + k[None, :], of_weight, mask=known)
        if tl.program_id(1) == 0:
            tl.store(parts + part + 2 * R * K + q, of_bias, mask=q < R)


@triton.jit(do_not_specialize=SIZES)
def relu_backward(
        out, of_layer, grad, f, K, g_n, N, chunk, width, BLOCK: tl.constexpr,
        BLOCK_K: tl.constexpr):  # fmt: skip
    """grad (N, K) where f is positive, else 0; one part of its column sums. out may be grad."""
    k = tl.program_id(1) * BLOCK_K + tl.arange(0, BLOCK_K)
    column = tl.zeros((BLOCK, BLOCK_K), tl.float32)
    first = tl.program_id(0) * chunk
    for start in range(first, tl.minimum(first + chunk, N), BLOCK):
        i = start + tl.arange(0, BLOCK)
        there = i < tl.minimum(first + chunk, N)
        place = i.to(tl.int64)[:, None]
        inside = there[:, None] & (k < K)[None, :]
        v = tl.load(f + place * K + k[None, :], mask=inside, other=0.0).to(tl.float32)
        where = place * g_n + k[None, :]
        d = tl.load(grad + where, mask=inside, other=0.0).to(tl.float32)
        d = tl.where(v > 0, d, 0.0)
        tl.store(out + where, d, mask=inside)
        column += d
    tl.store(of_layer + tl.program_id(0).to(tl.int64) * width + k, tl.sum(column, 0), mask=k < K)


@triton.jit(do_not_specialize=SIZES)
def add_parts(out, parts, chunks, width, PARTS: tl.constexpr, WIDTH: tl.constexpr):
    """Add up the rows of parts (chunks, width)."""
    k = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
    found = add_up(parts + k, width.to(tl.int64), k < width, chunks, PARTS, WIDTH)
    tl.store(out + k, found, mask=k < width)


@triton.jit
def following(which, number, source, count, next_source, next_count, before):
    """The tensor that comes next if `which` is at least its number; elements before it."""
    if which >= number:
        before += count
        source = next_source
        count = next_count
    return source, count, before


@triton.jit(
    do_not_specialize=["n_0", "n_1", "n_2", "n_3", "n_4", "n_5", "n_6", "n_7", "n_8", "n_9"]
)
def lower(out, p_0, p_1, p_2, p_3, p_4, p_5, p_6, p_7, p_8, p_9, n_0, n_1, n_2, n_3, n_4, n_5, n_6,
          n_7, n_8, n_9, BLOCK: tl.constexpr):  # fmt: skip
    """Copy up to ten tensors of n_0, n_1, ... elements one after another, in the dtype of out."""
    which = tl.program_id(1)
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    source, count, before = following(which, 1, p_0, n_0, p_1, n_1, 0 * n_0)
    source, count, before = following(which, 2, source, count, p_2, n_2, before)
    source, count, before = following(which, 3, source, count, p_3, n_3, before)
    source, count, before = following(which, 4, source, count, p_4, n_4, before)
    source, count, before = following(which, 5, source, count, p_5, n_5, before)
    source, count, before = following(which, 6, source, count, p_6, n_6, before)
    source, count, before = following(which, 7, source, count, p_7, n_7, before)
    source, count, before = following(which, 8, source, count, p_8, n_8, before)
    source, count, before = following(which, 9, source, count, p_9, n_9, before)
    tl.store(out + before + place, tl.load(source + place, mask=place < count), mask=place < count)
