"""Linear ops of sizes that int8 kernels don't serve (rule P2): TensorRT runs them in float, so a pair would only cost.

Tensor cores multiply blocks of 16 channels. A convolution with fewer, on either side, has an int8 kernel only in two
forms:

    graph input -> Conv [32, 3, 3, 3]        ungrouped, channels in eights, a square kernel, and wide enough or first
    Conv [32, 1, 3, 3], group = 32           grouped, output channels in eights, a kernel of 3 or more each way

A product of matrices wants 16 columns and 16 terms in each sum, and more than one row: a vector times a matrix is bound
by the reading of the matrix. A dim that isn't known counts as large: a batch of any size is no batch of one.
"""

from __future__ import annotations

from onnxq.graph import ABSENT, GraphIndex
from onnxq.placement.kernels import moved
from onnxq.placement.ops import group_count
from onnxq.protos import attribute, is_default_domain
from onnxq.tensor_types import Dim

_BLOCK = 16
"""Channels of a block that tensor cores multiply."""

_PACK = 8
"""Channels that narrow kernels come in multiples of."""

_DEPTHWISE_KERNEL = 3
"""Least size of a kernel, each way, that grouped convolutions have int8 kernels for."""

_SPATIAL_RANKS = (1, 2, 3)


def unserved(index: GraphIndex) -> dict[int, str]:
    """Find the Convs, Gemms and MatMuls that have no int8 kernel of use. A ConvTranspose always has one.

    Args:
        index: The model.

    Returns:
        Node number -> what is wrong with its size: "12 input channels a group, int8 kernels want 16".
    """
    first = _input_copies(index)
    found: dict[int, str] = {}
    for node, proto in enumerate(index.nodes):
        operands = index.inputs[node][:2]
        if not is_default_domain(proto) or len(operands) < 2 or ABSENT in operands:
            continue
        why = ""
        if proto.op_type == "Conv":
            why = _why_no_conv(
                index, node, reads_input=first[operands[0]] or _is_from_outside(index, operands[0], node)
            )
        elif proto.op_type in ("Gemm", "MatMul"):
            why = _why_no_product(index, node)
        if why:
            found[node] = why
    return found


def _input_copies(index: GraphIndex) -> list[bool]:
    """By tensor: whether a node yields it by only moving inputs of its graph. A body's captures are its inputs."""
    copies = [False] * len(index.tensor_names)
    for node in range(len(index.nodes)):
        variable = [t for t in moved(index, node) if index.is_variable(t)]
        if variable and all(_is_from_outside(index, t, node) or copies[t] for t in variable):
            for tensor in index.outputs[node]:
                if tensor != ABSENT:
                    copies[tensor] = True
    return copies


def _is_from_outside(index: GraphIndex, tensor: int, node: int) -> bool:
    """Whether the tensor is an input of the graph of the node, or captured by it."""
    return index.is_variable(tensor) and index.local_producer(tensor, node) == ABSENT


def _why_no_conv(index: GraphIndex, node: int, *, reads_input: bool) -> str:
    """Why int8 kernels don't serve a Conv; "" if they do, or if the shape of its weight isn't known.

    The kernel's size is read off the weight: the attribute may be missing.
    """
    shape = _known(index.tensor_types[index.inputs[node][1]].shape)
    if shape is None or len(shape) - 2 not in _SPATIAL_RANKS:
        return ""
    outputs, inputs, *kernel = shape
    if min(outputs, inputs) >= _BLOCK:
        return ""
    if group_count(index, node) > 1:
        return _why_no_grouped_conv(outputs, inputs, kernel)
    narrow = _narrow(outputs, "output channels") if outputs < _BLOCK else _narrow(inputs, "input channels")
    if outputs % _PACK and inputs % _PACK:
        return f"{narrow} or multiples of {_PACK}"
    if not reads_input and max(outputs, inputs) < _BLOCK:
        return narrow
    if len(set(kernel)) > 1:
        return f"{narrow}, or a kernel of equal sides instead of {_times(kernel)}"
    return ""


def _why_no_grouped_conv(outputs: int, inputs: int, kernel: list[int]) -> str:
    narrow = _narrow(inputs, "input channels a group") if inputs < _BLOCK else _narrow(outputs, "output channels")
    if outputs % _PACK:
        return f"{narrow}, or output channels in multiples of {_PACK} instead of {outputs}"
    if min(kernel) < _DEPTHWISE_KERNEL:
        return f"{narrow}, or a kernel of {_DEPTHWISE_KERNEL} and more each way instead of {_times(kernel)}"
    return ""


def _why_no_product(index: GraphIndex, node: int) -> str:
    """Why int8 kernels are of no use to a Gemm or MatMul [.., rows, terms] x [.., terms, columns]; "" if they are.

    A constant operand of two dims is what serves all of a batch, so one row of each of several is no single row.
    """
    left, right = (index.tensor_types[t].shape for t in index.inputs[node][:2])
    if any(shape is not None and len(shape) == 1 for shape in (left, right)):
        return "a vector times a matrix, which int8 kernels gain nothing for"
    rows, left_terms = _matrix(index, node, "transA", left)
    right_terms, columns = _matrix(index, node, "transB", right)
    if columns is not None and 0 < columns < _BLOCK:
        return _narrow(columns, "columns")
    terms = min((k for k in (left_terms, right_terms) if k), default=_BLOCK)
    if terms < _BLOCK:
        return _narrow(terms, "terms a sum")
    one_matrix = left is not None and right is not None and max(len(left), len(right)) == 2
    if rows == 1 and (one_matrix or all(map(index.is_variable, index.inputs[node][:2]))):
        return "a single row, which int8 kernels gain nothing for"
    return ""


def _matrix(
    index: GraphIndex, node: int, transposed: str, shape: tuple[Dim, ...] | None
) -> tuple[int | None, int | None]:
    """The last two dims as the product takes them; None for what isn't known. A MatMul never transposes."""
    if shape is None or len(shape) < 2:
        return None, None
    first, second = (dim if isinstance(dim, int) else None for dim in shape[-2:])
    return (second, first) if attribute(index.nodes[node], transposed, 0) else (first, second)


def _known(shape: tuple[Dim, ...] | None) -> tuple[int, ...] | None:
    """The shape, if all of it is known."""
    dims = tuple(dim for dim in shape or () if isinstance(dim, int))
    return dims if shape is not None and len(dims) == len(shape) else None


def _narrow(size: int, what: str) -> str:
    """What there is too little of."""
    return f"{size} {what if size > 1 else what.replace('s', '', 1)}, int8 kernels want {_BLOCK}"


def _times(kernel: list[int]) -> str:
    return "x".join(map(str, kernel))
