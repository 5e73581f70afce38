"""What `onnxq inspect` shows of float and quantized models."""

import json

import numpy as np
import onnx
import pytest

import onnxq_builders
from text_models import text_model

IF = """
y = If<then_branch = t () => (float[1,16,8,8] s) { s = Conv<pads=[1,1,1,1]>(x, w1) },
       else_branch = e () => (float[1,16,8,8] r) { r = Relu(x) }>(p)
a = Conv(x, w1)
"""


def table(out: str) -> dict[str, list[str]]:
    """First cell -> the others, of every line."""
    return {line.split()[0]: line.split()[1:] for line in out.splitlines() if line.strip()}


def test_a_float_model_shows_what_would_be_made_of_it(onnxq):
    out = onnxq("inspect float.onnx").out
    assert "this is a float model; onnxq quantize would: 3 activations int8, 3 weights int8 per channel" in out
    assert "What onnxq quantize would make of it:\nop type" in out
    rows = table(out)
    assert rows["Conv"] == ["2", "2"]
    assert rows["Add"] == ["1", "1"]
    assert rows["BatchNormalization"] == ["2", "2"]
    assert rows["all"] == ["9", "3", "1", "5"]
    assert "the residual ones would have quantized inputs: 0 with none, 1 with exactly one, 0 with both" in out
    assert "skip skip" in out


def test_a_quantized_model_shows_what_is_there(onnxq, quantized):
    out = onnxq(f"inspect {quantized}").out
    assert "quantized: 3 activations int8, 3 weights int8 per channel" in out
    assert "would make" not in out
    rows = table(out)
    assert rows["op"][-2:] == ["onnxq", "would"]
    assert rows["Conv"] == ["2", "2", "2"]
    assert rows["all"] == ["9", "3", "1", "5", "4"]
    assert "the residual ones have quantized inputs: 0 with none, 1 with exactly one, 0 with both" in out
    assert "quantized: skip" in out


def test_columns_are_under_their_titles(onnxq):
    lines = onnxq("inspect float.onnx").out.splitlines()
    head, partly = (next(line for line in lines if line.startswith(word)) for word in ("op type", "Add "))
    assert partly.index("1", partly.index("1") + 1) == head.index("partly") + len("partly") - 1


def test_json_says_the_same(onnxq, quantized):
    found = json.loads(onnxq(f"inspect --json {quantized}").out)
    assert found["is_quantized"] is True
    assert found["inputs"] == {"x": "float[batch, 32, 8, 8]"}
    tally = {"quantized": 2, "partly": 0, "floats": 0}
    assert found["op_types"]["Conv"] == {"nodes": 2, "found": tally, "planned": tally}
    assert found["op_types"]["Add"]["found"] == {"quantized": 0, "partly": 1, "floats": 0}
    assert found["scales"] == {"activations int8": 3, "weights int8 per channel": 3} == found["planned_scales"]
    (add,) = found["adds"]
    assert (add["skip"], add["quantized"], add["planned"]) == ("skip", ["skip"], ["skip"])


def test_json_of_a_float_model_tells_found_from_planned(onnxq):
    found = json.loads(onnxq("inspect --json float.onnx").out)
    assert (found["is_quantized"], found["scales"]) == (False, {})
    assert found["op_types"]["Conv"]["found"] == {"quantized": 0, "partly": 0, "floats": 2}
    assert found["op_types"]["Conv"]["planned"] == {"quantized": 2, "partly": 0, "floats": 0}


def test_a_residual_add_quantized_on_both_inputs_is_counted(onnxq, both_inputs):
    out = onnxq(f"inspect {both_inputs}").out
    assert "quantized inputs: 0 with none, 0 with exactly one, 1 with both" in out
    assert table(out)["Add"] == ["1", "1", "1"]  # the second 1 is in the column "quantized" now
    assert "quantized: bn2, skip" in out


def test_a_residual_add_whose_skip_is_float_is_counted(onnxq):
    assert onnxq("quantize -q float.onnx --nodes_to_exclude add").status == 0
    assert "quantized inputs: 1 with none, 0 with exactly one, 0 with both" in onnxq("inspect float.quant.onnx").out


