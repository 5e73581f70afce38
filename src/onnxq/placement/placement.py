"""What a placement is: for each edge whether it is quantized, and why. Plain data, with text and JSON forms.

The text names tensors and nodes of the float model, in node order, one edge a line, so that two placements can be
compared by eye or by any diff tool:

    conv1 (Conv)      input 0  x        int8              P1
    conv1 (Conv)      input 1  conv1_w  int8 per axis 0   P1
    add (Add)         input 0  skip     int8              R5
    add (Add)         input 1  trunk    float             R5

A graph output is read by the caller, so it is an edge of its own, which only `quantize_outputs` quantizes. With that
option its decisions stand at the end:

    ->                output   y        int8              OUTPUT
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

from onnxq.encoding import Encoding
from onnxq.graph import ROOT, Edge, Use
from onnxq.placement.residual import AddInput, ResidualAdd
from onnxq.placement.rules import Rule
from onnxq.scopes import tensor_key

SCHEMA = 1
"""Version of the JSON form. It grows when a key changes its meaning or goes; new keys leave it as it is."""


@dataclass(frozen=True, slots=True)
class Reason:
    """Why an edge is decided as it is.

    Attributes:
        rule: The rule that decided.
        nodes: Numbers of the nodes that it looked at, beside the edge's own.
        detail: What it saw, for a person; may be empty.
    """

    rule: Rule
    nodes: tuple[int, ...] = ()
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether one edge gets Q/DQ.

    Attributes:
        quantize: Whether it does.
        reason: Why.
        constant: Whether the tensor is a constant, so that its range is read from its values.
        axis: Axis of a weight that has one scale each along it; None for one scale in all.
        dtype: Name of the integer type.
        symmetric: Whether the zero point is 0.
        product_of: For a bias that is stored as int32: the edges of its op's data and weight, see `Encoding`.
    """

    quantize: bool
    reason: Reason
    constant: bool = False
    axis: int | None = None
    dtype: str = "int8"
    symmetric: bool = True
    product_of: tuple[Edge, Edge] | None = None

    @property
    def encoding(self) -> Encoding:
        """How the tensor is stored."""
        return Encoding(self.dtype, self.axis, self.symmetric, self.product_of)


@dataclass(frozen=True, slots=True)
class NodeLabel:
    """How a person finds a node in the float model.

    Attributes:
        graph: "" for the main graph, else the path of the body, such as "if1.then_branch".
        node: Name of the node.
        op_type: Its operator.
        output: Its first output.
    """

    graph: str
    node: str
    op_type: str
    output: str


@dataclass(frozen=True, slots=True)
class EdgeLabel(NodeLabel):
    """How a person finds an edge in the float model: its node, and the tensor that it reads.

    Attributes:
        tensor: The tensor on the edge.
    """

    tensor: str

    @property
    def key(self) -> str:
        """Key of the tensor as the graph of the node sees it, see `onnxq.scopes`."""
        return tensor_key(self.graph, self.tensor)


@dataclass(frozen=True, slots=True)
class OutputDecision:
    """What is decided of one output of the main graph.

    Attributes:
        use: The tensor, as the main graph sees it.
        name: Its name.
        producer: Number of the node that yields it, or `ABSENT`.
        decision: Whether it gets Q/DQ.
    """

    use: Use
    name: str
    producer: int
    decision: Decision


