"""What the page of a run shows of one case beside its checks. Made where the models are, and sent as text."""

from __future__ import annotations

from dataclasses import replace

from onnxq.corpus.case import Case
from onnxq.corpus.golden import golden_path, read_golden
from onnxq.corpus.golden_text import golden_text
from onnxq.corpus.run import CaseRun
from onnxq.errors import CorpusError, OnnxqError
from onnxq.pytest_plugin.records import ItemRecord
from onnxq.report import CaseOutcome, decisions_of, picture_of


def case_details(run: CaseRun, record: ItemRecord) -> str:
    """The graph, the placements and the errors of one run, as JSON of a `CaseOutcome` without checks."""
    outcome = replace(outcome_of(record), expected=_stored_placement(run.case, record.quantizer))
    if run.quantized is not None:
        try:
            outcome = replace(
                outcome,
                actual=golden_text(run.pair, "placement"),
                graph=picture_of(run.pair),
                decisions=decisions_of(run.pair),
            )
            outcome = replace(outcome, noise=run.noise)
        except OnnxqError:
            pass  # a check says what is wrong with the models; the page shows what there is
    return outcome.to_json()


def outcome_of(record: ItemRecord) -> CaseOutcome:
    """What is known about a case without its models."""
    return CaseOutcome(
        case=record.case,
        title=record.title or record.case,
        source=record.source,
        tags=record.tags,
        quantizer=record.quantizer,
        version=record.version,
        policy=record.policy,
    )


def _stored_placement(case: Case, quantizer: str) -> str | None:
    try:
        return read_golden(case, golden_path(case, quantizer, "placement"))
    except CorpusError:
        return None
