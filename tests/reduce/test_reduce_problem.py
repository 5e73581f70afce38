"""What a problem knows of its model, and when one is smaller than another."""

from __future__ import annotations

from dataclasses import astuple, fields
from itertools import pairwise

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from reductions import problem

from onnxq.errors import InvalidModelError
from onnxq.reduce import ReductionProblem, Size, problem_of
from onnxq.reduce.problem import BFLOAT16, simple_values, weight_complexity
from onnxq.tensor_types import ValueType
from text_models import text_model

sizes = st.builds(Size, *(st.integers(0, 2) for _ in fields(Size)))
X = np.zeros((1, 16, 8, 8), np.float32)


@given(sizes, sizes, sizes)
def test_sizes_have_a_total_order(a: Size, b: Size, c: Size) -> None:
    assert (a < b) + (a == b) + (b < a) == 1
    assert not (a < b and b < c) or a < c
    assert (a < b) == (astuple(a) < astuple(b))


def variant(**changes: object) -> ReductionProblem:
    model = text_model("a = Conv(x, w) y = Relu(a)")
    feeds = {"x": X}
    if "node" in changes:
        model.graph.node.insert(0, helper.make_node("Identity", ["x"], ["i"]))
        model.graph.node[1].input[0] = "i"
    if "element" in changes:
        model.graph.initializer.append(numpy_helper.from_array(np.zeros(1, np.int64), "more"))
    if "output" in changes:
        model.graph.output.append(helper.make_tensor_value_info("a", 1, X.shape))
    if "attribute" in changes:
        model.graph.node[0].attribute.append(helper.make_attribute("group", 1))
    if "ones" in changes:
        model.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.ones((16, 16, 3, 3), np.float32), "w"))
    if "declaration" in changes:
        model.graph.value_info.append(helper.make_tensor_value_info("a", 1, X.shape))
    if "name" in changes:
        model.graph.node[0].name = "a_rather_long_name"
    return ReductionProblem(model, (feeds,))


def test_what_counts_most_comes_first() -> None:
    order = ["name", "declaration", "ones", "attribute", "output", "element", "node"]
    apart = {change: variant(**{change: True}).size for change in order if change != "ones"}
    assert all(variant().size < size for size in apart.values())
    assert all(a < b for a, b in pairwise(apart.values()))
    simple = variant(ones=True, name=True, declaration=True)
    assert simple.size < variant().size < variant(ones=True, attribute=True).size


def test_nodes_of_bodies_and_functions_count() -> None:
    model = text_model(
        "c = Cast<to=9>(f) y = If(c) <"
        "then_branch = a () => (float[1,16,8,8] t) { r = Relu(x) t = Relu(r) },"
        "else_branch = b () => (float[1,16,8,8] e) { e = Neg(x) }>",
        inputs="float[1,16,8,8] x, float f",
    )
    assert problem(model).size.nodes == 5


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64, BFLOAT16])
def test_weights_are_graded(dtype: object) -> None:
    grades = [np.ones(3), np.full(3, 0.3), np.array([0.125, -1, 0]), np.array([0.3, 0.2, 0.1]), np.array([2.0, 1.0, 1])]
    tensors = [numpy_helper.from_array(values.astype(dtype)) for values in grades]
    assert [weight_complexity(tensor) for tensor in tensors] == [0, 1, 2, 3, 3]


def test_integers_and_nothing_are_simple() -> None:
    empty, nan = np.zeros((0, 3), np.float32), np.array([np.nan, 1], np.float32)
    assert weight_complexity(numpy_helper.from_array(np.arange(9))) == 0
    assert weight_complexity(numpy_helper.from_array(empty)) == 0
    assert weight_complexity(numpy_helper.from_array(nan)) == 3


def test_simple_values_are_simple_and_the_same_each_time() -> None:
    values = simple_values((4, 5), positive=False)
    assert np.array_equal(values, simple_values((4, 5), positive=False))
    assert weight_complexity(numpy_helper.from_array(values.astype(np.float32))) == 2
    assert (values != 0).all()
    assert (values < 0).any()
    assert (simple_values((4, 5), positive=True) > 0).all()


