"""The HTML report of a corpus run: a table case x quantizer, and for each case the graph, the decisions, the errors."""

from onnxq.report.data import (
    CaseOutcome,
    CheckOutcome,
    ConstantPicture,
    EdgeDecision,
    EdgePicture,
    GraphPicture,
    NodePicture,
    Outcome,
    ReportHeader,
)
from onnxq.report.page import write_report
from onnxq.report.picture import decisions_of, picture_of

__all__ = [
    "CaseOutcome",
    "CheckOutcome",
    "ConstantPicture",
    "EdgeDecision",
    "EdgePicture",
    "GraphPicture",
    "NodePicture",
    "Outcome",
    "ReportHeader",
    "decisions_of",
    "picture_of",
    "write_report",
]
