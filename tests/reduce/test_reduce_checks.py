"""Checks of a quantizer's result as predicates, and that a reduction keeps to one cause."""

from __future__ import annotations

import pytest
from onnx import ModelProto
from reductions import op_counts, op_types, problem

import faulty_quantizers as faulty
from onnxq.errors import PeerError, UsageError
from onnxq.quantizers import OnnxqQuantizer
from onnxq.reduce import REDUCIBLE, check_predicate, reduce_model
from onnxq.reduce.checks import cause_of, without_names
from onnxq_builders.registry import build
from text_models import text_model

RESIDUAL = "a = Conv(x, w) r = Relu(a) c = Conv(r, w2) s = Add(c, x) y = Relu(s)"


def residual() -> ModelProto:
    return text_model(RESIDUAL, w2=(16, 16, 3, 3))


def quantizer(function):
    return faulty.quantizer(function)


both_inputs = quantizer(faulty.choosing(faulty.both_inputs_of_adds))


def test_checks_of_what_a_case_states_are_no_predicates() -> None:
    assert "residual-skip-only" in REDUCIBLE
    assert "quantizes" in REDUCIBLE
    assert not {"quantized-add-inputs", "quantized-inputs", "outputs", "raises"} & set(REDUCIBLE)


def test_a_violation_is_kept() -> None:
    whole = problem(residual())
    predicate, finding = check_predicate(whole, both_inputs, "residual-skip-only")
    assert predicate(whole)
    assert 'Add "s"' in finding.problems[0]
    result = reduce_model(whole, predicate).problem
    assert predicate(result)
    assert op_counts(result)["Add"] == 1
    assert result.size.nodes < whole.size.nodes


def test_a_right_result_is_no_violation() -> None:
    whole = problem(residual())
    predicate, _ = check_predicate(whole, both_inputs, "residual-skip-only")
    assert not predicate(problem(text_model("a = Conv(x, w) y = Relu(a)")))


def test_what_doesnt_violate_the_check_is_refused() -> None:
    with pytest.raises(UsageError, match=r"doesn't violate residual-skip-only, so there is nothing to reduce$"):
        check_predicate(problem(residual()), OnnxqQuantizer("tensorrt"), "residual-skip-only")


def test_other_checks_that_are_violated_are_named() -> None:
    with pytest.raises(UsageError, match=r"nothing to reduce; it violates .*residual-skip-only"):
        check_predicate(problem(residual()), both_inputs, "runs")


def test_a_crash_is_reduced_by_its_own_name() -> None:
    crashing = quantizer(faulty.crashing)
    with pytest.raises(UsageError, match=r"doesn't quantize the model at all \(KeyError.*--check quantizes"):
        check_predicate(problem(residual()), crashing, "runs")
    predicate, finding = check_predicate(problem(residual()), crashing, "quantizes")
    assert reduce_model(problem(residual()), predicate).after.nodes == 1
    assert finding.causes == ("KeyError: #",)


@pytest.mark.parametrize("name", ["residual-skip", "nonsense"])
def test_an_unknown_check_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match=f'"{name}"'):
        check_predicate(problem(residual()), both_inputs, name)


def two_crashes(model: ModelProto, feeds: object, options: object) -> ModelProto:
    """One crash of models with a Sigmoid, and another one of all the rest."""
    if any(node.op_type == "Sigmoid" for node in model.graph.node):
        raise ValueError("no rule for this activation")
    raise ValueError("no convolution is left")


def test_a_crash_doesnt_slip_into_another_one() -> None:
    whole = problem(text_model("a = Conv(x, w) b = Sigmoid(a) y = Relu(b)"))
    predicate, _ = check_predicate(whole, quantizer(two_crashes), "quantizes")
    assert op_types(reduce_model(whole, predicate).problem) == ["Sigmoid"]


def test_a_wrong_trunk_doesnt_slip_into_both_inputs() -> None:
    def trunk_or_both(model: ModelProto):
        edges = list(faulty.both_inputs_of_adds(model))
        return edges if sum(node.op_type == "Conv" for node in model.graph.node) < 2 else edges[:1]

    whole = problem(residual())
    predicate, _ = check_predicate(whole, quantizer(faulty.choosing(trunk_or_both)), "residual-skip-only")
    result = reduce_model(whole, predicate).problem
    assert op_counts(result)["Conv"] == 2


