"""Device code that the forward and the backward kernels of the interpolated context share.

A node is a virtual target (ops/README.md, section 5); row K, after K nodes, is the strongest
source itself. Letters are those of the derivation: scores s and t, values c, gradient g of the
context, channel weights w; node k, target i, source j, feature m, pair channel r.

Sums are in float32. Strides of image and row are given; features are contiguous. Tables (B * R,
rows, MP) are float32 or, with SPLIT, two planes in the dtype of the values: what the first one
rounds off is in the second.
"""

import triton
import triton.language as tl

# numbers that change with the size of a map, and whose divisibility saves nothing
SIZES = ["N", "L", "K", "chunk", "chunks", "P", "first", "last", "row_0", "b_0",
         "s_b", "s_n", "s_r", "t_b", "t_n", "t_r"]  # fmt: skip

SIGMOID = tl.constexpr(0)
SOFTPLUS = tl.constexpr(1)
EXP = tl.constexpr(2)  # those before it are interpolated, within a bound
IDENTITY = tl.constexpr(3)
GUARD = tl.constexpr(1e-3)  # dense.GUARD


@triton.jit
def phi_and_slope(z, ACT: tl.constexpr):
    """phi(z) and phi'(z); one exponential for both, which cannot overflow."""
    if ACT == EXP:
        phi = tl.exp(z)
        slope = phi
    else:
        small = tl.exp(-tl.abs(z))
        one = 1 + small
        near = 1 / one  # the sigmoid of |z|
        sigmoid = tl.where(z < 0, small * near, near)
        if ACT == SIGMOID:
            phi = sigmoid
            slope = small * near * near
        else:  # log1p: what rounding takes from 1 + small is divided out again
            log1p = tl.log(one) * (small / tl.where(one == 1, 1, one - 1))
            phi = tl.where(z < 0, 0.0, z) + tl.where(one == 1, small, log1p)
            slope = sigmoid
    return phi, slope


@triton.jit
def clamp(score, bound, ACT: tl.constexpr):
    """Scores that break the promise count as being at its end; NaN stays."""
    if ACT < EXP:
        score = tl.where(score > bound, bound, tl.where(score < -bound, -bound, score))
    return score


@triton.jit
def inverse_of(total):
    """1 / total, 0 where nothing counts."""
    return tl.where(total == 0, 0.0, 1 / tl.where(total == 0, 1.0, total))


@triton.jit
def dot_values(a, v, acc, SPLIT: tl.constexpr):
    """acc + a @ v for float32 coefficients and values as they came."""
    if SPLIT:  # two products in bfloat16 make 16 bits of the coefficients
        high = a.to(v.dtype)
        acc = tl.dot(high, v, acc)
        acc = tl.dot((a - high.to(tl.float32)).to(v.dtype), v, acc)
    else:
        acc = tl.dot(a, v.to(tl.float32), acc, input_precision="tf32x3")
    return acc


@triton.jit
def planes_of(rows, MP, SPLIT: tl.constexpr):
    """Elements of one plane of a channel's table, and of all its planes."""
    plane = rows * MP
    planes = plane
    if SPLIT:
        planes = 2 * plane
    return plane, planes


@triton.jit
def dot_table(v, place, plane, known, acc, SPLIT: tl.constexpr):
    """acc + v @ table for values as they came; `place` points at the table's elements."""
    high = tl.load(place, mask=known, other=0.0)
    if SPLIT:
        acc = tl.dot(v, high, acc)
        acc = tl.dot(v, tl.load(place + plane, mask=known, other=0.0), acc)
    else:
        acc = tl.dot(v.to(tl.float32), high, acc, input_precision="tf32x3")
    return acc


@triton.jit
def dot_mixed(a, place, plane, known, acc, SPLIT: tl.constexpr):
    """acc + a @ table for float32 shares."""
    high = tl.load(place, mask=known, other=0.0)
    if SPLIT:
        most = a.to(high.dtype)
        acc = tl.dot((a - most.to(tl.float32)).to(high.dtype), high, acc)
        acc = tl.dot(most, tl.load(place + plane, mask=known, other=0.0), acc)
        acc = tl.dot(most, high, acc)
    else:
        acc = tl.dot(a, high, acc, input_precision="tf32x3")
    return acc


