"""Leaves out Casts that change no value (rule F5).

    t -> Cast(t's own type) -> readers                    readers read t
    t (half) -> Cast(float32) -> Cast(half) -> readers    readers read t: widening is exact, so both cancel out
    t -> Cast -> readers, t -> the same Cast -> others    all read the first one

A narrowing that is widened again rounds, and stays. So does a Cast that yields a graph output.
"""

from __future__ import annotations

from collections import ChainMap, Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from onnx import GraphProto, ModelProto, NodeProto, TensorProto

from onnxq.protos import bodies, is_default_domain, walk_graphs
from onnxq.tensor_types import FLOAT_TYPES, GraphTypes, ValueType

_HALVES = (TensorProto.FLOAT16, TensorProto.BFLOAT16)
_WIDENINGS = frozenset(
    {(half, wide) for half in _HALVES for wide in (TensorProto.FLOAT, TensorProto.DOUBLE)}
    | {(TensorProto.FLOAT, TensorProto.DOUBLE)}
)
"""(From, to) of Casts that are exact."""


def simplify_casts(model: ModelProto, types: GraphTypes) -> None:
    """Leave out Casts of a model, in place, bodies included.

    Args:
        model: Topologically sorted.
        types: Types of its values.
    """
    before = _reads(model.graph)
    _simplify(model.graph, types, _Known())
    _drop_unread(model.graph, before, _reads(model.graph))


@dataclass(frozen=True)
class _Known:
    """What is known at some place of a model; a body knows what the graphs around it know.

    Attributes:
        types: Tensor -> its type.
        instead: Result of a Cast that is left out -> the tensor to read instead.
        widened: Result of an exact Cast -> the tensor that it widens.
        made: (Tensor, element type) -> the result of the first Cast of it to that type.
    """

    types: ChainMap[str, ValueType] = field(default_factory=ChainMap)
    instead: ChainMap[str, str] = field(default_factory=ChainMap)
    widened: ChainMap[str, str] = field(default_factory=ChainMap)
    made: ChainMap[tuple[str, int], str] = field(default_factory=ChainMap)

    def inside(self, types: Mapping[str, ValueType]) -> _Known:
        own = self.types.new_child(dict(types))
        return _Known(own, self.instead.new_child(), self.widened.new_child(), self.made.new_child())

    def elem_type(self, name: str) -> int:
        found = self.types.get(name)
        return found.elem_type if found is not None and found.kind == "tensor" else 0


def _simplify(graph: GraphProto, types: GraphTypes, outer: _Known) -> None:
    known, outputs = outer.inside(types.tensors), {value.name for value in graph.output}
    for position, node in enumerate(graph.node):
        for slot, name in enumerate(node.input):
            if name in known.instead:
                node.input[slot] = known.instead[name]
        for attribute, body in bodies(node):
            _simplify(body, types.bodies[position, attribute], known)
        if _is_cast(node):
            _simplify_cast(node, known, is_output=node.output[0] in outputs)


def _simplify_cast(cast: NodeProto, known: _Known, *, is_output: bool) -> None:
    to, result = _target(cast), cast.output[0]
    origin = known.widened.get(cast.input[0])
    if origin is not None and known.elem_type(origin) == to:
        cast.input[0] = origin
    source = cast.input[0]
    same = source if known.elem_type(source) == to else known.made.get((source, to))
    if same is not None and not is_output:
        known.instead[result] = same
        return
    if to in FLOAT_TYPES:
        known.made.setdefault((source, to), result)
    if (known.elem_type(source), to) in _WIDENINGS:
        known.widened[result] = source


def _reads(graph: GraphProto) -> Counter[str]:
    """How often each name is read, as an output too. Names that sibling bodies share are counted together."""
    reads: Counter[str] = Counter()
    for part in walk_graphs(graph):
        reads.update(name for node in part.node for name in node.input)
        reads.update(value.name for value in part.output)
    return reads


def _drop_unread(graph: GraphProto, before: Mapping[str, int], reads: Counter[str]) -> None:
    """Drop Casts that were read before and aren't any more, last node first, so that whole chains go."""
    kept = []
    for node in reversed(graph.node):
        if _is_cast(node) and before[node.output[0]] and not reads[node.output[0]]:
            reads[node.input[0]] -= 1
            continue
        for _, body in bodies(node):
            _drop_unread(body, before, reads)
        kept.append(node)
    if len(kept) < len(graph.node):
        gone = {name for node in graph.node for name in node.output} - {name for node in kept for name in node.output}
        del graph.node[:]
        graph.node.extend(reversed(kept))
        for part in walk_graphs(graph):
            _drop_declarations(part, gone)


def _drop_declarations(graph: GraphProto, gone: set[str]) -> None:
    kept = [value for value in graph.value_info if value.name not in gone]
    if len(kept) < len(graph.value_info):
        del graph.value_info[:]
        graph.value_info.extend(kept)


def _is_cast(node: NodeProto) -> bool:
    return node.op_type == "Cast" and is_default_domain(node)


def _target(cast: NodeProto) -> int:
    return next((int(a.i) for a in cast.attribute if a.name == "to"), 0)
