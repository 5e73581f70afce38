"""Quantization of networks that nobody here wrote: placed as the table says, valid, runnable, and close to float."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto
from real_models import (
    Feed,
    RealModel,
    file_bytes,
    one_chunk,
    one_chunk_without_rate,
    one_sequence,
    photo,
    text_line,
)

import onnxq
from onnxq.numerics import output_sqnr, run_model


def light(name: str, feed: str, output: str, bound: float = 40.0, residual: int = 0, **quantized: int) -> RealModel:
    """A model of onnx's own wheel. Its weights are constant, so that its output hardly depends on the input: with most
    of them all classes come out equal, in float and in int8.
    """
    file = f"onnx/backend/test/data/light/light_{name}.onnx"
    return RealModel("onnx", file, photo(feed), quantized, residual, {output: bound})


def ocr(
    name: str, height: int, width: int, output: str, bound: float, residual: int = 0, **quantized: int
) -> RealModel:
    """A Paddle export: unnamed nodes, dynamic dims, opset 11.

    The bounds of the detector and the recognizer are low. Their channels differ so much in range that one int8 scale a
    tensor, from the greatest value seen, loses much; onnxruntime's own quantizer gets 3 and 0.5 dB on the same samples.
    """
    file = f"rapidocr_onnxruntime/models/{name}.onnx"
    return RealModel("rapidocr-onnxruntime", file, text_line(height, width), quantized, residual, {output: bound})


UNKNOWN_SHAPES = ('output "output" keeps its declared shape', 'output "stateN" keeps its declared shape')
VOICE = {"output": 8.0, "stateN": 15.0}


def voice(name: str, feed=one_chunk, bounds=VOICE, warnings=UNKNOWN_SHAPES, **quantized: int) -> RealModel:
    """A detector of speech. Its LSTM isn't quantized, its convolutions are. Two of the files hold a network for each of
    two sampling rates, in the branches of an If; the one for 8 kHz never runs here.
    """
    return RealModel("silero-vad", f"silero_vad/data/{name}.onnx", feed, quantized, 0, bounds, warnings)


MODELS = {
    "alexnet": light("bvlc_alexnet", "data_0", "prob_1", Conv=5, MaxPool=2),
    # Constant weights are all 127 in int8. onnxruntime's fused convolutions before the pools saturate on them where the
    # processor has no VNNI; with session.x64quantprecision=1, or without optimizations, there are 57 dB.
    "densenet121": light("densenet121", "data_0", "fc6_1", 30.0, Conv=121, AveragePool=3, GlobalAveragePool=1),
    "inception_v1": light("inception_v1", "data_0", "prob_1", Conv=57, MaxPool=12, AveragePool=1),
    "inception_v2": light("inception_v2", "data_0", "prob_1", Conv=69, MaxPool=3, AveragePool=8),
    "resnet50": light("resnet50", "gpu_0/data_0", "gpu_0/softmax_1", residual=16, Conv=53, Sum=16, AveragePool=1),
    "shufflenet": light("shufflenet", "gpu_0/data_0", "gpu_0/softmax_1", residual=13, Conv=48, Sum=13, AveragePool=4),
    "squeezenet": light("squeezenet", "data_0", "softmaxout_1", Conv=26, MaxPool=2, GlobalAveragePool=1),
    "vgg19": light("vgg19", "data_0", "prob_1", Conv=16),
    "zfnet512": light("zfnet512", "gpu_0/data_0", "gpu_0/softmax_1", Conv=5, MaxPool=2),
    "ocr_detection": ocr(
        "ch_PP-OCRv4_det_infer", 64, 320, "sigmoid_0.tmp_0", 2.0, Conv=62, ConvTranspose=2, GlobalAveragePool=10
    ),
    "ocr_recognition": ocr(
        "ch_PP-OCRv4_rec_infer",
        48,
        320,
        "softmax_11.tmp_0",
        2.0,
        Conv=38,
        MatMul=9,
        GlobalAveragePool=2,
        AveragePool=1,
    ),
    "ocr_direction": ocr(
        "ch_ppocr_mobile_v2.0_cls_infer",
        48,
        192,
        "save_infer_model/scale_0.tmp_1",
        10.0,
        7,
        Conv=49,
        Add=7,
        GlobalAveragePool=10,
    ),
    "voice_if": voice("silero_vad", warnings=(*UNKNOWN_SHAPES, 'body "If_0.else_branch" never ran'), Conv=5),
    "voice_ifless": voice(  # it still has an If, and its LSTM is written out
        "silero_vad_op18_ifless", warnings=('body "node_cond__1.else_branch" never ran',), Conv=5, Gemm=2
    ),
    "voice_16k": voice("silero_vad_16k_op15", Conv=5),
    "voice_half": voice("silero_vad_half", one_chunk_without_rate, Conv=5),
    "voice_openvino": voice("silero_vad_openvino_16k", one_chunk_without_rate, warnings=(), Conv=5),
    "voice_sequence": voice(
        "silero_vad_16k_sequence", one_sequence, {"speech_probs": 8.0, "hn": 15.0, "cn": 15.0}, (), Conv=5
    ),
    "file_type": RealModel(
        "magika",
        "magika/models/standard_v3_3/model.onnx",
        file_bytes,
        {"Conv": 1, "MatMul": 2, "GlobalMaxPool": 1},
        min_sqnr={"target_label": 15.0},
    ),
}
"""Every model here quantizes; none is refused.

