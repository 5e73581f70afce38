"""What the plugin adds to an item's report: plain data, so that pytest-xdist carries it from worker to controller."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

import pytest

from onnxq.printable import printable

ATTRIBUTE = "onnxq"
"""Attribute of a test report that holds an `ItemRecord`, as a dict. pytest and pytest-xdist keep what is set there."""


@dataclass(frozen=True)
class ItemRecord:
    """One check of one case by one quantizer, beside what the report says itself.

    Attributes:
        case: Id of the case.
        case_file: Its file.
        check: Name of the check.
        quantizer: Name of the quantizer; "" if the case can't be read.
        version: Version of the quantizer.
        policy: Policy of the quantizer.
        position: Position of the item among those of the case.
        items: Number of items that the case has, those of all quantizers together.
        title: Of the case.
        source: Of the case.
        tags: Of the case.
        unused: Golden files of the case that no check reads.
        golden: State of the golden that the check reads: "same", "new" or "changed"; "" if it reads none.
        golden_file: That file.
        written: Whether it was written.
        details: JSON of a `CaseOutcome` without checks, for the page; "" if no page is wanted or it came earlier.
        outcome: How the check ended.
    """

    case: str
    case_file: str
    check: str
    quantizer: str = ""
    version: str = ""
    policy: str = ""
    position: int = 0
    items: int = 1
    title: str = ""
    source: str = ""
    tags: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()
    golden: str = ""
    golden_file: str = ""
    written: bool = False
    details: str = ""
    outcome: Literal["passed", "failed", "known", "skipped", "error"] = "passed"

    @property
    def heading(self) -> str:
        """What a failure begins with on the terminal, where nothing else says what was checked."""
        return printable(f"{self.title}\n{self.check} of {self.quantizer} {self.version}:\n\n")

    def attach(self, report: pytest.TestReport) -> None:
        """Put it into a report."""
        setattr(report, ATTRIBUTE, asdict(self))


def record_of(report: pytest.TestReport) -> ItemRecord | None:
    """What a report holds; None if it is of another item."""
    stored = getattr(report, ATTRIBUTE, None)
    if not isinstance(stored, dict):
        return None
    return ItemRecord(**{**stored, "tags": tuple(stored["tags"]), "unused": tuple(stored["unused"])})
