"""What is said at the end of a run: counts for each quantizer, a table, golden files, and what to run next.

Everything is read off the reports of the items, so it is the same with and without pytest-xdist, whose controller gets
the reports of all workers.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from onnxq.printable import one_line
from onnxq.pytest_plugin.options import CorpusOptions, same_command
from onnxq.pytest_plugin.records import ItemRecord, record_of

if TYPE_CHECKING:
    from onnxq.report import CaseOutcome

TABLE_LIMIT = 40
"""Cases that the table of cases and quantizers shows; of more cases it shows those that didn't pass."""

FILES_LIMIT = 20
"""Golden files that are listed of each sort."""


class Summary:
    """Collects the records of the run's items, and reports on them when it ends. Lives where results are printed."""

    def __init__(self, config: pytest.Config, options: CorpusOptions) -> None:
        self._config = config
        self._options = options
        self._began = datetime.now(UTC)
        self._ended: dict[str, ItemRecord] = {}
        self._reports: dict[str, pytest.TestReport] = {}
        self._details: dict[tuple[str, str], str] = {}
        self._unused: list[str] = []
        self._page_problem = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep how an item ended; the last word counts, such as an error when it was torn down."""
        record = record_of(report)
        if record is None:
            return
        if record.details:
            self._details.setdefault((record.case_file, record.quantizer), record.details)
        self._ended[report.nodeid] = record
        self._reports[report.nodeid] = report

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Judge the golden files that no check read, and write the page."""
        if self._options.unused != "ignore":
            self._unused = self._find_unused()
        if self._unused and self._options.unused == "delete":
            self._delete_unused()
        if self._unused and self._options.unused == "fail" and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        if self._options.report is not None and self._ended:
            self._page_problem = self._write_page(self._options.report)
        if self._page_problem and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the section."""
        if not self._ended:
            return
        terminalreporter.write_sep("=", "onnxq")
        for line in self._lines():
            terminalreporter.write_line(one_line(line))

    def _lines(self) -> Iterator[str]:
        records = list(self._ended.values())
        quantizers = sorted({record.quantizer for record in records if record.quantizer})
        yield from _counts(records, quantizers)
        if len(quantizers) > 1:
            yield ""
            yield from _table(records, quantizers)
        yield from self._goldens()
        if self._options.report is not None:
            yield f"page: {self._page_problem or self._shown(str(self._options.report))}"
        yield from self._next()

    def _goldens(self) -> Iterator[str]:
        groups = {
            "new, written": self._files("new", written=True),
            "changed, written": self._files("changed", written=True),
            "new, not accepted": self._files("new", written=False),
            "changed, not accepted": self._files("changed", written=False),
            "unused, deleted" if self._options.unused == "delete" else "unused": self._unused,
        }
        if any(groups.values()):
            yield ""
        for name, files in groups.items():
            if files:
                yield f"goldens {name}: {len(files)}"
                yield from (f"    {self._shown(file)}" for file in files[:FILES_LIMIT])
                if len(files) > FILES_LIMIT:
                    yield f"    ... {len(files) - FILES_LIMIT} more"

    def _next(self) -> Iterator[str]:
        """What to run next: accept goldens, delete unused ones, or run what failed again."""
        new, changed = (self._files(state, written=False, outcome="failed") for state in ("new", "changed"))
        failed = [r for r in self._ended.values() if r.outcome in ("failed", "error")]
        if new or changed:
            update = "all" if new and changed else "new" if new else "changed"
            yield f"to accept the goldens, after a look: {same_command(self._config, f'--onnxq-update={update}')}"
        if self._unused and self._options.unused != "delete":
            yield f"to delete the unused goldens: {same_command(self._config, '--onnxq-unused=delete')}"
        if len(failed) > len(new) + len(changed):
            yield f"to run what failed again: {same_command(self._config, '--lf')}"

    def _files(self, state: str, *, written: bool, outcome: str = "") -> list[str]:
        return sorted(
            record.golden_file
            for record in self._ended.values()
            if (record.golden, record.written) == (state, written) and outcome in ("", record.outcome)
        )

    def _find_unused(self) -> list[str]:
        """Unused goldens of the cases of which every check ran; of others nobody knows."""
        by_case: dict[str, list[str]] = {}
        for nodeid, record in self._ended.items():
            if self._reports[nodeid].when == "call":
                by_case.setdefault(record.case_file, []).append(nodeid)
        return sorted(
            file
            for nodeids in by_case.values()
            for record in [self._ended[nodeids[0]]]
            if len(nodeids) == record.items
            for file in record.unused
        )

    def _delete_unused(self) -> None:
        from onnxq.corpus.golden import delete_goldens

        delete_goldens(map(Path, self._unused))

    def _write_page(self, path: Path) -> str:
        """Write the page; the answer is why that failed, or ""."""
        from onnxq.errors import UsageError
        from onnxq.report import ReportHeader
        from onnxq.report.page import write_report

        quantizers = sorted({f"{r.quantizer} {r.version}" for r in self._ended.values() if r.quantizer})
        corpora = tuple(self._shown(str(path)) for path in self._options.paths)
        date = self._began.strftime("%Y-%m-%d %H:%M UTC")
        try:
            write_report(self._outcomes(), path, header=ReportHeader(corpora, tuple(quantizers), date))
        except UsageError as error:
            return str(error)
        return ""

    def _outcomes(self) -> list[CaseOutcome]:
        """Every case and quantizer, with the checks that ran."""
        from onnxq.pytest_plugin.details import outcome_of
        from onnxq.report import CaseOutcome, CheckOutcome

        outcomes: dict[tuple[str, str], CaseOutcome] = {}
        for nodeid in sorted(self._ended, key=self._place):
            record = self._ended[nodeid]
            key, report = (record.case_file, record.quantizer), self._reports[nodeid]
            if key not in outcomes:
                details = self._details.get(key)
                outcomes[key] = CaseOutcome.from_json(details) if details else outcome_of(record)
            message = "" if report.passed else getattr(report, "wasxfail", "") or _message(report, record)
            check = CheckOutcome(record.check, record.outcome, message, report.duration)
            outcomes[key] = replace(outcomes[key], checks=(*outcomes[key].checks, check))
        return list(outcomes.values())

    def _place(self, nodeid: str) -> tuple[str, str, int]:
        """Where an item stands in the order of the run without workers."""
        record = self._ended[nodeid]
        return record.case, record.case_file, record.position

    def _shown(self, path: str) -> str:
        return os.path.relpath(path, self._config.invocation_params.dir)


def _message(report: pytest.TestReport, record: ItemRecord) -> str:
    """What the report says, without what the page shows around it."""
    if isinstance(report.longrepr, tuple):  # a skip: file, line and reason
        return str(report.longrepr[2])
    return report.longreprtext.removeprefix(record.heading)


def _counts(records: Sequence[ItemRecord], quantizers: Sequence[str]) -> Iterator[str]:
    """A line for each quantizer, and one for cases that can't be read."""
    rows = []
    for quantizer in quantizers:
        mine = [r for r in records if r.quantizer == quantizer]
        count = Counter(r.outcome for r in mine)
        cases = len({r.case_file for r in mine})
        numbers = [count["passed"], count["failed"] + count["error"], count["known"], count["skipped"]]
        rows.append([f"{quantizer} {mine[0].version}", str(cases), *map(str, numbers)])
    if rows:
        yield from _aligned([["", "cases", "passed", "failed", "known", "skipped"], *rows])
    unreadable = sum(not r.quantizer for r in records)
    if unreadable:
        yield f"cases that can't be read: {unreadable}"


