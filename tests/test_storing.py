"""`dq_only`: weights stored as integers compute the same as weights behind a QuantizeLinear, to the last bit."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, helper, numpy_helper

from onnxq.calibration import evaluate_constants
from onnxq.invariants import check
from onnxq.model_io import load_model
from onnxq.numerics import run_model
from onnxq.pipeline import quantize
from onnxq.rewrite import strip_pairs
from onnxq.storing import quantized, store_integers
from onnxq.strategies import LabelledModel, residual_models
from text_models import text_model

FLOAT_FOR_CPU = {"high_precision_dtype": "fp32"}


def feeds(model: ModelProto) -> list[dict[str, NDArray[Any]]]:
    rng, stored = np.random.default_rng(3), {t.name for t in model.graph.initializer}
    shapes = {
        v.name: [d.dim_value or 2 for d in v.type.tensor_type.shape.dim]
        for v in model.graph.input
        if v.name not in stored
    }
    return [{name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}]


def both(model: ModelProto, **options: Any) -> tuple[ModelProto, ModelProto]:
    """Quantized with pairs, and with integers."""
    return quantize(model, **options).model, quantize(model, dq_only=True, **options).model


def assert_same_outputs(pairs: ModelProto, integers: ModelProto) -> None:
    given_feeds = feeds(pairs)
    (before,), (after,) = run_model(pairs, given_feeds), run_model(integers, given_feeds)
    assert before.keys() == after.keys()
    for name, value in before.items():
        np.testing.assert_array_equal(value, after[name], strict=True)


def stored(model: ModelProto) -> Mapping[str, TensorProto]:
    return {tensor.name: tensor for tensor in model.graph.initializer}


def weights_with_q(model: ModelProto) -> list[str]:
    """Constants that a QuantizeLinear of the main graph reads."""
    known = stored(model)
    return [n.input[0] for n in model.graph.node if n.op_type == "QuantizeLinear" and n.input[0] in known]


def ops(model: ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


@pytest.mark.parametrize("policy", ["tensorrt", "onnxruntime"])
@settings(max_examples=8, deadline=None)
@given(residual_models(max_blocks=5))
def test_any_model_computes_the_same(policy: str, labelled: LabelledModel) -> None:
    pairs, integers = both(labelled.model, policy=policy, **FLOAT_FOR_CPU)
    assert_same_outputs(pairs, integers)
    assert set(weights_with_q(integers)) <= {value.name for value in integers.graph.input}
    assert not check(labelled.model, integers, policy=policy)


@pytest.mark.parametrize("half", ["fp16", "bf16"])
@pytest.mark.parametrize(
    "body", ["y = Conv(x, w1, b1)", "t = Transpose<perm=[1,0,2,3]>(w1) y = Conv<pads=[1,1,1,1]>(x, t)"]
)
def test_half_precision_weights_are_rounded_as_the_runtime_does(half: str, body: str) -> None:
    pairs, integers = both(text_model(body), high_precision_dtype=half)
    (node,) = [n for n in pairs.graph.node if n.op_type == "QuantizeLinear" and n.input[0] not in ("x", f"x_{half}")][
        -1:
    ]
    dequantize = next(
        n for n in integers.graph.node if n.op_type == "DequantizeLinear" and n.input[0] in stored(integers)
    )
    got = numpy_helper.to_array(stored(integers)[dequantize.input[0]])
    assert got.dtype == np.int8
    scale = stored(integers)[dequantize.input[1]]
    assert scale.data_type == {"fp16": TensorProto.FLOAT16, "bf16": TensorProto.BFLOAT16}[half]
    if half == "fp16":  # the runtime's CPU has no QuantizeLinear for the other
        np.testing.assert_array_equal(got, evaluate_constants(pairs, [node.output[0]])[node.output[0]])
    assert not check(text_model(body), integers)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([np.float32, np.float16]),
    st.sampled_from([np.int8, np.uint8]),
    st.integers(0, 2**16),
    st.sampled_from([None, 0, 1, -1]),
)
def test_rounding_is_that_of_the_operator(dtype: Any, integer: Any, seed: int, axis: int | None) -> None:
    rng = np.random.default_rng(seed)
    scale = (rng.random(() if axis is None else (6, 5)[axis]) * 0.1 + 0.01).astype(dtype)
    shape = {None: (), 0: (6, 1), 1: (1, 5), -1: (1, 5)}[axis]
    steps = rng.integers(-300, 300, (6, 5)) / 2  # half of them ties
    values = (steps * scale.reshape(shape)).astype(dtype)
    zero_point = rng.integers(0, 7, scale.shape).astype(integer)
    attributes = {} if axis is None else {"axis": axis}
    node = helper.make_node("QuantizeLinear", ["v", "s", "z"], ["q"], **attributes)
    graph = helper.make_graph(
        [node],
        "g",
        [],
        [helper.make_tensor_value_info("q", helper.np_dtype_to_tensor_dtype(np.dtype(integer)), [6, 5])],
        [numpy_helper.from_array(v, n) for v, n in ((values, "v"), (scale, "s"), (zero_point, "z"))],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    (expected,) = run_model(model, [{}])
    np.testing.assert_array_equal(quantized(values, scale, zero_point, axis), expected["q"], strict=True)


def test_the_file_takes_a_fourth() -> None:
    model = text_model("a = Conv(x, w1) b = Conv(a, w2) y = Conv(b, w3)", w1=(16, 16, 3, 3))
    pairs, integers = both(model, **FLOAT_FOR_CPU)
    floats = sum(len(t.raw_data) for t in model.graph.initializer)
    assert len(integers.SerializeToString()) < len(pairs.SerializeToString()) - 0.7 * floats


def test_the_float_weight_is_kept_for_a_float_reader() -> None:
    model = text_model("a = Conv(x, w1) e = Exp(w1) m = ReduceMax<keepdims=0>(e) y = Mul(a, m)")
    pairs, integers = both(model, **FLOAT_FOR_CPU)
    assert {"w1", "w1_quantized"} <= stored(integers).keys()
    assert_same_outputs(pairs, integers)


def test_a_weight_that_is_an_output_stays_one() -> None:
    model = text_model("y = Conv(x, w1)", outputs="float[1,16,8,8] y, float[16,16,3,3] w1")
    pairs, integers = both(model, **FLOAT_FOR_CPU)
    assert stored(integers)["w1"] == stored(model)["w1"]
    assert_same_outputs(pairs, integers)


def test_a_weight_with_two_axes_is_stored_for_each() -> None:
    model = text_model(
        "a = Gemm(x, w1) b = Gemm<transB=1>(a, w1) y = Relu(b)", "float[4,32] x", "float[4,32] y", w1=(32, 32)
    )
    pairs, integers = both(model, **FLOAT_FOR_CPU)
    names = [name for name in stored(integers) if "quantized" in name]
    assert len(names) == 2
    assert "w1" not in stored(integers)
    assert_same_outputs(pairs, integers)
    assert not check(model, integers)


def test_a_shared_weight_is_stored_once() -> None:
    pairs, integers = both(text_model("a = Conv(x, w1) y = Conv(a, w1)"), **FLOAT_FOR_CPU)
    assert [name for name in stored(integers) if "quantized" in name] == ["w1_quantized"]
    assert_same_outputs(pairs, integers)


def test_what_is_computed_of_constants_goes_with_them() -> None:
    model = text_model("t = Transpose<perm=[1,0,2,3]>(w1) u = Neg(t) y = Conv<pads=[1,1,1,1]>(x, u)")
    pairs, integers = both(model, **FLOAT_FOR_CPU)
    assert {"Transpose", "Neg"} <= set(ops(pairs))
    assert not {"Transpose", "Neg"} & set(ops(integers))
    assert "w1" not in stored(integers)
    assert_same_outputs(pairs, integers)
    assert not check(model, integers)


def test_what_else_reads_it_keeps_a_computed_weight() -> None:
    body = "t = Transpose<perm=[1,0,2,3]>(w1) a = Conv<pads=[1,1,1,1]>(x, t) m = ReduceMax<keepdims=0>(t) y = Mul(a, m)"
    pairs, integers = both(text_model(body), **FLOAT_FOR_CPU)
    assert "Transpose" in ops(integers)
    assert_same_outputs(pairs, integers)


def test_a_weight_in_a_body_is_stored_there_and_a_captured_one_too() -> None:
    body = """
        a = Relu(x)
        y = If(p) <
            then_branch = t () => (float[1,16,8,8] u) { u = Conv<pads=[1,1,1,1]>(a, w1) },
            else_branch = e () => (float[1,16,8,8] v) { v = Conv<pads=[1,1,1,1]>(a, w2) }
        >
    """
    model = text_model(body, "bool p, float[1,16,8,8] x")
    for name in ("w1", "w2"):
        values = np.random.default_rng(1).standard_normal((16, 16, 3, 3), np.float32)
        model.graph.initializer.append(numpy_helper.from_array(values, name))
    rng = np.random.default_rng(0)
    samples = [{"p": np.array(p), "x": rng.standard_normal((1, 16, 8, 8), np.float32)} for p in (True, False)]
    pairs, integers = both(model, calibration_data=samples, **FLOAT_FOR_CPU)
    assert not {"w1", "w2"} & stored(integers).keys()
    branches = [a.g for n in integers.graph.node for a in n.attribute if n.op_type == "If"]
    assert [sum(t.name.endswith("_quantized") for t in g.initializer) for g in branches] == [1, 1]
    for before, after in zip(run_model(pairs, samples), run_model(integers, samples), strict=True):
        np.testing.assert_array_equal(before["y"], after["y"])


def test_a_weight_that_the_caller_may_override_keeps_its_q() -> None:
    model = text_model("a = Conv(x, w1) y = Conv(a, w2)")
    model.graph.input.append(helper.make_tensor_value_info("w1", TensorProto.FLOAT, [16, 16, 3, 3]))
    _, integers = both(model, **FLOAT_FOR_CPU)
    assert weights_with_q(integers) == ["w1"]
    assert "w1" in [v.name for v in integers.graph.input]


def test_names_and_order_of_operands_change_nothing() -> None:
    plain, renamed = (
        text_model(body, inputs=f"float[1,16,8,8] {x}", outputs=f"float[1,16,8,8] {y}", **{w: (16, 16, 3, 3)})
        for body, x, y, w in (
            ("a = Conv(x, w1) y = Add(a, x)", "x", "y", "w1"),
            ("q = Conv(in, wq) out = Add(in, q)", "in", "out", "wq"),
        )
    )
    renamed.graph.initializer[0].raw_data = plain.graph.initializer[0].raw_data
    found = [quantize(model, dq_only=True, **FLOAT_FOR_CPU).model for model in (plain, renamed)]
    assert ops(found[0]) == ops(found[1])
    assert stored(found[0])["w1_quantized"].raw_data == stored(found[1])["wq_quantized"].raw_data


def test_stripping_gives_the_rounded_weights_back() -> None:
    pairs, integers = both(text_model("y = Conv(x, w1)"), **FLOAT_FOR_CPU)
    stripped = strip_pairs(integers)
    (conv,) = stripped.graph.node
    weight = numpy_helper.to_array(stored(stripped)[conv.input[1]])
    dequantized = next(n.output[0] for n in pairs.graph.node if n.output[0].startswith("w1_Dequantize"))
    np.testing.assert_array_equal(weight, evaluate_constants(pairs, [dequantized])[dequantized])
    again = quantize(stripped, dq_only=True, **FLOAT_FOR_CPU).model
    assert ops(again) == ops(integers)


def test_a_quantized_model_can_be_stored_smaller_afterwards() -> None:
    pairs, integers = both(text_model("y = Conv(x, w1)"), **FLOAT_FOR_CPU)
    kept = quantize(pairs, on_quantized="keep", dq_only=True, **FLOAT_FOR_CPU).model
    assert ops(kept) == ops(integers)
    assert_same_outputs(integers, kept)


def test_storing_twice_changes_nothing() -> None:
    _, integers = both(text_model("y = Conv(x, w1)"), **FLOAT_FOR_CPU)
    again = ModelProto()
    again.CopyFrom(integers)
    store_integers(again)
    assert again == integers


@pytest.mark.parametrize("attributes", [{"block_size": 4, "axis": 1}, {"output_dtype": TensorProto.INT4}])
def test_what_numpy_or_the_rounding_here_cant_serve_keeps_its_q(attributes: dict[str, int]) -> None:
    shape = (4, 2) if "block_size" in attributes else ()
    nodes = [
        helper.make_node("QuantizeLinear", ["w", "s"], ["q"], **attributes),
        helper.make_node("DequantizeLinear", ["q", "s"], ["d"], **{k: v for k, v in attributes.items() if k[0] != "o"}),
        helper.make_node("MatMul", ["x", "d"], ["y"]),
    ]
    floats = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [4, 4 if n == "x" else 8]) for n in "xy"]
    weights = [numpy_helper.from_array(np.ones(s, np.float32), n) for n, s in (("w", (4, 8)), ("s", shape))]
    graph = helper.make_graph(nodes, "g", floats[:1], floats[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    before = model.SerializeToString()
    store_integers(model)
    assert model.SerializeToString() == before


def test_weights_in_a_file_beside_the_model(tmp_path: Path) -> None:
    model = text_model("a = Conv(x, w1) y = Conv(a, w2)")
    inside = quantize(model, dq_only=True, **FLOAT_FOR_CPU).model
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, size_threshold=0)
    quantize(tmp_path / "m.onnx", dq_only=True, output_path=tmp_path / "q.onnx", **FLOAT_FOR_CPU)
    assert_same_outputs(inside, load_model(tmp_path / "q.onnx"))
