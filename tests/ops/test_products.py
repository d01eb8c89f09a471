"""Products and attention as a CPU predicts them, against the obvious ones, both ways."""

import pytest
import torch
import torch.nn.functional as F

from scaseg.ops import attention, products
from scaseg.ops.attention import dot_coefficients, dot_context
from scaseg.ops.products import pointwise, product
from tests.ops.cases import relative_error

NEAR = {"rtol": 1e-5, "atol": 2e-5}
SIZES = [(1, 1), (2, 3), (63, 2), (331, 64), (1201, 700)]


@pytest.fixture(params=[True, False], ids=["convolutions", "products"])
def way(request, monkeypatch):
    monkeypatch.setattr(products, "prefers_convolutions", lambda: request.param)
    return request.param


@pytest.mark.parametrize("rows", [0, 1, 2, 63, 331, 1024])
@pytest.mark.parametrize("columns", [0, 1, 7, 320])
def test_products(way, rows, columns):
    for inner in (1, 64, 97):
        left, right = torch.randn(rows, inner), torch.randn(inner, columns).mT
        found = product(left, right)
        assert found.shape == (rows, columns)
        torch.testing.assert_close(found.double(), left.double() @ right.double().mT, **NEAR)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("size", [(1, 1), (3, 5), (40, 31)])
def test_pointwise(way, size, bias):
    x = torch.randn(2, 24, *size).contiguous(memory_format=torch.channels_last)
    x.requires_grad_()
    leaves = [x, torch.randn(7, 24, 1, 1, requires_grad=True)]
    leaves += [torch.randn(7, requires_grad=True)] if bias else []
    found, expected = pointwise(*leaves), F.conv2d(*(one.double() for one in leaves))
    torch.testing.assert_close(found.double(), expected, **NEAR)
    grad = torch.randn_like(found)
    pairs = zip(
        torch.autograd.grad(found, leaves, grad),
        torch.autograd.grad(expected, leaves, grad.double()),
        strict=True,
    )
    for one, other in pairs:
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("targets", "sources"), SIZES)
@pytest.mark.parametrize("masked", [False, True])
def test_attention_by_slices(way, targets, sources, masked, monkeypatch):
    monkeypatch.setattr(attention, "MOST", 5000)  # so that there are several
    query, key = torch.randn(2, targets, 16), torch.randn(2, sources, 16)
    values, mask = torch.randn(2, 9, sources).mT, None
    if masked:
        mask = torch.rand(2, sources) < 0.5
        mask[1] = False  # nothing at all: zeros
        values = values.masked_fill(~mask.unsqueeze(-1), torch.nan)  # and nobody reads these
    with torch.no_grad():
        found = dot_context(query, key, values, source_mask=mask)
    fused = dot_context(query.requires_grad_(), key, values, source_mask=mask)
    assert fused.requires_grad
    torch.testing.assert_close(found, fused.detach(), **NEAR)
    share = dot_coefficients(query.detach().double(), key.double(), source_mask=mask)
    assert relative_error(found.double(), share @ values.nan_to_num().double()) < 1e-5


def test_which_attention_is_sliced():
    query = torch.randn(1, 5, 4)
    wide = [query.double()] * 3
    assert not attention._in_slices(query, query, query)  # gradients
    with torch.no_grad():
        assert attention._in_slices(query, query, query)
        assert not attention._in_slices(*wide)
        assert not attention._in_slices(*(one.to("meta") for one in wide))
        with torch.autocast("cpu", torch.bfloat16):
            assert not attention._in_slices(query, query, query)
        inner = torch.func.vmap(lambda one: one * attention._in_slices(one, one, one))
        assert not inner(query).any()


@pytest.mark.parametrize(
    ("capability", "processor", "prefers"),
    [("AVX512", "AMD EPYC", True), ("AVX512", "Intel(R) Xeon(R)", False), ("AVX2", "AMD", False)],
)
def test_which_processors_prefer_convolutions(capability, processor, prefers, monkeypatch):
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    monkeypatch.setattr(products, "_processor", lambda: processor)
    there = torch.backends.mkl.is_available() and torch.backends.mkldnn.is_available()
    assert products.prefers_convolutions.__wrapped__() == (prefers and there)
