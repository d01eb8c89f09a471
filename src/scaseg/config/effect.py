"""A setting that does nothing beside the others is an error (one that no command reads: keys.py).

Only what is typed is refused (an option, an override in Python). A recipe is complete: it has
every key, and one serves several commands, contexts and optimizers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from scaseg.config.run import RunConfig
from scaseg.errors import UserError
from scaseg.registry import BACKBONES, CONTEXTS, require_taken

WITH_MOMENTUM = ("sgd", "rmsprop")  # of torch.optim
OPTIONS, BACKBONE_OPTIONS = "model.context_options", "model.backbone_options"


def require_effect(
    run: RunConfig, keys: Iterable[str], contexts: Sequence[str] | None = None
) -> None:
    """Refuse keys that were typed and do nothing beside the run's other settings.

    contexts: those that are compared, one of which must take an option (None: the run's own).
    """
    contexts = contexts or [run.model.context]
    without = dict(_without_effect(run))
    if not any(CONTEXTS[name].score_parts for name in contexts if name in CONTEXTS):
        why = f"{', '.join(contexts)} learns no coefficients (Context.score_parts)"
        without["training.score_lr_factor"] = why
    for key in keys:
        if key in without:
            raise UserError(f"--{key}", f"has no effect: {without[key]}", "leave it out")
        if key == OPTIONS or key.startswith(f"{OPTIONS}."):
            typed = [key.removeprefix(f"{OPTIONS}.")]
            names = run.model.context_options if key == OPTIONS else typed
            require_taken(names, contexts, f"--{OPTIONS}.")
        if key == BACKBONE_OPTIONS or key.startswith(f"{BACKBONE_OPTIONS}."):
            typed = [key.removeprefix(f"{BACKBONE_OPTIONS}.")]
            names = run.model.backbone_options if key == BACKBONE_OPTIONS else typed
            require_taken(names, [run.model.backbone], f"--{BACKBONE_OPTIONS}.", BACKBONES)


def _without_effect(run: RunConfig) -> Iterator[tuple[str, str]]:
    """The keys that do nothing in a run, and why."""
    data, augment, training = run.data, run.augment, run.training
    if data.bands is not None:
        for key in ("saturation", "hue"):
            yield f"augment.{key}", "data.bands are no colours"
    if augment.crop is None and (augment.fit is None or augment.scale is not None):
        yield "augment.fill", "images of a batch have no common size; give augment.crop"
    if data.name != "shards":
        for key in ("fields", "shuffle_buffer", "shard_cache"):
            yield f"data.{key}", f"data.name is {data.name}, not shards"
    elif data.root is None or "://" not in data.root:
        yield "data.shard_cache", "shards on this machine are read where they are"
    if data.cache != "disk" and data.name != "shards":
        yield "data.cache_dir", f"data.cache is {data.cache}"
    if data.is_generated:
        for key in ("max_pixels", "check"):
            yield f"data.{key}", f"{data.name} is generated"
    if data.val is None:
        for key in ("early_stop", "validate_every"):
            yield f"training.{key}", "data.val is null, nothing is validated"
        yield "data.hold_out", "data.val is null, nothing is validated"
    elif data.val != "auto":
        yield "data.hold_out", f"data.val is {data.val}, nothing is held out"
    if run.model.start_from is not None:
        yield "training.calibrate", "the head is that of --start-from"
    elif run.model.head == "pyramid":
        yield "training.calibrate", "the head pyramid has norms"
    if training.class_weights == "none":
        yield "training.class_weight_range", "training.class_weights is none"
    if training.freeze_backbone:
        yield "training.batch_norm", "the backbone is frozen"
        yield "training.layer_decay", "the backbone is frozen"
        if training.head_lr is not None:
            yield "training.lr", "the backbone is frozen, and training.head_lr is given"
    if training.optimizer.lower() not in WITH_MOMENTUM:
        yield "training.momentum", f"{training.optimizer} has none"
