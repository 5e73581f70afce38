from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import ModelProto, helper, numpy_helper
from onnx.parser import parse_model

import onnxq
from onnxq.errors import UsageError
from onnxq.invariants import ModelPair
from onnxq.testing import (
    assert_close_to_float,
    assert_exactly_one_quantized_add_input,
    assert_io_preserved,
    assert_no_violations,
    assert_placement,
    assert_runs,
    assert_shapes_preserved,
    assert_symbolic_dims_preserved,
    assert_valid,
    placement_problems,
)
from onnxq_builders import build

PAIR = "<float scale = {0.1}, int8 zero = {0}>"


def quantized_by_hand(body: str) -> ModelProto:
    """A graph of x, y -> z; "$t" reads t through a Q/DQ pair."""
    for name in ("x", "y", "a", "b"):
        if f"${name}" in body:
            pair = f"{name}_q = QuantizeLinear({name}, scale, zero) {name}_dq = DequantizeLinear({name}_q, scale, zero)"
            body = body.replace(f"${name}", f"{name}_dq", 1).replace(f"@{name}", pair)
    head = f'<ir_version: 8, opset_import: ["" : 17]> g (float[n, 4] x, float[n, 4] y) => (float[n, 4] z) {PAIR}'
    return parse_model(f"{head} {{ {body} }}")


@pytest.fixture(scope="module")
def pair() -> tuple[ModelProto, ModelProto]:
    model = build("residual.convtranspose_conv")
    return model, onnxq.quantize(model).model


class TestExactlyOneQuantizedAddInput:
    def test_of_onnxqs_result(self, pair: tuple[ModelProto, ModelProto]) -> None:
        _, quantized = pair
        assert_exactly_one_quantized_add_input(quantized)
        assert_exactly_one_quantized_add_input(quantized, "add", skip="skip")

    def test_of_several_adds(self) -> None:
        assert_exactly_one_quantized_add_input(onnxq.quantize(build("residual.chained")).model)

    @pytest.mark.parametrize("body", ["@x z = Add($x, y)", "@x z = Add(y, $x)", "@x z = Sum($x, y)"])
    def test_the_only_add_is_taken_whatever_it_joins(self, body: str) -> None:
        assert_exactly_one_quantized_add_input(quantized_by_hand(body), skip="x")

    @pytest.mark.parametrize(
        ("body", "found"), [("z = Add(x, y)", "no input"), ("@x @y z = Add($x, $y)", '"x" and "y"')]
    )
    def test_none_or_both(self, body: str, found: str) -> None:
        with pytest.raises(AssertionError) as caught:
            assert_exactly_one_quantized_add_input(quantized_by_hand(body), "z")
        assert str(caught.value).splitlines()[1:] == [
            'Add (unnamed, output "z"), which adds "x" and "y"',
            "    expected: exactly one input quantized",
            f"    found:    {found}",
        ]

    def test_the_wrong_one(self) -> None:
        with pytest.raises(AssertionError, match=r'expected: exactly one input quantized, the skip "y"\n.*found:.*"x"'):
            assert_exactly_one_quantized_add_input(quantized_by_hand("@x z = Add($x, y)"), skip="y")

    def test_an_add_that_isnt_there(self) -> None:
        with pytest.raises(AssertionError, match='the model has no node "add", nor one that yields a tensor "add"'):
            assert_exactly_one_quantized_add_input(quantized_by_hand("z = Add(x, y)"), "add")

    def test_no_residual_add(self) -> None:
        with pytest.raises(AssertionError, match="no residual Add that onnxq's rules find; name the one meant by add="):
            assert_exactly_one_quantized_add_input(quantized_by_hand("a = Add(x, y) z = Add(a, y)"))

    def test_equally_named_adds(self) -> None:
        model = quantized_by_hand("@x a = Add($x, y) z = Add(a, y)")
        for node in model.graph.node:
            node.name = "same" if node.op_type == "Add" else ""
        with pytest.raises(AssertionError, match='2 nodes are named "same": name the one by its output, of "a", "z"'):
            assert_exactly_one_quantized_add_input(model, "same")
        assert_exactly_one_quantized_add_input(model, "a", skip="x")


