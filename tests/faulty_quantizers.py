"""Quantizers with one fault each, which the relation of that fault must catch.

They write a Q/DQ pair on each edge that they choose, and nothing else; it is the choice that is at fault.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, helper, numpy_helper

from onnxq.protos import opset_version
from onnxq.quantizers.callables import CallableQuantizer

Edge = tuple[int, int]
"""Position of a node in the main graph, and of one of its inputs."""

Choose = Callable[[ModelProto], Iterable[Edge]]
LINEAR = ("Conv", "ConvTranspose", "MatMul", "Gemm")


def with_pairs(model: ModelProto, edges: Iterable[Edge], *, scale: float = 0.05, prefix: str = "pair") -> ModelProto:
    """The model with a pair of its own on each edge of the main graph."""
    copy = ModelProto()
    copy.CopyFrom(model)
    chosen = set(edges)
    copy.graph.initializer.append(numpy_helper.from_array(np.array(scale, np.float32), f"{prefix}_scale"))
    copy.graph.initializer.append(numpy_helper.from_array(np.array(0, np.int8), f"{prefix}_zero_point"))
    nodes = []
    for position, node in enumerate(copy.graph.node):
        for slot in sorted(slot for at, slot in chosen if at == position):
            name, parameters = f"{prefix}_{position}_{slot}", [f"{prefix}_scale", f"{prefix}_zero_point"]
            nodes.append(helper.make_node("QuantizeLinear", [node.input[slot], *parameters], [f"{name}_q"]))
            nodes.append(helper.make_node("DequantizeLinear", [f"{name}_q", *parameters], [f"{name}_dq"]))
            node.input[slot] = f"{name}_dq"
        nodes.append(onnx.NodeProto.FromString(node.SerializeToString()))
    del copy.graph.node[:]
    copy.graph.node.extend(nodes)
    return copy


def choosing(choose: Choose) -> Callable[[ModelProto, Any, Any], ModelProto]:
    return lambda model, feeds, options: with_pairs(model, [] if options.get("nodes_to_exclude") else choose(model))


def nodes_of(model: ModelProto, *op_types: str) -> Iterator[tuple[int, NodeProto]]:
    return ((at, node) for at, node in enumerate(model.graph.node) if node.op_type in op_types)


def input_0_of_adds(model: ModelProto) -> Iterator[Edge]:
    yield from ((at, 0) for at, node in nodes_of(model, "Add"))


def by_tensor_name(model: ModelProto) -> Iterator[Edge]:
    yield from ((at, 0) for at, node in nodes_of(model, "Conv") if "conv" in node.output[0])


def named_nodes(model: ModelProto) -> Iterator[Edge]:
    yield from ((at, 0) for at, node in nodes_of(model, "Conv") if node.name)


def last_of_each_name(model: ModelProto) -> Iterator[Edge]:
    last = {node.name: at for at, node in enumerate(model.graph.node)}
    yield from ((at, 0) for at in last.values() if model.graph.node[at].op_type == "Conv")


def first_conv_in_order(model: ModelProto) -> Iterator[Edge]:
    yield from [(at, 0) for at, node in nodes_of(model, "Conv")][:1]


def what_no_identity_yields(model: ModelProto) -> Iterator[Edge]:
    copies = {node.output[0] for _, node in nodes_of(model, "Identity")}
    yield from ((at, 0) for at, node in nodes_of(model, "Conv") if node.input[0] not in copies)


def stored_weights(model: ModelProto) -> Iterator[Edge]:
    stored = {tensor.name for tensor in model.graph.initializer}
    yield from ((at, 1) for at, node in nodes_of(model, *LINEAR) if node.input[1] in stored)


def weights_without_input(model: ModelProto) -> Iterator[Edge]:
    listed = {value.name for value in model.graph.input}
    yield from ((at, slot) for at, slot in stored_weights(model) if model.graph.node[at].input[slot] not in listed)


def read_once(model: ModelProto) -> Iterator[Edge]:
    readers = Counter(name for node in model.graph.node for name in node.input)
    yield from ((at, 0) for at, node in nodes_of(model, *LINEAR) if readers[node.input[0]] == 1)


def below_opset_21(model: ModelProto) -> Iterator[Edge]:
    if opset_version(model) < 21:
        yield from ((at, 0) for at, node in nodes_of(model, "Conv"))


def undeclared(model: ModelProto) -> Iterator[Edge]:
    declared = {value.name for value in model.graph.value_info}
    yield from ((at, 0) for at, node in nodes_of(model, *LINEAR) if node.input[0] not in declared)


def declared_rank_4(model: ModelProto) -> Iterator[Edge]:
    ranks = {value.name: len(value.type.tensor_type.shape.dim) for value in model.graph.value_info}
    yield from ((at, 0) for at, node in nodes_of(model, "Conv") if ranks.get(node.input[0], 4) == 4)


def smallest_graph(model: ModelProto) -> Iterator[Edge]:
    if len(model.graph.node) < 8:
        yield from ((at, 0) for at, node in nodes_of(model, "Conv"))


def first_in_a_set(model: ModelProto) -> Iterator[Edge]:
    names = {node.output[0]: at for at, node in nodes_of(model, "Conv")}
    yield from ((names[name], 0) for name in list(set(names))[:1])


def weights_off_the_grid(model: ModelProto, feeds: Any, options: Any) -> ModelProto:
    """It stores rounded weights, and takes no pair for those that are rounded already."""
    raw = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    done = {name for name, value in raw.items() if np.array_equal(value, _rounded(value))}
    read = {(at, slot): model.graph.node[at].input[slot] for at, slot in stored_weights(model)}
    edges = {edge: name for edge, name in read.items() if name not in done}
    result = with_pairs(model, edges)
    for tensor in result.graph.initializer:
        if tensor.name in edges.values():
            tensor.CopyFrom(numpy_helper.from_array(_rounded(raw[tensor.name]), tensor.name))
    return result


def _rounded(value: np.ndarray) -> np.ndarray:
    return (np.rint(value / np.float32(0.05)) * np.float32(0.05)).astype(value.dtype)


def deaf(model: ModelProto, feeds: Any, options: Any) -> ModelProto:
    """It quantizes what is excluded."""
    return with_pairs(model, input_0_of_adds(model))


def both_inputs_of_adds(model: ModelProto) -> Iterator[Edge]:
    yield from ((at, slot) for at, node in nodes_of(model, "Add") for slot in (0, 1))


def too_coarse(model: ModelProto, feeds: Any, options: Any) -> ModelProto:
    return with_pairs(model, ((at, 0) for at, node in nodes_of(model, "Conv")), scale=100.0)


def crashing(model: ModelProto, feeds: Any, options: Any) -> ModelProto:
    raise KeyError(model.graph.node[0].name)


def crashing_on_unnamed_nodes(model: ModelProto, feeds: Any, options: Any) -> ModelProto:
    if not all(node.name for node in model.graph.node):
        raise KeyError("")
    return with_pairs(model, ())


def not_running(model: ModelProto, feeds: Any, options: Any) -> ModelProto:
    result = with_pairs(model, ((at, 0) for at, node in nodes_of(model, "Conv")))
    for _, node in nodes_of(result, "DequantizeLinear"):
        node.domain = "nobody.knows"
    return result


def coarse_then_fine(model: ModelProto, feeds: Any, options: Any) -> ModelProto:
    """Two pairs in a row with far different scales, of which the runtime makes one with the finer."""
    coarse = with_pairs(model, ((at, 0) for at, _ in nodes_of(model, "Conv")), scale=100.0)
    return with_pairs(coarse, ((at, 0) for at, _ in nodes_of(coarse, "Conv")), scale=0.05, prefix="second")


def counting() -> Callable[[ModelProto, Any, Any], ModelProto]:
    """It chooses other edges every second time."""
    calls = []

    def quantize(model: ModelProto, feeds: Any, options: Any) -> ModelProto:
        calls.append(model)
        return with_pairs(model, input_0_of_adds(model) if len(calls) % 2 else ())

    return quantize


def writing_in_place(model: ModelProto, feeds: Any, options: Any) -> ModelProto:
    result = with_pairs(model, input_0_of_adds(model))
    model.graph.node[0].name = "changed"
    return result


def writing_in_samples(model: ModelProto, feeds: Any, options: Any) -> ModelProto:
    for feed in feeds:
        for value in feed.values():
            value *= 2
    return with_pairs(model, ())


def quantizer(function: Callable[[ModelProto, Any, Any], ModelProto], policy: Any = "tensorrt") -> CallableQuantizer:
    return CallableQuantizer("faulty", "0", policy, function)


by_hash = choosing(first_in_a_set)
"""With a spec: python:faulty_quantizers:by_hash."""

both = choosing(both_inputs_of_adds)
"""With a spec: python:faulty_quantizers:both."""
