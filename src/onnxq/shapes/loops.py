"""Shapes of the values that Loop carries from one iteration to the next.

ONNX's inference passes their types into the body but no shapes, since a body may change them. Here the shapes of the
initial values are assumed, the body is inferred, and each dim that comes out differently becomes unknown, until what
goes in agrees with what comes out. Then the shapes hold for every iteration, by induction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import onnx
from onnx import GraphProto, ModelProto, NodeProto

from onnxq.protos import bodies
from onnxq.shapes.graphs import TRIP_INPUTS, declared_types
from onnxq.tensor_types import Dim, ValueType, value_type

ROUNDS = 8
"""Bound on the rounds; nested loops that still change after it keep types without shapes."""

Shape = tuple[Dim, ...]
Place = tuple[tuple[int, str], ...]
Carried = tuple[Place, int, int]
"""A carried value: the graph that holds the Loop, the position of the Loop there, which of its carried values."""


@dataclass(frozen=True, slots=True)
class _Loop:
    place: Place
    position: int
    node: NodeProto
    body: GraphProto
    known: dict[str, ValueType]

    def carried(self) -> Iterator[tuple[Carried, ValueType, ValueType]]:
        """Each carried tensor with the types of its initial value and of what one iteration makes of it."""
        made = {name: value_type(proto) for name, proto in declared_types(self.body).items()}
        makers = zip(self.node.input[TRIP_INPUTS:], self.body.output[1:], strict=False)
        for index, (start, end) in enumerate(makers):
            initial = self.known.get(start)
            if initial is not None and initial.kind == "tensor" and initial.elem_type:
                yield (self.place, self.position, index), initial, made.get(end.name, ValueType(0))


def settle_loops(
    skeleton: ModelProto, result: ModelProto, symbols: frozenset[str], chain: Callable[[ModelProto], ModelProto]
) -> ModelProto:
    """Repeat an inference with assumed shapes of carried values until they hold.

    Args:
        skeleton: What was inferred; not changed.
        result: What came out of it.
        symbols: Dim names to trust; others are made up by the inference and may change from run to run.
        chain: The inference.

    Returns:
        The result with shapes of carried values; `result` itself where no Loop is.
    """
    assumed: dict[Carried, ValueType] = {}
    for _ in range(ROUNDS):
        carried = [entry for loop in _loops(result.graph, {}, ()) for entry in loop.carried()]
        # What a loop makes may wait for an assumption about a loop inside it: assume all before checking any.
        found = _first_assumptions(carried, assumed, symbols) or _weaker_assumptions(carried, assumed, symbols)
        if not found:
            return result
        assumed.update(found)
        result = chain(_with_assumed(skeleton, assumed))
    return chain(skeleton)


def _first_assumptions(
    carried: list[tuple[Carried, ValueType, ValueType]], assumed: dict[Carried, ValueType], symbols: frozenset[str]
) -> dict[Carried, ValueType]:
    new = {key: ValueType(kind.elem_type, _trusted(kind, symbols)) for key, kind, _ in carried if key not in assumed}
    return {key: kind for key, kind in new.items() if kind.shape is not None}


def _weaker_assumptions(
    carried: list[tuple[Carried, ValueType, ValueType]], assumed: dict[Carried, ValueType], symbols: frozenset[str]
) -> dict[Carried, ValueType]:
    weaker = {}
    for key, initial, made in carried:
        if key in assumed:
            before = assumed[key]
            shape = _meet(_meet(before.shape, _trusted(initial, symbols)), _trusted(made, symbols))
            if shape != before.shape:
                weaker[key] = ValueType(before.elem_type, shape)
    return weaker


def _loops(graph: GraphProto, outer: dict[str, ValueType], place: Place) -> Iterator[_Loop]:
    if not any(True for node in graph.node for _ in bodies(node)):
        return
    known = {**outer, **{name: value_type(proto) for name, proto in declared_types(graph).items()}}
    for position, node in enumerate(graph.node):
        for attribute, body in bodies(node):
            if node.op_type == "Loop":
                yield _Loop(place, position, node, body, known)
            yield from _loops(body, known, (*place, (position, attribute)))


def _trusted(kind: ValueType, symbols: frozenset[str]) -> Shape | None:
    if kind.shape is None:
        return None
    return tuple(d if (d in symbols if isinstance(d, str) else d is not None and d >= 0) else None for d in kind.shape)


def _meet(a: Shape | None, b: Shape | None) -> Shape | None:
    if a is None or b is None or len(a) != len(b):
        return None
    return tuple(x if x == y else None for x, y in zip(a, b, strict=True))


def _with_assumed(skeleton: ModelProto, assumed: dict[Carried, ValueType]) -> ModelProto:
    copy = ModelProto()
    copy.CopyFrom(skeleton)
    for (place, position, index), kind in assumed.items():
        if kind.shape is None:
            continue
        proto = onnx.helper.make_tensor_type_proto(kind.elem_type, kind.shape)
        graph = _graph_at(copy.graph, place)
        node = graph.node[position]
        formal = next(body for _, body in bodies(node)).input[TRIP_INPUTS + index]
        formal.type.CopyFrom(proto)
        if index < len(node.output) and node.output[index]:
            graph.value_info.add(name=node.output[index]).type.CopyFrom(proto)
    return copy


def _graph_at(graph: GraphProto, place: Place) -> GraphProto:
    for position, attribute in place:
        graph = dict(bodies(graph.node[position]))[attribute]
    return graph