class TestPlacement:
    def test_by_name_and_by_output(self, pair: tuple[ModelProto, ModelProto]) -> None:
        _, quantized = pair
        assert_placement(quantized, {"add": ["skip"], "relu1": [], "conv1": ["conv1_weight", "skip"]})

    def test_each_node_that_differs_is_named(self, pair: tuple[ModelProto, ModelProto]) -> None:
        _, quantized = pair
        with pytest.raises(AssertionError) as caught:
            assert_placement(quantized, {"add": ["bn2"], "relu1": ["bn1"], "conv2": ["relu1", "conv2_weight"]})
        assert str(caught.value).splitlines()[1:] == [
            'Add "add"',
            '    expected: "bn2" quantized',
            '    found:    "skip"',
            'Relu "relu1"',
            '    expected: "bn1" quantized',
            "    found:    no input",
        ]

    def test_one_tensor_at_both_inputs(self) -> None:
        model = quantized_by_hand("@x z = Add($x, x)")
        assert_placement(model, {"z": ["x"]})
        with pytest.raises(AssertionError):
            assert_placement(model, {"z": ["x", "x"]})


class TestInterface:
    @pytest.fixture
    def models(self) -> tuple[ModelProto, ModelProto]:
        return quantized_by_hand("z = Add(x, y)"), quantized_by_hand("@x z = Add($x, y)")

    def test_nothing_changed(self, models: tuple[ModelProto, ModelProto]) -> None:
        assert_io_preserved(*models)
        assert_shapes_preserved(*models)
        assert_symbolic_dims_preserved(*models)
        assert_valid(models[1])

    def test_a_renamed_symbol(self, models: tuple[ModelProto, ModelProto]) -> None:
        models[1].graph.output[0].type.tensor_type.shape.dim[0].dim_param = "unk__0"
        assert_shapes_preserved(*models)
        with pytest.raises(AssertionError, match=r'dim 0 of output "z"\n +expected: n\n +found: +unk__0'):
            assert_symbolic_dims_preserved(*models)

    def test_a_lost_shape(self, models: tuple[ModelProto, ModelProto]) -> None:
        models[1].graph.output[0].type.tensor_type.ClearField("shape")
        with pytest.raises(AssertionError, match=r'output "z"\n +expected: float\[n, 4\]\n +found: +float\n'):
            assert_shapes_preserved(*models)

    def test_another_name(self, models: tuple[ModelProto, ModelProto]) -> None:
        models[1].graph.input[0].name = "other"
        with pytest.raises(AssertionError, match=r"inputs of the model\n +expected: x, y\n +found: +other, y"):
            assert_io_preserved(*models)

    def test_an_invalid_model(self, models: tuple[ModelProto, ModelProto]) -> None:
        models[1].graph.node[0].op_type = "Quantize"
        with pytest.raises(AssertionError, match="expected: accepted by the ONNX checker"):
            assert_valid(models[1])


class TestRunning:
    def test_runs(self, pair: tuple[ModelProto, ModelProto]) -> None:
        for model in pair:
            assert_runs(model)
            assert_runs(model, {"x": np.zeros((2, 32, 8, 8), np.float32)})

    def test_does_not_run(self) -> None:
        with pytest.raises(AssertionError) as caught:
            assert_runs(build("weak.topk", k="above_axis"))
        assert str(caught.value).count("onnxruntime can't") == 2

    def test_close(self, pair: tuple[ModelProto, ModelProto]) -> None:
        assert_close_to_float(*pair)
        assert_close_to_float(*pair, [{"x": np.zeros((1, 32, 8, 8), np.float32)}] * 2)

    def test_not_close(self, pair: tuple[ModelProto, ModelProto]) -> None:
        message = r'output "y"\n +expected: at least 90 dB of signal to quantization noise\n +found: +\d+\.\d dB'
        with pytest.raises(AssertionError, match=message):
            assert_close_to_float(*pair, min_sqnr_db={"y": 90})

    def test_another_model_altogether(self, pair: tuple[ModelProto, ModelProto]) -> None:
        with pytest.raises(AssertionError, match="onnxruntime can't run the model"):
            assert_close_to_float(pair[0], quantized_by_hand("z = Add(x, y)"))


