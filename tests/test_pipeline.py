"""The whole quantizer: what it returns, what it refuses, and what it never touches."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import ModelProto, TensorProto, helper

import onnxq
from onnxq.errors import CalibrationError, InvalidModelError, UnsupportedError, UsageError
from onnxq.pipeline import make_plan, quantize
from onnxq_builders.registry import build
from text_models import quantize_int8, text_model

BLOCK = "s = Relu(x) a = Conv(s, w1) b = Relu(a) c = Conv(b, w2) y = Add(c, s)"


def block(**options: Any) -> ModelProto:
    return text_model(BLOCK, **options)


def image(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((1, 16, 8, 8), np.float32)


def run(model: ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


def shapes(model: ModelProto) -> dict[str, list[int | str]]:
    return {
        v.name: [d.dim_param or d.dim_value for d in v.type.tensor_type.shape.dim]
        for v in (*model.graph.input, *model.graph.output)
        if v.type.tensor_type.HasField("shape")
    }


# What it never touches


@pytest.mark.parametrize("name", ["residual.projection", "weak.topk", "weak.detection", "weak.stale_rank0_output"])
def test_the_callers_model_is_byte_identical_afterwards(name: str) -> None:
    model = build(name)
    before = model.SerializeToString(deterministic=True)
    result = quantize(model)
    assert model.SerializeToString(deterministic=True) == before
    result.model.graph.node[0].name = "changed"
    assert model.SerializeToString(deterministic=True) == before


@pytest.mark.parametrize("name", ["residual.projection", "weak.detection"])
def test_the_callers_file_is_byte_identical_afterwards(name: str, tmp_path: Path) -> None:
    file = tmp_path / "model.onnx"
    onnx.save(build(name), file)
    before = file.read_bytes()
    result = quantize(file, output_path=tmp_path / "out.onnx")
    assert file.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.onnx", "out.onnx"]
    assert (tmp_path / "out.onnx").read_bytes() == result.model.SerializeToString()


def test_a_file_and_its_model_give_the_same(tmp_path: Path) -> None:
    onnx.save(block(), tmp_path / "model.onnx")
    assert quantize(tmp_path / "model.onnx").model == quantize(block()).model


def test_the_callers_arrays_and_lists_are_left_alone() -> None:
    sample = {"x": image()}
    samples = [sample]
    types = ["Conv"]
    quantize(block(), calibration_data=samples, op_types_to_quantize=types)
    np.testing.assert_array_equal(sample["x"], image())
    assert (samples, types) == ([sample], ["Conv"])


def test_quantizing_twice_in_one_process_gives_the_same_bytes() -> None:
    first = quantize(block())
    quantize(build("weak.detection"), op_types_to_exclude=["Conv"])
    assert quantize(block()).model.SerializeToString() == first.model.SerializeToString()


# Saving


def test_nothing_is_left_behind_when_it_fails(tmp_path: Path) -> None:
    with pytest.raises(CalibrationError):
        quantize(block(), calibration_data=[{"x": image() * np.nan}], output_path=tmp_path / "out.onnx")
    assert not list(tmp_path.iterdir())


def test_an_existing_output_survives_a_failure(tmp_path: Path) -> None:
    (tmp_path / "out.onnx").write_bytes(b"before")
    with pytest.raises(CalibrationError):
        quantize(block(), calibration_data=[], output_path=tmp_path / "out.onnx")
    assert (tmp_path / "out.onnx").read_bytes() == b"before"


def test_the_output_never_replaces_the_input(tmp_path: Path) -> None:
    file = tmp_path / "model.onnx"
    onnx.save(block(), file)
    before = file.read_bytes()
    with pytest.raises(UsageError, match="never overwritten"):
        quantize(file, output_path=tmp_path / "." / "model.onnx")
    assert file.read_bytes() == before


def test_a_place_that_cannot_be_written_is_told_before_calibration(tmp_path: Path) -> None:
    told: list[str] = []
    with pytest.raises(UsageError, match="no such directory"):
        quantize(block(), output_path=tmp_path / "missing" / "out.onnx", progress=told.append)
    assert not told


# What it returns


def test_the_result_holds_placement_ranges_changes_and_warnings() -> None:
    result = quantize_int8(block(), calibration_data=[{"x": image()}, {"x": -3 * image()}])
    assert isinstance(result, onnxq.QuantizationResult)
    assert result.placement.activations == ["s", "b"]
    assert list(result.ranges) == ["s", "b"]
    expected = max(float(image().max()), float((-3 * image()).max()))
    assert result.ranges["s"].high == pytest.approx(expected)
    assert result.ranges["s"].low == 0
    assert result.changes == ()
    assert result.warnings == ()


def test_preparation_is_reported() -> None:
    model = block()
    for node in model.graph.node:
        node.name = ""
    result = quantize_int8(model)
    assert [c.rule for c in result.changes] == ["S8"] * 5
    assert all(node.name for node in result.model.graph.node)


def test_a_made_up_sample_is_a_warning_and_depends_on_the_seed_only() -> None:
    results = [quantize(block(), seed=seed) for seed in (0, 0, 1)]
    assert any("random sample" in w for w in results[0].warnings)
    assert results[0].model.SerializeToString() == results[1].model.SerializeToString()
    assert results[0].ranges.by_tensor != results[2].ranges.by_tensor


def test_when_nothing_is_quantized_the_user_is_told() -> None:
    result = quantize(text_model("y = Relu(x)"))
    assert any("nothing was quantized" in w for w in result.warnings)
    assert not any("random" in w for w in result.warnings)


def test_a_body_that_calibration_never_ran_is_told() -> None:
    body = """y = If(c) <then_branch = t () => (float[1,16,8,8] p) { p = Conv(x, w) },
                         else_branch = e () => (float[1,16,8,8] q) { q = Neg(x) }> z = Conv(x, w)"""
    model = text_model(body, "float[1,16,8,8] x, bool c", "float y, float z", w=(16, 16, 1, 1))
    model.graph.node[0].name = "if1"
    for choice, outputs in ((True, ["p", "p", "z", "z"]), (False, ["z", "z"])):
        result = quantize(model, calibration_data=[{"x": image(), "c": np.array(choice)}])
        assert [result.placement.labels[e].output for e in result.placement.quantized] == outputs
        assert result.warnings == (() if choice else (NEVER_RAN,))


NEVER_RAN = 'body "if1.then_branch" never ran on the calibration data, so all of it stays float'


def test_progress_is_told_for_each_sample() -> None:
    told: list[str] = []
    quantize(block(), calibration_data=[{"x": image(n)} for n in range(3)], progress=told.append)
    assert [t for t in told if t.startswith("calibrated")] == [f"calibrated samples: {n}" for n in (1, 2, 3)]


def test_tensors_that_share_a_scale_get_the_union_of_their_ranges() -> None:
    model = text_model(
        """p = Relu(x) q = Tanh(x) r = Concat<axis = 1>(p, q)
        a = Conv(p, w1) b = Conv(q, w2) c = Conv(r, w9) m = Add(a, b) y = Mul(m, c)""",
        w9=(16, 32, 3, 3),
    )
    result = quantize_int8(model, calibration_data=[{"x": 5 * image()}])
    assert result.placement.scale_groups == (("p", "q", "r"),)
    stored = {t.name: onnx.numpy_helper.to_array(t) for t in result.model.graph.initializer}
    quantizers = [n for n in result.model.graph.node if n.op_type == "QuantizeLinear" and n.input[0] in "pqr"]
    scales = {float(stored[n.input[1]]) for n in quantizers}
    assert len(scales) == 1
    assert scales.pop() == pytest.approx(result.ranges["p"].high / 127)
    assert result.ranges["q"].high == pytest.approx(1)


def test_the_result_is_close_to_the_float_model() -> None:
    model = build("residual.projection")
    feeds = {"x": np.random.default_rng(1).standard_normal((2, 32, 16, 16), np.float32)}
    result = quantize(model, calibration_data=[feeds])
    (before,), (after,) = run(model, feeds), run(result.model, feeds)
    noise = np.sqrt(np.mean((before - after) ** 2) / np.mean(before**2))
    assert 0 < noise < 0.05


# What it refuses


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"percentile": 101.0}, UsageError, "up to 100"),
        ({"memory_limit": 0}, UsageError, "positive"),
        ({"memory_limit": 100}, UnsupportedError, "alone needs"),
        ({"calibration_method": "entrop"}, UsageError, "entropy"),
        ({"calibration_method": "minmax"}, UsageError, "max"),
        ({"quantize_mode": "int4"}, UsageError, "int8"),
        ({"quantize_mode": None}, UsageError, "int8"),
        ({"high_precision_dtype": "float32"}, UsageError, "fp32"),
        ({"on_quantized": "ignore"}, UsageError, "keep"),
        ({"nodes_to_exclude": ["nothing"]}, UsageError, "nothing"),
        ({"op_types_to_quantize": ["TopK"]}, UnsupportedError, "TopK"),
    ],
)
def test_what_is_unknown_or_not_done_is_refused(options: dict[str, Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=next(iter(options))) as caught:
        quantize(block(), **options)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_unknown_argument_is_refused() -> None:
    with pytest.raises(TypeError, match="calibration_methods"):
        quantize(block(), calibration_methods="max")  # type: ignore[call-arg]


@pytest.mark.parametrize("where", ["data", "weight"])
def test_nan_is_refused_and_its_tensor_named(where: str) -> None:
    model, sample = block(), image()
    if where == "data":
        sample[0, 0, 0, 0] = np.nan
    else:
        weight = onnx.numpy_helper.to_array(model.graph.initializer[0]).copy()
        weight[0, 0, 0, 0] = np.inf
        model.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(weight, "w1"))
    with pytest.raises(CalibrationError) as caught:
        quantize(model, calibration_data=[{"x": sample}])
    assert {"data": '"x"', "weight": '"w1"'}[where] in str(caught.value) or '"b"' in str(caught.value)


def test_a_tensor_that_is_empty_in_every_sample_stays_float() -> None:
    model = text_model(
        "s = Slice(x, from, to, zero) a = MatMul(s, w) b = MatMul(x, w) y = Concat<axis = 0>(a, b)",
        "float[n,32] x, int64[1] from, int64[1] to, int64[1] zero",
        "float[m,32] y",
        w=(32, 32),
    )
    data = {"x": np.ones((4, 32), np.float32), "from": np.array([4]), "to": np.array([9]), "zero": np.array([0])}
    result = quantize(model, calibration_data=[data])
    assert result.ranges.never_finite == ("s",)
    assert any('"s" was empty' in w for w in result.warnings)
    assert "s" not in result.placement.activations
    assert "x" in result.placement.activations
    quantized = [n.input[0] for n in result.model.graph.node if n.op_type == "QuantizeLinear"]
    assert "s" not in quantized
    assert run(result.model, data)


@pytest.mark.parametrize("as_file", [False, True])
def test_a_model_with_pairs_is_refused_and_the_first_named(as_file: bool, tmp_path: Path) -> None:
    quantized = quantize(block()).model
    onnx.save(quantized, tmp_path / "quantized.onnx")
    with pytest.raises(InvalidModelError, match='QuantizeLinear "s_QuantizeLinear"') as caught:
        quantize(tmp_path / "quantized.onnx" if as_file else quantized)
    assert 'on_quantized="keep"' in str(caught.value)
    assert ("quantized.onnx" in str(caught.value)) is as_file


def test_pairs_inside_bodies_are_seen() -> None:
    body = """y = If(c) <
        then_branch = t () => (float[2] p) { q = QuantizeLinear(x, s, z) p = DequantizeLinear(q, s, z) },
        else_branch = e () => (float[2] r) { r = Neg(x) }>"""
    model = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 17]> g (float[2] x, bool c) => (float[2] y)
        <float s = {{0.5}}, int8 z = {{0}}> {{ {body} }}"""
    )
    with pytest.raises(InvalidModelError, match="quantized already"):
        quantize(model)


