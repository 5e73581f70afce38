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


@pytest.fixture
def quantized(onnxq) -> str:
    """The same model, quantized, the rest in float32."""
    assert onnxq("quantize -q float.onnx -o quantized.onnx --high_precision_dtype fp32").status == 0
    return "quantized.onnx"


@pytest.fixture
def both_inputs(quantized) -> str:
    """The fault that the project began with: both inputs of the Add are quantized."""
    model = onnx.load(quantized)
    scale, zero_point = next(n.input[1:] for n in model.graph.node if n.op_type == "QuantizeLinear")
    (add,) = (n for n in model.graph.node if n.op_type == "Add")
    at = list(model.graph.node).index(add)
    trunk = next(name for name in add.input if name == "bn2")
    pair = (
        onnx.helper.make_node("QuantizeLinear", [trunk, scale, zero_point], ["trunk_q"], "q"),
        onnx.helper.make_node("DequantizeLinear", ["trunk_q", scale, zero_point], ["trunk_dq"], "dq"),
    )
    add.input[list(add.input).index(trunk)] = "trunk_dq"
    for node in reversed(pair):
        model.graph.node.insert(at, node)
    onnx.save(model, "both.onnx")
    return "both.onnx"
