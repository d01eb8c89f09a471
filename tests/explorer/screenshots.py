"""The screenshots of the docs: python -m tests.explorer.screenshots docs/images [--png]

The built-in model on its first example, two points pinned, at three widths, light and dark.
"""

import argparse
from pathlib import Path

from tests.explorer.browser import open_page
from tests.explorer.test_explore import running

SIZES = ((360, 740), (1280, 900), (2560, 1300))
VIEW = "#pins=400,250;187,209"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--png", action="store_true", help="not as JPEG")
    options = parser.parse_args()
    kind = {"type": "png"} if options.png else {"type": "jpeg", "quality": 75}
    with running() as address:
        for size in SIZES:
            for theme in ("light", "dark"):
                with open_page(address + VIEW, size=size, color_scheme=theme) as page:
                    page.wait_for_selector("#pins > li")
                    page.wait_for_timeout(300)
                    path = (
                        options.folder
                        / f"explorer_{size[0]}_{theme}.{'png' if options.png else 'jpg'}"
                    )
                    page.screenshot(path=path, **kind)


if __name__ == "__main__":
    main()
