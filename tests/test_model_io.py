"""Files of models: what is read, what is refused, what is written, and what is left behind."""

import os
import stat
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto, helper, numpy_helper

from onnxq.errors import InvalidModelError, UsageError
from onnxq.model_io import check_writable, load_model, model_files, save_model, why_invalid, write_text
from onnxq.tensor_data import self_contained

WEIGHT = np.arange(64, dtype=np.float32).reshape(8, 8)


@pytest.fixture
def model() -> ModelProto:
    return matmul_model()


def matmul_model() -> ModelProto:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[n, 8] x) => (float[n, 8] y) { y = MatMul(x, w) }'
    )
    model.graph.initializer.append(numpy_helper.from_array(WEIGHT, "w"))
    return model


def save_external(model: ModelProto, path: Path, location: str = "weights.bin") -> None:
    onnx.save_model(model, path, save_as_external_data=True, location=location, size_threshold=0)


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def test_a_saved_model_loads_as_it_was(model, tmp_path):
    save_model(model, tmp_path / "m.onnx")
    assert load_model(tmp_path / "m.onnx") == model
    assert names(tmp_path) == ["m.onnx"]


def test_saving_replaces_a_file(model, tmp_path):
    (tmp_path / "m.onnx").write_bytes(b"old")
    save_model(model, str(tmp_path / "m.onnx"))
    assert load_model(str(tmp_path / "m.onnx")) == model


def test_a_saved_file_has_the_mode_of_any_new_file(model, tmp_path):
    (tmp_path / "other").touch()
    save_model(model, tmp_path / "m.onnx")
    assert stat.S_IMODE((tmp_path / "m.onnx").stat().st_mode) == stat.S_IMODE((tmp_path / "other").stat().st_mode)


def test_saving_keeps_a_symbolic_link(model, tmp_path):
    (tmp_path / "store").mkdir()
    link = tmp_path / "link.onnx"
    link.symlink_to(tmp_path / "store" / "m.onnx")
    save_model(model, link)
    assert link.is_symlink()
    assert load_model(tmp_path / "store" / "m.onnx") == model
    assert names(tmp_path) == ["link.onnx", "store"]


def test_external_data_are_found_beside_the_model_whatever_the_current_directory(model, tmp_path, monkeypatch):
    (tmp_path / "models").mkdir()
    save_external(model, tmp_path / "models" / "m.onnx")
    monkeypatch.chdir(tmp_path)
    loaded = load_model("models/m.onnx")
    (weight,) = loaded.graph.initializer
    assert np.array_equal(numpy_helper.to_array(weight), WEIGHT)
    assert weight.data_location == TensorProto.DEFAULT
    assert not weight.external_data


def test_model_files_lists_external_data_once_each(model, tmp_path):
    model.graph.initializer.append(numpy_helper.from_array(WEIGHT, "v"))
    save_external(model, tmp_path / "m.onnx")
    assert model_files(tmp_path / "m.onnx") == [tmp_path / "m.onnx", tmp_path / "weights.bin"]


def test_missing_external_data_name_the_tensor_and_the_file(model, tmp_path):
    save_external(model, tmp_path / "m.onnx")
    (tmp_path / "weights.bin").unlink()
    with pytest.raises(InvalidModelError, match=r'"w".*"weights\.bin"'):
        load_model(tmp_path / "m.onnx")


@pytest.mark.parametrize("kept", [0, 100, 255])
def test_truncated_external_data_name_the_tensor(model, tmp_path, kept):
    save_external(model, tmp_path / "m.onnx")
    os.truncate(tmp_path / "weights.bin", kept)
    with pytest.raises(InvalidModelError, match='"w"'):
        load_model(tmp_path / "m.onnx")


@pytest.mark.parametrize("location", ["../weights.bin", "/etc/hostname", ""])
def test_external_data_outside_the_folder_are_refused(model, tmp_path, location):
    (tmp_path / "inner").mkdir()
    save_external(model, tmp_path / "m.onnx")
    stored = onnx.load(tmp_path / "m.onnx", load_external_data=False)
    next(e for e in stored.graph.initializer[0].external_data if e.key == "location").value = location
    (tmp_path / "inner" / "m.onnx").write_bytes(stored.SerializeToString())
    with pytest.raises(InvalidModelError, match='"w"'):
        load_model(tmp_path / "inner" / "m.onnx")


