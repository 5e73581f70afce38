"""What the user wants quantized: types and patterns, resolved to sets of nodes."""

from __future__ import annotations

from typing import Any

import pytest
from onnx import ModelProto

from onnxq.errors import UnsupportedError, UsageError
from text_models import quantized_inputs, rules, text_model

TWO_SIZES = "[mm] a = MatMul(x, w1) [mm_big] b = MatMul(a, w2) [mm_1] y = MatMul(b, w3)"
"""The last node is called "mm(1)", which the text form can't say."""


def model(body: str = TWO_SIZES) -> ModelProto:
    square = dict.fromkeys(("w1", "w2", "w3"), (32, 32))
    found = text_model(body, "float[4,32] x", "float[4,32] y", **square)
    for node in found.graph.node:
        node.name = node.name.replace("mm_1", "mm(1)")
    return found


def image(body: str) -> ModelProto:
    return text_model(body)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, {"a", "b", "y"}),
        ({"nodes_to_exclude": ["mm"]}, {"b", "y"}),
        ({"nodes_to_exclude": ["mm_big"]}, {"a", "y"}),
        ({"nodes_to_exclude": [r"mm\(1\)"]}, {"a", "b"}),
        ({"nodes_to_exclude": ["mm.*"]}, set()),
        ({"nodes_to_quantize": ["mm"]}, {"a"}),
        ({"nodes_to_quantize": ["mm.*"], "nodes_to_exclude": ["mm_big"]}, {"a", "y"}),
        ({"op_types_to_exclude": ["MatMul"]}, set()),
        ({"op_types_to_quantize": ["Conv"]}, set()),
        ({"op_types_to_quantize": ["MatMul"]}, {"a", "b", "y"}),
        ({"op_types_to_quantize": ["Conv"], "nodes_to_quantize": ["mm_big"]}, {"b"}),
        ({"op_types_to_quantize": []}, set()),
        ({"nodes_to_quantize": []}, set()),
        ({"nodes_to_exclude": []}, {"a", "b", "y"}),
    ],
)
def test_names_match_in_full_and_exclusion_wins(options: dict[str, Any], expected: set[str]) -> None:
    assert set(quantized_inputs(model(), **options)) == expected


def test_what_is_excluded_reads_no_quantized_tensor_of_another() -> None:
    body = "s = Relu(x) [keep] a = MatMul(s, w1) [leave] b = MatMul(s, w2) y = Mul(a, b)"
    assert quantized_inputs(model(body), nodes_to_exclude=["leave"]) == {"a": ["s", "w1"]}
    assert rules(model(body), nodes_to_exclude=["leave"])["b", 0] == "P2"


def test_a_weight_shared_with_an_excluded_node_is_read_raw_there() -> None:
    body = "[keep] a = MatMul(x, w1) [leave] b = MatMul(x, w1) y = Mul(a, b)"
    assert quantized_inputs(model(body), nodes_to_exclude=["leave"]) == {"a": ["x", "w1"]}


def test_an_op_without_a_rule_is_quantized_when_it_is_asked_for() -> None:
    found = image("a = Relu(x) b = AveragePool<kernel_shape = [3,3], pads = [1,1,1,1]>(a) y = Sigmoid(b)")
    assert quantized_inputs(found) == {}
    assert quantized_inputs(found, op_types_to_quantize=["AveragePool"]) == {"b": ["a"]}
    assert rules(found, op_types_to_quantize=["AveragePool"])["b", 0] == "SELECTED"
    assert quantized_inputs(found, nodes_to_quantize=["y"]) == {"y": ["b"]}


def test_parameters_of_what_is_asked_for_stay_float() -> None:
    found = image(
        """n = BatchNormalization(x, b1, b2, b3, b4) l = Clip(n, c1, c2)
        sc = Constant<value_floats = [1.0,1.0,1.0,1.0]>() one = Identity(sc) r = Resize<mode = "linear">(l, , one)
        y = PRelu(r, c3)"""
    )
    options = {"op_types_to_quantize": ["BatchNormalization", "Clip", "Resize", "PRelu"]}
    assert quantized_inputs(found, **options) == {"n": ["x"], "l": ["n"], "r": ["l"], "y": ["r"]}


def test_variable_parameters_stay_float_too() -> None:
    found = text_model('r = Resize<mode = "linear">(x, , sc) y = Relu(r)', "float[1,16,8,8] x, float[4] sc", "float y")
    assert quantized_inputs(found, op_types_to_quantize=["Resize"]) == {"r": ["x"]}
    assert rules(found, op_types_to_quantize=["Resize"])["r", 2] == "P6"


@pytest.mark.parametrize("op", ["Softmax", "TopK", "ArgMax", "NonZero", "Shape", "Cast", "If", "LogSoftmax"])
def test_what_is_never_quantized_is_refused(op: str) -> None:
    with pytest.raises(UnsupportedError, match=op):
        quantized_inputs(model(), op_types_to_quantize=["MatMul", op])


def test_ranks_and_probabilities_asked_for_by_name_stay_float() -> None:
    found = image("a = Conv(x, k1) [s] y = Softmax(a)")
    assert quantized_inputs(found, nodes_to_quantize=["s"]) == {}
    assert rules(found, nodes_to_quantize=["s"])["y", 0] == "P6"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"nodes_to_exclude": ["mm_bigg"]}, 'near matches: "mm_big"'),
        ({"nodes_to_quantize": ["MM"]}, '"mm"'),
        ({"nodes_to_exclude": ["mm(1)"]}, "no node"),
        ({"nodes_to_exclude": ["m"]}, "no node"),
        ({"nodes_to_exclude": ["("]}, "no regular expression"),
        ({"op_types_to_quantize": ["Matmul"]}, 'near matches: "MatMul"'),
        ({"op_types_to_exclude": ["Convolution"]}, "no operator"),
        ({"op_types_to_quantize": "MatMul"}, "list of strings"),
        ({"nodes_to_exclude": "mm"}, "list of strings"),
        ({"nodes_to_exclude": [1]}, "list of strings"),
    ],
)
def test_what_matches_nothing_is_an_error_with_near_matches(options: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=next(iter(options))) as error:
        quantized_inputs(model(), **options)
    assert says in str(error.value)


def test_the_callers_lists_are_left_alone() -> None:
    lists = {"nodes_to_exclude": ["mm"], "op_types_to_quantize": ["MatMul"], "op_types_to_exclude": ["Conv"]}
    before = {name: list(given) for name, given in lists.items()}
    quantized_inputs(model(), **lists)
    assert lists == before


def test_convolution_like_words_in_node_names_mean_nothing() -> None:
    found = image("y = Conv(x, w1)")
    found.graph.node[0].name = "/post_quant_conv/QuantizeLinear_DequantizeLinear"
    assert quantized_inputs(found) == {"y": ["x", "w1"]}


def test_equally_named_nodes_are_chosen_together() -> None:
    found = model("[n] a = MatMul(x, w1) [n] b = MatMul(a, w2) [m] y = MatMul(b, w3)")
    named = set(quantized_inputs(found, nodes_to_quantize=["n.*"]))
    assert named == {"a", "b"}
