"""A float model and what a quantizer made of it, side by side.

Nodes are matched by the tensor that they yield first, since every quantizer in use keeps those names and many rename
nodes. All reading of Q/DQ happens here, in whatever form a tool writes them: a Q/DQ pair, a stored int8 weight behind a
lone DequantizeLinear, with or without Casts after it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import NodeProto

from onnxq.graph import MAIN_GRAPH, constant_node_value
from onnxq.pipeline import Plan, make_plan
from onnxq.placement import SelectionOptions
from onnxq.protos import attribute
from onnxq.tensor_data import tensor_values


@dataclass(frozen=True, slots=True)
class Quantization:
    """How one tensor is quantized in the quantized model.

    Attributes:
        dequantize: The DequantizeLinear that readers see.
        quantize: The QuantizeLinear before it; None for a weight that is stored as integers.
        scale: Its scale, [] or [n]; None if the model computes it.
        zero_point: Its zero point, of the same shape; None if it is left out or computed.
        axis: Axis of the scales; None for a single scale.
    """

    dequantize: NodeProto
    quantize: NodeProto | None
    scale: NDArray[Any] | None
    zero_point: NDArray[Any] | None
    axis: int | None


@dataclass(frozen=True)
class ModelPair:
    """The two models, and what is derived from them once.

    Attributes:
        float_model: What was quantized.
        quantized: What came out.
        policy: "tensorrt" or "onnxruntime": whose fusion rules the result is for.
        selection: What the user asked to be quantized.
        keep_io_types: Whether float32 inputs and outputs had to stay float32.
    """

    float_model: onnx.ModelProto
    quantized: onnx.ModelProto
    policy: str = "tensorrt"
    selection: SelectionOptions = field(default_factory=SelectionOptions)
    keep_io_types: bool = True

    @cached_property
    def plan(self) -> Plan:
        """The float model, prepared, with onnxq's own placement of what was asked for."""
        return make_plan(self.float_model, self.selection, on_quantized="keep")

    @cached_property
    def producers(self) -> dict[str, NodeProto]:
        """Tensor name -> the node of the quantized model's main graph that yields it."""
        return {output: node for node in self.quantized.graph.node for output in node.output if output}

    @cached_property
    def constants(self) -> dict[str, NDArray[Any]]:
        """Values stored in the quantized model's main graph, except big ones that nothing here asks for."""
        graph = self.quantized.graph
        used = {name for node in graph.node if node.op_type in _QDQ for name in node.input}
        found = {t.name: tensor_values(t) for t in graph.initializer if t.name in used}
        for node in graph.node:
            value = constant_node_value(node) if node.op_type == "Constant" and node.output[0] in used else None
            if value is not None:
                found[node.output[0]] = value
        return found

    def counterpart(self, node: int) -> NodeProto | None:
        """The quantized model's node for node number `node` of the plan's index; None if it is gone."""
        output = next((name for name in self.plan.index.nodes[node].output if name), "")
        found = self.producers.get(output)
        while found is not None and found.op_type in (*_QDQ, "Cast") and found.op_type != self._op(node):
            found = self.producers.get(found.input[0])  # the tool put a pair or Cast behind the node, under its name
        if found is not None and found.op_type == self._op(node):
            return found
        named = self._named.get(self.plan.index.nodes[node].name)  # the tool dropped a Relu, and gave its output away
        return named if named is not None and named.op_type == self._op(node) else None

    @cached_property
    def _named(self) -> dict[str, NodeProto]:
        """Node name -> the node of the quantized model's main graph, where the name is there and unique."""
        counts = Counter(node.name for node in self.quantized.graph.node)
        return {node.name: node for node in self.quantized.graph.node if node.name and counts[node.name] == 1}

    def _op(self, node: int) -> str:
        return self.plan.index.nodes[node].op_type

    def quantization(self, tensor: str) -> Quantization | None:
        """How the tensor that a node of the quantized model reads is quantized; None if it is float."""
        producer = self.producers.get(tensor)
        while producer is not None and producer.op_type == "Cast":
            producer = self.producers.get(producer.input[0])
        if producer is None or producer.op_type != "DequantizeLinear":
            return None
        before = self.producers.get(producer.input[0])
        scale = self.constants.get(producer.input[1])
        zero_point = self.constants.get(producer.input[2]) if len(producer.input) > 2 else None
        axis = attribute(producer, "axis", 1) if scale is not None and scale.ndim else None
        return Quantization(
            producer,
            before if before is not None and before.op_type == "QuantizeLinear" else None,
            scale,
            zero_point,
            axis,
        )

    def edges(self) -> Iterator[tuple[int, int, str, Quantization | None]]:
        """Each float edge of the main graph that survived: node number, input position, float tensor, how quantized.

        What the float model held quantized already counts as float: the tool had no say in it.
        """
        index = self.plan.index
        held = {t for n, node in enumerate(index.nodes) if node.op_type == "DequantizeLinear" for t in index.outputs[n]}
        for number, scope in enumerate(index.node_scope):
            twin = self.counterpart(number) if scope == MAIN_GRAPH else None
            if twin is None:
                continue
            for slot, tensor in enumerate(index.inputs[number]):
                if tensor >= 0 and index.tensor_types[tensor].is_float and slot < len(twin.input):
                    found = self.quantization(twin.input[slot]) if tensor not in held else None
                    yield number, slot, index.tensor_names[tensor], found


def quantized_inputs(pair: ModelPair) -> dict[str, list[str]]:
    """First output of each float node -> names of the float tensors that it reads quantized, by input position."""
    index = pair.plan.index
    found: dict[str, list[str]] = {}
    for node, _, tensor, quantization in pair.edges():
        readers = found.setdefault(next((name for name in index.nodes[node].output if name), ""), [])
        if quantization is not None:
            readers.append(tensor)
    return found


def dequantized(stored: NDArray[Any], found: Quantization) -> NDArray[Any] | None:
    """What readers see of a stored weight, in float32, rounding half to even as the operators' definition asks.

    Args:
        stored: The floats before a pair, or the integers before a lone DequantizeLinear.
        found: How they are quantized.

    Returns:
        The values; None if the scale isn't stored, or scale and zero point don't fit the weight.
    """
    if found.scale is None:
        return None
    zero_point = found.zero_point if found.zero_point is not None else np.zeros(found.scale.shape, np.int8)
    scale, zero = (along(p, stored, found.axis) for p in (found.scale, zero_point))
    if scale is None or zero is None:
        return None
    steps = stored.astype(np.float32)
    if found.quantize is not None:
        limits = np.iinfo(zero_point.dtype)
        steps /= scale
        np.rint(steps, out=steps)
        steps += zero
        np.clip(steps, limits.min, limits.max, out=steps)
    steps -= zero
    steps *= scale
    return steps


def along(parameter: NDArray[Any], values: NDArray[Any], axis: int | None) -> NDArray[Any] | None:
    """A scale or zero point in float32, shaped to be broadcast over the values; None if it doesn't fit them."""
    shape = [1] * values.ndim
    if parameter.size != 1:
        if axis is None or not -values.ndim <= axis < values.ndim or parameter.shape != (values.shape[axis],):
            return None
        shape[axis] = -1
    return parameter.astype(np.float32).reshape(shape)


_QDQ = ("QuantizeLinear", "DequantizeLinear")
