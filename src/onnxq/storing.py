"""Stores what QuantizeLinear makes of constants, so that a file holds a weight in a fourth of its size (`dq_only`).

    weight (float) -> Transpose -> Q -> DQ -> MatMul        becomes        integers -> DQ -> MatMul

This is done to the finished model, in whatever precision its weights and scales are by then, and with the arithmetic of
the operator: what its readers see is the same to the last bit. What only the Q has read goes, be it stored or computed;
a weight that a float op, a body or the caller reads stays for these.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, numpy_helper

from onnxq.calibration import evaluate_constants
from onnxq.graph import ABSENT, MAIN_GRAPH, GraphIndex, Use, build_index
from onnxq.protos import NameSource, attribute, is_default_domain
from onnxq.shapes import infer_types

_PLAIN = frozenset({"axis", "saturate"})
"""Attributes of a QuantizeLinear that rounds as `quantized` does; `saturate` is about float8."""


def store_integers(model: ModelProto) -> None:
    """Replace each QuantizeLinear of a constant by the integers that it yields, in place, bodies included.

    A weight that is also an input of the graph keeps its Q: the caller may give other values. So does one that is
    quantized in blocks, or to a type that numpy doesn't have.

    Args:
        model: A quantized model.
    """
    index = build_index(model, infer_types(model)[0])
    found = list(_quantizes_constant(index))
    keys = {node: [index.key(Use(index.node_scope[node], t)) for t in _operands(index, node)] for node in found}
    values = evaluate_constants(model, [key for operands in keys.values() for key in operands])
    stored = {node: _stored(index, node, [values[key] for key in operands]) for node, operands in keys.items()}
    names = NameSource(model)
    for node, integers in stored.items():
        if integers is not None:
            _store(index, names, node, integers)
    _drop(index, [node for node, integers in stored.items() if integers is not None])


def quantized(values: NDArray[Any], scale: NDArray[Any], zero_point: NDArray[Any], axis: int | None) -> NDArray[Any]:
    """What QuantizeLinear yields: round(values / scale) + zero point, half to even, within the integer type.

    Args:
        values: Floats of any type; they are divided in float32.
        scale: [] or [1], or a number for each position along `axis`.
        zero_point: Of the integer type, the same shape.
        axis: Axis of the scales; None for one in all.
    """
    shape = [-1 if axis is not None and scale.size > 1 and n == axis % values.ndim else 1 for n in range(values.ndim)]
    steps = np.asarray(values.astype(np.float32) / scale.astype(np.float32).reshape(shape))  # a scalar's too
    np.rint(steps, out=steps)
    steps += zero_point.astype(np.float32).reshape(shape)
    limits = np.iinfo(zero_point.dtype)
    return np.clip(steps, limits.min, limits.max, out=steps).astype(zero_point.dtype)


def _quantizes_constant(index: GraphIndex) -> Iterator[int]:
    """The QuantizeLinear nodes whose result is known without running the model, whatever the caller feeds."""
    is_open = [False] * len(index.tensor_names)
    inputs = {value.name for value in index.scopes[MAIN_GRAPH].graph.input}
    for tensor in index.initializers:
        is_open[tensor] = index.tensor_scope[tensor] == MAIN_GRAPH and index.tensor_names[tensor] in inputs
    for number, node in enumerate(index.nodes):
        reads = _operands(index, number)
        for tensor in index.outputs[number]:
            if tensor != ABSENT:
                is_open[tensor] = any(is_open[t] for t in reads)
        is_plain = is_default_domain(node) and {a.name for a in node.attribute} <= _PLAIN
        known = all(index.is_constant(t) and not is_open[t] for t in reads)
        if node.op_type == "QuantizeLinear" and is_plain and known and not index.is_output[index.outputs[number][0]]:
            yield number


def _operands(index: GraphIndex, node: int) -> list[int]:
    return [tensor for tensor in index.inputs[node] if tensor != ABSENT]


def _stored(index: GraphIndex, node: int, operands: list[NDArray[Any]]) -> NDArray[Any] | None:
    """The integers that a QuantizeLinear yields; None for a type that numpy doesn't have."""
    values, scale, *rest = operands
    zero_point = rest[0] if rest else np.zeros(scale.shape, np.uint8)
    if not np.issubdtype(zero_point.dtype, np.integer):
        return None
    return quantized(values, scale, zero_point, attribute(index.nodes[node], "axis", 1) if scale.ndim else None)


def _store(index: GraphIndex, names: NameSource, node: int, integers: NDArray[Any]) -> None:
    """Add the integers to the graph of a QuantizeLinear, and let what reads its result read them."""
    graph = index.scopes[index.node_scope[node]].graph
    name = names.fresh(f"{index.tensor_names[index.inputs[node][0]]}_quantized")
    graph.initializer.append(numpy_helper.from_array(integers, name))
    for edge in index.consumers[index.outputs[node][0]]:
        index.nodes[edge.node].input[edge.input] = name


def _drop(index: GraphIndex, nodes: Iterable[int]) -> None:
    """Drop nodes, and what has been stored or computed for them alone."""
    reads = [len(edges) + is_output for edges, is_output in zip(index.consumers, index.is_output, strict=True)]
    waiting, dropped, unread = list(nodes), set[int](), set[int]()
    while waiting:
        node = waiting.pop()
        dropped.add(node)
        unread.update(t for t in index.outputs[node] if t != ABSENT)
        for tensor in _operands(index, node):
            reads[tensor] -= 1
            producer = index.producers[tensor]
            if not reads[tensor] and producer == ABSENT:
                unread.add(tensor)
            elif not reads[tensor] and not any(reads[t] for t in index.outputs[producer] if t != ABSENT):
                waiting.append(producer)
    gone = [set[str]() for _ in index.scopes]
    for tensor in unread:
        gone[index.tensor_scope[tensor]].add(index.tensor_names[tensor])
    own = [list[int]() for _ in index.scopes]
    for node, scope in enumerate(index.node_scope):
        own[scope].append(node)
    for scope in reversed(range(len(index.scopes))):  # inner graphs first: rebuilding an outer one copies them
        _rebuild(index, scope, [n for n in own[scope] if n not in dropped], gone[scope])


def _rebuild(index: GraphIndex, scope: int, nodes: list[int], gone: set[str]) -> None:
    """Leave a graph only some of its nodes, and nothing of the tensors that are gone."""
    graph = index.scopes[scope].graph
    _keep(graph.node, [index.nodes[n] for n in nodes])
    _keep(graph.initializer, [t for t in graph.initializer if t.name not in gone])
    _keep(graph.sparse_initializer, [t for t in graph.sparse_initializer if t.values.name not in gone])
    _keep(graph.value_info, [v for v in graph.value_info if v.name not in gone])


def _keep(field: Any, kept: list[Any]) -> None:
    """Leave just these in a repeated field."""
    if len(kept) < len(field):
        del field[:]
        field.extend(kept)
