"""What a report shows, as plain data: it can cross a process boundary as JSON, and holds no model.

One `CaseOutcome` is what one quantizer made of one case. The texts and names in it come from models and tools, so they
are untrusted: whoever shows them escapes them.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Literal

import msgspec

Outcome = Literal["passed", "failed", "known", "skipped", "error"]
"""How a check ended: "known" is a failure that the case declares, "error" one of the harness or the case itself."""

WORST_FIRST: tuple[Outcome, ...] = ("error", "failed", "known", "skipped", "passed")
"""The outcomes, by how much a person should care."""


@dataclass(frozen=True, slots=True)
class CheckOutcome:
    """How one check of one case ended.

    Attributes:
        name: Name of the check.
        outcome: How it ended.
        message: What is wrong, or why it is known or skipped; "" where there is nothing to say.
        seconds: How long it took.
    """

    name: str
    outcome: Outcome
    message: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class ConstantPicture:
    """A constant that a node reads: it is written into the node's box.

    Attributes:
        name: Name of the tensor.
        shape: Its shape, such as "[16, 8, 3, 3]"; "" if it is unknown.
        quantization: "int8", "int8 per axis 0", "float", or "" for what isn't float and so can't be quantized.
    """

    name: str
    shape: str
    quantization: str


@dataclass(frozen=True, slots=True)
class NodePicture:
    """A box of a drawn graph.

    Attributes:
        kind: Whether it stands for a node, or for an input or output of the graph.
        label: The operator; the name of an input or output.
        name: Name of the node; "" for an input or output.
        constants: The constants that the node reads, by input position.
        residual: Whether it is a residual Add.
        gone: Whether the quantized model has no counterpart of it.
    """

    kind: Literal["node", "input", "output"]
    label: str
    name: str = ""
    constants: tuple[ConstantPicture, ...] = ()
    residual: bool = False
    gone: bool = False


@dataclass(frozen=True, slots=True)
class EdgePicture:
    """A line of a drawn graph: a box reads what another one yields.

    Attributes:
        source: Position of the box that yields the tensor.
        target: Position of the box that reads it; always greater than `source`.
        tensor: Name of the tensor in the float model.
        quantized: Whether it is read through Q/DQ.
        axis: Axis of its scales; None for one scale in all.
        role: Which branch of a residual Add it is.
        is_float: Whether it carries floats: others, such as indices, can't be quantized at all.
    """

    source: int
    target: int
    tensor: str
    quantized: bool = False
    axis: int | None = None
    role: Literal["", "skip", "trunk"] = ""
    is_float: bool = True


@dataclass(frozen=True, slots=True)
class GraphPicture:
    """The main graph of a float model, marked with where the quantized model has Q/DQ.

    Attributes:
        nodes: The boxes, producers before readers.
        edges: The lines.
        not_drawn: Why there are neither, for a person; "" if there are.
    """

    nodes: tuple[NodePicture, ...] = ()
    edges: tuple[EdgePicture, ...] = ()
    not_drawn: str = ""


@dataclass(frozen=True, slots=True)
class EdgeDecision:
    """What onnxq's rules say about one edge, and what the quantizer did.

    Attributes:
        edge: The edge, for a person: `Conv "conv1" input 0: x`.
        decision: What the rules say: "int8", "int8 per axis 0" or "float".
        rule: The rule that decided.
        why: What the rule says, and what it saw.
        found: What the quantizer did: as `decision`, or "gone" if the quantized model has no such node.
    """

    edge: str
    decision: str
    rule: str
    why: str
    found: str


@dataclass(frozen=True, slots=True)
class CaseOutcome:
    """What one quantizer made of one case.

    Attributes:
        case: Id of the case, such as "residual/convtranspose_conv".
        title: What the case is about.
        source: Where it is from.
        tags: Its tags.
        quantizer: Name of the quantizer; "" if the case can't be read, which concerns all of them.
        version: Version of the quantizer.
        policy: Whose fusion rules it follows.
        checks: Every check that ran, in order.
        graph: The graph; None if quantization failed.
        expected: The placement that is expected, one edge a line; None if nothing is stored.
        actual: The placement that was found, in the same form; None if quantization failed.
        decisions: The decision of each edge.
        noise: Output -> signal to quantization noise ratio in dB; inf if equal, -inf if useless.
    """

    case: str
    title: str
    source: str = ""
    tags: tuple[str, ...] = ()
    quantizer: str = ""
    version: str = ""
    policy: str = ""
    checks: tuple[CheckOutcome, ...] = ()
    graph: GraphPicture | None = None
    expected: str | None = None
    actual: str | None = None
    decisions: tuple[EdgeDecision, ...] = ()
    noise: dict[str, float] = field(default_factory=dict)

    @property
    def outcome(self) -> Outcome:
        """The worst outcome of its checks; "skipped" if there are none."""
        found = {check.outcome for check in self.checks}
        return next((outcome for outcome in WORST_FIRST if outcome in found), "skipped")

    @property
    def by(self) -> str:
        """The quantizer and its version."""
        return f"{self.quantizer} {self.version}".strip()

    def to_json(self) -> str:
        """As JSON in ASCII, with `Infinity` for inf; `from_json` reads it."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> CaseOutcome:
        """Read what `to_json` wrote."""
        return msgspec.convert(json.loads(text), CaseOutcome)


@dataclass(frozen=True, slots=True)
class ReportHeader:
    """What a whole report is about.

    Attributes:
        corpora: Paths of the corpora, as they were given.
        quantizers: Each quantizer with its version, such as "onnxruntime 1.20.1".
        date: When the run began, for a person.
    """

    corpora: tuple[str, ...] = ()
    quantizers: tuple[str, ...] = ()
    date: str = ""
