"""The page of the explorer: served, or one HTML file with scripts, styles and pictures in it."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

STATIC = files("scaseg.explorer") / "static"
# in the order in which they import each other
MODULES = (
    *("arrays.js", "maps.js", "colors.js", "stage.js", "keep.js", "address.js", "app.js"),
    "embedded.js",
)


def export_page(payloads: Sequence[dict[str, Any]]) -> str:
    """Return a page with these pictures (by `picture_payload`) that works from a disk."""
    script = bundle(MODULES)
    style = (STATIC / "style.css").read_text(encoding="utf-8")
    rules = "default-src 'none'; img-src data: blob:; base-uri 'none'; form-action 'none'"
    rules += f"; script-src {_hash(script)}; style-src {_hash(style)}"
    # JSON inside a page: "<" could end the script
    data = json.dumps(payloads, separators=(",", ":")).replace("<", "\\u003c")
    head = f'<meta http-equiv="Content-Security-Policy" content="{rules}">\n'
    head += f"<title>scaseg explorer</title>\n<style>{style}</style>"
    end = f'<script type="application/json" id="data">{data}</script>\n'
    end += f'<script type="module">{script}</script>'
    page = (STATIC / "page.html").read_text(encoding="utf-8")
    return page.replace("<!-- head -->", head).replace("<!-- end -->", end)


def server_page() -> str:
    """Return the page that a server gives, which fetches its parts from there."""
    head = '<title>scaseg explorer</title>\n<link rel="stylesheet" href="/static/style.css">'
    end = '<script type="module" src="/static/server.js"></script>'
    page = (STATIC / "page.html").read_text(encoding="utf-8")
    return page.replace("<!-- head -->", head).replace("<!-- end -->", end)


def bundle(modules: Sequence[str]) -> str:
    """Join modules into one script: a page from a disk may not import others."""
    parts = []
    for name in modules:
        text = (STATIC / name).read_text(encoding="utf-8")
        text = re.sub(r"^import \{[^}]*\} from \"[^\"]*\";\n", "", text, flags=re.MULTILINE)
        parts.append(re.sub(r"^export ", "", text, flags=re.MULTILINE))
    return "\n".join(parts)


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
