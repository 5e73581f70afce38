"""What `onnxq corpus` prints, as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from onnxq.cli.display import aligned, count, size
from onnxq.corpus.add import AddedCase
from onnxq.corpus.case import Case
from onnxq.corpus.outcomes import Outcome
from onnxq.corpus.strip import Stripped
from onnxq.errors import CorpusError
from onnxq.printable import one_line


def cases_text(cases: Iterable[tuple[str, Case | CorpusError]]) -> str:
    """A line for each case: id, tags, title."""
    rows = [(one_line(name), *map(one_line, _described(case))) for name, case in cases]
    return "\n".join([*aligned(rows), count(len(rows), "case")])


def added_text(added: AddedCase) -> str:
    """Where the case is, what was left out of it, and what to do next."""
    known = [outcome.check for outcome in added.outcomes if outcome.status == "known"]
    passed = sum(outcome.status == "passed" for outcome in added.outcomes)
    lines = [f"wrote {added.path}", f"checks: {passed} passed{', known to fail: ' + ', '.join(known) if known else ''}"]
    if added.stripped is not None:
        lines.append(_left_out(added.stripped))
    lines.append(f"read what it expects, then run it: pytest --onnxq-corpus={added.path.parent}")
    return "\n".join(lines)


def stripped_text(stripped: Stripped, model: Path, output: Path) -> str:
    """How much was left out."""
    sizes = f"{size(output.stat().st_size)}, and {model.name} has {size(model.stat().st_size)}"
    return f"wrote {output} ({sizes})\n{_left_out(stripped)}"


def failures_text(names: Mapping[Path, str], found: Sequence[Outcome]) -> str:
    """What is wrong, a block for each check that fails and each case that can't be read."""
    blocks = []
    for outcome in found:
        if outcome.status == "unreadable":
            blocks.append(f"{one_line(names[outcome.case])}: can't be read\n{outcome.message}")
        if outcome.status == "failed":
            blocks.append(f"{one_line(names[outcome.case])}: {outcome.check} of {outcome.quantizer}\n{outcome.message}")
    return "\n\n".join(blocks)


def outcomes_text(names: Mapping[Path, str], found: Sequence[Outcome], *, only_bad: bool) -> str:
    """A table of cases and quantizers, then the totals.

    Args:
        names: Case file -> id.
        found: All outcomes.
        only_bad: Whether cases without a failure are left out of the table.
    """
    quantizers = list(dict.fromkeys(outcome.quantizer for outcome in found if outcome.quantizer))
    cells: dict[Path, dict[str, Counter[str]]] = {}
    for outcome in found:
        cells.setdefault(outcome.case, {}).setdefault(outcome.quantizer, Counter())[outcome.status] += 1
    rows = [
        (one_line(names[case]), *(_cell(row.get(q, row.get("", Counter()))) for q in quantizers))
        for case, row in cells.items()
        if not only_bad or any(c["failed"] or c["unreadable"] for c in row.values())
    ]
    table = aligned([("case", *quantizers), *rows]) if quantizers and rows else []
    total = Counter(outcome.status for outcome in found)
    said = [
        f"{total[status]} {status}"
        for status in ("failed", "unreadable", "known", "skipped", "passed")
        if total[status]
    ]
    return "\n".join([*table, f"{count(len(cells), 'case')}, checks: {', '.join(said)}"])


def _cell(counts: Counter[str]) -> str:
    """The worst that happened, and how often if not always."""
    if counts["unreadable"]:
        return "unreadable"
    if counts["failed"]:
        return f"FAILED {counts['failed']} of {counts.total()}"
    if counts["skipped"] == counts.total():
        return "skipped" if counts else "-"
    known = f", {counts['known']} known" if counts["known"] else ""
    return f"{counts['passed']} passed{known}"


def _described(case: Case | CorpusError) -> tuple[str, str]:
    if isinstance(case, CorpusError):
        return "UNREADABLE", str(case)
    return " ".join(case.definition.tags), case.definition.title


def _left_out(stripped: Stripped) -> str:
    left = f"left out: {stripped.stripped:,} elements of {count(stripped.tensors, 'weight')}"
    return f"{left}; kept: {stripped.kept:,} elements, such as short tensors and shapes (see --above)"
