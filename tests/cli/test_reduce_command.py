"""`onnxq reduce` as one types it: what is written, what is said, and what is refused before anything is written."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import pytest

from onnxq.cli import main
from text_models import text_model

TOY = """
import faulty_quantizers as faulty

def both(model, feeds, options):
    return faulty.with_pairs(model, faulty.both_inputs_of_adds(model))
"""
FAULT = "--check residual-skip-only --quantizer python:reduce_toy:both"
HAS_ADD = "grep -q Add {input}"
CASES = Path(__file__).parents[2] / "corpus" / "residual"


@pytest.fixture
def reduce(onnxq, tmp_path, monkeypatch):
    """Runs `onnxq reduce ...` where reduce_toy.both quantizes both inputs of every Add."""
    (tmp_path / "reduce_toy.py").write_text(TOY)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "reduce_toy", raising=False)
    return lambda line: onnxq(f"reduce {line}")


def files() -> set[str]:
    return {file.name for file in Path().iterdir()} - {"float.onnx", "reduce_toy.py", "__pycache__"}


def commands(out: str) -> dict[str, list[str]]:
    """The commands that the summary ends with."""
    lines = dict(line.split(": ", 1) for line in out.splitlines() if ": " in line)
    return {name: shlex.split(lines[name])[1:] for name in ("see it again", "make it a case") if name in lines}


def test_the_model_and_its_samples_are_written(reduce):
    before = Path("float.onnx").read_bytes()
    run = reduce(f"float.onnx {FAULT}")
    assert run.status == 0, run.err
    assert files() == {"float.reduced.onnx", "float.reduced.npz"}
    assert Path("float.onnx").read_bytes() == before
    model = onnx.load("float.reduced.onnx")
    assert len(model.graph.node) <= 4
    with np.load("float.reduced.npz") as samples:
        assert set(samples) == {value.name for value in model.graph.input}
    said = run.out.splitlines()
    assert said[0] == 'fault: residual-skip-only: Add "add"'
    assert said[1].startswith("9 nodes and 24,864 elements became ")
    assert said[2].startswith("wrote float.reduced.onnx")
    assert said[3] == "wrote float.reduced.npz (1 sample)"


def test_the_commands_that_it_prints_work(reduce, capsys):
    found = commands(reduce(f"float.onnx {FAULT} -o small.onnx").out)
    assert main(found["see it again"]) == 0
    assert len(onnx.load("small.reduced.onnx").graph.node) == len(onnx.load("small.onnx").graph.node)
    Path("mine").mkdir()
    words = [{"CORPUS": "mine", "FAMILY/CASE": "found/first"}.get(word, word) for word in found["make it a case"]]
    assert main(words) == 0
    assert 'check = "residual-skip-only"' in Path("mine/found/first/case.toml").read_text()


def test_quiet_says_nothing(reduce):
    run = reduce(f"float.onnx {FAULT} -q")
    assert (run.status, run.out, run.err) == (0, "", "")


def test_samples_are_kept_up_to_a_number(reduce):
    rng = np.random.default_rng(0)
    np.savez("data.npz", x=rng.standard_normal((5, 32, 8, 8)).astype(np.float32))
    run = reduce(f"float.onnx {FAULT} --calibration-data data.npz --samples 3 -o few.onnx")
    assert "(3 samples)" in run.out
    with np.load("few.npz") as samples:
        assert {array.shape[0] for array in samples.values()} == {3}
    assert main(commands(run.out)["see it again"]) == 0


def test_a_case_is_reduced_where_the_command_is_typed(reduce):
    run = reduce(f"{CASES}/convtranspose_conv/case.toml {FAULT}")
    assert run.status == 0, run.err
    assert files() == {"convtranspose_conv.reduced.onnx", "convtranspose_conv.reduced.npz"}


def test_what_the_case_tells_the_quantizer_is_said(reduce):
    run = reduce(f"{CASES}/excluded_trunk/case.toml {FAULT}")
    assert run.status == 0, run.err
    assert "the quantizer was told what the case has in [quantize]: nodes_to_exclude" in run.out


def test_a_program_is_the_judge(reduce, capsys):
    assert main(["reduce", "float.onnx", "--command", HAS_ADD, "--exit-status", "0", "-o", "v1.2"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("fault: the program ended with exit status 0\n")
    assert files() == {"v1.2", "v1.2.npz"}
    assert [node.op_type for node in onnx.load("v1.2", load_external_data=False).graph.node] == ["Add"]
    found = commands(out)
    assert set(found) == {"see it again"}
    assert main(found["see it again"]) == 0


def test_the_time_limit_gives_the_best_so_far(reduce):
    run = reduce(f"float.onnx {FAULT} --time 0.000001")
    assert run.status == 0
    assert "stopped when the time was up" in run.out
    assert len(onnx.load("float.reduced.onnx").graph.node) == 9


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("float.onnx", "name the fault: --check NAME, or --command LINE"),
        ("float.onnx --check runs --command x", "name the fault: --check NAME, or --command LINE"),
        ("float.onnx --check residual", 'did you mean "residual-skip-only"?'),
        ("float.onnx --check runs --exit-status 1", "--exit-status belongs to --command"),
        ("float.onnx --command x --quantizer onnxq", "--quantizer and --peer-python belong to --check"),
        ("float.onnx --command no-such-program", "{input} is missing"),
        ("float.onnx --check residual-skip-only", "there is nothing to reduce"),
        (f"float.onnx {FAULT} --samples 0", "--samples"),
        (f"float.onnx {FAULT} --time 0", "more than 0 seconds"),
        ("float.onnx --check runs --quantizer python:reduce_toy:nothing", 'reduce_toy has no "nothing"'),
        (f"float.onnx {FAULT} -o float.onnx", "is an input of this run"),
        (f"float.onnx {FAULT} -o out.npz", "is where the samples go, name the model otherwise: out.onnx"),
        (f"float.onnx {FAULT} -o missing/out.onnx", "no such directory"),
        (f"float.onnx {FAULT} -o .", "is a directory"),
        (f"float.onnx {FAULT} --output=", "the name of the output file is empty"),
        (f"float.onnx {FAULT} --calibration-data missing.npz", "missing.npz: no such file"),
        (f"missing.onnx {FAULT}", "missing.onnx: no such file"),
        (f"missing.toml {FAULT}", "missing.toml"),
        (f"reduce_toy.py {FAULT}", "not an ONNX model"),
    ],
)
def test_wrong_input_is_refused_in_one_line(reduce, line, said):
    run = reduce(line)
    assert run.status == 2
    assert run.out == ""
    assert said in run.err
    errors = [line for line in run.err.splitlines() if line.startswith("onnxq: error: ")]
    assert errors == run.err.splitlines()[-1:]
    assert files() == set()


def test_samples_that_were_given_are_never_overwritten(reduce):
    np.savez("out.npz", x=np.ones((1, 32, 8, 8), np.float32))
    before = Path("out.npz").read_bytes()
    run = reduce(f"float.onnx {FAULT} --calibration-data out.npz -o out.onnx")
    assert run.status == 2
    assert "out.npz: is an input of this run" in run.err
    assert Path("out.npz").read_bytes() == before


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder that nobody can write to")
def test_an_unwritable_folder_is_refused_at_once(reduce):
    run = reduce(f"float.onnx {FAULT} -o /proc/out.onnx")
    assert run.status == 2
    assert run.err.startswith("onnxq: error: /proc: can't be written to")
    assert files() == set()


def test_where_the_samples_cant_be_written_there_is_no_model_either(reduce, monkeypatch):
    def full(feeds, file):
        Path(file).write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("onnxq.cli.reduce_command.write_samples", full)
    run = reduce(f"float.onnx {FAULT}")
    assert run.status == 2
    assert "No space left" in run.err
    assert files() == set()


def test_inputs_of_text_are_refused_before_the_search(reduce):
    onnx.save(text_model("y = Identity(s)", "string[1] s", "string[1] y"), "text.onnx")
    run = reduce(f"text.onnx {FAULT}")
    assert run.status == 2
    assert run.err.count("\n") == 1
    assert '"s"' in run.err
    assert files() == {"text.onnx"}


@pytest.mark.skipif(os.name != "posix", reason="needs signals")
def test_ctrl_c_writes_the_best_so_far(reduce):
    words = [
        sys.executable,
        "-m",
        "onnxq",
        "reduce",
        "float.onnx",
        "--command",
        "sh -c 'touch asked; sleep 1; exit 1' {input}",
    ]
    # A shell has its background jobs ignore SIGINT, and whatever is started by them does too.
    heeds = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=heeds)
    while not Path("asked").exists() and process.poll() is None:
        time.sleep(0.05)
    Path("asked").unlink()  # that was the original
    while not Path("asked").exists() and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert ", interrupted)" in out
    assert files() == {"float.reduced.onnx", "float.reduced.npz", "asked"}
