"""make docs: collect the pages, build the site, check it, and say which page to open."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

from checks import faults
from pages import ROOT, collect, navigation

from scaseg.errors import UserError


def main(work: Path) -> None:
    """Build into a folder; exit code 1 where something is wrong."""
    shutil.rmtree(work, ignore_errors=True)
    try:
        python = collect(work / "pages")
    except UserError as error:
        sys.exit(f"error: {error}")
    settings = (Path(__file__).parent / "zensical.toml").read_text(encoding="utf-8")
    (work / "zensical.toml").write_text(navigation(settings, work / "pages", python), "utf-8")
    program = [sys.executable, "-m", "zensical", "build", "--strict"]
    built = subprocess.run(program, cwd=work, capture_output=True, text=True)
    if built.returncode != 0:
        said = re.sub(r"\x1b\[[\d;]*m", "", built.stdout + built.stderr)  # colours, for a pipe
        said = said.partition("Traceback")[0].rstrip()
        sys.exit(f"{said}\nerror: {work}: zensical could not build the site; see above")
    if found := faults(work / "html"):
        print(*found, sep="\n", file=sys.stderr)
        sys.exit(f"error: {work / 'html'}: {len(found)} faults; see above")
    print(f"open {work / 'html' / 'index.html'}")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else ROOT / "build" / "docs")
