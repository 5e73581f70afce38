"""P4: LayerNormalization reads int8 if an int8 convolution yields its data."""

from __future__ import annotations

from typing import Any

import pytest

from text_models import quantized_inputs, rules, text_model

NHWC = "Transpose<perm = [0,2,3,1]>"


def norm_inputs(body: str, **options: Any) -> list[str]:
    """What the node that yields y reads quantized."""
    return quantized_inputs(text_model(body, outputs="float y"), **options).get("y", [])


@pytest.mark.parametrize(
    "body",
    [
        f"c = Conv(x, k1) t = {NHWC}(c) y = LayerNormalization(t, b1, b2)",
        f"c = Conv<group = 16>(x, w5) t = {NHWC}(c) y = LayerNormalization(t, b1)",
        f"c = Conv(x, k1, b3) i = Identity(c) j = {NHWC}(i) t = Identity(j) y = LayerNormalization(t, b1, b2)",
        "c = ConvTranspose(x, w1) j = Reshape(c, shape) t = Transpose<perm = [0,2,1]>(j) y = LayerNormalization(t, b1)",
    ],
    ids=["transpose", "depthwise", "identity", "tokens"],
)
def test_behind_an_int8_convolution_the_data_are_quantized(body: str) -> None:
    body = "shape = Constant<value_ints = [1,16,-1]>() " + body
    model = text_model(body, outputs="float y", w5=(16, 1, 3, 3))
    assert quantized_inputs(model)["y"] == ["t"]
    found = {edge: rule for edge, rule in rules(model).items() if edge[0] == "y"}
    assert found["y", 0] == "P4"
    assert set(found.values()) <= {"P4", "P6"}


@pytest.mark.parametrize(
    "body",
    [
        f"t = {NHWC}(x) y = LayerNormalization(t, b1)",
        f"c = Conv(x, k1) a = Add(c, x) t = {NHWC}(a) y = LayerNormalization(t, b1)",
        f"c = Conv(x, k1) a = Add(x, c) t = {NHWC}(a) y = LayerNormalization(t, b1)",
        f"c = Conv(x, k1) a = Add(c, v1) t = {NHWC}(a) y = LayerNormalization(t, b1)",
        f"c = Conv(x, k1) a = Exp(c) t = {NHWC}(a) y = LayerNormalization(t, b1)",
        f"c = Conv(x, k1) a = Concat<axis = 2>(c, x) t = {NHWC}(a) y = LayerNormalization(t, b1)",
    ],
    ids=["no convolution", "add", "swapped add", "position embedding", "exp", "half a concat"],
)
def test_behind_anything_else_they_stay_float(body: str) -> None:
    assert norm_inputs(body) == []
    assert rules(text_model(body, outputs="float y"))["y", 0] == "P4"


def test_the_convolution_must_be_quantized_itself() -> None:
    body = f"c = Conv(x, k1) t = {NHWC}(c) y = LayerNormalization(t, b1)"
    assert norm_inputs(body, nodes_to_exclude=["c"]) == []
    assert rules(text_model(body, outputs="float y"), nodes_to_exclude=["c"])["y", 0] == "P4"


def test_exclusion_and_selection() -> None:
    model = text_model(f"c = Conv(x, k1) t = {NHWC}(c) y = LayerNormalization(t, b1)", outputs="float y")
    assert rules(model, op_types_to_exclude=["LayerNormalization"])["y", 0] == "P2"
    assert rules(model, nodes_to_exclude=["y"])["y", 0] == "P2"
    assert rules(model, op_types_to_quantize=["Conv"])["y", 0] == "NOT_SELECTED"
    assert quantized_inputs(model, op_types_to_quantize=["LayerNormalization"]) == {"y": ["t"]}
    assert quantized_inputs(model, nodes_to_quantize=["y"]) == {"y": ["t"]}


def test_variable_scales_stay_float() -> None:
    body = f"c = Conv(x, k1) t = {NHWC}(c) y = LayerNormalization(t, s)"
    model = text_model(body, "float[1,16,8,8] x, float[16] s", "float y")
    assert quantized_inputs(model)["y"] == ["t"]
    assert quantized_inputs(model, op_types_to_quantize=["LayerNormalization"]) == {"y": ["t"]}


def test_other_readers_of_the_convolution_read_float() -> None:
    body = f"c = Conv(x, k1) t = {NHWC}(c) n = LayerNormalization(t, b1) e = Exp(t) y = Add(n, e)"
    assert quantized_inputs(text_model(body, outputs="float y")) == {"c": ["x", "k1"], "n": ["t"]}


def test_names_mean_nothing() -> None:
    model = text_model(f"[n] c = Conv(x, k1) [n] t = {NHWC}(c) [n] y = LayerNormalization(t, b1)", outputs="float y")
    model.graph.node[2].ClearField("name")
    assert quantized_inputs(model)["y"] == ["t"]
