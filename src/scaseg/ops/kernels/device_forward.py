"""Device code of the interpolated context: the strongest source, sources to nodes to targets."""

import triton
import triton.language as tl

from scaseg.ops.kernels.device_shared import (
    EXP,
    IDENTITY,
    SIZES,
    clamp,
    dot_mixed,
    dot_values,
    guarded,
    inverse_of,
    largest_of,
    phi_and_slope,
    planes_of,
    scale_of,
    store_table,
    target,
    weight_of,
)


@triton.jit
def two_largest(score, counts, i, N):
    """The two largest scores along axis 0 that count, and the place of the first.

    -inf where there is none; a place that exists in any case.
    """
    score = tl.where(counts, score, float("-inf"))
    best = tl.max(score, 0)
    found = tl.where((score == best) & (i < N), i, N - 1)
    place = tl.min(found, 0)
    second = tl.max(tl.where(i == place, float("-inf"), score), 0)
    return best, second, place


@triton.jit
def store_strongest(peaks, places, part, score, counts, i, N, wanted, ACT: tl.constexpr):
    """What is to be known of a block of sources' scores, along axis 0.

    peaks (part, 5), places (part, 2): the two largest and the place of the first; for the identity
    the largest and minus the least, their places, the number, and the sum in two parts.
    """
    best, second, place = two_largest(score, counts, i, N)
    if ACT == IDENTITY:
        second, _, least_place = two_largest(-score, counts, i, N)
        tl.store(peaks + 5 * part + 2, tl.sum(tl.where(counts, 1.0, 0.0), 0), mask=wanted)
        total = tl.sum(tl.where(counts, score, 0.0).to(tl.float64), 0)
        high = total.to(tl.float32)
        tl.store(peaks + 5 * part + 3, high, mask=wanted)
        tl.store(peaks + 5 * part + 4, (total - high).to(tl.float32), mask=wanted)
        tl.store(places + 2 * part + 1, least_place, mask=wanted)
    tl.store(peaks + 5 * part, best, mask=wanted)
    tl.store(peaks + 5 * part + 1, second, mask=wanted)
    tl.store(places + 2 * part, place, mask=wanted)


