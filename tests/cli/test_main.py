"""Exit status, signals, pipes and odd terminals."""

import os
import re
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import onnx
import pytest

import onnxq_builders
from onnxq.cli import main
from onnxq.quantizers import DEFAULT

HEAVY = ("onnx", "onnxruntime", "numpy", "hypothesis", "msgspec", "rich", "google.protobuf")


def process(words: list[str], **settings) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "onnxq", *words], capture_output=True, text=True, check=False, **settings
    )


@pytest.mark.parametrize("moment", ["calibrat", "writing", "preparing"])
def test_an_interrupt_ends_with_130_and_writes_nothing(onnxq, tmp_path, monkeypatch, moment):
    def interrupting(message):
        if message.startswith(moment):
            raise KeyboardInterrupt

    monkeypatch.setattr("onnxq.cli.progress._LogLines.tell", lambda _, message: interrupting(message))
    before = sorted(tmp_path.iterdir())
    result = onnxq("quantize float.onnx")
    assert (result.status, result.out, result.err) == (130, "", "onnxq: interrupted\n")
    assert sorted(tmp_path.iterdir()) == before


def test_an_interrupt_while_the_file_is_written(onnxq, tmp_path, monkeypatch):
    def interrupted(*_args):
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "write_bytes", interrupted)
    assert onnxq("quantize -q float.onnx").status == 130
    assert [p.name for p in tmp_path.iterdir()] == ["float.onnx"]


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX pipes")
@pytest.mark.parametrize("command", ["explain light.onnx", "inspect light.onnx", "explain light.onnx --json"])
def test_a_reader_that_stops_reading_gets_no_traceback(tmp_path, command):
    onnx.save(onnxq_builders.hrnet(), tmp_path / "light.onnx")
    line = f"{sys.executable} -m onnxq {command} | true; echo ${{PIPESTATUS[0]}}"
    result = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert result.stderr == ""
    assert result.stdout.strip() in ("0", str(128 + signal.SIGPIPE))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_output_that_cannot_be_written_is_one_line(onnxq, tmp_path):
    with Path("/dev/full").open("w") as full:
        words = [sys.executable, "-m", "onnxq", "inspect", "float.onnx"]
        result = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, check=False, cwd=tmp_path)
    assert result.returncode == 2
    assert result.stderr == "onnxq: error: output: No space left on device\n"


@pytest.mark.parametrize(
    "environment", [{"NO_COLOR": "1"}, {"TERM": "dumb"}, {"COLUMNS": "20"}, {"FORCE_COLOR": "1", "COLUMNS": "20"}]
)
def test_the_terminal_changes_nothing_of_what_is_printed(onnxq, environment):
    expected = onnxq("inspect float.onnx").out
    result = process(["inspect", "float.onnx"], env={**os.environ, **environment})
    assert result.stdout == expected
    assert "\x1b" not in result.stdout


def test_a_name_that_the_encoding_cannot_say_is_escaped(onnxq, tmp_path):
    model = onnx.load("float.onnx")
    model.graph.node[0].name = "größe[bold]\n"
    onnx.save(model, "named.onnx")
    result = process(["explain", "named.onnx"], env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert result.returncode == 0
    assert r"gr\xf6\xdfe[bold]" in result.stdout


def test_help_and_version_are_good(capsys):
    for words in (["--help"], ["quantize", "--help"], ["--version"]):
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert ended.value.code == 0
        assert "onnxq" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["--version"],
        ["quantize", "--help"],
        ["explain", "--help"],
        ["corpus", "run", "--help"],
        ["quantise"],
        ["quantize"],
        ["convert", "m.onnx", "--onnx_path", "n.onnx"],
        ["diff", "a.onnx", "b.onnx", "--scale_tolerance", "much"],
        ["inspect", "m.onnx", "--jason"],
    ],
    ids=" ".join,
)
def test_help_and_complaints_about_options_import_nothing_heavy(words):
    code = f"""
import sys
from onnxq.cli import main
try:
    status = main({words!r})
except SystemExit as ended:
    status = ended.code
print("heavy:", [name for name in {HEAVY!r} if name in sys.modules], "status:", status)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    good = "--help" in words or "--version" in words
    assert result.stdout.splitlines()[-1] == f"heavy: [] status: {0 if good else 2}"


def test_help_of_check_lists_the_invariants(capsys):
    with pytest.raises(SystemExit):
        main(["check", "--help"])
    assert "residual-skip-only" in capsys.readouterr().out


def test_help_says_which_quantizer_is_the_default(capsys):
    for command in ("add", "run"):
        with pytest.raises(SystemExit):
            main(["corpus", command, "--help"])
        assert f"(default: {DEFAULT})" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("module", ["onnxq.cli.parser", "onnxq.cli.corpus_parser"])
def test_every_command_is_there(module):
    places = re.findall(r'"(\w+commands?):(\w+)"', Path(import_module(module).__file__ or "").read_text())
    assert len(places) >= 4
    for home, function in places:
        assert callable(getattr(import_module(f"onnxq.cli.{home}"), function))


def test_the_console_script_is_the_same_command(onnxq):
    script = Path(sys.executable).with_name("onnxq")
    if not script.exists():
        pytest.skip("the package isn't installed in this environment")
    result = subprocess.run([script, "inspect", "float.onnx"], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (0, onnxq("inspect float.onnx").out)
