"""What must hold of any quantizer and any model, as one registry of relations and oracles.

In use::

    trial = trial_of(resolve("onnxq"), labelled)
    for relation in RELATIONS:
        for violation in relation.check(trial):
            print(violation)
"""

from onnxq.relations.registry import RELATIONS, find_relation
from onnxq.relations.relation import Need, Relation, Verdict
from onnxq.relations.trial import NotApplicableError, Outcome, Trial, trial_of
from onnxq.relations.variant import Variant
from onnxq.relations.wires import Decided, Wire, decided, differences

__all__ = [
    "RELATIONS",
    "Decided",
    "Need",
    "NotApplicableError",
    "Outcome",
    "Relation",
    "Trial",
    "Variant",
    "Verdict",
    "Wire",
    "decided",
    "differences",
    "find_relation",
    "trial_of",
]
