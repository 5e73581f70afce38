"""Takes Q/DQ pairs out again: what remains is the float model that a quantizer started from, if it was honest.

    t -> Q -> DQ -> readers              readers read t
    t -> Q -> DQ = graph output y        what yields t yields y instead
    int8 weight -> DQ -> readers         the weight is stored as float, under the name that they read

All else stays as it is, byte by byte: nodes that nothing reads, bodies, functions, metadata.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import GraphProto, NodeProto, helper, numpy_helper

from onnxq.graph import constant_node_value
from onnxq.protos import attribute, walk_graphs
from onnxq.tensor_data import tensor_values


def strip_pairs(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of the model without QuantizeLinear and DequantizeLinear in its main graph.

    Args:
        model: Any model; it isn't changed.

    Returns:
        The float model. What stands between no Q and DQ stays: a DQ of computed integers, a Q that is read as integers.
    """
    stripped = onnx.ModelProto()
    stripped.CopyFrom(model)
    graph = stripped.graph
    read, made = _read(graph), _made(graph)
    originals = _bypass(graph)
    _rename_reads(graph, originals)
    _restore_outputs(graph, originals)
    _drop_nodes(graph, "QuantizeLinear", read - _read(graph))
    unread = read - _read(graph)
    _drop_nodes(graph, "Constant", unread)
    _keep(graph.initializer, [t for t in graph.initializer if t.name not in unread])
    gone = made - _made(graph)
    _keep(graph.value_info, [v for v in graph.value_info if v.name not in gone])
    return stripped


def _bypass(graph: GraphProto) -> dict[str, str]:
    """Take the DequantizeLinear nodes out and tell what each one's result is a rounded copy of.

    Stored integers become stored floats.
    """
    producers = {name: node for node in graph.node for name in node.output if name}
    operands = {name for node in graph.node if node.op_type == "DequantizeLinear" for name in node.input}
    stored = {t.name: tensor_values(t) for t in graph.initializer if t.name in operands}
    originals: dict[str, str] = {}
    kept = []
    for node in graph.node:
        value = constant_node_value(node) if node.op_type == "Constant" else None
        if value is not None:
            stored[node.output[0]] = value
        before = producers.get(node.input[0]) if node.op_type == "DequantizeLinear" else None
        if before is not None and before.op_type == "QuantizeLinear":
            originals[node.output[0]] = originals.get(before.input[0], before.input[0])
        elif node.op_type == "DequantizeLinear" and all(name in stored for name in node.input if name):
            graph.initializer.append(numpy_helper.from_array(_dequantized(node, stored), node.output[0]))
        else:
            kept.append(node)
    _keep(graph.node, kept)
    return originals


def _restore_outputs(graph: GraphProto, originals: Mapping[str, str]) -> None:
    """Graph outputs that a DequantizeLinear made: what made its float operand takes the output's name over."""
    free = _made(graph) - {value.name for value in graph.output}
    renamed: dict[str, str] = {}
    for output in graph.output:
        original = originals.get(output.name)
        if original in free and original not in renamed:
            renamed[original] = output.name
        elif original is not None:
            graph.node.append(helper.make_node("Identity", [original], [output.name]))
    for node in graph.node:
        node.output[:] = [renamed.get(name, name) for name in node.output]
    _rename_reads(graph, renamed)


def _rename_reads(graph: GraphProto, new_names: Mapping[str, str]) -> None:
    for nested in walk_graphs(graph):
        for node in nested.node:
            node.input[:] = [new_names.get(name, name) for name in node.input]


def _drop_nodes(graph: GraphProto, op_type: str, outputs: set[str]) -> None:
    """Drop the nodes of one type that yield one of the given tensors."""
    _keep(graph.node, [n for n in graph.node if n.op_type != op_type or n.output[0] not in outputs])


def _keep(field: Any, kept: list[Any]) -> None:
    """Leave just these in a repeated field."""
    if len(kept) < len(field):
        del field[:]
        field.extend(kept)


def _read(graph: GraphProto) -> set[str]:
    """Tensors that something reads, in bodies too."""
    read = {name for nested in walk_graphs(graph) for node in nested.node for name in node.input}
    return read | {value.name for nested in walk_graphs(graph) for value in nested.output}


def _made(graph: GraphProto) -> set[str]:
    """Tensors that the nodes of the main graph yield."""
    return {name for node in graph.node for name in node.output if name}


def _dequantized(node: NodeProto, stored: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    """(q - zero point) * scale, with one scale, one for each position along the axis, or one for each block."""
    values, scale = stored[node.input[0]], stored[node.input[1]]
    zero = stored[node.input[2]] if len(node.input) > 2 and node.input[2] else np.zeros(scale.shape)
    axis, block = attribute(node, "axis", 1), attribute(node, "block_size", 0)
    if block:
        scale, zero = (np.repeat(p, block, axis).take(range(values.shape[axis]), axis) for p in (scale, zero))
    else:
        shape = [-1 if scale.size > 1 and position == axis % values.ndim else 1 for position in range(values.ndim)]
        scale, zero = scale.reshape(shape), zero.reshape(shape)
    return ((values.astype(np.float32) - zero.astype(np.float32)) * scale.astype(np.float32)).astype(scale.dtype)