def test_keeping_a_quantized_model_changes_nothing_in_it() -> None:
    quantized = quantize(block()).model
    result = quantize(quantized, on_quantized="keep")
    assert result.model == quantized
    assert not result.placement.quantized
    assert quantize(block(), on_quantized="keep").placement.quantized


def test_keeping_takes_no_other_wish_for_a_yes() -> None:
    quantized = quantize(block()).model
    result = quantize(quantized, on_quantized="keep", op_types_to_quantize=["Conv"])
    assert result.model == quantized


@pytest.mark.parametrize(
    "model",
    [
        ModelProto(),
        text_model("y = Add(x, x)", "int32[2] x", "int32[2] y"),
        ModelProto(ir_version=8),
    ],
    ids=["empty", "no float", "no graph"],
)
def test_what_is_no_usable_float_model_is_refused(model: ModelProto) -> None:
    with pytest.raises(InvalidModelError):
        quantize(model)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidModelError, match="no such file"):
        quantize(tmp_path / "missing.onnx")


# Weakly typed models


def test_a_stale_rank_is_corrected_and_the_symbol_beside_it_kept() -> None:
    result = quantize(build("weak.stale_rank0_output", symbolic=True))
    assert shapes(result.model)["y"] == ["batch", 16]
    assert shapes(result.model)["probabilities"] == ["batch", 10]
    assert shapes(result.model)["x"] == ["batch", 32, 16, 16]
    assert any(c.where and '"y"' in c.where for c in result.changes)
    onnx.checker.check_model(result.model, full_check=True)


