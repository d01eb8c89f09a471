"""Device code of convolutions as matrix products: what each tap of a kernel sees, side by side."""

import triton
import triton.language as tl

SIZES = ["H", "W", "h", "w", "count", "first", "above", "beside", "down", "right"]


@triton.jit(do_not_specialize=SIZES)
def gather_taps(
        columns, x, C, H, W, h, w, count, first, above, beside, down, right, TAPS: tl.constexpr,
        KW: tl.constexpr, BLOCK: tl.constexpr, BLOCK_C: tl.constexpr):  # fmt: skip
    """Row (b, y, z) of columns (count, TAPS * C) from x (B, H, W, C): 0 beyond the map.

    Taps are counted along the rows of a kernel of width KW, from `first` on.
    """
    tap = tl.program_id(1)
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    c = tl.program_id(2) * BLOCK_C + tl.arange(0, BLOCK_C)
    b, y, z = row // (h * w), row % (h * w) // w, row % w
    line = y + (first + tap) // KW * down - above
    place = z + (first + tap) % KW * right - beside
    inside = (row < count) & (line >= 0) & (line < H) & (place >= 0) & (place < W)
    seen = ((b * H + line) * W + place).to(tl.int64) * C
    known = inside[:, None] & (c < C)[None, :]
    found = tl.load(x + seen[:, None] + c[None, :], mask=known, other=0.0)
    out = columns + (row.to(tl.int64) * TAPS + tap)[:, None] * C + c[None, :]
    tl.store(out, found, mask=(row < count)[:, None] & (c < C)[None, :])


@triton.jit(do_not_specialize=SIZES)
def add_taps(
        x, columns, C, H, W, h, w, count, first, above, beside, down, right, TAPS: tl.constexpr,
        KW: tl.constexpr, BLOCK: tl.constexpr, BLOCK_C: tl.constexpr):  # fmt: skip
    """Add up in x (B, H, W, C), `count` neurons, what `gather_taps` took from it."""
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    c = tl.program_id(2) * BLOCK_C + tl.arange(0, BLOCK_C)
    b, line, place = row // (H * W), row % (H * W) // W, row % W
    found = tl.zeros((BLOCK, BLOCK_C), tl.float32)
    for tap in range(TAPS):
        y = line + above - (first + tap) // KW * down
        z = place + beside - (first + tap) % KW * right
        inside = (row < count) & (y >= 0) & (y < h) & (z >= 0) & (z < w)
        seen = (((b * h + y) * w + z).to(tl.int64) * TAPS + tap) * C
        known = inside[:, None] & (c < C)[None, :]
        found += tl.load(columns + seen[:, None] + c[None, :], mask=known, other=0.0).to(tl.float32)
    out = x + row.to(tl.int64)[:, None] * C + c[None, :]
    tl.store(out, found, mask=(row < count)[:, None] & (c < C)[None, :])