def test_weights_with_one_scale_are_told_from_those_with_many(onnxq):
    onnx.save(text_model("y = MatMul(x, b1)", inputs="float[2,16] x", outputs="float[2] y"), "vector.onnx")
    onnxq("quantize vector.onnx --op_types_to_quantize MatMul")
    assert "1 weights int8 per tensor" in onnxq("inspect vector.quant.onnx").out


def test_size_and_files_are_told(onnxq, tmp_path):
    model = onnx.load("float.onnx")
    onnx.save(model, "split.onnx", save_as_external_data=True, location="split.data", size_threshold=0)
    size = sum((tmp_path / name).stat().st_size for name in ("split.onnx", "split.data"))
    found = json.loads(onnxq("inspect split.onnx --json").out)
    assert found["file"] == {"path": "split.onnx", "external": ["split.data"], "bytes": size}
    assert "kB, weights in split.data\n" in onnxq("inspect split.onnx").out


def test_bodies_are_counted(onnxq):
    onnx.save(text_model(IF, inputs="float[1,16,8,8] x, bool p"), "if.onnx")
    out = onnxq("inspect if.onnx").out
    assert "4 nodes, 2 of them in 2 bodies" in out
    found = json.loads(onnxq("inspect if.onnx --json").out)
    assert (found["bodies"], found["body_nodes"], found["op_types"]["Conv"]["nodes"]) == (2, 2, 2)


def test_a_model_without_adds_says_nothing_about_them(onnxq):
    onnx.save(text_model("y = Relu(x)"), "relu.onnx")
    result = onnxq("inspect relu.onnx")
    assert (result.status, result.err) == (0, "")
    assert "Add" not in result.out
    assert "onnxq quantize would: nothing" in result.out


def test_stale_declarations_are_listed(onnxq):
    onnx.save(onnxq_builders.stale_rank0_output(), "stale.onnx")
    out = onnxq("inspect stale.onnx").out
    assert "Preparation would change:" in out
    assert "declared float[]" in out


def test_missing_names_are_only_counted(onnxq):
    model = onnx.load("float.onnx")
    for node in model.graph.node:
        node.name = ""
    onnx.save(model, "unnamed.onnx")
    listed = "Preparation would change:\n    9 nodes without a name of their own: named\n"
    assert listed in onnxq("inspect unnamed.onnx").out


def test_adds_of_a_constant_are_only_counted(onnxq):
    onnx.save(onnxq_builders.vit(), "vit.onnx")
    told = "4 Adds of two computed tensors, 0 of them residual (15 more add a constant):"
    assert told in onnxq("inspect vit.onnx").out


def test_zero_points_are_told(onnxq, quantized):
    model = onnx.load(quantized)
    names = {n.input[2] for n in model.graph.node if n.op_type == "QuantizeLinear" and n.input[0] == "x"}
    for tensor in model.graph.initializer:
        if tensor.name in names:
            tensor.CopyFrom(onnx.numpy_helper.from_array(np.array(3, np.int8), tensor.name))
    onnx.save(model, "shifted.onnx")
    assert "int8 with zero point" in onnxq("inspect shifted.onnx").out


def test_names_stay_on_their_line(onnxq):
    model = text_model("y = Relu(x)")
    model.graph.input[0].name = model.graph.node[0].input[0] = "x\n\x1b[31mred"
    onnx.save(model, "hostile.onnx")
    out = onnxq("inspect hostile.onnx").out
    assert r"x\n\x1b[31mred" in out
    assert "\x1b" not in out


@pytest.mark.parametrize(("words", "said"), [("missing.onnx", "missing.onnx"), ("float.onnx --node add", "--node")])
def test_wrong_input_is_one_line(onnxq, words, said):
    result = onnxq(f"inspect {words}")
    assert (result.status, result.out) == (2, "")
    assert said in result.err
    assert result.err.count("\n") == 1
