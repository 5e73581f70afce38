"""Real networks under policy onnxruntime: every convolution is an integer kernel, and the result close to float."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from test_quantized_real_models import MODELS

import onnxq
from onnxq.invariants import check
from onnxq.numerics import output_sqnr, run_model
from onnxruntime_graphs import optimized_ops

FLOAT_AT_THE_END = {"densenet121": 1}
"""Convolutions whose result is an output of the graph."""

BOUNDS = {"ocr_direction": 30.0, "file_type": 25.0, "voice_16k": 15.0, "voice_sequence": 5.0}
"""Least SQNR in dB of the models with trained weights, but for the two whose channels differ most in range."""

RUN = [name for name in MODELS if name not in ("voice_if", "voice_ifless")]
"""Those whose convolutions aren't in the branch of an If, where the optimized graph tells little."""


@pytest.mark.parametrize("name", RUN)
def test_every_convolution_is_an_integer_kernel(name: str) -> None:
    expected = MODELS[name]
    if expected.path is None:
        pytest.skip(f"{expected.package} isn't installed")
    model, rng = onnx.load(expected.path), np.random.default_rng(0)
    feeds = [expected.feed(rng) for _ in range(3)]
    result = onnxq.quantize(expected.path, policy="onnxruntime", calibration_data=feeds[:2])
    assert not check(model, result.model, policy="onnxruntime")
    ops = optimized_ops(result.model)
    assert ops["QLinearConv"] == sum(node.op_type == "Conv" for node in model.graph.node) - FLOAT_AT_THE_END.get(
        name, 0
    )
    assert sum(ops[op] for op in ("FusedConv", "FusedGemm", "FusedMatMul", "Gemm", "MatMul")) == 0, ops
    reference, got = run_model(model, feeds[2:]), run_model(result.model, feeds[2:])
    assert min(output_sqnr(reference, got).values()) >= BOUNDS.get(name, 2.0)
