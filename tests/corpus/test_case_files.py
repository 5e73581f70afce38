from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxq.corpus.case import SIZE_LIMIT, load_case
from onnxq.corpus.format import TEXT_LIMIT
from onnxq.errors import CorpusError, InvalidModelError
from onnxq_builders import build

HEAD = 'schema = 1\ntitle = "a title"\nsource = "made up"\n'
BUILDER = '[model]\nbuilder = "residual.identity"\n'
FILE = '[model]\nfile = "model.onnx"\n'

Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(text: str) -> Path:
        file = tmp_path / "case" / "case.toml"
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return file

    return write


def test_a_case_with_every_key(write: Write) -> None:
    file = write(
        """
        schema = 1
        title = "a title"
        source = "made up"
        tags = ["one", "two"]
        [model]
        builder = "weak.stale_rank0_output"
        args = { symbolic = true, declared_shape = [0, "n"], batch = "batch" }
        [quantize]
        op_types_to_exclude = ["Gemm"]
        calibration_shapes = { x = [2, 32, 16, 16] }
        calibration_data = "data.npz"
        [expect]
        quantized_add_inputs = { add = [["a", "b"], "c"] }
        quantized_inputs = { conv1 = ["x"] }
        outputs = { y = ["batch", 16, "?"], z = [] }
        output_types = { y = "float16" }
        opset = 17
        runs = true
        min_sqnr_db = { y = 20, z = 3.5 }
        [[expect.policy]]
        when = "onnxruntime"
        quantized_add_inputs = { add = ["a", "b"] }
        [[known_failure]]
        quantizer = "modelopt"
        versions = "<0.39"
        check = "quantized-add-inputs"
        reason = "both get a pair"
        """
    )
    file.with_name("data.npz").write_bytes(b"")
    case = load_case(file)
    assert case.options == {"op_types_to_exclude": ["Gemm"], "calibration_shapes": {"x": [2, 32, 16, 16]}}
    assert case.calibration_data == file.with_name("data.npz")
    assert case.expect.under("onnxruntime").quantized_add_inputs == {"add": ["a", "b"]}
    assert case.expect.under("onnxruntime").outputs == case.expect.under("tensorrt").outputs
    assert case.expect.under("tensorrt").quantized_add_inputs == {"add": [["a", "b"], "c"]}
    assert case.known_failure("modelopt", "0.38.1", "quantized-add-inputs") is not None
    assert case.known_failure("modelopt", "0.39.0", "quantized-add-inputs") is None
    assert case.known_failure("onnxq", "0.38", "quantized-add-inputs") is None
    assert case.known_failure("modelopt", "0.38", "valid") is None


