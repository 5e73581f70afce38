"""The HTML report of a corpus run: a table case x quantizer, and for each case the graph, the decisions, the errors."""

from onnxq.report.data import (
    CaseOutcome,
    CheckOutcome,
    EdgeDecision,
    EdgePicture,
    GraphPicture,
    NodePicture,
    Outcome,
    ReportHeader,
)
from onnxq.report.picture import decisions_of, picture_of

__all__ = [
    "CaseOutcome",
    "CheckOutcome",
    "EdgeDecision",
    "EdgePicture",
    "GraphPicture",
    "NodePicture",
    "Outcome",
    "ReportHeader",
    "decisions_of",
    "picture_of",
]
