"""Searching for models that a quantizer gets wrong.

In use::

    result = search(resolve("onnxq"), models_of(), budget=Budget(seconds=60))
    for finding in result.findings:
        print(finding.violation)

What can be wrong says `RELATIONS`, the registry of `onnxq.relations`, which is here too.
"""

from onnxq.fuzz.findings import Fault, Finding, save_finding
from onnxq.fuzz.search import Budget, SearchResult, search
from onnxq.fuzz.sources import SOURCES, models_of
from onnxq.fuzz.wording import finding_text
from onnxq.relations import RELATIONS, NotApplicableError, Relation, Trial, Verdict, find_relation, trial_of

__all__ = [
    "RELATIONS",
    "SOURCES",
    "Budget",
    "Fault",
    "Finding",
    "NotApplicableError",
    "Relation",
    "SearchResult",
    "Trial",
    "Verdict",
    "find_relation",
    "finding_text",
    "models_of",
    "save_finding",
    "search",
    "trial_of",
]
