"""Which tensors around a body and in it hold the same values.

Loop(trips, go, a) -> b            given     a -> s       what the body gets in its first round
  body: s -> ... -> t              carried   t -> s       what it gets in the next one
                                   yielded   t -> b       what the node yields
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from onnxq.graph import ABSENT, GraphIndex


@dataclass(frozen=True)
class BodyLinks:
    """Links across the boundaries of all bodies, by tensor numbers.

    Attributes:
        given: Node that holds a body -> pairs of a tensor that it reads and the body's input that gets it.
        carried: Output of a body -> inputs of the same body that get it in the next round.
        yielded: Output of a body -> what the node that holds it yields of it.
    """

    given: Mapping[int, Sequence[tuple[int, int]]]
    carried: Mapping[int, Sequence[int]]
    yielded: Mapping[int, Sequence[int]]


def body_links(index: GraphIndex) -> BodyLinks:
    """Find the links of If, Loop and Scan; nothing is known of other operators' bodies but that they yield in order."""
    given: dict[int, list[tuple[int, int]]] = {}
    carried: dict[int, list[int]] = {}
    yielded: dict[int, list[int]] = {}
    numbers = _numbers(index)
    for number, scope in enumerate(index.scopes):
        if scope.owner == ABSENT:
            continue
        op_type, inputs = index.nodes[scope.owner].op_type, index.inputs[scope.owner]
        own = numbers[number]
        formal = [own[value.name] for value in scope.graph.input]
        results = [own.get(value.name, ABSENT) for value in scope.graph.output]
        if op_type == "Loop":  # the trip count and the condition are its own affair
            inputs, formal, results = inputs[2:], formal[2:], results[1:]
        elif op_type == "Scan":
            inputs = inputs[len(inputs) - len(formal) :]  # that of opset 8 reads sequence lengths first
        pairs = zip(inputs, formal, strict=False)
        given.setdefault(scope.owner, []).extend(pair for pair in pairs if ABSENT not in pair)
        states = len(inputs) if op_type == "Loop" else _scan_states(index, scope.owner) if op_type == "Scan" else 0
        for result, state in zip(results[:states], formal, strict=False):
            carried.setdefault(result, []).append(state)
        for result, outer in zip(results, index.outputs[scope.owner], strict=False):
            if outer != ABSENT:
                yielded.setdefault(result, []).append(outer)
    for links in (carried, yielded):
        links.pop(ABSENT, None)  # outputs that a body captures
    return BodyLinks(given, carried, yielded)


def _scan_states(index: GraphIndex, node: int) -> int:
    scanned = next((int(a.i) for a in index.nodes[node].attribute if a.name == "num_scan_inputs"), 0)
    return len(index.inputs[node]) - scanned


def _numbers(index: GraphIndex) -> list[dict[str, int]]:
    """By scope: the numbers of its own tensors."""
    found: list[dict[str, int]] = [{} for _ in index.scopes]
    for tensor, scope in enumerate(index.tensor_scope):
        found[scope][index.tensor_names[tensor]] = tensor
    return found