def _table(records: Sequence[ItemRecord], quantizers: Sequence[str]) -> Iterator[str]:
    """A line for each case, a column for each quantizer."""
    by_case: dict[tuple[str, str], dict[str, Counter[str]]] = {}
    for record in records:
        cells = by_case.setdefault((record.case, record.case_file), {})
        cells.setdefault(record.quantizer, Counter())[record.outcome] += 1
    rows = {key: [_cell(cells.get(quantizer)) for quantizer in quantizers] for key, cells in sorted(by_case.items())}
    shown = list(rows)
    if len(rows) > TABLE_LIMIT:
        shown = [key for key in rows if any("failed" in cell for cell in rows[key])]
    listed = shown[:TABLE_LIMIT]
    if listed:
        yield from _aligned([["", *quantizers], *([case, *rows[case, file]] for case, file in listed)])
    if len(shown) > len(listed):
        yield f"... {len(shown) - len(listed)} more cases with failures"
    if len(rows) > len(shown):
        yield f"{'and ' if shown else ''}{len(rows) - len(shown)} cases without failures"


def _cell(count: Counter[str] | None) -> str:
    if count is None:
        return "-"
    failed = count["failed"] + count["error"]
    words = [f"{failed} failed"] if failed else []
    words += [f"{count['known']} known"] if count["known"] else []
    return ", ".join(words) or ("passed" if count["passed"] else "skipped")


def _aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Columns: the first to the left, the others to the right."""
    rows = [[one_line(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *others in rows:
        cells = (cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))
        yield "  ".join([first.ljust(widths[0]), *cells]).rstrip()
