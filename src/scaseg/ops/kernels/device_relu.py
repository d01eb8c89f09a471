"""Device code of the rectified context (relu): exact sums over sorted rows, in few passes.

Targets add up the sources with t_j > -s_i: the first few in descending order of t. Sources lie in
blocks of that order. Of the blocks that count whole for a target, prefix sums are enough,

    sum (s + t_j) c_j = (s + anchor) sum c_j + sum (t_j - anchor) c_j,

anchor the least t among them: no factor is negative, nothing cancels. The block in which a target's
border lies is computed pair by pair. Targets are sorted by s and cut into tiles whose borders lie
in one block: there are at most as many as blocks and full tiles together, whatever the scores, and
all are equally much work. Gradients of sources are sums over the sorted targets, by the same code.

The strongest source (`top`) is in no sum: every target adds it by itself, but for itself. So no own
entry is subtracted where it would be most of a sum. Masked sources have the score -inf.
"""

import triton
import triton.language as tl

from scaseg.ops.kernels.device_shared import dot_values, inverse_of

SIZES = ["N", "L", "Q", "t_b", "t_n"]


@triton.jit
def ramp(z):
    """relu; NaN stays."""
    return tl.where(z <= 0, 0.0, z)


@triton.jit
def step(z):
    """The slope of `ramp`."""
    return tl.where(z > 0, 1.0, 0.0)


@triton.jit
def block_of_tile(cuts, b, Q):
    """The block of others of this program's tile, which is beyond Q where there is no such tile.

    Also the first of its rows and their end.
    """
    tile = tl.program_id(0)
    cuts += 3 * b * (Q + 1)
    q = 0
    end = Q + 1
    while q < end:
        middle = (q + end) // 2
        before = tl.load(cuts + 3 * middle + 2) <= tile
        q = tl.where(before, middle + 1, q)
        end = tl.where(before, end, middle)
    found = cuts + 3 * tl.minimum(q, Q)
    tiles = tl.load(found - 1, mask=q > 0, other=0)
    return q, tl.load(found), tl.load(found + 1), tile - tiles


@triton.jit
def rows_of_tile(scores, order, anchors, b, q, first, end, number, N, Q, BLOCK: tl.constexpr):
    """The rows of a tile: which are there, their places, their scores.

    Also their height above the anchor of the blocks before q, and whether there are any of those.
    """
    p = first + number * BLOCK + tl.arange(0, BLOCK)
    there = p < end
    score = tl.load(scores + b * N + p, mask=there, other=float("-inf"))
    row = tl.load(order + b * N + p, mask=there, other=0)
    before = q > 0
    above = score + tl.load(anchors + b * Q + q - 1, mask=before, other=0.0)
    above = tl.where(before & (score != float("-inf")), above, 0.0)
    return there, row, score, above, before


@triton.jit
def others_of(score, others, order, top, b, q, L, OWN: tl.constexpr, BLOCK_O: tl.constexpr):
    """Block q of the others: score sums (BLOCK, BLOCK_O), -inf at top; places; which count."""
    p = q * BLOCK_O + tl.arange(0, BLOCK_O)
    other = tl.load(others + b * L + p, mask=p < L, other=float("-inf"))
    place = tl.load(order + b * L + p, mask=p < L, other=0)
    counts = other != float("-inf")
    if OWN:
        counts = counts & (place != top)
    z = tl.where(counts[None, :] & (score != float("-inf"))[:, None],
                 score[:, None] + other[None, :], float("-inf"))  # fmt: skip
    return z, place, counts