@triton.jit
def store_table(place, plane, x, known, SPLIT: tl.constexpr):
    """Store float32 numbers in a table, in one plane or two."""
    if SPLIT:
        high = x.to(place.dtype.element_ty)
        tl.store(place, high, mask=known)
        tl.store(place + plane, x - high.to(tl.float32), mask=known)
    else:
        tl.store(place, x, mask=known)


@triton.jit
def basis_of(score, is_top, nodes, half, K, KP: tl.constexpr, ACT: tl.constexpr):
    """The share of every row in every target (BLOCK, KP); a top target is its own row."""
    k = tl.arange(0, KP)
    if ACT == EXP:
        basis = tl.where(k[None, :] == 0, 1.0, 0.0) + 0 * score[:, None]  # NaN stays
    elif ACT == IDENTITY:
        basis = tl.where(k[None, :] == 0, score[:, None], tl.where(k[None, :] == 1, 1.0, 0.0))
    else:
        high = tl.load(nodes + k)
        low = tl.load(nodes + KP + k)
        weight = tl.load(nodes + 2 * KP + k)
        # nodes are in two parts: near one, the difference keeps its digits
        distance = (score / half)[:, None] - high[None, :] - low[None, :]
        term = weight[None, :] / tl.where(distance == 0, 1e-19, distance)
        basis = term / tl.sum(term, 1)[:, None]
    return tl.where(is_top[:, None], tl.where(k[None, :] == K, 1.0, 0.0), basis)


@triton.jit
def centered(score, peaks, row, ACT: tl.constexpr):
    """For the identity, target scores relative to the mean of the sources', which lose as much."""
    if ACT == IDENTITY:
        score += tl.load(peaks + 2 * row)
    return score


@triton.jit
def target(s, t, mask, top, peaks, nodes, totals, b, r, row, i, there, N, half, bound, K,
           s_b, s_n, s_r, t_b, t_n, t_r, KP: tl.constexpr, OWN: tl.constexpr,
           HAS_MASK: tl.constexpr, ACT: tl.constexpr):  # fmt: skip
    """What a block of targets needs of one channel.

    Its basis (BLOCK, KP); the sum of coefficients of each target, its own coefficient, that one's
    slope, and the log of the factor that was left out, (BLOCK,) each.
    """
    k = tl.arange(0, KP)
    score = tl.load(s + b * s_b + r * s_r + i.to(tl.int64) * s_n, mask=there, other=0.0)
    score = centered(clamp(score, bound, ACT), peaks, row, ACT)
    is_top = i < 0
    if OWN:
        is_top = i == tl.load(top + row)
    basis = basis_of(score, is_top, nodes, half, K, KP, ACT)
    sums = tl.load(totals + 2 * row * KP + k, mask=k <= K, other=0.0)
    if ACT == IDENTITY:
        sums = tl.where(k == 1, tl.load(peaks + 2 * row + 1), sums)  # to all digits
        total = tl.sum(basis * sums[None, :], 1)
    else:
        log_sums = tl.log(tl.where(sums == 0, 1.0, sums))
        first = tl.sum(tl.where(k == 0, log_sums, 0.0), 0)
        # relative to one row: the log of a sum over a million sources would cost digits
        total = tl.exp(tl.sum(basis * (log_sums - first)[None, :], 1)) * tl.exp(first)
    own = tl.zeros_like(score)
    own_slope = tl.zeros_like(score)
    log_scale = tl.zeros_like(score)
    if ACT == EXP:
        peak = tl.load(peaks + 2 * row + tl.where(is_top, 1, 0))
        log_scale = score + peak
    if OWN:
        counts = there & (is_top == 0)
        if HAS_MASK:
            counts = counts & (tl.load(mask + b * N + i, mask=there, other=0) != 0)
        own_score = tl.load(t + b * t_b + r * t_r + i.to(tl.int64) * t_n, mask=counts, other=0.0)
        own_score = clamp(own_score, bound, ACT)
        z = score + own_score
        if ACT == EXP:
            z = own_score - peak
        if ACT == IDENTITY:
            own, own_slope = z - tl.load(peaks + 2 * row), tl.full((z.shape), 1.0, tl.float32)
        else:
            own, own_slope = phi_and_slope(z, ACT)
        own = tl.where(counts, own, 0.0)
        own_slope = tl.where(counts, own_slope, 0.0)
    return basis, total, own, own_slope, log_scale


