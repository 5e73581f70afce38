"""A float model and what a quantizer made of it, side by side, graph by graph."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import NodeProto

from onnxq.graph import ABSENT, MAIN_GRAPH
from onnxq.invariants.quantized_graph import QDQ, Quantization, QuantizedGraph
from onnxq.pipeline import Plan, make_plan
from onnxq.placement import SelectionOptions
from onnxq.protos import describe
from onnxq.scopes import tensor_key


@dataclass(frozen=True)
class ModelPair:
    """The two models, and what is derived from them once.

    Attributes:
        float_model: What was quantized.
        quantized: What came out.
        policy: "tensorrt" or "onnxruntime": whose fusion rules the result is for.
        selection: What the user asked to be quantized.
        keep_io_types: Whether float32 inputs and outputs had to stay float32; else they may become half.
        direct_io_types: Whether float inputs and outputs may also become integers.
        activation_type: Integer type of activations in onnxq's own placement; None for the default of the policy.
    """

    float_model: onnx.ModelProto
    quantized: onnx.ModelProto
    policy: str = "tensorrt"
    selection: SelectionOptions = field(default_factory=SelectionOptions)
    keep_io_types: bool = True
    direct_io_types: bool = False
    activation_type: str | None = None

    @cached_property
    def plan(self) -> Plan:
        """The float model, prepared, with onnxq's own placement of what was asked for."""
        return make_plan(
            self.float_model,
            self.selection,
            on_quantized="keep",
            policy=self.policy,
            activation_type=self.activation_type,
        )

    def with_quantized(self, quantized: onnx.ModelProto) -> ModelPair:
        """The float model with another result, without planning it once more."""
        other = replace(self, quantized=quantized)
        vars(other)["plan"] = self.plan  # where a cached property keeps its value
        return other

    @cached_property
    def main(self) -> QuantizedGraph:
        """The quantized model's main graph."""
        return QuantizedGraph(self.quantized.graph)

    @cached_property
    def stored_types(self) -> dict[str, int]:
        """Name of each initializer of the quantized model, those of bodies included -> its element type."""
        return {tensor.name: tensor.data_type for graph in self.main.walk() for tensor in graph.graph.initializer}

    @cached_property
    def graphs(self) -> list[QuantizedGraph | None]:
        """By scope number of the plan's index: what has become of each graph; None if it is gone."""
        index, found = self.plan.index, list[QuantizedGraph | None]()
        for scope in index.scopes:
            if scope.owner == ABSENT:
                found.append(self.main)
                continue
            around = found[index.node_scope[scope.owner]]
            owner = around.twin(index.nodes[scope.owner]) if around is not None else None
            found.append(None if around is None or owner is None else around.body(owner, scope.attribute))
        return found

    def graph_of(self, node: int) -> QuantizedGraph | None:
        """The quantized model's graph in which node number `node` of the plan's index stands; None if it is gone."""
        return self.graphs[self.plan.index.node_scope[node]]

    def counterpart(self, node: int) -> NodeProto | None:
        """The quantized model's node for node number `node` of the plan's index; None if it is gone."""
        graph = self.graph_of(node)
        return None if graph is None else graph.twin(self.plan.index.nodes[node])

    def edges(self) -> Iterator[tuple[int, int, str, Quantization | None]]:
        """Each float edge that survived: node number, input position, float tensor, how quantized.

        What the float model held quantized already counts as float: the tool had no say in it.
        """
        index = self.plan.index
        held = {t for n, node in enumerate(index.nodes) if node.op_type == "DequantizeLinear" for t in index.outputs[n]}
        for number, node in enumerate(index.nodes):
            graph = self.graph_of(number)
            twin = None if graph is None else graph.twin(node)
            if graph is None or twin is None:
                continue
            for slot, tensor in enumerate(index.inputs[number]):
                if tensor >= 0 and index.tensor_types[tensor].is_float and slot < len(twin.input):
                    found = graph.quantization(twin.input[slot]) if tensor not in held else None
                    yield number, slot, index.tensor_names[tensor], found

    def outputs(self) -> Iterator[tuple[str, Quantization | None]]:
        """Each float output of the float model's main graph: its name, how quantized as it leaves.

        What comes straight out of a QuantizeLinear is integers outside too. What the float model held quantized already
        counts as float.
        """
        index = self.plan.index
        for tensor in (t for t, is_output in enumerate(index.is_output) if is_output):
            if index.tensor_scope[tensor] != MAIN_GRAPH or not index.tensor_types[tensor].is_float:
                continue
            name, producer = index.tensor_names[tensor], index.producers[tensor]
            is_held = producer != ABSENT and index.nodes[producer].op_type in QDQ
            yield name, None if is_held else self.main.quantization(name, as_output=True)

    def where(self, node: int) -> str:
        """How violations name a node of the plan's index."""
        index = self.plan.index
        path = index.scopes[index.node_scope[node]].path
        return describe(index.nodes[node]) + (f' in body "{path}"' if path else "")

    def key(self, node: int) -> str:
        """How reports name a node of the plan's index: by its first output, with the path of its graph."""
        index = self.plan.index
        output = next((name for name in index.nodes[node].output if name), "")
        return tensor_key(index.scopes[index.node_scope[node]].path, output)


def quantized_inputs(pair: ModelPair) -> dict[str, list[str]]:
    """Key of each float node -> names of the float tensors that it reads quantized, by input position.

    The key is the node's first output, in a body with its path before it: `if1.then_branch/y`, see `onnxq.scopes`.
    """
    found: dict[str, list[str]] = {}
    for node, _, tensor, quantization in pair.edges():
        readers = found.setdefault(pair.key(node), [])
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
