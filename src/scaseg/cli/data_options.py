"""The dataset of `scaseg data check`, `look` and `fix`: its folder, and how its labels are read."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from functools import partial
from pathlib import Path
from typing import Any

from scaseg.cli.options import add_max_pixels
from scaseg.cli.parser import Parser, add_option
from scaseg.cli.settings import read_overrides, typed_options
from scaseg.errors import UserError
from scaseg.registry import DATASETS

LABEL_OPTIONS = ("classes", "label_map", "reduce_zero_label", "ignore_index")
DATASET_OPTIONS = (*LABEL_OPTIONS, "bands", "max_pixels")
KEYS = {name: f"data.{name}" for name in ("name", *DATASET_OPTIONS)}  # as `train` calls them

# options of formats: the value's name, the help. A dataset lists those that it takes in `options`.
FORMAT_OPTIONS = {
    "classes_file": ("FILE", "class names, with colours where labels are colours"),
    "uncovered": ("CLASS", "what no shape covers: background (if not given) or unlabelled"),
    "image_column": ("NAME", "the column of photographs, in tables"),
    "label_column": ("NAME", "the column of label maps, in tables"),
    "image_suffix": ("END", "how the names of photographs end: _leftImg8bit.png"),
    "label_suffix": ("END", "how the names of label maps end: _mask.png"),
    "unknown_colors": ("WHAT", "colours of no class: error, ignore or nearest (error)"),
}


def format_options(options: argparse.Namespace) -> dict[str, str]:
    """Return those options of formats that were given."""
    given = {name: getattr(options, name) for name in FORMAT_OPTIONS}
    return {name: value for name, value in given.items() if value is not None}


def add_dataset(parser: Parser) -> None:
    """DIR, --name, and how labels are read."""
    parser.add_argument("folder", type=Path, metavar="DIR", help="the folder of the dataset")
    about = "which dataset it is, see `scaseg data list` (as recognized)"
    add_option(parser, "--name NAME", about)
    add_labels(parser)
    parser.set_defaults(reads_keys=tuple(KEYS.values()))  # as the report's advice names them


def add_labels(parser: Parser) -> None:
    """--label-map, --reduce-zero-label, --ignore-index, --classes, --max-pixels, of formats."""
    option = partial(add_option, parser)
    about = "values renamed on reading, in YAML or JSON: '{255: 1}' for binary masks (train "
    about += "calls it --data.label_map, and so with the other options)"
    option("--label-map MAP", about)
    about = "0 is unlabelled, and every other class one less"
    option("--reduce-zero-label", about, action="store_const", const="true")
    option("--ignore-index N", "the value of unlabelled pixels on disk (255)", type=str)
    option("--bands N", "bands of an image, TIFF or .npy (photographs: RGB)", type=str)
    option("--classes A,B,...", "class names, if no file has them", type=_names)
    add_max_pixels(parser)
    group = parser.add_argument_group("options of some formats")
    for name, (metavar, about) in FORMAT_OPTIONS.items():
        add_option(group, f"--{name.replace('_', '-')} {metavar}", about)


def read_dataset(options: argparse.Namespace) -> tuple[Any, dict[str, Any]]:
    """Return the class of the dataset and its options.

    Without --name the format is recognized: `options.recognized` is a list of what fits a folder
    that is not in our own form, and `options.folder` where the only one of them lies.
    """
    from scaseg.config.recipe import load_recipe
    from scaseg.data.datasets.recognition import recognize

    overrides = read_overrides(options, KEYS)
    with typed_options(options, KEYS):
        data = load_recipe(None, overrides).data
    if data.is_generated:
        raise UserError("--name", f"{data.name} is generated", "there are no files to check")
    options.recognized = [] if "data.name" in overrides else recognize(options.folder)
    name = data.name
    if len(options.recognized) == 1:
        name, options.folder, _ = options.recognized[0]
    if name == "shards":
        remedy = "check the folder that they are written from; train reads the first samples"
        if options.recognized:
            raise UserError(options.folder, "holds shards", remedy)
        raise UserError("--name", "shards", remedy)
    dataset = DATASETS[name].configured(**format_options(options))
    return dataset, {name: getattr(data, name) for name in DATASET_OPTIONS}


def read_labels(options: argparse.Namespace) -> dict[str, Any]:
    """Return the options of a dataset that say how labels are read, those that were given."""
    from scaseg.config.recipe import load_recipe

    keys = {name: f"data.{name}" for name in DATASET_OPTIONS}
    overrides = read_overrides(options, keys)
    with typed_options(options, keys):
        data = load_recipe(None, overrides).data
    return {name: getattr(data, name) for name, key in keys.items() if key in overrides}


def as_typed(options: argparse.Namespace) -> str:
    """Return the options of `add_labels` that were given, to be pasted into another command."""
    words = []
    for name in (*DATASET_OPTIONS, *FORMAT_OPTIONS):
        if (value := getattr(options, name)) is not None:
            text = ",".join(json.loads(value)) if name == "classes" else str(value)
            words.append(f"--{name.replace('_', '-')}")
            words += [] if name == "reduce_zero_label" else [shlex.quote(text)]
    for key, text in options.config_keys.items():
        if key != "data.name":
            words += [f"--{key}", shlex.quote(text)]
    return " ".join(words)


def print_text(text: str) -> None:
    """Print what the terminal can show: file names may hold anything."""
    if text:
        encoding = sys.stdout.encoding or "ascii"
        print(text.encode(encoding, "backslashreplace").decode(encoding))


def _names(text: str) -> str:
    """Turn names separated by commas into the list that a recipe would have."""
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise UserError("", repr(text), "give names separated by commas")
    return json.dumps(names)
