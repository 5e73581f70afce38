"""`direct_io_types`: inputs and outputs that have the type of what stands behind them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto

from onnxq.invariants import check
from onnxq.numerics import direct_feeds, output_sqnr, real_outputs, run_model
from onnxq.pipeline import QuantizationResult, quantize
from onnxq.placement import SelectionOptions
from onnxq.rewrite import integer_interface, strip_pairs, take_integers
from onnxq.strategies import LabelledModel, residual_models
from text_models import text_model

T = "float[1,16,8,8]"
FLOAT, HALF, INT8, UINT8 = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.INT8, TensorProto.UINT8


def types(model: ModelProto) -> dict[str, int]:
    stored = {t.name for t in model.graph.initializer}
    values = (*model.graph.input, *model.graph.output)
    return {v.name: v.type.tensor_type.elem_type for v in values if v.name not in stored}


def feeds(model: ModelProto) -> list[dict[str, Any]]:
    rng, stored = np.random.default_rng(2), {t.name for t in model.graph.initializer}
    return [
        {
            v.name: rng.standard_normal([d.dim_value or 2 for d in v.type.tensor_type.shape.dim], np.float32)
            for v in model.graph.input
            if v.name not in stored
        }
    ]


def direct(model: ModelProto, **options: Any) -> QuantizationResult:
    """Quantized, and checked against the same without the option: the border is all that differs."""
    options = {"high_precision_dtype": "fp32", **options}
    found = quantize(model, direct_io_types=True, **options)
    selection = SelectionOptions(quantize_outputs=options.get("quantize_outputs", False))
    policy = options.get("policy", "tensorrt")
    assert not check(model, found.model, policy=policy, selection=selection, direct_io_types=True)
    samples = feeds(model)
    results = real_outputs(found.model, run_model(found.model, direct_feeds(found.model, samples)))
    if options["high_precision_dtype"] == "fp32":
        plain = run_model(quantize(model, **options).model, samples)
        assert plain[0].keys() == results[0].keys()
        for name, value in plain[0].items():
            np.testing.assert_array_equal(value, results[0][name])
    else:
        assert min(output_sqnr(run_model(model, samples), results).values()) > 20
    return found


def test_an_input_that_only_a_q_reads_is_integers() -> None:
    found = direct(text_model("y = Conv(x, w1)"))
    assert types(found.model) == {"x": INT8, "y": FLOAT}
    assert found.integers["x"].zero_point == 0
    seen = found.ranges["x"]
    assert found.integers["x"].scale == pytest.approx(max(abs(seen.low), abs(seen.high)) / 127)


def test_for_the_cpu_it_has_the_type_of_its_activations() -> None:
    model = text_model("a = Conv(x, w1) y = Softmax(a)")
    assert types(direct(model, policy="onnxruntime", quantize_outputs=True).model) == {"x": UINT8, "y": FLOAT}
    model = text_model("a = Conv(x, w1) b = Conv(a, w2) y = Softmax(b)")
    assert types(direct(model, policy="onnxruntime").model) == {"x": UINT8, "y": FLOAT}
    assert types(direct(model, policy="onnxruntime", activation_type="int8").model) == {"x": INT8, "y": FLOAT}


@pytest.mark.parametrize(
    "body", ["a = Conv(x, w1) s = Sigmoid(x) y = Mul(a, s)", "a = Conv(x, w1) s = Sigmoid(x) y = Mul(s, a)"]
)
def test_an_input_that_a_float_op_reads_too_is_half(body: str) -> None:
    assert types(direct(text_model(body)).model) == {"x": FLOAT, "y": FLOAT}
    assert types(direct(text_model(body), high_precision_dtype="fp16").model) == {"x": HALF, "y": HALF}


def test_a_skip_from_the_input_shares_its_pair() -> None:
    assert types(direct(text_model("a = Conv(x, w1) y = Add(a, x)")).model)["x"] == INT8
    assert types(direct(text_model("a = Conv(x, w1) y = Add(x, a)")).model)["x"] == INT8


def test_without_quantized_outputs_these_are_half() -> None:
    found = direct(text_model("y = Conv(x, w1)"), high_precision_dtype="fp16")
    assert types(found.model) == {"x": INT8, "y": HALF}
    assert "Cast" not in [n.op_type for n in found.model.graph.node]


@pytest.mark.parametrize("half", ["fp32", "fp16"])
def test_quantized_outputs_are_integers(half: str) -> None:
    model = text_model("a = Conv(x, w1) y = Relu(a)")
    found = direct(model, quantize_outputs=True, high_precision_dtype=half)
    assert types(found.model) == {"x": INT8, "y": INT8}
    assert found.integers.keys() == {"x", "y"}
    assert [n.op_type for n in found.model.graph.node].count("DequantizeLinear") == 2  # of x, and of the weight


def test_an_output_that_is_read_inside_is_dequantized_for_that() -> None:
    model = text_model("a = Conv(x, w1) y = Relu(a) z = Conv(y, w2)", outputs=f"{T} y, {T} z")
    found = direct(model, quantize_outputs=True, dq_only=True)
    assert types(found.model) == {"x": INT8, "y": INT8, "z": INT8}
    assert [n.op_type for n in found.model.graph.node if n.op_type == "QuantizeLinear"] == ["QuantizeLinear"] * 2


def test_an_input_that_is_an_output_stays_float() -> None:
    assert types(direct(text_model("y = Conv(x, w1)", outputs=f"{T} y, {T} x")).model)["x"] == FLOAT


def test_an_input_that_a_body_reads_stays_float() -> None:
    body = """
        a = Conv(x, w1)
        s = If(p) <then_branch = t () => (float[1,16,8,8] u) { u = Relu(x) },
                   else_branch = e () => (float[1,16,8,8] v) { v = Exp(x) }>
        y = Mul(a, s)
    """
    model = text_model(body, f"bool p, {T} x")
    samples = [{"p": np.array(True), **feeds(text_model("y = Relu(x)"))[0]}]
    found = quantize(model, direct_io_types=True, high_precision_dtype="fp32", calibration_data=samples)
    assert types(found.model) == {"p": TensorProto.BOOL, "x": FLOAT, "y": FLOAT}


def test_names_don_t_matter() -> None:
    found = direct(text_model("out = Conv(x_QuantizeLinear_Output, w1)", f"{T} x_QuantizeLinear_Output", f"{T} out"))
    assert types(found.model) == {"x_QuantizeLinear_Output": INT8, "out": FLOAT}


def test_shapes_and_symbols_stay() -> None:
    model = text_model("y = Conv(x, w1)", "float[N,16,H,W] x", "float[N,16,H,W] y")
    found = quantize(model, direct_io_types=True, quantize_outputs=True, calibration_shapes={"x": (1, 16, 8, 8)}).model
    for before, after in zip(
        (*model.graph.input, *model.graph.output), (*found.graph.input, *found.graph.output), strict=True
    ):
        assert before.type.tensor_type.shape == after.type.tensor_type.shape


def test_keep_io_types_false_is_no_contradiction() -> None:
    model = text_model("y = Conv(x, w1)")
    one = quantize(model, direct_io_types=True, keep_io_types=False).model
    assert one.graph == quantize(model, direct_io_types=True).model.graph
    assert types(quantize(model, keep_io_types=False).model) == {"x": HALF, "y": HALF}


@pytest.mark.parametrize("policy", ["tensorrt", "onnxruntime"])
@settings(max_examples=8, deadline=None)
@given(residual_models(max_blocks=4, node_names=("unique",)), st.booleans(), st.booleans())
def test_any_model_computes_the_same_behind_the_border(
    policy: str, labelled: LabelledModel, outputs: bool, dq_only: bool
) -> None:
    direct(labelled.model, policy=policy, quantize_outputs=outputs, dq_only=dq_only)


def test_stripping_gives_floats_back() -> None:
    model = text_model("a = Conv(x, w1) y = Relu(a) z = Conv(y, w2)", outputs=f"{T} y, {T} z")
    stripped = strip_pairs(direct(model, quantize_outputs=True).model)
    assert types(stripped) == types(model)
    assert [n.op_type for n in stripped.graph.node] == [n.op_type for n in model.graph.node]


def test_taking_integers_twice_changes_nothing() -> None:
    found = direct(text_model("y = Conv(x, w1)"), quantize_outputs=True).model
    before = found.SerializeToString()
    take_integers(found)
    assert found.SerializeToString() == before


def test_the_invariant_asks_for_parameters() -> None:
    model = text_model("y = Conv(x, w1)")
    found = direct(model).model
    assert [v.where for v in check(model, found)] == ['input "x"']
    found.graph.output[0].type.tensor_type.elem_type = INT8
    assert 'output "y"' in [v.where for v in check(model, found, direct_io_types=True, only=["io-preserved"])]
    assert integer_interface(model) == {}
