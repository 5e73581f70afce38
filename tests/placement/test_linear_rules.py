"""P1 and P6: which inputs of linear ops are quantized, and along which axis a weight has its scales."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper
from onnx.parser import parse_model

from onnxq.placement import Decision
from text_models import placed, quantized_inputs, rules, text_model


def decisions(model: ModelProto, output: str = "y", op_types: list[str] | None = None) -> dict[int, Decision]:
    placement = placed(model, op_types_to_quantize=op_types)
    return {e.input: d for e, d in placement.items() if placement.labels[e].output == output}


def axes(
    body: str, inputs: str, *, op_types: list[str] | None = None, **shapes: tuple[int, ...]
) -> dict[int, int | None]:
    """Input position -> axis, of the quantized inputs of the node that yields y."""
    found = decisions(text_model(body, inputs, "float y", **shapes), op_types=op_types)
    return {slot: d.axis for slot, d in found.items() if d.quantize}


@pytest.mark.parametrize(
    ("body", "inputs", "shapes", "expected"),
    [
        ("y = Conv(x, w)", "float[1,16,8,8] x", {"w": (32, 16, 3, 3)}, {0: None, 1: 0}),
        ("y = Conv(x, w, b)", "float[1,16,8,8] x", {"w": (16, 16, 3, 3)}, {0: None, 1: 0}),
        ("y = Conv<group = 16>(x, w)", "float[1,16,8,8] x", {"w": (16, 1, 3, 3)}, {0: None, 1: 0}),
        ("y = Conv(x, w)", "float[1,16,8] x", {"w": (32, 16, 3)}, {0: None, 1: 0}),
        ("y = ConvTranspose(x, w)", "float[1,16,8,8] x", {"w": (16, 32, 3, 3)}, {0: None, 1: 1}),
        ("y = ConvTranspose<group = 4>(x, w)", "float[1,16,8,8] x", {"w": (16, 8, 3, 3)}, {0: None, 1: 1}),
        ("y = Gemm(x, w)", "float[4,32] x", {"w": (32, 48)}, {0: None, 1: 1}),
        ("y = Gemm(x, w, b)", "float[4,32] x", {"w": (32, 48), "b": (48,)}, {0: None, 1: 1}),
        ("y = Gemm<transB = 1>(x, w)", "float[4,32] x", {"w": (48, 32)}, {0: None, 1: 0}),
        ("y = Gemm<transA = 1>(x, w)", "float[32,4] x", {"w": (32, 48)}, {0: None, 1: 1}),
        ("y = Gemm(w, x)", "float[32,20] x", {"w": (48, 32)}, {0: 0, 1: None}),
        ("y = Gemm<transA = 1>(w, x)", "float[32,20] x", {"w": (32, 48)}, {0: 1, 1: None}),
        ("y = MatMul(x, w)", "float[4,32] x", {"w": (32, 48)}, {0: None, 1: 1}),
        ("y = MatMul(x, w)", "float[2,4,32] x", {"w": (32, 48)}, {0: None, 1: 1}),
        ("y = MatMul(x, w)", "float[2,4,32] x", {"w": (2, 32, 48)}, {0: None, 1: 2}),
        ("y = MatMul(x, w)", "float[3,2,4,32] x", {"w": (3, 2, 32, 48)}, {0: None, 1: 3}),
        ("y = MatMul(w, x)", "float[32,20] x", {"w": (48, 32)}, {0: 0, 1: None}),
        ("y = MatMul(w, x)", "float[2,32,20] x", {"w": (2, 48, 32)}, {0: 1, 1: None}),
        ("y = MatMul(x, z)", "float[4,32] x, float[32,48] z", {}, {0: None, 1: None}),
        ("y = Gemm(x, z)", "float[4,32] x, float[32,48] z", {}, {0: None, 1: None}),
    ],
)
def test_axis_of_each_linear_form(
    body: str, inputs: str, shapes: dict[str, tuple[int, ...]], expected: dict[int, int | None]
) -> None:
    assert axes(body, inputs, **shapes) == expected


@pytest.mark.parametrize(
    ("body", "inputs", "shapes", "expected"),
    [
        ("y = MatMul(x, w)", "float[4,32] x", {"w": (32,)}, {0: None, 1: None}),
        ("y = MatMul(w, x)", "float[32,4] x", {"w": (32,)}, {0: None, 1: None}),
        ("y = MatMul(x, w)", "float[32] x", {"w": (32, 48)}, {0: None, 1: 1}),
    ],
)
def test_axis_of_a_product_with_a_vector_that_was_asked_for(
    body: str, inputs: str, shapes: dict[str, tuple[int, ...]], expected: dict[int, int | None]
) -> None:
    assert axes(body, inputs, **shapes) == {}
    assert axes(body, inputs, op_types=["MatMul"], **shapes) == expected


def test_the_bias_stays_float() -> None:
    model = text_model("y = Conv(x, w1, b1)")
    assert quantized_inputs(model) == {"y": ["x", "w1"]}


def test_a_weight_that_is_computed_from_constants_is_a_weight() -> None:
    model = text_model("v = Mul(w1, c1) i = Identity(v) y = Conv(x, i)")
    assert decisions(model)[1] == Decision(True, decisions(model)[1].reason, constant=True, axis=0)


def test_a_weight_from_a_constant_node_is_a_weight() -> None:
    model = text_model("y = Conv(x, w1)")
    weight = model.graph.initializer.pop()
    model.graph.node.insert(0, helper.make_node("Constant", [], ["w1"], value=weight))
    assert decisions(model)[1].axis == 0
    assert decisions(model)[1].constant


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("v = Mul(w1, m) m = ReduceMax<keepdims = 0>(x) y = Conv(x, v)", "no constant"),
        ("v = Mul(w1, m) m = ReduceMax<keepdims = 0>(x) y = ConvTranspose(x, v)", "no constant"),
        ("y = Conv(w2, w1)", "constants only"),
    ],
)
def test_what_keeps_a_convolution_float(body: str, says: str) -> None:
    found = decisions(text_model(body + " z = Relu(x)", outputs="float y, float z"))
    assert not any(d.quantize for d in found.values())
    assert says in found[1].reason.detail


def test_a_weight_with_two_readers_has_the_axis_of_each() -> None:
    model = text_model(
        "a = MatMul(x, w) y = Gemm<transB = 1>(x, w)", "float[4,32] x", "float[4,32] a, float[4,32] y", w=(32, 32)
    )
    assert decisions(model, "a")[1].axis == 1
    assert decisions(model, "y")[1].axis == 0


def test_half_precision_is_quantized() -> None:
    model = text_model("y = Conv(x, w1)", "float16[1,16,8,8] x", "float16[1,16,8,8] y", dtype=np.float16)
    assert quantized_inputs(model) == {"y": ["x", "w1"]}


@pytest.mark.parametrize(
    ("name", "dtype"), [("double", np.float64), ("bfloat16", ml_dtypes.bfloat16)], ids=["double", "bfloat16"]
)
def test_other_floats_stay_float_and_say_so(name: str, dtype: type) -> None:
    model = parse_model(
        f"""<ir_version: 10, opset_import: ["": 22]> g ({name}[1,16,8,8] x) => ({name}[1,16,8,8] y) {{
            a = Conv(x, k1) y = Add(a, x) }}"""
    )
    model.graph.initializer.append(numpy_helper.from_array(np.ones((16, 16, 1, 1), np.float32).astype(dtype), "k1"))
    assert not quantized_inputs(model)
    found = decisions(model, "a")
    assert {d.reason.rule.name for d in found.values()} == {"P6"}
    assert name in found[0].reason.detail
    assert rules(model)["y", 1] == "P6"


def test_an_empty_tensor_stays_float() -> None:
    model = text_model("y = MatMul(x, w)", "float[4,32] x", "float[4,0] y", w=(32, 0))
    assert "input 1 has no elements" in decisions(model)[0].reason.detail
    assert not quantized_inputs(model)


def test_integer_matmul_has_no_decision() -> None:
    model = text_model("i = Cast<to = 6>(x) y = MatMul(i, i)", "float[4,4] x", "int32[4,4] y")
    assert "y" not in {label.output for label in placed(model).labels.values()}


def test_a_custom_op_called_conv_is_no_convolution() -> None:
    model = text_model("a = custom.Conv(x, w1) y = Conv(x, w1)", outputs="float a, float y")
    assert list(quantized_inputs(model)) == ["y"]


def test_int8_input_to_a_convolution_is_no_crash() -> None:
    model = text_model("c = Cast<to = 1>(x) y = Conv(c, w1)", "int8[1,16,8,8] x")
    assert quantized_inputs(model) == {"y": ["c", "w1"]}
    assert model.graph.input[0].type.tensor_type.elem_type == TensorProto.INT8
