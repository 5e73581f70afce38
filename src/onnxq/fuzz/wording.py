"""What a person is told of a finding: what is wrong, on which model, and the commands to go on with."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from textwrap import indent

from onnxq.fuzz.findings import Finding
from onnxq.quantizers import DEFAULT, DEFAULT_SETTINGS
from onnxq.relations import find_relation


def finding_text(finding: Finding, case: Path | None = None) -> str:
    """A finding in a few lines.

    Args:
        finding: The finding.
        case: Where it was saved; None if it wasn't.
    """
    return "\n".join(_lines(finding, case))


def _lines(finding: Finding, case: Path | None) -> Iterator[str]:
    nodes, _ = finding.size
    yield f"{finding.fault.relation}: {finding.fault.cause}"
    yield indent(str(finding.violation), "    ")
    flaky = ", and not always" if finding.is_flaky else ""
    yield (
        f"    seen first in model {finding.models}, after {finding.seconds:.1f} s{flaky}; "
        f"now {nodes} node{'s' if nodes != 1 else ''}"
    )
    reduced = ", then reduced" if finding.is_reduced else ""
    yield f"    drawn: {finding.drawn}, seed {finding.trial.seed}{reduced}"
    if case is not None:
        yield f"    see it again: {shlex.join(_check_again(finding, case))}"
        yield f"    add it to a corpus: {shlex.join(['cp', '-r', str(case.parent)])} CORPUS/{case.parent.parent.name}/"


def _check_again(finding: Finding, case: Path) -> Iterator[str]:
    """The command that checks the saved model: as a case, unless a case can't state the relation."""
    trial, relation = finding.trial, finding.fault.relation
    if "spec" in find_relation(relation).needs:
        yield from ("onnxq", "fuzz", str(case), "--relations", relation)
    else:
        yield from ("onnxq", "corpus", "run", str(case))
    if trial.spec not in ("", DEFAULT):
        yield from ("--quantizer", trial.spec)
    yield from (f"--peer-python={name}={path}" for name, path in trial.settings.peer_pythons.items())
    if trial.settings.time_limit != DEFAULT_SETTINGS.time_limit:
        yield f"--time-limit={trial.settings.time_limit:g}"
