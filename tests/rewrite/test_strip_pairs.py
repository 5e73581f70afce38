"""Taking Q/DQ out again gives the float model back."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import ModelProto, helper, numpy_helper

from onnxq.pipeline import make_plan
from onnxq.rewrite import strip_pairs
from onnxq_builders.registry import BUILDERS, build
from text_models import quantize_int8, text_model

FAMILIES = ("residual.", "weak.")
NAMES = [name for name in BUILDERS if name.startswith(FAMILIES)]


def run(model: ModelProto, feeds: dict[str, Any]) -> list[np.ndarray]:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


def feeds(model: ModelProto) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        v.name: rng.standard_normal([d.dim_value or 2 for d in v.type.tensor_type.shape.dim], np.float32)
        for v in model.graph.input
    }


@pytest.mark.parametrize("name", NAMES)
def test_stripping_gives_the_prepared_float_model_back(name: str) -> None:
    model = build(name)
    prepared = make_plan(model).prepared.model
    result = quantize_int8(model)
    stripped = strip_pairs(result.model)
    kept = [n for n in prepared.graph.node if n.op_type != "Constant"]
    again = [n for n in stripped.graph.node if n.op_type != "Constant"]
    assert [(n.name, n.op_type, list(n.output)) for n in again] == [(n.name, n.op_type, list(n.output)) for n in kept]
    for field in ("input", "output"):
        assert [v.SerializeToString() for v in getattr(stripped.graph, field)] == [
            v.SerializeToString() for v in getattr(prepared.graph, field)
        ]
    assert quantize_int8(stripped).placement.to_text(explain=True) == result.placement.to_text(explain=True)


@pytest.mark.parametrize("name", ["residual.projection", "residual.silu", "weak.detection", "weak.stale_rank0_output"])
def test_the_stripped_model_computes_the_same_bits(name: str) -> None:
    model = build(name)
    prepared = make_plan(model).prepared.model
    feed = feeds(model)
    for a, b in zip(run(prepared, feed), run(strip_pairs(quantize_int8(model).model), feed), strict=True):
        np.testing.assert_array_equal(a, b)


def test_the_given_model_is_left_alone() -> None:
    model = quantize_int8(build("residual.identity")).model
    before = model.SerializeToString(deterministic=True)
    strip_pairs(model)
    assert model.SerializeToString(deterministic=True) == before


def test_a_model_without_pairs_stays_as_it_is() -> None:
    model = build("residual.identity")
    stripped = strip_pairs(model)
    assert [n.SerializeToString() for n in stripped.graph.node] == [n.SerializeToString() for n in model.graph.node]


def test_a_stored_int8_weight_becomes_float_again() -> None:
    model = text_model("y = Conv(x, w)", w=(16, 16, 1, 1))
    steps = np.arange(256, dtype=np.int16).astype(np.int8).reshape(16, 16, 1, 1)
    scale = np.linspace(0.1, 1, 16, dtype=np.float32)
    graph = model.graph
    del graph.initializer[:]
    graph.initializer.extend(
        [
            numpy_helper.from_array(steps, "w_q"),
            numpy_helper.from_array(scale, "s"),
            numpy_helper.from_array(np.zeros(16, np.int8), "z"),
        ]
    )
    graph.node.insert(0, helper.make_node("DequantizeLinear", ["w_q", "s", "z"], ["w"], axis=0))
    stripped = strip_pairs(model)
    assert [n.op_type for n in stripped.graph.node] == ["Conv"]
    feed = feeds(model)
    np.testing.assert_array_equal(run(model, feed)[0], run(stripped, feed)[0])


@pytest.mark.parametrize(
    ("shape", "scale", "axis"),
    [((16,), (), None), ((16,), (1,), None), ((16, 4), (4,), -1), ((16, 4), (16,), 0), ((), (), None)],
)
def test_stored_integers_of_every_form(shape: tuple[int, ...], scale: tuple[int, ...], axis: int | None) -> None:
    """One scale may be a scalar or a list of one, whose axis then means nothing."""
    rng = np.random.default_rng(0)
    model = text_model("v = DequantizeLinear(q, s) y = Add(x, v)", "float[16,4] x", "float y", q=shape, s=scale or (1,))
    stored = rng.integers(-100, 100, shape, np.int32) if shape else np.int32(7)
    scales = rng.random(scale, np.float32) if scale else np.float32(0.3)
    for tensor, values in zip(model.graph.initializer, (stored, scales), strict=True):
        tensor.CopyFrom(numpy_helper.from_array(np.asarray(values), tensor.name))
    if axis is not None:
        model.graph.node[0].attribute.append(helper.make_attribute("axis", axis))
    stripped = strip_pairs(model)
    assert [n.op_type for n in stripped.graph.node] == ["Add"]
    along = np.asarray(scales).reshape((-1, 1) if axis == 0 else np.asarray(scales).shape)
    (value,) = (numpy_helper.to_array(t) for t in stripped.graph.initializer)
    np.testing.assert_allclose(value, stored * along, rtol=1e-6)
    assert value.shape == shape


def test_a_pair_before_a_graph_output_goes_too() -> None:
    model = text_model("a = Conv(x, w1) y = Relu(a)")
    graph = model.graph
    graph.node[-1].output[0] = "raw"
    graph.initializer.extend([numpy_helper.from_array(np.float32(0.1), "s"), numpy_helper.from_array(np.int8(0), "z")])
    graph.node.append(helper.make_node("QuantizeLinear", ["raw", "s", "z"], ["q"]))
    graph.node.append(helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"]))
    stripped = strip_pairs(model)
    assert [n.op_type for n in stripped.graph.node if n.op_type != "Identity"] == ["Conv", "Relu"]
    assert [v.name for v in stripped.graph.output] == ["y"]
    onnx.checker.check_model(stripped, full_check=True)
    assert run(stripped, feeds(model))


def test_dead_nodes_and_unused_inputs_stay() -> None:
    model = text_model("a = Conv(x, w1) d = Relu(a) y = Tanh(a)", "float[1,16,8,8] x, float[3] unused")
    stripped = strip_pairs(quantize_int8(model).model)
    assert [n.op_type for n in stripped.graph.node] == ["Conv", "Relu", "Tanh"]
    assert [v.name for v in stripped.graph.input] == ["x", "unused"]


def test_bodies_custom_ops_functions_and_metadata_stay() -> None:
    body = """s = custom.Op(x) a = Conv(s, w1)
        y = If(c) <then_branch = t () => (float[1,16,8,8] p) { p = Neg(a) },
                   else_branch = e () => (float[1,16,8,8] q) { q = custom.Op(a) }>"""
    model = text_model(body, "float[1,16,8,8] x, bool c")
    model.graph.value_info.append(helper.make_tensor_value_info("s", 1, [1, 16, 8, 8]))
    model.metadata_props.add(key="author", value="someone")
    function = helper.make_function(
        "custom", "Op", ["i"], ["o"], [helper.make_node("Relu", ["i"], ["o"])], [helper.make_opsetid("", 17)]
    )
    model.functions.append(function)
    stripped = strip_pairs(quantize_int8(model).model)
    assert [n.op_type for n in stripped.graph.node] == ["Op", "Conv", "If"]
    assert stripped.graph.node[0].domain == "custom"
    assert [p.key for p in stripped.metadata_props] == ["author"]
    assert [f.name for f in stripped.functions] == ["Op"]
    assert {o.domain: o.version for o in stripped.opset_import} == {"": 17, "custom": 1}
    feed = {"x": np.ones((1, 16, 8, 8), np.float32), "c": np.array(False)}
    np.testing.assert_array_equal(run(model, feed)[0], run(stripped, feed)[0])
