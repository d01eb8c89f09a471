"""Runs that take seconds: the smallest network, on scenes of 32 x 40 pixels."""

from scaseg.config.recipe import load_recipe

TINY = {
    "model.backbone": "tiny",
    "model.context_options.hidden": "8",
    "training.batch_size": "2",
    "machine.device": "cpu",
    "machine.workers": "0",
}


def settings(root, base=TINY, **keys):
    """A run on the scenes of a folder; training__epochs=3 is the key training.epochs."""
    more = {key.replace("__", "."): str(value) for key, value in keys.items()}
    return load_recipe(None, {**base, "data.root": str(root), **more})
