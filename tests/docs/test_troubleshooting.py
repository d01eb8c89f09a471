"""Every message that the page explains can be found in the source."""

import ast
import re

import pytest

from tests.docs.pages import ROOT

PAGE = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
MESSAGES = re.findall(r"^\*\*`(.+)`\*\*$", PAGE, re.MULTILINE)


def texts_of(source):
    """All texts of a file but docstrings, with … for what is filled in."""
    tree = ast.parse(source)
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if id(node) in docstrings:
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.JoinedStr):
            yield "".join(
                part.value if isinstance(part, ast.Constant) else "…" for part in node.values
            )


@pytest.fixture(scope="module")
def texts():
    files = (ROOT / "src" / "scaseg").rglob("*.py")
    return [text for file in files for text in texts_of(file.read_text(encoding="utf-8"))]


def parts_of(message):
    """Problem and remedies, which errors carry apart; their place is a name, or filled in."""
    place, colon, rest = message.partition(": ")
    return (rest if colon else place).split("; ")


def holds(text, part):
    """Whether the fixed pieces of a part of a message stand in a text, in their order."""
    fixed = [re.escape(piece) for piece in part.split("…")]
    return re.search(".*".join(fixed), text, re.DOTALL) is not None


def test_messages_are_found():
    assert len(MESSAGES) >= 30
    assert len(set(MESSAGES)) == len(MESSAGES)


@pytest.mark.parametrize("message", MESSAGES)
def test_the_message_exists(message, texts):
    for part in parts_of(message):
        assert any(holds(text, part) for text in texts), part


def test_each_is_explained():
    for part in PAGE.split("\n**`")[1:]:
        message, _, rest = part.partition("`**\n")
        assert len(rest.split("\n## ")[0].split("\n**`")[0].split()) >= 8, message
