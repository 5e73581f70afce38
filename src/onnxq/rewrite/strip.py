"""Takes Q/DQ pairs out again: what remains is the float model that a quantizer started from, if it was honest.

Graph editing is onnx-graphsurgeon's job here. A pair is bypassed, wherever it came from; a weight that is stored as
int8 behind a lone DequantizeLinear becomes a float constant again.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_graphsurgeon as gs
from numpy.typing import NDArray


def strip_pairs(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of the model without QuantizeLinear and DequantizeLinear in its main graph.

    Args:
        model: Any model; it isn't changed.

    Returns:
        The float model. Nodes keep their names and order, inputs and outputs their declarations.
    """
    graph = gs.import_onnx(model)
    for node in graph.nodes:
        if node.op == "DequantizeLinear":
            _bypass(node)
    graph.cleanup(remove_unused_graph_inputs=False)
    stripped = gs.export_onnx(graph, do_type_check=False)
    stripped.ir_version = model.ir_version
    return stripped


def _bypass(dequantize: Any) -> None:
    """Let the readers of a DequantizeLinear read what was quantized, or the float value of a stored int8 weight."""
    source = dequantize.inputs[0]
    producer = source.inputs[0] if source.inputs else None
    if producer is not None and producer.op == "QuantizeLinear":
        original = producer.inputs[0]
    elif isinstance(source, gs.Constant):
        original = gs.Constant(f"{source.name}_float", _dequantized(dequantize))
    else:
        return
    result = dequantize.outputs[0]
    for reader in list(result.outputs):
        for slot, tensor in enumerate(reader.inputs):
            if tensor is result:
                reader.inputs[slot] = original


def _dequantized(node: Any) -> NDArray[Any]:
    """(q - zero point) * scale, along the axis of the node."""
    values, scale = (node.inputs[i].values for i in (0, 1))
    zero = node.inputs[2].values if len(node.inputs) > 2 else np.zeros_like(scale, dtype=values.dtype)
    if scale.ndim:
        shape = [1] * values.ndim
        shape[node.attrs.get("axis", 1)] = -1
        scale, zero = scale.reshape(shape), zero.reshape(shape)
    return ((values.astype(np.float32) - zero.astype(np.float32)) * scale).astype(scale.dtype)
