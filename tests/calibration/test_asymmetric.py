"""Scales and zero points of all 256 integers, and biases at the product of two scales."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxq.calibration import (
    Range,
    asymmetric_constant,
    asymmetric_parameters,
    bias_parameters,
    scale_for_bias,
)
from onnxq.encoding import QuantizationParameters
from onnxq.errors import CalibrationError

FINITE = st.floats(allow_nan=False, allow_infinity=False)
ORDINARY = st.floats(-1e6, 1e6).map(lambda x: x if abs(x) > 1e-3 else 0.0)
TYPES = st.sampled_from(["uint8", "int8"])


def dequantized(values: np.ndarray, found: QuantizationParameters) -> np.ndarray:
    limits = np.iinfo(found.zero_point.dtype)
    steps = np.rint(values / np.float64(found.scale)) + int(found.zero_point)
    return (np.clip(steps, limits.min, limits.max) - int(found.zero_point)) * np.float64(found.scale)


@given(FINITE, FINITE, TYPES, st.sampled_from([np.float32, np.float16]))
def test_parameters_are_numbers_of_their_types_whatever_the_range(a, b, integer, dtype) -> None:
    found = asymmetric_parameters(Range(min(a, b), max(a, b)), integer, dtype=dtype)
    assert (found.scale.dtype, found.scale.shape) == (np.dtype(dtype), ())
    assert (found.zero_point.dtype, found.zero_point.shape) == (np.dtype(integer), ())
    limits = np.finfo(dtype)
    assert limits.smallest_normal <= found.scale <= limits.max
    assert found.stored is None


@given(ORDINARY, ORDINARY, TYPES)
def test_the_range_is_covered_to_half_a_step_and_zero_is_exact(a, b, integer) -> None:
    low, high = min(a, b, 0.0), max(a, b, 0.0)
    found = asymmetric_parameters(Range(min(a, b), max(a, b)), integer)
    values = np.array([low, high, 0.0, (low + high) / 2])
    restored = dequantized(values, found)
    assert restored[2] == 0
    assert np.abs(restored - values).max() <= 0.501 * float(found.scale) + 1e-6 * max(-low, high)


@pytest.mark.parametrize(("integer", "least", "greatest"), [("uint8", 0, 255), ("int8", -128, 127)])
def test_ranges_on_one_side_of_zero_begin_at_an_end(integer, least, greatest) -> None:
    assert asymmetric_parameters(Range(0.0, 6.0), integer).zero_point == least
    assert asymmetric_parameters(Range(2.0, 6.0), integer).zero_point == least
    assert asymmetric_parameters(Range(2.0, 6.0), integer).scale == np.float32(6 / 255)
    assert asymmetric_parameters(Range(-6.0, -2.0), integer).zero_point == greatest
    assert asymmetric_parameters(Range(0.0, 0.0), integer).scale == np.float32(1 / 255)


@given(st.floats(1e-6, 1e6))
def test_the_greatest_integer_means_the_upper_bound(high) -> None:
    """onnxruntime drops a Clip(0, 6) if the greatest integer means no more than 6."""
    scale = asymmetric_parameters(Range(0.0, high)).scale
    assert np.rint(np.float32(high) / scale) == 255


def test_a_constant_has_the_range_of_its_values() -> None:
    found = asymmetric_constant(np.array([-1.0, 3.0], np.float32))
    assert (float(found.scale), int(found.zero_point)) == (pytest.approx(4 / 255), 64)
    assert asymmetric_constant(np.zeros((0,), np.float32)).scale == np.float32(1 / 255)
    with pytest.raises(CalibrationError, match='constant "gate" holds NaN or infinity'):
        asymmetric_constant(np.array([np.inf], np.float32), name="gate")


def test_a_bias_is_stored_at_the_product_of_the_scales() -> None:
    bias, data, weight = np.array([1.0, -2.0], np.float32), np.float32(0.5), np.array([0.25, 0.125], np.float32)
    found = bias_parameters(bias, data, weight, 0)
    assert found.scale.tolist() == [0.125, 0.0625]
    assert found.stored is not None
    assert found.stored.tolist() == [8, -32]
    assert (found.stored.dtype, found.zero_point.dtype, found.zero_point.tolist()) == (np.int32, np.int32, [0, 0])
    row = bias_parameters(bias.reshape(1, 2), data, weight, 1)
    assert row.stored is not None
    assert row.stored.tolist() == [[8, -32]]
    whole = bias_parameters(bias, data, np.asarray(np.float32(0.25)), None)
    assert (whole.scale.shape, whole.stored is not None and whole.stored.tolist()) == ((), [8, -16])


def test_ordinary_scales_of_weights_stay() -> None:
    weight = np.array([0.01, 0.02], np.float32)
    assert scale_for_bias(weight, np.asarray(np.float32(0.1)), np.ones(2, np.float32)).tolist() == weight.tolist()


@given(
    st.floats(2**-100, 1024, width=32),
    st.lists(st.floats(-(2**20), 2**20, width=32), min_size=1, max_size=4),
    st.floats(2**-100, 1024, width=32),
    st.booleans(),
)
def test_a_bias_fits_whatever_its_weight_is(data, bias, weight, per_channel) -> None:
    """Behind a channel of zeros, or a tiny one, the product of the scales would be too small."""
    values, of_data = np.array(bias, np.float32), np.asarray(np.float32(data))
    before = np.full(len(bias), weight, np.float32) if per_channel else np.asarray(np.float32(weight))
    scale = scale_for_bias(before, of_data, values)
    assert (scale.dtype, scale.shape) == (before.dtype, before.shape)
    assert (scale >= before).all()
    found = bias_parameters(values, of_data, scale, 0 if per_channel else None)
    assert (found.scale >= np.finfo(np.float32).smallest_normal).all()
    assert found.stored is not None
    assert np.abs(found.stored.astype(np.int64)).max() <= 2**30 + 2**8
    restored = found.stored.astype(np.float64) * found.scale
    assert np.abs(restored - values).max() <= 0.51 * float(found.scale.max()) + 1e-6 * np.abs(values).max()
