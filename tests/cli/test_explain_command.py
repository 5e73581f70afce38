"""What `onnxq explain` says, and which part of it people can ask for."""

import json

import onnx
import pytest

from text_models import text_model

TITLES = ["upsample", "skip", "conv1", "bn1", "relu1", "conv2", "bn2", "add", "relu"]


def blocks(out: str) -> list[list[str]]:
    return [block.splitlines() for block in out.rstrip("\n").split("\n\n")]


def test_edges_stand_below_their_node(onnxq):
    *nodes, totals = blocks(onnxq("explain float.onnx").out)
    assert [block[0].split()[0] for block in nodes] == TITLES
    assert nodes[2][0] == "conv1 (Conv), node 2"
    assert [line.split()[:4] for line in nodes[2][1:]] == [
        ["input", "0", "skip", "int8"],
        ["input", "1", "conv1_weight", "int8"],
    ]
    assert totals == ["7 of 22 float edges quantized", "rules: 13 NOT_SELECTED, 7 P1, 2 R5"]


def test_columns_of_a_node_are_aligned(onnxq):
    (bn, _) = blocks(onnxq("explain float.onnx --node bn1").out)
    assert len({line.index("float") for line in bn[1:]}) == 1


def test_a_line_says_what_its_rule_says_and_what_it_saw(onnxq):
    out = onnxq("explain float.onnx --node conv1").out
    assert "P1  input or weight of a linear op: data\n" in out


def test_an_add_tells_backbones_trunk_skip_and_fork(onnxq):
    (add, totals) = blocks(onnxq("explain float.onnx --node add").out)
    assert [line.split()[:5] for line in add[1:3]] == [
        ["input", "0", "bn2", "float", "R5"],
        ["input", "1", "skip", "int8", "R5"],
    ]
    assert add[1].endswith("; this is the trunk")
    assert add[2].endswith("; this is the skip")
    assert add[3] == (
        '    input 0 has backbone "conv2", which can run last; input 1 has backbone "upsample", which input 0 needs; '
        "so the trunk is input 0, the skip is input 1"
    )
    assert add[4] == '    the branches part at "skip"'
    assert totals[1] == "shown: 2 of 22 edges"


def test_an_add_whose_convolution_stays_float_still_tells_what_was_found(onnxq):
    out = onnxq("explain float.onnx --node add --nodes_to_exclude conv2").out
    assert "R9" in out
    assert 'input 0 has backbone "conv2", which can run last' in out


@pytest.mark.parametrize(
    ("node", "titles"),
    [
        ("bn1", ["bn1"]),
        ("bn.", ["bn1", "bn2"]),
        ("conv1|add", ["conv1", "add"]),
        ("on", None),
    ],
)
def test_nodes_by_name_or_pattern(onnxq, node, titles):
    result = onnxq(f"explain float.onnx --node {node}")
    if titles is None:
        assert result.status == 2
    else:
        assert [block[0].split()[0] for block in blocks(result.out)[:-1]] == titles


def test_a_name_is_no_pattern_where_a_node_has_it(onnxq):
    model = text_model("a.c = Relu(x) abc = Relu(x) y = Add(a.c, abc)".replace("a.c", "adc"))
    model.graph.node[0].name, model.graph.node[1].name = "a.c(", "abc("
    onnx.save(model, "dots.onnx")
    assert [block[0] for block in blocks(onnxq("explain dots.onnx --node a.c(").out)[:-1]] == ["a.c( (Relu), node 0"]


def test_a_node_by_its_output(onnxq):
    model = onnx.load("float.onnx")
    add = next(node for node in model.graph.node if node.op_type == "Add")
    add.output[0] = next(node for node in model.graph.node if node.name == "relu").input[0] = "sum"
    onnx.save(model, "renamed.onnx")
    assert onnxq("explain renamed.onnx --node sum").out == onnxq("explain renamed.onnx --node add").out


def test_edges_of_one_tensor(onnxq):
    (conv, add, _) = blocks(onnxq("explain float.onnx --tensor skip").out)
    assert [len(conv), len(add)] == [2, 4]
    assert "skip" in conv[1]
    (add, totals) = blocks(onnxq("explain float.onnx --tensor skip --node add").out)
    assert totals[0] == "1 of 1 float edge quantized"


def test_json_has_the_same_edges_and_the_add(onnxq):
    found = json.loads(onnxq("explain float.onnx --json --node add").out)
    assert [(e["tensor"], e["quantize"], e["rule"]) for e in found["edges"]] == [
        ("bn2", False, "R5"),
        ("skip", True, "R5"),
    ]
    assert found["edges"][0]["looked_at"] == ["conv2", "upsample"]
    (add,) = found["adds"]
    assert [one["backbone"] for one in add["inputs"]] == ["conv2", "upsample"]
    assert [one["needed_by_other"] for one in add["inputs"]] == [False, True]


def test_selections_count(onnxq):
    assert "0 of 22 float edges quantized" in onnxq("explain float.onnx --nodes_to_exclude .*").out


def test_it_writes_nothing(onnxq, tmp_path):
    assert onnxq("explain float.onnx").status == 0
    assert [p.name for p in tmp_path.iterdir()] == ["float.onnx"]


def test_a_model_without_adds(onnxq):
    onnx.save(text_model("y = Relu(x)"), "relu.onnx")
    assert blocks(onnxq("explain relu.onnx").out)[-1] == ["0 of 1 float edge quantized", "rules: 1 NOT_SELECTED"]
    assert json.loads(onnxq("explain relu.onnx --json").out)["adds"] == []


def test_hostile_names_stay_on_their_line(onnxq):
    model = onnx.load("float.onnx")
    conv = next(node for node in model.graph.node if node.name == "conv2")
    conv.name = "conv\n\x1b[2J\u202e"
    onnx.save(model, "hostile.onnx")
    out = onnxq("explain hostile.onnx").out
    assert r'has backbone "conv\n\x1b[2J\u202e"' in out
    assert not {"\x1b", "\u202e"} & set(out)
    assert len(out.splitlines()) == len(onnxq("explain float.onnx").out.splitlines())


def test_long_names_are_whole(onnxq):
    model = onnx.load("float.onnx")
    next(node for node in model.graph.node if node.name == "conv2").name = "n" * 500
    onnx.save(model, "long.onnx")
    assert f"{'n' * 500} (Conv), node 5" in onnxq("explain long.onnx").out.splitlines()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("missing.onnx", ["missing.onnx"]),
        ("float.onnx --node con", ['"con"', '"conv1"']),
        ("float.onnx --node conv[", ['"conv["', '"conv1"', "no regular expression"]),
        ("float.onnx --tensor upsample_weigh", ['"upsample_weigh"', '"upsample_weight"']),
        ("float.onnx --tensor x --node add", ['"x"', '"add"']),
        ("float.onnx --nodes add", ["--nodes"]),
        ("--node add", ["name one model"]),
    ],
)
def test_wrong_input_is_one_line(onnxq, words, said):
    result = onnxq(f"explain {words}")
    assert (result.status, result.out) == (2, "")
    assert all(word in result.err for word in said)
    assert result.err.count("\n") == 1


def test_a_node_without_a_float_input_is_told_from_one_that_is_not_there(onnxq):
    model = text_model("s = Shape(x) t = Cast<to=1>(s) y = Expand(t, s)", outputs="float[a,b,c,d] y")
    onnx.save(model, "shape.onnx")
    assert onnxq("explain shape.onnx --node s").status == 0
    assert "no float tensor goes into" in onnxq("explain shape.onnx --node t").err
