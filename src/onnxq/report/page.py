"""Writing the page: one file that loads nothing, from outcomes as plain data.

Everything in it that comes from a model, a case or a tool is untrusted. It is escaped by the template engine, control
characters are made visible, and the page's own policy lets no script run but the one that we put there.

The size of the page is bounded: what a case shows beyond its checks (graph, decisions) is taken from a budget, where
failures come first, and quantizers that did the same to a case share it.
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from onnxq.model_io import PathLike, write_text
from onnxq.report.data import WORST_FIRST, CaseOutcome, CheckOutcome, EdgeDecision, GraphPicture, Outcome, ReportHeader
from onnxq.report.diff import DiffRow, side_by_side
from onnxq.report.drawing import Drawing, draw

DETAIL_BUDGET = 40_000
"""Boxes, lines and decisions on one page, about 300 bytes each."""

TEXT_LIMIT = 8_000
"""Characters of a check's message, and of any other text, that are shown."""

NO_ROOM = "the report has no room for it; a run of this case alone shows it"
"""Why a graph isn't drawn when the budget is spent."""

TROUBLES: tuple[Outcome, ...] = ("error", "failed")
"""The outcomes that make a run fail."""


@dataclass(frozen=True, slots=True)
class Panel:
    """What one quantizer made of a case, ready to be shown.

    Attributes:
        outcome: The data.
        status: Its worst outcome.
        troubles: The checks that didn't pass.
        counts: Outcome -> number of checks, worst first.
        same_as: The earlier quantizer of this case whose graph and decisions are the same; "" if none is.
        drawing: The graph; None if it isn't drawn.
        not_drawn: Why the graph isn't drawn, for a person; "" if it is, or if there is none.
        decisions: The decisions to be listed.
        differing: How many of them the quantizer didn't follow.
        diff: Expected against actual placement, row by row; None if there is nothing to compare.
    """

    outcome: CaseOutcome
    status: Outcome
    troubles: tuple[CheckOutcome, ...]
    counts: Mapping[Outcome, int]
    same_as: str
    drawing: Drawing | None
    not_drawn: str
    decisions: tuple[EdgeDecision, ...]
    differing: int
    diff: tuple[DiffRow, ...] | None


@dataclass(frozen=True, slots=True)
class CaseRow:
    """One case of the table: its data, and a panel for each quantizer that ran it, in the order of the columns."""

    case: CaseOutcome
    status: Outcome
    panels: tuple[Panel, ...]


def write_report(outcomes: Iterable[CaseOutcome], path: PathLike, *, header: ReportHeader) -> None:
    """Write the report of a corpus run: a single HTML file, whole or not at all.

    Args:
        outcomes: One for each case and quantizer, in the order in which they are to be shown.
        path: The file to write; an existing one is replaced.
        header: What the run was about.

    Raises:
        UsageError: The folder is missing or can't be written to.
    """
    write_text(render(outcomes, header=header), path)


def render(outcomes: Iterable[CaseOutcome], *, header: ReportHeader) -> str:
    """The page as text; see `write_report`."""
    found = tuple(outcomes)
    quantizers = tuple(dict.fromkeys(outcome.by for outcome in found if outcome.by))
    script, style = _asset("report.js"), _asset("report.css")
    environment = Environment(
        loader=PackageLoader("onnxq.report"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["decibels"] = _decibels
    return environment.get_template("report.html").render(
        header=header,
        quantizers=quantizers,
        totals={by: Counter(o.outcome for o in found if o.by == by) for by in quantizers},
        total=Counter(outcome.outcome for outcome in found),
        outcomes=WORST_FIRST,
        rows=_rows(found, quantizers),
        script=Markup(script),
        style=Markup(style),
        script_digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


def visible(text: str) -> str:
    """Text in which every character can be seen: controls, overrides of the direction, and the like are written out."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else f"\\u{{{ord(c):x}}}" for c in text)


def _finalize(value: object) -> object:
    """What the template engine does to each value before it escapes it."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    if len(value) <= TEXT_LIMIT:
        return visible(value)
    return f"{visible(value[:TEXT_LIMIT])}... ({len(value) - TEXT_LIMIT:,} more characters)"


def _decibels(ratio: float) -> str:
    if math.isfinite(ratio):
        return f"{ratio:.1f} dB"
    return "equal" if ratio > 0 else "beyond comparison (shape, NaN or infinity)"


def _rows(found: Sequence[CaseOutcome], quantizers: Sequence[str]) -> list[CaseRow]:
    """The table, in the order of the cases' first outcomes."""
    cases: dict[str, list[CaseOutcome]] = {}
    for outcome in found:
        cases.setdefault(outcome.case, []).append(outcome)
    place = {by: number for number, by in enumerate(("", *quantizers))}
    ordered = [sorted(outcomes, key=lambda o: place[o.by]) for outcomes in cases.values()]
    detailed = _within_budget([outcome for outcomes in ordered for outcome in outcomes])
    return [
        CaseRow(
            outcomes[0],
            min((outcome.outcome for outcome in outcomes), key=WORST_FIRST.index),
            tuple(_panel(outcome, outcomes, detailed) for outcome in outcomes),
        )
        for outcomes in ordered
    ]


_Details = tuple[str, str, GraphPicture | None, tuple[EdgeDecision, ...]]


def _details(outcome: CaseOutcome) -> _Details:
    """What quantizers can share: those that did the same to a case have the same details."""
    return outcome.case, outcome.policy, outcome.graph, outcome.decisions


def _within_budget(found: Sequence[CaseOutcome]) -> set[_Details]:
    """Which details the page has room for, failures first."""
    spent, chosen = 0, set()
    for outcome in sorted(found, key=lambda o: o.outcome not in TROUBLES):
        details = _details(outcome)
        if details not in chosen:
            graph = outcome.graph or GraphPicture()
            spent += len(graph.nodes) + len(graph.edges) + len(outcome.decisions)
            if spent > DETAIL_BUDGET:
                break
            chosen.add(details)
    return chosen


def _panel(outcome: CaseOutcome, siblings: Sequence[CaseOutcome], detailed: set[_Details]) -> Panel:
    counts = Counter(check.outcome for check in outcome.checks)
    first = next(o for o in siblings if _details(o) == _details(outcome))
    same_as = first.by if first is not outcome and outcome.graph else ""
    has_room = _details(outcome) in detailed
    drawing, not_drawn = None, ""
    if outcome.graph and not same_as:
        not_drawn = outcome.graph.not_drawn or ("" if has_room else NO_ROOM)
        drawing = None if not_drawn else draw(outcome.graph, outcome.policy)
        not_drawn = not_drawn or ("" if drawing else "the lines are too long and too many to draw")
    return Panel(
        outcome,
        outcome.outcome,
        tuple(check for check in outcome.checks if check.outcome != "passed"),
        {name: counts[name] for name in WORST_FIRST if counts[name]},
        same_as,
        drawing,
        not_drawn,
        outcome.decisions if has_room and not same_as else (),
        sum(decision.decision != decision.found for decision in outcome.decisions),
        None if outcome.expected is None or outcome.actual is None else side_by_side(outcome.expected, outcome.actual),
    )


def _asset(name: str) -> str:
    return (files("onnxq.report") / "templates" / name).read_text(encoding="utf-8")
