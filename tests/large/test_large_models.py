"""The way of models of gigabytes, taken by small ones under lowered limits: only where weights are may differ."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from file_contents import contents, unchanged, unchanged_files
from onnx import ModelProto, TensorProto, numpy_helper
from onnx.parser import parse_model

import onnxq
from onnxq.calibration import collect_max, evaluate_constants
from onnxq.cli import main
from onnxq.convert import convert
from onnxq.corpus.strip import strip_weights
from onnxq.errors import InvalidModelError, UsageError
from onnxq.inspection import inspect
from onnxq.invariants import check
from onnxq.model_io import load_model, model_files, save_model, why_invalid
from onnxq.numerics import run_model, sqnr
from onnxq.pipeline import quantize
from onnxq.tensor_data import is_large, is_mapped, leave_in_file, self_contained, tensor_values
from onnxq_builders import BUILDERS

Save = Callable[..., Path]
Lower = Callable[[], None]

TEXT = """g (float[n,8,16] x, bool c) => (float[n,8,16] y)
<float[3] light = {1, 2, 3}>
{
  a = MatMul(x, w1)
  r = Relu(a)
  t = Transpose<perm = [1, 0]>(w2)
  m = MatMul(r, t)
  s = Add(m, x)
  b = If (c) <
    then_branch = th () => (float[n,8,16] p) { p = MatMul(s, w3) },
    else_branch = el () => (float[n,8,16] q) { q = Mul(s, inner) }
  >
  k = Constant<value = float[16,16] {%s}>()
  y = MatMul(b, k)
}"""


def matmuls(opset: int = 17, ir: int = 8) -> ModelProto:
    """Weights read directly, behind a Transpose, from a body, in a body, and in a Constant."""
    rng = np.random.default_rng(0)
    values = ", ".join(f"{v:.4f}" for v in rng.standard_normal(256) / 4)
    model = parse_model(f'<ir_version: {ir}, opset_import: ["": {opset}]> {TEXT % values}')
    for name in ("w1", "w2", "w3"):
        weight = (rng.standard_normal((16, 16)) / 4).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(weight, name))
    els = next(a.g for n in model.graph.node if n.op_type == "If" for a in n.attribute if a.name == "else_branch")
    els.initializer.append(numpy_helper.from_array(rng.random((8, 16), np.float32), "inner"))
    return model


def feeds(number: int = 2) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(1)
    shape = (2, 8, 16)
    return [{"x": rng.standard_normal(shape).astype(np.float32), "c": np.array(i % 2 == 0)} for i in range(number)]


MODELS: dict[str, Callable[[], ModelProto]] = {
    "matmuls": matmuls,
    **{name: BUILDERS[name] for name in ("residual.identity", "residual.convtranspose_conv", "vit.basic")},
}


def run_file(file: Path, feed: dict[str, np.ndarray]) -> list[np.ndarray]:
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    return list(ort.InferenceSession(file, options, providers=["CPUExecutionProvider"]).run(None, feed))


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_quantized_by_path_as_in_memory(save: Save, small_limits: Lower, tmp_path: Path, name: str, dtype: str) -> None:
    model = MODELS[name]()
    wanted = quantize(model, high_precision_dtype=dtype).model
    file, output = save(model), tmp_path / "out" / "int8.onnx"
    output.parent.mkdir()
    small_limits()
    with unchanged(file.parent):
        result = quantize(file, high_precision_dtype=dtype, output_path=output)
    assert is_large(result.model) or dtype != "fp32"
    assert self_contained(result.model) == wanted
    assert self_contained(load_model(output)) == wanted
    assert set(contents(output.parent)) == {"int8.onnx", "int8.onnx.data"}
    onnx.checker.check_model(output, full_check=True)


def test_what_is_written_runs(save: Save, small_limits: Lower, tmp_path: Path) -> None:
    file = save(matmuls())
    small_limits()
    quantize(file, high_precision_dtype="fp32", calibration_data=feeds(), output_path=tmp_path / "out.onnx")
    for feed in feeds():
        before, after = (run_file(path, feed)[0] for path in (file, tmp_path / "out.onnx"))
        assert sqnr(before, after) > 15


@pytest.mark.parametrize("name", MODELS)
def test_converted_by_path_as_in_memory(save: Save, small_limits: Lower, tmp_path: Path, name: str) -> None:
    model = MODELS[name]()
    wanted = convert(model).model
    file = save(model)
    small_limits()
    with unchanged(file.parent):
        assert self_contained(convert(file, output_path=tmp_path / "half.onnx").model) == wanted
    assert self_contained(load_model(tmp_path / "half.onnx")) == wanted
    assert (tmp_path / "half.onnx.data").exists()


@pytest.mark.parametrize("name", MODELS)
def test_a_large_model_in_memory(small_limits: Lower, name: str) -> None:
    model = MODELS[name]()
    wanted = quantize(model, high_precision_dtype="fp16").model
    before = model.SerializeToString()
    small_limits()
    assert quantize(model, high_precision_dtype="fp16").model == wanted
    assert model.SerializeToString() == before


@pytest.mark.parametrize("name", MODELS)
def test_inspected_and_checked_by_path_as_in_memory(save: Save, small_limits: Lower, name: str) -> None:
    model = MODELS[name]()
    quantized = quantize(model, high_precision_dtype="fp32").model
    other = ModelProto()
    other.CopyFrom(quantized)
    spoiled = next(node.input[1] for node in other.graph.node if node.op_type == "DequantizeLinear")
    scale = next(t for t in other.graph.initializer if t.name == spoiled)
    scale.CopyFrom(numpy_helper.from_array(-numpy_helper.to_array(scale), scale.name))
    found = inspect(model), inspect(quantized), check(model, quantized), check(model, other)
    assert not found[2]
    assert found[3]
    files = save(model, "a.bin", "a.onnx"), save(quantized, "b.bin", "b.onnx"), save(other, "c.bin", "c.onnx")
    small_limits()
    a, b, c = map(load_model, files)
    assert all(any(map(is_mapped, m.graph.initializer)) for m in (a, b, c))
    assert (inspect(a), inspect(b), check(a, b), check(a, c)) == found


def test_the_command_line_by_path(save: Save, small_limits: Lower, tmp_path: Path, capsys, monkeypatch) -> None:
    file = save(matmuls())
    monkeypatch.chdir(tmp_path)
    small_limits()
    commands = (
        f"quantize -q {file} -o int8.onnx --high_precision_dtype fp32",
        f"convert {file} -o half.onnx",
        f"inspect {file}",
        "inspect int8.onnx",
        f"explain {file}",
        f"check {file} int8.onnx",
    )
    for command in commands:
        assert main(command.split()) == 0, command
    assert "no violations" in capsys.readouterr().out
    assert sum(p.suffix == ".data" for p in tmp_path.iterdir()) == 2


def test_an_old_model_is_converted(save: Save, small_limits: Lower) -> None:
    model = matmuls(opset=11, ir=6)
    wanted = quantize(model, high_precision_dtype="fp32").model
    file = save(model)
    small_limits()
    assert self_contained(quantize(file, high_precision_dtype="fp32").model) == wanted


def test_weights_that_are_listed_as_inputs(save: Save, small_limits: Lower) -> None:
    model = parse_model(
        '<ir_version: 3, opset_import: ["": 8]> '
        "g (float[2,16] x, float[16,16] w) => (float[2,16] y) { y = MatMul(x, w) }"
    )
    model.graph.initializer.append(numpy_helper.from_array(np.eye(16, dtype=np.float32), "w"))
    file, feed = save(model), {"x": np.arange(32, dtype=np.float32).reshape(2, 16)}
    small_limits()
    loaded = load_model(file)
    assert collect_max(loaded, ["y"], [feed])["y"].high == 31
    np.testing.assert_array_equal(run_model(loaded, [feed])[0]["y"], feed["x"])


def test_light_tensors_and_those_of_bodies_are_in_memory(save: Save, small_limits: Lower) -> None:
    file = save(matmuls())
    small_limits()
    loaded = load_model(file)
    assert {t.name: is_mapped(t) for t in loaded.graph.initializer} == {
        "light": False,
        "w1": True,
        "w2": True,
        "w3": True,
    }
    assert self_contained(loaded) == matmuls()


def test_constants_of_many_runs(save: Save, small_limits: Lower) -> None:
    names = [f"t{i}" for i in range(11)]
    nodes = " ".join(f"{t} = Transpose<perm = [1, 0]>(w{i})" for i, t in enumerate(names))
    model = parse_model(f'<ir_version: 8, opset_import: ["": 17]> g () => (float[4,64] t0) {{ {nodes} }}')
    weights = {f"w{i}": np.full((64, 4), i, np.float32) for i in range(11)}
    model.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in weights.items())
    file = save(model)
    small_limits()
    loaded = load_model(file)
    values = evaluate_constants(loaded, [*names, "w3"])
    assert list(values) == [*names, "w3"]
    for order in (names, names[::-1]):
        assert [values[name].tolist() for name in order] == [weights[f"w{n[1:]}"].T.tolist() for n in order]
    np.testing.assert_array_equal(values["w3"], weights["w3"])
    with pytest.raises(KeyError):
        values["w4"]


class TestSaving:
    @pytest.fixture
    def model(self, small_limits: Lower) -> ModelProto:
        small_limits()
        return matmuls()

    def test_the_model_is_not_changed(self, model: ModelProto, tmp_path: Path) -> None:
        before = model.SerializeToString()
        save_model(model, tmp_path / "m.onnx")
        assert model.SerializeToString() == before
        assert self_contained(load_model(tmp_path / "m.onnx")) == model

    def test_data_are_aligned_and_keep_what_belongs_to_the_tensor(self, model: ModelProto, tmp_path: Path) -> None:
        model.graph.initializer[1].doc_string = "about"
        model.graph.initializer[1].metadata_props.add(key="k", value="v")
        save_model(model, tmp_path / "m.onnx")
        stored = onnx.load_model(tmp_path / "m.onnx", load_external_data=False)
        offsets = [int(e.value) for t in stored.graph.initializer for e in t.external_data if e.key == "offset"]
        assert offsets == [0, 4096, 8192]
        assert self_contained(load_model(tmp_path / "m.onnx")) == model

    @pytest.mark.parametrize("dtype", [TensorProto.FLOAT, TensorProto.INT4, TensorProto.FLOAT8E4M3FN, TensorProto.BOOL])
    def test_every_kind_of_values(self, small_limits: Lower, tmp_path: Path, dtype: int) -> None:
        small_limits()
        model = matmuls()
        values = np.arange(4096).reshape(64, 64) % 2
        stored = onnx.helper.make_tensor("extra", dtype, (64, 64), values.reshape(-1).tolist())
        model.graph.initializer.append(stored)
        save_model(model, tmp_path / "m.onnx")
        loaded = next(t for t in load_model(tmp_path / "m.onnx").graph.initializer if t.name == "extra")
        np.testing.assert_array_equal(tensor_values(loaded).astype(np.float32), values)

    def test_it_replaces_its_own_data(self, model: ModelProto, tmp_path: Path) -> None:
        save_model(model, tmp_path / "m.onnx")
        bigger = matmuls()
        bigger.graph.initializer.append(numpy_helper.from_array(np.ones((64, 64), np.float32), "more"))
        save_model(bigger, tmp_path / "m.onnx")
        assert set(contents(tmp_path)) == {"m.onnx", "m.onnx.data"}
        assert self_contained(load_model(tmp_path / "m.onnx")) == bigger

    def test_it_never_replaces_other_files(self, model: ModelProto, tmp_path: Path) -> None:
        (tmp_path / "m.onnx.data").write_bytes(b"mine")
        (tmp_path / "m.onnx.1.data").symlink_to("nowhere")
        save_model(model, tmp_path / "m.onnx")
        assert (tmp_path / "m.onnx.data").read_bytes() == b"mine"
        assert model_files(tmp_path / "m.onnx")[1:] == [tmp_path / "m.onnx.2.data"]

    def test_nothing_is_left_when_writing_fails(self, model: ModelProto, tmp_path: Path, monkeypatch) -> None:
        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        save_model(model, tmp_path / "m.onnx")
        monkeypatch.setattr("onnxq.model_io._moved", full)
        with unchanged(tmp_path), pytest.raises(UsageError, match="No space left"):
            save_model(model, tmp_path / "m.onnx")
        with unchanged(tmp_path), pytest.raises(UsageError, match="No space left"):
            save_model(model, tmp_path / "new.onnx")

    @pytest.mark.parametrize("existing", [True, False])
    @pytest.mark.parametrize("failing", ["m.onnx", "m.onnx.data"])
    def test_all_is_as_before_when_a_rename_fails(
        self, model: ModelProto, tmp_path: Path, monkeypatch, existing: bool, failing: str
    ) -> None:
        if existing:
            save_model(model, tmp_path / "m.onnx")
            model.graph.initializer[1].raw_data = bytes(1024)
        rename = Path.replace

        def replace(self: Path, target: Path) -> Path:
            if target.name == failing:
                raise KeyboardInterrupt
            return rename(self, target)

        monkeypatch.setattr(Path, "replace", replace)
        with unchanged(tmp_path), pytest.raises(KeyboardInterrupt):
            save_model(model, tmp_path / "m.onnx")

    @pytest.mark.parametrize("dtype", ["fp32", "fp16"])
    def test_the_data_of_the_input_are_never_replaced(self, save: Save, small_limits: Lower, dtype: str) -> None:
        """The input's data have the very name that the output's would get."""
        small_limits()
        file = save(matmuls(), "out.onnx.data")
        output = file.with_name("out.onnx")
        for _ in range(2):  # the second time the output replaces that of the first
            with unchanged_files(model_files(file)):
                quantize(file, high_precision_dtype=dtype, output_path=output)
            assert model_files(output)[1:] == [file.with_name("out.onnx.1.data")]

    def test_an_output_that_shares_the_data_of_the_input(self, save: Save, small_limits: Lower) -> None:
        small_limits()
        file = save(matmuls(), "out.onnx.data")
        output = save(matmuls(), "out.onnx.data", "out.onnx")
        with unchanged_files(model_files(file)):
            convert(file, output_path=output)
        assert model_files(output)[1:] == [file.with_name("out.onnx.1.data")]

    def test_a_small_part_of_a_large_model_is_one_file(
        self, save: Save, small_limits: Lower, tmp_path: Path, monkeypatch
    ) -> None:
        file = save(matmuls())
        loaded = load_model(file)
        monkeypatch.setattr("onnxq.tensor_data.LARGE_MODEL", 2**30)
        save_model(loaded, tmp_path / "m.onnx")
        assert not (tmp_path / "m.onnx.data").exists()
        assert onnx.load_model(tmp_path / "m.onnx") == matmuls()
        assert why_invalid(loaded) == ""


class TestUnusableData:
    @pytest.mark.parametrize("damage", ["missing", "empty", "truncated", "directory"])
    def test_that_are_not_there(self, save: Save, small_limits: Lower, damage: str) -> None:
        file = save(matmuls())
        data = file.parent / "weights" / "w.bin"
        if damage == "empty":
            data.write_bytes(b"")
        elif damage == "truncated":
            os.truncate(data, data.stat().st_size - 1)
        else:
            data.unlink()
            if damage == "directory":
                data.mkdir()
        small_limits()
        with pytest.raises(
            InvalidModelError, match=r'model\.onnx: the external data of tensor "(w\d|inner)".*"weights/w\.bin"'
        ):
            load_model(file)

    @pytest.mark.parametrize("key", ["location", "offset", "length"])
    @pytest.mark.parametrize(
        "value", ["../w.bin", "{folder}/weights/w.bin", "/etc/hostname", "-1", "99999999999", "\0"]
    )
    def test_that_lie_elsewhere(self, save: Save, small_limits: Lower, tmp_path: Path, key: str, value: str) -> None:
        file = save(matmuls())
        (tmp_path / "w.bin").write_bytes(bytes(10_000))
        stored = onnx.load_model(file, load_external_data=False)
        entries = stored.graph.initializer[-1].external_data
        next(e for e in entries if e.key == key).value = value.format(folder=file.parent)
        file.write_bytes(stored.SerializeToString())
        small_limits()
        with pytest.raises(InvalidModelError, match='external data of tensor "w3"'):
            load_model(file)

    def test_a_link_to_the_outside(self, save: Save, small_limits: Lower, tmp_path: Path) -> None:
        file = save(matmuls())
        data = file.parent / "weights" / "w.bin"
        data.rename(tmp_path / "w.bin")
        data.symlink_to(tmp_path / "w.bin")
        small_limits()
        with pytest.raises(InvalidModelError, match="outside"):
            load_model(file)

    def test_data_that_were_not_loaded(self, save: Save, monkeypatch) -> None:
        file = save(matmuls())
        monkeypatch.chdir(file.parent)
        with pytest.raises(InvalidModelError, match=r'tensor "w\d".*give the path'):
            quantize(onnx.load_model(file, load_external_data=False))

    def test_a_model_cannot_say_that_its_data_were_checked(self, save: Save, tmp_path: Path) -> None:
        """The mark of a mapped tensor differs in each process: a copy from another one is worth nothing."""
        secret = tmp_path / "secret"
        secret.write_bytes(bytes(1024))
        model = matmuls()
        leave_in_file(model.graph.initializer[-1], secret, 0)
        assert tensor_values(model.graph.initializer[-1]).shape == (16, 16)
        mark = model.graph.initializer[-1].external_data[-1]
        mark.value = "0" * len(mark.value)
        with pytest.raises(InvalidModelError, match='"w3"'):
            quantize(model)
        (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
        with pytest.raises(InvalidModelError, match='"w3"'):
            load_model(tmp_path / "m.onnx")

    def test_data_that_vanish(self, save: Save, small_limits: Lower) -> None:
        file = save(matmuls())
        small_limits()
        loaded = load_model(file)
        (file.parent / "weights" / "w.bin").unlink()
        with pytest.raises(InvalidModelError, match="gone"):
            quantize(loaded)


def test_the_checker_is_asked_without_the_weights(save: Save, small_limits: Lower) -> None:
    file = save(matmuls())
    small_limits()
    loaded, held = load_model(file), matmuls()
    assert why_invalid(loaded) == why_invalid(held) == ""
    held.graph.initializer[1].raw_data += b"0"
    assert '"w1" holds 1025 bytes' in why_invalid(held)
    loaded.graph.node[1].op_type = "NoSuchOperator"
    assert "NoSuchOperator" in why_invalid(loaded)
    loaded.graph.node[1].op_type = "Relu"
    del loaded.graph.initializer[1].dims[1]
    assert why_invalid(loaded)


def test_weights_are_stripped_from_their_file(save: Save, small_limits: Lower) -> None:
    model = matmuls()
    file, wanted = save(model), strip_weights(model, above=64).model
    small_limits()
    assert strip_weights(load_model(file), above=64).model == wanted


def test_the_public_face_takes_a_path(save: Save, small_limits: Lower, tmp_path: Path) -> None:
    file = save(matmuls())
    small_limits()
    mixed = onnxq.convert_to_mixed_precision(file, calibration_data=feeds(), output_path=tmp_path / "mixed.onnx")
    assert self_contained(load_model(tmp_path / "mixed.onnx")) == self_contained(mixed)
