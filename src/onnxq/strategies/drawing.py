"""A model of any operators while it is being drawn: its tensors with their shapes, and the nodes so far.

Like `Network`, but for models without ground truth: tensors have any rank and no past. Messages are made directly
rather than with `onnx.helper`, since a fuzzer builds hundreds of models a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import GraphProto, NodeProto, TensorProto, TypeProto, ValueInfoProto, helper

from onnxq.protos import walk_nodes

Shape = tuple[int, ...]

FIRST_WITH_BFLOAT16 = 13
"""First version of the default operator set whose Cast knows bfloat16."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor that a node or the caller gives: its name, its dims, and its element type."""

    name: str
    shape: Shape
    elem_type: int

    @property
    def rank(self) -> int:
        """Number of dims."""
        return len(self.shape)


@dataclass
class Drawing:
    """A graph that grows.

    Attributes:
        opset: Version of the default operator set.
        elem_type: Float type of data and weights.
        random: Where all weights come from.
        constants: "initializer", "node", or "cast": weights in bfloat16 (below opset 13 in float16) behind a Cast.
        names: "unique", "unnamed", or "colliding": names that a quantizer would give to its own nodes and tensors.
        outer: The graph around a body; its tensors can be captured.
        side: An input of int64 indices, if there is one.
    """

    opset: int
    elem_type: int
    random: np.random.Generator
    constants: str = "initializer"
    names: str = "unique"
    outer: Drawing | None = None
    side: Tensor | None = None
    nodes: list[NodeProto] = field(default_factory=list)
    initializers: list[TensorProto] = field(default_factory=list)
    inputs: list[ValueInfoProto] = field(default_factory=list)
    read: set[str] = field(default_factory=set)
    made: list[Tensor] = field(default_factory=list)
    weights: dict[Shape, str] = field(default_factory=dict)
    _count: list[int] = field(default_factory=lambda: [0])

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of data and weights."""
        return helper.tensor_dtype_to_np_dtype(self.elem_type)

    @property
    def size(self) -> int:
        """How many nodes there are, those of bodies included."""
        return sum(1 for _ in walk_nodes(self.nodes))

    def body(self) -> Drawing:
        """A body of this graph, whose names differ from all in it."""
        return Drawing(
            self.opset, self.elem_type, self.random, self.constants, self.names, outer=self, _count=self._count
        )

    def fresh(self, stem: str) -> str:
        """A name that nothing has yet, in this graph or in one around it."""
        self._count[0] += 1
        number = self._count[0]
        if self.names != "colliding":
            return f"{stem}{number}"
        last = self.made[-1].name if self.made else "x0"
        return f"{last[:40]}_{('QuantizeLinear_Output', 'DequantizeLinear_Output', 'scale')[number % 3]}{number}"

    def input(self, shape: Shape, elem_type: int | None = None, symbol: str = "") -> Tensor:
        """A graph input; with a symbol for its first dim, if one is given."""
        tensor = Tensor(f"x{len(self.inputs)}", shape, elem_type or self.elem_type)
        self.inputs.append(declaration(tensor, symbol))
        return tensor

    def apply(self, op_type: str, inputs: Sequence[Tensor | str], shape: Shape, **attributes: Any) -> Tensor:
        """Append a node with one output of the drawing's float type; constants go by their name, "" is left out."""
        return self.apply_many(op_type, inputs, [(shape, self.elem_type)], **attributes)[0]

    def apply_many(
        self, op_type: str, inputs: Sequence[Tensor | str], outputs: Sequence[tuple[Shape, int]], **attributes: Any
    ) -> list[Tensor]:
        """Append a node with any outputs, each of a shape and an element type."""
        names = [i.name if isinstance(i, Tensor) else i for i in inputs]
        self._reads(names)
        found = [Tensor(self.fresh(op_type.lower()), shape, elem_type) for shape, elem_type in outputs]
        node = NodeProto(op_type=op_type, input=names, output=[t.name for t in found])
        if self.names != "unnamed":
            node.name = self.fresh(op_type)
        node.attribute.extend(helper.make_attribute(key, value) for key, value in attributes.items())
        self.nodes.append(node)
        self.made += found
        return found

    def weight(self, *shape: int, scale: float = 1.0, is_shared: bool = False) -> str:
        """A constant of normally distributed numbers; a shared one is the last of this shape, if there is any."""
        if is_shared and shape in self.weights:
            return self.weights[shape]
        values = self.random.standard_normal(shape, np.float32) * np.float32(scale)
        self.weights[shape] = self.constant(values.astype(self.dtype))
        return self.weights[shape]

    def number(self, value: float) -> str:
        """A scalar of the drawing's float type."""
        return self.constant(np.array(value, self.dtype))

    def constant(self, array: NDArray[Any]) -> str:
        """A constant of any type, stored as the drawing says."""
        name, is_float = self.fresh("c"), array.dtype == self.dtype
        if is_float and self.constants == "cast" and array.ndim:
            stored = self.fresh("c")
            half = TensorProto.BFLOAT16 if self.opset >= FIRST_WITH_BFLOAT16 else TensorProto.FLOAT16
            self.initializers.append(_stored(stored, array.astype(helper.tensor_dtype_to_np_dtype(half)), half))
            self._append_plain("Cast", [stored], name, to=self.elem_type)
        elif self.constants == "node":
            self._append_plain("Constant", [], name, value=_stored("", array))
        else:
            self.initializers.append(_stored(name, array))
        return name

    def graph(self, outputs: Sequence[Tensor], name: str, *, is_open: bool = False) -> GraphProto:
        """The graph so far; `is_open` leaves the first dim of each output undeclared."""
        return GraphProto(
            name=name,
            node=self.nodes,
            input=self.inputs,
            initializer=self.initializers,
            output=[declaration(tensor, "" if not is_open else None) for tensor in outputs],
        )

    def _append_plain(self, op_type: str, inputs: list[str], output: str, **attributes: Any) -> None:
        node = NodeProto(op_type=op_type, input=inputs, output=[output])
        if self.names != "unnamed":
            node.name = self.fresh(op_type)
        node.attribute.extend(helper.make_attribute(key, value) for key, value in attributes.items())
        self.nodes.append(node)

    def _reads(self, names: Sequence[str]) -> None:
        drawing: Drawing | None = self
        while drawing is not None:
            drawing.read.update(names)
            drawing = drawing.outer


def declaration(tensor: Tensor, symbol: str | None = "") -> ValueInfoProto:
    """A tensor's declaration; its first dim is the symbol, if there is one, and open for None."""
    proto = TypeProto()
    proto.tensor_type.elem_type = tensor.elem_type
    dims = proto.tensor_type.shape.dim
    proto.tensor_type.shape.SetInParent()
    for position, length in enumerate(tensor.shape):
        dim = dims.add()
        if position or symbol == "":
            dim.dim_value = length
        elif symbol:
            dim.dim_param = symbol
    return ValueInfoProto(name=tensor.name, type=proto)


def _stored(name: str, array: NDArray[Any], elem_type: int | None = None) -> TensorProto:
    data_type = elem_type or helper.np_dtype_to_tensor_dtype(array.dtype)
    return TensorProto(name=name, dims=array.shape, data_type=data_type, raw_data=array.tobytes())
