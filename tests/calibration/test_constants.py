from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper, parser

from onnxq.calibration import evaluate_constants
from onnxq.errors import CalibrationError, UnsupportedError


def parse(body: str, *, ir: int = 8, opset: int = 17) -> ModelProto:
    return parser.parse_model(f'<ir_version: {ir}, opset_import: ["": {opset}]> {body}')


TEXT = """g (float[N] x, float[2] listed) => (float[N] y)
<float[2, 3] w = {1, 2, 3, 4, 5, 6}, float[2] listed = {7, 8}, int64[1] three = {3},
 int8[2] q = {-1, 2}, float scale = {0.5}>
{
  wt = Transpose(w)
  half = Constant<value = float16[2] {15360, 16384}>()
  full = Cast<to = 1>(half)
  ones = ConstantOfShape<value = float[1] {1}>(three)
  dq = DequantizeLinear(q, scale)
  c = Constant<value = float[2] {1, 2}>()
  cf = Constant<value_float = 0.5>()
  cfs = Constant<value_floats = [0.5, 1.5]>()
  ci = Constant<value_int = 3>()
  cis = Constant<value_ints = [3, 4]>()
  sum = Add(c, listed)
  y = Relu(x)
}"""


def test_every_way_to_state_a_constant() -> None:
    wanted = {
        "wt": np.array([[1, 4], [2, 5], [3, 6]], np.float32),
        "w": np.array([[1, 2, 3], [4, 5, 6]], np.float32),
        "half": np.array([1, 2], np.float16),
        "full": np.array([1, 2], np.float32),
        "ones": np.ones(3, np.float32),
        "dq": np.array([-0.5, 1], np.float32),
        "c": np.array([1, 2], np.float32),
        "cf": np.array(0.5, np.float32),
        "cfs": np.array([0.5, 1.5], np.float32),
        "ci": np.array(3),
        "cis": np.array([3, 4]),
        "listed": np.array([7, 8], np.float32),
        "sum": np.array([8, 10], np.float32),
    }
    found = evaluate_constants(parse(TEXT), list(wanted))
    assert list(found) == list(wanted)
    for name, value in wanted.items():
        assert (found[name].dtype, found[name].shape) == (value.dtype, value.shape), name
        np.testing.assert_array_equal(found[name], value)


def test_initializers_among_the_inputs_of_old_models() -> None:
    model = parse("g (int64[1] n) => (float[K] w) <int64[1] n = {2}> { w = ConstantOfShape(n) }", ir=3, opset=9)
    assert evaluate_constants(model, ["w"])["w"].tolist() == [0, 0]


def test_bfloat16_stored_and_computed() -> None:
    model = parse("g () => (bfloat16[2] t) { a = Constant<value = float[1, 2] {0.5, 3}>() t = Cast<to = 16>(a) }")
    model.graph.initializer.append(numpy_helper.from_array(np.array([1, 2], ml_dtypes.bfloat16), "b"))
    found = evaluate_constants(model, ["b", "t", "a"])
    assert {n: (v.dtype.name, v.tolist()) for n, v in found.items()} == {
        "b": ("bfloat16", [1, 2]),
        "t": ("bfloat16", [[0.5, 3]]),
        "a": ("float32", [[0.5, 3]]),
    }


def test_variables_and_unknown_names_are_refused() -> None:
    with pytest.raises(ValueError, match='input "x"'):
        evaluate_constants(parse(TEXT), ["wt", "y"])
    with pytest.raises(ValueError, match='"nowhere"'):
        evaluate_constants(parse(TEXT), ["nowhere"])


def test_none_asked_for() -> None:
    assert evaluate_constants(parse(TEXT), []) == {}


def test_what_is_no_tensor() -> None:
    model = parse("g () => (float y) <float w = {1}> { s = SequenceConstruct(w) y = Identity(w) }")
    with pytest.raises(UnsupportedError, match=r'"s" is a seq'):
        evaluate_constants(model, ["s"])


def test_what_the_runtime_cannot_compute() -> None:
    model = parse("g () => (float[3] y) <float[2] a = {1, 2}, float[3] b = {1, 2, 3}> { y = Add(a, b) }")
    with pytest.raises(CalibrationError, match=r"Add|dimension"):
        evaluate_constants(model, ["y"])


def test_a_fault_elsewhere_does_no_harm() -> None:
    model = parse("g (float[N] x) => (float[N] y) <float[1] w = {4}> { s = Sqrt(w) y = Unheard(x, s) }")
    assert evaluate_constants(model, ["s"])["s"].tolist() == [2]


@pytest.mark.parametrize("indices", [[1, 5], [[0, 1], [1, 2]]])
def test_sparse_constants(indices: list[object]) -> None:
    index = np.array(indices)
    values = helper.make_tensor("w", TensorProto.FLOAT, [2], [5.0, 6.0])
    sparse = helper.make_sparse_tensor(values, numpy_helper.from_array(index), [2, 3])
    model = parse("g () => (float[2, 3] c) { }")
    model.graph.node.append(helper.make_node("Constant", [], ["c"], sparse_value=sparse))
    model.graph.sparse_initializer.append(sparse)
    for value in evaluate_constants(model, ["w", "c"]).values():
        assert value.tolist() == [[0, 5, 0], [0, 0, 6]]
