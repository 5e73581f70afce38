"""Searches for models that a quantizer gets wrong, and makes each finding small.

A round draws models until one shows a fault that isn't known yet. From there on it has just this fault in mind, and
hypothesis shrinks the model, then the reducer. Then the fault is known, and the next round goes on past it:

    draw, draw, draw, fault A, shrink A | draw, A again (known), draw, fault B, shrink B | draw ...

So a fault that is everywhere hides no other. What is seen on the way is kept: if time runs out while a model is being
shrunk, the smallest one so far is the finding.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import hypothesis
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.database import ExampleDatabase
from hypothesis.errors import Flaky

from onnxq.fuzz.findings import Drawn, Fault, Finding, fault_of, size_of
from onnxq.fuzz.smaller import smaller
from onnxq.quantizers import DEFAULT_SETTINGS, Quantizer, Settings
from onnxq.relations.registry import RELATIONS
from onnxq.relations.relation import Relation
from onnxq.relations.trial import trial_of

Progress = Callable[[str], None]

MOST_SEEDS = 2**16
"""Seeds of samples that are drawn from."""

MOST_SECONDS_TO_SHRINK = 30.0
"""That hypothesis spends on one finding, and the reducer after it."""

SHARE_OF_SHRINKING = 1 / 30
"""Of the time of a search, likewise: a short search should find more than one fault."""

CHEAP_MODELS = 2
"""For so many models one quantization each is all; for the next one, a changed model is quantized too."""

SHARE_OF_DRAWING = 0.85
"""Of the time; in the rest models are made smaller that were only seen on the way."""

_MOST_ROUNDS = 100_000
"""Searches with different seeds have no round in common, unless one has more rounds than that."""

_ROUND = 10_000
"""Models of a round at most, where time is the limit."""


@dataclass(frozen=True)
class Budget:
    """When a search ends: whichever comes first.

    Attributes:
        seconds: Of all.
        models: That are drawn; those that shrinking looks at don't count.
        findings: Different faults.
    """

    seconds: float = float("inf")
    models: int | None = None
    findings: int = 100


@dataclass(frozen=True)
class SearchResult:
    """What came of a search.

    Attributes:
        findings: A finding for each fault, in the order in which they were found.
        models: How many models were drawn.
        seconds: How long it took.
        is_interrupted: Whether Ctrl-C ended it.
    """

    findings: tuple[Finding, ...]
    models: int
    seconds: float
    is_interrupted: bool = False


class _FaultFound(Exception):  # noqa: N818 (what hypothesis has to shrink)
    """The fault that a round has in mind is there."""


class _TimeIsUp(BaseException):
    """Ends hypothesis wherever it is; it would catch and shrink an Exception."""


class _ShrunkEnough(BaseException):
    """Likewise, but only for one fault."""


def search(
    quantizer: Quantizer,
    models: st.SearchStrategy[Drawn],
    *,
    budget: Budget,
    relations: Sequence[Relation] = RELATIONS,
    seed: int = 0,
    spec: str = "",
    run_settings: Settings = DEFAULT_SETTINGS,
    options: dict[str, Any] | None = None,
    database: ExampleDatabase | None = None,
    progress: Progress | None = None,
) -> SearchResult:
    """Search for models on which a relation is violated.

    Args:
        quantizer: The quantizer under test.
        models: What to draw from.
        budget: When to stop.
        relations: What to check.
        seed: The same seed finds the same, unless time is what ends the search, or there is a database.
        spec: Of the quantizer, for relations that run it in another process.
        run_settings: Likewise.
        options: For the quantizer.
        database: Where hypothesis keeps what failed, to try it first the next time; None for nowhere.
        progress: Told in a line how far it is.

    Returns:
        What was found.
    """
    trial = {"spec": spec, "settings": run_settings, "options": options or {}}
    return _Search(quantizer, models, relations, budget, trial, database, progress).run(seed)


class _Search:
    """The state of one search: what is known, and the smallest model for each fault."""

    def __init__(
        self,
        quantizer: Quantizer,
        models: st.SearchStrategy[Drawn],
        relations: Sequence[Relation],
        budget: Budget,
        trial: dict[str, Any],
        database: ExampleDatabase | None,
        progress: Progress | None,
    ) -> None:
        self._quantizer, self._models, self._budget = quantizer, models, budget
        self._relations = {relation.name: relation for relation in relations}
        self._cheap = [r for r in relations if r.quantizations == 1]
        self._costly = [r for r in relations if r.quantizations > 1]
        self._trial, self._database, self._progress = trial, database, progress
        self._findings: dict[Fault, Finding] = {}
        self._settled: set[Fault] = set()
        self._in_mind: Fault | None = None
        self._until = 0.0
        self._most_seconds = min(MOST_SECONDS_TO_SHRINK, budget.seconds * SHARE_OF_SHRINKING)
        self._drawn = 0
        self._start = time.monotonic()

    def run(self, seed: int) -> SearchResult:
        """Round after round; each has a seed of its own."""
        is_interrupted, number = False, 0
        try:
            with suppress(_TimeIsUp):
                while self._goes_on():
                    self._round(seed * _MOST_ROUNDS + number)
                    number += 1
            if len(self._settled) < self._budget.findings:
                for fault in [fault for fault in self._findings if fault not in self._settled]:
                    self._settle(fault)
        except KeyboardInterrupt:
            is_interrupted = True
        return SearchResult(self._chosen(), self._drawn, self._elapsed, is_interrupted)

    def _chosen(self) -> tuple[Finding, ...]:
        """All findings; of more than are wanted, those that a round had in mind."""
        found = list(self._findings.items())
        if len(found) > self._budget.findings:
            found = [(fault, finding) for fault, finding in found if fault in self._settled][: self._budget.findings]
        return tuple(finding for _, finding in found)

    @property
    def _elapsed(self) -> float:
        return time.monotonic() - self._start

    def _goes_on(self) -> bool:
        models_left = self._budget.models is None or self._drawn < self._budget.models
        return models_left and self._elapsed < self._budget.seconds and len(self._settled) < self._budget.findings

    def _round(self, seed: int) -> None:
        left = _ROUND if self._budget.models is None else self._budget.models - self._drawn
        self._in_mind = None
        without = [None] * (CHEAP_MODELS * len(self._costly)) if self._cheap else []
        others = st.sampled_from([*without, *self._costly] or [None])

        @settings(
            max_examples=left,
            deadline=None,
            database=self._database,
            phases=(Phase.reuse, Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
            report_multiple_bugs=False,
            print_blob=False,
        )
        @hypothesis.given(self._models, st.integers(0, MOST_SEEDS - 1), others)
        def look(drawn: Drawn, trial_seed: int, costly: Relation | None) -> None:
            self._look(drawn, trial_seed, costly)

        if self._database is None:  # with a seed, hypothesis would neither read nor write its database
            look = hypothesis.seed(seed)(look)
        with suppress(_FaultFound, _ShrunkEnough, Flaky):
            look()
        if self._in_mind is not None:
            self._settle(self._in_mind)

    def _look(self, drawn: Drawn, trial_seed: int, costly: Relation | None) -> None:
        if self._elapsed >= self._budget.seconds * SHARE_OF_DRAWING:
            raise _TimeIsUp
        if self._in_mind is None:
            self._drawn += 1
            self._tell("")
        elif self._elapsed >= self._until:
            raise _ShrunkEnough
        trial = trial_of(self._quantizer, drawn, seed=trial_seed, **self._trial)
        for relation in self._to_check(costly):
            for violation in relation.check(trial):
                fault = fault_of(relation.name, violation)
                self._note(Finding(fault, violation, trial, drawn, self._drawn, self._elapsed))
                if self._in_mind is None and fault not in self._settled:
                    self._in_mind, self._until = fault, self._elapsed + self._most_seconds
                    self._tell(f", shrinking {fault.invariant}")
                if fault == self._in_mind:
                    raise _FaultFound

    def _to_check(self, costly: Relation | None) -> list[Relation]:
        if self._in_mind is not None:
            return [self._relations[self._in_mind.relation]]
        return self._cheap if costly is None else [*self._cheap, costly]

    def _note(self, finding: Finding) -> None:
        """Keep the smallest model, and when the fault was found first."""
        known = self._findings.get(finding.fault)
        if known is None:
            self._findings[finding.fault] = finding
        elif finding.fault not in self._settled and size_of(finding.trial.model) < known.size:
            self._findings[finding.fault] = replace(finding, models=known.models, seconds=known.seconds)

    def _settle(self, fault: Fault) -> None:
        """Make the model of a finding as small as time allows; the fault is known from now on."""
        self._settled.add(fault)
        relation, left = self._relations[fault.relation], self._budget.seconds - self._elapsed
        if left > 0:
            self._tell(f", reducing {fault.invariant}")
            self._findings[fault] = smaller(self._findings[fault], relation, min(left, self._most_seconds))

    def _tell(self, what: str) -> None:
        if self._progress is not None:
            found = len(self._findings)
            self._progress(f"searching: {self._drawn} models, {found} faults{what}")
