"""What calibration saw beyond half precision's range stays float32, as do what yields it and what is made of it."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto

import onnxq
from onnxq.numerics import output_sqnr, run_model
from onnxq.pipeline import QuantizationResult
from onnxq.precision import Kept
from text_models import text_model

NETWORK = (
    "a = Conv(x, w1) n = Mul(a, v1) r = Relu(n) b = Conv(r, w2) s = Sigmoid(b) c = Conv(s, w3) "
    "p = GlobalAveragePool(r) f = Flatten(p) g = Gemm(f, k1) q = Softmax(g) h = Mul(q, q) y = Add(c, c)"
)
OUTPUTS = "float[1,16,8,8] y, float[1,5] h"


def network(body: str = NETWORK) -> ModelProto:
    return text_model(body, outputs=OUTPUTS, k1=(16, 5), v1=(16, 1, 1))


def samples(size: float) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(3)
    return [{"x": (size * rng.standard_normal((1, 16, 8, 8))).astype(np.float32)} for _ in range(2)]


def quantized(size: float, model: ModelProto | None = None, **options: object) -> QuantizationResult:
    arguments = {"calibration_data": samples(size), "calibration_method": "max", **options}
    return onnxq.quantize(model or network(), **arguments)  # type: ignore[arg-type]


def kept(result: QuantizationResult) -> set[str]:
    return {found.node.split('"')[1] for found in result.kept_float if found.why is Kept.WIDE and '"' in found.node}


def test_from_the_linear_op_to_what_bounds_it() -> None:
    """r is wide, and so is what r makes before Sigmoid and Softmax bound it; a and n may be."""
    names = kept(quantized(1e6))
    assert {"a", "n", "r", "p", "f", "g", "b", "s", "q"} <= names
    assert not {"c", "h", "y"} & names


def test_ordinary_values_keep_nothing() -> None:
    assert not kept(quantized(1.0))


def test_bfloat16_holds_them() -> None:
    assert not kept(quantized(1e6, high_precision_dtype="bf16"))


def test_the_last_value_within_the_range() -> None:
    """65,504 is float16's greatest number."""
    for greatest, stays in ((65504.0, False), (65536.0, True)):
        model = text_model("r = Relu(x) y = Conv(r, w1)")
        sample = samples(1.0)[0]
        sample["x"][0, 0, 0, 0] = greatest
        result = onnxq.quantize(model, calibration_data=[sample], calibration_method="max")
        assert ("r" in kept(result)) == stays


@pytest.mark.parametrize("method", ["max", "entropy", "percentile", "mse"])
def test_results_are_finite_and_close(method: str) -> None:
    data, model = samples(1e6), network()
    result = quantized(1e6, calibration_method=method)
    ratios = output_sqnr(run_model(model, data), run_model(result.model, data))
    assert min(ratios.values()) >= 15.0, ratios


@pytest.mark.parametrize("operands", ["r, z", "z, r"])
def test_either_operand_is_followed(operands: str) -> None:
    body = f"a = Conv(x, w1) r = Relu(a) b = Conv(r, w2) z = Exp(e) t = Mul({operands}) u = Tanh(t) y = Add(u, b)"
    model = text_model(body, "float[1,16,8,8] x, float[1,16,8,8] e")
    data = [{**sample, "e": np.zeros((1, 16, 8, 8), np.float32)} for sample in samples(1e6)]
    names = kept(quantized(1e6, model, calibration_data=data))
    assert "t" in names
    assert "z" not in names


def test_ranges_that_are_given_count_as_well() -> None:
    ranges = onnxq.calibrate(network(), samples(1e6), method="max")
    assert kept(quantized(1e6, calibration_data=None, calibration_method=None, ranges=ranges)) == kept(quantized(1e6))


def test_a_body_keeps_to_itself() -> None:
    body = """r = Relu(x) c = Conv(r, w1) yes = Greater(t, zero)
    y = If(yes)<then_branch = g1 () => (float[1,16,8,8] o) { o = Tanh(c) },
                else_branch = g2 () => (float[1,16,8,8] e) { e = Neg(c) }>"""
    model = text_model(body, "float[1,16,8,8] x, float t", zero=())
    data = [{**sample, "t": np.array(1, np.float32)} for sample in samples(1e6)]
    result = onnxq.quantize(model, calibration_data=data, calibration_method="max")
    expected, got = (run_model(m, data) for m in (model, result.model))
    assert min(output_sqnr(expected, got).values()) > 15.0
