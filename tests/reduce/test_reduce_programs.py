"""Programs as predicates: how they end, what they are given, and what is refused."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto
from reductions import op_types, problem

from onnxq.errors import UsageError
from onnxq.reduce import command_predicate, reduce_model, write_samples
from onnxq.reduce.problem import BFLOAT16
from text_models import text_model

SHELL = "/bin/sh"


def model() -> ModelProto:
    return text_model("a = Relu(x) b = Neg(a) y = Abs(b)", "float[4] x", "float[4] y")


def shell(script: str) -> str:
    """A command line for a few words of shell: it starts much faster than Python. $1 is the model, $2 the samples."""
    return f"{SHELL} -c {shlex.quote(script)} name {{input}} {{calibration}} {{output}}"


HAS_NEG = 'grep -q Neg "$1"'
"""A model file holds the names of its operators as text."""


def test_the_failure_of_a_program_is_kept() -> None:
    predicate, ended = command_predicate(problem(model()), shell(f"if {HAS_NEG}; then exit 3; fi"))
    assert ended.status == 3
    assert op_types(reduce_model(problem(model()), predicate).problem) == ["Neg"]


def test_only_the_exit_status_that_is_asked_for_counts() -> None:
    line = shell(f"grep -q Abs $1 && exit 4; {HAS_NEG} && exit 5; exit 0")
    predicate, _ = command_predicate(problem(model()), line, exit_status=4)
    assert op_types(reduce_model(problem(model()), predicate).problem) == ["Abs"]
    with pytest.raises(UsageError, match=r"ended with exit status 4 on the model itself.*with exit status 5"):
        command_predicate(problem(model()), line, exit_status=5)


def test_status_0_can_be_what_counts() -> None:
    predicate, _ = command_predicate(problem(model()), shell(HAS_NEG), exit_status=0)
    assert op_types(reduce_model(problem(model()), predicate).problem) == ["Neg"]


def test_a_signal_doesnt_slip_into_an_exit_status() -> None:
    predicate, ended = command_predicate(problem(model()), shell(f"{HAS_NEG} && kill -SEGV $$; exit 1"))
    assert ended.status == -11
    assert op_types(reduce_model(problem(model()), predicate).problem) == ["Neg"]


def test_an_exit_status_doesnt_slip_into_a_signal() -> None:
    predicate, _ = command_predicate(problem(model()), shell(f"{HAS_NEG} && exit 1; kill -SEGV $$"))
    assert op_types(reduce_model(problem(model()), predicate).problem) == ["Neg"]


def test_a_hang_of_the_original_is_kept() -> None:
    line = shell(f"{HAS_NEG} && sleep 60; exit 1")
    predicate, ended = command_predicate(problem(model()), line, time_limit=0.3)
    assert ended.status is None
    assert predicate(problem(model()))
    assert not predicate(problem(text_model("y = Abs(x)")))


def test_a_hang_of_a_candidate_is_no_failure() -> None:
    line = shell(f"{HAS_NEG} && exit 1; sleep 60")
    predicate, _ = command_predicate(problem(model()), line, time_limit=0.3)
    assert not predicate(problem(text_model("y = Abs(x)")))


def test_a_hang_where_an_exit_status_is_wanted_is_refused() -> None:
    with pytest.raises(UsageError, match=r"didn't end within 0.2 s.*with exit status 1"):
        command_predicate(problem(model()), shell("sleep 60"), exit_status=1, time_limit=0.2)


def test_a_program_that_ends_well_is_refused_with_what_it_said() -> None:
    with pytest.raises(UsageError, match=r"nothing to reduce \(it said: all is well\)"):
        command_predicate(problem(model()), shell("echo all is well"))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("true", r"\{input\} is missing"),
        ("", r"\{input\} is missing"),
        ("{input}", r"\{input\} is missing"),
        ("true {output} {calibration}", r"\{input\} is missing"),
        ("true 'open {input}", "can't be split"),
        ("no-such-program {input}", 'no program "no-such-program"'),
    ],
)
def test_a_line_that_cant_work_is_refused(line: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        command_predicate(problem(model()), line)


def test_the_program_gets_model_samples_and_a_place_to_write(tmp_path: Path) -> None:
    script = tmp_path / "look.py"
    script.write_text(
        "import sys, numpy, onnx\n"
        "model, samples = onnx.load(sys.argv[1]), numpy.load(sys.argv[2])\n"
        "open(sys.argv[3], 'w').close()\n"
        "print(model.graph.node[0].op_type, samples['x'].shape, sys.argv[4])\n"
        "sys.exit(7)\n"
    )
    line = shlex.join([sys.executable, str(script), "{input}", "{calibration}", "{output}", "--opt={input}"])
    _, ended = command_predicate(problem(model(), samples=3), line, exit_status=7)
    assert ended.output.startswith("Relu (12,) --opt=")
    assert ended.output.endswith("model.onnx")


def test_nothing_stays_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    predicate, _ = command_predicate(problem(model()), shell('echo x > "$3"; touch "$TMPDIR/more"; exit 1'))
    reduce_model(problem(model()), predicate)
    assert list(tmp_path.iterdir()) == []


def test_samples_that_no_npz_holds_are_written_as_float32(tmp_path: Path) -> None:
    feeds = [{"x": np.full((1, 2), n, BFLOAT16), "n": np.array([n])} for n in (1, 2)]
    write_samples(feeds, tmp_path / "samples.npz")
    with np.load(tmp_path / "samples.npz") as stored:
        assert stored["x"].dtype == np.float32
        assert stored["x"].tolist() == [[1, 1], [2, 2]]
        assert stored["n"].dtype == np.int64
