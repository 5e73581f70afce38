"""The explanation of a placement for people: node by node, below each its edges, below an Add what was found out.

add (Add), node 8
input 0  bn2   float  R5  residual Add: one input is fused with its convolution, the other is the skip
input 1  skip  int8   R5  residual Add: one input is fused with its convolution, the other is the skip
input 0 has backbone "conv2", which can run last; input 1 has ...
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import groupby

from onnxq.cli.display import aligned, count
from onnxq.graph import ROOT, Edge
from onnxq.placement import Decision, Placement, ResidualAdd
from onnxq.placement.placement import format_decision
from onnxq.placement.rules import KERNEL_RULES
from onnxq.printable import one_line


def explanation_text(placement: Placement, *, of: Placement) -> str:
    """The decisions, then how many there are.

    Args:
        placement: What to show.
        of: The whole placement, for the totals.
    """
    adds = {residual.node: residual for residual in placement.residuals if not _is_of_kernels(placement, residual)}
    blocks = [
        "\n".join(map(one_line, _node_lines(placement, node, list(edges), adds.get(node))))
        for node, edges in groupby(placement, key=lambda edge: edge.node)
    ]
    if placement.outputs:
        blocks.append("\n".join(map(one_line, _output_lines(placement))))
    return "\n\n".join([*blocks, "\n".join(_totals(placement, of))])


def _node_lines(placement: Placement, node: int, edges: list[Edge], add: ResidualAdd | None) -> Iterator[str]:
    label = placement.nodes[node]
    place = f"{label.graph}/" if label.graph else ""
    yield f"{place}{label.node} ({label.op_type}), node {node}"
    found = add.why if add is not None and add.inputs else ""
    yield from aligned([_cells(placement, edge, found, _role(edge, add)) for edge in edges], indent=4)
    if found:
        yield f"    {found}"
    if add is not None and add.is_residual:
        fork = "the inputs of the graph" if add.fork == ROOT else f'"{placement.nodes[add.fork].node}"'
        yield f"    the branches part at {fork}"


def _output_lines(placement: Placement) -> Iterator[str]:
    yield "outputs of the graph"
    rows = [("->", o.name, *_decision_cells(placement, o.decision, "", "")) for o in placement.outputs]
    yield from aligned(rows, indent=4)


def _is_of_kernels(placement: Placement, add: ResidualAdd) -> bool:
    """Whether the rules for integer kernels decided the Add: they know of no trunk and no skip."""
    edges = (Edge(add.node, slot) for slot in (0, 1))
    return any(edge in placement and placement[edge].reason.rule in KERNEL_RULES for edge in edges)


def _role(edge: Edge, add: ResidualAdd | None) -> str:
    if add is None or not add.is_residual:
        return ""
    return "; this is the trunk" if edge.input == add.trunk else "; this is the skip"


def _cells(placement: Placement, edge: Edge, found: str, role: str) -> tuple[str, ...]:
    cells = _decision_cells(placement, placement[edge], found, role)
    return f"input {edge.input}", placement.labels[edge].tensor, *cells


def _decision_cells(placement: Placement, decision: Decision, found: str, role: str) -> tuple[str, str, str]:
    """The columns that say what is decided; what was `found` out about the whole Add isn't said again."""
    rule, detail = decision.reason.rule, decision.reason.detail
    named = f"{detail} {found}"
    unnamed = [f'"{name}"' for name in dict.fromkeys(placement.looked_at(decision)) if f'"{name}"' not in named]
    looked_at = f"looked at {', '.join(unnamed)}" if unnamed else ""
    saw = "; ".join(filter(None, ["" if detail == found else detail, looked_at]))
    means = f"{rule.value}{role}" + (f": {saw}" if saw else "")
    return format_decision(decision), rule.name, means


def _totals(placement: Placement, of: Placement) -> Iterable[str]:
    decisions = [*placement.values(), *(output.decision for output in placement.outputs)]
    rules = Counter(decision.reason.rule.name for decision in decisions)
    yield f"{len(placement.quantized)} of {count(len(placement), 'float edge')} quantized"
    if placement.outputs:
        yield f"{len(placement.quantized_outputs)} of {count(len(placement.outputs), 'float output')} quantized"
    if len(placement) < len(of):
        yield f"shown: {len(placement)} of {count(len(of), 'edge')}"
    yield "rules: " + ", ".join(f"{number} {name}" for name, number in sorted(rules.items()))
