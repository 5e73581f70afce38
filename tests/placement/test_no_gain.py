"""P2 in the whole placement: what int8 gains nothing for stays float, unless the user asks for it."""

from __future__ import annotations

from typing import Any

import pytest
from onnx import ModelProto

from onnxq.placement import Rule
from text_models import placed, quantized_inputs, rules, swap, text_model

NARROW = "float[1,8,8,8] x"
ATTENTION = "float[1,2,{0},64] q, float[1,2,64,{0}] k, float[1,2,{0},64] v"


def narrow(body: str) -> ModelProto:
    """A model of eight channels, too few for int8 kernels anywhere but at an input."""
    return text_model(body, NARROW, "float y", w1=(8, 8, 3, 3), w2=(8, 8, 3, 3))


def details(model: ModelProto, **options: Any) -> dict[str, str]:
    placement = placed(model, **options)
    return {
        placement.labels[edge].output: decision.reason.detail
        for edge, decision in placement.items()
        if decision.reason.rule is Rule.P2
    }


def test_a_narrow_convolution_stays_float_with_the_reason() -> None:
    model = narrow("a = Conv(x, w1) y = Conv(a, w2)")
    assert quantized_inputs(model) == {"a": ["x", "w1"]}
    assert rules(model)["y", 0] == rules(model)["y", 1] == "P2"
    assert details(model) == {"y": "8 output channels, int8 kernels want 16"}


def test_its_bias_stays_float_by_its_own_rule() -> None:
    model = text_model("e = Exp(x) y = Conv(e, w, b)", NARROW, "float y", w=(8, 8, 3, 3), b=(8,))
    assert rules(model) == {("e", 0): "NOT_SELECTED", ("y", 0): "P2", ("y", 1): "P2", ("y", 2): "P1"}


@pytest.mark.parametrize("options", [{"nodes_to_quantize": ["y"]}, {"op_types_to_quantize": ["Conv"]}])
def test_what_the_user_asks_for_is_quantized_even_so(options: dict[str, list[str]]) -> None:
    assert quantized_inputs(narrow("e = Exp(x) y = Conv(e, w1)"), **options) == {"y": ["e", "w1"]}


def test_asking_for_something_else_changes_nothing() -> None:
    model = narrow("e = Exp(x) y = Conv(e, w1)")
    assert rules(model, op_types_to_quantize=["Exp"])["y", 0] == "NOT_SELECTED"
    assert details(model, nodes_to_exclude=["y"]) == {"y": ""}


@pytest.mark.parametrize("operands", ["a, e", "e, a"])
def test_the_add_behind_a_narrow_convolution_stays_float(operands: str) -> None:
    model = narrow(f"e = Exp(x) a = Conv(e, w1) y = Add({operands})")
    assert quantized_inputs(model) == quantized_inputs(swap(model, "y")) == {}
    assert "R9" in {rule for (output, _), rule in rules(model).items() if output == "y"}
    wide = text_model(f"e = Exp(x) a = Conv(e, w1) y = Add({operands})", outputs="float y")
    assert quantized_inputs(wide)["y"] == ["e"]


@pytest.mark.parametrize("operands", ["a, e", "e, a"])
def test_the_add_reads_a_skip_that_is_there_in_int8(operands: str) -> None:
    """The first block of EfficientViT-B0: a depthwise convolution, which is served, then one of 8 channels."""
    body = f"e = Exp(x) d = Conv<group = 8>(e, w1) a = Conv(d, k1) y = Add({operands}) p = GlobalAveragePool(y)"
    model = text_model(body, NARROW, "float y, float p", w1=(8, 1, 3, 3), k1=(8, 8, 1, 1))
    assert quantized_inputs(model) == quantized_inputs(swap(model, "y")) == {"d": ["e", "w1"], "y": ["e"]}
    assert quantized_inputs(model, nodes_to_exclude=["a"]) == {"d": ["e", "w1"]}
    assert quantized_inputs(model, nodes_to_exclude=["d"]) == {}


def test_a_pool_has_no_neighbour_in_a_narrow_convolution() -> None:
    body = "e = Exp(x) y = GlobalAveragePool(e) z = Conv(y, w1)"
    assert quantized_inputs(text_model(body, NARROW, "float y, float z", w1=(8, 8, 1, 1))) == {}


def test_a_weight_shared_with_a_served_reader_is_quantized_for_that_one() -> None:
    model = narrow("a = Conv(x, w1) y = Conv(a, w1)")
    assert quantized_inputs(model) == {"a": ["x", "w1"]}


def test_both_products_of_long_attention_stay_float_and_its_projections_do_not() -> None:
    body = "s = MatMul(q, k) p = Softmax(s) o = MatMul(p, v) y = MatMul(o, w)"
    long = text_model(body, ATTENTION.format(600), "float y", w=(64, 64))
    assert quantized_inputs(long) == {"y": ["o", "w"]}
    assert details(long).keys() == {"s", "o"}
    short = text_model(body, ATTENTION.format(128), "float y", w=(64, 64))
    assert quantized_inputs(short) == {"s": ["q", "k"], "o": ["p", "v"], "y": ["o", "w"]}
    assert quantized_inputs(long, op_types_to_quantize=["MatMul"]) == quantized_inputs(short)
