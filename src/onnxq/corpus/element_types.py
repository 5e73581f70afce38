"""In which element types a quantized model computes and stores, bodies of If, Loop and Scan included.

Nodes and stored tensors are named as in the float model, so names must be unique over its graphs. A tool may put a Cast
or a pair behind a node, under the node's old output name; the node itself is looked for behind these.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from onnx import ModelProto, NodeProto, TensorProto

from onnxq.protos import describe, walk_graphs
from onnxq.shapes import infer_types
from onnxq.tensor_types import GraphTypes, ValueType

_WRITTEN_BEHIND = frozenset({"Cast", "DequantizeLinear", "QuantizeLinear"})


def node_type_problems(float_model: ModelProto, quantized: ModelProto, expected: Mapping[str, str]) -> list[str]:
    """Nodes that don't compute in the expected type.

    Args:
        float_model: Where the nodes are looked up.
        quantized: What is asked about.
        expected: Node, by its name or first output -> element type of the first output that the node itself makes.

    Returns:
        A block for each that differs.

    Raises:
        AssertionError: The float model has no such node, or several.
    """
    types = dict(_flat(infer_types(quantized)[0]))
    problems = []
    for name, wanted in expected.items():
        node = _find(float_model, name)
        twin = _twin(quantized, node)
        found = "the node is gone" if twin is None else str(ValueType(types[twin.output[0]].elem_type))
        if found != wanted:
            problems.append(_block(describe(node), f"its result is {wanted}", found))
    return problems


def initializer_type_problems(quantized: ModelProto, expected: Mapping[str, str]) -> list[str]:
    """Stored tensors that don't have the expected type.

    Args:
        quantized: What is asked about.
        expected: Initializer, or output of a Constant -> element type in which it is stored under its name.

    Returns:
        A block for each that differs.
    """
    types = dict(_flat(infer_types(quantized)[0]))
    stored = {tensor.name: TensorProto.DataType.Name(tensor.data_type).lower() for tensor in _initializers(quantized)}
    stored.update({n.output[0]: str(ValueType(types[n.output[0]].elem_type)) for n in _nodes(quantized, "Constant")})
    return [
        _block(f'stored tensor "{name}"', wanted, stored.get(name, "nothing is stored under this name"))
        for name, wanted in expected.items()
        if stored.get(name) != wanted
    ]


def cast_problems(quantized: ModelProto, expected: int) -> list[str]:
    """How many Casts there are, if it isn't the expected number."""
    found = [f'"{node.input[0]}" to "{node.output[0]}"' for node in _nodes(quantized, "Cast")]
    if len(found) == expected:
        return []
    listed = "".join(f"\n      {cast}" for cast in found)
    return [f"expected: {expected} Casts\nfound:    {len(found)}{listed}"]


def _find(model: ModelProto, name: str) -> NodeProto:
    nodes = list(_nodes(model))
    found = [n for n in nodes if n.name == name] or [n for n in nodes if n.output[0] == name]
    if len(found) != 1:
        raise AssertionError(f'{len(found) or "no"} nodes are named "{name}", or yield a tensor of that name first')
    return found[0]


def _twin(quantized: ModelProto, node: NodeProto) -> NodeProto | None:
    producers = {output: other for other in _nodes(quantized) for output in other.output if output}
    found = producers.get(node.output[0])
    while found is not None and found.op_type != node.op_type and found.op_type in _WRITTEN_BEHIND:
        found = producers.get(found.input[0])
    return found if found is not None and found.op_type == node.op_type else None


def _nodes(model: ModelProto, op_type: str = "") -> Iterator[NodeProto]:
    return (n for graph in walk_graphs(model.graph) for n in graph.node if op_type in ("", n.op_type))


def _initializers(model: ModelProto) -> Iterator[TensorProto]:
    return (tensor for graph in walk_graphs(model.graph) for tensor in graph.initializer)


def _flat(types: GraphTypes) -> Iterator[tuple[str, ValueType]]:
    yield from types.tensors.items()
    for body in types.bodies.values():
        yield from _flat(body)


def _block(where: str, expected: str, found: str) -> str:
    return f"{where}\n    expected: {expected}\n    found:    {found}"
