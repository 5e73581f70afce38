"""What yields the values that calibration saw beyond the range of half precision (rule F3).

    DQ -> Conv -> BatchNormalization -> Add -> Relu -> X         seen at X: 70000
          from the linear op on, whatever can hold such a value already

Calibration looks only at tensors that get Q/DQ, so what lies between two of them isn't known. A linear op is where a
value becomes that large; what comes before it may, but needn't be so.
"""

from __future__ import annotations

from collections.abc import Set

from onnxq.graph import ABSENT, GraphIndex
from onnxq.precision.operators import QDQ
from onnxq.protos import is_default_domain

_LINEAR = frozenset({"Conv", "ConvTranspose", "Einsum", "Gemm", "MatMul"})


def yielding(index: GraphIndex, beyond: Set[int]) -> set[int]:
    """Find the nodes between the last linear op or DequantizeLinear and a tensor with such values.

    Args:
        index: The model, with its Q/DQ.
        beyond: Tensors at which calibration saw values beyond the range.

    Returns:
        Numbers of the nodes. A walk ends at the inputs of the body that it began in.
    """
    found = set[int]()
    pending = sorted(beyond)
    while pending:
        node = index.producers[pending.pop()]
        if node == ABSENT or node in found or index.nodes[node].op_type in QDQ:
            continue
        found.add(node)
        if not (index.nodes[node].op_type in _LINEAR and is_default_domain(index.nodes[node])):
            pending += [t for t in index.inputs[node] if t != ABSENT and index.tensor_types[t].is_float]
    return found