@triton.jit(do_not_specialize=SIZES)
def strongest(
        peaks, places, t, mask, N, P, t_b, t_n, t_r, R: tl.constexpr, HAS_MASK: tl.constexpr,
        ACT: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """`store_strongest` of a block of sources: peaks (B * R, P, 5), places (B * R, P, 2)."""
    row = tl.program_id(1)
    b, r = (row // R).to(tl.int64), row % R
    j = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    counts = j < N
    if HAS_MASK:
        counts = counts & (tl.load(mask + b * N + j, mask=counts, other=0) != 0)
    score = tl.load(t + b * t_b + r * t_r + j.to(tl.int64) * t_n, mask=counts, other=0.0)
    part = row.to(tl.int64) * P + tl.program_id(0)
    store_strongest(peaks, places, part, score, counts, j, N, part >= 0, ACT)


@triton.jit
def strongest_of_all(peaks, places, row, P, SCAN: tl.constexpr):
    """What `strongest` found for each of P blocks, joined; scores are 0 where there is none."""
    p = tl.arange(0, SCAN)
    best = tl.full((SCAN,), float("-inf"), tl.float32)
    second = tl.full((SCAN,), float("-inf"), tl.float32)
    place = tl.zeros((SCAN,), tl.int32)
    for start in range(0, P, SCAN):
        inside = start + p < P
        part = row.to(tl.int64) * P + start + p
        one = tl.load(peaks + 5 * part, mask=inside, other=float("-inf"))
        two = tl.load(peaks + 5 * part + 1, mask=inside, other=float("-inf"))
        where = tl.load(places + 2 * part, mask=inside, other=0)
        larger = one > best
        second = tl.where(larger, tl.maximum(best, two), tl.maximum(second, one))
        place = tl.where(larger, where, place)
        best = tl.where(larger, one, best)
    peak = tl.max(best, 0)
    winner = tl.min(tl.where(best == peak, p, SCAN - 1), 0)
    top = tl.sum(tl.where(p == winner, place, 0), 0)
    after = tl.max(tl.where(p == winner, second, best), 0)
    peak = tl.where(peak == float("-inf"), 0.0, peak)
    return peak, tl.where(after == float("-inf"), 0.0, after), top


@triton.jit
def center_of_all(peaks, places, row, P, SCAN: tl.constexpr):
    """The mean of the scores, from P blocks, and the place of the one farthest from it.

    Also what the scores relative to it add up to: what is left by rounding it.
    """
    p = tl.arange(0, SCAN)
    totals = tl.zeros((SCAN,), tl.float64)
    counts = tl.zeros((SCAN,), tl.float32)
    for start in range(0, P, SCAN):
        part = peaks + 5 * (row.to(tl.int64) * P + start + p)
        counts += tl.load(part + 2, mask=start + p < P, other=0.0)
        totals += tl.load(part + 3, mask=start + p < P, other=0.0)
        totals += tl.load(part + 4, mask=start + p < P, other=0.0)
    count, total = tl.sum(counts, 0).to(tl.float64), tl.sum(totals, 0)
    center = (total / tl.maximum(count, 1.0)).to(tl.float32)
    left = (total - count * center).to(tl.float32)
    far = tl.full((SCAN,), float("-inf"), tl.float32)
    place = tl.zeros((SCAN,), tl.int32)
    for start in range(0, 2 * P, SCAN):  # the largest, and minus the least, of each block in turn
        inside = start + p < 2 * P
        part, sign = row.to(tl.int64) * P + (start + p) // 2, 1 - 2 * ((start + p) % 2)
        found = tl.load(peaks + 5 * part + (start + p) % 2, mask=inside, other=float("-inf"))
        found -= sign * center
        where = tl.load(places + 2 * part + (start + p) % 2, mask=inside, other=0)
        place = tl.where(found > far, where, place)
        far = tl.where(found > far, found, far)
    winner = tl.min(tl.where(far == tl.max(far, 0), p, SCAN - 1), 0)
    return center, left, tl.sum(tl.where(p == winner, place, 0), 0)


@triton.jit(do_not_specialize=SIZES)
def sources_to_nodes(
        sums, top, peaks, c, s, t, mask, part_peaks, part_places, nodes, M, MP, c_b, c_n, N, K,
        chunk, P, s_b, s_n, s_r, t_b, t_n, t_r, bound, R: tl.constexpr, KP: tl.constexpr,
        OWN: tl.constexpr, HAS_MASK: tl.constexpr, ACT: tl.constexpr, SLOPES: tl.constexpr,
        SPLIT: tl.constexpr, SCAN: tl.constexpr, BLOCK: tl.constexpr,
        BLOCK_M: tl.constexpr):  # fmt: skip
    """Add up a chunk of the sources: one part of the sums (chunk, B * R, rows, MP).

    Row k holds sum_j phi(node_k + t_j) c_j and, in column M, sum_j phi(node_k + t_j); with SLOPES
    the same sums of phi' follow. Also stores top (B * R,) and peaks (B * R, 2). For the identity,
    row 0 has coefficients 1, row 1 scores relative to their mean, row K + 1 and K + 2 the
    magnitudes of rows 1 and K.
    """
    part, row = tl.program_id(0), tl.program_id(2)
    b, r = (row // R).to(tl.int64), row % R
    k = tl.arange(0, KP)
    m = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    used = k < K
    top_j = -1
    if (ACT >= EXP) | OWN:
        if ACT == IDENTITY:
            peak, second, top_j = center_of_all(part_peaks, part_places, row, P, SCAN)
        else:
            peak, second, top_j = strongest_of_all(part_peaks, part_places, row, P, SCAN)
        if (part == 0) & (tl.program_id(1) == 0):
            tl.store(top + row, top_j)
            tl.store(peaks + 2 * row, peak)
            tl.store(peaks + 2 * row + 1, second)
    if ACT == EXP:  # relative to the strongest source, the top row to the second strongest
        node = tl.where(k == K, -second, -peak)
    elif ACT == IDENTITY:
        node = -peak + tl.zeros((KP,), tl.float32)
        used = (k != K) & (k <= K + 1)
    else:
        node = tl.load(nodes + 3 * KP + k)
    if OWN:
        used = k <= K
        if ACT == IDENTITY:
            used = k <= K + 2
        if ACT != EXP:
            own = tl.load(s + b * s_b + r * s_r + top_j.to(tl.int64) * s_n)
            node = tl.where((k == K) | (k == K + 2), clamp(own, bound, ACT), node)
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
        inside = there[:, None] & (m < M)[None, :]
        v = tl.load(c + b * c_b + place[:, None] * c_n + m[None, :], mask=inside, other=0.0)
        z = node[:, None] + clamp(score, bound, ACT)[None, :]
        if ACT == IDENTITY:
            a = tl.where(k[:, None] == 0, 1.0, tl.where(k[:, None] > K, tl.abs(z), z))
        else:
            a, slope = phi_and_slope(z, ACT)
        keep = used[:, None] & there[None, :]
        if OWN:
            keep = keep & (((k != K) & (k != K + 2))[:, None] | (j[None, :] != top_j))
        a = tl.where(keep, a, 0.0)
        found = dot_values(a, v, found, SPLIT)
        total += tl.sum(a, 1)
        if SLOPES:
            slope = tl.where(keep, slope, 0.0)
            found_slope = dot_values(slope, v, found_slope, SPLIT)
            total_slope += tl.sum(slope, 1)
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


@triton.jit
def add_up(place, lines, known, chunks, PARTS: tl.constexpr, WIDTH: tl.constexpr):
    """Add up WIDTH numbers over all chunks, which are `lines` apart, in a fixed order."""
    p = tl.arange(0, PARTS)
    found = tl.zeros((PARTS, WIDTH), tl.float32)
    for start in range(0, chunks, PARTS):
        where = place[None, :] + (start + p).to(tl.int64)[:, None] * lines
        inside = (start + p < chunks)[:, None] & known[None, :]
        found += tl.load(where, mask=inside, other=0.0)
    return tl.sum(found, 0)


@triton.jit(do_not_specialize=SIZES)
def finish_sums(
        means, totals, sums, M, MP, chunks, KP: tl.constexpr, ACT: tl.constexpr,
        SLOPES: tl.constexpr, SPLIT: tl.constexpr, PARTS: tl.constexpr,
        BLOCK_M: tl.constexpr):  # fmt: skip
    """Add up the parts of one row of sums: the table of means, of their slopes after it.

    For the identity, of the sums themselves: their coefficients may cancel. totals (B * R, 2, KP):
    the sum of coefficients, and the slope of its logarithm.
    """
    k, row = tl.program_id(0), tl.program_id(1)
    m = tl.program_id(2) * BLOCK_M + tl.arange(0, BLOCK_M)
    rows = 2 * KP if SLOPES else KP
    lines = tl.num_programs(1).to(tl.int64) * rows * MP
    base = sums + (row.to(tl.int64) * rows + k) * MP
    one = tl.arange(0, 16)
    total = tl.sum(add_up(base + M + one, lines, one < 1, chunks, PARTS, 16), 0)
    inverse = inverse_of(total)
    if ACT == IDENTITY:
        inverse = 1.0
    growth = 0.0
    if SLOPES:
        slopes = base + KP * MP
        growth = tl.sum(add_up(slopes + M + one, lines, one < 1, chunks, PARTS, 16), 0) * inverse
    if tl.program_id(2) == 0:
        tl.store(totals + 2 * row * KP + k, total)
        tl.store(totals + (2 * row + 1) * KP + k, growth)
    plane, planes = planes_of(rows, MP, SPLIT)
    mean = add_up(base + m, lines, m < M, chunks, PARTS, BLOCK_M) * inverse
    out = means + row.to(tl.int64) * planes + k * MP + m
    store_table(out, plane, mean, m < M, SPLIT)
    if SLOPES:
        slope = add_up(slopes + m, lines, m < M, chunks, PARTS, BLOCK_M) * inverse - growth * mean
        store_table(out + KP * MP, plane, slope, m < M, SPLIT)


@triton.jit(do_not_specialize=SIZES)
def nodes_to_targets(
        out, identity, quotients, c, s, t, mask, top, peaks, w, nodes, totals, means, M, MP, o_b,
        o_n, d_b, d_n, c_b, c_n, N, L, K, s_b, s_n, s_r, t_b, t_n, t_r, half, bound,
        R: tl.constexpr, KP: tl.constexpr, OWN: tl.constexpr, HAS_MASK: tl.constexpr,
        ACT: tl.constexpr, SLOPES: tl.constexpr, SPLIT: tl.constexpr, HAS_W: tl.constexpr,
        ADD: tl.constexpr, BLOCK: tl.constexpr, BLOCK_M: tl.constexpr):  # fmt: skip
    """Mix the context of a block of targets, all features; ADD it to the identity features.

    quotients (B, N, 2): for the identity, 1 / sum of coefficients and minus its slope.
    """
    b = tl.program_id(1).to(tl.int64)
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = i < N
    place = i.to(tl.int64)[:, None]
    k = tl.arange(0, KP)
    plane, planes = planes_of(2 * KP if SLOPES else KP, MP, SPLIT)
    largest = tl.zeros((BLOCK,), tl.float32)
    if ACT == EXP:
        if R > 1:
            largest = largest_of(s, top, peaks, w, b, i, there, s_b, s_n, s_r, R, OWN, HAS_W, BLOCK)
    divisor = tl.zeros((BLOCK,), tl.float32)
    left_out = tl.zeros((BLOCK,), tl.float32)
    mix = tl.zeros((BLOCK, KP), tl.float32)
    for r in range(R):
        row = b * R + r
        basis, total, own, own_slope, log_scale = target(
            s, t, mask, top, peaks, nodes, totals, b, r, row, i, there, N, half, bound, K, s_b, s_n,
            s_r, t_b, t_n, t_r, KP, OWN, HAS_MASK, ACT
        )  # fmt: skip
        factor = weight_of(w, r, HAS_W) * scale_of(log_scale, largest, ACT, R)
        divisor += factor * (total - own)
        left_out += factor * own
        mix = basis
        if ACT != IDENTITY:
            mix = basis * (factor * total)[:, None]
    if ACT == IDENTITY:
        quotient, steep = guarded(
            divisor, left_out, s, t, mask, top, peaks, totals, b, i, there, L, K, s_b, s_n, t_b,
            t_n, KP, OWN, HAS_MASK, BLOCK
        )  # fmt: skip
        tl.store(quotients + 2 * (b * N + i), quotient, mask=there)
        tl.store(quotients + 2 * (b * N + i) + 1, steep, mask=there)
    else:
        quotient = inverse_of(divisor)
    left_out = left_out * quotient
    mix = mix * quotient[:, None]
    for start in range(0, M, BLOCK_M):
        m = start + tl.arange(0, BLOCK_M)
        inside = there[:, None] & (m < M)[None, :]
        known = (k <= K)[:, None] & (m < M)[None, :]
        found = tl.zeros((BLOCK, BLOCK_M), tl.float32)
        for r in range(R):
            row = b * R + r
            if R > 1:
                basis, total, own, own_slope, log_scale = target(
                    s, t, mask, top, peaks, nodes, totals, b, r, row, i, there, N, half, bound, K,
                    s_b, s_n, s_r, t_b, t_n, t_r, KP, OWN, HAS_MASK, ACT
                )  # fmt: skip
                factor = weight_of(w, r, HAS_W) * scale_of(log_scale, largest, ACT, R)
                mix = basis * (factor * total * quotient)[:, None]
            where = means + row * planes + k[:, None] * MP + m[None, :]
            found = dot_mixed(mix, where, plane, known, found, SPLIT)
        if OWN:
            there_own = inside & (left_out != 0)[:, None]  # what is masked is not even read
            v = tl.load(c + b * c_b + place * c_n + m[None, :], mask=there_own, other=0.0)
            found -= left_out[:, None] * v.to(tl.float32)
        if ADD:
            d = tl.load(identity + b * d_b + place * d_n + m[None, :], mask=inside, other=0.0)
            found += d.to(tl.float32)
        tl.store(out + b * o_b + place * o_n + m[None, :], found, mask=inside)
