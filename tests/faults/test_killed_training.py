"""The short version of kill_training.py: three kills."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_three_kills(tmp_path):
    command = [sys.executable, "-m", "tests.faults.kill_training", "--kills", "3"]
    done = subprocess.run(
        [*command, "--epochs", "14", "--folder", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=900,
        cwd=Path(__file__).parents[2],
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["kills"] == 3
    assert found["torn"] == []
    assert found["lost"] == 0
    assert found["same_weights"]
