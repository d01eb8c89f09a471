"""FSDP: each process keeps a share of the weights, the gradients and the optimizer's state.

torch's `fully_shard`, started by Lightning's launchers. Not Lightning's own: FSDPStrategy
refuses CPUs, where this is tested, and to clip gradients; both it and ModelParallelStrategy save
past CheckpointIO, as pickles. What is saved here is whole, and the same as without FSDP.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from lightning_utilities.core.apply_func import apply_to_collection
from pytorch_lightning.strategies import DDPStrategy
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.optim import Optimizer

from scaseg.config.run import RunConfig
from scaseg.errors import UserError
from scaseg.models.build import build_model
from scaseg.models.segmenter import Segmenter


def require_shardable(run: RunConfig) -> None:
    """Refuse what does not go together with FSDP."""
    machine, training = run.machine, run.training
    unfit = {
        "machine.precision": (machine.precision, machine.precision == "16", "use bf16 or 32"),
        "machine.channels_last": ("true", machine.channels_last is True, "leave it out"),
        "training.on_nan": (training.on_nan, training.most_skips > 0, "use stop"),
    }
    for key, (value, is_unfit, remedy) in unfit.items():
        if machine.strategy == "fsdp" and is_unfit:
            raise UserError(f"--{key}", f"{value} does not go with --machine.strategy fsdp", remedy)


class ShardedStrategy(DDPStrategy):
    """Lightning's DDP, with shares of the network in the place of copies."""

    def configure_ddp(self) -> None:
        """Divide the network, whose weights are there by now, also those of a resumed run."""
        assert self.lightning_module is not None
        shard(self.lightning_module.model)  # type: ignore[arg-type]

    def lightning_module_state_dict(self) -> dict[str, Any]:
        return whole(super().lightning_module_state_dict())

    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Any]:
        return whole(super().optimizer_state(optimizer))

    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        """Take this process's shares of states that are whole."""
        shares = []
        for optimizer, saved in zip(self.optimizers, checkpoint["optimizer_states"], strict=True):
            weights = [weight for group in optimizer.param_groups for weight in group["params"]]
            state = {
                number: {name: _share(value, weights[number]) for name, value in own.items()}
                for number, own in saved["state"].items()
            }
            shares.append({**saved, "state": state})
        super().load_optimizer_state_dict({"optimizer_states": shares})


def shard(model: Segmenter) -> None:
    """Divide each part of a network that learns over all processes.

    In a step its weights are gathered once, before the forward pass, and kept until gradients are
    there: auxiliary classifiers may reach into a part from outside.
    """
    mesh = init_device_mesh(model.device.type, (torch.distributed.get_world_size(),))
    for part in (model.backbone, model.context, model.head):
        if any(weight.requires_grad for weight in part.parameters()):
            fully_shard(part, mesh=mesh, reshard_after_forward=False)
    if isinstance(model.backbone, FSDPModule):
        register_fsdp_forward_method(model.backbone, "pyramid")


def unshard(model: Segmenter) -> None:
    """Gather all weights, until `reshard`: processes that validate do not wait for each other.

    Statistics of norms are those of the first process, as DDP has it.
    """
    for part in _parts(model):
        part.unshard()
    if _parts(model):
        for buffer in model.buffers():
            torch.distributed.broadcast(buffer, 0)


def reshard(model: Segmenter) -> None:
    """Keep this process's shares alone."""
    for part in _parts(model):
        part.reshard()


def gathered(model: Segmenter) -> Segmenter:
    """The network itself, or, of one that is divided, a whole copy; all processes must call."""
    if not _parts(model):
        return model
    state = whole(model.state_dict())
    copy = build_model(model.config)
    copy.load_state_dict(state)
    return copy


def whole(state: Any) -> Any:
    """A state with whole tensors in the place of shares, on the CPU; all processes must call."""
    return apply_to_collection(state, DTensor, lambda share: share.full_tensor().cpu())


def local(tensor: Tensor) -> Tensor:
    """The share of this process, or all of a tensor that is whole."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _share(value: Any, weight: Tensor) -> Any:
    if not (isinstance(weight, DTensor) and isinstance(value, Tensor) and value.dim()):
        return value
    value = value.to(weight.device)  # each process has read all of it
    return distribute_tensor(value, weight.device_mesh, weight.placements, src_data_rank=None)


def _parts(model: Segmenter) -> list[FSDPModule]:
    return [part for part in model.children() if isinstance(part, FSDPModule)]
