"""What onnxruntime's own quantizer makes is read without a crash, in all the forms that it writes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto

from onnxq.invariants import check
from onnxq.rewrite import strip_pairs
from onnxq_builders.registry import build

quantization = pytest.importorskip("onnxruntime.quantization")


def quantize_static(model: ModelProto, folder: Path, **options: Any) -> ModelProto:
    feeds = {
        v.name: np.random.default_rng(0).standard_normal(
            [d.dim_value or 1 for d in v.type.tensor_type.shape.dim], np.float32
        )
        for v in model.graph.input
    }

    class Reader(quantization.CalibrationDataReader):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            self.samples: Iterator[dict[str, np.ndarray]] = iter([feeds])

        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(self.samples, None)

    onnx.save(model, folder / "float.onnx")
    quantization.quantize_static(
        folder / "float.onnx",
        folder / "quantized.onnx",
        Reader(),
        quant_format=quantization.QuantFormat.QDQ,
        activation_type=quantization.QuantType.QInt8,
        weight_type=quantization.QuantType.QInt8,
        **options,
    )
    return onnx.load(folder / "quantized.onnx")


SYMMETRIC = {"ActivationSymmetric": True, "WeightSymmetric": True}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"per_channel": True, "extra_options": SYMMETRIC},
        {"extra_options": {**SYMMETRIC, "DedicatedQDQPair": True}},
        {"extra_options": {**SYMMETRIC, "AddQDQPairToWeight": True}},
        {"op_types_to_quantize": ["Conv", "Add"], "extra_options": SYMMETRIC},
    ],
    ids=["default", "per channel", "dedicated", "pairs on weights", "Conv and Add"],
)
def test_residual_block(tmp_path: Path, options: dict[str, Any]) -> None:
    model = build("residual.identity", batch_norm=False)
    result = quantize_static(model, tmp_path, **options)
    found = {v.invariant for v in check(model, result)}
    assert "residual-skip-only" in found
    known = {"residual-skip-only", "outputs-float", "operators-preserved"}  # it drops a Relu before an asymmetric Q
    assert found <= known
    assert "residual-skip-only" not in {v.invariant for v in check(model, result, policy="onnxruntime")}


@pytest.mark.filterwarnings("ignore")
def test_a_scale_that_takes_the_name_of_a_parameter_is_found(tmp_path: Path) -> None:
    """The scale of the tensor "bn2" would be called like the batch norm's parameter "bn2_scale", and is mixed up."""
    model = build("residual.identity", batch_norm=True)
    for tensor in model.graph.initializer:
        tensor.name = tensor.name.replace("bn2_gamma", "bn2_scale")
    for node in model.graph.node:
        node.input[:] = [name.replace("bn2_gamma", "bn2_scale") for name in node.input]
    result = quantize_static(model, tmp_path, extra_options=SYMMETRIC)
    assert any('"bn2_' in v.where for v in check(model, result, only=["scales-positive"]))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["residual.convtranspose_conv", "residual.silu", "residual.concat_branch"])
def test_other_builders_do_not_crash(tmp_path: Path, name: str) -> None:
    model = build(name)
    result = quantize_static(model, tmp_path, per_channel=True, extra_options=SYMMETRIC)
    for violation in check(model, result):
        assert str(violation)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("per_channel", [False, True])
def test_stripping_gives_the_float_operators_back(tmp_path: Path, per_channel: bool) -> None:
    model = build("residual.projection", batch_norm=False)
    stripped = strip_pairs(quantize_static(model, tmp_path, per_channel=per_channel, extra_options=SYMMETRIC))
    operators = [sorted((n.op_type, *n.output) for n in m.graph.node) for m in (model, stripped)]
    assert operators[0] == operators[1]
    assert not check(model, stripped)
