"""onnxruntime for real; ModelOpt as far as it can be tested without it."""

from __future__ import annotations

import json
import re
import sys
from importlib.metadata import version
from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest
from onnx import ModelProto, numpy_helper
from onnx.parser import parse_model

from onnxq.corpus.case import load_case
from onnxq.corpus.checks import run_check
from onnxq.corpus.run import run_case
from onnxq.errors import PeerError, UnsupportedError, UsageError
from onnxq.invariants import ModelPair, quantized_inputs
from onnxq.quantizers import Quantizer, Settings, resolve
from onnxq.quantizers.peers import modelopt_arguments, onnxruntime_arguments
from onnxq_builders import build


@pytest.fixture(scope="module")
def ort() -> Quantizer:
    return resolve("onnxruntime")


@pytest.fixture(scope="module")
def model() -> ModelProto:
    return build("residual.convtranspose_conv")


def placed(model: ModelProto, quantized: ModelProto) -> dict[str, list[str]]:
    return quantized_inputs(ModelPair(model, quantized, "onnxruntime"))


class TestOnnxruntime:
    @pytest.mark.parametrize("builder", ["residual.convtranspose_conv", "residual.identity", "residual.projection"])
    def test_both_inputs_of_the_add_are_quantized(self, ort: Quantizer, builder: str) -> None:
        model = build(builder)
        assert (ort.version, ort.policy) == (version("onnxruntime"), "onnxruntime")
        add = next(node for node in model.graph.node if node.op_type == "Add")
        assert placed(model, ort.quantize(model, None, {}))[add.output[0]] == list(add.input)

    def test_the_founding_case_is_right_under_its_policy(self, ort: Quantizer) -> None:
        case = load_case(Path(__file__).parents[2] / "corpus/residual/convtranspose_conv/case.toml")
        run = run_case(case, ort)
        for check in ("quantizes", "valid", "quantized-add-inputs", "quantized-inputs"):
            assert run_check(check, run) == []

    def test_int8_symmetric_per_channel(self, ort: Quantizer, model: ModelProto) -> None:
        pair = ModelPair(model, ort.quantize(model, None, {}), "onnxruntime")
        found = {(index, slot): q for index, slot, _, q in pair.edges() if q is not None}
        index = pair.plan.index
        conv = next(n for n, node in enumerate(index.nodes) if node.op_type == "Conv")
        data, weight = found[conv, 0], found[conv, 1]
        for quantization in (data, weight):
            assert quantization.zero_point is not None
            assert quantization.zero_point.dtype == np.int8
            assert not quantization.zero_point.any()
        assert data.scale is not None
        assert weight.scale is not None
        assert (data.scale.ndim, weight.scale.ndim, weight.axis) == (0, 1, 0)

    def test_the_input_is_left_alone_and_nothing_is_printed(
        self, ort: Quantizer, model: ModelProto, capfd: pytest.CaptureFixture[str]
    ) -> None:
        before = model.SerializeToString()
        ort.quantize(model, None, {})
        assert model.SerializeToString() == before
        assert capfd.readouterr() == ("", "")

    @pytest.mark.parametrize(
        ("options", "convs"),
        [
            ({"nodes_to_exclude": ["conv1"]}, {"conv2"}),
            ({"nodes_to_exclude": ["conv"]}, {"conv1", "conv2"}),
            ({"nodes_to_quantize": ["conv.*"]}, {"conv1", "conv2"}),
            ({"nodes_to_quantize": ["conv2"]}, {"conv2"}),
            ({"op_types_to_exclude": ["Conv"]}, set()),
            ({"op_types_to_quantize": ["Conv"]}, {"conv1", "conv2"}),
            ({"op_types_to_quantize": ["Conv", "Add"], "op_types_to_exclude": ["Conv"]}, set()),
            ({"op_types_to_quantize": ["Conv"], "nodes_to_quantize": ["add"]}, {"conv1", "conv2"}),
        ],
    )
    def test_selection(self, ort: Quantizer, model: ModelProto, options: dict[str, list[str]], convs: set[str]) -> None:
        found = placed(model, ort.quantize(model, None, options))
        names = {node.output[0]: node.name for node in model.graph.node if node.op_type == "Conv"}
        weights = {node.name: node.input[1] for node in model.graph.node if node.op_type == "Conv"}
        assert {name for output, name in names.items() if weights[name] in found[output]} == convs

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"high_precision_dtype": "fp16"}, "high_precision_dtype='fp16' can't be asked of it, only fp32"),
            ({"quantize_mode": "fp8"}, "only int8"),
            ({"calibration_method": "percentile"}, "only max or entropy"),
            ({"color": "blue"}, "nothing like the option color='blue'"),
            ({"nodes_to_quantize": ["none"]}, "no named node matches nodes_to_quantize"),
        ],
    )
    def test_what_it_can_t_do(self, model: ModelProto, options: dict[str, object], message: str) -> None:
        with pytest.raises(UnsupportedError, match=message):
            onnxruntime_arguments(model, options)

    def test_a_pattern_that_is_none(self, model: ModelProto) -> None:
        with pytest.raises(UsageError, match="is no regular expression"):
            onnxruntime_arguments(model, {"nodes_to_exclude": ["("]})

    def test_several_samples_and_a_scalar(self, ort: Quantizer) -> None:
        model = parse_model(
            '<ir_version: 8, opset_import: ["" : 17]> g (float[n, 16] x, float s) => (float[n, 16] z)'
            "{t = MatMul(x, w) z = Mul(t, s)}"
        )
        model.graph.initializer.append(numpy_helper.from_array(np.eye(16, dtype=np.float32), "w"))
        data = {"x": np.linspace(-2, 4, 48, dtype=np.float32).reshape(3, 16), "s": np.float32([1, 2, 3])}
        pair = ModelPair(model, ort.quantize(model, data, {}), "onnxruntime")
        scales = {tensor: q.scale for _, _, tensor, q in pair.edges() if q is not None}
        assert scales["x"] == pytest.approx(4 / 127, rel=0.02)

    def test_a_failure_shows_what_it_printed(self, ort: Quantizer) -> None:
        refused = (
            '<ir_version: 8, opset_import: ["" : 17, "their" : 1]> g (float[1] x) => (float[1] y) {y = their.Op(x)}'
        )
        with pytest.raises(PeerError, match=r"^onnxruntime [\d.]+ ended with exit status 1: \S") as caught:
            ort.quantize(parse_model(refused), None, {})
        assert "peer_runner.py" in caught.value.output  # the end of a traceback

    def test_in_another_python(self, ort: Quantizer, model: ModelProto, tmp_path: Path) -> None:
        script = tmp_path / "other"
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
        script.chmod(0o755)
        other = resolve("onnxruntime", Settings({"onnxruntime": str(script)}))
        assert (other.name, other.version) == (ort.name, ort.version)
        assert other.quantize(model, None, {}) == ort.quantize(model, None, {})

    def test_the_packages_of_this_python_stay_here(
        self, tmp_path: Path, bare_python: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PYTHONPATH", ":".join(sys.path))
        script = Path(bare_python)
        script.write_text(script.read_text().replace("-S -E", "-S"))
        with pytest.raises(UsageError, match="onnxruntime isn't installed in"):
            resolve("onnxruntime", Settings({"onnxruntime": bare_python}))


class TestModelopt:
    """With a stand-in: the real one needs an environment of its own, see benchmarks/compatibility.py."""

    STAND_IN = """
        import json
        import onnx

        def quantize(onnx_path, calibration_data=None, output_path=None, **arguments):
            model = onnx.load_model(onnx_path)
            shapes = {name: list(array.shape) for name, array in calibration_data.items()}
            model.doc_string = json.dumps([shapes, arguments], sort_keys=True)
            onnx.save_model(model, output_path)
            onnx.save_model(onnx.ModelProto(), onnx_path)  # the real one writes its input too
    """

    @pytest.fixture
    def modelopt(self, tmp_path: Path) -> Quantizer:
        info, package = tmp_path / "nvidia_modelopt-0.37.0.dist-info", tmp_path / "modelopt/onnx/quantization"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: nvidia-modelopt\nVersion: 0.37.0\n")
        package.mkdir(parents=True)
        for folder in (package.parent, package.parent.parent):
            (folder / "__init__.py").touch()
        (package / "__init__.py").write_text(dedent(self.STAND_IN))
        script = tmp_path / "python-with-modelopt"
        script.write_text(f'#!/bin/sh\nPYTHONPATH="{tmp_path}" exec "{sys.executable}" "$@"\n')
        script.chmod(0o755)
        return resolve("modelopt", Settings({"modelopt": str(script)}))

    def test_it_is_called_on_the_cpu_with_what_the_case_says(self, modelopt: Quantizer, model: ModelProto) -> None:
        assert (modelopt.name, modelopt.version, modelopt.policy) == ("modelopt", "0.37.0", "tensorrt")
        result = modelopt.quantize(model, None, {"nodes_to_exclude": ["conv"], "seed": 3})
        shapes, arguments = json.loads(result.doc_string)
        assert shapes == {"x": [1, 32, 8, 8]}
        assert arguments == {
            "calibration_eps": ["cpu"],
            "calibration_method": "max",
            "high_precision_dtype": "fp32",
            "nodes_to_exclude": [r"(?:conv)\Z"],
        }

    def test_patterns_match_whole_names_as_ours_do(self, model: ModelProto) -> None:
        (pattern,) = modelopt_arguments(model, {"nodes_to_quantize": ["a|conv"]})["nodes_to_quantize"]
        assert [name for name in ("a", "conv", "conv1", "ab", "xa") if re.match(pattern, name)] == ["a", "conv"]

    def test_an_option_that_it_doesnt_have(self, model: ModelProto) -> None:
        with pytest.raises(UnsupportedError, match="modelopt: it has nothing like the option color='blue'"):
            modelopt_arguments(model, {"color": "blue"})
