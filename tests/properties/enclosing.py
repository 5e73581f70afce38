"""Ways to put a whole model into a body, so that it computes the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import onnx
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

OUTER = "around_"
"""Begins the names of what stands around the body."""


def in_then_branch(model: ModelProto) -> ModelProto:
    """Into the branch of an If that is taken. The model's inputs are captured."""
    return _in_branch(model, taken=True)


def in_else_branch(model: ModelProto) -> ModelProto:
    """Into the other branch, likewise taken."""
    return _in_branch(model, taken=False)


def _in_branch(model: ModelProto, *, taken: bool) -> ModelProto:
    body = _body(model.graph)
    zeros = [numpy_helper.from_array(np.zeros(1, np.float32)) for _ in body.output]
    nodes = [helper.make_node("Constant", [], [f"zero{n}"], value=zero) for n, zero in enumerate(zeros)]
    values = [helper.make_tensor_value_info(node.output[0], TensorProto.FLOAT, [1]) for node in nodes]
    idle = helper.make_graph(nodes, "idle", [], values)
    branches = {"then_branch": body if taken else idle, "else_branch": idle if taken else body}
    choice = helper.make_node("If", [f"{OUTER}choice"], _renamed(model), name="enclosing", **branches)
    stored = [numpy_helper.from_array(np.array(taken), f"{OUTER}choice")]
    return _enclosing(model, [choice], stored, list(model.graph.input))


def in_loop(model: ModelProto) -> ModelProto:
    """Into a Loop of one round, which carries the model's inputs. Outputs get a first axis of length 1."""
    body = _body(model.graph)
    carried = [value for value in model.graph.input if value.name not in _stored(model)]
    formal = [helper.make_tensor_value_info(f"{OUTER}round", TensorProto.INT64, [])]
    formal += [helper.make_tensor_value_info(f"{OUTER}go", TensorProto.BOOL, []), *carried]
    passed = [f"{OUTER}go", *(value.name for value in carried)]
    body.node.extend(helper.make_node("Identity", [name], [f"{name}_{OUTER}next"]) for name in passed)
    results = [helper.make_tensor_value_info(f"{OUTER}go_{OUTER}next", TensorProto.BOOL, [])]
    for value in carried:
        results.append(onnx.ValueInfoProto())
        results[-1].CopyFrom(value)
        results[-1].name = f"{value.name}_{OUTER}next"
    kept = [*results, *body.output]
    del body.input[:], body.output[:]
    body.input.extend(formal)
    body.output.extend(kept)
    inputs = []
    for value in carried:
        inputs.append(onnx.ValueInfoProto())
        inputs[-1].CopyFrom(value)
        inputs[-1].name = f"{OUTER}{value.name}"
    loop = helper.make_node(
        "Loop",
        [f"{OUTER}rounds", "", *(value.name for value in inputs)],
        [*(f"{value.name}_last" for value in inputs), *_renamed(model)],
        name="enclosing",
        body=body,
    )
    return _enclosing(model, [loop], [numpy_helper.from_array(np.array(1), f"{OUTER}rounds")], inputs)


def in_loop_in_branch(model: ModelProto) -> ModelProto:
    """Both: a Loop in a branch."""
    inner = in_loop(model)
    for node in inner.graph.node:
        node.name = "inner"
    for value in inner.graph.output:
        value.name += "_looped"
    for node in inner.graph.node:
        node.output[:] = [
            f"{name}_looped" if name.startswith(OUTER) and not name.endswith("_last") else name for name in node.output
        ]
    return in_then_branch(inner)


ENCLOSINGS: Mapping[str, tuple[Callable[[ModelProto], ModelProto], str, bool]] = {
    "then_branch": (in_then_branch, "enclosing.then_branch", False),
    "else_branch": (in_else_branch, "enclosing.else_branch", False),
    "loop": (in_loop, "enclosing.body", True),
    "loop_in_branch": (in_loop_in_branch, "enclosing.then_branch/inner.body", True),
}
"""Name -> how, the path of the body, and whether outputs get a first axis."""


def enclosed_feeds(model: ModelProto, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Feeds of the model, for an enclosing one."""
    names = {value.name for value in model.graph.input}
    return {name if name in names else f"{OUTER}{name}": value for name, value in feeds.items()}


def _body(graph: GraphProto) -> GraphProto:
    body = GraphProto()
    body.CopyFrom(graph)
    body.name = "enclosed"
    del body.input[:]
    return body


def _renamed(model: ModelProto) -> list[str]:
    return [f"{OUTER}{value.name}" for value in model.graph.output]


def _stored(model: ModelProto) -> set[str]:
    return {tensor.name for tensor in model.graph.initializer}


def _enclosing(
    model: ModelProto, nodes: list[NodeProto], stored: list[TensorProto], inputs: list[onnx.ValueInfoProto]
) -> ModelProto:
    copy = ModelProto()
    copy.CopyFrom(model)
    copy.graph.CopyFrom(GraphProto(name="enclosing"))
    copy.graph.node.extend(nodes)
    copy.graph.initializer.extend(stored)
    inner = _stored(model)
    copy.graph.input.extend(value for value in inputs if value.name not in inner)
    copy.graph.output.extend(
        helper.make_tensor_value_info(f"{OUTER}{value.name}", value.type.tensor_type.elem_type, None)
        for value in model.graph.output
    )
    return copy