@pytest.mark.parametrize("declared", [(), (0, 1), (-1, 2), ("a", "b", "c")])
def test_outputs_have_their_true_rank_whatever_was_declared(declared: tuple[int | str, ...]) -> None:
    result = quantize(build("weak.stale_rank0_output", declared_shape=declared))
    assert shapes(result.model)["y"] == [1, 16]


def test_topk_beyond_its_axis_is_refused_by_name_but_can_be_converted() -> None:
    model = build("weak.topk", k="above_axis")
    with pytest.raises(Exception, match=r"(?i)topk|k argument"):
        run(model, {"x": np.zeros((1, 32, 16, 16), np.float32)})
    with pytest.raises(InvalidModelError, match=r'TopK "topk" takes 20 elements .* axis -1, which has 16'):
        quantize(model)
    converted = onnxq.convert_to_f16(model)
    for value in converted.graph.output:
        assert value.type.tensor_type.HasField("shape")
        assert len(value.type.tensor_type.shape.dim) == 2
    assert any(t.data_type == TensorProto.FLOAT16 for t in converted.graph.initializer)


def test_topk_with_a_computed_k_runs() -> None:
    result = quantize(build("weak.topk", k="computed"))
    outputs = run(result.model, {"x": np.random.default_rng(0).standard_normal((2, 32, 16, 16), np.float32)})
    assert [o.shape for o in outputs] == [(2, 16), (2, 16)]


