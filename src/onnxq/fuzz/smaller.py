"""Makes the model of a finding smaller than hypothesis left it: by simpler blocks, then by the reducer."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from onnxq.errors import OnnxqError
from onnxq.fuzz.findings import Finding, fault_of
from onnxq.reduce import ReductionProblem, problem_of, reduce_model
from onnxq.relations import NotApplicableError, Relation, Trial
from onnxq.strategies import LabelledModel, Topology, build


def smaller(finding: Finding, relation: Relation, seconds: float) -> Finding:
    """The finding on a smaller model, and whether the quantizer does always the same on it.

    Args:
        finding: The finding.
        relation: That it violates.
        seconds: What is found by then counts.

    Returns:
        The finding with the smaller model and its samples, or as it was.
    """
    search, deadline = _Smaller(relation), time.monotonic() + seconds
    if search.is_flaky(finding):
        return replace(finding, is_flaky=True)
    finding = search.simplified(finding, deadline)
    return search.reduced(finding, deadline)


@dataclass(frozen=True)
class _Smaller:
    """What keeps the fault of a finding, judged by its relation."""

    relation: Relation

    def seen(self, finding: Finding, trial: Trial) -> Finding | None:
        """The finding on another model; None if the fault isn't there."""
        for violation in self.relation.check(trial):
            if fault_of(self.relation.name, violation) == finding.fault:
                return replace(finding, trial=trial, violation=violation)
        return None

    def is_flaky(self, finding: Finding) -> bool:
        """Whether the quantizer does something else when it gets the model twice more."""
        return any(self.seen(finding, replace(finding.trial)) is None for _ in range(2))

    def simplified(self, finding: Finding, deadline: float) -> Finding:
        """With fewer and simpler blocks, as hypothesis would make them if it had the time, or this fault in mind."""
        place = 0
        while time.monotonic() < deadline:
            source = finding.source
            if not isinstance(source, LabelledModel) or not isinstance(source.topology, Topology):
                break
            candidate = next(islice(_simpler(source.topology), place, None), None)
            if candidate is None:
                break
            drawn = build(candidate)
            found = self.seen(finding, replace(finding.trial, model=drawn.model, adds=drawn.adds))
            if found is None:
                place += 1
            else:
                finding = replace(found, source=drawn)  # what now stands at its place is next
        return finding

    def reduced(self, finding: Finding, deadline: float) -> Finding:
        """After the reducer.

        Labels of a strategy hold for the model that it drew and for no part of it, so what needs them isn't reduced.
        Nor is a model that onnxruntime doesn't run, since candidates couldn't be told from broken models.
        """
        if "ground truth" in self.relation.needs:
            return finding
        try:
            problem = problem_of(finding.trial.model, finding.trial.feeds)
        except (OnnxqError, NotApplicableError):
            return finding

        def trial_of(candidate: ReductionProblem) -> Trial:
            return replace(finding.trial, model=candidate.model, samples=candidate.feeds, adds=())

        def keeps_fault(candidate: ReductionProblem) -> bool:
            return self.seen(finding, trial_of(candidate)) is not None

        left = max(deadline - time.monotonic(), 0)
        smallest = reduce_model(problem, keeps_fault, time_limit=left).problem
        found = self.seen(finding, trial_of(smallest)) if smallest.size < problem.size else None
        return finding if found is None else replace(found, is_reduced=True)


def _simpler(topology: Topology) -> Iterator[Topology]:
    """The topology without one of its blocks, then with one decision about a block, or all of them, the simplest."""
    blocks = topology.blocks
    for place in range(len(blocks)):
        yield replace(topology, blocks=(*blocks[:place], *blocks[place + 1 :]))
    for place, block in enumerate(blocks):
        for field, value in _SIMPLEST:
            if getattr(block, field) != value and not (value == "relu" and block.activation == "none"):
                changed = replace(block, **{field: value})
                yield replace(topology, blocks=(*blocks[:place], changed, *blocks[place + 1 :]))
    plain = Topology(blocks, opset=topology.opset, channels=topology.channels)
    if plain != topology:
        yield plain


_SIMPLEST: tuple[tuple[str, Any], ...] = (
    ("activation", "none"),
    ("activation", "relu"),
    ("norm", False),
    ("swap", False),
    ("source", 0),
    ("other", 0),
    ("variant", 0),
)
"""Fields of a block, and what is simplest for each."""
