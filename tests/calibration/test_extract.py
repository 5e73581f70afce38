from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import ModelProto, parser
from onnx.reference import ReferenceEvaluator

from onnxq.calibration import extract


def parse(body: str, *, ir: int = 8, opset: int = 17) -> ModelProto:
    return parser.parse_model(f'<ir_version: {ir}, opset_import: ["": {opset}]> {body}')


CHAIN = """g (float[N] x, float[N] unused) => (float[N] y, float[N] z)
<float[1] w = {2}, float[1] v = {3}, float[1] idle = {4}>
{ a = Mul(x, w)  b = Relu(a)  y = Add(b, v)  z = Sub(unused, idle) }"""

IF = """g (bool c, float[N] x, float[N] deep, float[N] passed) => (float[N] y, float[N] other)
<float[1] w = {2}>
{
  d = Neg(deep)
  y = If (c) <
    then_branch = t () => (float[N] r) { local = Abs(x)  q = If (c) <
        then_branch = tt () => (float[N] r1) { r1 = Mul(d, local) },
        else_branch = te () => (float[N] r2) { r2 = Add(local, w) }
      >  r = Neg(q) },
    else_branch = e () => (passed) {}
  >
  other = Abs(x)
}"""


def test_only_ancestors_are_kept_in_order() -> None:
    model = parse(CHAIN)
    part = extract(model, ["b"])
    assert [n.op_type for n in part.graph.node] == ["Mul", "Relu"]
    assert [v.name for v in part.graph.input] == ["x"]
    assert [t.name for t in part.graph.initializer] == ["w"]
    assert [v.name for v in part.graph.output] == ["b"]
    x = np.array([-1, 2], np.float32)
    np.testing.assert_array_equal(ReferenceEvaluator(part).run(None, {"x": x})[0], [0, 4])


def test_captured_tensors_count_as_inputs() -> None:
    part = extract(parse(IF), ["y"])
    assert [n.op_type for n in part.graph.node] == ["Neg", "If"]
    assert [v.name for v in part.graph.input] == ["c", "x", "deep", "passed"]
    assert [t.name for t in part.graph.initializer] == ["w"]


def test_inputs_and_initializers_can_be_outputs_each_once() -> None:
    part = extract(parse(CHAIN), ["x", "w", "x"])
    assert [v.name for v in part.graph.output] == ["x", "w"]
    assert not part.graph.node


def test_initializers_among_the_inputs_become_constants() -> None:
    model = parse("g (float[N] x, float[1] w) => (float[N] y) <float[1] w = {2}> { y = Mul(x, w) }", ir=3, opset=8)
    part = extract(model, ["y"])
    assert [v.name for v in part.graph.input] == ["x"]
    assert part.ir_version == 4
    assert part.opset_import == model.opset_import


def test_nothing_is_shared_with_the_original() -> None:
    model = parse(CHAIN)
    before = model.SerializeToString()
    part = extract(model, ["y"])
    part.graph.node[0].op_type = "Div"
    part.graph.initializer[0].float_data[0] = 9
    part.graph.input[0].name = "renamed"
    part.opset_import[0].version = 1
    assert model.SerializeToString() == before


def test_functions_come_along() -> None:
    text = """g (float[N] x) => (float[N] y) { a = local.twice(x)  y = Neg(a) }
    <domain: "local", opset_import: ["": 17]> twice (p) => (q) { q = Add(p, p) }"""
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["": 17, "local": 1]> {text}')
    part = extract(model, ["a"])
    onnx.checker.check_model(model)
    np.testing.assert_array_equal(ReferenceEvaluator(part).run(None, {"x": np.ones(2, np.float32)})[0], [2, 2])


@pytest.mark.parametrize("name", ["nowhere", "local", "r1"])
def test_unknown_tensors_and_those_of_bodies_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f'"{name}" is no tensor'):
        extract(parse(IF), [name])
