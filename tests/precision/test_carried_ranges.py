"""F3 in bodies: what a Loop or Scan gets, carries on and computes of constants is judged as it is outside of bodies."""

from __future__ import annotations

import numpy as np
import onnxruntime as ort
import pytest
from onnx import ModelProto
from onnx.parser import parse_model

from onnxq.convert import Lowered, convert
from onnxq.precision import Kept

HEAD = '<ir_version: 8, opset_import: ["": 17]>'

RUNNING_MAX = (
    HEAD
    + """g (float[4] x) => (float[4] y)
    <int64 trips = {3}, bool go = {1}, float[4] lowest = {-3e38, -3e38, -3e38, -3e38}> {
  y = Loop (trips, go, lowest) <
    body = b (int64 i, bool c, float[4] s) => (bool d, float[4] next) {
      d = Identity(c)  e = Exp(x)  m = Max(s, e)  next = Identity(m)
    }
  >
}"""
)

SPOILED_LATER = (
    HEAD
    + """g (float[4] x) => (float[4] y) <int64 trips = {3}, bool go = {1}, float big = {70000}> {
  y, z = Loop (trips, go, x, x) <
    body = b (int64 i, bool c, float[4] s, float[4] t) => (bool d, float[4] next, float[4] last) {
      d = Identity(c)  u = Neg(s)  next = Tanh(u)  last = Mul(s, big)
    }
  >
}"""
)

CARRIED_BACK = (
    HEAD
    + """g (float[4] x) => (float[4] y) <int64 trips = {3}, bool go = {1}, float big = {70000}> {
  y = Loop (trips, go, x) <
    body = b (int64 i, bool c, float[4] s) => (bool d, float[4] next) {
      d = Identity(c)  u = Neg(s)  v = Tanh(u)  next = Mul(v, big)
    }
  >
}"""
)

SCANNED = (
    HEAD
    + """g (float[4] x, float[3, 4] rows) => (float[4] y, float[3, 4] z)
    <float[4] lowest = {-3e38, -3e38, -3e38, -3e38}> {
  y, z = Scan (lowest, rows) <
    num_scan_inputs = 1,
    body = b (float[4] s, float[4] row) => (float[4] next, float[4] each) {
      next = Max(s, row)  each = Sigmoid(row)
    }
  >
}"""
)

COMPUTED = (
    HEAD
    + """g (float[4] x, bool choice) => (float[4] y) <float k = {7000}> {
  y = If (choice) <
    then_branch = one () => (float[4] a) <float ten = {FACTOR}> { big = Mul(k, ten)  a = Min(x, big) },
    else_branch = two () => (float[4] b) { b = Sin(x) }
  >
}"""
)


def reasons(model: str) -> dict[str, Kept]:
    return {kept.node.split()[0]: kept.why for kept in lowered(model).kept if kept.why is not Kept.OPERATOR}


def lowered(model: str) -> Lowered:
    return convert(parse_model(model))


def run(model: ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"]).run(None, feeds)


def test_what_a_loop_starts_with_is_beyond_the_range() -> None:
    assert reasons(RUNNING_MAX) == {"Max": Kept.RANGE, "Identity": Kept.RANGE}
    assert reasons(RUNNING_MAX.replace("-3e38", "-3e3")) == {}


def test_what_a_round_carries_on_is_beyond_the_range_in_the_next_one() -> None:
    assert reasons(CARRIED_BACK) == {"Neg": Kept.RANGE, "Tanh": Kept.RANGE, "Mul": Kept.RANGE}
    assert reasons(CARRIED_BACK.replace("70000", "7000")) == {}


def test_only_the_state_is_judged_that_carries_it() -> None:
    assert reasons(SPOILED_LATER) == {"Mul": Kept.RANGE}


def test_the_state_of_a_scan_is_judged_and_its_rows_are_not() -> None:
    assert reasons(SCANNED) == {"Max": Kept.RANGE}


@pytest.mark.parametrize(
    ("factor", "expected"), [("10", {"Mul": Kept.CONSTANT, "Min": Kept.RANGE}), ("2", {"Mul": Kept.CONSTANT})]
)
def test_constants_that_a_body_computes_are_judged(factor: str, expected: dict[str, Kept]) -> None:
    assert reasons(COMPUTED.replace("FACTOR", factor)) == expected


@pytest.mark.parametrize("model", [RUNNING_MAX, CARRIED_BACK, SPOILED_LATER])
def test_the_result_is_that_of_the_float_model(model: str) -> None:
    feeds = {"x": np.array([0.5, -1, 2, 3], np.float32)}
    for a, b in zip(run(parse_model(model), feeds), run(lowered(model).model, feeds), strict=True):
        np.testing.assert_allclose(a, b, rtol=5e-3)
