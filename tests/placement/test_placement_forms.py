"""The text and JSON forms of a placement, and the changes that calibration may make to one."""

from __future__ import annotations

import json

from onnxq.placement import Placement
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
    found = json.loads(block().to_json())
    assert found["schema"] == 1
    records = found["edges"]
    assert len(records) == len(block())
    skip = records[-1]
    assert (skip["node"], skip["op_type"], skip["input"], skip["tensor"]) == ("add", "Add", 1, "s")
    assert (skip["quantize"], skip["rule"], skip["axis"], skip["graph"]) == (True, "R5", None, "")
    assert (skip["position"], skip["looked_at"]) == (2, ["a"])
    assert [r["tensor"] for r in records if r["quantize"]] == ["s", "w1", "s"]


def test_json_says_what_was_found_out_about_adds() -> None:
    (add,) = json.loads(block().to_json())["adds"]
    assert (add["node"], add["rule"], add["trunk"], add["skip"], add["fork"]) == ("add", "R5", 0, 1, "s")
    assert add["inputs"] == [
        {"backbone": "a", "walk_stops_at": None, "needed_by_other": False, "linear_ops": None, "nodes": None},
        {
            "backbone": None,
            "walk_stops_at": 'the input "x" of the graph',
            "needed_by_other": False,
            "linear_ops": None,
            "nodes": None,
        },
    ]


def test_json_says_how_long_the_compared_branches_are() -> None:
    model = text_model("a = Conv(x, w1) r = Relu(a) b = Conv(r, w2) s = Conv(x, w3) y = Add(s, b)")
    (add,) = json.loads(placed(model).to_json())["adds"]
    assert (add["rule"], add["trunk"], add["fork"]) == ("R6", 1, None)
    assert [(i["backbone"], i["linear_ops"], i["nodes"]) for i in add["inputs"]] == [("s", 1, 1), ("b", 2, 3)]


def test_a_part_has_its_edges_and_its_adds() -> None:
    whole = block()
    part = whole.only({edge for edge in whole if whole.labels[edge].node == "a"}, set())
    assert [part.labels[edge].tensor for edge in part] == ["s", "w1", "b1"]
    assert part.residuals == ()
    assert whole.only(set(whole), set()) == whole


def test_an_empty_placement_has_an_empty_text() -> None:
    placement = Placement({}, {}, (), ())
    assert placement.to_text() == ""
    assert json.loads(placement.to_json()) == {"schema": 1, "edges": [], "outputs": [], "adds": []}


def test_activations_are_each_named_once_and_weights_not() -> None:
    assert block().activations == ["s"]


def test_the_same_model_gives_the_same_text() -> None:
    assert block().to_text(explain=True) == block().to_text(explain=True)
