"""Values that a model stores: initializers and Constant nodes, alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import NodeProto

from onnxq.graph.index import ABSENT, GraphIndex
from onnxq.tensor_data import tensor_values

Array = npt.NDArray[Any]


def stored_value(index: GraphIndex, tensor: int) -> Array | None:
    """The values of an initializer or of a Constant node; None for what is computed, sparse, or no constant."""
    stored = index.initializers.get(tensor)
    if stored is not None:
        return tensor_values(stored)
    producer = index.producers[tensor]
    if producer == ABSENT or index.nodes[producer].op_type != "Constant":
        return None
    return constant_node_value(index.nodes[producer])


def constant_node_value(node: NodeProto) -> Array | None:
    """The value of a Constant node, whichever attribute holds it; None for a sparse one."""
    attribute = node.attribute[0] if node.attribute else None
    if attribute is None:
        return None
    match attribute.name:
        case "value":
            return tensor_values(attribute.t)
        case "value_float":
            return np.array(attribute.f, dtype=np.float32)
        case "value_floats":
            return np.array(attribute.floats, dtype=np.float32)
        case "value_int":
            return np.array(attribute.i, dtype=np.int64)
        case "value_ints":
            return np.array(attribute.ints, dtype=np.int64)
        case "value_string":
            return np.array(attribute.s, dtype=object)
        case "value_strings":
            return np.array(list(attribute.strings), dtype=object)
    return None