@triton.jit
def targets_of(
        t, mask, s_sorted, s_order, t_sorted, t_order, anchors, b, q, first, end, number, M, N, L,
        Q, t_b, t_n, OWN: tl.constexpr, HAS_MASK: tl.constexpr, BLOCK: tl.constexpr,
        BLOCK_O: tl.constexpr):  # fmt: skip
    """A tile of targets: its rows, `others_of` it, and its score sums with itself and with top.

    Sums are -inf where nothing counts. readable: the features of top, none if it is masked.
    """
    there, i, score, above, before = rows_of_tile(
        s_sorted, s_order, anchors, b, q, first, end, number, N, Q, BLOCK
    )
    strongest = tl.load(t_sorted + b * L)
    top = tl.load(t_order + b * L)
    readable = tl.where(strongest == float("-inf"), 0, M)
    z, place, counts = others_of(score, t_sorted, t_order, top, b, q, L, OWN, BLOCK_O)
    own = tl.full((BLOCK,), float("-inf"), tl.float32)
    of_top = tl.full((BLOCK,), float("-inf"), tl.float32)
    if OWN:
        known = there & (i != top)
        if HAS_MASK:
            known = known & (tl.load(mask + b * N + i, mask=known, other=0) != 0)
        t_own = tl.load(t + b * t_b + i * t_n, mask=known, other=0.0)
        own = tl.where(known, score + t_own, float("-inf"))
        of_top = tl.where(i == top, float("-inf"), score + strongest)
    return there, i, above, before, strongest, top, readable, z, place, counts, own, of_top


@triton.jit(do_not_specialize=SIZES)
def ramps_of_targets(
        out, identity, quotients, c, t, mask, s_sorted, s_order, t_sorted, t_order, cuts, parts,
        anchors, M, MP, o_b, o_n, d_b, d_n, c_b, c_n, N, L, Q, t_b, t_n, OWN: tl.constexpr,
        HAS_MASK: tl.constexpr, ADD: tl.constexpr, SPLIT: tl.constexpr, BLOCK: tl.constexpr,
        BLOCK_O: tl.constexpr, BLOCK_M: tl.constexpr):  # fmt: skip
    """The context of a tile of targets, all features; ADD it to the identity features.

    quotients (B, N): 1 / sum of coefficients.
    """
    b = tl.program_id(1).to(tl.int64)
    q, first, end, number = block_of_tile(cuts, b, Q)
    if q > Q:
        return
    there, i, above, before, strongest, top, readable, z, place, counts, own, of_top = targets_of(
        t, mask, s_sorted, s_order, t_sorted, t_order, anchors, b, q, first, end, number, M, N, L,
        Q, t_b, t_n, OWN, HAS_MASK, BLOCK, BLOCK_O)  # fmt: skip
    base = parts + (b * Q + q - 1) * 2 * MP
    total = above * tl.load(base + M, mask=before, other=0.0)
    total += tl.load(base + MP + M, mask=before, other=0.0)
    total += tl.sum(ramp(z), 1)
    left_out, of_top = ramp(own), ramp(of_top)
    if OWN:
        total += of_top - left_out
    # NaN has no place in an order: it must not hide behind what it is compared with
    total = tl.where(strongest != strongest, strongest, total)
    quotient = inverse_of(total)
    tl.store(quotients + b * N + i, quotient, mask=there)
    for start in range(0, M, BLOCK_M):
        m = start + tl.arange(0, BLOCK_M)
        known = before & (m < M)
        found = above[:, None] * tl.load(base + m, mask=known, other=0.0)[None, :]
        found += tl.load(base + MP + m, mask=known, other=0.0)[None, :]
        where = c + b * c_b + place[:, None] * c_n + m[None, :]
        v = tl.load(where, mask=counts[:, None] & (m < M)[None, :], other=0.0)
        found = dot_values(ramp(z), v, found, SPLIT)
        inside = there[:, None] & (m < M)[None, :]
        if OWN:
            v = tl.load(c + b * c_b + top * c_n + m, mask=m < readable, other=0.0).to(tl.float32)
            found += of_top[:, None] * v[None, :]
            present = inside & (left_out != 0)[:, None]  # what is masked is not even read
            v = tl.load(c + b * c_b + i[:, None] * c_n + m[None, :], mask=present, other=0.0)
            found -= left_out[:, None] * v.to(tl.float32)
        found = found * quotient[:, None]
        if ADD:
            d = tl.load(identity + b * d_b + i[:, None] * d_n + m[None, :], mask=inside, other=0.0)
            found += d.to(tl.float32)
        tl.store(out + b * o_b + i[:, None] * o_n + m[None, :], found, mask=inside)


