"""From a pair of models to what a report shows of it: the graph with its Q/DQ, and the decision of each edge."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from onnxq.graph import ABSENT, MAIN_GRAPH, Edge, GraphIndex
from onnxq.invariants import ModelPair
from onnxq.invariants.quantized_graph import Quantization
from onnxq.placement import Decision
from onnxq.report.data import ConstantPicture, EdgeDecision, EdgePicture, GraphPicture, NodePicture

MOST_NODES = 400
"""Boxes of the biggest graph that is drawn: beyond, nobody finds anything in a picture."""

MOST_LINES = 1200
"""Lines of the biggest graph that is drawn."""

MOST_DECISIONS = 400
"""Edges of the biggest table of decisions, for the same reason."""

NAME_LIMIT = 200
"""Characters that are kept of a name or a text of the model."""


def picture_of(pair: ModelPair) -> GraphPicture:
    """Picture the main graph of the float model.

    Constants, and what is computed of constants alone, aren't drawn; the nodes that read them note them.

    Args:
        pair: The float model and what a quantizer made of it.

    Returns:
        The picture; without nodes if the graph is too big to be drawn.

    Raises:
        InvalidModelError: The float model is no usable model.
    """
    index = pair.plan.index
    drawn = [n for n, scope in enumerate(index.node_scope) if scope == MAIN_GRAPH and _is_drawn(index, n)]
    outputs = [t for t, is_output in enumerate(index.is_output) if is_output and index.tensor_scope[t] == MAIN_GRAPH]
    inputs = index.graph_inputs
    boxes = len(inputs) + len(drawn) + len(outputs)
    lines = sum(len(index.inputs[n]) + len(index.captures[n]) for n in drawn)
    for what, count, limit in (("nodes, inputs and outputs", boxes, MOST_NODES), ("lines", lines, MOST_LINES)):
        if count > limit:
            return GraphPicture(not_drawn=f"{count:,} {what} are too many to draw (at most {limit:,})")
    return _Pen(pair, inputs, drawn, outputs).picture()


def decisions_of(pair: ModelPair) -> tuple[EdgeDecision, ...]:
    """What onnxq's rules say about each float edge, and what the quantizer did; the first `MOST_DECISIONS` of them.

    Raises:
        InvalidModelError: The float model is no usable model.
    """
    placement = pair.plan.placement
    found = {(node, slot): _format(q is not None, q.axis if q else None) for node, slot, _, q in pair.edges()}
    rows = []
    for edge, decision in list(placement.items())[:MOST_DECISIONS]:
        label = placement.labels[edge]
        place = f"{label.graph}/" if label.graph else ""
        name = f'{label.op_type} "{place}{label.node}" input {edge.input}: {label.tensor}'
        reason = decision.reason
        why = f"{reason.rule.value}; {reason.detail}" if reason.detail else reason.rule.value
        did = found.get((edge.node, edge.input), "gone")
        rows.append(EdgeDecision(_cut(name), _decided(decision), reason.rule.name, _cut(why, 4 * NAME_LIMIT), did))
    return tuple(rows)


class _Pen:
    """Collects the boxes and lines of one graph."""

    def __init__(self, pair: ModelPair, inputs: Sequence[int], drawn: Sequence[int], outputs: Sequence[int]) -> None:
        self._pair, self._index = pair, pair.plan.index
        self._inputs, self._drawn, self._outputs = inputs, drawn, outputs
        self._quantization = {(node, slot): found for node, slot, _, found in pair.edges()}
        self._boxes = {tensor: number for number, tensor in enumerate(inputs)}
        for number, node in enumerate(drawn, start=len(inputs)):
            self._boxes.update((tensor, number) for tensor in self._index.outputs[node] if tensor != ABSENT)
        self._roles = _roles(pair)
        self._residuals = {edge.node for edge in self._roles}

    def picture(self) -> GraphPicture:
        names = self._index.tensor_names
        first, last = len(self._inputs), len(self._inputs) + len(self._drawn)
        return GraphPicture(
            (
                *(NodePicture("input", _cut(names[tensor])) for tensor in self._inputs),
                *map(self._node, self._drawn),
                *(NodePicture("output", _cut(names[tensor])) for tensor in self._outputs),
            ),
            (
                *(edge for box, node in enumerate(self._drawn, start=first) for edge in self._reads(node, box)),
                *(edge for box, tensor in enumerate(self._outputs, start=last) for edge in self._leaves(tensor, box)),
            ),
        )

    def _node(self, node: int) -> NodePicture:
        proto = self._index.nodes[node]
        slots = [slot for slot, tensor in enumerate(self._index.inputs[node]) if self._index.is_constant(tensor)]
        return NodePicture(
            "node",
            _cut(proto.op_type),
            _cut(proto.name),
            tuple(self._constant(node, slot) for slot in slots),
            node in self._residuals,
            self._pair.counterpart(node) is None,
        )

    def _constant(self, node: int, slot: int) -> ConstantPicture:
        tensor = self._index.inputs[node][slot]
        kind = self._index.tensor_types[tensor]
        shape = "" if kind.shape is None else f"[{', '.join('?' if d is None else str(d) for d in kind.shape)}]"
        found = self._quantization.get((node, slot))
        how = _format(found is not None, found.axis if found else None) if kind.is_float else ""
        return ConstantPicture(_cut(self._index.tensor_names[tensor]), _cut(shape), how)

    def _reads(self, node: int, box: int) -> Iterable[EdgePicture]:
        """Lines into a node: one for each variable input, and one for each tensor that only its bodies read."""
        read = self._index.inputs[node]
        slots = [(t, self._quantization.get((node, slot)), Edge(node, slot)) for slot, t in enumerate(read)]
        slots += [(t, None, Edge(node, ABSENT)) for t in self._index.captures[node] if t not in read]
        for tensor, found, edge in slots:
            if tensor in self._boxes:
                yield self._line(tensor, box, found, edge)

    def _leaves(self, tensor: int, box: int) -> Iterable[EdgePicture]:
        """The line into an output, which should be float."""
        if tensor in self._boxes:
            yield self._line(tensor, box, self._pair.main.quantization(self._index.tensor_names[tensor]), None)

    def _line(self, tensor: int, box: int, found: Quantization | None, edge: Edge | None) -> EdgePicture:
        return EdgePicture(
            self._boxes[tensor],
            box,
            _cut(self._index.tensor_names[tensor]),
            found is not None,
            found.axis if found else None,
            self._roles.get(edge, "") if edge else "",
            self._index.tensor_types[tensor].is_float,
        )


def _roles(pair: ModelPair) -> dict[Edge, Literal["", "skip", "trunk"]]:
    roles: dict[Edge, Literal["", "skip", "trunk"]] = {}
    for residual in pair.plan.placement.residuals:
        if residual.skip is not None and residual.trunk is not None:
            roles[Edge(residual.node, residual.skip)] = "skip"
            roles[Edge(residual.node, residual.trunk)] = "trunk"
    return roles


def _is_drawn(index: GraphIndex, node: int) -> bool:
    """Whether the node yields anything that depends on the inputs; a random number does too."""
    return any(index.is_variable(tensor) for tensor in index.outputs[node])


def _decided(decision: Decision) -> str:
    return _format(decision.quantize, decision.axis)


def _format(quantized: bool, axis: int | None) -> str:
    if not quantized:
        return "float"
    return "int8" if axis is None else f"int8 per axis {axis}"


def _cut(text: str, limit: int = NAME_LIMIT) -> str:
    return text if len(text) <= limit else f"{text[:limit]}..."
