"""Unique node names, so that reports and patterns can speak of single nodes."""

from __future__ import annotations

from onnx import GraphProto

from onnxq.protos import describe
from onnxq.shapes.changes import Change
from onnxq.shapes.graphs import walk


def name_nodes(graph: GraphProto) -> list[Change]:
    """Give unnamed and equally named nodes names of their own, in the graph and all bodies.

    The first bearer of a name keeps it. New names are `<name or operator>_<number>`; they depend on the stored order
    of the nodes only, and never take a name that the model already uses.

    Args:
        graph: Changed in place.

    Returns:
        One change a renamed node.
    """
    nodes = [(node, place) for part, place in walk(graph) for node in part.node]
    taken = {node.name for node, _ in nodes if node.name}
    kept: set[str] = set()
    numbers: dict[str, int] = {}
    changes: list[Change] = []
    for node, place in nodes:
        if node.name and node.name not in kept:
            kept.add(node.name)
            continue
        where = describe(node) + place
        stem = node.name or node.op_type
        node.name = _fresh(stem, taken, numbers)
        changes.append(Change("S8", where, f'named "{node.name}"'))
    return changes


def _fresh(stem: str, taken: set[str], numbers: dict[str, int]) -> str:
    while True:
        number = numbers.get(stem, 0)
        numbers[stem] = number + 1
        name = f"{stem}_{number}"
        if name not in taken:
            taken.add(name)
            return name
