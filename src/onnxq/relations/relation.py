"""What a relation is: something that must hold of any quantizer and any model, and can be checked."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from onnxq.invariants import Violation
from onnxq.policies import POLICIES, Policy
from onnxq.quantizers.peers import PeerQuantizer
from onnxq.relations.trial import NotApplicableError, Trial

Need = Literal["ground truth", "spec", "a model that runs"]
"""What a trial must offer beside a quantizer and a model: `Trial.adds`, `Trial.spec` unless
the quantizer has a process of its own, or a float model that nobody
may refuse: valid, without Q/DQ, and with finite float outputs in onnxruntime."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a relation found on one trial.

    Attributes:
        violations: What is wrong.
        skipped: Why the relation says nothing here; "" if it was checked.
    """

    violations: tuple[Violation, ...] = ()
    skipped: str = ""


@dataclass(frozen=True, slots=True)
class Relation:
    """A metamorphic relation (a change of the model that must change no decision), or an oracle (one result is judged).

    Attributes:
        name: Short and stable: reports and saved findings hold it.
        says: What must hold, in a sentence.
        find: Trial -> what is wrong; raises NotApplicableError where it can't be told.
        policies: The policies that it holds for.
        needs: What the trial must offer.
        quantizations: How many models are quantized to check it, that of the trial included. A search checks those of
            one on every model, and of the others one on each.
    """

    name: str
    says: str
    find: Callable[[Trial], Iterable[Violation]]
    policies: tuple[Policy, ...] = POLICIES
    needs: tuple[Need, ...] = ()
    quantizations: int = 1

    def judge(self, trial: Trial) -> Verdict:
        """Check it.

        Args:
            trial: The quantizer and the model. What is worked out is kept in it, so that checking many relations of one
                trial quantizes the model once.

        Returns:
            What is wrong, or why it isn't checked.
        """
        if trial.policy not in self.policies:
            return Verdict(skipped=f"it doesn't hold for policy {trial.policy}")
        missing = next((need for need in self.needs if not _offers(trial, need)), None)
        if missing is not None:
            return Verdict(skipped=f"it needs {missing}")
        try:
            return Verdict(tuple(self.find(trial)))
        except NotApplicableError as reason:
            return Verdict(skipped=str(reason))

    def check(self, trial: Trial) -> tuple[Violation, ...]:
        """What is wrong: the violations of `judge`."""
        return self.judge(trial).violations


def _offers(trial: Trial, need: Need) -> bool:
    match need:
        case "ground truth":
            return bool(trial.adds)
        case "spec":
            return bool(trial.spec) or isinstance(trial.quantizer, PeerQuantizer)
        case "a model that runs":
            return trial.is_sound
