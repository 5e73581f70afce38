"""Bad input of every kind: one line on stderr that names the thing, exit status 2, nothing written, input untouched."""

import io
import json
import os
import subprocess
import sys
import zipfile
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import ModelProto, numpy_helper

import onnxq_builders
from onnxq.cli import main

MODEL = """
<ir_version: 8, opset_import: ["": 17]>
g (float[n, 16] x) => (float[n, 16] y)
{
    hidden = MatMul(x, w)
    active = Relu(hidden)
    y = MatMul(active, w)
}
"""


def float_model(text: str = MODEL) -> ModelProto:
    model = onnx.parser.parse_model(text)
    model.graph.initializer.append(numpy_helper.from_array(np.eye(16, dtype=np.float32), "w"))
    for number, node in enumerate(model.graph.node):
        node.name = f"node{number}"
    return model


class Folder:
    """The current directory of a test: holds `model.onnx` and whatever bad input the test puts there."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.save(float_model())

    def save(self, model: ModelProto, name: str = "model.onnx") -> None:
        (self.path / name).write_bytes(model.SerializeToString())

    def contents(self) -> dict[str, bytes | str]:
        return {
            str(p.relative_to(self.path)): p.read_bytes() if p.is_file() else "folder" for p in self.path.rglob("*")
        }

    def refuses(self, words: str | list[str], *named: str) -> None:
        """The command fails as every command must, and its message holds the given words."""
        before = self.contents()
        status, out, err = run(words.split() if isinstance(words, str) else words)
        assert (status, out) == (2, "")
        assert err.startswith("onnxq: error: ")
        assert err.count("\n") == 1
        assert err.endswith("\n")
        for word in named:
            assert word in err
        assert self.contents() == before


def run(words: list[str]) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        status = main(words)
    return status, out.getvalue(), err.getvalue()


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Folder:
    monkeypatch.chdir(tmp_path)
    return Folder(tmp_path)


def zip_bytes() -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("model.onnx", float_model().SerializeToString())
    return stream.getvalue()


def quantized_bytes() -> bytes:
    text = """
    <ir_version: 8, opset_import: ["": 17]>
    g (float[2] x) => (float[2] y) <float s = {1.0}, int8 z = {0}>
    { q = QuantizeLinear(x, s, z)  y = DequantizeLinear(q, s, z) }
    """
    return onnx.parser.parse_model(text).SerializeToString()


def text_bytes(body: str, io: str = "(float[2] x) => (float[2] y)") -> bytes:
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> g {io} {body}').SerializeToString()


def without(field: str) -> bytes:
    model = float_model()
    model.ClearField(field)
    return model.SerializeToString()


def with_data_type(data_type: int) -> bytes:
    model = float_model()
    model.graph.initializer[0].data_type = data_type
    return model.SerializeToString()


# What the file holds, and what the message must name beside the file.
BAD_MODELS = {
    "empty": (b"", ["empty"]),
    "text": (b"# A readme\n\nNot a model.\n", ["not an ONNX model"]),
    "json": (json.dumps({"graph": {}}).encode(), ["not an ONNX model"]),
    "textproto": (str(float_model()).encode(), ["not an ONNX model"]),
    "zip": (zip_bytes(), ["not an ONNX model"]),
    "zeros": (bytes(1000), ["not an ONNX model"]),
    "a stored tensor": (numpy_helper.from_array(np.ones(3)).SerializeToString(), ["not an ONNX model"]),
    "no graph": (without("graph"), ["no graph"]),
    "no IR version": (without("ir_version"), ["no IR version"]),
    "no opset": (without("opset_import"), ["opset"]),
    "cycle": (text_bytes("{ a = Add(x, b)  b = Relu(a)  y = Relu(b) }"), ["Add", "Relu"]),
    "undefined tensor": (text_bytes("{ y = Add(x, nowhere) }"), ["Add", '"nowhere"']),
    "undefined output": (text_bytes("{ a = Relu(x) }"), ['"y"']),
    "two producers": (text_bytes("{ y = Relu(x)  y = Neg(x) }"), ['"y"']),
    "unknown operator": (text_bytes("{ y = Rellu(x) }"), ["Rellu"]),
    "unknown data type": (with_data_type(95), ['"w"', "unknown data type 95"]),
    "no data type": (with_data_type(0), ['"w"', "unknown data type 0"]),
    "no float tensor": (text_bytes("{ y = Add(x, x) }", "(int64[2] x) => (int64[2] y)"), ["no float tensor"]),
    "already quantized": (quantized_bytes(), ["quantized already", "QuantizeLinear", "on_quantized"]),
}


@pytest.mark.parametrize("name", BAD_MODELS)
def test_quantize_refuses_the_model(folder, name):
    content, named = BAD_MODELS[name]
    (folder.path / "bad.onnx").write_bytes(content)
    folder.refuses("quantize -q bad.onnx", "bad.onnx", *named)
    folder.refuses("explain bad.onnx", "bad.onnx", *named)


@pytest.mark.parametrize("name", [n for n in BAD_MODELS if n != "already quantized"])
def test_inspect_and_check_refuse_the_model(folder, name):
    content, named = BAD_MODELS[name]
    (folder.path / "bad.onnx").write_bytes(content)
    (folder.path / "quantized.onnx").write_bytes(quantized_bytes())
    folder.refuses("inspect bad.onnx", "bad.onnx", *named)
    folder.refuses("check bad.onnx quantized.onnx", "bad.onnx", *named)


def test_a_missing_file_and_a_folder(folder):
    (folder.path / "dir.onnx").mkdir()
    for command in ("quantize -q {}", "inspect {}", "explain {}", "check {} model.onnx", "check model.onnx {}"):
        folder.refuses(command.format("no.onnx"), "no.onnx", "no such file")
        folder.refuses(command.format("dir.onnx"), "dir.onnx", "is a directory")
    folder.refuses("quantize -q .", "is a directory")
    folder.refuses(["quantize", ""], "empty")


def test_a_file_that_may_not_be_read(folder, monkeypatch):
    def denied(self):
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:  # the mode of a file doesn't stop root, who runs many tests
        patch.setattr(Path, "read_bytes", denied)
        status, _, err = run(["quantize", "-q", "model.onnx"])
    assert status == 2
    assert err == "onnxq: error: model.onnx: can't be read: Permission denied\n"


@pytest.mark.parametrize("twentieth", range(20))
def test_a_model_truncated_anywhere(folder, twentieth):
    whole = onnxq_builders.convtranspose_conv_residual().SerializeToString()
    (folder.path / "cut.onnx").write_bytes(whole[: len(whole) * twentieth // 20])
    folder.refuses("quantize -q cut.onnx", "cut.onnx")
    folder.refuses("inspect cut.onnx", "cut.onnx")


@pytest.mark.parametrize("damage", ["missing", "truncated", "outside"])
def test_external_data_that_cannot_be_had(folder, damage):
    model = float_model()
    onnx.save_model(model, "ext.onnx", save_as_external_data=True, location="ext.bin", size_threshold=0)
    if damage == "missing":
        Path("ext.bin").unlink()
    elif damage == "truncated":
        os.truncate("ext.bin", 17)
    else:
        stored = onnx.load("ext.onnx", load_external_data=False)
        next(e for e in stored.graph.initializer[0].external_data if e.key == "location").value = "../ext.bin"
        folder.save(stored, "ext.onnx")
    folder.refuses("quantize -q ext.onnx", "ext.onnx", '"w"', "ext.bin")


def test_unsorted_nodes_are_no_error(folder):
    unsorted = float_model()
    nodes = list(unsorted.graph.node)
    del unsorted.graph.node[:]
    unsorted.graph.node.extend(reversed(nodes))
    folder.save(unsorted)
    before = (folder.path / "model.onnx").read_bytes()
    assert run(["quantize", "-q", "model.onnx"])[0] == 0
    assert (folder.path / "model.onnx").read_bytes() == before
    onnx.checker.check_model("model.quant.onnx", full_check=True)


def test_a_float_model_that_the_checker_objects_to_is_named_in_a_warning(folder):
    (folder.path / "odd.onnx").write_bytes(text_bytes("{ y = Relu<slope = 1>(x) }"))
    status, _, err = run(["quantize", "-q", "odd.onnx"])
    assert status == 0
    assert "onnxq: warning: the ONNX checker objects to the model" in err
    assert "Relu" in err


GOOD_ROWS = np.ones((2, 16), np.float32)
OBJECTS = np.array([{"a": 1}, None], dtype=object)
BAD_FEEDS = {
    "wrong name": ({"X1": GOOD_ROWS}, ['"X1"', "x"]),
    "a name too many": ({"x": GOOD_ROWS, "z": GOOD_ROWS}, ['"z"']),
    "no arrays": ({}, ['"x"']),
    "wrong width": ({"x": np.ones((2, 17), np.float32)}, ['"x"', "float32[n, 16]", "17"]),
    "wrong rank": ({"x": np.ones((2, 16, 1), np.float32)}, ['"x"', "float32[n, 16]"]),
    "no samples": ({"x": np.ones((0, 16), np.float32)}, ["no samples"]),
    "integers": ({"x": np.ones((2, 16), np.int64)}, ['"x"', "int64", "float32"]),
    "strings": ({"x": np.full((2, 16), "a")}, ['"x"', "float32"]),
    "complex": ({"x": np.ones((2, 16), np.complex64)}, ['"x"', "complex64"]),
    "pickled": ({"x": OBJECTS}, ["pickled"]),
    "NaN": ({"x": np.where(np.eye(2, 16) > 0, np.nan, GOOD_ROWS)}, ['"x"', "0", "NaN"]),
    "infinity": ({"x": np.stack([GOOD_ROWS[0], GOOD_ROWS[1] * np.inf])}, ['"x"', "1", "inf"]),
}


@pytest.mark.parametrize("name", BAD_FEEDS)
def test_calibration_data_that_do_not_fit(folder, name):
    arrays, named = BAD_FEEDS[name]
    np.savez("data.npz", **arrays)
    folder.refuses("quantize -q model.onnx --calibration_data data.npz", *named)


def test_calibration_arrays_of_different_lengths(folder):
    folder.save(onnx.parser.parse_model(MODEL.replace("x)", "x, float[n, 16] w)")))
    np.savez("data.npz", x=GOOD_ROWS, w=np.ones((8, 16), np.float32))
    folder.refuses("quantize -q model.onnx --calibration_data data.npz", '"x" 2', '"w" 8')
    np.save("data.npy", GOOD_ROWS)
    folder.refuses("quantize -q model.onnx --calibration_data data.npy", "data.npy", "2 inputs (x, w)")


@pytest.mark.parametrize("kept", range(0, 20, 3))
@pytest.mark.parametrize("kind", ["npz", "npy"])
def test_truncated_calibration_files(folder, kind, kept):
    file = folder.path / f"data.{kind}"
    np.savez(file, x=np.ones((64, 16), np.float32)) if kind == "npz" else np.save(file, np.ones((64, 16), np.float32))
    os.truncate(file, file.stat().st_size * kept // 20)
    folder.refuses(f"quantize -q model.onnx --calibration_data data.{kind}", f"data.{kind}", "truncated")


@pytest.mark.parametrize(
    ("file", "content"),
    [("data.npz", b"text"), ("data.npy", b"text"), ("data.csv", b"1,2"), ("data.pkl", b"\x80\x04N."), ("data", b"")],
)
def test_files_that_hold_no_numpy_data(folder, file, content):
    (folder.path / file).write_bytes(content)
    folder.refuses(["quantize", "-q", "model.onnx", "--calibration_data", file], file)


def test_calibration_data_that_are_missing_or_a_folder(folder):
    (folder.path / "dir.npz").mkdir()
    folder.refuses("quantize -q model.onnx --calibration_data no.npz", "no.npz", "no such file")
    folder.refuses("quantize -q model.onnx --calibration_data dir.npz", "dir.npz")
    folder.refuses(["quantize", "-q", "model.onnx", "--calibration_data", ""])


def test_a_model_that_does_not_run(folder):
    text = MODEL.replace("active = Relu(hidden)", "active = Reshape(hidden, shape)").replace(
        "=> (float[n, 16] y)", "=> (float[n, 16] y) <int64[2] shape = {3, 16}>"
    )
    folder.save(float_model(text))
    folder.refuses("quantize -q model.onnx", "doesn't run", "node1")


def test_places_that_cannot_be_written_to(folder):
    (folder.path / "file").write_text("text")
    (folder.path / "dir").mkdir()
    folder.refuses("quantize -q model.onnx -o no/such/out.onnx", "no/such", "no such directory")
    folder.refuses("quantize -q model.onnx -o file/out.onnx", "file", "no such directory")
    folder.refuses("quantize -q model.onnx -o dir", "dir", "is a directory")
    folder.refuses(["quantize", "-q", "model.onnx", "-o", ""], "empty")
    folder.refuses("quantize -q model.onnx -o " + "a" * 5000, "too long")
    folder.refuses(f"quantize -q model.onnx -o {os.devnull}", "device")


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a file system that not even root can write to")
def test_a_read_only_folder(folder):
    folder.refuses("quantize -q model.onnx -o /proc/self/out.onnx", "/proc/", "can't be written to")


def test_a_folder_without_permission(folder, monkeypatch):
    def denied(*_args, **_keywords):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tempfile.mkdtemp", denied)
    folder.refuses("quantize -q model.onnx", "can't be written to: Permission denied")


def test_a_disk_that_is_full(folder, monkeypatch):
    def full(*_args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    folder.refuses("quantize -q model.onnx", "model.quant.onnx", "No space left on device")


@pytest.mark.parametrize("spelling", ["model.onnx", "./model.onnx", "{folder}/model.onnx", "symlink", "hardlink"])
def test_the_output_is_never_the_input(folder, spelling):
    (folder.path / "symlink").symlink_to("model.onnx")
    os.link("model.onnx", "hardlink")
    folder.refuses(f"quantize -q model.onnx -o {spelling.format(folder=folder.path)}", "never overwritten")


def test_the_output_is_never_other_input(folder):
    np.savez("data.npz", x=GOOD_ROWS)
    onnx.save_model(float_model(), "ext.onnx", save_as_external_data=True, location="ext.bin", size_threshold=0)
    folder.refuses("quantize -q model.onnx --calibration_data data.npz -o data.npz", "data.npz", "never overwritten")
    folder.refuses("quantize -q ext.onnx -o ext.bin", "ext.bin", "never overwritten")


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("--quantize_mode int7", ["quantize_mode='int7'", "did you mean 'int8'"]),
        ("--calibration_method minmax", ["calibration_method='minmax'", "'max'"]),
        ("--calibration_method entropi", ["calibration_method='entropi'", "did you mean 'entropy'"]),
        ("--high_precision_dtype float", ["high_precision_dtype='float'", "'fp32'"]),
        ("--on_quantized drop", ["on_quantized='drop'", "'error', 'keep'"]),
        ("--seed x", ["--seed", "'x'"]),
        ("--seed -1", ["--seed", "'-1'"]),
        ("--calib_data d.npz", ["--calib-data", "did you mean --calibration-data"]),
        ("--xyz", ["--xyz"]),
        ("--onnx_path model.onnx", ["one model"]),
        ("--output", ["--output"]),
        ("--nodes_to_exclude node9", ["nodes_to_exclude", '"node9"', '"node0"']),
        ("--nodes_to_exclude nod", ["nodes_to_exclude", "whole name", '"node0"']),
        ("--nodes_to_quantize node[", ["nodes_to_quantize", '"node["', "no regular expression"]),
        ("--op_types_to_quantize Matmul", ['"Matmul"', '"MatMul"']),
        ("--op_types_to_exclude Kernel", ['"Kernel"']),
        ("--op_types_to_quantize TopK", ["TopK", "never quantized"]),
        ("--calibration_shapes x", ['"x"', "name:1x3x224x224"]),
        ("--calibration_shapes x:", ['"x:"']),
        ("--calibration_shapes x:0x8", ['"x:0x8"']),
        ("--calibration_shapes x:2x8,x:3x8", ['"x"', "twice"]),
        ("--calibration_shapes x:2,16", ['"16"']),
        ("--calibration_shapes y:2x8", ['"y"', "x"]),
        ("--calibration_shapes x:2x9", ['"x"', "float32[n, 16]"]),
        ("--calibration_shapes x:2", ['"x"', "2 dims"]),
        ("--calibration_shapes x:9999999999x16", ["memory"]),
    ],
)
def test_options_that_cannot_be_followed(folder, words, named):
    folder.refuses(f"quantize -q model.onnx {words}", *named)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("", ["COMMAND"]),
        ("quantise model.onnx", ["quantise", "quantize"]),
        ("quantize", ["one model"]),
        ("quantize --op_types_to_quantize MatMul model.onnx", ["one model", "several values"]),
        ("inspect", ["one model"]),
        ("check model.onnx", ["QUANTIZED"]),
        ("check model.onnx model.onnx --policy tensort", ["tensort", "tensorrt"]),
        ("check model.onnx model.onnx --only validd", ["validd", '"valid"']),
        ("explain model.onnx --node node8", ['"node8"', '"node0"']),
        ("explain model.onnx --nodes_to_exclude nothing", ['"nothing"']),
    ],
)
def test_commands_that_cannot_be_followed(folder, words, named):
    before = folder.contents()
    status, out, err = run(words.split())
    assert (status, out) == (2, "")
    error = err.splitlines()[-1]
    assert error.startswith("onnxq: error: ")
    assert all(word in error for word in named)
    assert folder.contents() == before


@pytest.mark.parametrize("command", [["-m", "onnxq"], ["-c", "import onnxq.cli, sys; sys.exit(onnxq.cli.main())"]])
def test_a_process_of_its_own(folder, command):
    before = folder.contents()
    words = [sys.executable, *command, "quantize", "-q", "no.onnx"]
    result = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == "onnxq: error: no.onnx: no such file\n"
    assert folder.contents() == before


def test_a_name_with_line_breaks_stays_on_one_line(folder):
    model = float_model()
    model.graph.node[0].name = "first\nsecond\x1b[31m"
    model.graph.node[0].op_type = "Mattmul"
    folder.save(model)
    folder.refuses("quantize -q model.onnx", r"first\nsecond\x1b[31m")


@st.composite
def damaged_models(draw: st.DrawFn) -> bytes:
    """A model with some bytes replaced, taken out or put in."""
    raw = bytearray(WHOLE)
    for _ in range(draw(st.integers(1, 6))):
        start = draw(st.integers(0, len(raw)))
        taken = draw(st.sampled_from([1, 1, 1, 0, 2, 9]))
        raw[start : start + taken] = draw(st.binary(min_size=0, max_size=3))
    return bytes(raw)


WHOLE = onnxq_builders.convtranspose_conv_residual(channels=16).SerializeToString()
FUZZ = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@FUZZ
@given(content=st.binary(max_size=200))
def test_random_bytes_are_refused(folder, content):
    (folder.path / "bad.onnx").write_bytes(content)
    folder.refuses("quantize -q bad.onnx -o out.onnx", "bad.onnx")


@FUZZ
@given(content=damaged_models(), command=st.sampled_from(["quantize -q bad.onnx -o out.onnx", "inspect bad.onnx"]))
def test_damaged_models_are_refused_or_work(folder, content, command):
    (folder.path / "bad.onnx").write_bytes(content)
    (folder.path / "out.onnx").unlink(missing_ok=True)
    before = folder.contents()
    status, _, err = run(command.split())
    assert status in (0, 2)
    if status == 2:
        assert err.startswith("onnxq: error: ")
        assert err.count("\n") == 1
        assert folder.contents() == before
    assert (folder.path / "bad.onnx").read_bytes() == content
