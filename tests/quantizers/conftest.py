from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

from onnxq.quantizers import Quantizer, Settings, resolve

MakeTool = Callable[..., Quantizer]


@pytest.fixture
def make_tool(tmp_path: Path) -> MakeTool:
    """A quantizer that is a script; its arguments are the paths of input, output, calibration and options."""

    def make(body: str, *, time_limit: float = 60.0, more: str = "{calibration} {options}") -> Quantizer:
        script = tmp_path / "a tool.py"
        script.write_text("import sys\nsource, target, *rest = sys.argv[1:]\n" + dedent(body), encoding="utf-8")
        line = f"fake=command:'{sys.executable}' '{script}' {{input}} {{output}} {more}"
        return resolve(line, Settings(time_limit=time_limit))

    return make


@pytest.fixture
def bare_python(tmp_path: Path) -> str:
    """A Python without any package."""
    script = tmp_path / "bare-python"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S -E "$@"\n')
    script.chmod(0o755)
    return str(script)