@triton.jit(do_not_specialize=SIZES)
def gradients_of_targets(
        grad_s, own_grad_t, shifts, left_out, quotients, g, c, t, mask, s_sorted, s_order, t_sorted,
        t_order, cuts, parts, anchors, M, MP, g_b, g_n, c_b, c_n, N, L, Q, t_b, t_n,
        OWN: tl.constexpr, HAS_MASK: tl.constexpr, SPLIT: tl.constexpr, BLOCK: tl.constexpr,
        BLOCK_O: tl.constexpr, BLOCK_M: tl.constexpr):  # fmt: skip
    """The gradients of a tile of targets' scores, and what the sources need; all (B, N).

    The gradient of a coefficient is quotient_i g_i . c_j + shift_i. left_out: the share of the own
    value; own_grad_t: what the own entry, which counts for no one, takes from the gradient of t.
    """
    b = tl.program_id(1).to(tl.int64)
    q, first, end, number = block_of_tile(cuts, b, Q)
    if q > Q:
        return
    there, i, above, before, _, top, readable, z, place, counts, own, of_top = targets_of(
        t, mask, s_sorted, s_order, t_sorted, t_order, anchors, b, q, first, end, number, M, N, L,
        Q, t_b, t_n, OWN, HAS_MASK, BLOCK, BLOCK_O)  # fmt: skip
    base = parts + (b * Q + q - 1) * 2 * MP
    count = tl.load(base + M, mask=before, other=0.0) + tl.sum(step(z), 1)
    if OWN:
        count += step(of_top) - step(own)
    g_ramp = tl.zeros((BLOCK,), tl.float32)  # g_i . sum_j a_ij c_j
    g_step = tl.zeros((BLOCK,), tl.float32)  # g_i . sum of the active c_j
    g_own = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, M, BLOCK_M):
        m = start + tl.arange(0, BLOCK_M)
        known = before & (m < M)
        steps_here = tl.load(base + m, mask=known, other=0.0)[None, :]
        ramps = above[:, None] * steps_here + tl.load(base + MP + m, mask=known, other=0.0)[None, :]
        steps_here = steps_here + tl.zeros((BLOCK, BLOCK_M), tl.float32)
        where = c + b * c_b + place[:, None] * c_n + m[None, :]
        v = tl.load(where, mask=counts[:, None] & (m < M)[None, :], other=0.0)
        ramps = dot_values(ramp(z), v, ramps, SPLIT)
        steps_here = dot_steps(step(z), v, steps_here, SPLIT)
        inside = there[:, None] & (m < M)[None, :]
        grad = tl.load(g + b * g_b + i[:, None] * g_n + m[None, :], mask=inside, other=0.0)
        grad = grad.to(tl.float32)
        if OWN:
            v = tl.load(c + b * c_b + top * c_n + m, mask=m < readable, other=0.0).to(tl.float32)
            ramps += ramp(of_top)[:, None] * v[None, :]
            steps_here += step(of_top)[:, None] * v[None, :]
            present = inside & (own > 0)[:, None]
            v = tl.load(c + b * c_b + i[:, None] * c_n + m[None, :], mask=present, other=0.0)
            g_own += tl.sum(grad * v.to(tl.float32), 1)
        g_ramp += tl.sum(grad * ramps, 1)
        g_step += tl.sum(grad * steps_here, 1)
    line = b * N + i
    quotient = tl.load(quotients + line, mask=there, other=0.0)
    shift = -quotient * quotient * (g_ramp - ramp(own) * g_own)
    tl.store(shifts + line, shift, mask=there)
    of_s = quotient * (g_step - step(own) * g_own) + shift * count
    tl.store(grad_s + line, of_s, mask=there)
    if OWN:
        tl.store(left_out + line, ramp(own) * quotient, mask=there)
        tl.store(own_grad_t + line, -step(own) * (quotient * g_own + shift), mask=there)


@triton.jit
def dot_steps(a, v, acc, SPLIT: tl.constexpr):
    """acc + a @ v for coefficients of 0 and 1, which every dtype holds."""
    if SPLIT:
        acc = tl.dot(a.to(v.dtype), v, acc)
    else:
        acc = tl.dot(a, v.to(tl.float32), acc, input_precision="tf32x3")
    return acc


