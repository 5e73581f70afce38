"""Case files and their items: one for each quantizer and check."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from onnxq.printable import one_line, printable
from onnxq.pytest_plugin.options import OPTIONS_KEY, command, tested_quantizers
from onnxq.pytest_plugin.records import ItemRecord

if TYPE_CHECKING:
    from onnxq.corpus.case import Case
    from onnxq.corpus.given import Given
    from onnxq.corpus.golden import Comparison
    from onnxq.corpus.run import CaseRun
    from onnxq.quantizers import Quantizer

READABLE = "case-is-readable"
"""Name of the item that stands for a case that can't be read."""


class CheckFailure(Exception):  # noqa: N818 (what it says is a finding about a quantizer, no error of a program)
    """A check found something wrong; the message is shown as it stands."""


class UnexpectedPass(Exception):  # noqa: N818 (likewise)
    """A check passed that the case lists as a known failure."""


class CaseFile(pytest.File):
    """One case file: an item for each quantizer and check. Holds what was quantized until its last item is done."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._given: Given | None = None
        self._runs: dict[str, CaseRun] = {}
        self._detailed: set[str] = set()

    def collect(self) -> Iterator[pytest.Item]:
        """One item per quantizer and check; a single failing one if the case can't be read."""
        from onnxq.corpus.case import load_case
        from onnxq.corpus.discover import case_id
        from onnxq.corpus.golden import golden_checks, unused_goldens
        from onnxq.errors import CorpusError

        options = self.config.stash[OPTIONS_KEY]
        record = ItemRecord(one_line(case_id(self.path, options.paths)), str(self.path), READABLE)
        try:
            case = load_case(self.path)
        except CorpusError as error:
            yield make_item(BrokenCaseItem, self, READABLE, message=str(error), record=record)
            return
        quantizers = tested_quantizers(self.config)
        checks = {
            spec: (*case.checks(q.policy), *golden_checks(case, q.name, options.update))
            for spec, q in quantizers.items()
        }
        record = replace(
            record,
            items=sum(map(len, checks.values())),
            title=case.definition.title,
            source=case.definition.source,
            tags=tuple(case.definition.tags),
            unused=tuple(map(str, unused_goldens(case, [q.name for q in quantizers.values()]))),
        )
        position = 0
        for spec, quantizer in quantizers.items():
            policy = case.judged_by(quantizer.policy)
            record = replace(record, quantizer=quantizer.name, version=quantizer.version, policy=policy)
            for check in checks[spec]:
                of_item = replace(record, check=check, position=position)
                yield _make_check(self, case, spec, quantizer, of_item)
                position += 1

    def run_of(self, case: Case, quantizer: Quantizer) -> CaseRun:
        """The run of the case by a quantizer; the first call makes it."""
        from onnxq.corpus.given import Given
        from onnxq.corpus.run import run_case

        if self._given is None:
            self._given = Given(case)
        if quantizer.name not in self._runs:
            self._runs[quantizer.name] = run_case(case, quantizer, self._given)
        return self._runs[quantizer.name]

    def details_of(self, case: Case, quantizer: Quantizer, record: ItemRecord) -> str:
        """What the page shows of the run beside its checks, as JSON; "" from the second call on."""
        from onnxq.pytest_plugin.details import case_details

        if quantizer.name in self._detailed:
            return ""
        self._detailed.add(quantizer.name)
        return case_details(self.run_of(case, quantizer), record)

    def teardown(self) -> None:
        """Let go of the models."""
        self._given = None
        self._runs.clear()


