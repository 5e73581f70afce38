"""Trained networks still do their task after quantization: on other data than those they were calibrated with."""

from __future__ import annotations

import json
from difflib import SequenceMatcher
from importlib.metadata import files
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from documents import beginning_and_end, documents
from onnx import ModelProto
from real_models import RealModel, speech
from written_text import line_of_text, page_of_text, read

import onnxq
from onnxq.numerics import run_model

PRECISIONS = pytest.mark.parametrize("precision", ["fp32", "fp16"])
REPOSITORY = Path(__file__).parents[2]


def path_of(package: str, file: str) -> Path:
    path = RealModel(package, file, lambda _: {}, {}).path
    if path is None:
        pytest.skip(f"{package} isn't installed, or holds no {file}")
    return path


@PRECISIONS
def test_the_recognizer_reads_the_same_words(precision: str) -> None:
    path = path_of("rapidocr-onnxruntime", "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx")
    model = onnx.load(path)
    characters = next(p.value for p in model.metadata_props if p.key == "character").splitlines()
    alphabet = ["", *characters, " "]
    learned = ["SHOE", "TUNA", "EXTRA", "LOAN", "2744", "STONE", "ALTO", "NEXUS"]
    words = [
        "ONNX",
        "TEST",
        "HELLO",
        "RESULT",
        "NOTES",
        "LATEX2",
        "SALUTE",
        "HORN",
        "TORTELLO",
        "EAST",
        "ROUTER",
        "247",
    ]
    feeds = [line_of_text(word) for word in words]

    def read_all(m: ModelProto) -> list[str]:
        return [read(result["softmax_11.tmp_0"], alphabet) for result in run_model(m, feeds)]

    assert read_all(model) == words
    samples = [line_of_text(word, size=4 + number % 2) for number, word in enumerate(learned)]
    quantized = read_all(onnxq.quantize(path, calibration_data=samples, high_precision_dtype=precision).model)
    assert sum(got == word for got, word in zip(quantized, words, strict=True)) >= 9, quantized
    assert SequenceMatcher(None, " ".join(words), " ".join(quantized)).ratio() >= 0.95, quantized


@PRECISIONS
def test_the_detector_finds_the_same_text(precision: str) -> None:
    """Where the map is above 0.3 there is text, says the package's own post-processing."""
    path = path_of("rapidocr-onnxruntime", "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx")
    samples = [page_of_text([("STONE", 10), ("LOAN", 100), ("ALTO", 40)]), page_of_text([("NEXUS", 0), ("SHOE", 150)])]
    feeds = [page_of_text([("ONNX", 20), ("HELLO", 80), ("TEST", 0)]), page_of_text([("ROUTER", 50), ("247", 180)])]
    quantized = onnxq.quantize(path, calibration_data=samples, high_precision_dtype=precision).model
    before, after = (
        [result["sigmoid_0.tmp_0"] > 0.3 for result in run_model(m, feeds)] for m in (onnx.load(path), quantized)
    )
    for expected, got in zip(before, after, strict=True):
        assert expected.mean() > 0.02
        assert (expected & got).sum() / (expected | got).sum() >= 0.9


@PRECISIONS
def test_the_file_types_are_the_same(precision: str) -> None:
    path = path_of("magika", "magika/models/standard_v3_3/model.onnx")
    config = next(f for f in files("magika") or () if f.as_posix().endswith("standard_v3_3/config.min.json"))
    labels = json.loads(config.read_text())["target_labels_space"]
    learned = [REPOSITORY / "pyproject.toml", REPOSITORY / "README.md", Path(__file__), REPOSITORY / ".ci" / "run"]
    samples = [beginning_and_end(file.read_bytes()) for file in learned]
    quantized = onnxq.quantize(path, calibration_data=samples, high_precision_dtype=precision).model
    feeds = [beginning_and_end(content) for content in documents().values()]
    for model in (onnx.load(path), quantized):
        found = [labels[int(result["target_label"].argmax())] for result in run_model(model, feeds)]
        assert found == list(documents())


def voice_probabilities(model: ModelProto, sound: np.ndarray) -> list[float]:
    """Chunk after chunk, each with the last samples of the one before and the state that it left."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    state, found = np.zeros((2, 1, 128), np.float32), []
    for start in range(64, len(sound) - 512, 512):
        feed = {"input": sound[None, start - 64 : start + 512], "state": state, "sr": np.array(16_000, np.int64)}
        probability, state = session.run(None, feed)
        found.append(float(probability[0, 0]))
    return found


@PRECISIONS
def test_the_voice_detector_decides_alike(precision: str) -> None:
    path = path_of("silero-vad", "silero_vad/data/silero_vad_16k_op15.onnx")
    model, rng = onnx.load(path), np.random.default_rng(5)
    sounds = [speech(rng, 32_000) for _ in range(4)]
    sounds.append((0.01 * rng.standard_normal(32_000)).astype(np.float32))
    learned = speech(rng, 64 + 512 * 16)
    zeros, rate = np.zeros((2, 1, 128), np.float32), np.array(16_000, np.int64)
    samples = [{"input": learned[None, s : s + 576], "state": zeros, "sr": rate} for s in range(0, 512 * 16, 512)]
    quantized = onnxq.quantize(path, calibration_data=samples, high_precision_dtype=precision).model
    before, after = (
        np.array([p > 0.5 for sound in sounds for p in voice_probabilities(m, sound)]) for m in (model, quantized)
    )
    assert 0.1 < before.mean() < 0.9
    assert (before == after).mean() >= 0.9, (before == after).mean()
