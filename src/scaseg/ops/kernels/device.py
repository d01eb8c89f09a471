"""Device code of the interpolated context: sources to nodes, nodes to targets, and back.

A node is a virtual target (ops/README.md, section 5). Its row of the table `sums` holds
sum_j phi(node + t_j) c_j and, in column M, sum_j phi(node + t_j); row K is the context of the
strongest source, itself left out. With SLOPES the same sums of phi' follow. Letters are those of
the derivation: scores s and t, values c, gradient g of the context, channel weights w; node k,
target i, source j, feature m, pair channel r.

Sums are in float32. Strides of image and row are given; features are contiguous.
"""

import triton
import triton.language as tl

# numbers that change with the size of a map, and whose divisibility saves nothing
SIZES = ["N", "K", "chunk", "rows", "s_b", "s_n", "s_r", "t_b", "t_n", "t_r"]

SIGMOID = tl.constexpr(0)
SOFTPLUS = tl.constexpr(1)
EXP = tl.constexpr(2)


@triton.jit
def _phi(z, ACT: tl.constexpr):
    if ACT == SIGMOID:
        phi = 1 / (1 + tl.exp(-z))
    elif ACT == SOFTPLUS:
        small = tl.exp(-tl.abs(z))
        one = 1 + small  # log1p: what rounding takes from 1 + small is divided out again
        log1p = tl.where(one == 1, small, tl.log(one) * (small / tl.where(one == 1, 1, one - 1)))
        phi = tl.where(z < 0, 0.0, z) + log1p
    else:
        phi = tl.exp(z)
    return phi


@triton.jit
def _slope(z, ACT: tl.constexpr):
    if ACT == SIGMOID:
        slope = 1 / (1 + tl.exp(-z)) / (1 + tl.exp(z))
    elif ACT == SOFTPLUS:
        slope = 1 / (1 + tl.exp(-z))
    else:
        slope = tl.exp(z)
    return slope


@triton.jit
def _clamp(score, bound, ACT: tl.constexpr):
    """Scores that break the promise count as being at its end; NaN stays."""
    if ACT != EXP:
        score = tl.where(score > bound, bound, tl.where(score < -bound, -bound, score))
    return score


@triton.jit
def _inverse(total):
    """1 / total, 0 where nothing counts."""
    return tl.where(total == 0, 0.0, 1 / tl.where(total == 0, 1.0, total))


@triton.jit
def _dot(a, v, acc, SPLIT: tl.constexpr):
    """acc + a @ v for float32 coefficients and values as they came."""
    if SPLIT:  # two bfloat16 products make 16 bits of the coefficients
        high = a.to(v.dtype)
        acc = tl.dot(high, v, acc)
        acc = tl.dot((a - high.to(tl.float32)).to(v.dtype), v, acc)
    else:
        acc = tl.dot(a, v.to(tl.float32), acc, input_precision="tf32x3")
    return acc


@triton.jit
def _dot_table(v, a, acc, SPLIT: tl.constexpr):
    """acc + v @ a for values as they came and a float32 table."""
    if SPLIT:
        high = a.to(v.dtype)
        acc = tl.dot(v, high, acc)
        acc = tl.dot(v, (a - high.to(tl.float32)).to(v.dtype), acc)
    else:
        acc = tl.dot(v.to(tl.float32), a, acc, input_precision="tf32x3")
    return acc


@triton.jit
def _rows(nodes, peaks, top, row, s, s_base, s_n, bound, K, KP: tl.constexpr, OWN: tl.constexpr,
          ACT: tl.constexpr):  # fmt: skip
    """The scores of the table's rows for one channel (KP,), which are used, the top source."""
    k = tl.arange(0, KP)
    used = k < K
    top_j = -1
    if ACT == EXP:  # relative to the strongest source, the top row to the second strongest
        node = -tl.load(peaks + 2 * row + tl.where(k == K, 1, 0))
    else:
        node = tl.load(nodes + 3 * KP + k)
    if OWN:
        used = k <= K
        top_j = tl.load(top + row).to(tl.int32)
        if ACT != EXP:
            own = _clamp(tl.load(s + s_base + top_j.to(tl.int64) * s_n), bound, ACT)
            node = tl.where(k == K, own, node)
    return node, used, top_j


