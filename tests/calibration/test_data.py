from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import ModelProto, helper, parser

from onnxq.calibration import make_feeds, parse_shapes
from onnxq.errors import CalibrationError, UnsupportedError, UsageError


def model_of(inputs: str, initializers: str = "") -> ModelProto:
    return parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> g ({inputs}) => () {initializers} {{}}')


def feeds_of(model: ModelProto, data: object, **options: object) -> list[dict[str, np.ndarray]]:
    return list(make_feeds(model, data, **options))


class Reader:
    def __init__(self, feeds: list[dict[str, np.ndarray]]) -> None:
        self.feeds = iter(feeds)

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self.feeds, None)


IMAGE = "float[N, 3, 4] x"


@given(
    samples=st.integers(1, 7),
    batch=st.integers(1, 4),
    fortran=st.booleans(),
    big_endian=st.booleans(),
    compressed=st.booleans(),
    form=st.sampled_from(["mapping", "array", "npy", "npz"]),
)
def test_arrays_are_cut_into_batches_without_loss(
    tmp_path_factory: pytest.TempPathFactory,
    samples: int,
    batch: int,
    fortran: bool,
    big_endian: bool,
    compressed: bool,
    form: str,
) -> None:
    array = np.arange(samples * batch * 12, dtype=">f4" if big_endian else "<f4").reshape(-1, 3, 4)
    array = np.asarray(array, order="F" if fortran else "C")
    folder = tmp_path_factory.mktemp("data")
    data: object = {"mapping": {"x": array}, "array": array}.get(form, folder / f"data.{form}")
    if form == "npy":
        np.save(folder / "data.npy", array)
    elif form == "npz":
        (np.savez_compressed if compressed else np.savez)(folder / "data.npz", x=array)
    feeds = make_feeds(model_of(f"float[{batch}, 3, 4] x"), data)
    assert not feeds.is_random
    for _ in range(2):
        got = [f["x"] for f in feeds]
        assert [(a.shape, a.dtype) for a in got] == [((batch, 3, 4), np.dtype(np.float32))] * samples
        np.testing.assert_array_equal(np.concatenate(got), array)


def test_open_first_dim_takes_one_sample_a_run() -> None:
    assert [f["x"].shape for f in feeds_of(model_of(IMAGE), np.ones((5, 3, 4), np.float32))] == [(1, 3, 4)] * 5
    for dim in (0, -1):
        model = model_of(IMAGE)
        model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = dim
        assert len(feeds_of(model, np.ones((5, 3, 4), np.float32))) == 5


def test_shapes_settle_the_batch_of_an_open_dim() -> None:
    feeds = feeds_of(model_of(IMAGE), np.ones((6, 3, 4), np.float32), shapes={"x": (2, 3, 4)})
    assert [f["x"].shape for f in feeds] == [(2, 3, 4)] * 3


def test_scalar_inputs_are_shared_or_one_a_sample() -> None:
    model = model_of(IMAGE + ", int64 sr")
    x = np.ones((3, 3, 4), np.float32)
    shared = feeds_of(model, {"x": x, "sr": np.array(16000)})
    assert [(int(f["sr"]), f["sr"].shape) for f in shared] == [(16000, ())] * 3
    each = feeds_of(model, {"x": x, "sr": np.array([1, 2, 3])})
    assert [(int(f["sr"]), f["sr"].shape) for f in each] == [(1, ()), (2, ()), (3, ())]


def test_initializers_among_the_inputs_need_no_data() -> None:
    model = model_of("float[N] x, float[2] w", "<float[2] w = {1, 2}>")
    assert [list(f) for f in feeds_of(model, {"x": np.ones(2, np.float32)})] == [["x"], ["x"]]


