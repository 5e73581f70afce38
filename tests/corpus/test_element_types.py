"""The checks of element types and Casts, on results as other tools write them."""

from __future__ import annotations

from pathlib import Path

import onnx.parser
import pytest
from onnx import ModelProto

from onnxq.corpus.case import load_case
from onnxq.corpus.element_types import cast_problems, initializer_type_problems, node_type_problems
from onnxq.errors import CorpusError

FLOAT = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[16, 16] x, bool choice) => (float[16, 16] y, float[16, 16] z) <float[2] table = {1, 2}, float k = {3}> {
  [first] r = Relu(x)
  y = Tanh(r)
  z = If(choice) <
    then_branch = one () => (float[16, 16] a) { a = Mul(r, k) },
    else_branch = two () => (float[16, 16] b) { c = Constant<value = float {2}>() b = Mul(r, c) }
  >
}
"""

HALF = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[16, 16] x, bool choice) => (float[16, 16] y, float[16, 16] z) <float[2] table = {1, 2}> {
  x_half = Cast<to = 10>(x)
  r = Relu(x_half)
  y_half = Tanh(r)
  y = Cast<to = 1>(y_half)
  z = If(choice) <
    then_branch = one () => (float[16, 16] a) {
      k = Constant<value = float16 {3}>()
      a_half = Mul(r, k)
      a = Cast<to = 1>(a_half)
    },
    else_branch = two () => (float[16, 16] b) <float[1] c = {2}> {
      r_float = Cast<to = 1>(r)
      b = Mul(r_float, c)
    }
  >
}
"""


@pytest.fixture
def before() -> ModelProto:
    return onnx.parser.parse_model(FLOAT)


@pytest.fixture
def after() -> ModelProto:
    return onnx.parser.parse_model(HALF)


def test_nodes_are_found_behind_their_casts_and_in_bodies(before: ModelProto, after: ModelProto) -> None:
    expected = {"first": "float16", "r": "float16", "y": "float16", "a": "float16", "b": "float", "z": "float"}
    assert node_type_problems(before, after, expected) == []
    wrong = node_type_problems(before, after, {"first": "float", "y": "bfloat16", "b": "float16"})
    assert wrong == [
        'Relu "first"\n    expected: its result is float\n    found:    float16',
        'Tanh (unnamed, output "y")\n    expected: its result is bfloat16\n    found:    float16',
        'Mul (unnamed, output "b")\n    expected: its result is float16\n    found:    float',
    ]


def test_a_node_that_is_gone(before: ModelProto, after: ModelProto) -> None:
    (tanh,) = (node for node in after.graph.node if node.op_type == "Tanh")
    tanh.op_type = "Sigmoid"
    (problem,) = node_type_problems(before, after, {"y": "float16"})
    assert problem.endswith("found:    the node is gone")


def test_a_name_that_no_node_has_or_two(before: ModelProto, after: ModelProto) -> None:
    with pytest.raises(AssertionError, match=r'^no nodes are named "nothing"'):
        node_type_problems(before, after, {"nothing": "float"})
    before.graph.node[1].name = "first"
    with pytest.raises(AssertionError, match=r'^2 nodes are named "first"'):
        node_type_problems(before, after, {"first": "float"})


def test_stored_tensors_are_initializers_and_constants_of_any_graph(after: ModelProto) -> None:
    assert initializer_type_problems(after, {"table": "float", "k": "float16", "c": "float"}) == []
    assert initializer_type_problems(after, {"table": "float16", "x": "float"}) == [
        'stored tensor "table"\n    expected: float16\n    found:    float',
        'stored tensor "x"\n    expected: float\n    found:    nothing is stored under this name',
    ]


def test_casts_are_counted_in_bodies_too(after: ModelProto) -> None:
    assert cast_problems(after, 4) == []
    (problem,) = cast_problems(after, 2)
    assert problem.startswith("expected: 2 Casts\nfound:    4\n")
    assert '"y_half" to "y"' in problem
    assert '"a_half" to "a"' in problem


@pytest.mark.parametrize("key", ["node_types", "initializer_types"])
def test_an_unknown_element_type_in_a_case(tmp_path: Path, key: str) -> None:
    file = tmp_path / "case.toml"
    head = 'schema = 1\ntitle = "a title"\nsource = "made up"\n[model]\nbuilder = "residual.identity"\n'
    file.write_text(f"{head}[expect]\n{key} = {{ add = 'half' }}\n")
    with pytest.raises(CorpusError, match=rf'expect\.{key}: unknown element type "half"'):
        load_case(file)
