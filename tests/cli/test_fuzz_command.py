"""`onnxq fuzz`: what it prints, writes and refuses."""

import json

import pytest

SPEC = "python:faulty_quantizers:both"
SEARCH = f"fuzz --strategies residual --relations ground-truth --quantizer {SPEC}"


def test_nothing_wrong_is_status_0(onnxq):
    run = onnxq("fuzz --models 10 --strategies residual")
    assert (run.status, run.out.splitlines()[0].partition(" (")[0]) == (0, "onnxq 0.1.0: nothing wrong in 10 models")
    assert "onnxq: searching: " in run.err
    assert onnxq("fuzz --models 5 -q").out == ""


def test_findings_are_status_1_and_become_cases(onnxq, tmp_path):
    run = onnxq(f"{SEARCH} --models 30 --save-failures corpus -q")
    assert run.status == 1
    cases = sorted((tmp_path / "corpus" / "found").iterdir())
    assert cases
    line = next(line for line in run.out.splitlines() if "see it again: " in line)
    again = onnxq(line.partition("see it again: onnxq ")[2])
    assert again.status == 1
    assert "quantized-add-inputs" in again.out
    assert "add it to a corpus: cp -r corpus/found/" in run.out
    assert onnxq("corpus run corpus -q").status == 0


def test_without_a_folder_it_says_how_to_keep_them(onnxq):
    run = onnxq(f"{SEARCH} --findings 1 -q")
    assert run.out.rstrip().endswith("the same command with --save-failures DIR")
    assert "drawn: build(Topology(" in run.out


def test_json(onnxq):
    run = onnxq(f"{SEARCH} --findings 1 --json")
    (found,) = json.loads(run.out)
    assert found["relation"] == "ground-truth"
    assert found["case"] is None
    assert json.loads(onnxq("fuzz --models 3 --json").out) == []


def test_a_database_brings_back_what_failed(onnxq, tmp_path):
    line = f"{SEARCH} --findings 1 --database seen -q"
    assert onnxq(line).status == 1
    assert any((tmp_path / "seen").iterdir())
    assert "seen first in model 1," in onnxq(line).out


def test_one_model(onnxq):
    run = onnxq("fuzz float.onnx")
    assert (run.status, run.out.splitlines()[0].partition(", ")[0]) == (0, "hold: no-crash")
    assert "not checked: ground-truth: it needs ground truth" in run.out
    bad = onnxq(f"fuzz float.onnx --quantizer {SPEC} --relations invariants no-crash")
    assert bad.status == 1
    assert 'Add "add"' in bad.out
    assert json.loads(onnxq(f"fuzz float.onnx --quantizer {SPEC} --relations invariants --json").out)


def test_a_case_of_a_corpus(onnxq, tmp_path):
    assert onnxq("corpus add float.onnx --to . --name mine/case -q".replace(" -q", "")).status == 0
    assert onnxq("fuzz mine/case/case.toml --relations swapped-operands renamed").status == 0


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("fuzz --relations swapped", 'did you mean "swapped-operands"?'),
        ("fuzz --strategies residuals", 'did you mean "residual"?'),
        ("fuzz --quantizer nobody", '"nobody"'),
        ("fuzz nothing.onnx", "nothing.onnx: no such file"),
        ("fuzz float.onnx --time 5", "--time is about a search"),
        ("fuzz float.onnx --save-failures here", "--save-failures is about a search"),
        ("fuzz --save-failures float.onnx", "--save-failures: float.onnx: File exists"),
        ("fuzz --time 0", "more than 0 seconds"),
    ],
)
def test_wrong_usage_is_status_2(onnxq, line, said):
    run = onnxq(line)
    assert run.status == 2
    assert said in run.err
