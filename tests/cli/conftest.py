from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import onnx
import pytest

import onnxq_builders
from onnxq.cli import main


@dataclass(frozen=True)
class Run:
    """What one run of the command line gave."""

    status: int
    out: str
    err: str


@pytest.fixture
def onnxq(capsys, tmp_path, monkeypatch) -> Callable[[str], Run]:
    """Runs `onnxq ...` in a folder that holds `float.onnx`: a ConvTranspose, and a residual block of two Convs."""
    monkeypatch.chdir(tmp_path)
    onnx.save(onnxq_builders.convtranspose_conv_residual(), tmp_path / "float.onnx")

    def run(line: str) -> Run:
        capsys.readouterr()
        status = main(line.split())
        out, err = capsys.readouterr()
        return Run(status, out, err)

    return run