@triton.jit
def guarded(divisor, own, s, t, mask, top, peaks, totals, b, i, there, L, K, s_b, s_n, t_b, t_n,
            KP: tl.constexpr, OWN: tl.constexpr, HAS_MASK: tl.constexpr,
            BLOCK: tl.constexpr):  # fmt: skip
    """1 / divisor, and minus its slope, for signed coefficients: as dense.reciprocal.

    Where the sum of a row is small beside an upper bound of that of its magnitudes (one row in a
    thousand, if scores are spread around 0), the latter is added up over all L sources.
    """
    k = tl.arange(0, BLOCK)
    center = tl.load(peaks + 2 * b)
    score = tl.load(s + b * s_b + i.to(tl.int64) * s_n, mask=there, other=0.0) + center
    sums = totals + 2 * b * KP
    magnitude = tl.load(sums) * tl.abs(score) + tl.load(sums + K + 1)
    near = tl.where(there & (tl.abs(divisor) < GUARD * magnitude), 1, 0)
    if tl.max(near, 0) > 0:
        for row in range(BLOCK):
            if tl.max(tl.where(k == row, near, 0), 0) > 0:
                one = tl.sum(tl.where(k == row, score, 0.0), 0)
                size = tl.zeros((1024,), tl.float32)
                for start in range(0, L, 1024):
                    j = start + tl.arange(0, 1024)
                    counts = j < L
                    if HAS_MASK:
                        counts = counts & (tl.load(mask + b * L + j, mask=counts, other=0) != 0)
                    other = tl.load(t + b * t_b + j.to(tl.int64) * t_n, mask=counts, other=0.0)
                    size += tl.where(counts, tl.abs(one + (other - center)), 0.0)
                magnitude = tl.where(k == row, tl.sum(size, 0) - tl.abs(own), magnitude)
        if OWN:
            magnitude = tl.where(i == tl.load(top + b), tl.load(sums + K + 2), magnitude)
    floor = GUARD * magnitude
    unsafe = (tl.abs(divisor) < floor) | (divisor == 0)
    floor = tl.where(unsafe & (floor != 0), floor, 1.0)
    inverse = 1 / tl.where(unsafe, 1.0, divisor)
    steep = tl.where(unsafe, -1 / floor / floor, inverse * inverse)
    return tl.where(unsafe, divisor / floor / floor, inverse), steep


@triton.jit
def weight_of(w, r, HAS_W: tl.constexpr):
    """w_r, 1 for a single channel."""
    weight = 1.0
    if HAS_W:
        weight = tl.load(w + r)
    return weight


@triton.jit
def largest_of(s, top, peaks, w, b, i, there, s_b, s_n, s_r, R: tl.constexpr, OWN: tl.constexpr,
               HAS_W: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """For exp, the largest log factor of each target's channels: what they are relative to."""
    largest = tl.full((BLOCK,), float("-inf"), tl.float32)
    for r in range(R):
        row = b * R + r
        score = tl.load(s + b * s_b + r * s_r + i.to(tl.int64) * s_n, mask=there, other=0.0)
        is_top = i < 0
        if OWN:
            is_top = i == tl.load(top + row)
        log_scale = score + tl.load(peaks + 2 * row + tl.where(is_top, 1, 0))
        weight = tl.zeros((BLOCK,), tl.float32) + weight_of(w, r, HAS_W)
        largest = tl.where((weight > 0) & (log_scale > largest), log_scale, largest)
    return tl.where(largest == float("-inf"), 0.0, largest)


@triton.jit
def scale_of(log_scale, largest, ACT: tl.constexpr, R: tl.constexpr):
    """The factor of a channel beside the largest."""
    scale = tl.full(log_scale.shape, 1.0, tl.float32)
    if ACT == EXP:
        if R > 1:  # a channel of weight 0 may exceed the largest, and must not overflow
            scale = tl.exp(tl.where(log_scale - largest > 60, 60.0, log_scale - largest))
    return scale
