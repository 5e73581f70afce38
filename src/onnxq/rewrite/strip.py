"""Takes Q/DQ pairs out again: what remains is the float model that a quantizer started from, if it was honest.

    t -> Q -> DQ -> readers              readers read t
    t -> Q -> DQ = graph output y        what yields t yields y instead
    int8 weight -> DQ -> readers         the weight is stored as float, under the name that they read: as it was rounded
    int8 input -> DQ -> readers          the input is float, and so is an output that a Q yields

A body is a graph like any other; it may read what a graph around it dequantizes. All else stays as it is, byte by byte:
nodes that nothing reads, functions, metadata.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import GraphProto, NodeProto, helper, numpy_helper

from onnxq.graph import constant_node_value
from onnxq.protos import attribute, bodies, walk_graphs
from onnxq.rewrite.direct_io import give_floats
from onnxq.tensor_data import tensor_values


def strip_pairs(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of the model without QuantizeLinear and DequantizeLinear in its main graph and the bodies in it.

    Args:
        model: Any model; it isn't changed.

    Returns:
        The float model. What stands between no Q and DQ stays: a DQ of computed integers, a Q that is read as integers.
    """
    stripped = onnx.ModelProto()
    stripped.CopyFrom(model)
    give_floats(stripped)
    before = [(_read(graph), _made(graph)) for graph in walk_graphs(stripped.graph)]
    _bypass_all(stripped.graph, _Known())
    for graph, (read, made) in reversed(list(zip(walk_graphs(stripped.graph), before, strict=True))):
        _drop_unread(graph, read, made)
    return stripped


def _drop_unread(graph: GraphProto, read: set[str], made: set[str]) -> None:
    """Drop what was read before and isn't any more; graphs around this one come later, since dropping copies bodies."""
    _drop_nodes(graph, "QuantizeLinear", read - _read(graph))
    unread = read - _read(graph)
    _drop_nodes(graph, "Constant", unread)
    _keep(graph.initializer, [t for t in graph.initializer if t.name not in unread])
    gone = made - _made(graph)
    _keep(graph.value_info, [v for v in graph.value_info if v.name not in gone])


@dataclass(frozen=True)
class _Known:
    """What a graph and those around it hold.

    Attributes:
        producers: Tensor -> the node that yields it.
        stored: Stored tensor that a DequantizeLinear reads -> its values.
        originals: Result of a DequantizeLinear that is out -> the tensor that it is a rounded copy of.
    """

    producers: ChainMap[str, NodeProto] = field(default_factory=ChainMap)
    stored: ChainMap[str, NDArray[Any]] = field(default_factory=ChainMap)
    originals: ChainMap[str, str] = field(default_factory=ChainMap)


def _bypass_all(graph: GraphProto, outer: _Known) -> None:
    """Take the DequantizeLinear nodes out of a graph and its bodies, and let what read them read the originals."""
    operands = _operands(graph)
    stored = outer.stored.new_child({t.name: tensor_values(t) for t in graph.initializer if t.name in operands})
    for node in graph.node:
        value = constant_node_value(node) if node.op_type == "Constant" and node.output[0] in operands else None
        if value is not None:
            stored[node.output[0]] = value
    known = _Known(outer.producers.new_child(_producers(graph)), stored, outer.originals.new_child())
    _bypass(graph, known)
    own = known.originals.maps[0]
    _rename_reads(graph, own)
    _restore_outputs(graph, own)
    inner = _Known(outer.producers.new_child(_producers(graph)), stored, known.originals)  # names may have changed
    for node in graph.node:
        for _, body in bodies(node):
            _bypass_all(body, inner)


def _bypass(graph: GraphProto, known: _Known) -> None:
    """Take the DequantizeLinear nodes out, noting the originals of what they yield; stored integers become floats."""
    kept = []
    for node in graph.node:
        before = known.producers.get(node.input[0]) if node.op_type == "DequantizeLinear" else None
        if before is not None and before.op_type == "QuantizeLinear":
            known.originals[node.output[0]] = known.originals.get(before.input[0], before.input[0])
        elif node.op_type == "DequantizeLinear" and all(name in known.stored for name in node.input if name):
            graph.initializer.append(numpy_helper.from_array(_dequantized(node, known.stored), node.output[0]))
        else:
            kept.append(node)
    _keep(graph.node, kept)


def _operands(graph: GraphProto) -> set[str]:
    """Tensors that a DequantizeLinear reads, in bodies too."""
    nodes = (node for nested in walk_graphs(graph) for node in nested.node if node.op_type == "DequantizeLinear")
    return {name for node in nodes for name in node.input}


def _producers(graph: GraphProto) -> dict[str, NodeProto]:
    return {name: node for node in graph.node for name in node.output if name}


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
    """Let nodes, those of bodies too, read other tensors, and bodies yield others that they capture."""
    if not new_names:
        return
    for nested in walk_graphs(graph):
        for node in nested.node:
            node.input[:] = [new_names.get(name, name) for name in node.input]
        if nested is not graph:
            for value in nested.output:
                value.name = new_names.get(value.name, value.name)


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
    """Tensors that the nodes of the graph itself yield."""
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
