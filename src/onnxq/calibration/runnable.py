"""What no runtime loads, so that it can't be calibrated, told before a runtime says it in its own words."""

from __future__ import annotations

from onnxq.graph import ABSENT, GraphIndex, stored_value
from onnxq.protos import attribute, describe, is_default_domain


def why_unrunnable(index: GraphIndex) -> str:
    """Name the first TopK that asks for more elements than its axis has, or for less than none.

    Runtimes infer shapes when they load a model, and ONNX's inference refuses such a node. The model can still be
    converted to another precision, since its types are known.

    Args:
        index: The prepared model.

    Returns:
        What is wrong, and the way out; empty if there is no such node.
    """
    for number, node in enumerate(index.nodes):
        if node.op_type != "TopK" or not is_default_domain(node) or len(index.inputs[number]) < 2:
            continue
        data, k = index.inputs[number][:2]
        shape = index.tensor_types[data].shape if data != ABSENT else None
        wanted = stored_value(index, k) if k != ABSENT else None
        axis = attribute(node, "axis", -1)
        if shape is None or wanted is None or wanted.size != 1 or not -len(shape) <= axis < len(shape):
            continue
        length, count = shape[axis], int(wanted.reshape(-1)[0])
        if count < 0 or (isinstance(length, int) and count > length):
            has = f", which has {length}" if isinstance(length, int) else ""
            return (
                f'{describe(node)} takes {count} elements of "{index.tensor_names[data]}" along axis {axis}{has}: '
                "no runtime loads such a model; mend K, or only convert the model"
            )
    return ""