Float by their size (P2): classifiers on a batch of one, the first grouped convolution of shufflenet, the gates of
ocr_direction, and the first convolution of the voices, which makes 258 channels of one. The attention of
ocr_recognition is float because its length is dynamic.
"""


@dataclass(frozen=True)
class Case:
    """One model, quantized once for all tests of it."""

    expected: RealModel
    path: Path
    digest: str
    float_model: ModelProto
    result: onnxq.QuantizationResult
    samples: list[Feed]
    highest_bound: float


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


SLOW_IN_HALF = {"alexnet", "densenet121", "inception_v1", "inception_v2", "squeezenet", "vgg19", "zfnet512"}
"""Their weights are made at run time from a few numbers, so half precision shows nothing on them but time."""

HALF_SQNR = 50.0
"""Bound in half precision, in dB, where the table has a higher one."""

RUNS = [(name, "fp32") for name in MODELS] + [(name, "fp16") for name in MODELS if name not in SLOW_IN_HALF]


@pytest.fixture(scope="module", params=RUNS, ids=lambda run: f"{run[0]}-{run[1]}")
def case(request) -> Case:
    name, precision = request.param
    expected = MODELS[name]
    path = expected.path
    if path is None:
        pytest.skip(f"{expected.package} isn't installed, or holds no {expected.file}")
    rng = np.random.default_rng(0)
    before = digest(path)
    calibration = [expected.feed(rng) for _ in range(2)]
    result = onnxq.quantize(path, calibration_data=calibration, high_precision_dtype=precision)
    highest = HALF_SQNR if precision == "fp16" else float("inf")
    return Case(expected, path, before, onnx.load(path), result, [expected.feed(rng)], highest)


def test_the_file_is_untouched(case):
    assert digest(case.path) == case.digest


def test_the_nodes_of_the_table_are_quantized(case):
    labels = case.result.placement.labels
    op_types = {edge.node: labels[edge].op_type for edge in case.result.placement.quantized}
    assert Counter(op_types.values()) == case.expected.quantized


def test_a_residual_add_has_exactly_one_quantized_input_and_any_other_has_none(case):
    placement = case.result.placement
    counts = [(len(placement.quantized_inputs(add.node)), add.is_residual) for add in placement.residuals]
    assert all(count == is_residual for count, is_residual in counts)
    assert sum(is_residual for _, is_residual in counts) == case.expected.residual


def test_the_warnings_are_those_of_the_table(case):
    warnings = case.result.warnings
    assert len(warnings) == len(case.expected.warnings)
    assert all(words in warning for words, warning in zip(case.expected.warnings, warnings, strict=True))


def test_no_invariant_is_violated(case):
    assert onnxq.check(case.float_model, case.result.model) == []


def test_it_runs_with_optimizations_off_and_on_and_is_close_to_float(case):
    expected = run_model(case.float_model, case.samples, optimize=True)
    for optimize in (False, True):
        ratios = output_sqnr(expected, run_model(case.result.model, case.samples, optimize=optimize))
        assert ratios.keys() == case.expected.min_sqnr.keys()
        for name, ratio in ratios.items():
            assert ratio >= min(case.expected.min_sqnr[name], case.highest_bound), name


def test_resnet50_is_of_the_old_format_that_it_stands_for_here():
    path = MODELS["resnet50"].path
    if path is None:
        pytest.skip("this version of onnx comes without its light models")
    model = onnx.load(path)
    inputs, nodes = {value.name for value in model.graph.input}, model.graph.node
    assert model.ir_version == 3
    assert {tensor.name for tensor in model.graph.initializer} <= inputs
    made = {node.output[0] for node in nodes if node.op_type == "ConstantOfShape"}
    assert all(node.input[1] in made for node in nodes if node.op_type == "Conv")
