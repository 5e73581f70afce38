"""A small writer of ONNX graphs: nodes are added in order, names are plain and unique, weights come from one seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, helper, numpy_helper, shape_inference

Dim = int | str | None


class Graph:
    """A graph under construction.

    A node is named like its first output, so "block1_add" is both the node and the tensor that it yields. Tensors are
    handed around as names; the writer remembers how many channels (axis 1) each one has.

    Attributes:
        opset: Version of the default operator set.
        rng: Source of every weight.
        channels: Number of channels of each tensor; 0 where that has no meaning.
    """

    def __init__(self, name: str, *, seed: int, opset: int) -> None:
        self.opset = opset
        self.rng = np.random.default_rng(seed)
        self.channels: dict[str, int] = {}
        self._name = name
        self._nodes: list[onnx.NodeProto] = []
        self._node_names: set[str] = set()
        self._initializers: list[TensorProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []

    def input(self, name: str, shape: Sequence[Dim]) -> str:
        """Add a float32 graph input. A dim is a number, a symbol, or None for one that has neither."""
        self._inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape)))
        channels = shape[1] if len(shape) > 1 else None
        return self._declare(name, channels if isinstance(channels, int) else 0)

    def constant(self, name: str, value: NDArray[Any] | Sequence[int] | float) -> str:
        """Add an initializer. A float becomes a float32 scalar, an int or a sequence of ints becomes int64."""
        if not isinstance(value, np.ndarray):
            value = np.array(value, np.float32 if isinstance(value, float) else np.int64)
        self._initializers.append(numpy_helper.from_array(value, name))
        return self._declare(name, 0)

    def weight(self, name: str, shape: Sequence[int], fan_in: int, gain: float = 2.0) -> str:
        """Add a random float32 weight of variance gain / fan_in; a gain of 2 keeps magnitudes through Relu (He)."""
        return self.constant(name, self.normal(shape, (gain / fan_in) ** 0.5))

    def normal(self, shape: Sequence[int], deviation: float, mean: float = 0.0) -> NDArray[np.float32]:
        """Draw float32 numbers from a normal distribution."""
        return self.rng.normal(mean, deviation, tuple(shape)).astype(np.float32)

    def uniform(self, shape: Sequence[int], low: float, high: float) -> NDArray[np.float32]:
        """Draw float32 numbers from a uniform distribution."""
        return self.rng.uniform(low, high, tuple(shape)).astype(np.float32)

    def node(self, op: str, inputs: Sequence[str], name: str, *, channels: int | None = None, **attributes: Any) -> str:
        """Add a node with one output; it has as many channels as the first input, unless they are given."""
        return self.node_with_outputs(op, inputs, [name], name=name, channels=channels, **attributes)[0]

    def node_with_outputs(
        self,
        op: str,
        inputs: Sequence[str],
        outputs: Sequence[str],
        *,
        name: str,
        channels: int | None = None,
        **attributes: Any,
    ) -> list[str]:
        """Add a node with outputs of the given names."""
        if name in self._node_names:
            raise ValueError(f"two nodes would be named {name!r}")
        self._node_names.add(name)
        self._nodes.append(helper.make_node(op, list(inputs), list(outputs), name, **attributes))
        if channels is None:
            channels = self.channels[inputs[0]]
        return [self._declare(output, channels) for output in outputs]

    def model(self, outputs: Mapping[str, str], *, check: bool = True) -> ModelProto:
        """Finish the model.

        Args:
            outputs: Name of each graph output -> the tensor that it is. The tensor is renamed, its node keeps its name.
                The first dim of each is the batch.
            check: Infer the types and shapes of the outputs, and check the model. Without it the outputs are declared
                as float32 of unknown rank.
        """
        output_of = {tensor: output for output, tensor in outputs.items()}
        graph = helper.make_graph(
            [_with_tensors_renamed(node, output_of) for node in self._nodes],
            self._name,
            self._inputs,
            [helper.make_tensor_value_info(output, TensorProto.FLOAT, None) for output in outputs],
            self._initializers,
        )
        opsets = [helper.make_opsetid("", self.opset)]
        ir_version = helper.find_min_ir_version_for(opsets)
        model = helper.make_model(graph, producer_name="onnxq_builders", opset_imports=opsets, ir_version=ir_version)
        if not check:
            return model
        for info in model.graph.output:
            info.ClearField("type")  # An output need not be float32: inference says what it is.
        model = shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
        del model.graph.value_info[:]
        for info in model.graph.output:
            first = info.type.tensor_type.shape.dim[0]
            if first.dim_param.startswith("unk__"):  # Inference forgets the batch behind Resize.
                first.CopyFrom(self._inputs[0].type.tensor_type.shape.dim[0])
        onnx.checker.check_model(model, full_check=True)
        return model

    def _declare(self, tensor: str, channels: int) -> str:
        if tensor in self.channels:
            raise ValueError(f"two tensors would be named {tensor!r}")
        self.channels[tensor] = channels
        return tensor


def renamed(model: ModelProto, *, prefix: str = "", names: Mapping[str, str] | None = None) -> ModelProto:
    """Return the model under other names of nodes and tensors; nothing else changes.

    Args:
        model: A model without subgraphs.
        prefix: Put before every name, those of graph inputs and outputs included.
        names: Old name -> new name, for nodes and tensors alike; the prefix comes on top.

    Raises:
        ValueError: An old name isn't in the model, or two things would get one name.
    """
    result = ModelProto()
    result.CopyFrom(model)
    graph = result.graph
    named: list[Any] = [*graph.node, *graph.input, *graph.output, *graph.initializer, *graph.value_info]
    old = {item.name for item in named} | {name for node in graph.node for name in (*node.input, *node.output)}
    new = {name: prefix + (names or {}).get(name, name) for name in sorted(old - {""})}
    if missing := sorted(set(names or {}) - old):
        raise ValueError(f"names: the model has no {', '.join(missing)}; it has {', '.join(sorted(new))}")
    if len(set(new.values())) < len(new):
        raise ValueError("names: two nodes or tensors would get the same name")
    for item in named:
        item.name = new[item.name]
    for node in graph.node:
        node.input[:] = [new.get(name, name) for name in node.input]
        node.output[:] = [new.get(name, name) for name in node.output]
    return result


def _with_tensors_renamed(node: onnx.NodeProto, new: Mapping[str, str]) -> onnx.NodeProto:
    result = onnx.NodeProto()
    result.CopyFrom(node)
    result.input[:] = [new.get(name, name) for name in node.input]
    result.output[:] = [new.get(name, name) for name in node.output]
    return result