@triton.jit
def _coefficients(z, there, used, j, top_j, K, KP: tl.constexpr, OWN: tl.constexpr,
                  ACT: tl.constexpr, SLOPE: tl.constexpr):  # fmt: skip
    """phi(z) or phi'(z) (KP, BLOCK), 0 for what does not count: absent, unused, the top itself."""
    keep = used[:, None] & there[None, :]
    if OWN:
        keep = keep & ((tl.arange(0, KP)[:, None] != K) | (j[None, :] != top_j))
    if SLOPE:
        a = _slope(z, ACT)
    else:
        a = _phi(z, ACT)
    return tl.where(keep, a, 0.0)


@triton.jit
def _basis(score, is_top, nodes, half, K, KP: tl.constexpr, ACT: tl.constexpr):
    """The share of every row in every target (BLOCK, KP); a top target is its own row."""
    k = tl.arange(0, KP)
    if ACT == EXP:
        basis = tl.where(k[None, :] == 0, 1.0, 0.0) + 0 * score[:, None]  # NaN stays
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
def _target(s, t, mask, top, peaks, nodes, totals, b, r, row, i, there, N, half, bound, K,
            s_b, s_n, s_r, t_b, t_n, t_r, MP, KP: tl.constexpr, OWN: tl.constexpr,
            HAS_MASK: tl.constexpr, ACT: tl.constexpr):  # fmt: skip
    """What a block of targets needs of one channel.

    Its basis (BLOCK, KP); 1 / sum of each row (KP,); the sum of coefficients of each target, its
    own coefficient, that one's slope, and the log of the factor that was left out, (BLOCK,) each.
    """
    k = tl.arange(0, KP)
    score = tl.load(s + b * s_b + r * s_r + i.to(tl.int64) * s_n, mask=there, other=0.0)
    score = _clamp(score, bound, ACT)
    is_top = i < 0
    if OWN:
        is_top = i == tl.load(top + row).to(tl.int32)
    basis = _basis(score, is_top, nodes, half, K, KP, ACT)
    sums = tl.load(totals + k * MP, mask=k <= K, other=0.0)
    inverse = _inverse(sums)
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
        own_score = _clamp(own_score, bound, ACT)
        z = score + own_score
        if ACT == EXP:
            z = own_score - peak
        own = tl.where(counts, _phi(z, ACT), 0.0)
        own_slope = tl.where(counts, _slope(z, ACT), 0.0)
    return basis, inverse, total, own, own_slope, log_scale


@triton.jit
def _weight(w, r, HAS_W: tl.constexpr):
    weight = 1.0
    if HAS_W:
        weight = tl.load(w + r)
    return weight


