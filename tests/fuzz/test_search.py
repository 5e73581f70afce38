"""The search finds each fault of a quantizer, makes it small, goes on past it, and writes it down as a case."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import ModelProto

import faulty_quantizers as faulty
from onnxq.corpus.case import load_case
from onnxq.corpus.outcomes import outcomes
from onnxq.errors import UsageError
from onnxq.fuzz import SOURCES, Budget, Finding, SearchResult, find_relation, models_of, save_finding, search
from onnxq.model_io import why_invalid
from onnxq.numerics import run_model
from onnxq.quantizers import OnnxqQuantizer, Quantizer
from onnxq.strategies import residual_models

BOTH = faulty.quantizer(faulty.choosing(faulty.both_inputs_of_adds))
BY_OPERAND = faulty.quantizer(faulty.choosing(faulty.input_0_of_adds))
CRASHING = faulty.quantizer(faulty.crashing)


def found_in(
    quantizer: Quantizer, *relations: str, models: int = 60, source: str = "residual", **budget: Any
) -> SearchResult:
    checked = [find_relation(name) for name in relations] if relations else None
    settings = {} if checked is None else {"relations": checked}
    return search(quantizer, models_of([source]), budget=Budget(models=models, **budget), **settings)


def only(result: SearchResult) -> Finding:
    assert len(result.findings) == 1
    return result.findings[0]


def test_nothing_is_found_in_onnxq() -> None:
    result = search(OnnxqQuantizer(), models_of(), budget=Budget(models=40))
    assert not result.findings, "\n".join(str(finding.violation) for finding in result.findings)
    assert result.models == 40


def test_both_inputs_of_an_add_are_found_and_small() -> None:
    result = found_in(BOTH, "ground-truth", models=30)
    mixed = [f for f in result.findings if f.fault.cause.endswith("skip and trunk")]
    assert mixed
    assert max(f.size[0] for f in mixed) <= 8
    assert all(f.drawn.startswith("build(Topology(") for f in mixed)


def test_a_finding_hides_no_other() -> None:
    def two_faults(model: ModelProto, feeds: Any, options: Any) -> ModelProto:
        pairs = faulty.with_pairs(model, [*faulty.both_inputs_of_adds(model)])
        return faulty.with_pairs(pairs, [(0, 0)], scale=100.0, prefix="coarse")

    result = found_in(faulty.quantizer(two_faults), "ground-truth", "close-to-float", models=30)
    assert {f.fault.relation for f in result.findings} == {"ground-truth", "close-to-float"}
    assert len({f.fault for f in result.findings}) == len(result.findings)


def test_a_crash_is_told_by_its_place_and_not_by_its_message() -> None:
    finding = only(found_in(CRASHING, "no-crash", "runs"))
    assert finding.fault == ("no-crash", "no-crash", "KeyError in faulty_quantizers.py, crashing")
    assert finding.size[0] == 1


def test_the_order_of_operands_is_found_and_reduced() -> None:
    finding = next(f for f in found_in(BY_OPERAND, "swapped-operands", models=80).findings)
    assert finding.fault.relation == "swapped-operands"
    assert finding.size[0] <= 2
    assert find_relation("swapped-operands").check(finding.trial)
    assert finding.is_reduced


def test_what_was_found_is_a_sound_model_and_still_wrong() -> None:
    for finding in found_in(BOTH, "ground-truth", "invariants", models=30, findings=4).findings:
        assert not why_invalid(finding.trial.model)
        run_model(finding.trial.model, finding.trial.feeds)
        assert str(finding.violation) in map(str, find_relation(finding.fault.relation).check(finding.trial))


def test_a_fault_that_comes_and_goes_is_marked() -> None:
    result = found_in(faulty.quantizer(faulty.counting()), "ground-truth", models=30)
    assert any(finding.is_flaky for finding in result.findings)


def test_the_same_search_finds_the_same() -> None:
    first, again = (found_in(BOTH, "ground-truth") for _ in range(2))
    assert [(f.fault, f.drawn, f.models) for f in first.findings] == [
        (f.fault, f.drawn, f.models) for f in again.findings
    ]
    other = search(BOTH, models_of(["residual"]), budget=Budget(models=60), seed=1)
    assert [f.drawn for f in other.findings] != [f.drawn for f in first.findings]


def test_a_budget_ends_the_search() -> None:
    assert only(found_in(BOTH, "ground-truth", findings=1)).size[0] <= 5
    assert found_in(OnnxqQuantizer(), "runs", models=7).models == 7
    assert found_in(OnnxqQuantizer(), "runs", models=10**6, seconds=1.0).seconds < 20


def test_ctrl_c_ends_the_search_with_what_it_has() -> None:
    calls = []

    def interrupted(model: ModelProto, feeds: Any, options: Any) -> ModelProto:
        calls.append(model)
        if len(calls) > 200:
            raise KeyboardInterrupt
        return faulty.with_pairs(model, faulty.both_inputs_of_adds(model))

    result = found_in(faulty.quantizer(interrupted), "ground-truth", models=10**6)
    assert result.is_interrupted
    assert result.findings


@pytest.mark.parametrize("name", SOURCES)
def test_every_source_can_be_searched(name: str) -> None:
    assert found_in(OnnxqQuantizer(), models=5, source=name).models == 5


def test_an_unknown_source_says_what_there_is() -> None:
    with pytest.raises(UsageError, match='did you mean "residual"'):
        models_of(["residuals"])


class TestSavedCases:
    def statuses(self, case_file: Path, quantizer: Quantizer) -> dict[str, str]:
        return {outcome.check: outcome.status for outcome in outcomes(load_case(case_file), quantizer)}

    @pytest.mark.parametrize(
        ("quantizer", "relation", "check"),
        [
            (BOTH, "ground-truth", "quantized-add-inputs"),
            (BOTH, "invariants", "residual-skip-only"),
            (CRASHING, "no-crash", "quantizes"),
            (BY_OPERAND, "swapped-operands", "relations"),
            (faulty.quantizer(faulty.not_running), "runs", "runs"),
            (faulty.quantizer(faulty.too_coarse), "close-to-float", "relations"),
            (faulty.quantizer(faulty.writing_in_place), "input-unchanged", "relations"),
        ],
        ids=lambda value: value if isinstance(value, str) else "",
    )
    def test_fail_where_the_fault_is_and_pass_elsewhere(
        self, quantizer: Quantizer, relation: str, check: str, tmp_path: Path
    ) -> None:
        finding = found_in(quantizer, relation, findings=1).findings[0]
        case_file = save_finding(finding, tmp_path)
        assert self.statuses(case_file, quantizer)[check] == "failed"
        assert set(self.statuses(case_file, OnnxqQuantizer()).values()) == {"passed"}

    def test_say_what_was_seen(self, tmp_path: Path) -> None:
        finding = found_in(BY_OPERAND, "swapped-operands", findings=1).findings[0]
        text = save_finding(finding, tmp_path).read_text()
        assert "# relation: swapped-operands" in text
        assert f"# found:    {finding.violation.found}" in text
        assert finding.drawn.replace('"', '\\"') in text

    def test_are_written_once(self, tmp_path: Path) -> None:
        finding = found_in(BOTH, "ground-truth", findings=1).findings[0]
        first = save_finding(finding, tmp_path)
        first.write_text(first.read_text() + "# read\n")
        assert save_finding(finding, tmp_path) == first
        assert first.read_text().endswith("# read\n")

    def test_need_a_folder_that_can_be_written_to(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        finding = found_in(CRASHING, "no-crash", findings=1).findings[0]
        with pytest.raises(UsageError, match="file"):
            save_finding(finding, tmp_path / "file")


class TestBigModels:
    """Of a model that no strategy could have drawn smaller, the reducer finds the part that matters."""

    @pytest.mark.parametrize("fault", [faulty.too_coarse, faulty.crashing], ids=["coarse", "crash"])
    def test_are_cut(self, fault: Callable[..., ModelProto]) -> None:
        models = residual_models(max_blocks=8, node_names=["unique"]).filter(lambda m: len(m.model.graph.node) > 20)
        relations = [find_relation(name) for name in ("no-crash", "close-to-float")]
        result = search(faulty.quantizer(fault), models, budget=Budget(models=40, findings=1), relations=relations)
        assert only(result).size[0] <= 2
        onnx.checker.check_model(only(result).trial.model, full_check=True)
