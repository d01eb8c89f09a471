"""The pages of the site: those in docs/, what they include, and those made from the code."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from api import api_pages
from formulae import with_mathml

from scaseg.comparison.tables import markdown_table
from scaseg.config.recipe import describe
from scaseg.errors import UserError

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
OPS = ROOT / "src" / "scaseg" / "ops" / "README.md"
CARD = ROOT / "src" / "scaseg" / "builtin" / "outdoor" / "README.md"
# whole pages that lie where they belong in the code
TAKEN = {CARD: DOCS / "builtin_model.md"}
# files of the repository that the site has under another name
ELSEWHERE = {OPS: DOCS / "mathematics.md", ROOT / "README.md": DOCS / "index.md", **TAKEN}
ASSETS = {".jpg", ".png", ".svg", ".csv", ".json", ".yaml", ".css", ".js"}
LINK = re.compile(
    r"(?P<code>^```.*?^```|`[^`\n]+`(?!\]))|(!?)\[([^\]\n]*)\]\(([^)\s]+)\)", re.S | re.M
)


def collect(pages: Path) -> list[str]:
    """Write all pages and pictures into a folder; give the names of the Python pages."""
    for source in sorted(path for path in DOCS.rglob("*") if path.is_file()):
        inside = source.relative_to(DOCS)
        if inside.parts[0] == "site":
            inside = Path(*inside.parts[1:])  # style and script
        target = pages / inside
        if source.suffix == ".md":
            _write(target, _finished(source.read_text(encoding="utf-8"), source))
        elif source.suffix in ASSETS:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)
    for source, page in TAKEN.items():
        text = relinked(_without_front_matter(source.read_text(encoding="utf-8")), source, page)
        _write(pages / page.relative_to(DOCS), with_mathml(text))
    made = api_pages()
    for name, text in made.items():
        _write(pages / "api" / f"{name}.md", text)
    return list(made)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _finished(text: str, source: Path) -> str:
    text = relinked(text, source, source)
    for name, made in {
        "settings": _settings,
        "data sets": _data_sets,
        "the derivation": _derivation,
    }.items():
        marker = f"<!-- site: {name} -->"
        if marker in text:
            text = text.replace(marker, made())
    return with_mathml(text)


def _without_front_matter(text: str) -> str:
    """A page without the lines that the Hugging Face hub reads."""
    return re.sub(r"\A---\n.*?\n---\n+", "", text, flags=re.DOTALL)


def _settings() -> str:
    """Every key of a recipe, a table a section."""
    sections: dict[str, list[list[str]]] = {}
    for key, value, fits, about in describe():
        shown = "null" if value is None else str(list(value) if isinstance(value, tuple) else value)
        cells = (f"`{key}`", f"`{shown}`", f"{about}<br><small>{fits}</small>")
        row = [cell.replace("|", "\\|") for cell in cells]
        sections.setdefault(key.partition(".")[0], []).append(row)
    head = ["key", "by default", "what for"]
    parts = (f"\n## {name}\n\n{markdown_table(head, rows)}" for name, rows in sections.items())
    return "".join(parts).rstrip()


def _data_sets() -> str:
    """What `scaseg data list` says, as a table."""
    program = [sys.executable, "-m", "scaseg.cli", "data", "list", "--json"]
    forms = json.loads(subprocess.run(program, capture_output=True, check=True).stdout)
    rows = ([f"`{name}`", form] for name, form in forms.items())
    return markdown_table(["name", "what it is expected to be"], rows).rstrip()


def _derivation() -> str:
    """src/scaseg/ops/README.md without its title, which the page has already."""
    text = OPS.read_text(encoding="utf-8")
    return relinked(text.partition("\n")[2], OPS, DOCS / "mathematics.md")


def relinked(text: str, source: Path, page: Path) -> str:
    """Point links at the site's pages; what the site does not have becomes plain text."""

    def replace(found: re.Match[str]) -> str:
        if found["code"] is not None:
            return found["code"]
        picture, label, target = found.groups()[1:]
        if re.match(r"[a-z]+:|#", target):
            return found[0]
        path, _, anchor = target.partition("#")
        meant = (source.parent / path).resolve()
        if meant.parent == DOCS / "api":
            return found[0]  # made below; the finished site is checked
        if not meant.exists():
            where = source.relative_to(ROOT)
            raise UserError(where, f"the link {target} leads nowhere", "correct it")
        meant = ELSEWHERE.get(meant, meant)
        on_the_site = DOCS in meant.parents and (meant.is_file() or meant in TAKEN.values())
        if not on_the_site or (meant == page and not anchor):
            return label
        there = Path(os.path.relpath(meant, page.parent)).as_posix()
        return f"{picture}[{label}]({there}{'#' + anchor if anchor else ''})"

    return LINK.sub(replace, text)


def navigation(settings: str, pages: Path, python: list[str]) -> str:
    """Complete the navigation: the Python pages, and without pages that nobody has written yet."""
    return "\n".join(_navigation_lines(settings, pages, python)) + "\n"


def _navigation_lines(settings: str, pages: Path, python: list[str]) -> Iterator[str]:
    for line in settings.splitlines():
        entry = re.fullmatch(r'\s*\{ "[^"]+" = "([^"]+)" \},.*', line)
        if entry is not None and entry[1] == "api/":
            yield '  { "Python" = ['
            for name in python:
                title = name if name == "scaseg" else f"scaseg.{name}"
                yield f'    {{ "{title}" = "api/{name}.md" }},'
            yield "  ] },"
        elif entry is None or (pages / entry[1]).is_file():
            yield line
