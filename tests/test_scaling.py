"""The numbers of Q/DQ pairs: what ops share, and what a bias or a Relu asks of its neighbours."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import ModelProto, numpy_helper

from onnxq.calibration import Range
from onnxq.pipeline import quantize
from onnxq.rewrite import strip_pairs
from text_models import text_model


def quantized(model: ModelProto, **options: Any) -> ModelProto:
    return quantize(model, policy="onnxruntime", **options).model


def stored(model: ModelProto) -> dict[str, Any]:
    return {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}


def dequantizations(model: ModelProto) -> dict[str, tuple[Any, ...]]:
    """What each node but Q/DQ reads dequantized: "node input" -> (integers if stored, scale, zero point)."""
    values, producers = stored(model), {n.output[0]: n for n in model.graph.node}
    found = {}
    for node in model.graph.node:
        for slot, name in enumerate(node.input):
            producer = producers.get(name)
            if node.op_type != "QuantizeLinear" and producer is not None and producer.op_type == "DequantizeLinear":
                integers, scale, zero_point = (values.get(n) for n in producer.input)
                found[f"{node.output[0]} {slot}"] = (integers, scale, zero_point)
    return found


def with_values(model: ModelProto, **values: np.ndarray) -> ModelProto:
    for tensor in model.graph.initializer:
        if tensor.name in values:
            tensor.CopyFrom(numpy_helper.from_array(values[tensor.name], tensor.name))
    return model


def test_a_bias_has_the_product_of_the_scales_and_zero_point_zero() -> None:
    found = dequantizations(quantized(text_model("c = Conv(x, w1, b1) y = Neg(c)")))
    integers, scale, zero_point = found["c 2"]
    np.testing.assert_array_equal(scale, found["c 0"][1] * found["c 1"][1])
    assert integers.dtype == zero_point.dtype == np.int32
    assert not zero_point.any()


def test_one_bias_of_two_convolutions_is_stored_for_each() -> None:
    found = dequantizations(quantized(text_model("c = Conv(x, w1, b1) d = Conv(c, w2, b1) y = Neg(d)")))
    for node in ("c", "d"):
        np.testing.assert_array_equal(found[f"{node} 2"][1], found[f"{node} 0"][1] * found[f"{node} 1"][1])


def test_a_weight_that_two_convolutions_share_serves_the_greater_bias() -> None:
    model = text_model("c = Conv(x, w1, b1) d = Conv(x, w1, b2) y = Add(c, d)")
    model = with_values(model, w1=np.zeros((16, 16, 3, 3), np.float32), b1=np.full(16, 1e9, np.float32))
    found = dequantizations(quantized(model))
    np.testing.assert_array_equal(found["c 1"][1], found["d 1"][1])
    for node, bias in (("c", 1e9), ("d", None)):
        integers, scale, _ = found[f"{node} 2"]
        assert np.abs(integers.astype(np.int64)).max() <= 2**30 + 2**8
        if bias is not None:
            np.testing.assert_allclose(integers * scale.astype(np.float64), bias, rtol=1e-6)


def test_a_relu_has_the_least_integer_for_its_zero() -> None:
    model = text_model("c = Conv(x, w1) r = Relu(c) d = Conv(r, w2) y = Neg(d)")
    for integer, least in (("uint8", 0), ("int8", -128)):
        _, _, zero_point = dequantizations(quantized(model, activation_type=integer))["d 0"]
        assert (zero_point.dtype, int(zero_point)) == (np.dtype(integer), least)


def test_symmetric_ranges_are_cut_to_what_a_relu_lets_pass() -> None:
    """As a calibration cache has them, which knows no zero points."""
    model = text_model("c = Conv(x, w1) r = Relu(c) d = Conv(r, w2) y = Neg(d)")
    ranges = {"x": Range(-2.0, 2.0), "r": Range(-5.1, 5.1), "d": Range(-1.0, 1.0)}
    found = dequantizations(quantized(model, ranges=ranges))
    assert (float(found["d 0"][1]), int(found["d 0"][2])) == (np.float32(5.1 / 255), 0)
    assert int(found["y 0"][2]) == 127  # half of 255 steps


def test_tensors_that_share_a_scale_are_cut_together() -> None:
    model = text_model(
        "c = Conv(x, w1) r = Relu(c) b = Conv(x, w2) t = Concat<axis=1>(r, b) d = Conv(t, w3) y = Neg(d)",
        w3=(16, 32, 3, 3),
    )
    result = quantize(model, policy="onnxruntime")
    assert result.placement.scale_groups == (("r", "b", "t"),)
    found = dequantizations(result.model)
    assert len({(float(found[edge][1]), int(found[edge][2])) for edge in ("t 0", "t 1", "d 0")}) == 1
    assert int(found["d 0"][2]) > 0


def test_constants_of_followers_are_stored_like_activations() -> None:
    found = dequantizations(quantized(text_model("c = Conv(x, w1) m = Mul(c, v1) d = Conv(m, w2) y = Neg(d)")))
    _, scale, zero_point = found["m 1"]
    assert (scale.shape, zero_point.dtype) == ((), np.uint8)


def test_taking_the_pairs_out_and_quantizing_again_gives_the_same() -> None:
    """The bias comes back as it was rounded, and is rounded to the same integers again."""
    model = text_model("c = Conv(x, w1, b1) r = Relu(c) d = Conv(r, w2, b2) y = Neg(d)")
    ranges = {"x": Range(-2.0, 3.0), "r": Range(0.0, 5.0), "d": Range(-1.0, 7.0)}
    once = quantized(model, ranges=ranges)
    again = quantized(strip_pairs(once), ranges=ranges)
    before, after = dequantizations(once), dequantizations(again)
    assert before.keys() == after.keys()
    for edge, parts in before.items():
        for one, two in zip(parts, after[edge], strict=True):
            np.testing.assert_array_equal(one, two)
