"""Which ops onnxruntime's CPU can run as integer kernels, as far as the op itself and its tensors tell.

onnxruntime fuses an op with the DequantizeLinear before each of its inputs and the QuantizeLinear behind its result:

    x -> Q -> DQ --.
    w -> Q -> DQ ---> Conv -> Q -> DQ ->        becomes        x -> Q --> QLinearConv --> DQ ->
    int32 bias > DQ '                                          w (int8) -'

What it asks for, found in the optimized graphs of onnxruntime 1.32:

    op                  inputs                                           result
    Conv                data, int8 weight per axis 0, int32 bias         integers only
    Gemm                two operands, constant ones per axis of N,       integers, or float
                        int32 bias, then alpha and beta must be 1
    MatMul              two operands, a constant B of rank 2 per axis 1  integers, or float
    MatMul -> Add       likewise; it is made a Gemm, so the Add's        integers, or float
                        constant is a bias and must be int32 too
    Add, Mul, Concat    all of them, constants in the activations' type  integers only
    pools, Sigmoid ...  the data                                         integers only
    copies, MaxPool     the data, with scale and zero point of the       integers only
                        result

"Integers only": the result goes to one QuantizeLinear and nowhere else. A tensor that is an output of the graph (unless
outputs are to be quantized), or that a body reads, goes elsewhere. ConvTranspose has no integer kernel, nor has Sub,
Div, HardSwish, Resize but nearest.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from types import MappingProxyType

from onnx import NodeProto, TensorProto

from onnxq.graph import ABSENT, Edge, GraphIndex, Use
from onnxq.placement.linear import weight_axis
from onnxq.placement.never import Unseen
from onnxq.placement.ops import COPIES, is_copy
from onnxq.protos import is_default_domain

LINEAR_KERNELS = frozenset({"Conv", "Gemm", "MatMul"})
"""Linear ops with an integer kernel."""

_POINTWISE = frozenset({"Add", "AveragePool", "GlobalAveragePool", "LeakyRelu", "Mul", "Sigmoid"})

CPU_OP_TYPES = LINEAR_KERNELS | _POINTWISE | COPIES | {"MaxPool", "Resize"}
"""What is quantized for onnxruntime where its rules say so, when the user names nothing."""


@dataclass(frozen=True, slots=True)
class LinearKernel:
    """A linear op that can run as an integer kernel.

    Attributes:
        node: Its number.
        bias: The edge that carries a constant bias; None without one. It may be an edge of an Add behind a MatMul.
        result: The tensor that comes out of it, the bias included.
        may_be_float: Whether the kernel can yield float.
    """

    node: int
    bias: Edge | None
    result: int
    may_be_float: bool


def linear_kernel(index: GraphIndex, node: int, exclude: frozenset[int], unseen: Unseen) -> LinearKernel | str:
    """Judge a Conv, Gemm or MatMul of the standard.

    Args:
        index: The model.
        node: Its number.
        exclude: Nodes that must stay float, so that none of their inputs is taken for a bias.
        unseen: What can't be quantized because calibration saw no value of it.

    Returns:
        The kernel, or why there is none. Whether its result may be stored as integers isn't looked at.
    """
    proto, inputs = index.nodes[node], index.inputs[node]
    operands = inputs[:2]
    if len(operands) < 2 or ABSENT in operands:
        return "an operand is missing"
    if not any(map(index.is_variable, operands)):
        return "it is computed from constants only"
    if proto.op_type == "Conv" and not (index.is_variable(operands[0]) and index.is_constant(operands[1])):
        return "its weight is no constant, or its data are"
    for slot, tensor in enumerate(operands):
        why = why_no_integers(index, Use(index.node_scope[node], tensor), unseen)
        if why:
            return f"input {slot} {why}"
    bias = inputs[2] if len(inputs) > 2 else ABSENT
    if bias != ABSENT:
        why = _why_no_bias(index, node, bias)
        if why:
            return why
    if proto.op_type == "MatMul":
        add = _bias_add(index, node)
        if add is not None and add.node not in exclude:
            return LinearKernel(node, add, index.outputs[add.node][0], True)
    found = Edge(node, 2) if bias != ABSENT else None
    return LinearKernel(node, found, index.outputs[node][0], proto.op_type != "Conv")


def operand_axis(index: GraphIndex, node: int, slot: int) -> int | None:
    """Axis of the scales of a constant operand that a kernel takes; None for one scale in all.

    A kernel takes scales only of the weight, the second operand, and of a batch of weights only one scale.
    """
    if slot == 0 or (index.nodes[node].op_type == "MatMul" and index.tensor_types[index.inputs[node][1]].rank != 2):
        return None
    return weight_axis(index, node, slot)


def follower_inputs(index: GraphIndex, node: int, unseen: Unseen = MappingProxyType({})) -> tuple[int, ...]:
    """Input positions that must be quantized for an op that isn't linear to run as an integer kernel.

    Args:
        index: The model.
        node: Number of the op.
        unseen: What can't be quantized because calibration saw no value of it.

    Returns:
        The positions; empty for an op that has no such kernel, or not as it stands here.
    """
    proto, inputs = index.nodes[node], index.inputs[node]
    if not is_default_domain(proto) or not inputs:
        return ()
    slots = tuple(range(len(inputs))) if proto.op_type in ("Add", "Mul", "Concat") else (0,)
    tensors = [inputs[slot] for slot in slots]
    if not (proto.op_type in _POINTWISE or is_copy(index, node) or proto.op_type == "MaxPool"):
        return ()
    if _is_dilated(proto) or (proto.op_type == "MaxPool" and len(index.outputs[node]) > 1):
        return ()
    if ABSENT in tensors or not any(map(index.is_variable, tensors)):
        return ()
    uses = (Use(index.node_scope[node], tensor) for tensor in (*tensors, *results(index, node)))
    return () if any(why_no_integers(index, use, unseen) for use in uses) else slots


def results(index: GraphIndex, node: int) -> tuple[int, ...]:
    """The tensors that an integer kernel stores: every part of a Split, the first output of any other op."""
    outputs = index.outputs[node]
    return tuple(t for t in outputs if t != ABSENT) if index.nodes[node].op_type == "Split" else outputs[:1]


def keeps_scale(index: GraphIndex, node: int) -> bool:
    """Whether the kernel stores its result with the scale of its data: it moves or picks values, as they are."""
    return is_copy(index, node) or index.nodes[node].op_type == "MaxPool"


def why_no_integers(index: GraphIndex, use: Use, unseen: Unseen) -> str:
    """Why no integer kernel can read or store the tensor, whatever the op; empty if one can."""
    found = index.tensor_types[use.tensor]
    if found.kind != "tensor" or found.elem_type != TensorProto.FLOAT:
        return f"is of type {found}, integer kernels stand for float ones"
    if found.shape is not None and 0 in found.shape:
        return "has no elements"
    return unseen.get(use, "")


def why_stays_float(index: GraphIndex, tensor: int, outputs: Set[int]) -> str:
    """Why the tensor can't be stored as integers only, whatever reads it; empty if it can.

    Args:
        index: The model.
        tensor: Its number.
        outputs: Graph outputs that are to be quantized, so that the caller reads what was rounded.
    """
    if index.is_output[tensor] and tensor not in outputs:
        return "is an output of the graph"
    if any(index.node_scope[edge.node] != index.tensor_scope[tensor] for edge in index.consumers[tensor]):
        return "is read inside a body"
    return "" if index.consumers[tensor] or tensor in outputs else "is read by nothing"


def _why_no_bias(index: GraphIndex, node: int, bias: int) -> str:
    """Why the kernel can't take the third input as its bias; empty if it can."""
    if not index.is_constant(bias):
        return "its bias is no constant"
    if index.tensor_types[bias].elem_type != TensorProto.FLOAT:
        return f"its bias is of type {index.tensor_types[bias]}"
    proto = index.nodes[node]
    if proto.op_type != "Gemm":
        return ""
    if any(a.name in ("alpha", "beta") and a.f != 1 for a in proto.attribute):
        return "it has a bias, and an alpha or beta that isn't 1"
    if not index.is_constant(index.inputs[node][1]):
        return "it has a bias, and its second operand is no constant"
    columns = _columns(index, node)
    shape = index.tensor_types[bias].shape
    return "" if shape in ((columns,), (1, columns)) else "its bias isn't one number a column"


