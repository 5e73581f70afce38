"""What `onnxq diff` finds between models, placements and goldens."""

import json
import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from text_models import text_model


def saved(model: onnx.ModelProto, name: str) -> str:
    onnx.save(model, name)
    return name


def changed(path: str, name: str, change) -> str:
    """A copy of a model in which `change` was done to the node that quantizes, or the initializers."""
    model = onnx.load(path)
    change(model)
    return saved(model, name)


def set_parameter(model: onnx.ModelProto, tensor: str, slot: int, change) -> None:
    """Change scale (1) or zero point (2) of the pairs of a tensor."""
    names = {n.input[slot] for n in model.graph.node if n.op_type == "QuantizeLinear" and n.input[0] == tensor}
    for stored in model.graph.initializer:
        if stored.name in names:
            stored.CopyFrom(numpy_helper.from_array(change(numpy_helper.to_array(stored)), stored.name))


def drop_pair(model: onnx.ModelProto, op_type: str, slot: int) -> None:
    """Let nodes of a type read an input without its pair."""
    makers = {output: node for node in model.graph.node for output in node.output}
    for node in model.graph.node:
        if node.op_type == op_type:
            node.input[slot] = makers[makers[node.input[slot]].input[0]].input[0]


def test_a_model_is_the_same_as_itself(onnxq, quantized):
    result = onnxq(f"diff {quantized} {quantized}")
    assert (result.status, result.err) == (0, "")
    assert result.out.splitlines() == [
        "a: quantized.onnx (quantized model, 7 of 22 edges quantized)",
        "b: quantized.onnx (quantized model, 7 of 22 edges quantized)",
        "",
        "no difference; 7 edges quantized alike, scales within 0 % (tolerance 5 %)",
    ]


def test_a_float_model_has_nothing_quantized(onnxq, quantized):
    result = onnxq(f"diff float.onnx {quantized}")
    assert result.status == 1
    assert result.out.count("  + ") == 7
    assert 'tensor "skip"\n  + Conv "conv1" input 0: int8' in result.out
    assert result.out.endswith("\n7 edges quantized only in b; 0 edges quantized alike\n")


def test_swapping_the_two_mirrors_the_result(onnxq, quantized):
    mirrored = onnxq(f"diff {quantized} float.onnx")
    assert mirrored.status == 1
    assert mirrored.out.count("  - ") == 7
    assert "7 edges quantized only in a" in mirrored.out


def test_two_float_models_are_the_same_with_a_warning(onnxq):
    result = onnxq("diff float.onnx float.onnx")
    assert (result.status, result.err) == (0, "onnxq: warning: neither has anything quantized\n")


def test_an_edge_that_only_one_has(onnxq, quantized):
    changed(quantized, "less.onnx", lambda m: drop_pair(m, "Add", 1))
    out = onnxq(f"diff {quantized} less.onnx").out
    assert 'tensor "skip"\n  - Add "add" input 1: int8, scale' in out
    assert "1 edge quantized only in a; 6 edges quantized alike" in out


@pytest.mark.parametrize(("factor", "tolerance", "status"), [(1.04, "0.05", 0), (1.06, "0.05", 1), (1.06, "0.1", 0)])
def test_scales_have_a_tolerance(onnxq, quantized, factor, tolerance, status):
    changed(quantized, "other.onnx", lambda m: set_parameter(m, "x", 1, lambda s: (s * factor).astype(s.dtype)))
    for a, b in ((quantized, "other.onnx"), ("other.onnx", quantized)):
        result = onnxq(f"diff {a} {b} --scale_tolerance {tolerance}")
        assert result.status == status
        assert ("scales differ by 5.66 %" in result.out) == bool(status)


