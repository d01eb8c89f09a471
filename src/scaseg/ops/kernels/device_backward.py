"""Device code of the interpolated context's gradients: of targets, of nodes, of sources."""

import triton
import triton.language as tl

from scaseg.ops.kernels.device_forward import add_up
from scaseg.ops.kernels.device_shared import (
    EXP,
    IDENTITY,
    SIZES,
    basis_of,
    centered,
    clamp,
    dot_mixed,
    dot_table,
    dot_values,
    inverse_of,
    largest_of,
    phi_and_slope,
    planes_of,
    scale_of,
    store_table,
    target,
)


@triton.jit(do_not_specialize=SIZES)
def target_gradients(
        grad_s, grad_t, grad_w, share, pull, left_out, quotients, g, c, s, t, mask, top, peaks, w,
        nodes, totals, means, M, MP, g_b, g_n, c_b, c_n, N, K, s_b, s_n, s_r, t_b, t_n, t_r, half,
        bound, R: tl.constexpr, KP: tl.constexpr, OWN: tl.constexpr, HAS_MASK: tl.constexpr,
        ACT: tl.constexpr, RP: tl.constexpr, HAS_W: tl.constexpr, SPLIT: tl.constexpr,
        BLOCK: tl.constexpr, BLOCK_M: tl.constexpr):  # fmt: skip
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
    plane, planes = planes_of(2 * KP if ACT < EXP else KP, MP, SPLIT)
    largest = tl.zeros((BLOCK,), tl.float32)
    if ACT == EXP:
        if R > 1:
            largest = largest_of(s, top, peaks, w, b, i, there, s_b, s_n, s_r, R, OWN, HAS_W, BLOCK)
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
        by_row = tl.zeros((BLOCK, KP), tl.float32)
        by_slope = tl.zeros((BLOCK, KP), tl.float32)
        for start in range(0, M, BLOCK_M):
            m = start + tl.arange(0, BLOCK_M)
            inside = there[:, None] & (m < M)[None, :]
            grad = tl.load(g + b * g_b + place * g_n + m[None, :], mask=inside, other=0.0)
            where = means + row * planes + k[None, :] * MP + m[:, None]
            known = (k <= K)[None, :] & (m < M)[:, None]
            by_row = dot_table(grad, where, plane, known, by_row, SPLIT)
            if ACT < EXP:
                by_slope = dot_table(grad, where + KP * MP, plane, known, by_slope, SPLIT)
            if OWN:
                if r == 0:
                    known_own = present[:, None] & (m < M)[None, :]
                    v = tl.load(c + b * c_b + place * c_n + m[None, :], mask=known_own, other=0.0)
                    g_c += tl.sum(grad.to(tl.float32) * v.to(tl.float32), 1)
        basis, total, own, own_slope, log_scale = target(
            s, t, mask, top, peaks, nodes, totals, b, r, row, i, there, N, half, bound, K, s_b, s_n,
            s_r, t_b, t_n, t_r, KP, OWN, HAS_MASK, ACT
        )  # fmt: skip
        mean = tl.sum(basis * by_row, 1)
        growth = tl.full((BLOCK,), 1.0, tl.float32)
        slope = tl.zeros((BLOCK,), tl.float32)
        if ACT == IDENTITY:  # g . sum of the values
            growth = tl.sum(tl.where(k[None, :] == 0, by_row, 0.0), 1)
        elif ACT != EXP:
            of_log = tl.load(totals + (2 * row + 1) * KP + k, mask=k <= K, other=0.0)
            growth = tl.sum(basis * of_log[None, :], 1)
            slope = tl.sum(basis * by_slope, 1)
        here = rr == r
        scales = tl.where(here, scale_of(log_scale, largest, ACT, R)[:, None], scales)
        sums_of = tl.where(here, total[:, None], sums_of)
        growths = tl.where(here, growth[:, None], growths)
        owns = tl.where(here, own[:, None], owns)
        own_slopes = tl.where(here, own_slope[:, None], own_slopes)
        g_means = tl.where(here, mean[:, None], g_means)
        g_slopes = tl.where(here, slope[:, None], g_slopes)

    factors = scales
    if HAS_W:
        factors = scales * tl.load(w + rr, mask=rr < R, other=0.0)
    quotient = inverse_of(tl.sum(factors * (sums_of - owns), 1))
    own_grad = g_c[:, None]
    g_context = tl.sum(factors * (sums_of * g_means - owns * own_grad), 1) * quotient  # g . context
    around, own_around = g_means - g_context[:, None], own_grad - g_context[:, None]
    weight = factors * quotient[:, None]
    d_total = weight * sums_of * around
    d_s = d_total * growths + weight * (sums_of * g_slopes - own_slopes * own_around)
    taken, of_own = weight * sums_of, weight * own_around
    if ACT == IDENTITY:  # out = quotient * sum, so d out = quotient d sum - steep sum d divisor
        line = 2 * (b * N + i)
        inverse = tl.load(quotients + line, mask=there, other=0.0)
        steep = tl.load(quotients + line + 1, mask=there, other=0.0)
        fall = -steep * tl.sum(g_means - owns * own_grad, 1)
        count = tl.load(totals + 2 * b * KP) + tl.zeros((BLOCK,), tl.float32)
        if OWN:
            count -= tl.where(present, 1.0, 0.0)
        d_s = (inverse * (tl.sum(growths, 1) - g_c) + fall * count)[:, None]
        taken, d_total, of_own = inverse[:, None], fall[:, None], (inverse * g_c + fall)[:, None]
        weight = taken
    if ACT == EXP:
        if R == 1:  # the score cancels
            d_s = tl.zeros_like(d_s)
    elif ACT < EXP:
        wide = place * s_n + rr * s_r + b * s_b
        score = tl.load(s + wide, mask=there[:, None] & (rr < R), other=0.0)
        d_s = tl.where((score > bound) | (score < -bound), 0.0, d_s)
    wide = (b * N + place) * R + rr
    inside = there[:, None] & (rr < R)
    tl.store(grad_s + wide, d_s, mask=inside)
    tl.store(share + wide, taken, mask=inside)
    tl.store(pull + wide, d_total, mask=inside)
    if OWN:
        tl.store(left_out + b * N + i, tl.sum(weight * owns, 1), mask=there)
        tl.store(grad_t + wide, -own_slopes * of_own, mask=inside)
    if HAS_W:
        of_weight = scales * quotient[:, None] * (sums_of * around - owns * own_around)
        tl.store(grad_w + wide, of_weight, mask=inside)


