"""Every option in every spelling reaches the library as it was typed."""

import pytest

from onnxq.cli.parser import parse
from onnxq.errors import UsageError

ONE_VALUE = {
    "onnx_path": ("onnx_path", "m_1.onnx"),
    "output": ("output", "o_1.onnx"),
    "output_path": ("output", "o_1.onnx"),
    "quantize_mode": ("quantize_mode", "int_8"),
    "calibration_data": ("calibration_data", "d_1.npz"),
    "calibration_data_path": ("calibration_data", "d_1.npz"),
    "calibration_method": ("calibration_method", "en_tropy"),
    "calibration_shapes": ("calibration_shapes", "x_1:1x2"),
    "high_precision_dtype": ("high_precision_dtype", "fp_16"),
    "on_quantized": ("on_quantized", "ke_ep"),
}
LISTS = ("op_types_to_quantize", "op_types_to_exclude", "nodes_to_quantize", "nodes_to_exclude")


@pytest.mark.parametrize("name", ONE_VALUE)
@pytest.mark.parametrize("form", ["--{name}={value}", "--{name} {value}"])
@pytest.mark.parametrize("separator", ["_", "-"])
def test_one_value(name, form, separator):
    target, value = ONE_VALUE[name]
    line = form.format(name=name.replace("_", separator), value=value)
    assert getattr(parse(["quantize", *line.split()]), target) == value


@pytest.mark.parametrize("command", ["quantize", "explain"])
@pytest.mark.parametrize("name", LISTS)
@pytest.mark.parametrize("separator", ["_", "-"])
def test_several_values(command, name, separator):
    option = "--" + name.replace("_", separator)
    for words in ([option, "a_b", "c"], [f"{option}=a_b", option, "c"]):
        options = parse([command, "m.onnx", *words])
        assert getattr(options, name) == ["a_b", "c"]
        assert options.model == "m.onnx"


def test_an_option_ends_a_list():
    options = parse(["quantize", "--op_types_to_quantize", "Conv", "MatMul", "--onnx_path", "m.onnx"])
    assert (options.op_types_to_quantize, options.onnx_path, options.model) == (["Conv", "MatMul"], "m.onnx", None)


def test_short_options_and_flags():
    options = parse(["quantize", "m.onnx", "-q", "-o", "o.onnx", "--seed", "7"])
    assert (options.quiet, options.output, options.seed) == (True, "o.onnx", 7)


def test_invariants_of_a_check():
    options = parse(["check", "a", "b", "--only", "valid", "unique-names", "--only=io-preserved"])
    assert options.only == ["valid", "unique-names", "io-preserved"]


@pytest.mark.parametrize("word", ["--calib", "--out", "--quant=int8"])
def test_abbreviations_are_refused_with_what_may_be_meant(word):
    with pytest.raises(UsageError, match="unknown argument"):
        parse(["quantize", "m.onnx", word])


def test_a_value_keeps_its_underscores():
    assert parse(["explain", "m.onnx", "--node", "__n_1"]).node == "__n_1"
