"""Statistics and ranges as files: exact, checked, and told apart by their content."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_calibrators import arrays, statistics

from onnxq.calibration import (
    METHODS,
    Calibrator,
    Range,
    Ranges,
    Statistics,
    TensorStatistics,
    activation_scale,
    pick_ranges,
    ranges_text,
    read_ranges,
)
from onnxq.calibration.cache import cache_from_text, cache_to_text
from onnxq.calibration.stored import statistics_from_json, statistics_to_json
from onnxq.errors import CalibrationError, UsageError

HERE = Path("r.json")
NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)


@st.composite
def found(draw: st.DrawFn) -> Statistics:
    method = draw(st.sampled_from(METHODS))
    parts = draw(st.dictionaries(NAMES, arrays(12), max_size=4))
    tensors = {name: statistics(values) if values.size else None for name, values in parts.items()}
    if method == "max":
        tensors = {name: seen and TensorStatistics(seen.low, seen.high) for name, seen in tensors.items()}
    percentile = draw(st.floats(0, 100, exclude_min=True))
    return Statistics(tensors, Calibrator(method, percentile), draw(st.integers(0, 2**40)))


@given(found())
def test_json_gives_back_exactly_what_was_written(seen: Statistics) -> None:
    text = statistics_to_json(seen)
    again = statistics_from_json(text, HERE)
    assert again == seen
    assert list(again) == list(seen)
    assert statistics_to_json(again) == text
    json.loads(text)


def good() -> dict:
    seen = Statistics({"t": statistics(np.array([-1.0, 0.5])), "e": None}, Calibrator("entropy"), 3)
    return json.loads(statistics_to_json(seen))


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        ("format", "other", "no file of ranges"),
        ("version", 2, "version 2 of the format, this onnxq reads 1"),
        ("version", "1", "version"),
        ("method", "kl", "'kl' is unknown"),
        ("percentile", 0, "percentile=0"),
        ("samples", -1, "samples"),
        ("extra", 1, "extra"),
        ("tensors", [], "tensors"),
        ("tensors.t.low", 2.0, '"t": low 2.0 and high 0.5 are no range'),
        ("tensors.t.low", -1.5, '"t": the histogram isn\'t that of values from -1.5 to 0.5'),
        ("tensors.t.low", -0.75, '"t": the histogram isn\'t that'),
        ("tensors.t.low", "x", "low"),
        ("tensors.t.histogram.exponent", -3, '"t": the histogram isn\'t'),
        ("tensors.t.histogram.counts", [1, -1], "counts"),
        ("tensors.t.histogram.counts", [0] * 5000, "counts"),
        ("tensors.t.histogram.counts", [], '"t": the histogram isn\'t'),
        ("tensors.t.histogram.counts", [0.5], "counts"),
        ("tensors.t.histogram.counts", [2**63], "counts"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(path: str, value: object, says: str) -> None:
    content = good()
    *parents, key = path.split(".")
    place = content
    for parent in parents:
        place = place[parent]
    place[key] = value
    with pytest.raises(CalibrationError) as caught:
        statistics_from_json(json.dumps(content), HERE)
    assert str(caught.value).startswith("r.json: ")
    assert says in str(caught.value)


@pytest.mark.parametrize("text", [b"{", b'{"a": 1}', b'{"format": "onnxq ranges", "version": 1}', b"{\xff}", b"[]"])
def test_broken_files_are_refused(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "r.json").write_bytes(text)
    with pytest.raises(CalibrationError, match=r"r\.json: "):
        read_ranges(tmp_path / "r.json")


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(CalibrationError, match=r"r\.json: can't be read: No such file"):
        read_ranges(tmp_path / "r.json")


SCALES = st.floats(2.0**-126, 2.0**120, width=32)


@given(st.dictionaries(st.text(st.characters(codec="ascii", categories=["L", "N", "P", "S"]), min_size=1), SCALES))
def test_caches_give_back_the_scales(scales: dict[str, float]) -> None:
    lines = [f"{name}: {struct.pack('>f', scale).hex()}" for name, scale in scales.items()]
    text = "\n".join(["TRT-8601-EntropyCalibration2", *lines]) + "\n"
    ranges = cache_from_text(text, HERE)
    assert {name: activation_scale(found) for name, found in ranges.items()} == scales
    assert cache_to_text(ranges, "entropy") == text


def test_a_cache_as_tensorrt_writes_it() -> None:
    lines = ["(Unnamed Layer* 48) [Constant]_output: 3c008912", "a:b: 3F800000", "z: 00000000", ""]
    text = "\r\n".join(["TRT-7000-EntropyCalibration2", *lines])
    ranges = cache_from_text(text, HERE)
    assert ranges["a:b"] == Range(-127, 127)
    assert ranges["z"] == Range(0, 0)
    assert ranges["(Unnamed Layer* 48) [Constant]_output"].high == pytest.approx(0.99629, abs=1e-4)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("a: 3c0089", 'line 2: "a: 3c0089" is not of the form'),
        ("a 3c008912", "line 2"),
        (": 3c008912", "line 2"),
        ("a: xxxxxxxx", "line 2"),
        ("a: bf800000", 'the scale of "a" is -1.0'),
        ("a: 7fc00000", 'the scale of "a" is nan'),
        ("a: 7f800000", 'the scale of "a" is inf'),
        ("a: 3f800000\na: 3f800000", 'line 3: "a" occurs twice'),
    ],
)
def test_a_wrong_line_of_a_cache_is_named(line: str, says: str) -> None:
    with pytest.raises(CalibrationError) as caught:
        cache_from_text(f"TRT-8601-EntropyCalibration2\n{line}\n", Path("c.cache"))
    assert says in str(caught.value)


@pytest.mark.parametrize("name", ["a\nb", " a", "a\u2028b"])
def test_names_that_a_cache_cannot_hold(name: str) -> None:
    with pytest.raises(CalibrationError, match=r"can't hold the name .*\.json"):
        cache_to_text({name: Range(-1, 1)}, "max")


def test_the_suffix_says_what_is_written_and_the_header_how_it_was_found() -> None:
    seen = Statistics({"t": TensorStatistics(-1, 2)}, Calibrator("max"), 1)
    assert ranges_text(seen, "r.json").startswith("{")
    assert ranges_text(seen, "r.cache").splitlines() == [
        "TRT-8601-MinMaxCalibration",
        f"t: {struct.pack('>f', 2 / 127).hex()}",
    ]


def test_picking_what_is_wanted() -> None:
    seen = {name: statistics(np.arange(-3.0, n)) for n, name in enumerate("abc", 2)}
    whole = Statistics(seen, Calibrator("entropy"), 5)
    picked = pick_ranges(whole, ["c", "a"], {"a", "b", "c"}, None)
    assert list(picked.source) == ["c", "a"]
    assert (picked.missing, picked.warnings) == ((), ())
    assert pick_ranges(whole, ["a"], {"a"}, None).warnings == ('ranges: the model has no tensor "b", and 1 more',)
    assert pick_ranges(whole, ["a"], set("abc"), Calibrator("mse")).source.calibrator.method == "mse"
    with pytest.raises(CalibrationError, match=r'no range for tensor "aa"; did you mean "a"\?.*same selection'):
        pick_ranges(whole, ["a", "aa"], {"a", "aa"}, None)
    with pytest.raises(UsageError, match="leave calibration_method out"):
        pick_ranges({"a": Range(0, 1)}, ["a"], {"a"}, Calibrator("mse"))


def test_a_cache_may_lack_some_tensors_but_not_all(tmp_path: Path) -> None:
    path = tmp_path / "c.cache"
    path.write_text(cache_to_text(Ranges({"a": Range(-1, 1), "x": Range(0, 1)}), "entropy"))
    picked = pick_ranges(path, ["a", "b"], {"a", "b"}, None)
    assert picked.missing == ("b",)
    assert list(picked.source) == ["a"]
    assert picked.warnings == (
        f'{path}: no scale for tensor "b", so it stays float',
        f'{path}: the model has no tensor "x"',
    )
    with pytest.raises(CalibrationError, match='no range for tensor "b"'):
        pick_ranges(path, ["b"], {"b"}, None)


def test_groups_of_plain_ranges_get_their_union() -> None:
    ranges = Ranges({"a": Range(-1, 1), "b": Range(0, 5), "c": Range(0, 1)})
    assert dict(ranges.share(ranges, [("a", "b", "gone")])) == {
        "a": Range(-1, 5),
        "b": Range(-1, 5),
        "c": Range(0, 1),
    }