@triton.jit(do_not_specialize=SIZES)
def targets_to_nodes(
        sums, g, s, share, pull, top, peaks, nodes, M, MP, g_b, g_n, N, K, chunk, s_b, s_n, s_r,
        half, bound, R: tl.constexpr, KP: tl.constexpr, OWN: tl.constexpr, ACT: tl.constexpr,
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
            is_top = i == tl.load(top + row)
        score = centered(clamp(score, bound, ACT), peaks, row, ACT)
        basis = tl.trans(basis_of(score, is_top, nodes, half, K, KP, ACT))
        wide = (b * N + place) * R + r
        inside = there[:, None] & (m < M)[None, :]
        grad = tl.load(g + b * g_b + place[:, None] * g_n + m[None, :], mask=inside, other=0.0)
        taken = tl.load(share + wide, mask=there, other=0.0)
        found = dot_values(basis * taken[None, :], grad, found, SPLIT)
        pulled += tl.sum(basis * tl.load(pull + wide, mask=there, other=0.0)[None, :], 1)
    base = sums + (part.to(tl.int64) * tl.num_programs(2) + row) * KP * MP
    tl.store(base + k[:, None] * MP + m[None, :], found, mask=(m < M)[None, :])
    if tl.program_id(1) == 0:
        tl.store(base + k * MP + M, pulled)


@triton.jit(do_not_specialize=SIZES)
def finish_pulls(
        pulls, shifts, sums, totals, means, M, MP, chunks, KP: tl.constexpr, ACT: tl.constexpr,
        SLOPES: tl.constexpr, SPLIT: tl.constexpr, PARTS: tl.constexpr,
        BLOCK_M: tl.constexpr):  # fmt: skip
    """Add up the parts of one row of `targets_to_nodes`, and divide by its sum of coefficients.

    pulls (B * R, KP, MP): the gradient of a row's values; shifts (B * R, KP): what the gradient
    of a coefficient is beside pulls . value.
    """
    k, row = tl.program_id(0), tl.program_id(1)
    lines = tl.num_programs(1).to(tl.int64) * KP * MP
    base = sums + (row.to(tl.int64) * KP + k) * MP
    one = tl.arange(0, 16)
    pulled = tl.sum(add_up(base + M + one, lines, one < 1, chunks, PARTS, 16), 0)
    inverse = inverse_of(tl.load(totals + 2 * row * KP + k))
    if ACT == IDENTITY:
        inverse = 1.0
    plane, planes = planes_of(KP, MP, SPLIT)
    mean_plane, mean_planes = planes_of(2 * KP if SLOPES else KP, MP, SPLIT)
    of_mean = tl.zeros((BLOCK_M,), tl.float32)
    for start in range(0, M, BLOCK_M):
        m = start + tl.arange(0, BLOCK_M)
        known = m < M
        pull = add_up(base + m, lines, known, chunks, PARTS, BLOCK_M)
        where = means + row.to(tl.int64) * mean_planes + k * MP + m
        mean = tl.load(where, mask=known, other=0.0).to(tl.float32)
        if SPLIT:
            mean += tl.load(where + mean_plane, mask=known, other=0.0).to(tl.float32)
        if ACT != IDENTITY:
            of_mean += pull * mean
        out = pulls + row.to(tl.int64) * planes + k * MP + m
        store_table(out, plane, pull * inverse, known, SPLIT)
    tl.store(shifts + row * KP + k, (pulled - tl.sum(of_mean, 0)) * inverse)


@triton.jit
def source_coefficients(s, t, nodes, peaks, top, b, r, j, there, bound, K, s_b, s_n, s_r, t_b, t_n,
                        t_r, R: tl.constexpr, KP: tl.constexpr, OWN: tl.constexpr,
                        ACT: tl.constexpr):  # fmt: skip
    """phi and phi' of a block of sources for all rows (BLOCK, KP), and the scores as they came."""
    row = b * R + r
    k = tl.arange(0, KP)
    used = k < K
    top_j = -1
    if ACT == EXP:  # relative to the strongest source, the top row to the second strongest
        node = -tl.load(peaks + 2 * row + tl.where(k == K, 1, 0))
    elif ACT == IDENTITY:
        node = -tl.load(peaks + 2 * row) + tl.zeros((KP,), tl.float32)
    else:
        node = tl.load(nodes + 3 * KP + k)
    if OWN:
        used = k <= K
        top_j = tl.load(top + row)
        if ACT != EXP:
            own = tl.load(s + b * s_b + r * s_r + top_j.to(tl.int64) * s_n)
            node = tl.where(k == K, clamp(own, bound, ACT), node)
    raw = tl.load(t + b * t_b + r * t_r + j.to(tl.int64) * t_n, mask=there, other=0.0)
    z = clamp(raw, bound, ACT)[:, None] + node[None, :]
    if ACT == IDENTITY:
        a = tl.where(k[None, :] == 0, 1.0, z)
        slope = tl.where(k[None, :] == 0, 0.0, 1.0) + 0 * z
    else:
        a, slope = phi_and_slope(z, ACT)
    keep = there[:, None] & used[None, :]
    if OWN:
        keep = keep & ((k[None, :] != K) | (j[:, None] != top_j))
    return tl.where(keep, a, 0.0), tl.where(keep, slope, 0.0), raw


@triton.jit(do_not_specialize=SIZES)
def source_gradients(
        grad_c, copy, grad_t, own_grad_t, left_out, g, c, s, t, mask, top, peaks, nodes, pulls,
        shifts, M, MP, d_n, g_b, g_n, c_b, c_n, N, K, first, last, b_0, row_0, s_b, s_n, s_r, t_b,
        t_n, t_r,
        bound, R: tl.constexpr, KP: tl.constexpr, OWN: tl.constexpr, HAS_MASK: tl.constexpr,
        ACT: tl.constexpr, SPLIT: tl.constexpr, COPY: tl.constexpr, BLOCK: tl.constexpr,
        BLOCK_M: tl.constexpr):  # fmt: skip
    """The gradients of a block of sources' values and scores.

    Those of the sources first to last of the images from b_0 on; grad_c, and with COPY a copy of
    g, start at row row_0 of the flat map.
    """
    # a single channel's products in one pass over the features; not in float32, where Triton 3.6
    # gave wrong ones for narrow tiles
    once: tl.constexpr = (R == 1) & SPLIT
    b = (b_0 + tl.program_id(1)).to(tl.int64)
    j = first + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside_n = j < last
    there = inside_n
    if HAS_MASK:
        there = there & (tl.load(mask + b * N + j, mask=there, other=0) != 0)
    place = j.to(tl.int64)
    out = (b * N + place - row_0)[:, None] * d_n
    k = tl.arange(0, KP)
    plane, planes = planes_of(KP, MP, SPLIT)
    left = tl.zeros((BLOCK,), tl.float32)
    if OWN:
        left = tl.load(left_out + b * N + j, mask=there, other=0.0)
    # a single channel's coefficients and products are held through one pass over the features
    a, slope, raw = source_coefficients(
        s, t, nodes, peaks, top, b, 0, j, there, bound, K, s_b, s_n, s_r, t_b, t_n, t_r, R, KP, OWN,
        ACT
    )  # fmt: skip
    by_row = tl.zeros((BLOCK, KP), tl.float32)  # c_j . pulls
    for start in range(0, M, BLOCK_M):
        m = start + tl.arange(0, BLOCK_M)
        known = there[:, None] & (m < M)[None, :]
        used = (k <= K)[:, None] & (m < M)[None, :]
        found = tl.zeros((BLOCK, BLOCK_M), tl.float32)
        for r in range(R):
            if R > 1:
                a, slope, raw = source_coefficients(
                    s, t, nodes, peaks, top, b, r, j, there, bound, K, s_b, s_n, s_r, t_b, t_n, t_r,
                    R, KP, OWN, ACT
                )  # fmt: skip
            where = pulls + (b * R + r) * planes + k[:, None] * MP + m[None, :]
            found = dot_mixed(a, where, plane, used, found, SPLIT)
        if OWN:
            where = g + b * g_b + place[:, None] * g_n + m[None, :]
            inside = inside_n[:, None] & (m < M)[None, :]
            grad = tl.load(where, mask=inside, other=0.0)
            found -= left[:, None] * tl.where(known, grad, 0.0).to(tl.float32)
            if COPY:
                tl.store(copy + out + m[None, :], grad, mask=inside)
        tl.store(grad_c + out + m[None, :], found, mask=inside_n[:, None] & (m < M)[None, :])
        if once:
            v = tl.load(c + b * c_b + place[:, None] * c_n + m[None, :], mask=known, other=0.0)
            where = pulls + b * planes + k[None, :] * MP + m[:, None]
            used = (k <= K)[None, :] & (m < M)[:, None]
            by_row = dot_table(v, where, plane, used, by_row, SPLIT)
    for r in range(R):
        row = b * R + r
        if not once:
            by_row = tl.zeros((BLOCK, KP), tl.float32)
            for start in range(0, M, BLOCK_M):
                m = start + tl.arange(0, BLOCK_M)
                known = there[:, None] & (m < M)[None, :]
                v = tl.load(c + b * c_b + place[:, None] * c_n + m[None, :], mask=known, other=0.0)
                where = pulls + row * planes + k[None, :] * MP + m[:, None]
                used = (k <= K)[None, :] & (m < M)[:, None]
                by_row = dot_table(v, where, plane, used, by_row, SPLIT)
            a, slope, raw = source_coefficients(
                s, t, nodes, peaks, top, b, r, j, there, bound, K, s_b, s_n, s_r, t_b, t_n, t_r, R,
                KP, OWN, ACT
            )  # fmt: skip
        change = by_row + tl.load(shifts + row * KP + k)[None, :]
        of_t = tl.sum(slope * change, 1)
        wide = (b * N + place) * R + r
        if OWN:
            of_t += tl.load(own_grad_t + wide, mask=there, other=0.0)
        if ACT < EXP:
            of_t = tl.where((raw > bound) | (raw < -bound), 0.0, of_t)
        tl.store(grad_t + wide, tl.where(there, of_t, 0.0), mask=inside_n)
