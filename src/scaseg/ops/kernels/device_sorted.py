"""Device code of sorted rows: sums of their blocks, prefix sums, cuts into tiles (device_relu)."""

import triton
import triton.language as tl

SIZES = ["N", "L", "Q", "steps"]


@triton.jit(do_not_specialize=SIZES)
def block_sums(
        parts, anchors, v, scores, order, top, weight, shift, M, MP, v_b, v_n, N, Q,
        HAS_W: tl.constexpr, OWN: tl.constexpr, BLOCK: tl.constexpr,
        BLOCK_M: tl.constexpr):  # fmt: skip
    """Sums over a block of sorted rows, without `top`: parts (B, Q, 2, MP) and anchors (B, Q).

    sum w v and sum w (score - anchor) v; in column M sum w and sum w (score - anchor). With HAS_W
    rows have weights w, and column M of the first holds sum shift.
    """
    q, b = tl.program_id(0), tl.program_id(2).to(tl.int64)
    p = q * BLOCK + tl.arange(0, BLOCK)
    score = tl.load(scores + b * N + p, mask=p < N, other=float("-inf"))
    row = tl.load(order + b * N + p, mask=p < N, other=0)
    counts = score != float("-inf")
    anchor = tl.min(tl.where(counts, score, float("inf")), 0)
    anchor = tl.where(anchor == float("inf"), 0.0, anchor)
    if OWN:
        counts = counts & (row != tl.load(top + b * N))
    w = tl.where(counts, 1.0, 0.0)
    total = w
    if HAS_W:
        w = tl.load(weight + b * N + row, mask=counts, other=0.0)
        total = tl.load(shift + b * N + row, mask=counts, other=0.0)
    lean = w * tl.where(counts, score - anchor, 0.0)
    m = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    inside = counts[:, None] & (m < M)[None, :]
    value = tl.load(v + b * v_b + row[:, None] * v_n + m[None, :], mask=inside, other=0.0)
    value = value.to(tl.float32)
    place = parts + (b * Q + q) * 2 * MP
    tl.store(place + m, tl.sum(w[:, None] * value, 0), mask=m < M)
    tl.store(place + MP + m, tl.sum(lean[:, None] * value, 0), mask=m < M)
    if tl.program_id(1) == 0:
        tl.store(anchors + b * Q + q, anchor)
        tl.store(place + M, tl.sum(total, 0))
        tl.store(place + MP + M, tl.sum(lean, 0))


@triton.jit(do_not_specialize=SIZES)
def prefix_sums(parts, anchors, M, MP, Q, BLOCK: tl.constexpr, BLOCK_M: tl.constexpr):
    """Turn the sums of each block into those of all blocks up to it, relative to its anchor."""
    b = tl.program_id(1).to(tl.int64)
    k = tl.arange(0, BLOCK)
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    so_far = tl.zeros((BLOCK_M,), tl.float32)
    lean_so_far = tl.zeros((BLOCK_M,), tl.float32)
    for start in range(0, Q, BLOCK):
        q = start + k
        inside = (q < Q)[:, None] & (m <= M)[None, :]
        place = parts + ((b * Q + q) * 2 * MP)[:, None] + m[None, :]
        sums = tl.load(place, mask=inside, other=0.0)
        # not sums taken off again: weights of rows that nearly vanish are large
        previous = tl.load(place - 2 * MP, mask=inside & (k > 0)[:, None], other=0.0)
        lean = tl.load(place + MP, mask=inside, other=0.0)
        here = tl.load(anchors + b * Q + q, mask=q < Q, other=0.0)
        before = tl.load(anchors + b * Q + q - 1, mask=(q > 0) & (q < Q), other=0.0)
        fall = tl.where(q > 0, before - here, 0.0)
        earlier = tl.cumsum(previous, 0) + so_far[None, :]
        after = earlier + sums
        lean = tl.cumsum(lean + fall[:, None] * earlier, 0) + lean_so_far[None, :]
        tl.debug_barrier()  # rows are overwritten that others read
        tl.store(place, after, mask=inside)
        tl.store(place + MP, lean, mask=inside)
        last = (k == BLOCK - 1)[:, None]
        so_far = tl.sum(tl.where(last, after, 0.0), 0)
        lean_so_far = tl.sum(tl.where(last, lean, 0.0), 0)


@triton.jit
def active_rows(scores, other, N, steps):
    """How many of N scores in descending order have a positive sum with each other; bisection."""
    first = tl.zeros_like(other).to(tl.int32)
    end = first + N
    for _turn in range(steps):
        middle = (first + end) // 2
        active = tl.load(scores + middle, mask=first < end, other=0.0) + other > 0
        first = tl.where((first < end) & active, middle + 1, first)
        end = tl.where((first < end) & (active == 0), middle, end)
    return first


@triton.jit(do_not_specialize=SIZES)
def cut_rows(
        cuts, scores, others, N, L, Q, steps, BLOCK: tl.constexpr, BLOCK_O: tl.constexpr,
        SCAN: tl.constexpr):  # fmt: skip
    """Cut N sorted rows into tiles of at most BLOCK rows whose borders lie in one block of others.

    cuts (B, Q + 1, 3): for the rows with their border in block q (Q: beyond all), the first, the
    end, and the number of tiles up to there.
    """
    b = tl.program_id(0).to(tl.int64)
    tiles = 0
    for start in range(0, Q + 1, SCAN):
        q = start + tl.arange(0, SCAN)
        last = b * L + tl.minimum(q * BLOCK_O, L) - 1
        end = active_rows(scores + b * N, tl.load(others + last, mask=(q > 0) & (q <= Q)), N, steps)
        end = tl.where(q > 0, end, N)
        last = b * L + tl.minimum((q + 1) * BLOCK_O, L) - 1
        first = active_rows(scores + b * N, tl.load(others + last, mask=q < Q), N, steps)
        first = tl.where(q < Q, first, 0)
        here = tl.where(q <= Q, (end - first + BLOCK - 1) // BLOCK, 0)
        place = cuts + 3 * (b * (Q + 1) + q)
        tl.store(place, first, mask=q <= Q)
        tl.store(place + 1, end, mask=q <= Q)
        tl.store(place + 2, tiles + tl.cumsum(here, 0), mask=q <= Q)
        tiles += tl.sum(here, 0)