def test_the_detector_has_its_true_ranks() -> None:
    result = quantize(build("weak.detection"))
    ranks = {v.name: len(v.type.tensor_type.shape.dim) for v in result.model.graph.output}
    assert ranks == {
        "detection_boxes": 3,
        "detection_scores": 2,
        "detection_classes": 2,
        "num_detections": 1,
        "raw_scores": 3,
    }
    adds = {result.placement.labels[e].output: result.placement.labels[e].tensor for e in result.placement.quantized}
    assert adds["block1_add"] == "stem_relu6"
    assert adds["block2_add"] == "block2_shortcut_bn"


def test_half_precision_models_keep_their_types() -> None:
    model = text_model(BLOCK, "float16[1,16,8,8] x", "float16[1,16,8,8] y", dtype=np.float16)
    result = quantize(model)
    assert result.model.opset_import[0].version == 19
    assert any("opset" in c.what for c in result.changes)
    assert {v.type.tensor_type.elem_type for v in (*result.model.graph.input, *result.model.graph.output)} == {
        TensorProto.FLOAT16
    }
    assert {t.data_type for t in result.model.graph.initializer if "scale" in t.name} == {TensorProto.FLOAT16}
    onnx.checker.check_model(result.model, full_check=True)
    assert make_plan(model).placement.to_text() == result.placement.to_text()


def test_an_old_model_is_raised_to_the_first_opset_with_axes() -> None:
    result = quantize_int8(block(opset=11))
    assert result.model.opset_import[0].version == 13
    assert run(result.model, {"x": image()})


def test_a_custom_op_that_the_runtime_lacks_only_hinders_what_lies_behind_it() -> None:
    model = text_model("a = Conv(x, w1) y = Conv(a, w2) z = custom.Op(y)", outputs="float[1,16,8,8] y, float z")
    model.graph.output[1].CopyFrom(helper.make_tensor_value_info("z", TensorProto.FLOAT, [1]))
    result = quantize(model)
    assert result.placement.activations == ["x", "a"]


# The same everywhere

SCRIPT = """
import hashlib
import numpy as np
from onnxq.pipeline import quantize
from onnxq_builders.registry import build
digest = hashlib.sha256()
for name in ("residual.equal_branches", "residual.two_sources", "residual.concat_branch", "weak.detection"):
    result = quantize(build(name))
    digest.update(result.placement.to_text(explain=True).encode())
    digest.update(result.model.SerializeToString())
    digest.update(repr((result.changes, result.warnings)).encode())
print(digest.hexdigest())
"""


def test_the_hash_seed_changes_no_byte() -> None:
    children = [
        subprocess.Popen(
            [sys.executable, "-c", SCRIPT],
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in range(8)
    ]
    digests = {child.communicate(timeout=60)[0].strip() for child in children}
    assert [child.returncode for child in children] == [0] * 8
    assert len(digests) == 1
