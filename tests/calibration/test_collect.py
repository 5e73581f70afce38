from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from google.protobuf.message import EncodeError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto, helper, numpy_helper, parser

from onnxq.calibration import Range, collect_max, make_feeds
from onnxq.errors import CalibrationError, UnsupportedError

Feed = dict[str, np.ndarray]


def parse(body: str, *, ir: int = 8, opset: int = 17) -> ModelProto:
    return parser.parse_model(f'<ir_version: {ir}, opset_import: ["": {opset}]> {body}')


def f32(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def fetch(model: ModelProto, tensors: list[str], feeds: Iterable[Feed]) -> list[Feed]:
    """Every tensor in full, of each run."""
    copy = ModelProto()
    copy.CopyFrom(model)
    present = {o.name for o in copy.graph.output}
    copy.graph.output.extend(onnx.ValueInfoProto(name=t) for t in tensors if t not in present)
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(copy.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return [dict(zip(tensors, session.run(tensors, feed), strict=True)) for feed in feeds]


def oracle(model: ModelProto, tensors: list[str], feeds: Iterable[Feed]) -> dict[str, Range]:
    """Look at every tensor in full with numpy."""
    seen: dict[str, list[float]] = {t: [] for t in tensors}
    for values in fetch(model, tensors, feeds):
        for name, value in values.items():
            if value.size:
                seen[name] += [float(value.min()), float(value.max())]
    return {name: Range(min(v), max(v)) for name, v in seen.items() if v}


UNARY = ["Relu", "Neg", "Sigmoid", "Abs", "Tanh", "Identity"]
BINARY = ["Add", "Sub", "Min", "Max"]  # no Mul: repeated squares overflow


@st.composite
def graphs(draw: st.DrawFn) -> tuple[ModelProto, list[str], list[Feed]]:
    """Any graph of elementwise ops over inputs [N, 4], and feeds of different lengths, 0 among them."""
    names, nodes = ["x", "u", "w"], []
    for i, (op, a, b) in enumerate(
        draw(st.lists(st.tuples(st.sampled_from(UNARY + BINARY), st.integers(0, 99), st.integers(0, 99)), max_size=8))
    ):
        picked = [names[k % len(names)] for k in ((a,) if op in UNARY else (a, b))]
        nodes.append(helper.make_node(op, picked, [f"t{i}"]))
        names.append(f"t{i}")
    elem, dtype = draw(
        st.sampled_from(
            [(TensorProto.FLOAT, np.float32), (TensorProto.FLOAT16, np.float16), (TensorProto.DOUBLE, np.float64)]
        )
    )
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    weight = numpy_helper.from_array(random.standard_normal((1, 4)).astype(dtype), "w")
    inputs = [helper.make_tensor_value_info(n, elem, ["N", 4]) for n in ("x", "u")]
    outputs = [helper.make_tensor_value_info(names[-1], elem, None)]
    graph = helper.make_graph(nodes, "g", inputs, outputs, [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", draw(st.sampled_from([13, 17, 18])))])
    model.ir_version = 8
    lengths = draw(st.lists(st.integers(0, 3), min_size=1, max_size=4))
    feeds = [{n: random.standard_normal((k, 4)).astype(dtype) for n in ("x", "u")} for k in lengths]
    tensors = draw(st.lists(st.sampled_from(names), min_size=1, unique=True))
    return model, tensors, feeds


@given(graphs())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_ranges_are_those_of_the_tensors_themselves(case: tuple[ModelProto, list[str], list[Feed]]) -> None:
    model, tensors, feeds = case
    before = model.SerializeToString()
    is_half = model.graph.input[0].type.tensor_type.elem_type == TensorProto.FLOAT16
    found = collect_max(model, tensors, make_feeds(model, feeds))
    expected = oracle(model, tensors, feeds)
    assert list(found) == list(expected)
    for name, wanted in expected.items():
        # the runtime computes float16 in float, and hands the probes what it has before it rounds
        close = pytest.approx((wanted.low, wanted.high), rel=2**-10, abs=1e-7)
        assert found[name] == wanted or (is_half and (found[name].low, found[name].high) == close)
    assert found.never_finite == tuple(t for t in tensors if t not in expected)
    assert model.SerializeToString() == before


def test_range_is_that_of_all_samples_of_a_file(tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("data") / "ten.npz"
    np.savez(path, x=np.arange(-3, 7, dtype=np.float32).reshape(10, 1))
    model = parse("g (float[N, 1] x) => (float[N, 1] y) { y = Neg(x) }")
    counts: list[int] = []
    ranges = collect_max(model, ["x", "y"], make_feeds(model, path), progress=counts.append)
    assert dict(ranges) == {"x": Range(-3, 6), "y": Range(-6, 3)}
    assert counts == list(range(1, 11))


def test_samples_of_different_lengths() -> None:
    model = parse("g (float[b, s, 2] x) => (float[b, s, 1] y) <float[2, 1] w = {1, 1}> { y = MatMul(x, w) }")
    feeds = [{"x": np.full((1, s, 2), s, np.float32)} for s in (3, 5, 7)]
    assert collect_max(model, ["y"], feeds)["y"] == Range(6, 14)


def test_the_runtime_may_optimize() -> None:
    model = parse("""g (float[1, 2, 4, 4] x) => (float[1, 2, 4, 4] y) <float[2, 2, 1, 1] w = {1, -2, 3, 4}>
        { c = Conv(x, w)  r = Relu(c)  y = Identity(r) }""")
    feeds = [{"x": np.random.default_rng(0).standard_normal((1, 2, 4, 4)).astype(np.float32)}]
    plain, fast = (collect_max(model, ["c", "r", "y"], feeds, optimize=o) for o in (False, True))
    for name in plain:
        assert (fast[name].low, fast[name].high) == pytest.approx((plain[name].low, plain[name].high), rel=1e-5)


def test_input_that_is_also_an_output() -> None:
    model = parse("g (float[N] x) => (float[N] y, float[N] x) { y = Neg(x) }")
    ranges = collect_max(model, ["x", "y"], [{"x": f32(1, 5)}])
    assert dict(ranges) == {"x": Range(1, 5), "y": Range(-5, -1)}


def test_output_that_is_read_again() -> None:
    model = parse("g (float[N] x) => (float[N] y1, float[N] y2) { y1 = Neg(x)  y2 = Relu(y1) }")
    assert dict(collect_max(model, ["y1", "y2"], [{"x": f32(1, -5)}])) == {"y1": Range(-1, 5), "y2": Range(0, 5)}


def test_a_tail_that_the_runtime_refuses_does_no_harm() -> None:
    model = parse("""g (float[1, 4] x) => (float[1, 9] v, int64[1, 9] i)
        <int64[1] k = {9}> { h = Relu(x)  v, i = TopK(h, k) }""")
    assert collect_max(model, ["h"], [{"x": f32(-1, 2, 3, 4)[None]}])["h"] == Range(0, 4)
    with pytest.raises(CalibrationError, match=r"TopK|axis"):
        collect_max(model, ["v"], [{"x": f32(-1, 2, 3, 4)[None]}])


def test_inputs_that_are_not_needed_are_left_out() -> None:
    model = parse("g (float[N] x, string[N] s) => (float[N] y, string[N] t) { y = Neg(x)  t = Identity(s) }")
    assert collect_max(model, ["y"], [{"x": f32(2)}])["y"] == Range(-2, -2)


def test_tensors_captured_by_a_body() -> None:
    model = parse("""g (bool c, float[N] x) => (float[N] y)
    <float[1] w = {3}>
    {
      h = Mul(x, w)
      r = If (c) <
        then_branch = t () => (float[N] a) { a = Neg(h) },
        else_branch = e () => (float[N] b) { b = Add(h, w) }
      >
      y = Relu(r)
    }""")
    ranges = collect_max(model, ["r", "h"], [{"c": np.array(v), "x": f32(1, 2)} for v in (True, False)])
    assert dict(ranges) == {"r": Range(-6, 9), "h": Range(3, 6)}


def test_initializers_among_the_inputs() -> None:
    model = parse(
        "g (float[N] x, float[1] w) => (float[N] y) <float[1] w = {3}> { y = Mul(x, w) }",
        ir=3,
        opset=8,
    )
    assert collect_max(model, ["y"], make_feeds(model, {"x": f32(1, 2)}))["y"] == Range(3, 6)


def test_sixteen_bit_floats_are_reduced_in_full_precision() -> None:
    model = parse("""g (float16[N] x, bfloat16[N] z) => (float16[N] y, bfloat16[N] v)
        { y = Neg(x)  v = Identity(z) }""")
    feed = {"x": np.array([-60000, 60000, 60000], np.float16), "z": f32(1e38, -3, 1e38)}
    z = helper.tensor_dtype_to_np_dtype(TensorProto.BFLOAT16).type(1e38)
    ranges = collect_max(model, ["x", "y", "z"], make_feeds(model, [{**feed, "z": feed["z"].astype(z.dtype)}]))
    assert dict(ranges) == {"x": Range(-60000, 60000), "y": Range(-60000, 60000), "z": Range(-3, float(z))}


def test_names_that_the_model_has_already() -> None:
    model = parse("""g (float[N] x) => (float[N] x_low, float[N] x_high, float[N] x_sum)
        { x_low = Neg(x)  x_high = Abs(x)  x_sum = Relu(x) }""")
    ranges = collect_max(model, ["x", "x_low", "x_high", "x_sum"], [{"x": f32(-1, 2)}])
    assert dict(ranges) == {
        "x": Range(-1, 2),
        "x_low": Range(-2, 1),
        "x_high": Range(1, 2),
        "x_sum": Range(0, 2),
    }


def test_unnamed_and_equally_named_nodes() -> None:
    model = parse("g (float[N] x) => (float[N] z) { y = Neg(x)  z = Neg(y) }")
    for node in model.graph.node:
        node.name = "same"
    assert collect_max(model, ["y", "z"], [{"x": f32(1)}]) == collect_max(
        parse("g (float[N] x) => (float[N] z) { y = Neg(x)  z = Neg(y) }"), ["y", "z"], [{"x": f32(1)}]
    )


def test_dims_declared_zero_are_open() -> None:
    model = parse("g (float[0, 2] x) => (float[N, 2] y) { y = Neg(x) }")
    assert collect_max(model, ["y"], make_feeds(model, np.ones((3, 2), np.float32)))["y"] == Range(-1, -1)


def test_empty_in_some_samples_and_empty_in_all() -> None:
    model = parse("""g (float[N] x) => (float[M] head, float[K] none)
        <int64[1] zero = {0}, int64[1] two = {2}, int64[1] many = {99}>
        { head = Slice(x, two, many, zero)  none = Slice(x, many, many, zero) }""")
    ranges = collect_max(model, ["none", "head"], [{"x": f32(1)}, {"x": f32(1, 2, 3)}, {"x": f32()}])
    assert dict(ranges) == {"head": Range(3, 3)}
    assert ranges.never_finite == ("none",)


def test_all_zero_tensors_have_a_range() -> None:
    model = parse("g (float[N] x) => (float[N] y) { y = Mul(x, x) }")
    assert collect_max(model, ["y"], [{"x": f32(0, 0)}])["y"] == Range(0, 0)


@pytest.mark.parametrize(("bad", "position"), [(np.nan, 0), (np.nan, 3), (np.inf, 1), (-np.inf, 2)])
@pytest.mark.parametrize("form", ["array", "feeds"])
def test_sample_with_nan_among_good_ones_is_named(bad: float, position: int, form: str) -> None:
    model = parse("g (float[N, 4] x) => (float[N, 4] z) { y = Relu(x)  z = Neg(y) }")
    samples = np.ones((5, 4), np.float32)
    samples[3, position] = bad
    data: object = samples if form == "array" else ({"x": s[None]} for s in samples)
    if bad == -np.inf:  # Relu makes it 0 again
        assert collect_max(model, ["y"], make_feeds(model, data))["y"] == Range(0, 1)
        return
    with pytest.raises(CalibrationError) as caught:
        collect_max(model, ["z", "y"], make_feeds(model, data))
    assert [w for w in ("sample 3", '"y"', 'input "x"', "drop") if w not in str(caught.value)] == []


def test_nan_that_the_model_makes_is_traced_to_its_node() -> None:
    model = parse("g (float[N] x) => (float[N] z) { y = Log(x)  z = Neg(y) }")
    model.graph.node[0].name = "log_of_x"
    with pytest.raises(CalibrationError, match=r'tensor "y" \(output of Log "log_of_x"\).*sample 1') as caught:
        collect_max(model, ["z", "y"], [{"x": f32(1, 2)}, {"x": f32(3, -1)}])
    assert "exclude" in str(caught.value)


def test_nan_in_an_input_that_does_not_matter_is_not_blamed() -> None:
    model = parse("g (float[N] idle, float[N] x) => (float[N] y, float[N] z) { y = Log(x)  z = Neg(idle) }")
    idle = f32(np.nan)
    assert collect_max(model, ["y"], [{"x": f32(1), "idle": idle}])["y"] == Range(0, 0)
    with pytest.raises(CalibrationError, match=r'^tensor "y" \(output of Log'):
        collect_max(model, ["y"], [{"x": f32(-1), "idle": idle}])


@pytest.mark.parametrize("value", [3e38, -3e38])
def test_a_sum_that_overflows_is_no_infinity(value: float) -> None:
    model = parse("g (float[N] x) => (float[N] y) { y = Identity(x) }")
    ranges = collect_max(model, ["y"], [{"x": f32(value, value, 1)}])
    assert (ranges["y"].low, ranges["y"].high) == (min(np.float32(value), 1), max(np.float32(value), 1))


@pytest.mark.parametrize("name", ["i", "nowhere"])
def test_what_has_no_range_is_the_callers_mistake(name: str) -> None:
    model = parse("g (float[N] x) => (int64[N] i) { i = Cast<to = 7>(x) }")
    with pytest.raises(ValueError, match=f'"{name}"'):
        collect_max(model, [name], [{"x": f32(1)}])


def test_no_samples_and_no_tensors() -> None:
    model = parse("g (float[N] x) => (float[N] y) { y = Neg(x) }")
    for tensors in (["y"], []):
        with pytest.raises(CalibrationError, match="no samples"):
            collect_max(model, tensors, [])
    assert dict(collect_max(model, [], [{"x": f32(1)}])) == {}


def test_a_model_that_does_not_run_says_so_in_one_line() -> None:
    model = parse("g (float[A, B] x, float[C, D] z) => (float[A, D] y) { y = MatMul(x, z) }")
    model.graph.node[0].name = "product"
    feeds = [{"x": np.ones((2, 3), np.float32), "z": np.ones((k, 3), np.float32)} for k in (3, 2)]
    with pytest.raises(CalibrationError) as caught:
        collect_max(model, ["y"], feeds)
    assert [w for w in ("sample 1", "product", "MatMul", "model itself") if w not in str(caught.value)] == []
    assert "\n" not in str(caught.value)


def test_a_model_that_does_not_load_says_so_in_one_line() -> None:
    model = parse("g (float[N] x) => (float[N] y) { y = Unheard(x) }")
    with pytest.raises(CalibrationError, match=r"can't load.*Unheard"):
        collect_max(model, ["y"], [{"x": f32(1)}])


def test_feed_without_a_needed_input() -> None:
    model = parse("g (float[N] x) => (float[N] y) { y = Neg(x) }")
    with pytest.raises(CalibrationError, match='sample 0 has no value for input "x"'):
        collect_max(model, ["y"], [{"z": f32(1)}])


def test_model_without_inputs() -> None:
    model = parse("g () => (float[2] y) <float[2] w = {1, -2}> { y = Neg(w) }")
    assert dict(collect_max(model, ["y", "w"], make_feeds(model, None))) == {"y": Range(-1, 2), "w": Range(-2, 1)}


def test_model_of_foreign_operators_only() -> None:
    text = "g (float[N] x) => (float[N] y) { y = com.microsoft.Gelu(x) }"
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["com.microsoft": 1]> {text}')
    assert collect_max(model, ["y"], [{"x": f32(0)}])["y"] == Range(0, 0)


def test_one_feed_is_held_at_a_time(watched: Callable[[int], Iterable[Feed]]) -> None:
    model = parse("g (float[N, 3, 4] x) => (float[N, 3, 4] y) { y = Neg(x) }")
    assert collect_max(model, ["y"], make_feeds(model, watched(5)))["y"] == Range(-1, -1)


def test_too_large_for_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_large(_model: ModelProto) -> bytes:
        raise EncodeError("Failed to serialize proto")

    monkeypatch.setattr(ModelProto, "SerializeToString", too_large)
    model = parse("g (float[N] x) => (float[N] y) { y = Neg(x) }")
    with pytest.raises(UnsupportedError, match="2 GiB"):
        collect_max(model, ["y"], [{"x": f32(1)}])
