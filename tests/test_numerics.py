from __future__ import annotations

import math

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from onnx.parser import parse_model

from onnxq.errors import InvalidModelError
from onnxq.numerics import output_sqnr, run_model, sqnr

FLOATS = arrays(np.float32, st.integers(1, 8), elements=st.floats(-(2**10), 2**10, width=32))


@given(FLOATS, st.integers(-20, 20))
def test_sqnr_of_a_relative_error(signal: np.ndarray, exponent: int) -> None:
    error = 10.0 ** (exponent / 20)
    expected = -exponent if np.square(signal.astype(np.float64)).sum() else math.inf
    assert sqnr(signal.astype(np.float64), signal.astype(np.float64) * (1 + error)) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("reference", "value", "expected"),
    [
        ([1.0, 2.0], [1.0, 2.0], math.inf),
        ([], [], math.inf),
        ([0.0, 0.0], [0.0, 1.0], -math.inf),
        ([1.0, 2.0], [[1.0, 2.0]], -math.inf),
        ([1.0, math.inf], [1.0, math.inf], math.inf),
        ([1.0, math.nan], [1.0, math.nan], math.inf),
        ([1.0, math.inf], [1.0, -math.inf], -math.inf),
        ([1.0, 2.0], [1.0, math.nan], -math.inf),
        ([1.0, math.nan], [1.0, 2.0], -math.inf),
    ],
)
def test_sqnr_at_the_edges(reference: list[float], value: list[float], expected: float) -> None:
    assert sqnr(np.array(reference), np.array(value)) == expected


def test_the_worst_run_of_each_float_output_counts() -> None:
    one, half = np.ones(2, np.float32), np.full(2, 0.5, np.float32)
    reference = [{"y": one, "k": np.array([1])}, {"y": one, "k": np.array([1])}]
    assert output_sqnr(reference, [{"y": one, "k": np.array([2])}, {"y": half, "k": np.array([1])}]) == {
        "y": pytest.approx(20 * math.log10(2))
    }
    assert output_sqnr(reference, [{}, {}]) == {"y": -math.inf}


MODEL = """
<ir_version: 8, opset_import: ["" : 17]>
graph (float[n] x) => (float[n] y, int64[1] size) { y = Neg(x)  size = Shape(x) }
"""


def test_run_model() -> None:
    feeds = [{"x": np.arange(n, dtype=np.float32), "unused": 1} for n in (2, 3)]
    results = run_model(parse_model(MODEL), feeds)
    assert [r["size"].tolist() for r in results] == [[2], [3]]
    assert results[1]["y"].tolist() == [0, -1, -2]


def test_bfloat16_goes_in() -> None:
    model = parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> graph (bfloat16[2] x) => (float[2] y) { y = Cast<to=1>(x) }'
    )
    dtype = onnx.helper.tensor_dtype_to_np_dtype(onnx.TensorProto.BFLOAT16)
    assert run_model(model, [{"x": np.array([1.5, -2], dtype)}])[0]["y"].tolist() == [1.5, -2]


def test_what_the_runtime_refuses_is_one_line() -> None:
    unknown = parse_model(MODEL.replace("Neg", "Negate"))
    with pytest.raises(InvalidModelError, match="onnxruntime can't load the model with optimizations on: ") as caught:
        run_model(unknown, [], optimize=True)
    assert "\n" not in str(caught.value)
    with pytest.raises(InvalidModelError, match="onnxruntime can't run the model on feed 1 with optimizations off: "):
        run_model(parse_model(MODEL), [{"x": np.zeros(1, np.float32)}, {"x": np.zeros((1, 1), np.float32)}])


def test_a_loop_that_never_ends_is_ended() -> None:
    body = "body = b (int64 n, bool go, float[1] h) => (bool go_on, float[1] g) { go_on = Identity(go) g = Neg(h) }"
    model = parse_model(
        f'<ir_version: 8, opset_import: ["": 17]> g (float[1] x) => (float[1] y) {{ y = Loop(, , x) <{body}> }}'
    )
    with pytest.raises(InvalidModelError, match="can't run the model on feed 0"):
        run_model(model, [{"x": np.ones(1, np.float32)}], time_limit=0.2)


def test_a_run_within_its_time_is_as_any_other() -> None:
    model = parse_model('<ir_version: 8, opset_import: ["": 17]> g (float[1] x) => (float[1] y) { y = Neg(x) }')
    (outputs,) = run_model(model, [{"x": np.ones(1, np.float32)}], time_limit=60.0)
    assert outputs["y"] == -1
