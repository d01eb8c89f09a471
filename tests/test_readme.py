"""What the README tells people to type works."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def test_its_python_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert blocks
    names = {}
    for block in blocks:  # one after the other, as a reader would
        exec(compile(block, "README.md", "exec"), names)


def test_its_commands_exist_and_ci_runs_its_tests():
    makefile = (ROOT / "Makefile").read_text()
    commands = re.findall(r"^make (\S+)", README, re.MULTILINE)
    assert "test" in commands
    for target in commands:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    assert "make test\n" in (ROOT / ".ci" / "run").read_text()


def test_its_links_lead_somewhere():
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md"):
        for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
            if not target.startswith("http"):
                assert (ROOT / target).exists(), target