@dataclass(frozen=True)
class Placement(Mapping[Edge, Decision]):
    """A decision for every edge that carries a float tensor, in canonical order.

    Attributes:
        decisions: Edge -> decision, by node number and input position.
        labels: Edge -> how a person finds it.
        residuals: What was found out about every Add and two-input Sum.
        scale_groups: Keys of tensors that must share one scale (rule P5), each group in node order.
        nodes: How a person finds each node of the model, by number.
        outputs: The decisions on float outputs of the main graph, in their order; empty unless they were asked for.
    """

    decisions: Mapping[Edge, Decision]
    labels: Mapping[Edge, EdgeLabel]
    residuals: tuple[ResidualAdd, ...]
    scale_groups: tuple[tuple[str, ...], ...]
    nodes: Sequence[NodeLabel] = ()
    outputs: tuple[OutputDecision, ...] = ()

    def __getitem__(self, edge: Edge) -> Decision:
        return self.decisions[edge]

    def __iter__(self) -> Iterator[Edge]:
        return iter(self.decisions)

    def __len__(self) -> int:
        return len(self.decisions)

    @property
    def quantized(self) -> list[Edge]:
        """The edges that get Q/DQ."""
        return [edge for edge, decision in self.decisions.items() if decision.quantize]

    @property
    def quantized_outputs(self) -> list[OutputDecision]:
        """The graph outputs that get Q/DQ."""
        return [output for output in self.outputs if output.decision.quantize]

    @property
    def activations(self) -> list[str]:
        """Keys of the tensors to calibrate: quantized and no constants, each once, in order of first use."""
        keys = [self.labels[e].key for e in self.quantized if not self.decisions[e].constant]
        return list(dict.fromkeys([*keys, *(output.name for output in self.quantized_outputs)]))

    def quantized_inputs(self, node: int) -> list[str]:
        """Names of the tensors that node number `node` reads quantized, by input position."""
        return [self.labels[e].tensor for e, d in self.decisions.items() if e.node == node and d.quantize]

    def only(self, edges: Set[Edge], outputs: Set[str]) -> Placement:
        """The placement of some edges and graph outputs, with what was found out about the Adds among their nodes."""
        nodes = {edge.node for edge in edges}
        return replace(
            self,
            decisions={edge: decision for edge, decision in self.decisions.items() if edge in edges},
            residuals=tuple(r for r in self.residuals if r.node in nodes),
            outputs=tuple(output for output in self.outputs if output.name in outputs),
        )

    def looked_at(self, decision: Decision) -> list[str]:
        """Names of the nodes that the rule looked at when it decided an edge, beside the edge's own."""
        return [self.nodes[node].node for node in decision.reason.nodes]

    def to_text(self, *, explain: bool = False) -> str:
        """The canonical text, one edge a line.

        Args:
            explain: Whether to add what each rule saw.
        """
        rows = [self._row(edge, decision) for edge, decision in self.decisions.items()]
        rows += [_output_row(output) for output in self.outputs]
        decisions = [*self.decisions.values(), *(output.decision for output in self.outputs)]
        widths = [max((len(row[column]) for row in rows), default=0) for column in range(5)]
        lines = []
        for row, decision in zip(rows, decisions, strict=True):
            line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            lines.append(f"{line}  {decision.reason.detail}" if explain and decision.reason.detail else line)
        return "\n".join(lines) + ("\n" if lines else "")

    def to_json(self) -> str:
        """The same as JSON, with what was found out about each Add; docs/cli.md describes the keys."""
        records = {
            "schema": SCHEMA,
            "edges": [self._record(edge, decision) for edge, decision in self.decisions.items()],
            "outputs": [self._output_record(output) for output in self.outputs],
            "adds": [self._add_record(residual) for residual in self.residuals],
        }
        return json.dumps(records, indent=1)

    def _row(self, edge: Edge, decision: Decision) -> tuple[str, str, str, str, str]:
        label = self.labels[edge]
        place = f"{label.graph}/" if label.graph else ""
        return (
            f"{place}{label.node} ({label.op_type})",
            f"input {edge.input}",
            label.tensor,
            format_decision(decision),
            decision.reason.rule.name,
        )

    def _record(self, edge: Edge, decision: Decision) -> dict[str, Any]:
        label = self.labels[edge]
        return {
            "graph": label.graph,
            "node": label.node,
            "position": edge.node,
            "op_type": label.op_type,
            "output": label.output,
            "input": edge.input,
            "tensor": label.tensor,
            **self._decision_record(decision),
        }

    def _output_record(self, output: OutputDecision) -> dict[str, Any]:
        return {"tensor": output.name, **self._decision_record(output.decision)}

    def _decision_record(self, decision: Decision) -> dict[str, Any]:
        return {
            "quantize": decision.quantize,
            "dtype": decision.dtype if decision.quantize else None,
            "axis": decision.axis,
            "rule": decision.reason.rule.name,
            "says": decision.reason.rule.value,
            "saw": decision.reason.detail,
            "looked_at": self.looked_at(decision),
        }

    def _add_record(self, found: ResidualAdd) -> dict[str, Any]:
        label = self.nodes[found.node]
        return {
            "graph": label.graph,
            "node": label.node,
            "position": found.node,
            "op_type": label.op_type,
            "output": label.output,
            "rule": found.rule.name,
            "says": found.rule.value,
            "saw": found.why,
            "fork": self._name(None if found.fork == ROOT else found.fork),
            "trunk": found.trunk,
            "skip": found.skip,
            "inputs": [self._input_record(one) for one in found.inputs],
        }

    def _input_record(self, found: AddInput) -> dict[str, Any]:
        linear, nodes = found.length or (None, None)
        return {
            "backbone": self._name(found.backbone),
            "walk_stops_at": found.stop or None,
            "needed_by_other": found.is_needed,
            "linear_ops": linear,
            "nodes": nodes,
        }

    def _name(self, node: int | None) -> str | None:
        return None if node is None else self.nodes[node].node


def _output_row(output: OutputDecision) -> tuple[str, str, str, str, str]:
    return "->", "output", output.name, format_decision(output.decision), output.decision.reason.rule.name


def format_decision(decision: Decision) -> str:
    """What happens to the edge: "float", "int8", "int8 per axis 0", "uint8"."""
    if not decision.quantize:
        return "float"
    return decision.dtype if decision.axis is None else f"{decision.dtype} per axis {decision.axis}"
