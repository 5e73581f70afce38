"""What must hold of every lowered model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
import onnx
import onnxruntime
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper

from onnxq.protos import bodies, walk_graphs
from onnxq.shapes import infer_types
from onnxq.tensor_types import GraphTypes, ValueType, value_type

HALVES = {TensorProto.FLOAT16, TensorProto.BFLOAT16}


def feeds(model: ModelProto, seed: int = 0, symbol: int = 2) -> dict[str, np.ndarray]:
    """Random inputs; each symbol is 2. Of bool inputs the first row is False throughout, as of a fully masked row."""
    rng = np.random.default_rng(seed)
    stored = {tensor.name for tensor in model.graph.initializer}
    feed = {}
    for value in model.graph.input:
        kind = value_type(value.type)
        if value.name in stored or kind.shape is None:
            continue
        dims = [d if isinstance(d, int) else symbol for d in kind.shape]
        dtype = helper.tensor_dtype_to_np_dtype(kind.elem_type)
        if kind.elem_type == TensorProto.BOOL:
            feed[value.name] = np.asarray(rng.random(dims) < 0.5)
            if dims:
                feed[value.name][0] = False
        elif np.issubdtype(dtype, np.integer):
            feed[value.name] = np.asarray(rng.integers(0, 9, dims), dtype)
        else:
            feed[value.name] = np.asarray(rng.standard_normal(dims), dtype)
    return feed


def run(model: ModelProto, feed: dict[str, np.ndarray], *, optimize: bool = False) -> dict[str, np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    levels = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimize else levels.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    given = {i.name: feed[i.name] for i in session.get_inputs() if i.name in feed}
    half = {i.name for i in session.get_inputs() if i.type == "tensor(float16)"}
    given = {name: array.astype(np.float16) if name in half else array for name, array in given.items()}
    return dict(zip([o.name for o in session.get_outputs()], session.run(None, given), strict=True))


def check_valid(model: ModelProto) -> None:
    """The checker in full, and strict inference with types checked."""
    onnx.checker.check_model(model, full_check=True)
    onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)


def check_casts(model: ModelProto) -> None:
    """No Cast is redundant: none of equal types, no widening that is narrowed again, one for each tensor and type."""
    _check_casts(model.graph, infer_types(model)[0], {})


def _check_casts(graph: GraphProto, types: GraphTypes, known: dict[str, ValueType]) -> None:
    known = {**known, **types.tensors}
    producers = {name: node for node in graph.node for name in node.output if name}
    outputs = {value.name for value in graph.output}
    casts: Counter[tuple[str, int]] = Counter()
    for position, node in enumerate(graph.node):
        for attribute, body in bodies(node):
            _check_casts(body, types.bodies[position, attribute], known)
        if node.op_type != "Cast":
            continue
        source, to = known[node.input[0]].elem_type, node.attribute[0].i
        casts[node.input[0], to] += 0 if node.output[0] in outputs else 1
        assert source != to or node.output[0] in outputs, f"{node.name} casts {node.input[0]} to the type that it has"
        before = producers.get(node.input[0])
        if before is not None and before.op_type == "Cast" and to in HALVES and source == TensorProto.FLOAT:
            original = known[before.input[0]].elem_type
            assert original != to, f"{before.name} widens what {node.name} narrows again"
    repeated = [key for key, count in casts.items() if count > 1]
    assert not repeated, f"cast more than once: {repeated}"


def check_interface(before: ModelProto, after: ModelProto) -> None:
    """Inputs and outputs are byte for byte what they were."""
    for ours, theirs in ((before.graph.input, after.graph.input), (before.graph.output, after.graph.output)):
        assert [v.SerializeToString(deterministic=True) for v in ours] == [
            v.SerializeToString(deterministic=True) for v in theirs
        ]


def is_typed_as_declared(model: ModelProto) -> bool:
    """Whether each value_info says the type that the operators imply."""
    return all(_declarations_hold(model.graph, infer_types(model)[0], {}))


def _declarations_hold(graph: GraphProto, types: GraphTypes, outer: dict[str, ValueType]) -> Iterator[bool]:
    known = {**outer, **types.tensors}
    for value in (*graph.value_info, *graph.output):
        declared = value_type(value.type)
        yield declared.kind != "tensor" or not declared.elem_type or declared.elem_type == known[value.name].elem_type
    for position, node in enumerate(graph.node):
        for attribute, body in bodies(node):
            yield from _declarations_hold(body, types.bodies[position, attribute], known)


def element_types(model: ModelProto) -> dict[str, int]:
    """Element type of every value, bodies included."""
    found: dict[str, int] = {}

    def collect(types: GraphTypes) -> None:
        found.update((name, kind.elem_type) for name, kind in types.tensors.items())
        for body in types.bodies.values():
            collect(body)

    collect(infer_types(model)[0])
    return found


def node_making(model: ModelProto, output: str) -> NodeProto:
    return next(node for graph in walk_graphs(model.graph) for node in graph.node if output in node.output)


def computing_type(model: ModelProto, op_type: str) -> list[str]:
    """Type of the first input of each node of an op type, in order: "float", "float16", ..."""
    types = element_types(model)
    nodes = (node for graph in walk_graphs(model.graph) for node in graph.node if node.op_type == op_type)
    return [TensorProto.DataType.Name(types[node.input[0]]).lower() for node in nodes]
