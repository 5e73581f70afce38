"""What holds of every drawn model in half precision (rule F8), alone and after quantization."""

from __future__ import annotations

import sys
from collections.abc import Collection
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxq.convert import convert_to_f16
from onnxq.invariants import check
from onnxq.pipeline import make_plan, quantize
from onnxq.relations.steps import float_outputs
from onnxq.shapes import prepare
from onnxq.strategies import LabelledModel, precision_models, residual_models

sys.path.insert(0, str(Path(__file__).parents[1] / "precision"))
import precision_checks as checks

models = st.one_of(precision_models(), residual_models(max_blocks=4, node_names=("unique",)))
halves = st.sampled_from(["fp16", "bf16"])
seeds = st.integers(0, 2**16)


@settings(max_examples=60, deadline=None)
@given(models, halves, st.booleans())
def test_valid_minimal_and_stable(labelled: LabelledModel, half: str, keep: bool) -> None:
    converted = convert_to_f16(labelled.model, low_precision_type=half, keep_io_types=keep)
    checks.check_valid(converted)
    checks.check_casts(converted)
    assert checks.is_typed_as_declared(converted)
    if keep:
        checks.check_interface(prepare(labelled.model).model, converted)
    again = convert_to_f16(converted, low_precision_type=half, keep_io_types=keep)
    assert again.SerializeToString(deterministic=True) == converted.SerializeToString(deterministic=True)


@settings(max_examples=60, deadline=None)
@given(models, st.booleans(), st.booleans(), seeds)
def test_the_runtime_agrees(labelled: LabelledModel, keep: bool, optimize: bool, seed: int) -> None:
    converted = convert_to_f16(labelled.model, keep_io_types=keep)
    assert_close(labelled, checks.run(converted, checks.feeds(labelled.model, seed), optimize=optimize), seed)


@settings(max_examples=30, deadline=None)
@given(models, seeds)
def test_with_every_node_excluded_no_bit_changes(labelled: LabelledModel, seed: int) -> None:
    converted = convert_to_f16(labelled.model, nodes_to_exclude=[".*"])
    feed = checks.feeds(labelled.model, seed)
    exact, outputs = checks.run(prepare(labelled.model).model, feed), checks.run(converted, feed)
    for name, value in exact.items():
        np.testing.assert_array_equal(outputs[name], value)


@settings(max_examples=30, deadline=None)
@given(models, halves)
def test_quantization_with_half_precision_keeps_every_invariant(labelled: LabelledModel, half: str) -> None:
    feed = checks.feeds(labelled.model)
    result = quantize(labelled.model, calibration_data=[feed], high_precision_dtype=half)
    checks.check_valid(result.model)
    checks.check_casts(result.model)
    assert not check(labelled.model, result.model)
    in_float = quantize(labelled.model, calibration_data=[feed], high_precision_dtype="fp32")
    assert result.placement.to_text() == in_float.placement.to_text()


@settings(max_examples=30, deadline=None)
@given(models, seeds)
def test_quantization_with_half_precision_runs(labelled: LabelledModel, seed: int) -> None:
    feed = checks.feeds(labelled.model, seed)
    result = quantize(labelled.model, calibration_data=[feed])
    follows = float_outputs(make_plan(labelled.model).index)
    assert_close(
        labelled, checks.run(result.model, feed), seed, bound=0.5, jumping={n for n in follows if not follows[n]}
    )


def assert_close(
    labelled: LabelledModel,
    outputs: dict[str, np.ndarray],
    seed: int,
    bound: float = 0.02,
    jumping: Collection[str] = (),
) -> None:
    """Within a part of the greatest magnitude, 1e-3 at least. Outputs that jump have to be finite only."""
    for name, exact in checks.run(prepare(labelled.model).model, checks.feeds(labelled.model, seed)).items():
        wide, got = exact.astype(np.float64), outputs[name].astype(np.float64)
        assert got.shape == wide.shape, name
        assert np.isfinite(got).all(), name
        if name not in jumping:
            assert np.abs(got - wide).max(initial=0) <= bound * max(np.abs(wide).max(initial=0), 1e-3), name
