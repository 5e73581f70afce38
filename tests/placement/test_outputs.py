"""`quantize_outputs`: which graph outputs get Q/DQ, and what the pairs look like."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper

from onnxq.calibration.cache import cache_to_text
from onnxq.errors import UsageError
from onnxq.invariants import check
from onnxq.numerics import output_sqnr, run_model
from onnxq.pipeline import quantize
from onnxq.placement import SelectionOptions
from onnxq.rewrite import strip_pairs
from onnxruntime_graphs import float_linear, optimized_ops
from text_models import placed, quantize_int8, text_model

T = "float[1,16,8,8]"
POLICIES = ("tensorrt", "onnxruntime")


def model_of(body: str, outputs: str = "y", **settings: Any) -> ModelProto:
    return text_model(body, outputs=", ".join(f"{T} {name}" for name in outputs.split()), **settings)


def decided(body: str, outputs: str = "y", *, policy: str = "tensorrt", **options: Any) -> dict[str, bool]:
    placement = placed(model_of(body, outputs), policy=policy, quantize_outputs=True, **options)
    return {output.name: output.decision.quantize for output in placement.outputs}


def feeds() -> list[dict[str, Any]]:
    return [{"x": np.random.default_rng(5).standard_normal((1, 16, 8, 8), np.float32)}]


def quantized(model: ModelProto, **options: Any) -> ModelProto:
    """Quantized, and checked: invariants hold, and it computes nearly the same."""
    found = quantize_int8(model, quantize_outputs=True, **options).model
    policy = options.get("policy", "tensorrt")
    assert not check(model, found, policy=policy, selection=SelectionOptions(quantize_outputs=True))
    ratios = output_sqnr(run_model(model, feeds()), run_model(found, feeds()))
    assert min(ratios.values()) > 20, ratios
    assert [v.SerializeToString() for v in found.graph.output] == [v.SerializeToString() for v in model.graph.output]
    return found


def pair_before(model: ModelProto, output: str) -> tuple[onnx.NodeProto, onnx.NodeProto]:
    made = {name: node for node in model.graph.node for name in node.output}
    dequantize = made[output]
    assert dequantize.op_type == "DequantizeLinear"
    assert made[dequantize.input[0]].op_type == "QuantizeLinear"
    return made[dequantize.input[0]], dequantize


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    "body",
    [
        "y = Conv(x, w1, b1)",
        "a = Conv(x, w1, b1) y = Relu(a)",
        "a = Conv(x, w1) b = Relu(a) y = Reshape(b, s)",
        "a = Conv(x, w1) b = Conv(a, w2) y = Add(b, a)",
        "a = Conv(x, w1) b = Conv(a, w2) y = Add(a, b)",
    ],
)
def test_what_an_int8_kernel_yields_is_quantized(body: str, policy: str) -> None:
    model = text_model(body.replace("(b, s)", "(b, shape)"), outputs=f"{T} y", shape=(0,))
    shape = onnx.numpy_helper.from_array(np.array([1, 16, 8, 8]), "shape")
    for tensor in model.graph.initializer:
        if tensor.name == "shape":
            tensor.CopyFrom(shape)
    pair_before(quantized(model, policy=policy), "y")


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    "body",
    [
        "a = Conv(x, w1) y = Softmax(a)",
        "a = Conv(x, w1) y = ReduceSum<keepdims=1>(a)",
        "y = Sigmoid(x)",
        "a = Exp(x) b = Conv(a, w1) y = Add(a, c1)",
    ],
)
def test_what_no_int8_kernel_yields_stays_float(body: str, policy: str) -> None:
    assert decided(body, policy=policy) == {"y": False}


def test_without_the_option_nothing_is_decided_of_outputs() -> None:
    placement = placed(model_of("y = Conv(x, w1)"))
    assert placement.outputs == ()
    assert "output" not in placement.to_text()


def test_inputs_and_weights_that_are_outputs_stay_float() -> None:
    model = model_of("y = Conv(x, w1)", "y x")
    model.graph.output.append(helper.make_tensor_value_info("w1", TensorProto.FLOAT, [16, 16, 3, 3]))
    found = quantized(model)
    pair_before(found, "y")
    (result,) = run_model(found, feeds())
    np.testing.assert_array_equal(result["x"], feeds()[0]["x"])
    np.testing.assert_array_equal(result["w1"], onnx.numpy_helper.to_array(model.graph.initializer[0]))


def test_an_excluded_node_yields_float() -> None:
    body = "a = Conv(x, w1) y = Relu(a)"
    assert decided(body) == {"y": True}
    assert decided(body, nodes_to_exclude=["y"]) == {"y": False}
    assert decided(body, nodes_to_exclude=["a"]) == {"y": False}


def test_an_op_that_was_asked_for_yields_a_quantized_output() -> None:
    assert decided("y = Sigmoid(x)", op_types_to_quantize=["Sigmoid"]) == {"y": True}


@pytest.mark.parametrize("policy", POLICIES)
def test_an_output_that_is_read_inside_shares_its_pair(policy: str) -> None:
    model = model_of("a = Conv(x, w1) y = Relu(a) z = Conv(y, w2) u = Exp(y)", "y z u")
    found = quantized(model, policy=policy)
    _, dequantize = pair_before(found, "y")
    conv = next(n for n in found.graph.node if n.name == "z")
    assert conv.input[0] == dequantize.output[0] == "y"
    assert sum(n.op_type == "QuantizeLinear" and n.input[0].startswith("y") for n in found.graph.node) == 1
    exp = next(n for n in found.graph.node if n.op_type == "Exp")
    assert (exp.input[0] == "y") == (policy == "onnxruntime")  # there all read what the kernel stored


def test_copies_of_one_tensor_share_a_scale() -> None:
    placement = placed(model_of("y = Conv(x, w1) z = Identity(y) u = Identity(y)", "y z u"), quantize_outputs=True)
    assert placement.scale_groups == (("y", "z", "u"),)
    found = quantized(model_of("y = Conv(x, w1) z = Identity(y) u = Identity(y)", "y z u"))
    stored = {t.name: t.raw_data for t in found.graph.initializer}
    assert len({stored[pair_before(found, name)[0].input[1]] for name in ("y", "z", "u")}) == 1


def test_a_second_result_of_a_split_is_renamed_alone() -> None:
    half = "float[1,8,8,8]"
    model = text_model("a = Conv(x, w1) y, z = Split<axis=1>(a)", outputs=f"{half} y, {half} z")
    found = quantized(model)
    pair_before(found, "y")
    pair_before(found, "z")


def test_what_a_body_captures_is_quantized_outside_only() -> None:
    body = """
        y = Conv(x, w1)
        z = If(p) <then_branch = t () => (float[1,16,8,8] u) { u = Relu(y) },
                   else_branch = e () => (float[1,16,8,8] v) { v = Exp(y) }>
    """
    model = text_model(body, f"bool p, {T} x", f"{T} y, {T} z")
    found = quantize_int8(model, quantize_outputs=True)
    assert {o.name: o.decision.quantize for o in found.placement.outputs} == {"y": True, "z": False}
    pair_before(found.model, "y")
    samples = [{"p": np.array(True), **feeds()[0]}]
    (before,), (after,) = run_model(model, samples), run_model(found.model, samples)
    assert output_sqnr([before], [after])["z"] > 30
    branch = next(a.g for n in found.model.graph.node for a in n.attribute if a.name == "then_branch")
    assert branch.node[0].input[0] == "y_unrounded"


@pytest.mark.parametrize("policy", POLICIES)
def test_names_don_t_matter_even_those_that_would_be_given(policy: str) -> None:
    plain = quantize_int8(model_of("a = Conv(x, w1) y = Relu(a)"), policy=policy, quantize_outputs=True)
    body = "y_unrounded = Conv(x, w1) y = Relu(y_unrounded)"
    odd = quantize_int8(model_of(body), policy=policy, quantize_outputs=True)
    assert [n.op_type for n in odd.model.graph.node] == [n.op_type for n in plain.model.graph.node]
    (before,), (after,) = (run_model(found.model, feeds()) for found in (plain, odd))
    np.testing.assert_array_equal(before["y"], after["y"])


def test_stripping_gives_the_output_back_to_its_operator() -> None:
    model = model_of("a = Conv(x, w1) y = Relu(a) z = Conv(y, w2)", "y z")
    stripped = strip_pairs(quantized(model))
    assert [(n.op_type, list(n.output)) for n in stripped.graph.node] == [
        (n.op_type, list(n.output)) for n in model.graph.node
    ]
    again = quantize_int8(stripped, quantize_outputs=True).model
    assert [n.op_type for n in again.graph.node] == [n.op_type for n in quantized(model).graph.node]


def test_onnxruntime_runs_the_last_convolution_in_integers() -> None:
    model = model_of("a = Conv(x, w1, b1) b = Relu(a) y = Conv(b, w2, b2)")
    plain = quantize_int8(model, policy="onnxruntime").model
    assert float_linear(optimized_ops(plain)) == 1
    assert float_linear(optimized_ops(quantized(model, policy="onnxruntime"))) == 0


def test_a_sigmoid_before_an_output_is_an_integer_kernel() -> None:
    ops = optimized_ops(quantized(model_of("a = Conv(x, w1) y = Sigmoid(a)"), policy="onnxruntime"))
    assert (ops["QLinearConv"], ops["QLinearSigmoid"]) == (1, 1)


@pytest.mark.parametrize("policy", POLICIES)
def test_an_output_that_was_empty_in_every_sample_stays_float(policy: str) -> None:
    model = text_model(
        "a = Conv(x, w1) y = Slice(a, starts, ends)", "float[1,16,8,8] x", "float[n,16,8,8] y", starts=(1,), ends=(1,)
    )
    for tensor in model.graph.initializer:
        if tensor.name in ("starts", "ends"):
            tensor.CopyFrom(onnx.numpy_helper.from_array(np.array([int(tensor.name == "starts")]), tensor.name))
    result = quantize_int8(model, policy=policy, quantize_outputs=True)
    assert [o.decision.quantize for o in result.placement.outputs] == [False]


def test_a_cache_without_the_output_leaves_it_float(tmp_path: Path) -> None:
    model = model_of("y = Conv(x, w1)")
    found = quantize_int8(model)
    cache = tmp_path / "calib.cache"
    cache.write_text(cache_to_text(found.ranges, "entropy"))
    again = quantize_int8(model, quantize_outputs=True, ranges=cache)
    assert [o.decision.quantize for o in again.placement.outputs] == [False]
    assert [n.op_type for n in again.model.graph.node] == [n.op_type for n in found.model.graph.node]


@pytest.mark.parametrize("half", ["fp16", "bf16"])
def test_half_precision_keeps_the_type_of_the_output(half: str) -> None:
    model = model_of("a = Conv(x, w1) y = Relu(a)")
    found = quantize(model, quantize_outputs=True, high_precision_dtype=half).model
    assert not check(model, found, selection=SelectionOptions(quantize_outputs=True))
    assert [n.op_type for n in found.graph.node][-4:] == ["Relu", "QuantizeLinear", "DequantizeLinear", "Cast"]


def test_the_invariant_names_a_pair_that_nobody_asked_for() -> None:
    model = model_of("a = Conv(x, w1) y = Relu(a)")
    for half in ("fp32", "fp16"):  # with a Cast between the pair and the output
        found = quantize(model, quantize_outputs=True, high_precision_dtype=half).model
        assert [v.invariant for v in check(model, found)] == ["outputs-float"]


def test_the_text_and_json_show_outputs_at_the_end() -> None:
    placement = placed(model_of("a = Conv(x, w1) y = Relu(a) z = Softmax(y)", "y z"), quantize_outputs=True)
    lines = [line.split() for line in placement.to_text().splitlines()]
    assert lines[-2:] == [["->", "output", "y", "int8", "OUTPUT"], ["->", "output", "z", "float", "P6"]]
    assert placement.activations[-1] == "y"


def test_nothing_is_quantized_of_what_is_quantized_already() -> None:
    model = quantize_int8(model_of("y = Conv(x, w1)")).model
    assert quantize_int8(model, on_quantized="keep", quantize_outputs=True).model.graph == model.graph
    with pytest.raises(Exception, match="quantized already"):
        quantize_int8(model, quantize_outputs=True)


def test_contradictory_options_are_both_named() -> None:
    with pytest.raises(UsageError, match="keep_io_types and direct_io_types"):
        quantize(model_of("y = Conv(x, w1)"), keep_io_types=True, direct_io_types=True)
