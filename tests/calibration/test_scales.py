from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from onnxq.calibration import Range, Ranges, activation_scale, scale_vanishes, weight_scales
from onnxq.errors import CalibrationError

FINITE = st.floats(allow_nan=False, allow_infinity=False)


def is_usable(scales: np.ndarray, dtype: type) -> bool:
    """Whether no scale is off by more than 1 %."""
    limits = np.finfo(dtype)
    least = 50 * limits.smallest_subnormal if dtype == np.float16 else limits.smallest_normal
    return bool(np.all((scales >= least) & (scales <= limits.max)))


@given(FINITE, FINITE, st.sampled_from([np.float32, np.float16]))
def test_activation_scale_is_usable_and_covers_the_range(a: float, b: float, dtype: type) -> None:
    scale = activation_scale(Range(min(a, b), max(a, b)), dtype=dtype)
    assert (scale.dtype, scale.shape) == (np.dtype(dtype), ())
    assert is_usable(scale, dtype)
    largest = max(abs(a), abs(b))
    if 0.1 < largest < 1e6 or (dtype == np.float32 and 1e-30 < largest < 1e30):
        assert float(scale) * 127 == pytest.approx(largest, rel=1e-3 if dtype == np.float16 else 1e-6)


def test_zero_tensor_has_the_scale_of_one() -> None:
    assert activation_scale(Range(0.0, 0.0)) == np.float32(1 / 127)
    assert activation_scale(Range(-0.0, 0.0)) == np.float32(1 / 127)


@given(
    hnp.arrays(
        st.sampled_from([np.float32, np.float16, np.float64]),
        hnp.array_shapes(min_dims=1, max_dims=4, max_side=4),
        elements={"allow_nan": False, "allow_infinity": False},
    ),
    st.data(),
    st.sampled_from([np.float32, np.float16]),
)
def test_weight_scales_are_those_of_each_channel(values: np.ndarray, data: st.DataObject, dtype: type) -> None:
    axis = data.draw(st.integers(-values.ndim, values.ndim - 1))
    scales = weight_scales(values, axis, dtype=dtype)
    assert scales.shape == (values.shape[axis],)
    assert scales.dtype == dtype
    assert is_usable(scales, dtype)
    for scale, channel in zip(scales, np.moveaxis(values, axis, 0), strict=True):
        assert scale == weight_scales(channel, None, dtype=dtype)
        largest = float(np.abs(channel).max())
        if largest == 0:
            assert float(scale) == pytest.approx(1 / 127, rel=1e-3)
        elif 0.1 < largest < 1000:
            assert float(scale) * 127 == pytest.approx(largest, rel=1e-3)


@given(st.floats(4e-4, 6e4))
def test_a_float16_scale_clips_nothing_and_is_close(largest: float) -> None:
    """Numbers below 6.1e-5 have fewer digits in float16, and a scale that is rounded down clips."""
    scale = float(activation_scale(Range(0.0, largest), dtype=np.float16))
    assert largest <= scale * 127 <= 1.01 * largest


@pytest.mark.parametrize(("largest", "dtype", "lost"), [(3.7e-4, np.float16, True), (3.8e-4, np.float16, False)])
def test_values_too_small_for_a_scale(largest: float, dtype: type, lost: bool) -> None:
    assert scale_vanishes(Range(-largest, 0.0), dtype) == lost
    assert not scale_vanishes(Range(-largest, 0.0), np.float32)
    assert not scale_vanishes(Range(0.0, 0.0), dtype)


def test_pruned_channel_and_empty_weight() -> None:
    weight = np.ones((4, 3, 3, 3), np.float32)
    weight[1] = 0
    assert weight_scales(weight, 0).tolist() == [np.float32(1 / 127)] * 4
    assert weight_scales(np.zeros((2, 0), np.float32), 0).shape == (2,)


def test_bfloat16_weights() -> None:
    values = np.array([[1, -254], [0.5, 127]], ml_dtypes.bfloat16)
    assert weight_scales(values, 0).tolist() == [2, 1]
    assert weight_scales(values, 1).tolist() == [np.float32(1 / 127), 2]


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("axis", [None, 0])
def test_non_finite_weights_are_named(bad: float, axis: int | None, dtype: type) -> None:
    with pytest.raises(CalibrationError, match=r'"conv\.weight" holds NaN or infinity'):
        weight_scales(np.array([1, bad, 2, 0]).astype(dtype), axis, name="conv.weight")


@pytest.mark.parametrize(("low", "high"), [(1, 0), (np.nan, 0), (0, np.inf), (np.inf, -np.inf)])
def test_what_is_no_range(low: float, high: float) -> None:
    with pytest.raises(ValueError, match="no range"):
        Range(low, high)


def test_ranges_are_a_mapping() -> None:
    ranges = Ranges({"a": Range(0, 1)}, ("b",))
    assert dict(ranges) == {"a": Range(0, 1)}
    assert len(ranges) == 1
    assert "b" not in ranges
