"""The text and JSON forms of a placement, and the changes that calibration may make to one."""

from __future__ import annotations

import json

from onnxq.placement import Placement, keep_float
from text_models import placed, text_model

BLOCK = "s = Relu(x) a = Conv(s, w1, b1) [add] y = Add(a, s)"


def block() -> Placement:
    return placed(text_model(BLOCK))


def test_text_has_one_line_an_edge() -> None:
    assert [line.split() for line in block().to_text().splitlines()] == [
        ["s", "(Relu)", "input", "0", "x", "float", "NOT_SELECTED"],
        ["a", "(Conv)", "input", "0", "s", "int8", "P1"],
        ["a", "(Conv)", "input", "1", "w1", "int8", "per", "axis", "0", "P1"],
        ["a", "(Conv)", "input", "2", "b1", "float", "P1"],
        ["add", "(Add)", "input", "0", "a", "float", "R5"],
        ["add", "(Add)", "input", "1", "s", "int8", "R5"],
    ]


def test_text_is_aligned_and_ends_with_a_line_break() -> None:
    text = block().to_text()
    assert text.endswith("R5\n")
    assert len({line.index("input ") for line in text.splitlines()}) == 1
    assert not any(line != line.rstrip() for line in text.splitlines())


def test_explaining_adds_what_the_rules_saw() -> None:
    plain, explained = block().to_text().splitlines(), block().to_text(explain=True).splitlines()
    assert len(plain) == len(explained)
    assert all(long.startswith(short) for short, long in zip(plain, explained, strict=True))
    assert any("run last" in line for line in explained)


def test_json_says_the_same() -> None:
    records = json.loads(block().to_json())
    assert len(records) == len(block())
    skip = records[-1]
    assert (skip["node"], skip["op_type"], skip["input"], skip["tensor"]) == ("add", "Add", 1, "s")
    assert (skip["quantize"], skip["rule"], skip["axis"], skip["graph"]) == (True, "R5", None, "")
    assert skip["looked_at"] == [1]
    assert [r["tensor"] for r in records if r["quantize"]] == ["s", "w1", "s"]


def test_an_empty_placement_has_an_empty_text() -> None:
    placement = Placement({}, {}, (), ())
    assert placement.to_text() == ""
    assert json.loads(placement.to_json()) == []


def test_activations_are_each_named_once_and_weights_not() -> None:
    assert block().activations == ["s"]


def test_a_tensor_that_calibration_never_saw_is_taken_out_everywhere() -> None:
    before = placed(
        text_model("t = Transpose<perm = [0,1,3,2]>(x) a = Conv(x, w1) b = Conv(t, w2) c = Mul(a, b) y = Add(c, x)")
    )
    assert before.scale_groups == (("x", "t"),)
    after = keep_float(before, frozenset({"t"}), "it was empty in every sample")
    assert after.scale_groups == ()
    assert "t" not in after.activations
    changed = [e for e in before if before[e] != after[e]]
    assert {before.labels[e].tensor for e in changed} >= {"t"}
    assert {after[e].reason.rule.name for e in changed if before.labels[e].tensor == "t"} == {"P6"}
    assert before.activations == ["x", "t"]


def test_the_same_model_gives_the_same_text() -> None:
    assert block().to_text(explain=True) == block().to_text(explain=True)
