"""Tensors written and read again, whatever their strides."""

from __future__ import annotations

from pathlib import Path

import torch

from scaseg.io.tensors import read_tensors, write_tensors


def test_a_single_element_may_have_any_stride(tmp_path: Path) -> None:
    # a bias of one channel, as cuDNN leaves its gradient in a channels_last network
    bias = torch.empty_strided((1,), (9,)).fill_(0.5)
    assert bias.is_contiguous()
    assert bias.stride() == (9,)
    write_tensors(tmp_path / "state.safetensors", {"bias": bias}, {})
    tensors, _ = read_tensors(tmp_path / "state.safetensors", signed=True)
    assert torch.equal(tensors["bias"], bias)
