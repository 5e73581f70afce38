"""What a search found: one model for each kind of fault, and how it is written down as a case."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from onnx import ModelProto

from onnxq.corpus.format import SCHEMA
from onnxq.corpus.write import case_text, new_case_folder
from onnxq.errors import UsageError
from onnxq.invariants import Violation
from onnxq.printable import one_line
from onnxq.protos import walk_nodes
from onnxq.reduce import write_samples
from onnxq.relations import Trial, find_relation
from onnxq.strategies import LabelledModel, WeakenedModel
from onnxq.tensor_types import value_type

Drawn = LabelledModel | WeakenedModel

FAMILY = "found"
"""Family of the cases that are written."""

SAMPLES = "calibration.npz"
"""File of a case with the samples."""

CHECKED_ANYWAY = frozenset({"no-crash", "invariants", "runs"})
"""Relations that every case is checked for by other names."""


class Fault(NamedTuple):
    """A kind of fault. Of violations that agree in all of this, one is worth reporting.

    Attributes:
        relation: The relation that was checked.
        invariant: What is violated: the relation itself, or one of the invariants.
        cause: What kind of violation it is, without names.
    """

    relation: str
    invariant: str
    cause: str


@dataclass(frozen=True)
class Finding:
    """A fault, and the smallest model that showed it.

    Attributes:
        fault: What kind it is.
        violation: What was seen on this model.
        trial: The model, its ground truth and samples, and the quantizer.
        source: What was drawn.
        models: How many models the search had looked at before.
        seconds: How long it had taken by then.
        is_flaky: Whether the same model showed it once and not again.
        is_reduced: Whether the model was reduced further than its decisions can tell.
    """

    fault: Fault
    violation: Violation
    trial: Trial
    source: Drawn
    models: int
    seconds: float
    is_flaky: bool = False
    is_reduced: bool = False

    @property
    def drawn(self) -> str:
        """The decisions that the model is made of: `build(Topology(...))`."""
        return repr(self.source)

    @property
    def size(self) -> tuple[int, int]:
        """Nodes, then bytes of the model."""
        return size_of(self.trial.model)

    @property
    def name(self) -> str:
        """Short, of letters and digits; the same for the same kind of fault."""
        digest = hashlib.sha256("\0".join(self.fault).encode()).hexdigest()[:8]
        return f"{re.sub(r'[^a-z0-9]+', '_', self.fault.invariant.lower())}_{digest}"


def size_of(model: ModelProto) -> tuple[int, int]:
    """Nodes, then bytes."""
    return sum(1 for _ in walk_nodes(model.graph.node)), model.ByteSize()


def fault_of(relation: str, violation: Violation) -> Fault:
    """The kind of fault that a violation is of.

    Where the oracle doesn't tell the cause, the words of the place and of what is found stand for it, without names,
    numbers and dims.
    """
    cause = violation.cause or _without_names(f"{violation.where}: {violation.found}")
    return Fault(relation, violation.invariant, cause)


def _without_names(text: str) -> str:
    return re.sub(r"\d+(\.\d+)?", "0", re.sub(r"\[[^\[\]]*\]", "[]", re.sub(r'"[^"]*"', '""', text)))


def save_finding(finding: Finding, folder: Path) -> Path:
    """Write a finding as a case of the corpus format.

    Args:
        finding: The finding.
        folder: Made if it isn't there. The case is `found/<name>` in it; one that is there already is left alone.

    Returns:
        The case file.

    Raises:
        UsageError: The folder can't be written to.
    """
    case_file = folder / FAMILY / finding.name / "case.toml"
    if case_file.exists():
        return case_file
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{folder}: {error.strerror or error}") from None
    with new_case_folder(folder, f"{FAMILY}/{finding.name}") as private:
        (private / "model.onnx").write_bytes(finding.trial.model.SerializeToString(deterministic=True))
        write_samples(finding.trial.feeds, private / SAMPLES)
        (private / "case.toml").write_text(_case_text(finding), encoding="utf-8")
    return case_file


def _case_text(finding: Finding) -> str:
    violation, quantizer = finding.violation, finding.trial.quantizer
    seen = [
        f"Found by a search with {quantizer.name} {quantizer.version}. Read it before you keep it: what is expected of",
        "the result is just what the violated relation says.",
        f"relation: {finding.fault.relation}",
        f"where:    {one_line(violation.where)}",
        f"expected: {one_line(violation.expected)}",
        f"found:    {one_line(violation.found)}",
    ]
    content: Mapping[str, Any] = {
        "schema": SCHEMA,
        "title": one_line(f"{finding.fault.invariant}: {finding.fault.cause}")[:200],
        "source": f"onnxq fuzz, {quantizer.name} {quantizer.version}"
        f": {finding.drawn}, seed {finding.trial.seed}{', reduced' if finding.is_reduced else ''}",
        "tags": ["found", finding.fault.relation],
        "model": {"file": "model.onnx"},
        "quantize": {**finding.trial.options, "calibration_data": SAMPLES, "calibration_shapes": _open_shapes(finding)},
        "expect": {"quantized_add_inputs": _expected_adds(finding), "relations": _expected_relations(finding)},
    }
    return case_text(content, comments=seen)


def _open_shapes(finding: Finding) -> dict[str, list[int]]:
    """Shapes of the samples of those inputs whose declared dims don't tell where one sample ends."""
    shapes = {name: list(np.shape(value)) for name, value in finding.trial.feeds[0].items()}
    declared = {value.name: value_type(value.type).shape for value in finding.trial.model.graph.input}
    return {name: shape for name, shape in shapes.items() if shape and list(declared.get(name) or ()) != shape}


def _expected_relations(finding: Finding) -> list[str]:
    """The relation, if no other check is about it and a case can state it."""
    name = finding.fault.relation
    needs = {*find_relation(name).needs}
    return [] if name in CHECKED_ANYWAY or needs & {"ground truth", "spec"} else [name]


def _expected_adds(finding: Finding) -> dict[str, Any]:
    """The ground truth, where the finding is about that."""
    if finding.fault.relation != "ground-truth":
        return {}
    outputs = {name for node in walk_nodes(finding.trial.model.graph.node) for name in node.output}
    return {
        add.output: [list(add.inputs)] if add.tie else [add.skip] if add.skip else []
        for add in finding.trial.adds
        if add.output in outputs
    }