WRONG = {
    "not TOML": ("schema = 1\ntitle", r"not TOML: .*(line 2|end of document)"),
    "nested too deep": (HEAD + "a = " + "[" * 5000 + "]" * 5000, r"nested too deep|not TOML"),
    "a number of too many digits": (HEAD + "a = " + "1" * 5000, r"not TOML"),
    "nothing": ("", r"schema: this key is missing"),
    "another schema": (HEAD.replace("1", "2") + BUILDER, r"schema: found 2, and this version of onnxq reads schema 1"),
    "a wrong key": (
        HEAD + "sources = 1\n" + BUILDER,
        r'sources: unknown key "sources"; did you mean "source"\? Allowed: expect, goldens, known_failure, model',
    ),
    "a wrong key below": (
        HEAD + BUILDER + "arg = {}",
        r'model\.arg: unknown key "arg"; did you mean "args"\? Allowed: args, builder, file',
    ),
    "a wrong key in a list": (HEAD + BUILDER + "[[known_failure]]\nchek = 1", r'known_failure\[0\]\.chek: .*"check"'),
    "a missing key": ('schema = 1\ntitle = "x"\n' + BUILDER, r"source: this key is missing"),
    "a missing key in a list": (
        HEAD + BUILDER + '[[known_failure]]\nquantizer = "q"',
        r"known_failure\[0\]\.check: this",
    ),
    "a wrong relation": (
        HEAD + BUILDER + '[expect]\nrelations = ["swapped-operand"]',
        r'expect\.relations: .*"swapped-operand"; did you mean "swapped-operands"',
    ),
    "a relation that needs labels": (
        HEAD + BUILDER + '[expect]\nrelations = ["ground-truth"]',
        r'expect\.relations: .*"ground-truth"',
    ),
    "an empty title": (HEAD.replace("a title", "") + BUILDER, r"title: .*length >= 1; found ''"),
    "a wrong type": (HEAD + "tags = 'residual'\n" + BUILDER, r"tags: expected array, got str; found 'residual'"),
    "a wrong type in a list": (HEAD + "tags = ['a', 3]\n" + BUILDER, r"tags\[1\]: expected str, got int; found 3"),
    "no table": (HEAD + "model = 3", r"model: expected a table with the keys builder, file, args; found 3"),
    "a wrong dim": (
        HEAD + BUILDER + "[expect]\noutputs = { y = [1, 2.5] }",
        r"expect\.outputs\.y\[1\]: expected int . str",
    ),
    "a dim that is no number": (
        HEAD + BUILDER + "[expect]\noutputs = { y = [1.5] }",
        r"expect\.outputs\.y\[0\]: expected int \| str, got float; found 1\.5",
    ),
    "wrong tensors": (
        HEAD + BUILDER + "[expect]\nquantized_add_inputs = { add = 'x' }",
        r"expect\.quantized_add_inputs\.add: expected array",
    ),
    "a wrong policy": (
        HEAD + BUILDER + "[[expect.policy]]\nwhen = 'tensort'",
        r"expect\.policy\[0\]\.when: expected one of 'tensorrt', 'onnxruntime'; found 'tensort'",
    ),
    "a wrong element type": (
        HEAD + BUILDER + "[expect]\noutput_types = { y = 'float32' }",
        r'expect\.output_types: unknown element type "float32"; did you mean "float',
    ),
    "an unknown error": (
        HEAD + BUILDER + "[expect]\nraises = 'InvalidModel'",
        r'expect\.raises: unknown error class "InvalidModel"; did you mean "InvalidModelError"',
    ),
    "a builtin error": (HEAD + BUILDER + "[expect]\nraises = 'ValueError'", r"expect\.raises: unknown error class"),
    "a refusal with outputs": (
        HEAD + BUILDER + "[expect]\nraises = 'UsageError'\noutputs = {}",
        r"expect: a case that raises",
    ),
    "mentions without a refusal": (
        HEAD + BUILDER + "[expect]\nmentions = ['x']",
        r"expect\.mentions: goes with raises",
    ),
    "neither builder nor file": (HEAD + "[model]\n", r"model: expected exactly one of builder and file; found neither"),
    "both builder and file": (
        HEAD + BUILDER + "file = 'model.onnx'",
        r"model: expected exactly one of builder and file; found both",
    ),
    "an unknown builder": (
        HEAD + "[model]\nbuilder = 'identity'",
        r'model\.builder: unknown builder "identity"; did you mean .*"residual.identity"',
    ),
    "a builder to import": (HEAD + "[model]\nbuilder = 'os.system'", r'model\.builder: unknown builder "os.system"'),
    "an unknown argument": (
        HEAD + BUILDER + "args = { chanels = 3 }",
        r'model\.args\.chanels: unknown argument "chanels"; did you mean "channels"',
    ),
    "an argument of a wrong type": (
        HEAD + BUILDER + "args = { channels = '3' }",
        r"model\.args\.channels: expected int, got str; found '3'",
    ),
    "a huge argument": (
        HEAD + BUILDER + "args = { channels = 1_000_000 }",
        r"model\.args\.channels: at most 4096 in size; found 1000000",
    ),
    "arguments for a file": (HEAD + FILE + "args = { a = 1 }", r"model\.args: only a builder takes arguments"),
    "a missing file": (HEAD + FILE, r'model\.file: there is no file "model\.onnx" in the folder of the case'),
    "a folder as a file": (HEAD + "[model]\nfile = '.'", r'model\.file: there is no file "\."'),
    "a file above": (
        HEAD + "[model]\nfile = '../outside.onnx'",
        r'model\.file: "\.\./outside\.onnx" lies outside of the folder of the case',
    ),
    "an absolute file": (HEAD + "[model]\nfile = '/etc/passwd'", r"model\.file: .* lies outside"),
    "a file with a null byte": (HEAD + '[model]\nfile = "a\\u0000b"', r"model\.file: .* is no usable path"),
    "an unknown option": (
        HEAD + BUILDER + "[quantize]\nop_types = ['Conv']",
        r'quantize\.op_types: unknown argument "op_types"; did you mean .*"op_types_to_quantize"\?',
    ),
    "an option that writes": (
        HEAD + BUILDER + "[quantize]\noutput_path = 'x'",
        r'quantize\.output_path: unknown argument "output_path"',
    ),
    "files of ranges": (
        HEAD + BUILDER + "[quantize]\nranges = '../../secret.json'",
        r'quantize\.ranges: unknown argument "ranges"',
    ),
    "calibration caches": (
        HEAD + BUILDER + "[quantize]\ncalibration_cache_path = '/etc/passwd'",
        r"quantize\.calibration_cache_path: unknown argument",
    ),
    "an option of a wrong type": (
        HEAD + BUILDER + "[quantize]\nnodes_to_exclude = 'conv1'",
        r"quantize\.nodes_to_exclude: expected array . null, got str",
    ),
    "data above": (
        HEAD + BUILDER + "[quantize]\ncalibration_data = '../x.npz'",
        r"quantize\.calibration_data: .* lies outside",
    ),
    "data that are no file": (
        HEAD + BUILDER + "[quantize]\ncalibration_data = [1.0]",
        r"quantize\.calibration_data: expected the name of a file",
    ),
    "an unknown check": (
        HEAD + BUILDER + "[[known_failure]]\nquantizer='q'\nreason='r'\ncheck='quantized-add-input'",
        r'known_failure\[0\]\.check: unknown check "quantized-add-input"',
    ),
    "a check that the case doesn't have": (
        HEAD + BUILDER + "[[known_failure]]\nquantizer='q'\nreason='r'\ncheck='raises'",
        r'known_failure\[0\]\.check: unknown check "raises"',
    ),
    "wrong versions": (
        HEAD + BUILDER + "[[known_failure]]\nquantizer='q'\nreason='r'\ncheck='valid'\nversions='below 3'",
        r'known_failure\[0\]\.versions: expected a specifier such as "<0\.39"; found "below 3"',
    ),
}


