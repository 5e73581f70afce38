from __future__ import annotations

import math

import numpy as np
import pytest
import slow_calibrators as slow
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from onnxq.calibration import METHODS, Calibrator, TensorStatistics
from onnxq.calibration.calibrators import entropy_bins, mse_bins, percentile_bins
from onnxq.calibration.histogram import BINS, CHUNK, Histogram, count
from onnxq.errors import UsageError


def histogram(values: np.ndarray) -> Histogram:
    return count(values, float(np.abs(values.astype(np.float64)).max(initial=0)))


def statistics(values: np.ndarray) -> TensorStatistics:
    return TensorStatistics(float(values.min()), float(values.max()), histogram(values))


def arrays(max_side: int = 40) -> st.SearchStrategy[np.ndarray]:
    """Any finite numbers: subnormal ones, the greatest, zeros, equal ones."""
    return st.sampled_from([np.float32, np.float64]).flatmap(
        lambda dtype: hnp.arrays(
            dtype,
            st.integers(0, max_side),
            elements={"allow_nan": False, "allow_infinity": False, "allow_subnormal": True},
            fill=st.just(dtype(0)),
        )
    )


@st.composite
def samples(draw: st.DrawFn) -> np.ndarray:
    """What activations look like: a shape of distribution, some zeros, some outliers, any size and scale."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    number = draw(st.sampled_from([1, 3, 50, 400, 5000, 60_000]))
    shape = draw(st.sampled_from(["normal", "relu", "laplace", "uniform", "student", "lognormal", "few", "spike"]))
    values = {
        "normal": lambda: rng.standard_normal(number),
        "relu": lambda: np.maximum(rng.standard_normal(number), 0),
        "laplace": lambda: rng.laplace(size=number),
        "uniform": lambda: rng.uniform(-1, 3, number),
        "student": lambda: rng.standard_t(2, number),
        "lognormal": lambda: rng.lognormal(0, 2, number),
        "few": lambda: rng.integers(-3, 4, number) / 3,
        "spike": lambda: np.where(rng.random(number) < 0.999, 0.01, 1.0) * rng.standard_normal(number),
    }[shape]()
    values[: draw(st.integers(0, 3))] *= draw(st.sampled_from([1, 10, 1000]))
    scaled = values * 10.0 ** draw(st.sampled_from([0, -30, -42, 30]))
    return scaled.astype(draw(st.sampled_from([np.float32, np.float64])))


@given(arrays())
def test_histogram_is_that_of_exact_arithmetic(values: np.ndarray) -> None:
    found = histogram(values)
    assert (found.exponent, found.counts.tolist()) == slow.histogram(values)
    assert found.counts.dtype == np.int64
    assert len(found.counts) <= BINS


@given(st.lists(arrays(12), min_size=1, max_size=5), st.randoms())
def test_histograms_merge_to_that_of_all_elements_in_any_order(parts: list[np.ndarray], random) -> None:
    whole = histogram(np.concatenate([part.astype(np.float64) for part in parts]))
    found = [histogram(part) for part in parts]
    random.shuffle(found)
    while len(found) > 1:
        first = found.pop(random.randrange(len(found)))
        second = found.pop(random.randrange(len(found)))
        found.append(first.merged(second))
    assert found == [whole]


def test_a_long_array_is_counted_by_chunks() -> None:
    values = np.random.default_rng(0).standard_normal((3, CHUNK // 2 + 7)).astype(np.float32)
    found = histogram(values)
    expected = np.bincount(np.ceil(np.abs(values.astype(np.float64)) / found.width).astype(int).ravel())[1:]
    np.testing.assert_array_equal(found.counts, expected)


@given(st.floats(0, allow_infinity=False, exclude_min=True))
def test_more_than_half_of_the_bins_are_in_use(greatest: float) -> None:
    found = histogram(np.array([greatest]))
    assert greatest <= len(found.counts) * found.width
    assert BINS // 2 < len(found.counts) <= BINS or found.exponent == -1022
    assert found.counts.sum() == found.counts[-1] == 1


@given(samples(), st.sampled_from([50.0, 99.0, 99.9, 99.99, 100.0]))
@settings(max_examples=40)
def test_calibrators_choose_what_their_definitions_say(values: np.ndarray, percentile: float) -> None:
    counts = histogram(values).counts
    if not counts.size:
        return
    assert percentile_bins(counts, percentile) == slow.percentile_bins(counts, percentile)
    assert mse_bins(counts) == slow.mse_bins(counts)
    assert entropy_bins(counts) == slow.entropy_bins(counts)


@given(st.lists(st.integers(0, 3) | st.integers(0, 2**40), min_size=1, max_size=4), st.integers(1, 1500), st.randoms())
@settings(max_examples=40)
def test_calibrators_agree_on_odd_histograms(kinds: list[int], bins: int, random) -> None:
    """Sparse, few-valued and huge counts."""
    counts = np.array([random.choice(kinds) for _ in range(bins)], np.int64)
    counts[-1] = max(counts[-1], 1)
    assert entropy_bins(counts) == slow.entropy_bins(counts)
    assert mse_bins(counts) == slow.mse_bins(counts)


@given(arrays() | samples(), st.sampled_from(METHODS))
def test_every_range_lies_within_what_was_seen_and_zeros_have_no_say(values: np.ndarray, method: str) -> None:
    if not values.size:
        return
    calibrator, seen = Calibrator(method), statistics(values)
    found = seen.range(calibrator)
    limit = calibrator.threshold(seen.histogram)
    assert limit > 0
    for end, bound in ((found.low, seen.low), (found.high, seen.high)):
        assert end == bound or abs(end) == limit < abs(bound)
    padded = np.concatenate((values, np.zeros(500, values.dtype)))
    assert calibrator.threshold(histogram(padded)) == limit


@given(samples(), st.integers(-10, 10), st.sampled_from(METHODS))
@settings(max_examples=40)
def test_a_power_of_two_scales_the_range_and_signs_change_nothing(values: np.ndarray, power: int, method: str) -> None:
    if np.abs(values).max() < 1e-20:
        return  # scaling would round
    calibrator = Calibrator(method)
    limit = calibrator.threshold(histogram(values))
    assert calibrator.threshold(histogram(np.ldexp(values, power))) == math.ldexp(limit, power)
    assert calibrator.threshold(histogram(-values)) == limit


def test_each_method_clips_an_outlier_as_it_should() -> None:
    values = np.random.default_rng(0).standard_normal(1_000_000)
    values[0] = 1000.0
    found = {method: statistics(values).range(Calibrator(method)).high for method in METHODS}
    assert found["max"] == 1000
    assert 3.5 < found["percentile"] < 4.5
    assert found["mse"] < 1000
    normal = statistics(values[1:])
    assert 3.5 < normal.range(Calibrator("entropy")).high < normal.high
    assert 3.5 < normal.range(Calibrator("mse")).high < 4.5


def test_entropy_keeps_rare_values_that_carry_the_energy() -> None:
    """By divergence alone one element in 5,000 is no loss; by squared error it is nearly everything."""
    values = np.random.default_rng(0).standard_normal(200_000)
    values[:40] = 60.0 + np.arange(40) / 40
    counts = histogram(values).counts
    by_divergence = min(slow.candidates(len(counts)), key=lambda bins: slow.divergence(counts, bins))
    assert by_divergence * histogram(values).width < 10
    assert statistics(values).range(Calibrator("entropy")).high > 55


def test_a_range_on_one_side_of_zero_stays_a_range() -> None:
    values = np.concatenate((np.full(9_999, 5.0), [10.0]))
    assert statistics(values).range(Calibrator("percentile", 90)).high < 5.01
    found = statistics(np.full(10, -3.0)).range(Calibrator("mse"))
    assert (found.low, found.high) == (-3, -3)
    low = TensorStatistics(5.0, 10.0, Histogram(0, np.array([0, 1])))  # the lower bound lies beyond the threshold
    clipped = low.range(Calibrator("percentile", 50))
    assert clipped.low <= clipped.high


def test_zeros_only() -> None:
    seen = statistics(np.zeros(8, np.float32))
    for method in METHODS:
        assert (seen.range(Calibrator(method)).low, seen.range(Calibrator(method)).high) == (0, 0)


def test_sparse_tensors_keep_their_values_under_percentile() -> None:
    values = np.zeros(1_000_000)
    values[:10] = np.arange(1, 11)
    assert statistics(values).range(Calibrator("percentile")).high == 10


def test_unknown_methods_and_percentiles_are_refused() -> None:
    with pytest.raises(UsageError, match=r"'kl' is unknown.*entropy"):
        Calibrator("kl")
    for percentile in (0, -1, 100.1, math.nan):
        with pytest.raises(UsageError, match="percentile="):
            Calibrator("percentile", percentile)