@given(st.integers(1, 3))
def test_names_that_are_not_utf8_are_refused(tmp_path_factory, position):
    damaged = matmul_model()
    damaged.graph.node[0].name = "abcdef"
    raw = bytearray(damaged.SerializeToString())
    raw[raw.index(b"abcdef") + position] = 0xFF
    file = tmp_path_factory.mktemp("utf8") / "m.onnx"
    file.write_bytes(raw)
    with pytest.raises(InvalidModelError, match="UTF-8"):
        load_model(file)


@pytest.mark.parametrize("where", ["node", "input", "initializer", "dim", "attribute", "opset"])
def test_every_kind_of_name_is_looked_at(model, tmp_path, where):
    node = model.graph.node[0]
    mark = "mark" + "0" * 4
    match where:
        case "node":
            node.input[0] = mark
        case "input":
            model.graph.input[0].name = mark
        case "initializer":
            model.graph.initializer[0].name = mark
        case "dim":
            model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = mark
        case "attribute":
            node.attribute.append(helper.make_attribute(mark, 1))
        case "opset":
            model.opset_import.append(helper.make_opsetid(mark, 1))
    file = tmp_path / "m.onnx"
    file.write_bytes(model.SerializeToString().replace(mark.encode(), b"mark\xff\xfe\xfd\xfc"))
    with pytest.raises(InvalidModelError, match="UTF-8"):
        load_model(file)


def test_a_model_beyond_the_limit_gets_external_data(model, tmp_path, monkeypatch):
    monkeypatch.setattr("onnxq.tensor_data.LARGE_MODEL", 10)
    monkeypatch.setattr("onnxq.tensor_data.HEAVY_TENSOR", 10)
    big = ModelProto()
    big.CopyFrom(model)
    big.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.ones((64, 64), np.float32), "w"))
    before = big.SerializeToString()
    save_model(big, tmp_path / "m.onnx")
    assert names(tmp_path) == ["m.onnx", "m.onnx.data"]
    assert self_contained(load_model(tmp_path / "m.onnx")) == big
    assert big.SerializeToString() == before


@pytest.mark.parametrize("write", [save_model, lambda model, path: write_text("text", path)])
def test_a_failed_write_leaves_the_old_file_and_nothing_else(model, tmp_path, monkeypatch, write):
    (tmp_path / "out").write_bytes(b"old")

    def full(*_args, **_keywords):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(UsageError, match="No space left"):
        write(model, tmp_path / "out")
    assert names(tmp_path) == ["out"]
    with (tmp_path / "out").open("rb") as file:
        assert file.read() == b"old"


def test_an_interrupted_write_leaves_nothing(model, tmp_path, monkeypatch):
    def interrupted(*_args):
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        save_model(model, tmp_path / "m.onnx")
    assert names(tmp_path) == []


def test_text_is_written_as_utf8(tmp_path):
    write_text("é\n", tmp_path / "t.txt")
    assert (tmp_path / "t.txt").read_bytes() == b"\xc3\xa9\n"


def test_a_device_is_never_replaced(model):
    with pytest.raises(UsageError, match="device"):
        save_model(model, os.devnull)
    assert not Path(os.devnull).is_file()


def test_check_writable_asks_for_the_inputs_only_if_the_output_exists(tmp_path):
    def inputs():
        pytest.fail("asked")
        yield tmp_path

    check_writable(tmp_path / "new.onnx", inputs=inputs())


def test_check_writable_leaves_nothing_behind(tmp_path):
    check_writable(tmp_path / "new.onnx")
    assert names(tmp_path) == []


def test_why_invalid_is_empty_for_a_valid_model_and_one_line_for_another(model):
    assert why_invalid(model) == ""
    model.graph.node[0].op_type = "NoSuchOperator"
    problem = why_invalid(model)
    assert "NoSuchOperator" in problem
    assert "\n" not in problem
