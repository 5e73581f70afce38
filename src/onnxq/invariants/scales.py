"""Invariants of the Q/DQ themselves: sound scales, the right axis, weights that survive, no pair in vain."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import NodeProto

from onnxq.calibration import evaluate_constants
from onnxq.errors import OnnxqError
from onnxq.graph import ABSENT, Edge, Use
from onnxq.invariants.pair import ModelPair, along, dequantized
from onnxq.invariants.quantized_graph import QDQ, Quantization, QuantizedGraph
from onnxq.invariants.violation import Violation
from onnxq.placement import copy_sources, is_copy, is_linear, weight_axis
from onnxq.protos import describe


def scales_positive(pair: ModelPair) -> list[Violation]:
    """Every stored scale is positive and finite, and its zero point has the same shape."""
    found = []
    for graph, node in _qdq_nodes(pair):
        scale = graph.constants.get(node.input[1])
        zero_point = graph.constants.get(node.input[2]) if len(node.input) > 2 and node.input[2] else None
        if scale is None:
            continue
        wide = scale.astype(np.float64)
        if not (np.isfinite(wide) & (wide > 0)).all():
            worst = wide[~(np.isfinite(wide) & (wide > 0))].ravel()[0]
            found.append(
                Violation("scales-positive", describe(node), "scales that are positive and finite", f"{worst}")
            )
        if zero_point is not None and zero_point.size != scale.size:
            expected, got = f"a zero point of shape {scale.shape}", f"{zero_point.shape}"
            found.append(Violation("scales-positive", describe(node), expected, got))
    return found


def weight_axes(pair: ModelPair) -> list[Violation]:
    """A weight's scales run along its output channels, never along an axis that the op sums over."""
    index, found = pair.plan.index, []
    for node, slot, tensor, quantization in pair.edges():
        if quantization is None or not is_linear(index, node) or not index.is_constant(index.inputs[node][slot]):
            continue
        if quantization.scale is None or quantization.scale.size == 1 or slot > 1:
            continue
        axis, shape = weight_axis(index, node, slot), index.tensor_types[index.inputs[node][slot]].shape
        got = quantization.axis
        if got is not None and got < 0 and shape is not None:
            got += len(shape)
        length = shape[axis] if shape is not None and axis is not None else None
        if got != axis or (isinstance(length, int) and quantization.scale.size != length):
            expected = f"axis {axis} with {length} scales, or one scale in all"
            where = f'weight "{tensor}" of {pair.where(node)}'
            found.append(Violation("weight-axes", where, expected, f"axis {got} with {quantization.scale.size} scales"))
    return found


def weights_reconstructed(pair: ModelPair) -> list[Violation]:
    """What readers see of each quantized weight is within half a step of its float value, channel by channel."""
    index = pair.plan.index
    weights: dict[tuple[str, str], tuple[int, int, Quantization]] = {}
    for node, slot, _, quantization in pair.edges():
        use, graph = index.use(Edge(node, slot)), pair.graph_of(node)
        if quantization is not None and index.is_constant(use.tensor) and graph is not None:
            first = quantization.quantize or quantization.dequantize
            weights[index.key(use), graph.home(first.output[0]).key(first.input[0])] = node, use.tensor, quantization
    originals = evaluate_constants(pair.plan.prepared.model, [original for original, _ in weights])
    try:
        stored = evaluate_constants(pair.quantized, [name for _, name in weights])
        found: list[Violation] = []
        for (original, name), (node, tensor, quantization) in weights.items():
            where = f'weight "{index.tensor_names[tensor]}" of {pair.where(node)}'
            found += _reconstruction(where, originals[original], stored[name], quantization)
    except (OnnxqError, ValueError) as error:
        return [Violation("weights-reconstructed", "weights", "known without running the model", str(error))]
    return found


def _reconstruction(
    where: str, original: NDArray[Any], stored: NDArray[Any], quantization: Quantization
) -> Iterator[Violation]:
    if original.shape != stored.shape:
        expected, got = (f"shape {list(shape)}" for shape in (original.shape, stored.shape))
        yield Violation("weights-reconstructed", where, expected, got)
        return
    worst = _error_in_steps(original, stored, quantization)
    if worst is not None and not worst <= 0.5 + _rounding_in_steps(quantization):
        yield Violation(
            "weights-reconstructed", where, "within half a step of its float value", f"off by {worst:.3g} steps"
        )