@triton.jit
def _largest(s, top, peaks, w, b, i, there, s_b, s_n, s_r, R: tl.constexpr, OWN: tl.constexpr,
             HAS_W: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """For exp, the largest log factor of each target's channels: what they are relative to."""
    largest = tl.full((BLOCK,), float("-inf"), tl.float32)
    for r in range(R):
        row = b * R + r
        score = tl.load(s + b * s_b + r * s_r + i.to(tl.int64) * s_n, mask=there, other=0.0)
        is_top = i < 0
        if OWN:
            is_top = i == tl.load(top + row).to(tl.int32)
        log_scale = score + tl.load(peaks + 2 * row + tl.where(is_top, 1, 0))
        weight = tl.zeros((BLOCK,), tl.float32) + _weight(w, r, HAS_W)
        largest = tl.where((weight > 0) & (log_scale > largest), log_scale, largest)
    return tl.where(largest == float("-inf"), 0.0, largest)


@triton.jit
def _scale(log_scale, largest, ACT: tl.constexpr, R: tl.constexpr):
    scale = tl.full(log_scale.shape, 1.0, tl.float32)
    if ACT == EXP:
        if R > 1:  # a channel of weight 0 may exceed the largest, and must not overflow
            scale = tl.exp(tl.where(log_scale - largest > 60, 60.0, log_scale - largest))
    return scale


@triton.jit(do_not_specialize=SIZES)
def sources_to_nodes(
        sums, c, s, t, mask, top, peaks, nodes, M, MP, c_b, c_n, N, K, chunk, s_b, s_n, s_r, t_b,
        t_n, t_r, bound, R: tl.constexpr, KP: tl.constexpr, OWN: tl.constexpr,
        HAS_MASK: tl.constexpr, ACT: tl.constexpr, SLOPES: tl.constexpr, SPLIT: tl.constexpr,
        BLOCK: tl.constexpr,
        BLOCK_M: tl.constexpr):  # fmt: skip
    """Add up a chunk of the sources: one part of the table (chunk, B * R, rows, MP)."""
    part, row = tl.program_id(0), tl.program_id(2)
    b, r = (row // R).to(tl.int64), row % R
    k = tl.arange(0, KP)
    m = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    node, used, top_j = _rows(
        nodes, peaks, top, row, s, b * s_b + r * s_r, s_n, bound, K, KP, OWN, ACT
    )
    found = tl.zeros((KP, BLOCK_M), tl.float32)
    total = tl.zeros((KP,), tl.float32)
    if SLOPES:
        found_slope = tl.zeros((KP, BLOCK_M), tl.float32)
        total_slope = tl.zeros((KP,), tl.float32)
    for start in range(part * chunk, tl.minimum(part * chunk + chunk, N), BLOCK):
        j = start + tl.arange(0, BLOCK)
        there = j < tl.minimum(part * chunk + chunk, N)
        if HAS_MASK:
            there = there & (tl.load(mask + b * N + j, mask=there, other=0) != 0)
        place = j.to(tl.int64)
        score = tl.load(t + b * t_b + r * t_r + place * t_n, mask=there, other=0.0)
        z = node[:, None] + _clamp(score, bound, ACT)[None, :]
        inside = there[:, None] & (m < M)[None, :]
        v = tl.load(c + b * c_b + place[:, None] * c_n + m[None, :], mask=inside, other=0.0)
        a = _coefficients(z, there, used, j, top_j, K, KP, OWN, ACT, False)
        found = _dot(a, v, found, SPLIT)
        total += tl.sum(a, 1)
        if SLOPES:
            a = _coefficients(z, there, used, j, top_j, K, KP, OWN, ACT, True)
            found_slope = _dot(a, v, found_slope, SPLIT)
            total_slope += tl.sum(a, 1)
    rows = KP
    if SLOPES:
        rows = 2 * KP
    base = sums + (part.to(tl.int64) * tl.num_programs(2) + row) * rows * MP
    place = k[:, None] * MP + m[None, :]
    tl.store(base + place, found, mask=(m < M)[None, :])
    if tl.program_id(1) == 0:
        tl.store(base + k * MP + M, total)
    if SLOPES:
        tl.store(base + KP * MP + place, found_slope, mask=(m < M)[None, :])
        if tl.program_id(1) == 0:
            tl.store(base + (KP + k) * MP + M, total_slope)


@triton.jit(do_not_specialize=SIZES)
def nodes_to_targets(
        out, identity, c, s, t, mask, top, peaks, w, nodes, sums, M, MP, o_b, o_n, d_b, d_n, c_b,
        c_n, N, K, rows, s_b, s_n, s_r, t_b, t_n, t_r, half, bound, R: tl.constexpr,
        KP: tl.constexpr, OWN: tl.constexpr, HAS_MASK: tl.constexpr, ACT: tl.constexpr,
        HAS_W: tl.constexpr, ADD: tl.constexpr, BLOCK: tl.constexpr,
        BLOCK_M: tl.constexpr):  # fmt: skip
    """Mix the context of a block of targets, all features; ADD it to the identity features."""
    b = tl.program_id(1).to(tl.int64)
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = i < N
    place = i.to(tl.int64)[:, None]
    k = tl.arange(0, KP)
    largest = tl.zeros((BLOCK,), tl.float32)
    if ACT == EXP:
        if R > 1:
            largest = _largest(s, top, peaks, w, b, i, there, s_b, s_n, s_r, R, OWN, HAS_W, BLOCK)
    divisor = tl.zeros((BLOCK,), tl.float32)
    left_out = tl.zeros((BLOCK,), tl.float32)
    mix = tl.zeros((BLOCK, KP), tl.float32)
    for r in range(R):
        row = b * R + r
        basis, inverse, total, own, own_slope, log_scale = _target(
            s, t, mask, top, peaks, nodes, sums + row * rows * MP + M, b, r, row, i, there, N, half,
            bound, K, s_b, s_n, s_r, t_b, t_n, t_r, MP, KP, OWN, HAS_MASK, ACT
        )  # fmt: skip
        factor = _weight(w, r, HAS_W) * _scale(log_scale, largest, ACT, R)
        divisor += factor * (total - own)
        left_out += factor * own
        mix = basis * inverse[None, :] * (factor * total)[:, None]
    quotient = _inverse(divisor)
    left_out = left_out * quotient
    for start in range(0, M, BLOCK_M):
        m = start + tl.arange(0, BLOCK_M)
        inside = there[:, None] & (m < M)[None, :]
        found = tl.zeros((BLOCK, BLOCK_M), tl.float32)
        for r in range(R):
            row = b * R + r
            if R > 1:
                basis, inverse, total, own, own_slope, log_scale = _target(
                    s, t, mask, top, peaks, nodes, sums + row * rows * MP + M, b, r, row, i, there,
                    N, half, bound, K, s_b, s_n, s_r, t_b, t_n, t_r, MP, KP, OWN, HAS_MASK, ACT
                )  # fmt: skip
                factor = _weight(w, r, HAS_W) * _scale(log_scale, largest, ACT, R)
                mix = basis * inverse[None, :] * (factor * total)[:, None]
            table = tl.load(
                sums + row * rows * MP + k[:, None] * MP + m[None, :],
                mask=(k <= K)[:, None] & (m < M)[None, :],
                other=0.0,
            )
            found = tl.dot(mix, table, found, input_precision="tf32x3")
        found = found * quotient[:, None]
        if OWN:
            there_own = inside & (left_out != 0)[:, None]  # what is masked is not even read
            v = tl.load(c + b * c_b + place * c_n + m[None, :], mask=there_own, other=0.0)
            found -= left_out[:, None] * v.to(tl.float32)
        if ADD:
            d = tl.load(identity + b * d_b + place * d_n + m[None, :], mask=inside, other=0.0)
            found += d.to(tl.float32)
        tl.store(out + b * o_b + place * o_n + m[None, :], found, mask=inside)


@triton.jit(do_not_specialize=SIZES)
def target_gradients(
        grad_s, grad_t, grad_w, share, pull, left_out, g, c, s, t, mask, top, peaks, w, nodes, sums,
        M, MP, g_b, g_n, c_b, c_n, N, K, s_b, s_n, s_r, t_b, t_n, t_r, half, bound, R: tl.constexpr,
        KP: tl.constexpr, OWN: tl.constexpr, HAS_MASK: tl.constexpr, ACT: tl.constexpr,
        RP: tl.constexpr, HAS_W: tl.constexpr, SPLIT: tl.constexpr, BLOCK: tl.constexpr,
        BLOCK_M: tl.constexpr):  # fmt: skip
    """The gradients of a block of targets' scores and weights, and what the next two kernels need.

    share (B, N, R): how much of each channel's context a target takes; pull: the gradient of the
    log of its sum; left_out (B, N): the share of its own value; grad_t: what its own entry gives.
    """
    b = tl.program_id(1).to(tl.int64)
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = i < N
    place = i.to(tl.int64)[:, None]
    k = tl.arange(0, KP)
    rr = tl.arange(0, RP)[None, :]
    rows = KP
    if ACT != EXP:
        rows = 2 * KP
    largest = tl.zeros((BLOCK,), tl.float32)
    if ACT == EXP:
        if R > 1:
            largest = _largest(s, top, peaks, w, b, i, there, s_b, s_n, s_r, R, OWN, HAS_W, BLOCK)
    present = there
    if HAS_MASK:
        if OWN:
            present = there & (tl.load(mask + b * N + i, mask=there, other=0) != 0)
    g_c = tl.zeros((BLOCK,), tl.float32)  # g_i . c_i
    # for every channel: scale, sum, own coefficient and their slopes, g . mean, g . slope of mean
    scales = tl.zeros((BLOCK, RP), tl.float32)
    sums_of = tl.zeros((BLOCK, RP), tl.float32)
    growths = tl.zeros((BLOCK, RP), tl.float32)
    owns = tl.zeros((BLOCK, RP), tl.float32)
    own_slopes = tl.zeros((BLOCK, RP), tl.float32)
    g_means = tl.zeros((BLOCK, RP), tl.float32)
    g_slopes = tl.zeros((BLOCK, RP), tl.float32)
    for r in range(R):
        row = b * R + r
        base = sums + row * rows * MP
        basis, inverse, total, own, own_slope, log_scale = _target(
            s, t, mask, top, peaks, nodes, base + M, b, r, row, i, there, N, half,
            bound, K, s_b, s_n, s_r, t_b, t_n, t_r, MP, KP, OWN, HAS_MASK, ACT
        )  # fmt: skip
        by_row = tl.zeros((BLOCK, KP), tl.float32)
        by_slope = tl.zeros((BLOCK, KP), tl.float32)
        for start in range(0, M, BLOCK_M):
            m = start + tl.arange(0, BLOCK_M)
            inside = there[:, None] & (m < M)[None, :]
            grad = tl.load(g + b * g_b + place * g_n + m[None, :], mask=inside, other=0.0)
            where = base + k[None, :] * MP + m[:, None]
            known = (k <= K)[None, :] & (m < M)[:, None]
            by_row = _dot_table(grad, tl.load(where, mask=known, other=0.0), by_row, SPLIT)
            if ACT != EXP:
                table = tl.load(where + KP * MP, mask=known, other=0.0)
                by_slope = _dot_table(grad, table, by_slope, SPLIT)
            if OWN:
                if r == 0:
                    known_own = present[:, None] & (m < M)[None, :]
                    v = tl.load(c + b * c_b + place * c_n + m[None, :], mask=known_own, other=0.0)
                    g_c += tl.sum(grad.to(tl.float32) * v.to(tl.float32), 1)
        mean = tl.sum(basis * by_row * inverse[None, :], 1)
        if ACT == EXP:
            growth = tl.full((BLOCK,), 1.0, tl.float32)
            slope = tl.zeros((BLOCK,), tl.float32)
        else:
            sum_slope = tl.load(base + (KP + k) * MP + M, mask=k <= K, other=0.0) * inverse
            growth = tl.sum(basis * sum_slope[None, :], 1)
            slope = by_slope - sum_slope[None, :] * by_row
            slope = tl.sum(basis * slope * inverse[None, :], 1)
        here = rr == r
        scales = tl.where(here, _scale(log_scale, largest, ACT, R)[:, None], scales)
        sums_of = tl.where(here, total[:, None], sums_of)
        growths = tl.where(here, growth[:, None], growths)
        owns = tl.where(here, own[:, None], owns)
        own_slopes = tl.where(here, own_slope[:, None], own_slopes)
        g_means = tl.where(here, mean[:, None], g_means)
        g_slopes = tl.where(here, slope[:, None], g_slopes)

    factors = scales
    if HAS_W:
        factors = scales * tl.load(w + rr, mask=rr < R, other=0.0)
    quotient = _inverse(tl.sum(factors * (sums_of - owns), 1))
    own_grad = g_c[:, None]
    g_context = tl.sum(factors * (sums_of * g_means - owns * own_grad), 1) * quotient  # g . context
    around, own_around = g_means - g_context[:, None], own_grad - g_context[:, None]
    weight = factors * quotient[:, None]
    d_total = weight * sums_of * around
    d_s = d_total * growths + weight * (sums_of * g_slopes - own_slopes * own_around)
    if ACT == EXP:
        if R == 1:  # the score cancels
            d_s = tl.zeros_like(d_s)
    else:
        wide = place * s_n + rr * s_r + b * s_b
        score = tl.load(s + wide, mask=there[:, None] & (rr < R), other=0.0)
        d_s = tl.where((score > bound) | (score < -bound), 0.0, d_s)
    wide = (b * N + place) * R + rr
    inside = there[:, None] & (rr < R)
    tl.store(grad_s + wide, d_s, mask=inside)
    tl.store(share + wide, weight * sums_of, mask=inside)
    tl.store(pull + wide, d_total, mask=inside)
    if OWN:
        tl.store(left_out + b * N + i, tl.sum(weight * owns, 1), mask=there)
        tl.store(grad_t + wide, -weight * own_slopes * own_around, mask=inside)
    if HAS_W:
        of_weight = scales * quotient[:, None] * (sums_of * around - owns * own_around)
        tl.store(grad_w + wide, of_weight, mask=inside)


@triton.jit(do_not_specialize=SIZES)
def targets_to_nodes(
        table, g, s, share, pull, top, nodes, M, MP, g_b, g_n, N, K, chunk, s_b, s_n, s_r, half,
        bound, R: tl.constexpr, KP: tl.constexpr, OWN: tl.constexpr, ACT: tl.constexpr,
        SPLIT: tl.constexpr, BLOCK: tl.constexpr,
        BLOCK_M: tl.constexpr):  # fmt: skip
    """Add up what a chunk of the targets gives to each row of the table: (chunk, B * R, KP, MP)."""
    part, row = tl.program_id(0), tl.program_id(2)
    b, r = (row // R).to(tl.int64), row % R
    k = tl.arange(0, KP)
    m = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    found = tl.zeros((KP, BLOCK_M), tl.float32)
    pulled = tl.zeros((KP,), tl.float32)
    for start in range(part * chunk, tl.minimum(part * chunk + chunk, N), BLOCK):
        i = start + tl.arange(0, BLOCK)
        there = i < tl.minimum(part * chunk + chunk, N)
        place = i.to(tl.int64)
        score = tl.load(s + b * s_b + r * s_r + place * s_n, mask=there, other=0.0)
        is_top = i < 0
        if OWN:
            is_top = i == tl.load(top + row).to(tl.int32)
        basis = tl.trans(_basis(_clamp(score, bound, ACT), is_top, nodes, half, K, KP, ACT))
        wide = (b * N + place) * R + r
        inside = there[:, None] & (m < M)[None, :]
        grad = tl.load(g + b * g_b + place[:, None] * g_n + m[None, :], mask=inside, other=0.0)
        taken = tl.load(share + wide, mask=there, other=0.0)
        found = _dot(basis * taken[None, :], grad, found, SPLIT)
        pulled += tl.sum(basis * tl.load(pull + wide, mask=there, other=0.0)[None, :], 1)
    base = table + (part.to(tl.int64) * tl.num_programs(2) + row) * KP * MP
    tl.store(base + k[:, None] * MP + m[None, :], found, mask=(m < M)[None, :])
    if tl.program_id(1) == 0:
        tl.store(base + k * MP + M, pulled)


@triton.jit(do_not_specialize=SIZES)
def source_gradients(
        grad_c, grad_t, own_grad_t, left_out, g, c, s, t, mask, top, peaks, nodes, sums, table, M,
        MP, d_b, d_n, g_b, g_n, c_b, c_n, N, K, s_b, s_n, s_r, t_b, t_n, t_r, bound,
        R: tl.constexpr, KP: tl.constexpr, OWN: tl.constexpr, HAS_MASK: tl.constexpr,
        ACT: tl.constexpr, SPLIT: tl.constexpr, BLOCK: tl.constexpr,
        BLOCK_M: tl.constexpr):  # fmt: skip
    """The gradients of a block of sources' values and scores."""
    b = tl.program_id(1).to(tl.int64)
    j = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside_n = j < N
    there = inside_n
    if HAS_MASK:
        there = there & (tl.load(mask + b * N + j, mask=there, other=0) != 0)
    place = j.to(tl.int64)
    k = tl.arange(0, KP)
    rows = KP
    if ACT != EXP:
        rows = 2 * KP
    a = tl.zeros((KP, BLOCK), tl.float32)
    for r in range(R):
        row = b * R + r
        base = sums + row * rows * MP
        pulls = table + row * KP * MP
        node, used, top_j = _rows(
            nodes, peaks, top, row, s, b * s_b + r * s_r, s_n, bound, K, KP, OWN, ACT
        )
        inverse = _inverse(tl.load(base + k * MP + M, mask=used, other=0.0))
        raw = tl.load(t + b * t_b + r * t_r + place * t_n, mask=there, other=0.0)
        z = node[:, None] + _clamp(raw, bound, ACT)[None, :]
        by_row = tl.zeros((BLOCK, KP), tl.float32)  # c_j . pulls
        of_means = tl.zeros((KP,), tl.float32)  # means . pulls
        for start in range(0, M, BLOCK_M):
            m = start + tl.arange(0, BLOCK_M)
            inside = there[:, None] & (m < M)[None, :]
            v = tl.load(c + b * c_b + place[:, None] * c_n + m[None, :], mask=inside, other=0.0)
            known = used[None, :] & (m < M)[:, None]
            where = k[None, :] * MP + m[:, None]
            pulled = tl.load(pulls + where, mask=known, other=0.0)  # (BLOCK_M, KP)
            of_means += tl.sum(pulled * tl.load(base + where, mask=known, other=0.0), 0)
            by_row = _dot_table(v, pulled, by_row, SPLIT)
        of_log = tl.load(pulls + k * MP + M, mask=used, other=0.0)
        change = by_row + (of_log - of_means * inverse)[None, :]
        slope = _coefficients(z, there, used, j, top_j, K, KP, OWN, ACT, True) * inverse[:, None]
        grad = tl.sum(tl.trans(slope) * change, 1)
        wide = (b * N + place) * R + r
        if OWN:
            grad += tl.load(own_grad_t + wide, mask=there, other=0.0)
        if ACT != EXP:
            grad = tl.where((raw > bound) | (raw < -bound), 0.0, grad)
        tl.store(grad_t + wide, tl.where(there, grad, 0.0), mask=inside_n)
        a = _coefficients(z, there, used, j, top_j, K, KP, OWN, ACT, False) * inverse[:, None]
    for start in range(0, M, BLOCK_M):
        m = start + tl.arange(0, BLOCK_M)
        inside = inside_n[:, None] & (m < M)[None, :]
        found = tl.zeros((BLOCK, BLOCK_M), tl.float32)
        for r in range(R):
            row = b * R + r
            if R > 1:
                node, used, top_j = _rows(
                    nodes, peaks, top, row, s, b * s_b + r * s_r, s_n, bound, K, KP, OWN, ACT
                )
                totals = tl.load(sums + row * rows * MP + k * MP + M, mask=used, other=0.0)
                raw = tl.load(t + b * t_b + r * t_r + place * t_n, mask=there, other=0.0)
                z = node[:, None] + _clamp(raw, bound, ACT)[None, :]
                a = _coefficients(z, there, used, j, top_j, K, KP, OWN, ACT, False)
                a = a * _inverse(totals)[:, None]
            pulled = tl.load(
                table + row * KP * MP + k[:, None] * MP + m[None, :],
                mask=(k <= K)[:, None] & (m < M)[None, :],
                other=0.0,
            )
            found = tl.dot(tl.trans(a), pulled, found, input_precision="tf32x3")
        if OWN:
            own = tl.load(left_out + b * N + j, mask=there, other=0.0)
            grad = tl.load(
                g + b * g_b + place[:, None] * g_n + m[None, :],
                mask=inside & there[:, None],
                other=0.0,
            )
            found -= own[:, None] * grad.to(tl.float32)
        tl.store(grad_c + b * d_b + place[:, None] * d_n + m[None, :], found, mask=inside)