@pytest.mark.parametrize(
    ("inputs", "data", "words"),
    [
        (IMAGE, {"y": np.ones((1, 3, 4))}, ['"y"', "x"]),
        (IMAGE, {"x1": np.ones((1, 3, 4))}, ['"x1"', 'did you mean "x"']),
        (IMAGE + ", float[N] images", {"x": np.ones((1, 3, 4))}, ['"images"', "float32[N]"]),
        (IMAGE, {"x": np.ones((3, 4), np.float32)}, ["float32[N, 3, 4]", "[3, 4]", "3 axes"]),
        (IMAGE, {"x": np.ones((1, 3, 5), np.float32)}, ["float32[N, 3, 4]", "float32[1, 3, 5]", "sample 0"]),
        (IMAGE, {"x": np.ones((1, 3, 4), np.int64)}, ["float32[N, 3, 4]", "int64[1, 3, 4]", "astype"]),
        (IMAGE, {"x": np.zeros((0, 3, 4), np.float32)}, ["no samples"]),
        (IMAGE, {"x": [[1.0], [1.0, 2.0]]}, ['"x"', "rectangular"]),
        ("float[4, 2] x", {"x": np.ones((10, 2), np.float32)}, ["4 samples a run", "10", "add 2 or drop 2"]),
        ("float[4, 2] x", {"x": np.ones((3, 2), np.float32)}, ["add 1 or drop 3"]),
        ("float[N] x, float[M] y", {"x": np.ones(2), "y": np.ones(3)}, ['"x" 2', '"y" 3']),
        ("float[N] x, float[M] y", np.ones(2), ["2 inputs", "x, y"]),
        ("int64 sr", {"sr": np.ones((1, 1), np.int64)}, ['"sr"', "int64[]"]),
    ],
)
def test_data_that_do_not_fit_are_refused_by_name(inputs: str, data: object, words: list[str]) -> None:
    with pytest.raises(CalibrationError) as caught:
        feeds_of(model_of(inputs), data)
    assert [w for w in words if w not in str(caught.value)] == []
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("make", [iter, list, Reader])
def test_feeds_are_used_as_they_come(make: type) -> None:
    given_feeds = [{"x": np.full((1, n), n, np.float32)} for n in (3, 5, 7)]
    got = feeds_of(model_of("float[b, s] x"), make(given_feeds))
    assert [f["x"].shape for f in got] == [(1, 3), (1, 5), (1, 7)]


@pytest.mark.parametrize("make", [iter, list, Reader])
def test_no_feeds_is_an_error(make: type) -> None:
    with pytest.raises(CalibrationError, match="no samples"):
        feeds_of(model_of(IMAGE), make([]))


@pytest.mark.parametrize(
    ("second", "words"),
    [
        ({"x": np.ones((1, 4, 4), np.float32)}, ["sample 1", '"x"', "float32[1, 4, 4]"]),
        ({"x": np.ones((3, 4), np.float32)}, ["sample 1", "float32[N, 3, 4]"]),
        ({}, ["sample 1", "no value", '"x"']),
        ({"x": None}, ["sample 1", '"x"', "object"]),
        ((np.ones((1, 3, 4)),), ["sample 1", "tuple"]),
    ],
)
def test_the_bad_feed_is_named(second: object, words: list[str]) -> None:
    feeds = [{"x": np.ones((1, 3, 4), np.float32)}, second]
    with pytest.raises(CalibrationError) as caught:
        feeds_of(model_of(IMAGE), feeds)
    assert [w for w in words if w not in str(caught.value)] == []


@pytest.mark.parametrize(
    ("declared", "given_dtype", "value", "passes"),
    [
        ("float", np.float64, 0.1, True),
        ("float", np.float64, np.nan, True),
        ("float", np.float64, 1e300, False),
        ("float", np.float16, 0.1, True),
        ("float", np.int32, 1, False),
        ("float", np.bool_, True, False),
        ("double", np.float32, 0.1, True),
        ("float16", np.float32, 0.5, True),
        ("float16", np.float32, 0.1, False),
        ("bfloat16", np.float32, 0.5, True),
        ("bfloat16", ml_dtypes.bfloat16, 0.1, True),
        ("int64", np.int32, -3, True),
        ("int32", np.int64, 2**31, False),
        ("int64", np.float32, 1, False),
        ("uint8", np.int64, -1, False),
        ("bool", np.int64, 1, False),
        ("bool", np.bool_, True, True),
    ],
)
def test_casts_that_lose_nothing_are_made(declared: str, given_dtype: type, value: object, passes: bool) -> None:
    model = model_of(f"{declared}[N] x")
    data = [{"x": np.array([value], dtype=given_dtype)}]
    if not passes:
        with pytest.raises(CalibrationError, match="astype"):
            feeds_of(model, data)
        return
    (feed,) = feeds_of(model, data)
    expected = helper.tensor_dtype_to_np_dtype(model.graph.input[0].type.tensor_type.elem_type)
    assert feed["x"].dtype == expected
    np.testing.assert_array_equal(feed["x"], data[0]["x"].astype(expected))


def test_strings_pass() -> None:
    (feed,) = feeds_of(model_of("string[N] x"), {"x": np.array(["a"])})
    assert feed["x"].dtype == np.object_
    assert feed["x"].tolist() == ["a"]