def _error_in_steps(original: NDArray[Any], stored: NDArray[Any], quantization: Quantization) -> float | None:
    """Greatest distance between a weight and what readers see of it; None if its scale isn't stored or doesn't fit."""
    if stored.dtype == np.int32:  # a bias: so many steps that float32 can't count them
        return _bias_error_in_steps(original, stored, quantization)
    restored = dequantized(stored, quantization)
    step = None if quantization.scale is None else along(quantization.scale, original, quantization.axis)
    if restored is None or step is None or not original.size:
        return None
    restored -= original.astype(restored.dtype)
    restored /= step
    return float(np.abs(restored, out=restored).max())


def _bias_error_in_steps(original: NDArray[Any], stored: NDArray[Any], quantization: Quantization) -> float | None:
    """The same for a bias, whose float value is itself exact to 2^-24 only."""
    step = None if quantization.scale is None else along(quantization.scale, original, quantization.axis)
    if step is None or not original.size:
        return None
    steps = original.astype(np.float64) / step
    return float((np.abs(stored - steps) - 2**-22 * np.abs(steps)).max())


def _rounding_in_steps(quantization: Quantization) -> float:
    """What the arithmetic's own precision adds: weight, scale and result are each rounded, at up to 127 steps."""
    dtype = np.float32 if quantization.scale is None else quantization.scale.dtype
    epsilon = {"float16": 2**-11, "bfloat16": 2**-8}.get(np.dtype(dtype).name, 2**-19)
    return 3 * 127 * epsilon


def no_repeated_pairs(pair: ModelPair) -> list[Violation]:
    """No Q reads a DQ: two roundings in a row on one edge."""
    found = []
    for graph, node in _qdq_nodes(pair):
        before = graph.producers.get(node.input[0]) if node.op_type == "QuantizeLinear" and node.input else None
        if before is not None and before.op_type == "DequantizeLinear":
            found.append(
                Violation("no-repeated-pairs", describe(node), "reads a float tensor", f"reads {describe(before)}")
            )
    return found


def no_dangling_pairs(pair: ModelPair) -> list[Violation]:
    """Every Q and DQ is read by something."""
    read: dict[str, set[str]] = {}
    for graph in pair.main.walk():
        names = {name for node in graph.graph.node for name in node.input} | {v.name for v in graph.graph.output}
        for reader in (graph, *graph.around()):  # a body reads what it captures from the graphs around it
            read.setdefault(reader.path, set()).update(names)
    return [
        Violation("no-dangling-pairs", describe(node), "its result is read", "nothing reads it")
        for graph, node in _qdq_nodes(pair)
        if node.output[0] not in read[graph.path]
    ]


def _qdq_nodes(pair: ModelPair) -> Iterator[tuple[QuantizedGraph, NodeProto]]:
    """Every Q and DQ of the quantized model, and the graph that it stands in."""
    return ((graph, node) for graph in pair.main.walk() for node in graph.graph.node if node.op_type in QDQ)


def copies_share_scale(pair: ModelPair) -> list[Violation]:
    """Where both sides of a copy op are quantized as activations, they have one scale and one zero point."""
    index, found = pair.plan.index, []
    scales = {
        use: (name, (float(q.scale.reshape(-1)[0]), _zero_point(q)))
        for node, slot, name, q in pair.edges()
        if q is not None and q.scale is not None and q.scale.size == 1
        for use in [index.use(Edge(node, slot))]
        if index.is_variable(use.tensor)
    }
    for node in range(len(index.nodes)):
        if not is_copy(index, node):
            continue
        for source in copy_sources(index, node):
            for result in index.outputs[node]:
                uses = [Use(index.node_scope[node], tensor) for tensor in (source, result)]
                if ABSENT in (source, result) or any(use not in scales for use in uses):
                    continue
                (name, before), (_, after) = (scales[use] for use in uses)
                if before != after:
                    where = pair.where(node)
                    expected = f'"{name}" and its copy share one scale'
                    got = " and ".join(f"{scale:.6g}" for scale, _ in (before, after))
                    if before[0] == after[0]:
                        expected, got = f"{expected} and one zero point", f"zero points {before[1]} and {after[1]}"
                    found.append(Violation("copies-share-scale", where, expected, got))
    return found


def _zero_point(quantization: Quantization) -> int:
    zero_point = quantization.zero_point
    return int(zero_point.reshape(-1)[0]) if zero_point is not None and zero_point.size else 0