@pytest.mark.parametrize(("text", "message"), WRONG.values(), ids=WRONG)
def test_wrong_files(write: Write, text: str, message: str) -> None:
    file = write(text)
    with pytest.raises(CorpusError) as caught:
        load_case(file)
    assert re.match(f"{re.escape(str(file))}: {message}", str(caught.value))
    assert "\n" not in str(caught.value)


@settings(max_examples=50)
@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_any_bytes_are_a_case_or_an_error(tmp_path_factory: pytest.TempPathFactory, text: bytes) -> None:
    file = tmp_path_factory.getbasetemp() / "case.toml"
    file.write_bytes(text)
    with pytest.raises(CorpusError):
        load_case(file)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="no such file"):
        load_case(tmp_path / "case.toml")
    with pytest.raises(CorpusError, match="no such file"):
        load_case(tmp_path)


def test_sizes_are_bounded(write: Write) -> None:
    with pytest.raises(CorpusError, match=f"a case file may have {TEXT_LIMIT}"):
        load_case(write(f"{HEAD}# {'x' * TEXT_LIMIT}"))
    file = write(HEAD + FILE)
    with file.with_name("model.onnx").open("wb") as model:
        model.truncate(SIZE_LIMIT + 1)
    with pytest.raises(CorpusError, match=r'model\.file: "model\.onnx" has \d+ bytes, and a case may have 64 MiB'):
        load_case(file)


def test_links_out_of_the_folder_are_refused(write: Write, tmp_path: Path) -> None:
    file = write(HEAD + FILE)
    (tmp_path / "outside.onnx").write_bytes(b"secret")
    file.with_name("model.onnx").symlink_to("../outside.onnx")
    with pytest.raises(CorpusError, match=r'model\.file: "model\.onnx" lies outside of the folder of the case'):
        load_case(file)


def test_a_folder_that_is_a_link_itself_is_fine(write: Write, tmp_path: Path) -> None:
    file = write(HEAD + FILE)
    onnx.save_model(build("residual.identity"), file.with_name("model.onnx"))
    (tmp_path / "link").symlink_to(file.parent)
    assert load_case(tmp_path / "link" / "case.toml").load_model() == build("residual.identity")


@pytest.fixture
def external(write: Write) -> Path:
    """A case whose model has its weights in weights.bin."""
    file = write(HEAD + FILE)
    options = {"save_as_external_data": True, "location": "weights.bin", "size_threshold": 0}
    onnx.save_model(build("residual.identity"), file.with_name("model.onnx"), **options)
    return file


def test_external_data_in_the_folder(external: Path) -> None:
    assert load_case(external).load_model() == build("residual.identity")


def test_external_data_outside(external: Path) -> None:
    data, outside = external.with_name("weights.bin"), external.parents[1] / "outside.bin"
    data.rename(outside)
    with pytest.raises(CorpusError, match=r'external data: there is no file "weights\.bin"'):
        load_case(external).load_model()
    data.symlink_to(outside)
    with pytest.raises(CorpusError, match=r'model\.file: external data: "weights\.bin" lies outside of the folder'):
        load_case(external).load_model()


@pytest.mark.parametrize("location", ["../outside.bin", "/etc/passwd"])
def test_external_data_by_a_path_outside(external: Path, location: str) -> None:
    model = onnx.load_model(external.with_name("model.onnx"), load_external_data=False)
    for tensor in model.graph.initializer:
        next(e for e in tensor.external_data if e.key == "location").value = location
    onnx.save_model(model, external.with_name("model.onnx"))
    (external.parents[1] / "outside.bin").write_bytes(b"0" * 10**6)
    with pytest.raises(CorpusError, match="lies outside of the folder"):
        load_case(external).load_model()


def test_a_file_that_is_no_model(write: Write) -> None:
    file = write(HEAD + FILE)
    file.with_name("model.onnx").write_bytes(b"\xff")
    with pytest.raises(InvalidModelError, match=r"model\.onnx: not an ONNX model"):
        load_case(file).load_model()


def test_a_value_that_the_builder_refuses(write: Write) -> None:
    case = load_case(write(HEAD + "[model]\nbuilder = 'weak.topk'\nargs = { k = 'below' }"))
    with pytest.raises(CorpusError, match=r"model\.args: builder weak\.topk: k is 'below'"):
        case.load_model()
