"""P6: what calibration saw no value of stays float, and so does all that needs its range."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto

import onnxq
from onnxq.numerics import output_sqnr, run_model
from onnxq.pipeline import make_plan
from onnxq.placement import Placement, place, unseen_warnings, why_unseen
from text_models import text_model


def placed_without(model: ModelProto, *keys: str) -> tuple[Placement, Placement, list[str]]:
    """The placement before and after calibration saw nothing of some tensors, and the warnings."""
    plan = make_plan(model)
    unseen = why_unseen(plan.index, plan.placement, keys)
    return plan.placement, place(plan.index, unseen=unseen), unseen_warnings(plan.index, unseen)


def test_both_operands_of_a_linear_op_stay_float_and_groups_are_made_anew() -> None:
    before, after, warnings = placed_without(
        text_model("t = Transpose<perm = [0,1,3,2]>(x) a = Conv(x, w1) b = Conv(t, w2) c = Mul(a, b) y = Add(c, x)"),
        "t",
    )
    assert before.scale_groups == (("x", "t"),)
    assert before.activations == ["x", "t"]
    assert after.scale_groups == ()
    assert after.activations == ["x"]
    changed = {before.labels[e].tensor: after[e] for e in before if before[e] != after[e]}
    assert changed.keys() == {"t", "w2"}
    assert {d.reason.rule.name for d in changed.values()} == {"P6"}
    assert {d.reason.detail for d in changed.values()} == {"input 0 was empty in every sample"}
    assert warnings == ['tensor "t" was empty in every sample and stays float']


def test_an_add_stays_float_when_its_trunk_does() -> None:
    before, after, _ = placed_without(text_model("s = Relu(x) t = Conv(s, w1) u = Conv(t, w2) y = Add(u, s)"), "t")
    assert [before.labels[e].tensor for e in before.quantized] == ["s", "w1", "t", "w2", "s"]
    assert [after.labels[e].tensor for e in after.quantized] == ["s", "w1"]
    assert {d.reason.rule.name for e, d in after.items() if after.labels[e].output == "y"} == {"R9", "R5"}


def test_an_add_stays_float_when_its_skip_was_never_seen() -> None:
    _, after, _ = placed_without(text_model("s = Relu(x) t = Conv(x, w1) y = Add(t, s)"), "s")
    assert [after.labels[e].tensor for e in after.quantized] == ["x", "w1"]


def test_both_operands_of_a_product_of_activations_stay_float() -> None:
    model = text_model("a = Relu(x) b = Tanh(x) y = MatMul(a, b)", "float[16,16] x", "float[16,16] y")
    before, after, _ = placed_without(model, "b")
    assert before.activations == ["a", "b"]
    assert after.quantized == []


@pytest.mark.parametrize("skip_first", [True, False])
@pytest.mark.parametrize(("size", "quantized"), [(1e-5, False), (1e-2, True), (1.0, True)])
def test_float16_tensors_of_tiny_values_stay_float(size: float, quantized: bool, skip_first: bool) -> None:
    """No float16 scale is as small as their steps; what they are added to isn't quantized for that either."""
    inputs = "s, t" if skip_first else "t, s"
    model = text_model(
        f"s = Relu(x) t = Conv(s, w1) y = Add({inputs})", "float16[1,16,8,8] x", "float16[1,16,8,8] y", dtype=np.float16
    )
    sample = (size * np.random.default_rng(0).uniform(-1, 1, (1, 16, 8, 8))).astype(np.float16)
    result = onnxq.quantize(model, calibration_data=[{"x": sample}], calibration_method="max")
    assert bool(result.placement.quantized) == quantized
    assert ('tensor "s" holds values too small for a float16 scale and stays float' in result.warnings) != quantized
    expected, got = (run_model(m, [{"x": sample}]) for m in (model, result.model))
    assert min(output_sqnr(expected, got).values()) > 25.0


BRANCHES = """
    [pick] y = If(c) <
        then_branch = one () => (float[1,16,8,8] r) { t = Conv(x, k1) u = Conv(t, k2) r = Add(u, x) },
        else_branch = two () => (float[1,16,8,8] r) { t = Conv(x, k1) r = Relu(t) }
    >
"""


def branches() -> ModelProto:
    return text_model(BRANCHES + "z = Mul(k1, k2)", "bool c, float[1,16,8,8] x", "float[1,16,8,8] y")


@pytest.mark.parametrize("branch", ["then_branch", "else_branch"])
def test_a_body_in_which_nothing_was_seen_never_ran_and_stays_float_with_its_weights(branch: str) -> None:
    keys = {"then_branch": ["pick.then_branch/x", "pick.then_branch/t"], "else_branch": ["pick.else_branch/x"]}[branch]
    before, after, warnings = placed_without(branches(), *keys)
    assert {before.labels[e].graph for e in before.quantized} == {"pick.then_branch", "pick.else_branch"}
    assert {after.labels[e].graph for e in after.quantized} == {"pick.then_branch", "pick.else_branch"} - {
        f"pick.{branch}"
    }
    assert warnings == [f'body "pick.{branch}" never ran on the calibration data, so all of it stays float']
    details = [d.reason.detail for e, d in after.items() if after.labels[e].tensor == "k1" and not d.quantize]
    assert "input 0 is in a body that never ran in calibration" in details


def test_a_body_in_which_something_was_seen_ran() -> None:
    _, after, warnings = placed_without(branches(), "pick.then_branch/t")
    assert [after.labels[e].tensor for e in after.quantized if after.labels[e].graph.endswith("then_branch")] == [
        "x",
        "k1",
    ]
    assert warnings == ['tensor "pick.then_branch/t" was empty in every sample and stays float']