def test_a_candidate_without_a_result_doesnt_count() -> None:
    """Of a model without the second Conv there is no result, which is another fault."""

    def crash_when_small(model: ModelProto, feeds: object, options: object) -> ModelProto:
        if sum(node.op_type == "Conv" for node in model.graph.node) < 2:
            raise KeyError("conv")
        return faulty.with_pairs(model, faulty.both_inputs_of_adds(model))

    whole = problem(residual())
    predicate, _ = check_predicate(whole, quantizer(crash_when_small), "residual-skip-only")
    assert op_counts(reduce_model(whole, predicate).problem)["Conv"] == 2


def test_the_quantizer_gets_copies() -> None:
    """One that writes into what it is given leaves the problem as it is."""

    def vandal(model: ModelProto, feeds, options: object) -> ModelProto:
        result = faulty.with_pairs(model, faulty.both_inputs_of_adds(model))
        model.Clear()
        feeds.clear()
        return result

    whole = problem(residual(), samples=2)
    before = whole.digest
    predicate, _ = check_predicate(whole, quantizer(vandal), "residual-skip-only")
    result = reduce_model(whole, predicate).problem
    assert problem(residual(), samples=2).digest == before
    assert len(whole.model.graph.node) == 5
    assert predicate(result)


def test_options_reach_the_quantizer_and_data_options_dont() -> None:
    seen: list[dict[str, object]] = []

    def listening(model: ModelProto, feeds: object, options: dict[str, object]) -> ModelProto:
        seen.append(dict(options))
        raise KeyError("x")

    check_predicate(problem(residual()), quantizer(listening), "quantizes", {"seed": 3, "op_types_to_exclude": ["Add"]})
    assert seen == [{"op_types_to_exclude": ["Add"]}]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('node "conv1" has 3 inputs', 'node "n0" has 1 inputs'),
        ("tensor 'a b' is unknown", "tensor 't' is unknown"),
        ("node 'a' can't have an input 'b'", "node 'x' can't have an input 'y z'"),
        ("shape [1, 2, 3] of layer/conv", "shape [1] of stage_2"),
        ("first line\nKeyError: 'a'\n", "another\nKeyError: 'b'"),
    ],
)
def test_a_cause_has_no_names_and_no_numbers(one: str, other: str) -> None:
    assert without_names(one) == without_names(other)


def test_other_causes_are_others() -> None:
    assert cause_of(KeyError("a")) == cause_of(KeyError("b"))
    assert cause_of(KeyError("a")) != cause_of(ValueError("a"))
    assert cause_of(ValueError("no rule")) != cause_of(ValueError("no scale"))


def test_a_hang_of_a_peer_is_no_crash_and_no_other_crash() -> None:
    said = [
        "peer ended with exit status 1: KeyError: 'a'",
        "peer ended with exit status 2: KeyError: 'node b'",
        "peer ended with exit status 1: ValueError: 'a'",
        "peer was killed by SIGSEGV: KeyError: 'a'",
        "peer didn't end within 300 s and was killed: KeyError: 'a'",
    ]
    causes = [cause_of(PeerError(text, "KeyError: 'a'")) for text in said]
    assert causes[0] == causes[1]
    assert len(set(causes)) == 4


@pytest.mark.parametrize(
    ("function", "check", "most"),
    [(faulty.choosing(faulty.both_inputs_of_adds), "residual-skip-only", 12), (faulty.crashing, "quantizes", 1)],
)
def test_a_resnet_50_reduces_to_a_few_nodes(function, check: str, most: int) -> None:
    whole = problem(build("resnet.bottleneck", blocks=[3, 4, 6, 3], width=16))
    assert whole.size.nodes > 170
    predicate, _ = check_predicate(whole, quantizer(function), check)
    found = reduce_model(whole, predicate)
    assert found.after.nodes <= most
    assert found.after.elements < 100
    assert found.tried < 200
    assert predicate(found.problem)
    assert found.stopped == "done"


def test_a_resnext_with_two_samples_reduces_as_well() -> None:
    whole = problem(build("resnext.basic", blocks=[3, 4, 6, 3]), samples=2)
    predicate, _ = check_predicate(whole, both_inputs, "residual-skip-only")
    found = reduce_model(whole, predicate)
    assert found.after.nodes <= 12
    assert len(found.problem.feeds) == 2
