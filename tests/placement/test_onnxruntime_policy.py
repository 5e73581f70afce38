"""Policy onnxruntime, rule by rule: which edges are quantized and as what."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto

from onnxq.errors import UsageError
from onnxq.pipeline import make_plan
from onnxq.placement import Placement, SelectionOptions
from text_models import swap, text_model

MATRIX = "float[4,16] x"


def place(model: ModelProto, activation_type: str | None = None, **options: Any) -> Placement:
    return make_plan(
        model, SelectionOptions(**options), policy="onnxruntime", activation_type=activation_type
    ).placement


def edges(model: ModelProto, **options: Any) -> dict[str, list[str]]:
    """First output of each node that reads something quantized -> "tensor: rule, type"."""
    found: dict[str, list[str]] = {}
    placement = place(model, **options)
    for edge in placement.quantized:
        label, decision = placement.labels[edge], placement[edge]
        axis = "" if decision.axis is None else f"/{decision.axis}"
        text = f"{label.tensor}: {decision.reason.rule.name} {decision.dtype}{axis}"
        found.setdefault(label.output, []).append(text)
    return found


def tensors(model: ModelProto, **options: Any) -> dict[str, list[str]]:
    return {output: [text.split(":")[0] for text in found] for output, found in edges(model, **options).items()}


def why(model: ModelProto, output: str, **options: Any) -> str:
    """What the rule saw that left input 0 of a node float."""
    placement = place(model, **options)
    edge = next(e for e, label in placement.labels.items() if label.output == output and e.input == 0)
    assert not placement[edge].quantize
    return f"{placement[edge].reason.rule.name} {placement[edge].reason.detail}"


# O1 and O2: linear ops


def test_data_weight_and_bias_of_a_convolution() -> None:
    found = edges(text_model("c = Conv(x, w1, b1) y = Neg(c)"))
    assert found == {"c": ["x: O1 uint8", "w1: O1 int8/0", "b1: O2 int32/0"], "y": ["c: O4 uint8"]}


def test_activations_have_the_type_that_is_asked_for() -> None:
    placement = place(text_model("c = Conv(x, w1, b1) y = Neg(c)"), activation_type="int8")
    assert [placement[e].dtype for e in placement.quantized] == ["int8", "int8", "int32", "int8"]
    assert [placement[e].symmetric for e in placement.quantized] == [False, True, True, False]


def test_a_convolution_that_must_yield_float_stays_float() -> None:
    assert edges(text_model("y = Conv(x, w1)")) == {}
    assert why(text_model("y = Conv(x, w1)"), "y").startswith("O6 its result is an output of the graph")
    captured = text_model(
        "c = Conv(x, w1) y = If(on) <then_branch = t () => (float[1,16,8,8] p) { p = Neg(c) }, "
        "else_branch = e () => (float[1,16,8,8] q) { q = Abs(x) }>",
        inputs="float[1,16,8,8] x, bool on",
    )
    assert why(captured, "c").startswith("O6 its result is read inside a body")


def test_a_convolution_without_a_constant_weight_or_bias_stays_float() -> None:
    for inputs, seen in (
        ("float[16,16,3,3] k", "its weight is no constant"),
        ("float[16] b", "its bias is no constant"),
    ):
        weight, bias = ("k", "b1") if "its weight" in seen else ("w1", "b")
        model = text_model(f"c = Conv(x, {weight}, {bias}) y = Neg(c)", inputs=f"float[1,16,8,8] x, {inputs}")
        assert seen in why(model, "c")


def test_matmul_and_gemm_may_yield_float() -> None:
    model = text_model("y = MatMul(x, w1)", MATRIX, "float[4,16] y", w1=(16, 16))
    assert edges(model) == {"y": ["x: O1 uint8", "w1: O1 int8/1"]}
    model = text_model("y = Gemm<transB=1>(x, w1, b1)", MATRIX, "float[4,16] y", w1=(16, 16))
    assert edges(model) == {"y": ["x: O1 uint8", "w1: O1 int8/0", "b1: O2 int32/0"]}


@pytest.mark.parametrize(
    ("attributes", "bias", "fits"),
    [
        ("", (16,), True),
        ("", (1, 16), True),
        ("", (1,), False),
        ("", (4, 16), False),
        ("<alpha=0.5>", (16,), False),
        ("<beta=2.0>", (16,), False),
        ("<alpha=0.5>", None, True),
    ],
)
def test_a_gemm_whose_bias_the_kernel_cant_add_stays_float(attributes, bias, fits) -> None:
    operands = "x, w1" if bias is None else "x, w1, b1"
    shapes = {"w1": (16, 16)} | ({} if bias is None else {"b1": bias})
    model = text_model(f"y = Gemm{attributes}({operands})", MATRIX, "float[4,16] y", **shapes)
    assert bool(edges(model)) == fits


def test_a_batch_of_weights_has_one_scale() -> None:
    model = text_model("y = MatMul(x, w1)", "float[2,4,16] x", "float[2,4,16] y", w1=(2, 16, 16))
    assert edges(model) == {"y": ["x: O1 uint8", "w1: O1 int8"]}


def test_a_constant_first_operand_has_the_type_of_activations() -> None:
    model = text_model("y = MatMul(w1, x)", "float[16,4] x", "float[4,4] y", w1=(4, 16))
    assert edges(model) == {"y": ["w1: O1 uint8", "x: O1 uint8"]}


@pytest.mark.parametrize("shape", [(16,), (1, 16), (1, 1, 16)])
def test_a_constant_added_to_a_matmul_is_its_bias(shape) -> None:
    model = text_model("m = MatMul(x, w1) y = Add(m, b1)", "float[2,4,16] x", "float[2,4,16] y", w1=(16, 16), b1=shape)
    bias = f"b1: O2 int32/{len(shape) - 1}"
    assert edges(model) == {"m": ["x: O1 uint8", "w1: O1 int8/1"], "y": [bias]}
    assert edges(swap(model, "y"))["y"] == [bias]


@pytest.mark.parametrize("shape", [(4, 16), (1,), (2, 1, 16)])
def test_another_constant_is_no_bias(shape) -> None:
    model = text_model("m = MatMul(x, w1) y = Add(m, b1)", "float[2,4,16] x", "float[2,4,16] y", w1=(16, 16), b1=shape)
    assert "y" not in edges(model)


def test_a_bias_is_left_to_an_excluded_add() -> None:
    model = text_model("m = MatMul(x, w1) y = Add(m, b1)", MATRIX, "float[4,16] y", w1=(16, 16))
    found = edges(model, nodes_to_exclude=["y"])
    assert found["y"] == ["m: O4 uint8"]  # or the runtime would make a float Gemm of both


def test_a_matmul_that_an_add_would_make_a_gemm_stores_integers() -> None:
    body, inputs = "m = MatMul(x, w1) y = Add(m, z)", "float[4,16] x, float[4,16] z"
    model = text_model(body, inputs, "float[4,16] y", w1=(16, 16))
    assert edges(model)["y"] == edges(swap(model, "y"))["y"] == ["m: O4 uint8"]
    batched = text_model(body, "float[2,4,16] x, float[2,4,16] z", "float[2,4,16] y", w1=(16, 16))
    assert "y" not in edges(batched)


def test_float16_has_no_integer_kernels() -> None:
    model = text_model("c = Conv(x, w1) y = Neg(c)", "float16[1,16,8,8] x", "float16[1,16,8,8] y", dtype=np.float16)
    assert edges(model) == {}
    assert "is of type float16" in why(model, "c")


def test_convtranspose_has_no_integer_kernel() -> None:
    model = text_model("c = ConvTranspose(x, w1) y = Neg(c)")
    assert edges(model) == {}
    assert edges(model, op_types_to_quantize=["ConvTranspose"]) == {"c": ["x: P1 uint8", "w1: P1 int8/1"]}


# O3: followers


@pytest.mark.parametrize(
    "op",
    [
        "Sigmoid(c)",
        "LeakyRelu(c)",
        "AveragePool<kernel_shape=[3,3], pads=[1,1,1,1]>(c)",
        "MaxPool<kernel_shape=[3,3], pads=[1,1,1,1]>(c)",
        "Mul(c, v1)",
        "Mul(v1, c)",
        "Add(v1, c)",
        "Transpose<perm=[0,1,3,2]>(c)",
        "Identity(c)",
    ],
)
def test_an_op_between_convolutions_follows(op) -> None:
    model = text_model(f"c = Conv(x, w1) s = {op} d = Conv(s, w2) y = Neg(d)")
    found = edges(model)
    assert "c: O3 uint8" in found["s"]
    assert all(text.endswith("O3 uint8") for text in found["s"])
    assert found["d"][0] == "s: O1 uint8"


@pytest.mark.parametrize("op", ["Sub(c, v1)", "Div(c, v1)", "HardSwish(c)", "Softplus(c)"])
def test_an_op_without_an_integer_kernel_reads_what_the_kernel_stored(op) -> None:
    model = text_model(f"c = Conv(x, w1) s = {op} d = Conv(s, w2) y = Neg(d)")
    assert edges(model)["s"] == ["c: O4 uint8"]


def test_what_isnt_between_integer_ops_stays_float() -> None:
    before = text_model("s = Sigmoid(x) c = Conv(s, w1) y = Neg(c)")
    assert why(before, "s") == "O3 not between ops that work in integers"
    behind = text_model("c = Conv(x, w1) s = Sigmoid(c) y = Neg(s)")
    assert tensors(behind) == {"c": ["x", "w1"], "s": ["c"]}
    assert edges(behind)["s"] == ["c: O4 uint8"]
    output = text_model("c = Conv(x, w1) s = Sigmoid(c) d = Conv(s, w2) y = Neg(d)", outputs="float y, float s")
    assert edges(output)["s"] == ["c: O4 uint8"]


def test_a_chain_follows_as_a_whole() -> None:
    model = text_model(
        "c = Conv(x, w1) s = Sigmoid(c) m = Mul(c, s) p = MaxPool<kernel_shape=[1,1]>(m) "
        "t = Concat<axis=1>(p, c) u = Split<axis=1>(t) d = Conv(u, w2) y = Neg(d)",
        w2=(16, 32, 3, 3),
    )
    assert tensors(model) == {
        "c": ["x", "w1"],
        "s": ["c"],
        "m": ["c", "s"],
        "p": ["m"],
        "t": ["p", "c"],
        "u": ["t"],
        "d": ["u", "w2"],
        "y": ["d"],
    }


def test_a_pool_beside_a_convolution_reads_its_pair() -> None:
    """The tensor has a pair for the convolution anyway."""
    model = text_model(
        "a = Conv(x, w1) p = AveragePool<kernel_shape=[3,3], pads=[1,1,1,1]>(x) t = Concat<axis=1>(a, p) "
        "d = Conv(t, w2) y = Neg(d)",
        w2=(16, 32, 3, 3),
    )
    assert edges(model)["p"] == ["x: O3 uint8"]


def test_selection_and_exclusion() -> None:
    model = text_model("c = Conv(x, w1) s = Sigmoid(c) d = Conv(s, w2) y = Neg(d)")
    assert edges(model, op_types_to_quantize=["Conv"])["s"] == ["c: O4 uint8"]
    assert edges(model, nodes_to_exclude=["s"])["s"] == ["c: O4 uint8"]
    assert tensors(model, nodes_to_exclude=["c"]) == {"d": ["s", "w2"], "y": ["d"]}
    assert tensors(model, nodes_to_quantize=["s"]) == {"s": ["c"], "d": ["s"]}


def test_who_is_named_needs_no_neighbours() -> None:
    model = text_model("a = Sigmoid(x) y = Neg(a)")
    assert edges(model) == {}
    assert edges(model, op_types_to_quantize=["Sigmoid"]) == {"a": ["x: O3 uint8"], "y": ["a: O4 uint8"]}
    assert edges(model, op_types_to_quantize=["Neg"]) == {"y": ["a: SELECTED uint8"]}
    conv = text_model("y = Conv(x, w1)")
    assert edges(conv, nodes_to_quantize=["y"]) == {"y": ["x: O1 uint8", "w1: O1 int8/0"]}


def test_softmax_reads_what_a_convolution_stored_but_float_of_a_matmul() -> None:
    assert edges(text_model("c = Conv(x, w1) y = Softmax(c)"))["y"] == ["c: O4 uint8"]
    model = text_model("m = MatMul(x, w1) y = Softmax(m)", MATRIX, "float[4,16] y", w1=(16, 16))
    assert "y" not in edges(model)


# O4: what kernels store, and the activations that they absorb


def test_relu_is_part_of_the_kernel() -> None:
    model = text_model("c = Conv(x, w1) r = Relu(c) d = Conv(r, w2) e = Exp(r) y = Add(d, e)")
    found = edges(model)
    assert "r" not in found
    assert found["d"][0] == "r: O1 uint8"
    assert found["e"] == ["r: O4 uint8"]


@pytest.mark.parametrize(("low", "high", "is_absorbed"), [(0, 6, True), (0, None, True), (-1, 1, False), (1, 6, False)])
def test_clip_is_part_of_the_kernel_if_it_begins_at_zero(low, high, is_absorbed) -> None:
    bounds = "c1" if high is None else "c1, c2"
    model = text_model(f"c = Conv(x, w1) r = Clip(c, {bounds}) d = Conv(r, w2) y = Neg(d)")
    for name, value in (("c1", low), ("c2", high)):
        stored = next((t for t in model.graph.initializer if t.name == name), None)
        if stored is not None:
            stored.CopyFrom(onnx.numpy_helper.from_array(np.float32(value), name))
    assert ("r" not in edges(model)) == is_absorbed


def test_an_activation_that_others_pass_by_isnt_part_of_the_kernel() -> None:
    model = text_model("c = Conv(x, w1) r = Relu(c) s = Exp(c) d = Conv(r, w2) y = Add(d, s)")
    assert edges(model)["r"] == edges(model)["s"] == ["c: O4 uint8"]
    dead = text_model("c = Conv(x, w1) r = Relu(c) s = Exp(c) d = Conv(r, w2) y = Neg(d)")
    assert "r" not in edges(dead)
    output = text_model("c = Conv(x, w1) y = Relu(c)")
    assert edges(output)["y"] == ["c: O4 uint8"]


def test_a_relu_that_shares_its_scale_with_what_can_be_negative_stays() -> None:
    body = "c = Conv(x, w1) r = Relu(c) b = Conv(x, w2) {} t = Concat<axis=1>(r, s) d = Conv(t, w3) y = Neg(d)"
    negative = text_model(body.format("s = LeakyRelu(b)"), w3=(16, 32, 3, 3))
    assert edges(negative)["r"] == ["c: O4 uint8"]
    positive = text_model(body.format("s = Relu(b)"), w3=(16, 32, 3, 3))
    assert "r" not in edges(positive)
    assert "s" not in edges(positive)


def test_a_gemm_before_a_relu_stores_integers() -> None:
    """The Relu would be taken for a part of a pattern that lacks its QuantizeLinear."""
    model = text_model("g = Gemm(x, w1, b1) r = Relu(g) y = Neg(r)", MATRIX, "float[4,16] y", w1=(16, 16))
    assert edges(model)["y"] == ["r: O4 uint8"]
    two = text_model("g = Gemm(x, w1, b1) r = Relu(g) p = Neg(r) y = Mul(p, r)", MATRIX, "float[4,16] y", w1=(16, 16))
    assert tensors(two) == {"g": ["x", "w1", "b1"]}


# O5: residual Adds


RESIDUAL = "a = Conv(x, w1) r = Relu(a) c = Conv(r, w2) s = Add(c, r) {}"


def test_both_inputs_of_a_residual_add() -> None:
    model = text_model(RESIDUAL.format("t = Relu(s) d = Conv(t, w3) y = Neg(d)"))
    found = edges(model)
    assert found["s"] == ["c: O3 uint8", "r: O3 uint8"]
    assert sorted(edges(swap(model, "s"))["s"]) == sorted(found["s"])
    assert "t" not in found


def test_both_inputs_even_if_nothing_reads_the_result_in_integers() -> None:
    normalized = RESIDUAL.replace("c = Conv(r, w2)", "d = Conv(r, w2) c = BatchNormalization(d, b1, b2, b3, b4)")
    model = text_model(normalized.format("y = Relu(s)"))
    assert edges(model)["s"] == ["c: O5 uint8", "r: O5 uint8"]


def test_the_add_of_a_transformer_stays_float() -> None:
    model = text_model(
        "n = LayerNormalization(x, b1) m = MatMul(n, w1) p = Add(m, b2) y = Add(p, x)",
        "float[2,4,16] x",
        "float[2,4,16] y",
        w1=(16, 16),
    )
    assert "y" not in edges(model)


# The options


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"policy": "onnxrt"}, "policy='onnxrt' is unknown, it can be: tensorrt, onnxruntime; near matches"),
        (
            {"activation_type": "uint8"},
            "activation_type='uint8' isn't possible with policy='tensorrt', which takes int8",
        ),
        ({"policy": "onnxruntime", "activation_type": "int4"}, "which takes uint8 or int8"),
    ],
)
def test_wrong_options(options, message) -> None:
    with pytest.raises(UsageError, match=message):
        make_plan(text_model("y = Relu(x)"), **options)


def test_a_body_is_placed_like_a_graph_of_its_own() -> None:
    body = "c = Conv(x, w1) r = Relu(c) d = Conv(r, w2) p = Neg(d)"
    model = text_model(
        f"z1 = Identity(w1) z2 = Identity(w2) y = If(on) <then_branch = t () => (float[1,16,8,8] p) {{ {body} }}, "
        "else_branch = e () => (float[1,16,8,8] q) { q = Abs(x) }>",
        inputs="float[1,16,8,8] x, bool on",
    )
    assert tensors(model) == {"c": ["x", "w1"], "d": ["r", "w2"], "p": ["d"]}
