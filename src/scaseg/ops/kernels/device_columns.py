"""Device code of convolutions as matrix products: what each tap of a kernel sees, side by side."""

import triton
import triton.language as tl

SIZES = ["H", "B", "W", "w", "count", "top", "beside", "down", "right"]


@triton.jit(do_not_specialize=SIZES)
def gather_taps(
        columns, x, C, H, B, W, w, count, top, beside, down, right, TAPS: tl.constexpr,
        KW: tl.constexpr, BLOCK: tl.constexpr, BLOCK_C: tl.constexpr):  # fmt: skip
    """Row (y, b, z) of columns (count, TAPS * C) from x (H, B, W, C): 0 beyond the map.

    Taps are counted along the rows of a kernel of width KW; the first row sees line y + top of x.
    """
    tap = tl.program_id(1)
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    c = tl.program_id(2) * BLOCK_C + tl.arange(0, BLOCK_C)
    y, b, z = row // (B * w), row % (B * w) // w, row % w
    line = y + tap // KW * down + top
    place = z + tap % KW * right - beside
    inside = (row < count) & (line >= 0) & (line < H) & (place >= 0) & (place < W)
    seen = ((line * B + b) * W + place).to(tl.int64) * C
    known = inside[:, None] & (c < C)[None, :]
    found = tl.load(x + seen[:, None] + c[None, :], mask=known, other=0.0)
    out = columns + (row.to(tl.int64) * TAPS + tap)[:, None] * C + c[None, :]
    tl.store(out, found, mask=(row < count)[:, None] & (c < C)[None, :])


@triton.jit(do_not_specialize=SIZES)
def add_taps(
        x, columns, C, H, B, W, w, count, top, beside, down, right, TAPS: tl.constexpr,
        KW: tl.constexpr, BLOCK: tl.constexpr, BLOCK_C: tl.constexpr):  # fmt: skip
    """Add to x (lines, B, W, C), `count` neurons, what `gather_taps` took for one row of taps."""
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    c = tl.program_id(2) * BLOCK_C + tl.arange(0, BLOCK_C)
    before, place = row // W, row % W  # before: (line, b)
    known = (row < count)[:, None] & (c < C)[None, :]
    out = x + row.to(tl.int64)[:, None] * C + c[None, :]
    found = tl.load(out, mask=known, other=0.0)
    for tap in range(KW):
        z = place + beside - tap * right
        inside = (row < count) & (z >= 0) & (z < w)
        seen = ((before * w + z).to(tl.int64) * KW + tap) * C
        here = inside[:, None] & (c < C)[None, :]
        found += tl.load(columns + seen[:, None] + c[None, :], mask=here, other=0.0).to(tl.float32)
    tl.store(out, found, mask=known)