class TestNoViolations:
    def test_of_onnxqs_result(self, pair: tuple[ModelProto, ModelProto]) -> None:
        assert_no_violations(*pair)

    def test_both_inputs_of_an_add(self, pair: tuple[ModelProto, ModelProto]) -> None:
        float_model, quantized = pair
        worse = ModelProto()
        worse.CopyFrom(quantized)
        nodes = worse.graph.node
        add = next(n for n in nodes if n.op_type == "Add")
        trunk = next(i for i in add.input if i == "bn2")
        position = list(nodes).index(add)
        before = next(n for n in nodes if n.op_type == "DequantizeLinear" and n.output[0] in add.input)
        pair_nodes = [
            helper.make_node("QuantizeLinear", [trunk, *before.input[1:]], ["extra_q"], name="extra_q"),
            helper.make_node("DequantizeLinear", ["extra_q", *before.input[1:]], ["extra_dq"], name="extra_dq"),
        ]
        add.input[list(add.input).index(trunk)] = "extra_dq"
        kept = [*list(nodes)[:position], *pair_nodes, *list(nodes)[position:]]
        copies = [onnx.NodeProto.FromString(n.SerializeToString()) for n in kept]
        del nodes[:]
        nodes.extend(copies)
        with pytest.raises(AssertionError, match=r'Add "add"\n +expected: only the skip "skip" is quantized'):
            assert_no_violations(float_model, worse)
        assert_no_violations(float_model, worse, policy="onnxruntime")
        assert_no_violations(float_model, worse, only=["valid", "io-preserved"])

    def test_unknown_invariant(self, pair: tuple[ModelProto, ModelProto]) -> None:
        with pytest.raises(UsageError, match='"valied" is no invariant'):
            assert_no_violations(*pair, only=["valied"])


class TestBiasOfOnnxruntime:
    """An int32 bias belongs to the kernel's arithmetic; only under onnxruntime's policy is it no quantized input."""

    def pair(self, policy: str, bias_type: type[np.generic] = np.int32) -> ModelPair:
        head = '<ir_version: 8, opset_import: ["" : 17]> g (float[1, 1, 2, 2] x) => (float[1, 1, 2, 2] y)'
        weights = "<float[1, 1, 1, 1] w = {1}, float[1] b = {1}>"
        float_model = parse_model(f"{head} {weights} {{ y = Conv(x, w, b) }}")
        quantized = parse_model(
            f"{head} <float s = {{0.1}}, int8 zero = {{0}}> {{"
            "xq = QuantizeLinear(x, s, zero) xd = DequantizeLinear(xq, s, zero) wd = DequantizeLinear(wq, s, zero)"
            "bd = DequantizeLinear(b_quantized, s) y = Conv(xd, wd, bd) }"
        )
        stored = {"wq": np.ones((1, 1, 1, 1), np.int8), "b_quantized": np.ones(1, bias_type)}
        quantized.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in stored.items())
        return ModelPair(float_model, quantized, policy)

    def test_it_doesnt_count_under_its_policy(self) -> None:
        assert placement_problems(self.pair("onnxruntime"), {"y": ["x", "w"]}) == []
        (problem,) = placement_problems(self.pair("onnxruntime"), {"y": ["x", "w", "b"]})
        assert problem.endswith('found:    "x" and "w"')

    def test_it_counts_under_another(self) -> None:
        (problem,) = placement_problems(self.pair("tensorrt"), {"y": ["x", "w"]})
        assert problem.endswith('found:    "x" and "w" and "b"')

    def test_a_bias_of_int8_always_counts(self) -> None:
        (problem,) = placement_problems(self.pair("onnxruntime", np.int8), {"y": ["x", "w"]})
        assert problem.endswith('found:    "x" and "w" and "b"')
