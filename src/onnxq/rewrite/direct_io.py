"""Lets inputs and outputs of a model be the integers that stand behind them (`direct_io_types`).

    x (float) -> Q -> DQ -> Conv             becomes        x (int8) -> DQ -> Conv
    Conv -> Q -> DQ -> y (float)             becomes        Conv -> Q -> y (int8)
    x (float) -> Q -> DQ -> Conv             stays: the float op needs what the integers don't tell
         `----> Sigmoid

What the caller has to know then is in the model: scale and zero point of the DequantizeLinear that reads the input, or
of the QuantizeLinear that yields the output.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper

from onnxq.encoding import QuantizationParameters
from onnxq.graph import constant_node_value
from onnxq.protos import NameSource, walk_graphs
from onnxq.tensor_data import tensor_values

_PLAIN = frozenset({"axis", "saturate"})
"""Attributes of a QuantizeLinear whose zero point alone tells what it yields."""


def take_integers(model: ModelProto) -> None:
    """Make integers of each input that only a QuantizeLinear reads, and of each output that a pair yields, in place.

    Only pairs of the main graph with one stored scale count. Names and shapes stay.
    """
    border = _Border(model)
    for value in border.inputs():
        border.take_input(value)
    for value in model.graph.output:
        border.take_output(value)
    border.drop()


def give_floats(model: ModelProto) -> None:
    """The way back, in place: put a pair behind each integer input that only DequantizeLinear nodes read, and so on.

    Outputs that a QuantizeLinear yields likewise, whoever made them integers.
    """
    border = _Border(model)
    found = integer_interface(model)
    for value in border.inputs():
        if value.name in found:
            border.widen_input(value, found[value.name])
    for value in model.graph.output:
        if value.name in found:
            border.widen_output(value, found[value.name])


def integer_interface(model: ModelProto) -> dict[str, QuantizationParameters]:
    """Inputs that a DequantizeLinear reads, and outputs that a QuantizeLinear yields, with scale and zero point.

    Args:
        model: Any model.

    Returns:
        Name -> parameters: real = (integer - zero point) * scale. Without those whose parameters aren't stored.
    """
    graph, found = model.graph, dict[str, QuantizationParameters]()
    stored = _stored(graph)
    inputs, outputs = ({value.name for value in values} for values in (graph.input, graph.output))
    for node in graph.node:
        parameters = _parameters(node, stored)
        if node.op_type == "DequantizeLinear" and node.input[0] in inputs and parameters is not None:
            found[node.input[0]] = parameters
        if node.op_type == "QuantizeLinear" and node.output[0] in outputs and parameters is not None:
            found[node.output[0]] = parameters
    return found


class _Border:
    """The main graph of a model, and who reads what in it; nodes that became needless are dropped at the end."""

    def __init__(self, model: ModelProto) -> None:
        graphs = list(walk_graphs(model.graph))
        self._graph = model.graph
        self._names = NameSource(model)
        self._stored = _stored(model.graph)
        self._outputs = {value.name for value in model.graph.output}
        self._producers = {name: node for node in model.graph.node for name in node.output if name}
        self._made = set(self._producers)
        self._readers: dict[str, list[NodeProto]] = {}
        for node in (node for graph in graphs for node in graph.node):
            for name in dict.fromkeys(node.input):
                self._readers.setdefault(name, []).append(node)
        self._yielded = Counter(value.name for graph in graphs[1:] for value in graph.output)  # what bodies hand on
        self._dropped = list[NodeProto]()

    def inputs(self) -> list[ValueInfoProto]:
        """The inputs that the caller must give."""
        return [value for value in self._graph.input if value.name not in self._stored]

    def take_input(self, value: ValueInfoProto) -> None:
        """X -> Q -> t: x takes the place of t."""
        name, readers = value.name, self._readers.get(value.name, [])
        quantize = readers[0] if len(readers) == 1 else None
        if quantize is None or name in self._outputs or self._yielded[name]:
            return
        elem_type = self._elem_type(quantize)
        result = quantize.output[0]
        if not elem_type or quantize.input[0] != name or result in self._outputs or self._yielded[result]:
            return
        self._redirect(result, name)
        value.type.tensor_type.elem_type = elem_type
        self._dropped.append(quantize)

    def take_output(self, value: ValueInfoProto) -> None:
        """T -> Q -> u -> DQ -> y: u gets the name of y, and y, if it is read inside, another one."""
        name = value.name
        dequantize = self._producers.get(name)
        if dequantize is None or dequantize.op_type != "DequantizeLinear" or self._yielded[name]:
            return
        integers = dequantize.input[0]
        quantize = self._producers.get(integers)
        elem_type = self._elem_type(quantize) if quantize is not None else 0
        if not elem_type or quantize is None or integers in self._outputs or self._yielded[integers]:
            return
        if list(quantize.input[1:]) != list(dequantize.input[1:]):
            return
        if name in self._readers:
            dequantize.output[0] = self._names.fresh(f"{name}_dequantized")
            self._redirect(name, dequantize.output[0])
        else:
            self._dropped.append(dequantize)
        quantize.output[0] = name
        self._redirect(integers, name)
        self._outputs.add(name)
        self._producers[name] = quantize
        value.type.tensor_type.elem_type = elem_type

    def widen_input(self, value: ValueInfoProto, means: QuantizationParameters) -> None:
        """An input that is read as x -> DQ: x -> Q -> DQ."""
        name, readers = value.name, self._readers[value.name]
        parameters = {tuple(node.input[1:]) for node in readers if node.op_type == "DequantizeLinear"}
        if any(node.op_type != "DequantizeLinear" for node in readers) or len(parameters) > 1 or name in self._outputs:
            return
        integers = self._names.fresh(f"{name}_QuantizeLinear_Output")
        self._redirect(name, integers)
        quantize = helper.make_node("QuantizeLinear", [name, *parameters.pop()], [integers])
        value.type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(means.scale.dtype)
        self._graph.node.insert(0, quantize)

    def widen_output(self, value: ValueInfoProto, means: QuantizationParameters) -> None:
        """An output that is made as Q -> y: Q -> DQ -> y."""
        name, quantize = value.name, self._producers.get(value.name)
        if quantize is None or quantize.op_type != "QuantizeLinear":
            return
        integers = self._names.fresh(f"{name}_QuantizeLinear_Output")
        quantize.output[0] = integers
        self._redirect(name, integers)
        value.type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(means.scale.dtype)
        self._graph.node.append(helper.make_node("DequantizeLinear", [integers, *quantize.input[1:]], [name]))

    def drop(self) -> None:
        """Take the needless nodes out, and what was declared of tensors that nothing yields any more."""
        if not self._dropped:
            return
        gone = {id(node) for node in self._dropped}
        kept = [node for node in self._graph.node if id(node) not in gone]
        del self._graph.node[:]
        self._graph.node.extend(kept)
        made = {name for node in self._graph.node for name in node.output}
        declared = [v for v in self._graph.value_info if v.name in made or v.name not in self._made]
        del self._graph.value_info[:]
        self._graph.value_info.extend(declared)

    def _elem_type(self, node: NodeProto) -> int:
        """The element type of what a QuantizeLinear of the main graph yields; 0 if it is none, or not known."""
        if node.op_type != "QuantizeLinear" or self._producers.get(node.output[0]) is not node:
            return 0
        found = _parameters(node, self._stored)
        if found is None or {a.name for a in node.attribute} - _PLAIN:
            return 0
        return helper.np_dtype_to_tensor_dtype(found.zero_point.dtype)

    def _redirect(self, name: str, other: str) -> None:
        """Let what reads one tensor, in bodies too, read another."""
        readers = self._readers.pop(name, [])
        for node in readers:
            node.input[:] = [other if read == name else read for read in node.input]
        self._readers[other] = readers


def _stored(graph: GraphProto) -> Mapping[str, TensorProto | NDArray[Any]]:
    """What a graph stores, by name."""
    values = {n.output[0]: constant_node_value(n) for n in graph.node if n.op_type == "Constant"}
    return {t.name: t for t in graph.initializer} | {name: v for name, v in values.items() if v is not None}


def _parameters(node: NodeProto, stored: Mapping[str, TensorProto | NDArray[Any]]) -> QuantizationParameters | None:
    """Scale and zero point of a Q or DQ; None where it has many scales, or they aren't stored."""
    if node.op_type not in ("QuantizeLinear", "DequantizeLinear") or len(node.input) < 3:
        return None
    if any(name not in stored for name in node.input[1:3]):
        return None
    scale, zero_point = (_value(stored[name]) for name in node.input[1:3])
    is_plain = scale.size == zero_point.size == 1 and np.issubdtype(zero_point.dtype, np.integer)
    return QuantizationParameters(scale, zero_point) if is_plain else None


def _value(found: TensorProto | NDArray[Any]) -> NDArray[Any]:
    return tensor_values(found) if isinstance(found, TensorProto) else found
