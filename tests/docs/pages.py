"""README, the pages of docs/ and the jobs for a GPU, and the code that they show."""

import re
import shlex
from pathlib import Path

ROOT = Path(__file__).parents[2]
CARDS = sorted((ROOT / "src" / "scaseg" / "builtin").rglob("README.md"))  # of models
JOBS = ROOT / "benchmarks" / "gpu"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *CARDS, JOBS / "README.md"]
WRITTEN = [page for page in PAGES if page.name != "log.md"]  # the log tells of what was, too


def named(page):
    return str(page.relative_to(ROOT))


def without_code(text):
    return re.sub(r"^```.*?^```|`[^`\n]*`(?!\])", "", text, flags=re.DOTALL | re.MULTILINE)


def python_blocks(text):
    return re.findall(r"^```python\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)


def command_lines(text):
    """Every line that begins with scaseg: in blocks (with its continuations) and in a line."""
    blocks = re.findall(r"^```(?:sh|console)\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    blocks += re.findall(r"(?:^ {4}.*\n)+", text, flags=re.MULTILINE)
    for block in blocks:
        for line in block.replace("\\\n", " ").splitlines():
            command = re.fullmatch(r"\s*(?:\$ )?(scaseg .*)", line)
            if command:
                yield shlex.split(command[1], comments=True)
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    for command in re.findall(r"`(scaseg [^`\n]+)`", prose):
        yield shlex.split(command)


def script_commands(text):
    """Every command of scaseg in a shell script; a variable without a default is cpu, or 7.

    What a function is given beside (`"${@:2}"`, an array) is left out.
    """
    text = re.sub(r'"\$\{(@|\w+\[@\])[^}]*\}"', "", text.replace("\\\n", " "))
    text = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text)
    text = re.sub(r"\$\([^()]*\)|\$\w+", "7", text.replace("$DEVICE", "cpu"))
    for command in re.findall(r"^ *(scaseg .*?)(?: &)?$", text, flags=re.MULTILINE):
        yield shlex.split(command, comments=True)
