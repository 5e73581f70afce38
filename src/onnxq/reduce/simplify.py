"""Passes that leave the graph as it is, and make simpler what it holds: weights, attributes, declarations, names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, numpy_helper

from onnxq.protos import walk_graphs, walk_nodes
from onnxq.reduce.problem import Array, ReductionProblem, simple_values, weight_complexity
from onnxq.reduce.search import Edit, Search
from onnxq.reduce.subgraph import declare
from onnxq.renaming import rename_all
from onnxq.shapes.schemas import Operators
from onnxq.tensor_data import tensor_values

_KERNEL_OPS = ("Conv", "ConvTranspose")
_OF_KERNEL = ("kernel_shape", "pads", "auto_pad", "dilations", "output_padding", "output_shape")


def weight_edits(problem: ReductionProblem) -> list[Edit]:
    """Make weights all ones, or seeded eighths; all of them at once, then one by one."""
    complex_ones = [n for n, t in enumerate(problem.model.graph.initializer) if weight_complexity(t)]
    return [
        partial(_with_weights, problem, positions, values)
        for positions in (complex_ones, *([position] for position in complex_ones))
        for values in (_ones, _eighths)
        if positions
    ]


def kernel_edits(problem: ReductionProblem) -> list[Edit]:
    """Make the kernels of convolutions 1x1: their centre is kept, and padding goes."""
    shapes = {t.name: t.dims for t in problem.model.graph.initializer}
    kernels = dict.fromkeys(n.input[1] for n in problem.model.graph.node if n.op_type in _KERNEL_OPS)
    return [
        partial(_with_point_kernel, problem, name)
        for name in kernels
        if any(length > 1 for length in shapes.get(name, ())[2:])
    ]


def attribute_edits(problem: ReductionProblem) -> list[Edit]:
    """Leave out attributes, so that they have their defaults; those that an operator needs stay."""
    operators = Operators(problem.model)
    edits: list[Edit] = []
    for position, node in enumerate(problem.model.graph.node):
        schema = operators.schema(node)
        known = {} if schema is None else dict(schema.attributes)
        names = [a.name for a in node.attribute if a.name in known and not known[a.name].required]
        edits += [
            partial(_without_attributes, problem, position, left_out) for left_out in (names, *([n] for n in names))
        ]
    return edits


def declaration_edits(problem: ReductionProblem) -> list[Edit]:
    """Drop declarations, texts, metadata and operator sets that nothing uses; make symbolic dims numbers."""
    steps: Sequence[Callable[[ReductionProblem, ModelProto], None]] = (
        _drop_value_info,
        _drop_texts,
        _drop_opsets,
        _number_dims,
    )
    return [partial(_changed, problem, chosen) for chosen in (steps, *([step] for step in steps))]


def rename(search: Search) -> None:
    """Give everything a neutral name, at the very end: nothing gets smaller by it."""
    model = ModelProto()
    model.CopyFrom(search.best.model)
    names = rename_all(model)
    feeds = tuple({names.get(name, name): value for name, value in feed.items()} for feed in search.best.feeds)
    search.adopt(ReductionProblem(model, feeds), is_equal_enough=True)


def _ones(values: Array) -> Array:
    return np.ones(values.shape)


def _eighths(values: Array) -> Array:
    return simple_values(values.shape, positive=bool((values.astype(np.float64) > 0).all()))


def _with_weights(
    problem: ReductionProblem, positions: Iterable[int], make: Callable[[Array], Array]
) -> ReductionProblem:
    model = _copy(problem)
    for position in positions:
        tensor = model.graph.initializer[position]
        old = tensor_values(tensor)
        _store(tensor, make(old).astype(old.dtype))
    return ReductionProblem(model, problem.feeds)


def _with_point_kernel(problem: ReductionProblem, name: str) -> ReductionProblem:
    """Of all convolutions that read the kernel."""
    model = _copy(problem)
    for tensor in model.graph.initializer:
        if tensor.name == name:
            values = tensor_values(tensor)
            centre = tuple(slice(length // 2, length // 2 + 1) for length in values.shape[2:])
            _store(tensor, values[(slice(None), slice(None), *centre)])
    for node in model.graph.node:
        if node.op_type in _KERNEL_OPS and node.input[1] == name:
            _drop_attributes(node, _OF_KERNEL)
    return _redeclared(problem, model)


def _without_attributes(problem: ReductionProblem, position: int, names: Sequence[str]) -> ReductionProblem | None:
    if not names:
        return None
    model = _copy(problem)
    _drop_attributes(model.graph.node[position], names)
    return _redeclared(problem, model)


def _drop_attributes(node: NodeProto, names: Iterable[str]) -> None:
    kept = [attribute for attribute in node.attribute if attribute.name not in names]
    del node.attribute[:]
    node.attribute.extend(kept)


def _redeclared(problem: ReductionProblem, model: ModelProto) -> ReductionProblem:
    """A problem whose shapes may have changed: outputs that have another shape now are declared anew."""
    types = ReductionProblem(model, problem.feeds).types
    for output in model.graph.output:
        if output.name in types and types[output.name] != problem.types.get(output.name):
            output.CopyFrom(declare(output.name, types[output.name]))
            _drop_value_info(problem, model)
    return ReductionProblem(model, problem.feeds)


def _changed(
    problem: ReductionProblem, steps: Iterable[Callable[[ReductionProblem, ModelProto], None]]
) -> ReductionProblem:
    model = _copy(problem)
    for step in steps:
        step(problem, model)
    return ReductionProblem(model, problem.feeds)


def _drop_value_info(_: ReductionProblem, model: ModelProto) -> None:
    for graph in walk_graphs(model.graph):
        del graph.value_info[:]


def _drop_texts(_: ReductionProblem, model: ModelProto) -> None:
    for field in ("metadata_props", "doc_string", "producer_name", "producer_version", "domain", "model_version"):
        model.ClearField(field)
    for graph in walk_graphs(model.graph):
        for named in (graph, *graph.node, *graph.initializer, *graph.input, *graph.output):
            for field in ("doc_string", "metadata_props"):
                named.ClearField(field)


def _drop_opsets(_: ReductionProblem, model: ModelProto) -> None:
    nodes = [*walk_nodes(model.graph.node), *(n for f in model.functions for n in walk_nodes(f.node))]
    used = {node.domain.removeprefix("ai.onnx") if node.domain == "ai.onnx" else node.domain for node in nodes}
    kept = [opset for opset in model.opset_import if opset.domain in used or opset.domain in ("", "ai.onnx")]
    del model.opset_import[:]
    model.opset_import.extend(kept)


def _number_dims(problem: ReductionProblem, model: ModelProto) -> None:
    shapes = {name: value.shape for name, value in problem.feeds[0].items()}
    shapes |= {name: tuple(map(int, shape)) for name, shape in _output_shapes(problem).items()}
    for value in (*model.graph.input, *model.graph.output):
        if len(shapes.get(value.name, ())) == len(value.type.tensor_type.shape.dim):
            for dim, length in zip(value.type.tensor_type.shape.dim, shapes.get(value.name, ()), strict=True):
                if not dim.HasField("dim_value"):
                    dim.dim_value = length


def _output_shapes(problem: ReductionProblem) -> dict[str, tuple[int, ...]]:
    names = [value.name for value in problem.model.graph.output]
    return {n: v.shape for n, v in problem.observe(names, samples=1)[0].items() if isinstance(v, np.ndarray)}


def _store(tensor: TensorProto, values: Array) -> None:
    tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(values), tensor.name))


def _copy(problem: ReductionProblem) -> ModelProto:
    model = ModelProto()
    model.CopyFrom(problem.model)
    return model
