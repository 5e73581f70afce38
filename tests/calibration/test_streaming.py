"""What is collected of many batches: as if all had been there at once, and under a memory bound the same."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto, helper, numpy_helper, parser
from test_collect import Feed, fetch, graphs

from onnxq.calibration import (
    Calibrator,
    MemoryBound,
    Setup,
    Statistics,
    TensorStatistics,
    collect,
    make_feeds,
    merge_statistics,
)
from onnxq.calibration.histogram import count
from onnxq.calibration.segments import cut
from onnxq.errors import CalibrationError, UnsupportedError
from onnxq.shapes import infer_types

ENTROPY = Calibrator("entropy")
EVERY = [Calibrator(method) for method in ("max", "entropy")]


def parse(body: str, *, opset: int = 17) -> ModelProto:
    return parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]> {body}')


def bound(limit: int) -> Setup:
    return Setup(memory=MemoryBound(limit, lambda model: infer_types(model)[0]))


def values_of(model: ModelProto, tensors: list[str], feeds: list[Feed]) -> dict[str, list[np.ndarray]]:
    """All elements of each tensor, fetched whole."""
    runs = fetch(model, tensors, feeds)
    return {name: [values[name].astype(np.float64).ravel() for values in runs] for name in tensors}


@given(graphs())
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
def test_histograms_are_those_of_all_elements(case: tuple[ModelProto, list[str], list[Feed]]) -> None:
    model, tensors, feeds = case
    if model.graph.input[0].type.tensor_type.elem_type == TensorProto.FLOAT16:
        return  # the runtime computes in float32, and hands out what it has before it rounds
    found = collect(model, tensors, feeds, ENTROPY)
    assert list(found) == tensors
    for name, parts in values_of(model, tensors, feeds).items():
        everything, seen = np.concatenate(parts), found[name]
        if not everything.size:
            assert seen is None
            continue
        assert seen is not None
        assert (seen.low, seen.high) == (everything.min(), everything.max())
        assert seen.histogram == count(everything, float(np.abs(everything).max()))


@given(graphs(), st.sampled_from(EVERY), st.randoms())
@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
def test_parts_merge_to_what_one_run_gives(case, calibrator: Calibrator, random) -> None:
    model, tensors, feeds = case
    whole = collect(model, tensors, feeds, calibrator)
    parts = [collect(model, tensors, [feed], calibrator) for feed in feeds]
    random.shuffle(parts)
    merged = merge_statistics(parts)
    assert merged == whole
    assert merged.ranges() == whole.ranges()


@given(graphs(), st.sampled_from(EVERY), st.integers(1, 4000))
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
def test_a_memory_bound_changes_nothing(case, calibrator: Calibrator, limit: int) -> None:
    model, tensors, feeds = case
    if model.graph.input[0].type.tensor_type.elem_type == TensorProto.FLOAT16:
        return  # see above; cutting rounds
    whole = collect(model, tensors, feeds, calibrator)
    try:
        assert collect(model, tensors, feeds, calibrator, setup=bound(limit)) == whole
    except UnsupportedError as error:
        assert "alone needs" in str(error)  # noqa: PT017 - an outcome, like the other
        assert limit < 1200


def deep(length: int = 6) -> ModelProto:
    """Convolutions in a row, each with the input added; an activation of one sample has 16 KiB."""
    rng = np.random.default_rng(0)
    nodes, weights, last = [], [], "x"
    for i in range(length):
        kernel = (rng.standard_normal((16, 16, 3, 3)) * 0.1).astype(np.float32)
        weights.append(numpy_helper.from_array(kernel, f"w{i}"))
        nodes.append(helper.make_node("Conv", [last, f"w{i}"], [f"c{i}"], f"c{i}", pads=[1] * 4))
        nodes.append(helper.make_node("Add", [f"c{i}", "x"], [f"a{i}"], f"a{i}"))
        nodes.append(helper.make_node("Relu", [f"a{i}"], [f"r{i}"], f"r{i}"))
        last = f"r{i}"
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 16, 16, 16]) for name in ("x", last)]
    graph = helper.make_graph(nodes, "deep", values[:1], values[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


KIB = 1024


def image(number: int = 1, seed: int = 0) -> Feed:
    return {"x": np.random.default_rng(seed).standard_normal((number, 16, 16, 16)).astype(np.float32)}


@pytest.mark.parametrize("limit", [80, 100, 150, 400])
@pytest.mark.parametrize("calibrator", EVERY, ids=lambda c: c.method)
def test_networks_run_in_segments_too(calibrator: Calibrator, limit: int) -> None:
    model, tensors = deep(), ["x", "r0", "a2", "r4", "c5"]
    feeds = [image(1, seed) for seed in range(3)]
    whole = collect(model, tensors, feeds, calibrator)
    assert collect(model, tensors, feeds, calibrator, setup=bound(limit * KIB)) == whole


@pytest.mark.parametrize("limit", [80, 100, 150, 300, 10_000])
def test_segments_cover_the_model_and_keep_to_the_bound(limit: int) -> None:
    model = deep()
    pieces, types = cut(model, ["r0", "r4"], {"x": (1, 16, 16, 16)}, bound(limit * KIB).memory)
    assert [piece.start for piece in pieces] == [0, *(piece.stop for piece in pieces[:-1])]
    assert pieces[-1].stop == len(model.graph.node)
    assert (len(pieces) == 1) == (limit == 10_000)
    held = set[str]()
    for piece in pieces:
        nodes = model.graph.node[piece.start : piece.stop]
        made = [o for node in nodes for o in node.output]
        assert {name for node in nodes for name in node.input} <= {*held, *made, "x", *(f"w{i}" for i in range(6))}
        copies = [*(o for o in made if o in ("r0", "r4")), *piece.carried]
        assert 16 * (1 + len(held) + len(made) + len(copies)) <= limit + 16  # a held one may be carried on uncopied
        held = (held | set(piece.carried)) - set(piece.dropped)
    assert not held
    assert types["c3"].shape == (1, 16, 16, 16)


def test_batches_of_other_shapes_are_cut_anew() -> None:
    model, tensors = deep(), ["x", "r1", "r5"]
    feeds = [image(1), image(3), image(1, 7), image(2)]
    whole = collect(model, tensors, feeds, ENTROPY)
    assert collect(model, tensors, feeds, ENTROPY, setup=bound(300 * KIB)) == whole
    with pytest.raises(UnsupportedError, match=r'Conv "c0" alone needs 144 KiB, and 90 KiB are allowed'):
        collect(model, tensors, feeds, ENTROPY, setup=bound(90 * KIB))


def test_a_bound_that_is_too_small_says_what_is_needed() -> None:
    model, tensors = deep(), ["r0", "r5"]
    limit = 1
    for _ in range(10):  # each error tells of the first node that is at fault
        try:
            collect(model, tensors, [image()], ENTROPY, setup=bound(limit))
            break
        except UnsupportedError as error:
            needed = float(str(error).split("alone needs ")[1].split(" KiB")[0])
            assert needed * KIB > limit
            limit = int(needed * KIB)
    assert 48 * KIB <= limit <= 96 * KIB


BODIES = """g (float[2] x, int64 n, bool c) => (float[2] z, float[2] y) {
    u = Neg(x)
    go = Constant <value = bool {1}> ()
    [loop] y = Loop (n, go, u) <
        body = b (int64 i, bool d, float[2] s) => (bool e, float[2] next) {
            e = Identity(d)  t = Mul(s, u)
            [inner] next = If (c) <
                then_branch = big () => (float[2] r) { p = Add(t, s)  r = Neg(p) },
                else_branch = small () => (float[2] r) { p = Sub(t, u)  r = Identity(p) }
            >
        }
    >
    z = Relu(y)
}"""
KEYS = ["x", "loop.body/t", "loop.body/inner.then_branch/p", "loop.body/inner.else_branch/p", "z"]


def body_feeds() -> list[Feed]:
    random = np.random.default_rng(0)
    return [
        {"x": random.standard_normal(2).astype(np.float32), "n": np.array(n), "c": np.array(c)}
        for n, c in ((3, True), (0, True), (5, False))
    ]


def test_histograms_of_tensors_in_bodies() -> None:
    found = collect(parse(BODIES), KEYS, body_feeds(), ENTROPY)
    bounds = collect(parse(BODIES), KEYS, body_feeds(), Calibrator("max"))
    sizes = {key: int(seen.histogram.counts.sum()) for key, seen in found.items() if seen and seen.histogram}
    assert {key: sizes[key] for key in KEYS[:4]} == {KEYS[0]: 6, KEYS[1]: 16, KEYS[2]: 6, KEYS[3]: 10}
    assert found.ranges(Calibrator("max")) == bounds.ranges()


def test_bodies_run_in_segments_too() -> None:
    for calibrator in EVERY:
        whole = collect(parse(BODIES), KEYS, body_feeds(), calibrator)
        assert collect(parse(BODIES), KEYS, body_feeds(), calibrator, setup=bound(64)) == whole


def test_values_that_no_array_holds_are_not_cut_at() -> None:
    model = parse("""g (float[4] x) => (float[4] y) {
        a = Neg(x)  b = Abs(x)  pair = SequenceConstruct(a, b)  zero = Constant <value = int64 {0}> ()
        c = SequenceAt(pair, zero)  y = Relu(c) }""")
    feeds = [{"x": np.arange(-2, 2, dtype=np.float32)}]
    whole = collect(model, ["a", "y"], feeds, ENTROPY)
    assert collect(model, ["a", "y"], feeds, ENTROPY, setup=bound(140)) == whole
    with pytest.raises(UnsupportedError, match=r"what lies between SequenceConstruct .* alone needs"):
        collect(model, ["a", "y"], feeds, ENTROPY, setup=bound(95))


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "double"])
def test_other_float_types(kind: str) -> None:
    model = parse(f"""g (float[N] x) => (float[N] y) {{
        h = Cast <to = {getattr(TensorProto, kind.upper())}> (x)  y = Cast <to = 1> (h) }}""")
    feeds = [{"x": np.array([0.5, -2, 0], np.float32)}]
    for setup in (Setup(), bound(200), Setup(types=infer_types(model)[0])):
        seen = collect(model, ["h"], feeds, ENTROPY, setup=setup)["h"]
        assert seen is not None
        assert (seen.low, seen.high) == (-2, 0.5)
        assert seen.histogram == count(np.array([0.5, 2]), 2)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("setup", [Setup(), bound(200)], ids=["whole", "segments"])
def test_non_finite_values_are_named_with_the_sample(bad: float, setup: Setup) -> None:
    model = parse("g (float[N] x) => (float[N] z) { y = Neg(x)  z = Abs(y) }")
    feeds = [{"x": np.ones(3, np.float32)}, {"x": np.array([1, bad, 2], np.float32)}]
    with pytest.raises(CalibrationError, match=r'sample 6 holds NaN or infinity in input "x".*"y"'):
        collect(model, ["y"], feeds, ENTROPY, setup=setup, first=5)


def test_no_tensor_is_fetched_that_nobody_asked_for() -> None:
    model = parse("g (float[N] x) => (float[N] z) { y = Neg(x)  w = Abs(y)  z = Relu(w)  unknown = other.Op(z) }")
    found = collect(model, ["w"], [{"x": np.ones(3, np.float32)}], ENTROPY)
    assert list(found) == ["w"]


def test_memory_is_that_of_one_batch(watched) -> None:
    model = parse("g (float[N, 3, 4] x) => (float[N, 3, 4] y) { y = Neg(x) }")
    assert collect(model, ["y"], make_feeds(model, watched(5)), ENTROPY)["y"].low == -1


def test_counting_makes_no_copy_of_the_whole() -> None:
    values = np.random.default_rng(0).standard_normal(4_000_000).astype(np.float32)
    tracemalloc.start()
    try:
        count(values, float(np.abs(values).max()))
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        count(values, 6.0)
        peak = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    assert peak < values.nbytes / 4


def test_counts_of_many_batches_are_exact() -> None:
    model = parse("g (float[N] x) => (float[N] y) { y = Abs(x) }")
    part = collect(model, ["y"], [{"x": np.ones(1000, np.float32)}], ENTROPY)
    whole = part
    for _ in range(60):  # 1000 * 2**60 doesn't fit; 1000 * 2**50 does
        if whole["y"].histogram.counts[-1] > 2**59:
            break
        whole = whole.merged(whole)
    assert whole["y"].histogram.counts[-1] == 1000 * whole.samples
    assert whole.samples > 2**40


def test_groups_are_looked_at_together() -> None:
    random = np.random.default_rng(0)
    small, great = random.standard_normal(100) * 50, random.standard_normal(1_000_000)
    parts = {"a": small, "b": great}
    seen = {n: TensorStatistics(v.min(), v.max(), count(v, np.abs(v).max())) for n, v in parts.items()}
    statistics = Statistics({**seen, "c": seen["b"], "none": None}, Calibrator("mse"), 1)
    apart, together = statistics.ranges(), statistics.ranges(groups=[("a", "b")])
    both = np.concatenate((small, great))
    expected = TensorStatistics(both.min(), both.max(), count(both, np.abs(both).max())).range(Calibrator("mse"))
    assert together["a"] == together["b"] == expected
    assert together["c"] == apart["c"] == apart["b"]
    assert apart["b"].high < expected.high
    assert together.never_finite == ("none",)
    assert list(together) == ["a", "b", "c"]
    most = statistics.ranges(Calibrator("max"), groups=[("a", "b")])
    assert (most["a"].low, most["a"].high) == (both.min(), both.max())


def test_statistics_that_do_not_belong_together() -> None:
    one = TensorStatistics(-1, 1, count(np.ones(1), 1))
    parts = Statistics({"a": one}, ENTROPY, 1)
    with pytest.raises(CalibrationError, match='only one of them has tensor "b"'):
        parts.merged(Statistics({"a": one, "b": one}, ENTROPY, 1))
    with pytest.raises(CalibrationError, match=r'"entropy".*"percentile 99.0"'):
        parts.merged(parts.using(Calibrator("percentile", 99.0)))
    with pytest.raises(CalibrationError, match=r'collected for method "max".*"mse"'):
        Statistics({"a": TensorStatistics(-1, 1)}, Calibrator(), 1).ranges(Calibrator("mse"))
