"""What a model's metadata says changes nothing: the operators decide, and they are the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import model_changes
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from onnxq.convert import convert_to_f16
from onnxq.errors import InvalidModelError
from onnxq.invariants import check
from onnxq.pipeline import make_plan, quantize
from onnxq.shapes import prepare
from onnxq.strategies import (
    WEAKNESSES,
    Piece,
    PrecisionTopology,
    WeakenedModel,
    build_precision,
    precision_models,
    residual_models,
    weaken,
    weakened,
)
from onnxq.tensor_types import GraphTypes, ValueType, value_type

drawn_models = st.one_of(precision_models(max_pieces=4), residual_models(max_blocks=4, node_names=("unique",)))
runnable = [name for name in WEAKNESSES if name not in ("topk_above_axis", "opaque_branch")]

NEVER_CHECKED = frozenset({"missing_shapes", "opaque_branch", "topk_above_axis"})
"""Weaknesses that the checker objects to whatever is done: unknown shapes stay unknown."""


def all_types(types: GraphTypes, place: str = "") -> Iterator[tuple[str, ValueType]]:
    for name, kind in types.tensors.items():
        yield f"{place}{name}", kind
    for number, ((_, attribute), body) in enumerate(types.bodies.items()):
        yield from all_types(body, f"{place}{number}.{attribute}.")


@settings(max_examples=80, deadline=None)
@given(weakened(drawn_models))
def test_the_same_types_and_the_true_ranks(weak: WeakenedModel) -> None:
    healthy = dict(all_types(prepare(weak.healthy.model).types))
    prepared = prepare(weak.model)
    found = dict(all_types(prepared.types))
    for name, kind in healthy.items():
        got = found[name]
        assert (got.kind, got.elem_type) == (kind.kind, kind.elem_type), name
        if kind.kind != "tensor" or kind.shape is None:
            continue
        if "unnamed_batch" in weak.weaknesses:
            if got.shape is not None:
                assert got.rank == kind.rank, (name, got, kind)
                # A wrong number can't be told from a right one where the operators leave the dim open.
                assert "wrong_dims" in weak.weaknesses or all(
                    a in (b, None) for a, b in zip(got.shape, kind.shape, strict=True)
                ), (name, got, kind)
        else:
            assert got.shape == kind.shape, name
    outputs = {v.name: value_type(v.type) for v in prepared.model.graph.output}
    for value in weak.healthy.model.graph.output:
        assert outputs[value.name].rank == value_type(value.type).rank, value.name
        assert outputs[value.name].elem_type == value_type(value.type).elem_type, value.name
    assert prepare(prepared.model).changes == ()


@settings(max_examples=80, deadline=None)
@given(weakened(drawn_models))
def test_the_same_placement(weak: WeakenedModel) -> None:
    before = model_changes.quantized_edges(make_plan(weak.healthy.model).placement)
    assert model_changes.quantized_edges(make_plan(weak.model).placement) == before


@settings(max_examples=30, deadline=None)
@given(weakened(drawn_models, weaknesses=runnable), st.sampled_from(["fp32", "fp16"]), st.integers(0, 2**16))
def test_quantization_completes_and_computes_the_same(weak: WeakenedModel, half: str, seed: int) -> None:
    feeds = random_feeds(weak.healthy.model, seed)
    model = quantize(weak.model, calibration_data=[feeds], high_precision_dtype=half).model
    if NEVER_CHECKED.isdisjoint(weak.weaknesses):
        onnx.checker.check_model(model, full_check=True)
    assert not check(weak.model, model)
    expected = quantize(weak.healthy.model, calibration_data=[feeds], high_precision_dtype=half).model
    before, after = run(expected, feeds), run(model, feeds)
    for name, value in before.items():
        assert value_type_of(model, name).rank == value.ndim
        # The runtime leaves roundings to half precision out wherever it can, and a new reader may prevent that.
        bound = 0.02 * np.abs(value).max(initial=0) if half == "fp16" else 0
        np.testing.assert_allclose(after[name], value, rtol=0, atol=bound)


@settings(max_examples=30, deadline=None)
@given(weakened(drawn_models), st.sampled_from(["fp16", "bf16"]), st.booleans())
def test_conversion_to_half_precision_completes(weak: WeakenedModel, half: str, keep: bool) -> None:
    model = convert_to_f16(weak.model, low_precision_type=half, keep_io_types=keep)
    healthy = convert_to_f16(weak.healthy.model, low_precision_type=half, keep_io_types=keep)
    count = Counter(node.op_type for node in model.graph.node)
    assert all(count[op] >= number for op, number in Counter(n.op_type for n in healthy.graph.node).items())
    if NEVER_CHECKED.isdisjoint(weak.weaknesses):
        onnx.checker.check_model(model, full_check=True)
    for value in healthy.graph.output:
        assert value_type_of(model, value.name).elem_type == value_type(value.type).elem_type


@settings(max_examples=40, deadline=None)
@given(weakened(drawn_models, weaknesses=runnable), st.integers(0, 2**16))
def test_types_agree_with_the_runtime(weak: WeakenedModel, seed: int) -> None:
    prepared = prepare(weak.model)
    types = prepared.types.tensors
    probe = onnx.ModelProto()
    probe.CopyFrom(prepared.model)
    public = {value.name for value in probe.graph.output}
    made = [name for node in probe.graph.node for name in node.output if name and name not in public]
    probe.graph.output.extend(onnx.ValueInfoProto(name=name) for name in made)
    for name, value in run(probe, random_feeds(weak.healthy.model, seed)).items():
        kind = types[name]
        if kind.kind != "tensor":
            assert isinstance(value, list)
            continue
        assert kind.elem_type == helper.np_dtype_to_tensor_dtype(value.dtype), name
        if kind.shape is not None:
            assert len(kind.shape) == value.ndim, name
            # Where the operators leave a dim open, a declared number can't be told from a right one.
            # A declaration of wrong rank is one of wrong dims where another weakness hangs a node of that rank on it.
            wrong_numbers = not {"wrong_dims", "wrong_rank_outputs"}.isdisjoint(weak.weaknesses)
            misled = name.startswith("topk") or ("unnamed_batch" in weak.weaknesses and wrong_numbers)
            assert misled or all(a in (b, None) for a, b in zip(kind.shape, value.shape, strict=True)), name


@pytest.mark.parametrize("name", WEAKNESSES)
def test_each_weakness_changes_the_model(name: str) -> None:
    healthy = build_precision(PrecisionTopology((Piece("fill"), Piece("resize"), Piece("cast"), Piece("relu"))))
    healthy.model.graph.value_info.append(helper.make_tensor_value_info("mul_1", TensorProto.FLOAT, [2, 16]))
    before = healthy.model.SerializeToString(deterministic=True)
    weak = weaken(healthy, [name])
    assert healthy.model.SerializeToString(deterministic=True) == before
    assert weak.model != healthy.model
    assert repr(weak).startswith("weaken(build_precision(PrecisionTopology(")
    assert repr(eval(repr(weak))) == repr(weak)


def test_a_topk_above_its_axis_is_refused_by_the_quantizer_and_still_converts() -> None:
    weak = weaken(build_precision(PrecisionTopology((Piece("matmul"),))), ["topk_above_axis"])
    with pytest.raises(InvalidModelError, match="TopK"):
        quantize(weak.model)
    assert convert_to_f16(weak.model)


def value_type_of(model: onnx.ModelProto, output: str) -> ValueType:
    return next(value_type(v.type) for v in model.graph.output if v.name == output)


def random_feeds(model: onnx.ModelProto, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    stored = {t.name for t in model.graph.initializer}
    return {
        v.name: rng.standard_normal([d.dim_value for d in v.type.tensor_type.shape.dim], dtype=np.float32)
        for v in model.graph.input
        if v.name not in stored
    }


def run(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return dict(zip([o.name for o in session.get_outputs()], session.run(None, feeds), strict=True))
