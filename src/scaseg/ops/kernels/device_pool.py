"""Device code of a 2 x 2 max pool: no indices are kept, the largest is found again."""

import triton
import triton.language as tl

SIZES = ["H", "W", "h", "w", "count"]


@triton.jit
def window_of(x, C, H, W, h, w, count, BLOCK: tl.constexpr, BLOCK_C: tl.constexpr):
    """Windows of x (B, H, W, C), and where they and their results lie.

    Also which exist, the four values, and the largest of them: NaN if there is one.
    """
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    c = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    known = (row < count)[:, None] & (c < C)[None, :]
    line = row // (h * w) * H + row % (h * w) // w * 2
    place = (line.to(tl.int64) * W + row % w * 2)[:, None] * C + c[None, :]
    p = tl.load(x + place, mask=known, other=0.0)
    q = tl.load(x + place + C, mask=known, other=0.0)
    r = tl.load(x + place + W * C, mask=known, other=0.0)
    s = tl.load(x + place + W * C + C, mask=known, other=0.0)
    above = tl.maximum(p, q, propagate_nan=tl.PropagateNan.ALL)
    below = tl.maximum(r, s, propagate_nan=tl.PropagateNan.ALL)
    largest = tl.maximum(above, below, propagate_nan=tl.PropagateNan.ALL)
    result = row.to(tl.int64)[:, None] * C + c[None, :]
    return place, result, known, p, q, r, largest


@triton.jit(do_not_specialize=SIZES)
def pool(out, x, C, H, W, h, w, count, BLOCK: tl.constexpr, BLOCK_C: tl.constexpr):
    """The largest of each window: out (B, h, w, C), `count` neurons."""
    _, result, known, _, _, _, largest = window_of(x, C, H, W, h, w, count, BLOCK, BLOCK_C)
    tl.store(out + result, largest, mask=known)


@triton.jit(do_not_specialize=SIZES)
def pool_gradient(
        found, grad, x, C, H, W, h, w, count, BLOCK: tl.constexpr,
        BLOCK_C: tl.constexpr):  # fmt: skip
    """The gradient of x: that of a window's result for the first of its largest, else 0."""
    place, result, known, p, q, r, m = window_of(x, C, H, W, h, w, count, BLOCK, BLOCK_C)
    d = tl.load(grad + result, mask=known, other=0.0)
    tl.store(found + place, tl.where(p == m, d, 0.0), mask=known)
    d = tl.where(p == m, 0.0, d)
    tl.store(found + place + C, tl.where(q == m, d, 0.0), mask=known)
    d = tl.where(q == m, 0.0, d)
    tl.store(found + place + W * C, tl.where(r == m, d, 0.0), mask=known)
    tl.store(found + place + W * C + C, tl.where(r == m, 0.0, d), mask=known)
