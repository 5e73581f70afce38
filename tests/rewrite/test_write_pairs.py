"""Writing Q/DQ: once per tensor and axis, on the edges of the placement and on no other."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import ModelProto, helper, numpy_helper

from text_models import quantize_int8, text_model


def run(model: ModelProto, feeds: dict[str, Any]) -> list[np.ndarray]:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


def image(seed: int = 0, channels: int = 16) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((1, channels, 8, 8), np.float32)


def reads(model: ModelProto) -> dict[str, list[str]]:
    """First output of each node but Q/DQ -> what it reads; a quantized tensor t is written q(t)."""
    producers = {name: node for node in model.graph.node for name in node.output}

    def shown(name: str) -> str:
        node = producers.get(name)
        if node is None or node.op_type != "DequantizeLinear":
            return name
        return f"q({producers[node.input[0]].input[0]})"

    nodes = [n for n in model.graph.node if n.op_type not in ("QuantizeLinear", "DequantizeLinear")]
    return {node.output[0]: [shown(name) for name in node.input] for node in nodes}


def test_one_pair_a_tensor_and_raw_reads_where_the_placement_says_nothing() -> None:
    model = text_model(
        "s = Relu(x) a = Conv(s, w1) b = Conv(s, w2) p = Add(a, s) z = Softmax(s) q = Add(p, b) y = Identity(q)",
        outputs="float y, float z, float s",
    )
    result = quantize_int8(model).model
    found = reads(result)
    assert found["a"] == ["q(s)", "q(w1)"]
    assert found["b"] == ["q(s)", "q(w2)"]
    assert found["p"] == ["a", "q(s)"]
    assert found["z"] == ["s"]
    counts = Counter(node.op_type for node in result.graph.node)
    pairs = len({t for read in found.values() for t in read if t.startswith("q(")})
    assert counts["QuantizeLinear"] == counts["DequantizeLinear"] == pairs
    assert [v.name for v in result.graph.output] == ["y", "z", "s"]
    feed = {"x": image()}
    for before, after, name in zip(run(model, feed), run(result, feed), "yzs", strict=True):
        if name != "y":
            np.testing.assert_array_equal(before, after)


def test_a_graph_output_that_is_a_skip_stays_the_original() -> None:
    model = text_model("s = Relu(x) a = Conv(s, w1) t = Add(a, s) y = Conv(t, w2)", outputs="float y, float t")
    result = quantize_int8(model).model
    producers = {name: node.op_type for node in result.graph.node for name in node.output}
    assert producers["t"] == "Add"


def test_a_weight_with_two_axes_gets_two_pairs() -> None:
    model = text_model(
        "a = MatMul(x, w) b = Gemm<transB = 1>(x, w) y = Sub(a, b)", "float[4,32] x", "float[4,32] y", w=(32, 32)
    )
    result = quantize_int8(model).model
    pairs = [node for node in result.graph.node if node.op_type == "QuantizeLinear" and node.input[0] == "w"]
    assert [[a.i for a in node.attribute if a.name == "axis"] for node in pairs] == [[1], [0]]
    stored = {t.name: numpy_helper.to_array(t) for t in result.graph.initializer}
    for node, axis in zip(pairs, (1, 0), strict=True):
        expected = np.abs(stored["w"]).max(axis=1 - axis) / 127
        np.testing.assert_allclose(stored[node.input[1]], expected, rtol=1e-6)
        assert stored[node.input[2]].shape == expected.shape
    assert run(result, {"x": np.ones((4, 32), np.float32)})


def test_a_weight_read_twice_along_one_axis_gets_one_pair() -> None:
    model = text_model("a = Conv(x, w1) y = Conv(a, w1)")
    result = quantize_int8(model).model
    assert sum(node.op_type == "QuantizeLinear" and node.input[0] == "w1" for node in result.graph.node) == 1


def test_generated_names_step_aside_for_those_of_the_model() -> None:
    """The model uses every name that a pair of x would get, for a node and for tensors."""
    body = """x_scale = Relu(x) x_QuantizeLinear_Output = Conv(x_scale, w1)
        x_DequantizeLinear_Output = Conv(x, w2) y = Add(x_QuantizeLinear_Output, x_DequantizeLinear_Output)"""
    clashing = text_model(body)
    clashing.graph.node[1].name = "x_QuantizeLinear"
    clashing.graph.node[2].name = "x_zero_point"
    plain = text_model("s = Relu(x) a = Conv(s, w1) b = Conv(x, w2) y = Add(a, b)")
    results = [quantize_int8(model).model for model in (clashing, plain)]
    for result in results:
        names = [node.name for node in result.graph.node]
        tensors = [name for node in result.graph.node for name in node.output]
        tensors += [t.name for t in result.graph.initializer] + [v.name for v in result.graph.input]
        assert len(set(names)) == len(names)
        assert len(set(tensors)) == len(tensors)
    feed = {"x": image()}
    np.testing.assert_array_equal(run(results[0], feed)[0], run(results[1], feed)[0])


def test_every_pair_has_a_zero_point_of_the_scales_shape() -> None:
    result = quantize_int8(text_model("a = Conv(x, w1) y = Add(a, x)")).model
    stored = {t.name: numpy_helper.to_array(t) for t in result.graph.initializer}
    for node in result.graph.node:
        if node.op_type in ("QuantizeLinear", "DequantizeLinear"):
            scale, zero_point = stored[node.input[1]], stored[node.input[2]]
            assert zero_point.dtype == np.int8
            assert zero_point.shape == scale.shape
            assert not zero_point.any()


@pytest.mark.parametrize("opset", [11, 13, 17, 19, 21])
def test_ir_version_and_opset_are_high_enough(opset: int) -> None:
    model = text_model("y = Conv(x, w1)", opset=opset)
    model.ir_version = 4
    result = quantize_int8(model).model
    assert result.opset_import[0].version == max(13, opset)
    assert result.ir_version >= helper.find_min_ir_version_for(result.opset_import, ignore_unknown=True)
    onnx.checker.check_model(result, full_check=True)
    assert run(result, {"x": image()})


def test_an_ir_3_model_whose_initializers_are_inputs() -> None:
    model = text_model("y = Conv(x, w1)", opset=9)
    model.ir_version = 3
    model.graph.input.append(helper.make_tensor_value_info("w1", onnx.TensorProto.FLOAT, [16, 16, 3, 3]))
    result = quantize_int8(model).model
    assert "x" in [v.name for v in result.graph.input]
    assert reads(result)["y"] == ["q(x)", "q(w1)"]
    onnx.checker.check_model(result, full_check=True)
    assert run(result, {"x": image()})


@pytest.mark.parametrize("name", ["float", "float16"])
def test_scales_have_the_type_of_the_tensor(name: str) -> None:
    dtype = {"float": np.float32, "float16": np.float16}[name]
    model = text_model("y = Conv(x, w1)", f"{name}[1,16,8,8] x", f"{name}[1,16,8,8] y", dtype=dtype)
    result = quantize_int8(model).model
    stored = {t.name: numpy_helper.to_array(t) for t in result.graph.initializer}
    scales = [stored[node.input[1]] for node in result.graph.node if node.op_type == "QuantizeLinear"]
    assert {s.dtype for s in scales} == {np.dtype(dtype)}
    assert result.opset_import[0].version == (19 if name == "float16" else 17)
    onnx.checker.check_model(result, full_check=True)


def test_a_body_that_captures_a_quantized_tensor_reads_the_original() -> None:
    body = """s = Relu(x) a = Conv(s, w1)
        z = If(c) <then_branch = t () => (float[1,16,8,8] p) { p = Neg(s) },
                   else_branch = e () => (float[1,16,8,8] q) { q = Mul(s, s) }>
        y = Add(a, s)"""
    model = text_model(body, "float[1,16,8,8] x, bool c", "float y, float z")
    result = quantize_int8(model).model
    assert reads(result)["y"] == ["a", "q(s)"]
    branches = [a.g for node in result.graph.node if node.op_type == "If" for a in node.attribute]
    assert {name for graph in branches for node in graph.node for name in node.input} == {"s"}
    feed = {"x": image(), "c": np.array(True)}
    np.testing.assert_array_equal(run(model, feed)[1], run(result, feed)[1])


def test_nodes_stay_in_order_and_pairs_stand_right_before_their_first_reader() -> None:
    model = text_model("s = Relu(x) t = Tanh(s) a = Conv(s, w1) y = Add(a, t)")
    result = quantize_int8(model).model
    assert [n.op_type for n in result.graph.node if n.op_type not in ("QuantizeLinear", "DequantizeLinear")] == [
        "Relu",
        "Tanh",
        "Conv",
        "Add",
    ]
    made: set[str] = {v.name for v in result.graph.input} | {t.name for t in result.graph.initializer}
    for node in result.graph.node:
        assert set(node.input) <= made
        made.update(node.output)


def test_an_all_zero_channel_gets_a_usable_scale() -> None:
    model = text_model("y = Conv(x, w1)")
    weight = numpy_helper.to_array(model.graph.initializer[0]).copy()
    weight[3] = 0
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(weight, "w1"))
    result = quantize_int8(model).model
    for tensor in result.graph.initializer:
        if "scale" in tensor.name:
            assert (numpy_helper.to_array(tensor) > 0).all()
    assert np.isfinite(run(result, {"x": image()})[0]).all()


@pytest.mark.parametrize(
    ("body", "inputs", "shapes"),
    [
        ("y = Conv(x, w, b)", [(1, 16, 8, 8)], {"w": (24, 16, 3, 3), "b": (24,)}),
        ("y = Conv<group = 16>(x, w)", [(1, 16, 8, 8)], {"w": (16, 1, 3, 3)}),
        ("y = Conv(x, w)", [(1, 16, 8)], {"w": (24, 16, 3)}),
        ("y = ConvTranspose(x, w)", [(1, 16, 8, 8)], {"w": (16, 24, 3, 3)}),
        ("y = ConvTranspose<group = 4>(x, w)", [(1, 16, 8, 8)], {"w": (16, 6, 3, 3)}),
        ("y = Gemm(x, w, b)", [(4, 32)], {"w": (32, 48), "b": (48,)}),
        ("y = Gemm<transB = 1>(x, w)", [(4, 32)], {"w": (48, 32)}),
        ("y = Gemm<transA = 1>(x, w)", [(32, 4)], {"w": (32, 48)}),
        ("y = Gemm(w, x)", [(32, 20)], {"w": (48, 32)}),
        ("y = Gemm<transA = 1>(w, x)", [(32, 20)], {"w": (32, 48)}),
        ("y = MatMul(x, w)", [(2, 4, 32)], {"w": (32, 48)}),
        ("y = MatMul(x, w)", [(2, 4, 32)], {"w": (2, 32, 48)}),
        ("y = MatMul(w, x)", [(2, 32, 20)], {"w": (2, 48, 32)}),
        ("y = MatMul(x, w)", [(4, 32)], {"w": (32,)}),
        ("y = MatMul(w, x)", [(32, 4)], {"w": (32,)}),
        ("y = MatMul(x, z)", [(4, 32), (32, 48)], {}),
        ("v = Transpose(w) i = Identity(v) y = MatMul(x, i)", [(4, 32)], {"w": (48, 32)}),
    ],
)
@pytest.mark.parametrize("opset", [13, 21])
def test_every_linear_form_runs_and_is_close(
    body: str, inputs: list[tuple[int, ...]], shapes: dict[str, tuple[int, ...]], opset: int
) -> None:
    rng = np.random.default_rng(0)
    feeds = {n: rng.standard_normal(s, np.float32) for n, s in zip("xz", inputs, strict=False)}
    declared = ", ".join(f"float[{','.join(map(str, v.shape))}] {n}" for n, v in feeds.items())
    model = text_model(body, declared, "float y", opset=opset, **shapes)
    asked = ["Conv", "ConvTranspose", "Gemm", "MatMul"]  # by type, because a vector is left float otherwise
    result = quantize_int8(model, calibration_data=[feeds], op_types_to_quantize=asked).model
    assert sum(node.op_type == "QuantizeLinear" for node in result.graph.node) == 2
    onnx.checker.check_model(result, full_check=True)
    (before,), (after,) = run(model, feeds), run(result, feeds)
    assert np.linalg.norm(before - after) < 0.02 * np.linalg.norm(before)
