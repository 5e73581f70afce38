"""Writes a model node by node, and keeps the ground truth of each value beside it.

Messages are made directly rather than with `onnx.helper`: a fuzzer builds hundreds of models a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
import numpy.typing as npt
import onnx
from onnx import AttributeProto, GraphProto, NodeProto, TensorProto, ValueInfoProto

from onnxq.strategies.ground_truth import LinearOp, Value, Verdict, judge, longest
from onnxq.strategies.labelled import LabelledAdd, LabelledModel
from onnxq.strategies.topology import Topology

Array = npt.NDArray[np.float32] | npt.NDArray[np.int64] | npt.NDArray[np.bool_]
Attribute = int | float | str | tuple[int, ...] | TensorProto | GraphProto

_DATA_TYPES = {"f": TensorProto.FLOAT, "i": TensorProto.INT64, "b": TensorProto.BOOL}

BACKBONES = frozenset({"Conv", "ConvTranspose"})
LINEAR = BACKBONES | {"Gemm", "MatMul"}


class Network:
    """A model that grows, with the labels of its Adds.

    Attributes:
        topology: Decisions that hold for the whole model.
    """

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self._random = np.random.default_rng(topology.seed)
        self._nodes: list[NodeProto] = []
        self._inputs: list[ValueInfoProto] = []
        self._initializers: list[TensorProto] = []
        self._adds: list[LabelledAdd] = []
        self._made: list[Value] = []
        self._consumed: set[str] = set()
        self._elem_types: dict[str, int] = {}

    @property
    def is_empty(self) -> bool:
        """Whether nothing has been computed yet."""
        return not self._made

    def input(self, shape: tuple[int, ...]) -> Value:
        """A new graph input."""
        value = Value(f"x{len(self._inputs)}", shape)
        self._inputs.append(_tensor(value.name, shape))
        return value

    def normal(self, shape: tuple[int, ...], deviation: float) -> npt.NDArray[np.float32]:
        """Normally distributed numbers from the model's seed."""
        return self._random.standard_normal(shape, np.float32) * np.float32(deviation)

    def uniform(self, shape: tuple[int, ...], low: float, high: float) -> npt.NDArray[np.float32]:
        """Evenly distributed numbers from the model's seed."""
        return self._random.random(shape, np.float32) * np.float32(high - low) + np.float32(low)

    def parameter(self, array: npt.NDArray[np.float32]) -> str:
        """A float constant, stored as the topology says."""
        name = self.setting(array)
        if self.topology.constants == "input":
            self._inputs.append(_tensor(name, array.shape))
        return name

    def setting(self, array: Array) -> str:
        """A constant that sets shapes: never a graph input, because then no shape inference could read it."""
        in_node = self.topology.constants == "node"
        name = f"c{len(self._nodes) if in_node else len(self._initializers)}"
        tensor = TensorProto(
            name="" if in_node else name,
            dims=array.shape,
            data_type=_DATA_TYPES[array.dtype.kind],
            raw_data=array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes(),
        )
        if in_node:
            self._write("Constant", [], name, {"value": tensor})
        else:
            self._initializers.append(tensor)
        return name

    def apply(
        self,
        op_type: str,
        inputs: Sequence[Value | str],
        shape: tuple[int, ...],
        *,
        through: Value | None = None,
        macs: int = 0,
        weights: int = 0,
        elem_type: int = TensorProto.FLOAT,
        captures: Sequence[Value] = (),
        **attributes: Attribute,
    ) -> Value:
        """Append a node with one output.

        Args:
            op_type: Operator.
            inputs: Variable values, and constants by name ("" for an input that is left out).
            shape: Shape of the output.
            through: The input whose backbone is the output's as well (R2). None: the walk ends here, or starts here
                at a convolution.
            macs: Multiply-accumulates of a linear op.
            weights: Number of its weights.
            elem_type: Element type of the output.
            captures: Values that its bodies read.
            **attributes: Attributes of the node.
        """
        variable = [v for v in (*inputs, *captures) if isinstance(v, Value)]
        number = len(self._nodes)
        name = f"{op_type.lower()}_{number}"
        linear = LinearOp(number, macs, weights) if op_type in LINEAR else None
        # Identity nodes are no part of a path's length: putting one in must change nothing.
        step = (int(linear is not None), int(op_type != "Identity"), macs, weights)
        path, most = longest(variable, step)
        ancestors = frozenset[LinearOp]().union(*(v.ancestors for v in variable), [] if linear is None else [linear])
        backbone = linear if op_type in BACKBONES else through.backbone if through else None
        self._write(op_type, [v.name if isinstance(v, Value) else v for v in inputs], name, attributes)
        value = Value(name, shape, backbone, ancestors, path, most)
        self._elem_types[name] = elem_type
        self._consumed.update(v.name for v in variable)
        self._made.append(value)
        return value

    def add(self, a: Value, b: Value, *, swap: bool = False, op_type: str = "Add") -> Value:
        """Add two values of one shape, in an Add or a Sum, and label it."""
        operands = (b, a) if swap else (a, b)
        value = self.apply(op_type, operands, a.shape)
        self._label(value, operands, judge(a, b))
        return value

    def combine(self, op_type: str, operands: Sequence[Value | str], *, through: Value | None = None) -> Value:
        """An Add, Sum or Sub that is no candidate (R1): of a constant, broadcasting, of three inputs, or a Sub."""
        shape = max((v.shape for v in operands if isinstance(v, Value)), key=prod)
        value = self.apply(op_type, operands, shape, through=through)
        self._label(value, operands, Verdict("R1"))
        return value

    def finish(self) -> LabelledModel:
        """The model; every value that nothing reads is a graph output."""
        outputs = [v for v in self._made if v.name not in self._consumed]
        opset = self.topology.opset
        model = onnx.ModelProto(
            ir_version=8 if opset < 19 else 10 if opset < 24 else 11,
            producer_name="onnxq",
            opset_import=[onnx.OperatorSetIdProto(version=opset)],
            graph=onnx.GraphProto(
                name="residual",
                node=self._nodes,
                input=self._inputs,
                initializer=self._initializers,
                output=[_tensor(v.name, v.shape, self._elem_types[v.name]) for v in outputs],
            ),
        )
        return LabelledModel(model, tuple(self._adds), self.topology)

    def _label(self, value: Value, operands: Sequence[Value | str], verdict: Verdict) -> None:
        names = tuple(v.name if isinstance(v, Value) else v for v in operands)
        skip, trunk = (v.name if v else None for v in (verdict.skip, verdict.trunk))
        node = self._nodes[-1].name
        self._adds.append(LabelledAdd(node, value.name, names, skip, trunk, verdict.rule, verdict.tie))

    def _write(self, op_type: str, inputs: list[str], output: str, attributes: dict[str, Attribute]) -> None:
        names = {"unique": f"{op_type}_{len(self._nodes)}", "unnamed": "", "repeated": "node"}
        self._nodes.append(
            NodeProto(
                op_type=op_type,
                name=names[self.topology.node_names],
                input=inputs,
                output=[output],
                attribute=[_attribute(name, value) for name, value in attributes.items()],
            )
        )


def _attribute(name: str, value: Attribute) -> AttributeProto:
    if isinstance(value, int):
        return AttributeProto(name=name, type=AttributeProto.INT, i=value)
    if isinstance(value, float):
        return AttributeProto(name=name, type=AttributeProto.FLOAT, f=value)
    if isinstance(value, str):
        return AttributeProto(name=name, type=AttributeProto.STRING, s=value.encode())
    if isinstance(value, TensorProto):
        return AttributeProto(name=name, type=AttributeProto.TENSOR, t=value)
    if isinstance(value, GraphProto):
        return AttributeProto(name=name, type=AttributeProto.GRAPH, g=value)
    return AttributeProto(name=name, type=AttributeProto.INTS, ints=value)


def _tensor(name: str, shape: Sequence[int], elem_type: int = TensorProto.FLOAT) -> ValueInfoProto:
    tensor = onnx.TypeProto.Tensor(
        elem_type=elem_type,
        shape=onnx.TensorShapeProto(dim=[onnx.TensorShapeProto.Dimension(dim_value=d) for d in shape]),
    )
    return ValueInfoProto(name=name, type=onnx.TypeProto(tensor_type=tensor))
