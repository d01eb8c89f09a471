"""Completion as the shells do it; zsh takes bash's script through bashcompinit."""

import shutil
import subprocess

import pytest

from scaseg.cli import COMMANDS, main


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    place = tmp_path_factory.mktemp("completion")

    def write(shell):
        from contextlib import redirect_stdout

        path = place / shell
        with path.open("w") as file, redirect_stdout(file):
            main(["completion", shell])
        return path

    return write


def complete(script, *words, cwd=None):
    """What bash would offer for the last of the words."""
    typed = " ".join(f"'{word}'" for word in ("scaseg", *words))
    code = (
        f"source {script('bash')}; COMP_WORDS=({typed}); COMP_CWORD={len(words)}; _scaseg; "
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, cwd=cwd)
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash(script, tmp_path):
    assert complete(script, "") == [*COMMANDS, "--help", "--version"]
    assert complete(script, "ex") == ["explain", "explore", "export"]
    assert complete(script, "predict", "--over") == ["--overlay", "--overlap", "--overwrite"]
    assert complete(script, "predict", "a.jpg", "--device", "c") == ["cpu", "cuda"]
    assert complete(script, "predict", "--model", "out") == ["outdoor"]
    assert complete(script, "data", "che") == ["check"]
    assert "--workers" in complete(script, "data", "check", "--w")
    assert complete(script, "train", "own") == ["own_folder"]
    assert complete(script, "completion", "f") == ["fish"]
    (tmp_path / "photo.jpg").touch()
    assert complete(script, "predict", "pho", cwd=tmp_path) == ["photo.jpg"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts_are_scripts(shell, script):
    text = script(shell).read_text()
    assert ("complete -c scaseg" if shell == "fish" else "_scaseg scaseg") in text
    if shutil.which(shell):
        subprocess.run([shell, "-n", str(script(shell))], check=True)


def test_another_shell_is_refused(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["completion", "tcsh"])
    assert capsys.readouterr().err == "error: SHELL: 'tcsh'; give one of bash, zsh, fish\n"