def test_one_scale_of_a_channel_counts(onnxq, quantized):
    def double_last(scale):
        made = scale.copy()
        made[-1] *= 2
        return made

    changed(quantized, "other.onnx", lambda m: set_parameter(m, "conv1_weight", 1, double_last))
    found = json.loads(onnxq(f"diff {quantized} other.onnx --json").out)
    (difference,) = found["differences"]
    assert (difference["tensor"], difference["kinds"]) == ("conv1_weight", ["scale"])
    assert difference["scale_difference"] == pytest.approx(0.5)


def test_zero_points_and_types_count(onnxq, quantized):
    changed(quantized, "shifted.onnx", lambda m: set_parameter(m, "x", 2, lambda z: np.full_like(z, 3)))
    out = onnxq(f"diff {quantized} shifted.onnx").out
    assert "b: int8, scale" in out
    assert ", zero point 3\n" in out
    assert "1 edge with another zero point" in out
    changed(quantized, "unsigned.onnx", lambda m: set_parameter(m, "x", 2, lambda z: np.array(0, np.uint8)))
    assert "1 edge of another type" in onnxq(f"diff {quantized} unsigned.onnx").out


def test_axes_count(onnxq, quantized):
    def one_scale(model):
        for slot, value in ((1, np.array(0.01, np.float32)), (2, np.array(0, np.int8))):
            set_parameter(model, "conv1_weight", slot, lambda _, v=value: v)

    changed(quantized, "whole.onnx", one_scale)
    out = onnxq(f"diff {quantized} whole.onnx").out
    assert '  ~ Conv "conv1" input 1: int8 per axis 0, scale' in out
    assert "b: int8, scale 0.01\n" in out
    assert "1 edge with scales along another axis" in out


def test_renamed_nodes_are_matched_by_tensor(onnxq, quantized):
    def rename(model):
        for number, node in enumerate(model.graph.node):
            node.name = f"n{number}"

    changed(quantized, "renamed.onnx", rename)
    result = onnxq(f"diff {quantized} renamed.onnx")
    assert (result.status, "not matched" in result.out) == (0, False)


def test_renamed_tensors_are_matched_by_node(onnxq, quantized):
    def rename(model):
        for node in model.graph.node:
            for names in (node.input, node.output):
                names[:] = ["renamed" if name == "relu1" else name for name in names]

    changed(quantized, "renamed.onnx", rename)
    assert onnxq(f"diff {quantized} renamed.onnx").status == 0


def test_what_cannot_be_matched_is_told(onnxq, quantized):
    def rename(model):
        for node in model.graph.node:
            node.name = f"other_{node.name}"
            for names in (node.input, node.output):
                names[:] = ["renamed" if name == "conv2" else name for name in names]

    changed(quantized, "renamed.onnx", rename)
    result = onnxq(f"diff {quantized} renamed.onnx")
    assert result.status == 1
    assert 'not matched: 1 node of a: Conv "conv2"\n' in result.out
    assert 'not matched: 1 node of b: Conv "other_conv2"\n' in result.out
    assert '  - Conv "conv2" input 0: int8' in result.out
    assert "(b has no such node)" in result.out


def test_models_that_share_no_node_are_not_the_same(onnxq):
    saved(text_model("[one] y = Relu(x)"), "one.onnx")
    saved(text_model("[two] z = Tanh(x)", outputs="float[1,16,8,8] z"), "two.onnx")
    result = onnxq("diff one.onnx two.onnx")
    assert result.status == 1
    assert "are they of the same model?" in result.out


def test_the_float_model_can_be_given(onnxq, quantized):
    result = onnxq(f"diff {quantized} {quantized} --float float.onnx")
    assert result.status == 0
    assert onnxq(f"diff {quantized} {quantized} --float {quantized}").status == 2


def test_what_explain_printed_is_what_quantize_does(onnxq, quantized, tmp_path):
    (tmp_path / "plan.json").write_text(onnxq("explain float.onnx --json").out)
    result = onnxq(f"diff plan.json {quantized}")
    assert result.status == 0
    assert "a: plan.json (placement, 7 of 22 edges quantized)" in result.out
    (tmp_path / "less.json").write_text(onnxq("explain float.onnx --json --nodes_to_exclude conv2").out)
    result = onnxq("diff plan.json less.json")
    assert result.status == 1
    assert "3 edges quantized only in a; 4 edges quantized alike" in result.out


