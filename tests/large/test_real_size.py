"""The real thing, of 2.5 GiB. Minutes long, so it only runs when it is asked for: `pytest -m slow tests/large`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "large_model.py"


@pytest.mark.slow
def test_no_command_holds_the_weights_twice(tmp_path: Path) -> None:
    ended = subprocess.run([sys.executable, SCRIPT, "--folder", tmp_path], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "worst: " in ended.stdout
    assert not list(tmp_path.iterdir())
