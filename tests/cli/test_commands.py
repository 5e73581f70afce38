"""What a user of the command line gets, command by command."""

import json

import numpy as np
import onnx
import pytest

import onnxq as library


def pairs(path) -> list[str]:
    return sorted(n.input[0] for n in onnx.load(path).graph.node if n.op_type == "QuantizeLinear")


class TestQuantize:
    def test_it_writes_beside_the_model_and_says_what_it_did(self, onnxq, tmp_path):
        before = (tmp_path / "float.onnx").read_bytes()
        result = onnxq("quantize float.onnx")
        assert result.status == 0
        assert sorted(p.name for p in tmp_path.iterdir()) == ["float.onnx", "float.quant.onnx"]
        assert (tmp_path / "float.onnx").read_bytes() == before
        assert result.out.startswith("wrote float.quant.onnx (")
        assert "2 of 2 Conv, 1 Add, 1 of 1 ConvTranspose (1 residual Add, 3 calibrated tensors)" in result.out

    def test_it_writes_what_the_library_gives(self, onnxq):
        np.savez("data.npz", x=np.random.default_rng(0).standard_normal((3, 32, 8, 8)).astype(np.float32))
        result = onnxq("quantize -q --onnx_path=float.onnx --calibration_data=data.npz --output_path=out.onnx")
        assert (result.status, result.out, result.err) == (0, "", "")
        assert onnx.load("out.onnx") == library.quantize("float.onnx", calibration_data="data.npz").model

    @pytest.mark.parametrize(
        ("model", "written"),
        [
            ("m.onnx", "m.quant.onnx"),
            ("m", "m.quant.onnx"),
            ("m.v2", "m.v2.quant.onnx"),
            ("d/m.onnx", "d/m.quant.onnx"),
        ],
    )
    def test_the_default_name(self, onnxq, tmp_path, model, written):
        (tmp_path / "d").mkdir()
        (tmp_path / "float.onnx").rename(tmp_path / model)
        assert onnxq(f"quantize -q {model}").status == 0
        assert (tmp_path / written).is_file()

    def test_quiet_keeps_the_warnings(self, onnxq):
        result = onnxq("quantize float.onnx --quiet")
        assert result.out == ""
        assert result.err.startswith("onnxq: warning: no calibration data")
        assert result.err.count("\n") == 1

    def test_progress_is_lines_where_there_is_no_terminal(self, onnxq):
        np.savez("data.npz", x=np.ones((500, 32, 8, 8), np.float32))
        lines = onnxq("quantize float.onnx --calibration_data data.npz").err.splitlines()
        assert all(line.startswith("onnxq: ") for line in lines)
        assert lines[0] == "onnxq: preparing and placing"
        assert lines[-2:] == ["onnxq: writing Q/DQ", "onnxq: lowering to fp16"]
        assert len(lines) < 50

    def test_the_same_seed_gives_the_same_file(self, onnxq, tmp_path):
        for name, seed in (("a", 1), ("b", 1), ("c", 2)):
            assert onnxq(f"quantize -q float.onnx -o {name} --seed {seed}").status == 0
        a, b, c = ((tmp_path / name).read_bytes() for name in "abc")
        assert a == b != c

    def test_shapes_settle_open_dims(self, onnxq):
        assert onnxq("quantize -q float.onnx --calibration_shapes x:4x32x8x8").status == 0

    @pytest.mark.parametrize(
        ("options", "names"),
        [
            ("--op_types_to_quantize ConvTranspose", ["upsample_weight", "x"]),
            ("--op_types_to_exclude Conv Add", ["upsample_weight", "x"]),
            ("--nodes_to_quantize conv1 --nodes_to_quantize conv2", ["conv1_weight", "conv2_weight", "relu1", "skip"]),
            ("--nodes_to_exclude conv. upsample add", []),
        ],
    )
    def test_selections(self, onnxq, options, names):
        assert onnxq(f"quantize -q float.onnx --high_precision_dtype fp32 {options}").status == 0
        assert pairs("float.quant.onnx") == names

    def test_a_quantized_model_can_be_kept(self, onnxq, quantized):
        assert (
            onnxq(f"quantize -q {quantized} -o kept.onnx --on_quantized keep --high_precision_dtype fp32").status == 0
        )
        assert pairs("kept.onnx") == pairs(quantized)

    def test_a_long_list_of_changes_is_cut(self, onnxq):
        model = onnx.load("float.onnx")
        for number in range(30):
            model.graph.value_info.append(onnx.helper.make_tensor_value_info(f"gone{number}", 1, [1]))
        onnx.save(model, "stale.onnx")
        out = onnxq("quantize stale.onnx").out
        assert out.count("changed: ") == 11
        assert "and 21 more" in out  # one of them is the opset
        assert onnxq("inspect stale.onnx").out.count("gone") == 30


class TestCheck:
    def test_a_good_pair(self, onnxq, quantized):
        result = onnxq(f"check float.onnx {quantized}")
        assert (result.status, result.err) == (0, "")
        assert result.out.startswith("no violations of ")

    def test_a_bad_pair_ends_with_1_and_names_the_add(self, onnxq, both_inputs):
        result = onnxq(f"check float.onnx {both_inputs}")
        assert result.status == 1
        assert "residual-skip-only" in result.out
        assert '"add"' in result.out
        assert "1 violation, of 1 out of " in result.out

    def test_json_lists_the_violations(self, onnxq, both_inputs):
        result = onnxq(f"check float.onnx {both_inputs} --json")
        assert result.status == 1
        assert [v["invariant"] for v in json.loads(result.out)] == ["residual-skip-only"]

    def test_only_some_invariants(self, onnxq, both_inputs):
        assert onnxq(f"check float.onnx {both_inputs} --only valid io-preserved").status == 0
        assert onnxq(f"check float.onnx {both_inputs} --only valid residual-skip-only").status == 1

    def test_a_pair_without_any_quantization_is_warned_about(self, onnxq):
        result = onnxq("check float.onnx float.onnx")
        assert result.status == 0
        assert "warning: float.onnx holds no Q/DQ" in result.err

    def test_swapped_models_are_told(self, onnxq, quantized):
        result = onnxq(f"check {quantized} float.onnx")
        assert result.status == 2
        assert "swap them" in result.err