def test_a_golden_is_a_placement(onnxq, quantized, tmp_path):
    (tmp_path / "placement.txt").write_text(golden("float.onnx", quantized))
    assert onnxq(f"diff placement.txt {quantized}").status == 0
    assert onnxq("diff placement.txt placement.txt").status == 0
    (tmp_path / "plan.json").write_text(onnxq("explain float.onnx --json").out)
    assert onnxq("diff plan.json placement.txt").status == 0
    text = golden("float.onnx", quantized).replace("add = Add input 1 skip: int8\n", "gone = Add input 1 skip: uint8\n")
    (tmp_path / "other.txt").write_text(text)
    result = onnxq(f"diff other.txt {quantized}")
    assert result.status == 1
    assert '- Add yielding "gone" input 1: uint8 (b has no such node)' in result.out
    assert '+ Add "add" input 1: int8' in result.out


def golden(float_model: str, quantized: str) -> str:
    from onnxq.corpus.golden_text import golden_text
    from onnxq.invariants import ModelPair

    return golden_text(ModelPair(onnx.load(float_model), onnx.load(quantized)), "placement")


def test_names_that_a_golden_quotes_are_read_back(onnxq, tmp_path):
    model = onnx.load("float.onnx")
    for node in model.graph.node:
        for names in (node.input, node.output):
            names[:] = ['a "b": c\\n\n' if name == "relu1" else name for name in names]
    saved(model, "odd.onnx")
    assert onnxq("quantize -q odd.onnx").status == 0
    (tmp_path / "placement.txt").write_text(golden("odd.onnx", "odd.quant.onnx"))
    assert onnxq("diff placement.txt odd.quant.onnx").status == 0


def test_bodies_are_compared(onnxq, tmp_path):
    body = """
        y = If<then_branch = t () => (float[1,16,8,8] s) { s = Conv<pads=[1,1,1,1]>(x, w1) },
               else_branch = e () => (float[1,16,8,8] r) { r = Conv<pads=[1,1,1,1]>(x, w2) }>(p)
        a = Conv(x, w1) b = Conv(x, w2)
    """
    saved(text_model(body, inputs="float[1,16,8,8] x, bool p"), "if.onnx")
    np.savez("data.npz", x=np.ones((2, 16, 8, 8), np.float32), p=np.array([True, False]))
    (tmp_path / "plan.json").write_text(onnxq("explain if.onnx --json").out)
    assert onnxq("quantize -q if.onnx --calibration_data data.npz --high_precision_dtype fp32").status == 0
    out = onnxq("diff if.onnx if.quant.onnx").out
    assert 'tensor "w1" in y.then_branch\n  + Conv' in out
    assert "8 edges quantized only in b" in out
    assert onnxq("diff plan.json if.quant.onnx").status == 0
    (tmp_path / "placement.txt").write_text(golden("if.onnx", "if.quant.onnx"))
    assert onnxq("diff placement.txt if.quant.onnx").status == 0
    assert onnxq("diff if.quant.onnx placement.txt").status == 0


def test_json_has_both_sides(onnxq, quantized):
    result = onnxq(f"diff float.onnx {quantized} --json")
    found = json.loads(result.out)
    assert (result.status, found["schema"], found["same"], found["scale_tolerance"]) == (1, 1, False, 0.05)
    assert found["a"]["quantized_edges"] == 0
    assert found["b"] == {
        "source": "quantized.onnx",
        "what": "quantized model",
        "edges": 22,
        "quantized_edges": 7,
        "unmatched_nodes": [],
    }
    first = found["differences"][0]
    assert (first["tensor"], first["node"], first["input"], first["kinds"]) == ("x", "upsample", 0, ["only_b"])
    assert (first["a"], first["b"]["type"], first["b"]["axis"]) == (None, "int8", None)
    assert len(first["b"]["scale"]) == 1