def damaged(folder: Path, name: str) -> Path:
    path = folder / name
    match name:
        case "pickled.npy" | "pickled.npz":
            objects = np.array([{"a": 1}], dtype=object)
            np.save(path, objects) if name.endswith("npy") else np.savez(path, x=objects)
        case "truncated.npy" | "truncated.npz":
            array = np.ones((4, 3, 4), np.float32)
            np.save(path, array) if name.endswith("npy") else np.savez(path, x=array)
            path.write_bytes(path.read_bytes()[:200])
        case "empty.npy" | "empty.npz":
            path.write_bytes(b"")
        case "directory.npz":
            path.mkdir()
        case "text.csv":
            path.write_text("1,2")
    return path


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("pickled.npy", "pickled objects.*plain arrays"),
        ("pickled.npz", "pickled objects.*plain arrays"),
        ("truncated.npy", "truncated"),
        ("truncated.npz", "truncated"),
        ("empty.npy", "truncated"),
        ("empty.npz", "truncated"),
        ("directory.npz", "directory"),
        ("missing.npz", "no such file"),
        ("text.csv", r"\.npz or \.npy"),
    ],
)
def test_unreadable_files_are_named(tmp_path: Path, name: str, words: str) -> None:
    path = damaged(tmp_path, name)
    with pytest.raises(CalibrationError, match=words) as caught:
        feeds_of(model_of(IMAGE), path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_known_kind_of_data() -> None:
    with pytest.raises(UsageError, match="int"):
        make_feeds(model_of(IMAGE), 3)


def test_one_feed_is_held_at_a_time(watched: Callable[[int], Iterable[dict[str, np.ndarray]]]) -> None:
    count = 0
    for feed in make_feeds(model_of(IMAGE), watched(4)):
        count += len(feed)
        del feed
    assert count == 4


def test_a_file_is_read_batch_by_batch(tmp_path: Path) -> None:
    np.savez(tmp_path / "big.npz", x=np.zeros((64, 3, 4), np.float32))
    feed = next(iter(make_feeds(model_of(IMAGE), tmp_path / "big.npz")))
    base = feed["x"]
    while isinstance(base.base, np.ndarray):
        base = base.base
    assert base.nbytes == 48


def test_random_feed_is_seeded_and_takes_open_dims_as_one() -> None:
    model = model_of("float[N, 3, 64] x, int64[M] ids, bool[8] mask, float16 s, bfloat16[2] b")
    first, again, other = (feeds_of(model, None, seed=s) for s in (0, 0, 1))
    (feed,) = first
    assert make_feeds(model, None).is_random
    assert {n: (a.dtype.name, a.shape) for n, a in feed.items()} == {
        "x": ("float32", (1, 3, 64)),
        "ids": ("int64", (1,)),
        "mask": ("bool", (8,)),
        "s": ("float16", ()),
        "b": ("bfloat16", (2,)),
    }
    assert all(np.array_equal(feed[n], again[0][n]) for n in feed)
    assert not np.array_equal(feed["x"], other[0]["x"])
    assert feed["x"].min() < 0 < feed["x"].max()
    assert feed["ids"].tolist() == [1]


def test_random_feed_by_given_shapes() -> None:
    model = model_of("float[N, 3] x, float y")
    del model.graph.input[1].type.tensor_type.shape.dim[:]
    model.graph.input[1].type.tensor_type.ClearField("shape")
    with pytest.raises(UnsupportedError, match=r'"y" has no shape.*calibration_shapes'):
        make_feeds(model, None)
    (feed,) = feeds_of(model, None, shapes={"x": (5, 3), "y": (2, 2)})
    assert (feed["x"].shape, feed["y"].shape) == ((5, 3), (2, 2))


@pytest.mark.parametrize(
    ("shapes", "words"),
    [
        ({"x": (5,)}, "2 dims, not 1"),
        ({"x": (5, 4)}, "contradicts"),
        ({"xx": (5, 3)}, 'no input "xx".*did you mean "x"'),
    ],
)
def test_given_shapes_must_fit(shapes: dict[str, tuple[int, ...]], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        make_feeds(model_of("float[N, 3] x"), None, shapes=shapes)


def test_sequences_are_unsupported() -> None:
    with pytest.raises(UnsupportedError, match='"s" is a sequence'):
        make_feeds(model_of("seq(float[N]) s"), None)


def test_model_without_inputs_takes_one_empty_feed() -> None:
    feeds = make_feeds(model_of(""), None)
    assert list(feeds) == [{}]
    assert not feeds.is_random


NAME = st.text(st.characters(codec="ascii", exclude_characters=",", categories=["L", "N", "P"]), min_size=1)


@given(st.dictionaries(NAME, st.lists(st.integers(1, 999), min_size=1, max_size=5).map(tuple), min_size=1))
def test_shapes_survive_their_text(shapes: dict[str, tuple[int, ...]]) -> None:
    text = ",".join(f"{name}:{'x'.join(map(str, dims))}" for name, dims in shapes.items())
    assert parse_shapes(text) == shapes


@pytest.mark.parametrize("piece", ["", "x", "x:", ":1x2", "x:1x", "x:axb", "x:0x3", "x:-1", "x:1,", "x:1X2"])
def test_bad_shapes_are_quoted(piece: str) -> None:
    with pytest.raises(UsageError, match="name:1x3x224x224"):
        parse_shapes(piece)


def test_shape_given_twice() -> None:
    with pytest.raises(UsageError, match='"x" is given twice'):
        parse_shapes("x:1,x:2")
