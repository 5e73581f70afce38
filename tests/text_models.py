"""Small models written as a few lines of ONNX text; weights that the text only names are made up from a seed."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, helper, numpy_helper
from onnx.parser import parse_model

from onnxq.pipeline import QuantizationResult, make_plan, quantize
from onnxq.placement import Placement, SelectionOptions

IMAGE = "float[1,16,8,8]"


def quantize_int8(model: ModelProto | Path, **options: Any) -> QuantizationResult:
    """Quantize, and leave the rest of the model in float32: what a test of Q/DQ alone wants to see."""
    return quantize(model, high_precision_dtype="fp32", **options)


def text_model(
    body: str,
    inputs: str = f"{IMAGE} x",
    outputs: str = f"{IMAGE} y",
    *,
    opset: int = 17,
    dtype: Any = np.float32,
    **shapes: tuple[int, ...],
) -> ModelProto:
    """A model with the given nodes. A tensor that nothing yields is a weight.

    Its shape is the one given by name, else [16, 16, 3, 3] for names that begin with "w", [16, 16, 1, 1] with "k",
    [16] with "b", [16, 1, 1] with "v", [] with "c". Convolutions of [.., 3, 3] get pads, unless they say something
    about pads themselves. Nodes without a name are called like their first output.
    """
    head = f'<ir_version: 8, opset_import: ["": {opset}, "custom": 1]>'
    model = parse_model(f"{head} g ({inputs}) => ({outputs}) {{ {body} }}")
    graph = model.graph
    made = {v.name for v in graph.input} | {name for node in graph.node for name in node.output}
    named = dict.fromkeys(name for node in graph.node for name in node.input if name and name not in made)
    by_letter = {"w": (16, 16, 3, 3), "k": (16, 16, 1, 1), "b": (16,), "v": (16, 1, 1), "c": ()}
    for name in named:
        shape = shapes[name] if name in shapes else by_letter[name[0]]
        rng = np.random.default_rng(zlib.crc32(name.encode()))
        values = (rng.standard_normal(shape) / max(1, np.prod(shape[1:])) ** 0.5).astype(dtype)
        graph.initializer.append(numpy_helper.from_array(values, name))
    kernels = {t.name: tuple(t.dims[2:]) for t in graph.initializer}
    for node in graph.node:
        node.name = node.name or node.output[0]
        padded = any(a.name in ("pads", "auto_pad") for a in node.attribute)
        if node.op_type in ("Conv", "ConvTranspose") and kernels.get(node.input[1]) == (3, 3) and not padded:
            node.attribute.append(helper.make_attribute("pads", [1, 1, 1, 1]))
    return model


def placed(model: ModelProto, *, policy: str = "tensorrt", **options: Any) -> Placement:
    """The placement of a model."""
    return make_plan(model, SelectionOptions(**options), policy=policy).placement


def quantized_inputs(model: ModelProto, **options: Any) -> dict[str, list[str]]:
    """First output of each node that reads something quantized -> the tensors that it reads quantized."""
    placement = placed(model, **options)
    found: dict[str, list[str]] = {}
    for edge in placement.quantized:
        label = placement.labels[edge]
        found.setdefault(label.output, []).append(label.tensor)
    return found


def rules(model: ModelProto, **options: Any) -> dict[tuple[str, int], str]:
    """(First output of the node, input position) -> name of the rule that decided."""
    placement = placed(model, **options)
    return {(placement.labels[e].output, e.input): d.reason.rule.name for e, d in placement.items()}


def swap(model: ModelProto, output: str) -> ModelProto:
    """The model with the operands of one node in reverse."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    node = next(node for node in copy.graph.node if output in node.output)
    node.input[:] = list(reversed(node.input))
    return copy