def test_quiet_is_quiet(onnxq, quantized):
    for words, status in ((f"float.onnx {quantized}", 1), ("float.onnx float.onnx", 0)):
        result = onnxq(f"diff -q {words}")
        assert (result.status, result.out, result.err) == (status, "", "")


def test_colours_are_for_terminals(onnxq, quantized, monkeypatch):
    assert "\x1b" not in onnxq(f"diff float.onnx {quantized}").out
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.delenv("NO_COLOR", raising=False)
    out = onnxq(f"diff float.onnx {quantized}").out
    assert "\x1b[32m" in out
    assert max(map(len, out.splitlines())) > 60


def test_hostile_names_stay_on_their_line(onnxq):
    model = onnx.load("float.onnx")
    next(node for node in model.graph.node if node.name == "conv2").name = "conv\n\x1b[2J[bold]"
    saved(model, "hostile.onnx")
    assert onnxq("quantize -q hostile.onnx").status == 0
    out = onnxq("diff hostile.onnx hostile.quant.onnx").out
    assert r'+ Conv "conv\n\x1b[2J[bold]" input 0: int8' in out
    assert "\x1b" not in out


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "bad"),
        (b"no model at all", "bad"),
        (b"{}", "`onnxq explain --json`"),
        (b'{"schema": 1, "edges": [{"graph": 3}]}', "$.edges[0].graph"),
        (b'{"schema": 2, "edges": []}', "schema 2"),
        (b'{"schema": 1, "edges": [' + b"[" * 100_000, "bad"),
        (b"# onnxq shapes, schema 1\n", "# onnxq placement, schema 1"),
        (b"# onnxq placement, schema 1\na = Add input one skip: int8\n", "line 2"),
        (b"# onnxq \xff\xfe", "bad"),
    ],
)
def test_what_is_neither_is_one_line(onnxq, tmp_path, content, said):
    (tmp_path / "bad").write_bytes(content)
    for words in ("bad float.onnx", "float.onnx bad"):
        result = onnxq(f"diff {words}")
        assert (result.status, result.out) == (2, "")
        assert said in result.err
        assert result.err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("float.onnx missing.onnx", "missing.onnx"),
        ("float.onnx", "required: B"),
        ("float.onnx float.onnx float.onnx", "unknown argument"),
        ("float.onnx float.onnx --scale_tolerance much", "'much' is no number from 0 on"),
        ("float.onnx float.onnx --scale_tolerance -1", "scale-tolerance"),
        ("float.onnx float.onnx --scale-tolerance nan", "'nan'"),
        ("float.onnx float.onnx --scales 1", "--scales"),
        (". float.onnx", "is a directory"),
    ],
)
def test_wrong_input_is_one_line(onnxq, words, said):
    result = onnxq(f"diff {words}")
    assert (result.status, result.out) == (2, "")
    assert said in result.err
    assert result.err.count("\n") == 1


def test_a_float_model_is_of_no_use_for_two_placements(onnxq, tmp_path):
    (tmp_path / "plan.json").write_text(onnxq("explain float.onnx --json").out)
    result = onnxq("diff plan.json plan.json --float float.onnx")
    assert result.status == 2
    assert "of use only where" in result.err


def test_onnxruntime_keeps_the_names_that_match(onnxq, tmp_path):
    script = (
        "import onnx; from onnxq.quantizers import resolve; "
        "made = resolve('onnxruntime').quantize(onnx.load('float.onnx'), None, {}); "
        "onnx.save(made, 'ort.onnx')"
    )
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, cwd=tmp_path)
    result = onnxq("diff float.onnx ort.onnx --json")
    found = json.loads(result.out)
    quantized = {(d["node"], d["input"]) for d in found["differences"]}
    assert {("add", 0), ("add", 1), ("conv1", 0), ("conv1", 1)} <= quantized
    assert found["a"]["unmatched_nodes"] == []
