"""What no preparation can mend is refused here, and nodes are put in order (rule S8)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from heapq import heapify, heappop, heappush

import onnx
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto

from onnxq.errors import InvalidModelError
from onnxq.protos import bodies, describe, walk_tensors
from onnxq.shapes.changes import Change
from onnxq.shapes.graphs import STANDARD_DOMAINS, body_place, defined_names, free_names, walk
from onnxq.shapes.schemas import Operators
from onnxq.tensor_data import tensor_values


def check_model(model: ModelProto) -> None:
    """Refuse what can't be a working model, in one line that names node and tensor.

    Args:
        model: Not changed. Its nodes may be in any order.

    Raises:
        InvalidModelError: Not an ONNX graph, no nodes, no opset, an unknown operator of a standard domain or data type,
            a stored tensor without values, a tensor that nobody makes, that two make, or whose name hides one of an
            outer graph.
    """
    if not model.ir_version or not model.HasField("graph"):
        raise InvalidModelError("not an ONNX model: it has no graph or no IR version")
    if not model.opset_import:
        raise InvalidModelError("the model imports no operator set, so its operators have no meaning; add opset_import")
    for opset in model.opset_import:
        if not 0 < opset.version < 2**31:
            raise InvalidModelError(
                f'the model imports version {opset.version} of "{opset.domain}", which can\'t exist'
            )
    if not model.graph.node:
        raise InvalidModelError(f'graph "{model.graph.name}" has no nodes, there is nothing to do')
    _check_operators(model)
    _check_data_types(model)
    _check_stored_values(model)
    _check_names(model.graph, {}, "")


def sort_nodes(graph: GraphProto) -> list[Change]:
    """Put nodes after the nodes they read from, in the graph and all bodies; a sorted graph stays as it is.

    Of the nodes that may come next, always the one that was stored first does. What a body captures counts as an
    input of the node that holds the body.

    Args:
        graph: Changed in place.

    Returns:
        One change a graph that wasn't sorted.

    Raises:
        InvalidModelError: Nodes wait for each other.
    """
    changes = []
    for part, place in walk(graph):
        order = _topological_order(part, place)
        if order != list(range(len(order))):
            nodes = [NodeProto.FromString(part.node[i].SerializeToString()) for i in order]
            del part.node[:]
            part.node.extend(nodes)
            changes.append(Change("S8", f'graph "{part.name}"{place}', "nodes sorted: some stood before their inputs"))
    return changes


def _topological_order(graph: GraphProto, place: str) -> list[int]:
    producer = {name: i for i, node in enumerate(graph.node) for name in node.output if name}
    waits_for = [{producer[name] for name in free_names(node) if name in producer} for node in graph.node]
    readers: list[list[int]] = [[] for _ in waits_for]
    for reader, producers in enumerate(waits_for):
        for index in producers:
            readers[index].append(reader)
    open_inputs = [len(producers) for producers in waits_for]
    ready = [i for i, count in enumerate(open_inputs) if not count]
    heapify(ready)
    order = []
    while ready:
        index = heappop(ready)
        order.append(index)
        for reader in readers[index]:
            open_inputs[reader] -= 1
            if not open_inputs[reader]:
                heappush(ready, reader)
    if len(order) < len(waits_for):
        raise InvalidModelError(_cycle_message(graph, waits_for, set(order), place))
    return order


def _cycle_message(graph: GraphProto, waits_for: list[set[int]], done: set[int], place: str) -> str:
    # Every node left waits for another one left, so walking back must come round.
    index = next(i for i in range(len(waits_for)) if i not in done)
    path: list[int] = []
    while index not in path:
        path.append(index)
        index = min(i for i in waits_for[index] if i not in done)
    ring = [describe(graph.node[i]) for i in path[path.index(index) :]]
    return f"nodes wait for each other in a cycle: {' <- '.join([*ring, ring[0]])}{place}"


def _check_operators(model: ModelProto) -> None:
    operators = Operators(model)
    for graph, place in walk(model.graph):
        for node in graph.node:
            if node.domain in STANDARD_DOMAINS and operators.is_opaque(node):
                raise InvalidModelError(f"{describe(node)}{place}: {_unknown_operator(node, operators)}")
            schema = operators.schema(node)
            _check_operands(node, schema, place)
            _check_attributes(node, schema, place)


def _check_operands(node: NodeProto, schema: onnx.defs.OpSchema | None, place: str) -> None:
    """A node has as many inputs and outputs as its operator takes, so that all that follows may rely on them."""
    if schema is None:
        return
    for what, names, least, most in (
        ("inputs", node.input, schema.min_input, schema.max_input),
        ("outputs", node.output, schema.min_output, schema.max_output),
    ):
        if not least <= len(names) <= most:
            raise InvalidModelError(f"{describe(node)}{place}: it has {len(names)} {what}, and needs {least} to {most}")
    single = onnx.defs.OpSchema.FormalParameterOption.Single
    for name, parameter in zip(node.input, schema.inputs, strict=False):
        if not name and parameter.option == single:
            raise InvalidModelError(f'{describe(node)}{place}: its input "{parameter.name}" is missing')


def _check_attributes(node: NodeProto, schema: onnx.defs.OpSchema | None, place: str) -> None:
    """Attributes are of the types that the operator gives them, and a Constant has exactly one."""
    if schema is None:
        return
    if schema.name == "Constant" and len(node.attribute) != 1:
        raise InvalidModelError(f"{describe(node)}{place}: it needs one attribute, its value")
    for a in node.attribute:
        known = schema.attributes.get(a.name)
        if known is None or a.ref_attr_name:
            continue
        held = {AttributeProto.TENSOR: "t", AttributeProto.GRAPH: "g", AttributeProto.SPARSE_TENSOR: "sparse_tensor"}
        wanted = str(known.type).rpartition(".")[2]
        if AttributeProto.AttributeType.Name(a.type) != wanted or (a.type in held and not a.HasField(held[a.type])):
            raise InvalidModelError(f'{describe(node)}{place}: its attribute "{a.name}" is no {wanted}')


def _check_data_types(model: ModelProto) -> None:
    """Refuse numbers that ONNX gives no meaning to: a damaged file, or one of a later format."""
    known = set(TensorProto.DataType.values())
    for graph, place in walk(model.graph):
        values = (*graph.input, *graph.output, *graph.value_info)
        given = [(value.name, value.type.tensor_type.elem_type) for value in values]
        stored = [(tensor.name, tensor.data_type or None) for tensor in graph.initializer]
        for name, data_type in (*given, *stored):
            if data_type not in known:
                raise InvalidModelError(f'tensor "{name}"{place} has the unknown data type {data_type or 0}')


def _check_stored_values(model: ModelProto) -> None:
    """Refuse tensors that hold more or fewer values than their shape has: a damaged file, or external data left out."""
    for tensor in walk_tensors(model):
        try:
            tensor_values(tensor)
        except Exception as error:  # the library raises several unrelated types
            reason = " ".join(str(error).split()) or type(error).__name__
            raise InvalidModelError(f'the values of tensor "{tensor.name}" can\'t be read: {reason}') from None


def _unknown_operator(node: NodeProto, operators: Operators) -> str:
    domain = node.domain or "ai.onnx"
    if operators.version(node.domain) is None:
        return f"the model doesn't import the domain {domain}; add it to opset_import"
    known = {schema.name: schema.since_version for schema in onnx.defs.get_all_schemas() if _same_domain(schema, node)}
    if node.op_type in known:
        return f"opset {operators.version(node.domain)} of {domain} doesn't have this operator; check opset_import"
    near = get_close_matches(node.op_type, sorted(known), n=3)
    hint = f"; near misses: {', '.join(near)}" if near else "; if it is a custom operator it needs a domain of its own"
    return f"no operator {node.op_type} in the domain {domain}{hint}"


def _same_domain(schema: onnx.defs.OpSchema, node: NodeProto) -> bool:
    return schema.domain == ("" if node.domain == "ai.onnx" else node.domain)


def _check_names(graph: GraphProto, outer: Mapping[str, None], place: str) -> None:
    makers = _makers(graph, place)
    for name, maker in makers.items():
        if name in outer:
            raise InvalidModelError(f'{maker} hides the tensor "{name}" of an outer graph{place}; rename one of them')
    own = defined_names(graph)
    visible = {**outer, **own}
    for node in graph.node:
        for name in node.input:
            if name and name not in visible:
                raise InvalidModelError(
                    f'{describe(node)}{place} reads "{name}", which nobody makes{_near(name, visible)}'
                )
    for value in graph.output:
        if value.name not in own:
            raise InvalidModelError(f'output "{value.name}"{place} is made by nobody{_near(value.name, visible)}')
    for node in graph.node:
        for attribute, body in bodies(node):
            _check_names(body, visible, body_place(node, attribute, place))


def _makers(graph: GraphProto, place: str) -> dict[str, str]:
    """Who defines each value. An initializer may stand among the inputs (its default); all else must be unique."""
    makers: dict[str, str] = {}

    def add(name: str, maker: str) -> None:
        if name in makers:
            raise InvalidModelError(f'tensor "{name}"{place} has two producers: {makers[name]} and {maker}')
        makers[name] = maker

    tensors = [t.name for t in graph.initializer] + [t.values.name for t in graph.sparse_initializer]
    for name in tensors:
        add(name, f'initializer "{name}"')
    seen: set[str] = set()
    for value in graph.input:
        if value.name in seen:
            raise InvalidModelError(f'input "{value.name}"{place} is listed twice')
        seen.add(value.name)
        makers.setdefault(value.name, f'input "{value.name}"')
    for node in graph.node:
        for name in node.output:
            if name:
                add(name, describe(node))
    return makers


def _near(name: str, names: Iterable[str]) -> str:
    near = get_close_matches(name, sorted(names), n=3)
    return f"; near misses: {', '.join(near)}" if near else ""