class CheckItem(pytest.Item):
    """One check of one case by one quantizer."""

    def __init__(self, *, case: Case, spec: str, quantizer: Quantizer, record: ItemRecord, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.record = record
        self._case = case
        self._spec = spec
        self._quantizer = quantizer
        self._check = record.check
        self.user_properties += [
            ("onnxq_case", record.title),
            ("onnxq_source", record.source),
            ("onnxq_tags", " ".join(record.tags)),
            ("onnxq_quantizer", quantizer.name),
            ("onnxq_quantizer_version", quantizer.version),
            ("onnxq_check", record.check),
        ]
        self._known = case.known_failure(quantizer.name, quantizer.version, record.check)
        if self._known is not None:
            self.add_marker(pytest.mark.xfail(reason=one_line(self._known.reason), strict=True, raises=CheckFailure))

    def runtest(self) -> None:
        """Quantize, unless another item did already, and check."""
        assert isinstance(self.parent, CaseFile)
        run = self.parent.run_of(self._case, self._quantizer)
        if self.config.stash[OPTIONS_KEY].report is not None:
            self.record = replace(self.record, details=self.parent.details_of(self._case, self._quantizer, self.record))
        if run.not_offered and self._check != "raises":
            pytest.skip(f"nothing to check, the case asks for more than is offered: {one_line(run.not_offered)}")
        if run.error is not None and self._check not in ("raises", "quantizes"):
            known = self._case.known_failure(self._quantizer.name, self._quantizer.version, "quantizes")
            if known is not None:
                pytest.skip(f"nothing to check, {self._quantizer.name} is known to fail: {one_line(known.reason)}")
        problems = self._problems(run)
        if problems:
            raise CheckFailure("\n".join(problems))
        if self._known is not None:
            raise UnexpectedPass(self._what_to_delete())

    def _problems(self, run: CaseRun) -> list[str]:
        from onnxq.corpus.checks import CHECKS, run_check
        from onnxq.corpus.golden import compare_golden
        from onnxq.errors import InvalidModelError

        if self._check in CHECKS:
            return run_check(self._check, run)
        if run.quantized is None:
            return [f"quantization failed: {run.failure}"]
        # what is known to be wrong is never accepted
        update: Any = self.config.stash[OPTIONS_KEY].update if self._known is None else "none"
        try:
            found = compare_golden(run, self._quantizer.name, self._check, update)
        except InvalidModelError as error:
            return [str(error)]
        self.record = replace(self.record, golden=found.state, golden_file=str(found.path), written=found.written)
        actual = _actual_path(self)
        if found.state == "same" or found.written:
            if actual is not None:
                actual.unlink(missing_ok=True)
            return []
        return [self._golden_problem(found, actual or Path(tempfile.mkdtemp(prefix="onnxq-"), found.path.name))]

    def _golden_problem(self, found: Comparison, actual: Path) -> str:
        """The difference, where the whole actual text is, and the command that accepts it."""
        actual.parent.mkdir(parents=True, exist_ok=True)
        actual.write_text(found.actual, encoding="utf-8")
        start = self.config.invocation_params.dir
        file = os.path.relpath(found.path, start)
        what = f'"-" is {file}, "+" is what {self._quantizer.name} {self._quantizer.version} makes now'
        if found.state == "new":
            what = f'there is no {file} yet; "+" is what {self._quantizer.name} {self._quantizer.version} makes'
        item = f"{os.path.relpath(self.path, start)}::{self.name}"
        chosen = [f"--onnxq-quantizer={self._spec}"] if self.config.getoption("onnxq_quantizer") else []
        accept = command(self.config, item, *chosen, f"--onnxq-update={found.state}")
        return f"{what}\n\n{found.diff()}\n\nactual: {os.path.relpath(actual, start)}\naccept: {accept}"

    def _what_to_delete(self) -> str:
        from onnxq.corpus.known import known_failure_block

        assert self._known is not None
        file = os.path.relpath(self.path, self.config.invocation_params.dir)
        block = known_failure_block(self._case, self._known)
        said = f"XPASS(strict): passes, but is listed as a known failure: {self._known.reason}"
        if block is None:
            return f"{said}\n\ndelete it from known_failure in {file}"
        return f"{said}\n\ndelete from {file}, line {block.line}:\n\n{block.text}"

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """What is wrong with the quantized model or the case, without a traceback of the harness."""
        from onnxq.errors import OnnxqError

        if isinstance(excinfo.value, OnnxqError):
            return printable(str(excinfo.value))
        if not isinstance(excinfo.value, CheckFailure | UnexpectedPass):
            return super().repr_failure(excinfo, style)
        return self.record.heading + printable(str(excinfo.value))

    def reportinfo(self) -> tuple[Path, None, str]:
        """The case file, and which of its checks this is; no line, because ids must not change with it."""
        return self.path, None, one_line(f"{self.path.parent.name}: {self.name}")


class BrokenCaseItem(pytest.Item):
    """Stands for a case that can't be read, and fails."""

    def __init__(self, *, message: str, record: ItemRecord, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.record = record
        self._message = message

    def runtest(self) -> None:
        """Fail."""
        from onnxq.errors import CorpusError

        raise CorpusError(self._message)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """What is wrong with the case file."""
        from onnxq.errors import CorpusError

        if isinstance(excinfo.value, CorpusError):
            return printable(str(excinfo.value))
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, None, str]:
        """The case file."""
        return self.path, None, one_line(f"{self.path.parent.name}: {self.name}")


def finish_report(item: CheckItem | BrokenCaseItem, call: pytest.CallInfo[None], report: pytest.TestReport) -> None:
    """Attach the item's record to the report that says how it ended, and to those of errors around it."""
    if report.when != "call" and report.passed:
        return
    if report.skipped:
        outcome: Any = "known" if hasattr(report, "wasxfail") else "skipped"
    elif report.passed:
        outcome = "passed"
    else:
        finding = call.excinfo is not None and isinstance(call.excinfo.value, CheckFailure | UnexpectedPass)
        outcome = "failed" if finding else "error"
    replace(item.record, outcome=outcome).attach(report)


def _make_check(parent: CaseFile, case: Case, spec: str, quantizer: Quantizer, record: ItemRecord) -> pytest.Item:
    name = f"{record.check}[{quantizer.name}]"
    return make_item(CheckItem, parent, name, case=case, spec=spec, quantizer=quantizer, record=record)


def make_item(kind: type[pytest.Item], parent: pytest.Collector, name: str, **kwargs: Any) -> pytest.Item:
    """An item whose id is given as text.

    From the name alone pytest 9 makes an id that takes `[...]` for no parameter, and `--lf`, which reads ids from a
    file, wouldn't find the item again.
    """
    item: pytest.Item = kind.from_parent(parent, name=name, nodeid=f"{parent.nodeid}::{name}", **kwargs)
    return item


def _actual_path(item: CheckItem) -> Path | None:
    """Where the text that a golden should have is put: in pytest's cache, never in the corpus. None without a cache."""
    # "../" of cases outside of the project must not lead out of the cache
    folders = Path(os.path.relpath(item.path.parent, item.config.rootpath)).parts
    inside = [folder if folder != os.pardir else "up" for folder in folders]
    file = f"{item.record.check.removeprefix('golden-')}.txt"
    cache = getattr(item.config, "cache", None)
    try:
        return Path(cache.mkdir("onnxq-actual"), *inside, Path(item.record.quantizer).name, file) if cache else None
    except OSError:  # the project can't be written to
        return None
