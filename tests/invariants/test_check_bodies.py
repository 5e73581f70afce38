"""The invariants see faults inside the bodies of If, Loop and Scan, and tell which body it is."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from onnxq.inspection import Tally, inspect
from onnxq.invariants import ModelPair, check, quantized_inputs
from onnxq.protos import bodies
from onnxq.rewrite import strip_pairs
from onnxq.testing import assert_exactly_one_quantized_add_input, assert_placement, find_node
from text_models import IMAGE, quantize_int8, text_model

BRANCHES = f"""
    s = Relu(x)
    [pick] y = If(c) <
        then_branch = one () => ({IMAGE} r) {{ a = Conv(s, k1) [add] r = Add(a, s) }},
        else_branch = two () => ({IMAGE} r) {{ a = Tanh(s) t = Transpose<perm = [0,1,3,2]>(a)
            b = Conv(a, k1) [last] d = Conv(t, k2) r = Softmax(b, d) }}
    >
    z = Mul(k1, k2)
"""
BRANCHES = BRANCHES.replace("r = Softmax(b, d)", "e = Softmax(d) r = Mul(b, e)")


def float_model() -> ModelProto:
    return text_model(BRANCHES, f"{IMAGE} x, bool c", f"{IMAGE} y")


def quantized(model: ModelProto) -> ModelProto:
    x = np.random.default_rng(0).standard_normal((1, 16, 8, 8), np.float32)
    return quantize_int8(model, calibration_data=[{"x": x, "c": np.array(c)} for c in (True, False)]).model


def branch(model: ModelProto, name: str) -> GraphProto:
    owner = next(node for node in model.graph.node if node.op_type == "If")
    return dict(bodies(owner))[name]


def made_by(graph: GraphProto, output: str) -> NodeProto:
    return next(node for node in graph.node if output in node.output)


def pair_of(graph: GraphProto, tensor: str) -> tuple[NodeProto, NodeProto]:
    q = next(n for n in graph.node if n.op_type == "QuantizeLinear" and n.input[0] == tensor)
    return q, next(n for n in graph.node if n.op_type == "DequantizeLinear" and n.input[0] == q.output[0])


def stored(graph: GraphProto, name: str) -> TensorProto:
    return next(t for t in graph.initializer if t.name == name)


def drop_the_skip(model: ModelProto) -> None:
    graph = branch(model, "then_branch")
    made_by(graph, "r").input[1] = "s"


def quantize_a_softmax(model: ModelProto) -> None:
    graph = branch(model, "else_branch")
    softmax = made_by(graph, "e")
    position = list(graph.node).index(softmax)
    q, _ = pair_of(graph, "a")
    graph.node.insert(position, helper.make_node("QuantizeLinear", ["d", *q.input[1:]], ["d_q"], name="dq1"))
    graph.node.insert(position + 1, helper.make_node("DequantizeLinear", ["d_q", *q.input[1:]], ["d_dq"], name="dq2"))
    made_by(graph, "e").input[0] = "d_dq"


def negate_a_scale(model: ModelProto) -> None:
    graph = branch(model, "else_branch")
    q, _ = pair_of(graph, "t")
    tensor = stored(graph, q.input[1])
    tensor.CopyFrom(numpy_helper.from_array(-numpy_helper.to_array(tensor), tensor.name))


def enlarge_a_weight_scale(model: ModelProto) -> None:
    graph = branch(model, "else_branch")
    q, _ = pair_of(graph, "k2")
    tensor = stored(graph, q.input[1])
    tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor) * np.float32(0.1), tensor.name))


def scale_along_the_wrong_axis(model: ModelProto) -> None:
    for node in pair_of(branch(model, "else_branch"), "k2"):
        node.attribute[0].i = 1


def repeat_a_pair(model: ModelProto) -> None:
    graph = branch(model, "then_branch")
    q, dq = pair_of(graph, "s")
    position = list(graph.node).index(made_by(graph, "a"))
    graph.node.insert(position, helper.make_node("QuantizeLinear", [dq.output[0], *q.input[1:]], ["q2"], name="again"))
    graph.node.insert(position + 1, helper.make_node("DequantizeLinear", ["q2", *q.input[1:]], ["dq2"], name="more"))
    made_by(graph, "a").input[0] = "dq2"


def leave_a_pair_unread(model: ModelProto) -> None:
    graph = branch(model, "else_branch")
    made_by(graph, "b").input[0] = "a"


def tear_a_group_apart(model: ModelProto) -> None:
    graph = branch(model, "else_branch")
    q, _ = pair_of(graph, "t")
    tensor = stored(graph, q.input[1])
    tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor) * np.float32(2), tensor.name))


def drop_an_operator(model: ModelProto) -> None:
    graph = branch(model, "else_branch")
    made_by(graph, "e").op_type = "Identity"


@pytest.mark.parametrize(
    ("spoil", "invariant", "where"),
    [
        (drop_the_skip, "residual-skip-only", 'Add "add" in body "pick.then_branch"'),
        (quantize_a_softmax, "never-rounded", 'in body "pick.else_branch"'),
        (negate_a_scale, "scales-positive", "QuantizeLinear"),
        (enlarge_a_weight_scale, "weights-reconstructed", 'weight "k2" of Conv "last" in body "pick.else_branch"'),
        (scale_along_the_wrong_axis, "weight-axes", 'weight "k2" of Conv "last" in body "pick.else_branch"'),
        (repeat_a_pair, "no-repeated-pairs", 'QuantizeLinear "again"'),
        (leave_a_pair_unread, "no-dangling-pairs", "DequantizeLinear"),
        (tear_a_group_apart, "copies-share-scale", 'in body "pick.else_branch"'),
        (drop_an_operator, "operators-preserved", "Softmax"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_fault_in_a_branch_is_found(spoil: Callable[[ModelProto], None], invariant: str, where: str) -> None:
    before = float_model()
    after = quantized(before)
    assert check(before, after) == []
    spoil(after)
    found = [v for v in check(before, after) if v.invariant == invariant]
    assert found
    assert any(where in v.where for v in found)


def test_bodies_are_matched_though_their_nodes_were_renamed() -> None:
    before = float_model()
    after = quantized(before)
    for number, node in enumerate(n for g in (after.graph, *(branch(after, b) for b in BOTH)) for n in g.node):
        node.name = f"n{number}"
    assert check(before, after) == []
    drop_the_skip(after)
    assert [v.invariant for v in check(before, after)] == ["residual-skip-only"]


BOTH = ("then_branch", "else_branch")


def test_equal_names_in_branches_are_told_apart() -> None:
    before = float_model()
    pair = ModelPair(before, quantized(before))
    found = quantized_inputs(pair)
    assert found["pick.then_branch/r"] == ["s"]
    assert found["pick.else_branch/r"] == []
    assert found["pick.then_branch/a"] == ["s", "k1"]
    assert found["pick.else_branch/b"] == ["a", "k1"]
    assert find_node(pair, "add")[0] == "pick.then_branch/r"
    assert find_node(pair, "pick.else_branch/r")[1].op_type == "Mul"
    with pytest.raises(AssertionError, match=r'name the one by its output, of "pick\.then_branch/r"'):
        find_node(pair, "r")
    with pytest.raises(AssertionError, match="no node"):
        find_node(pair, "nowhere")


def test_assertions_reach_into_bodies() -> None:
    before = float_model()
    after = quantized(before)
    assert_exactly_one_quantized_add_input(after, skip="s")
    assert_placement(after, {"add": ["s"], "last": ["t", "k2"], "pick.else_branch/b": ["a", "k1"]})
    drop_the_skip(after)
    with pytest.raises(AssertionError, match="exactly one input quantized"):
        assert_exactly_one_quantized_add_input(after, "add")


def test_inspection_counts_what_is_in_bodies() -> None:
    found = inspect(quantized(float_model()))
    assert {op_type: report.found for op_type, report in found.op_types.items() if op_type in ("Conv", "Add")} == {
        "Conv": Tally(3, 0, 0),
        "Add": Tally(0, 1, 0),
    }
    assert found.scales == {"activations int8": 3, "weights int8 per channel": 3}
    assert [(add.node, add.skip, add.quantized) for add in found.adds] == [("pick.then_branch/add", "s", ("s",))]


def test_a_body_may_read_what_a_graph_around_it_dequantizes() -> None:
    """Other tools put the pair of a captured tensor, or a stored weight, outside of the body."""
    before = float_model()
    after = quantized(before)
    graph = branch(after, "then_branch")
    position = next(n for n, node in enumerate(after.graph.node) if node.op_type == "If")
    for tensor in ("s", "k1"):
        nodes = pair_of(graph, tensor)
        names = {name for node in nodes for name in node.input[1:]}
        after.graph.initializer.extend(t for t in graph.initializer if t.name in names)
        for node in nodes:
            after.graph.node.insert(position, node)
            position += 1
            graph.node.remove(node)
        kept = [t for t in graph.initializer if t.name not in names]
        del graph.initializer[:]
        graph.initializer.extend(kept)
        graph = branch(after, "then_branch")
    assert check(before, after) == []
    stripped = strip_pairs(after)
    assert stripped.graph.SerializeToString() == strip_pairs(quantized(before)).graph.SerializeToString()
