"""Bodies whose output is a tensor of an outer graph: runtimes refuse that, an Identity makes it right (rule S7)."""

from __future__ import annotations

from collections.abc import Set

from onnx import GraphProto, ModelProto, helper

from onnxq.protos import NameSource, bodies
from onnxq.shapes.changes import Change
from onnxq.shapes.graphs import body_place, defined_names


def own_outputs(model: ModelProto) -> list[Change]:
    """Put an Identity before each output of a body that is a tensor of a graph around it, in place.

    Args:
        model: A model whose names are sound otherwise.

    Returns:
        One change an Identity.
    """
    changes: list[Change] = []
    # Few models need it, and collecting all names costs more than looking.
    if any(True for node in model.graph.node for _ in bodies(node)):
        _visit(model.graph, frozenset(), "", NameSource(model), changes)
    return changes


def _visit(graph: GraphProto, outer: Set[str], place: str, names: NameSource, changes: list[Change]) -> None:
    own = defined_names(graph).keys()
    for value in graph.output:
        if value.name in outer and value.name not in own:
            name = names.fresh(f"{value.name}_inside")
            graph.node.append(helper.make_node("Identity", [value.name], [name], name=names.fresh(f"{name}_identity")))
            changes.append(Change("S7", f'output "{value.name}"{place}', f'an outer tensor, now its copy "{name}"'))
            value.name = name
    visible = outer | own
    for node in graph.node:
        for attribute, body in bodies(node):
            _visit(body, visible, body_place(node, attribute, place), names, changes)