@triton.jit(do_not_specialize=SIZES)
def gradients_of_sources(
        grad_c, copy, grad_t, own_grad_t, shifts, left_out, quotients, g, c, s_sorted, s_order,
        t_sorted, t_order, s, cuts, parts, anchors, M, MP, d_n, g_b, g_n, c_b, c_n, N, L, Q, t_b,
        t_n, OWN: tl.constexpr, COPY: tl.constexpr, SPLIT: tl.constexpr, BLOCK: tl.constexpr,
        BLOCK_O: tl.constexpr, BLOCK_M: tl.constexpr):  # fmt: skip
    """The gradients of a tile of sources' values, in rows d_n apart, and of their scores (B, N).

    With COPY, copy, laid out like grad_c, gets a copy of g. Strides t_b, t_n are those of s.
    """
    b = tl.program_id(1).to(tl.int64)
    q, first, end, number = block_of_tile(cuts, b, Q)
    if q > Q:
        return
    there, j, score, above, before = rows_of_tile(
        t_sorted, t_order, anchors, b, q, first, end, number, N, Q, BLOCK
    )
    base = parts + (b * Q + q - 1) * 2 * MP
    top = tl.load(t_order + b * N)
    counts_j = there & (score != float("-inf"))
    line = b * N + j
    of_t = tl.load(base + M, mask=before, other=0.0) + tl.zeros((BLOCK,), tl.float32)
    of_t = tl.where(counts_j, of_t, 0.0)
    z, place, counts = others_of(score, s_sorted, s_order, top, b, q, L, OWN, BLOCK_O)
    shift = tl.load(shifts + b * L + place, mask=counts, other=0.0)
    of_t += tl.sum(step(z) * shift[None, :], 1)
    weight = tl.load(quotients + b * L + place, mask=counts, other=0.0)[None, :]
    left = tl.zeros((BLOCK,), tl.float32)
    of_top = tl.zeros((BLOCK,), tl.float32)
    top_weight = 0.0
    if OWN:
        left = tl.load(left_out + line, mask=counts_j, other=0.0)
        of_t += tl.load(own_grad_t + line, mask=counts_j, other=0.0)
        of_top = score + tl.load(s + b * t_b + top * t_n)
        of_top = tl.where(counts_j & (j != top), of_top, float("-inf"))
        of_t += step(of_top) * tl.load(shifts + b * L + top)
        top_weight = tl.load(quotients + b * L + top)
    used = tl.where(counts_j, 1.0, 0.0)[:, None]
    for start in range(0, M, BLOCK_M):
        m = start + tl.arange(0, BLOCK_M)
        known = before & (m < M)
        flat = tl.load(base + m, mask=known, other=0.0)[None, :]
        found = above[:, None] * flat
        found += used * tl.load(base + MP + m, mask=known, other=0.0)[None, :]
        flat = used * flat
        where = g + b * g_b + place[:, None] * g_n + m[None, :]
        v = tl.load(where, mask=counts[:, None] & (m < M)[None, :], other=0.0)
        found = dot_values(ramp(z) * weight, v, found, SPLIT)
        flat = dot_values(step(z) * weight, v, flat, SPLIT)
        inside = there[:, None] & (m < M)[None, :]
        place_j = line[:, None] * d_n + m[None, :]
        if OWN:
            v = tl.load(g + b * g_b + top * g_n + m, mask=m < M, other=0.0).to(tl.float32)
            v = top_weight * v[None, :]
            found += ramp(of_top)[:, None] * v
            flat += step(of_top)[:, None] * v
            grad = tl.load(g + b * g_b + j[:, None] * g_n + m[None, :], mask=inside, other=0.0)
            found -= left[:, None] * grad.to(tl.float32)
            if COPY:
                tl.store(copy + place_j, grad, mask=inside)
        tl.store(grad_c + place_j, tl.where(counts_j[:, None], found, 0.0), mask=inside)
        known = inside & counts_j[:, None]
        v = tl.load(c + b * c_b + j[:, None] * c_n + m[None, :], mask=known, other=0.0)
        of_t += tl.sum(flat * v.to(tl.float32), 1)
    tl.store(grad_t + line, tl.where(counts_j, of_t, 0.0), mask=there)
