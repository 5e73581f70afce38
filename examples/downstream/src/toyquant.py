"""A toy quantizer: Q/DQ at both inputs of every Conv with stored weights, and nothing else.

The rule is deliberately simple, so that the corpus of pytest-onnxq has something to find.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, helper, numpy_helper


def quantize(
    model: ModelProto, feeds: Iterable[Mapping[str, Any]] = (), options: Mapping[str, Any] | None = None
) -> ModelProto:
    """Quantize a model.

    Args:
        model: A float model of opset 13 or later. It isn't changed.
        feeds: Calibration samples; this toy takes a fixed range for activations, and ignores them.
        options: Ignored likewise.

    Returns:
        The quantized model.
    """
    result = ModelProto()
    result.CopyFrom(model)
    weights = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    nodes: list[onnx.NodeProto] = []
    made: dict[str, str] = {}

    def pair(tensor: str, scale: np.ndarray, **axis: int) -> str:
        """Write a Q/DQ pair behind a tensor, once; give the name of what the reader reads."""
        if tensor not in made:
            q, dq = f"{tensor}_q", f"{tensor}_dq"
            result.graph.initializer.append(numpy_helper.from_array(scale, f"{tensor}_scale"))
            result.graph.initializer.append(numpy_helper.from_array(np.zeros(scale.shape, np.int8), f"{tensor}_zero"))
            parameters = [f"{tensor}_scale", f"{tensor}_zero"]
            nodes.append(helper.make_node("QuantizeLinear", [tensor, *parameters], [q], f"{q}_node", **axis))
            nodes.append(helper.make_node("DequantizeLinear", [q, *parameters], [dq], f"{dq}_node", **axis))
            made[tensor] = dq
        return made[tensor]

    for node in result.graph.node:
        if node.op_type == "Conv" and node.input[1] in weights:
            weight = weights[node.input[1]]
            peaks = np.abs(weight).reshape(len(weight), -1).max(axis=1)
            node.input[0] = pair(node.input[0], np.array(8 / 127, np.float32))
            node.input[1] = pair(node.input[1], np.maximum(peaks / 127, 1e-8).astype(np.float32), axis=0)
        nodes.append(node)
    del result.graph.node[:]
    result.graph.node.extend(nodes)
    return result


quantize.name = "toyquant"
quantize.version = "0.3.0"
quantize.policy = "tensorrt"