def _columns(index: GraphIndex, node: int) -> object:
    """Length of the axis N of a constant B; never equal to a dim if it isn't known."""
    axis, shape = weight_axis(index, node, 1), index.tensor_types[index.inputs[node][1]].shape
    dim = shape[axis] if shape is not None and axis is not None and axis < len(shape) else None
    return dim if isinstance(dim, int) else object()


def _bias_add(index: GraphIndex, node: int) -> Edge | None:
    """The edge of a constant that is added to a MatMul's result as a bias, one number a column.

    x -> MatMul(W [K, N]) -> Add(b [N] or [1, .., N])
    """
    result, weight = index.outputs[node][0], index.inputs[node][1]
    readers = index.consumers[result]
    if index.is_output[result] or len(readers) != 1 or index.tensor_types[weight].rank != 2:
        return None
    add, slot = index.nodes[readers[0].node], 1 - readers[0].input
    if add.op_type != "Add" or not is_default_domain(add) or index.local_producer(result, readers[0].node) == ABSENT:
        return None
    bias = index.inputs[readers[0].node][slot]
    shape, rank = index.tensor_types[bias].shape, index.tensor_types[result].rank
    if not (index.is_constant(bias) and index.is_constant(weight)) or not shape:
        return None
    if index.tensor_types[bias].elem_type != TensorProto.FLOAT:
        return None
    fits = shape[-1] == _columns(index, node) and all(dim == 1 for dim in shape[:-1])
    return Edge(readers[0].node, slot) if fits and (rank is None or len(shape) <= rank) else None


def _is_dilated(proto: NodeProto) -> bool:
    return proto.op_type == "AveragePool" and any(
        d != 1 for a in proto.attribute if a.name == "dilations" for d in a.ints
    )
