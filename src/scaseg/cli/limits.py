"""--max-pixels, for every command that opens image files."""

from __future__ import annotations

import argparse

from scaseg.cli.parser import positive


def add_max_pixels(parser: argparse._ActionsContainer) -> None:
    """Describe the option; without it, scaseg.data.decode.files.MAX_PIXELS holds."""
    parser.add_argument(
        "--max-pixels",
        type=positive,
        metavar="N",
        help="larger images are refused before they are decoded (250 million)",
    )