def test_types_have_the_lengths_of_the_sample_and_the_symbols_of_the_model() -> None:
    model = text_model("a = Relu(x) y = Transpose<perm=[1,0]>(a)", "float[N,4] x", "float[4,N] y")
    types = problem_of(model, [{"x": np.zeros((3, 4), np.float32)}]).types
    assert types["a"] == ValueType(TensorProto.FLOAT, ("N", 4))
    assert types["y"] == ValueType(TensorProto.FLOAT, (4, "N"))


@pytest.mark.parametrize("elem_type", [TensorProto.INT4, TensorProto.FLOAT8E4M3FN])
def test_what_no_array_holds_has_no_type(elem_type: int) -> None:
    model = text_model("q = QuantizeLinear(x, c, z) y = DequantizeLinear(q, c, z)", opset=21, z=())
    model.ir_version = 10
    (old,) = (tensor for tensor in model.graph.initializer if tensor.name == "z")
    old.CopyFrom(helper.make_tensor("z", elem_type, [], [0]))
    types = problem(model).types
    assert "q" not in types
    assert types["y"] == ValueType(TensorProto.FLOAT, (1, 16, 8, 8))


def test_bfloat16_is_seen_as_what_it_is() -> None:
    model = text_model("b = Cast<to=16>(x) i = Identity(b) y = Cast<to=1>(i)")
    found = problem(model)
    assert found.types["b"] == ValueType(TensorProto.BFLOAT16, (1, 16, 8, 8))
    (values,) = found.observe(["b", "i"])
    assert {value.dtype for value in values.values()} == {BFLOAT16}


def test_a_captured_bfloat16_tensor_can_be_observed() -> None:
    model = text_model(
        "b = Cast<to=16>(x) c = Cast<to=9>(f) r = If(c) <"
        "then_branch = t () => (bfloat16[1,16,8,8] u) { u = Identity(b) },"
        "else_branch = e () => (bfloat16[1,16,8,8] v) { v = Identity(b) }> y = Cast<to=1>(r)",
        inputs="float[1,16,8,8] x, float f",
    )
    (values,) = problem(model).observe(["b", "r"])
    assert np.array_equal(values["b"], values["r"])


def test_a_problem_is_a_copy() -> None:
    model, feed = text_model("y = Relu(x)"), {"x": X}
    found = problem_of(model, [feed])
    model.graph.node[0].op_type = "Neg"
    feed.clear()
    assert found.model.graph.node[0].op_type == "Relu"
    assert list(found.feeds[0]) == ["x"]


def test_equal_problems_have_equal_digests_and_others_dont() -> None:
    model = text_model("y = Relu(x)")
    base = problem_of(model, [{"x": X}])
    assert base.digest == problem_of(model, [{"x": X.copy()}]).digest
    assert base.digest != problem_of(model, [{"x": X + 1}]).digest
    assert base.digest != problem_of(model, [{"x": X}, {"x": X}]).digest


@pytest.mark.parametrize(
    ("feeds", "said"),
    [
        ([], "there is no sample"),
        ([{"x": X}, {"x": np.zeros((2, 16, 8, 8), np.float32)}], "the samples differ in shape"),
        ([{"x": X.astype(np.int64)}], "the float model itself can't be used"),
        ([{}], "the float model itself can't be used"),
    ],
)
def test_what_cant_be_reduced_is_refused(feeds: list[dict[str, np.ndarray]], said: str) -> None:
    with pytest.raises(InvalidModelError, match=said):
        problem_of(text_model("y = Relu(x)", "float[N,16,8,8] x", "float[N,16,8,8] y"), feeds)


def test_a_model_that_the_runtime_refuses_is_refused() -> None:
    model = text_model("y = Relu(x)")
    model.graph.node[0].domain = "nobody.knows"
    model.opset_import.append(onnx.helper.make_opsetid("nobody.knows", 1))
    with pytest.raises(InvalidModelError, match="can't be reduced"):
        problem_of(model, [{"x": X}])
