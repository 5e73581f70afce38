from __future__ import annotations

import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from onnxq.corpus import limits
from onnxq.corpus.case import Case, load_case
from onnxq.corpus.limits import bounded_memory, check_model
from onnxq.errors import CorpusError, InvalidModelError
from onnxq.printable import one_line, printable

HEAD = 'schema = 1\ntitle = "a title"\nsource = "made up"\n'
FILE = '[model]\nfile = "model.onnx"\n'

Make = Callable[..., Case]


def model_of(
    *nodes: onnx.NodeProto, weights: tuple[TensorProto, ...] = (), dims: tuple[int, ...] = (1, 4)
) -> ModelProto:
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        list(nodes) or [helper.make_node("Relu", ["x"], ["y"], "relu")],
        "g",
        [value("x", TensorProto.FLOAT, dims)],
        [value("y", TensorProto.FLOAT, None)],
        list(weights),
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Writes a case with a model beside secrets that it must not reach."""
    (tmp_path / "secret.bin").write_bytes(b"\0" * 16)

    def make(model: ModelProto, more: str = "") -> Case:
        folder = tmp_path / "case"
        folder.mkdir(exist_ok=True)
        (folder / "model.onnx").write_bytes(model.SerializeToString())
        (folder / "case.toml").write_text(HEAD + FILE + more)
        return load_case(folder / "case.toml")

    return make


def external(location: str, **more: str) -> TensorProto:
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, **more}.items():
        tensor.external_data.add(key=key, value=value)
    return tensor


@pytest.mark.parametrize(
    "location",
    ["../secret.bin", "/etc/passwd", "a/../../secret.bin", "link", "dir/secret.bin", "a\0b", "", ".", "pipe"],
)
def test_external_data_stay_in_the_folder(make: Make, tmp_path: Path, location: str) -> None:
    folder = tmp_path / "case"
    folder.mkdir()
    (folder / "link").symlink_to(tmp_path / "secret.bin")
    (folder / "dir").symlink_to(tmp_path)
    os.mkfifo(folder / "pipe")
    case = make(model_of(weights=(external(location),)))
    with pytest.raises(CorpusError, match=r"external data: .*(outside|no file|no usable path)"):
        case.load_model()


def test_links_in_a_circle(make: Make, tmp_path: Path) -> None:
    folder = tmp_path / "case"
    folder.mkdir()
    (folder / "one").symlink_to(folder / "two")
    (folder / "two").symlink_to(folder / "one")
    with pytest.raises(CorpusError, match="external data"):
        make(model_of(weights=(external("one"),))).load_model()


def test_a_body_of_a_function_cannot_name_files(make: Make) -> None:
    inner = helper.make_graph([helper.make_node("Constant", [], ["c"], value=external("/etc/passwd"))], "inner", [], [])
    holder = helper.make_node("If", ["a"], ["b"], then_branch=inner, else_branch=inner)
    model = model_of()
    imports = [helper.make_opsetid("", 17)]
    model.functions.append(helper.make_function("own", "f", ["a"], ["b"], [holder], imports))
    with pytest.raises(CorpusError, match="external data of what is neither"):
        make(model).load_model()


def test_many_tensors_of_one_file_count_each(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SIZE_LIMIT", 4096)
    folder = tmp_path / "case"
    folder.mkdir()
    (folder / "weights.bin").write_bytes(b"\0" * 2000)
    tensors = [external("weights.bin"), external("weights.bin"), external("weights.bin", length="16")]
    assert make(model_of(weights=(external("weights.bin", length="16"),))).load_model()
    with pytest.raises(CorpusError, match="with its external data; allowed"):
        make(model_of(weights=tuple(tensors))).load_model()


def test_a_case_file_that_is_a_link_out_of_its_folder(tmp_path: Path) -> None:
    (tmp_path / "real.toml").write_text(HEAD + '[model]\nbuilder = "residual.identity"\n')
    (tmp_path / "case").mkdir()
    (tmp_path / "case" / "case.toml").symlink_to(tmp_path / "real.toml")
    with pytest.raises(CorpusError, match="lies outside of the folder"):
        load_case(tmp_path / "case" / "case.toml")


def shaped(op: str, name: str, values: list[int]) -> ModelProto:
    shape = numpy_helper.from_array(np.array(values, np.int64), "shape")
    inputs = ["shape"] if op == "ConstantOfShape" else ["x", "shape"]
    return model_of(
        helper.make_node(op, inputs, ["big"], name), helper.make_node("Relu", ["big"], ["y"]), weights=(shape,)
    )


def nested(depth: int) -> ModelProto:
    node = helper.make_node("Identity", ["x"], ["y0"])
    for level in range(depth):
        body = helper.make_graph([node], "body", [], [helper.make_tensor_value_info(node.output[0], 1, None)])
        node = helper.make_node("If", ["c"], [f"y{level + 1}"], then_branch=body, else_branch=body)
    return model_of(node)


TOO_LARGE = {
    "nodes": (lambda: model_of(*[helper.make_node("Relu", ["x"], [f"y{n}"]) for n in range(20_001)]), "20,001 nodes"),
    "nesting": (lambda: nested(9), "bodies nested 9 deep; allowed: 8"),
    "dims": (lambda: model_of(dims=(1,) * 33), '"x" has 33 dims; allowed: 32'),
    "input": (lambda: model_of(dims=(2**20, 2**20)), r'"x" is declared with 1,099,511,627,776 elements'),
    "stored": (
        lambda: model_of(weights=(TensorProto(name="w", data_type=1, dims=[2**20, 2**10]),)),
        "1,073,741,824 stored elements",
    ),
    "ConstantOfShape": (lambda: shaped("ConstantOfShape", "fill", [10**6, 10**6]), 'ConstantOfShape "fill" has'),
    "Expand": (lambda: shaped("Expand", "expand", [10**6, 10**6, 4]), 'Expand "expand" has 4,000,000,000,000'),
    "Tile": (lambda: shaped("Tile", "tile", [10**6, 10**6]), 'Tile "tile" has'),
}


@pytest.mark.parametrize(("model", "message"), TOO_LARGE.values(), ids=TOO_LARGE)
def test_what_is_too_large_is_refused_before_it_is_loaded(
    make: Make, model: Callable[[], ModelProto], message: str
) -> None:
    case = make(model())
    with pytest.raises(CorpusError, match=message) as caught:
        case.load_model()
    assert str(caught.value).startswith(f"{case.path}: model.file: ")


def test_what_fits_is_not_refused() -> None:
    check_model("m", nested(8))
    check_model("m", shaped("Expand", "expand", [1000, 1, 4]))
    check_model("m", model_of(dims=(-1, 0)))


def test_arrays_that_unpack_to_too_much(make: Make, tmp_path: Path) -> None:
    make(model_of())
    with zipfile.ZipFile(tmp_path / "case" / "c.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", b"\0" * (limits.SIZE_LIMIT + 1))
    assert (tmp_path / "case" / "c.npz").stat().st_size < 100_000
    with pytest.raises(CorpusError, match=r"calibration_data: \d+ bytes when unpacked"):
        make(model_of(), '[quantize]\ncalibration_data = "c.npz"\n')


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("channels = 4000, size = 4000", "their product is at most"),
        ("channels = 1_000_000", "at most 4096 in size"),
    ],
)
def test_builders_get_small_numbers(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "case.toml").write_text(HEAD + f'[model]\nbuilder = "residual.identity"\nargs = {{ {text} }}\n')
    with pytest.raises(CorpusError, match=message):
        load_case(tmp_path / "case.toml")


def test_a_shape_for_calibration_is_bounded(make: Make) -> None:
    with pytest.raises(CorpusError, match=r"quantize\.calibration_shapes\.x: .* elements; allowed"):
        make(model_of(), "[quantize]\ncalibration_shapes = { x = [100000, 100000] }\n")


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the bound on memory needs Linux")
def test_memory_is_bounded_while_a_case_runs() -> None:
    import resource

    before = resource.getrlimit(resource.RLIMIT_AS)
    with pytest.raises(InvalidModelError, match="more than 4 GiB of memory"), bounded_memory():
        np.ones((2**20, 2**13), np.uint8)
    assert resource.getrlimit(resource.RLIMIT_AS) == before


def test_control_characters_are_escaped() -> None:
    assert printable("a\x1b[31m\u202eb\nö") == "a\\x1b[31m\\u202eb\nö"
    assert one_line("a\nb") == "a\\nb"
