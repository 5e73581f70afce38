from collections.abc import Iterator

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto, helper
from onnx.parser import parse_model
from shape_models import CUSTOM, HEAD, HEALTHY, RUNNABLE, TYPED_ONLY

from onnxq.protos import walk_graphs
from onnxq.shapes import infer_types, prepare
from onnxq.tensor_types import GraphTypes, ValueType, value_type

MODELS = {**RUNNABLE, **TYPED_ONLY, **HEALTHY}


def as_bytes(model: ModelProto) -> bytes:
    return model.SerializeToString(deterministic=True)


def all_types(types: GraphTypes) -> Iterator[tuple[str, ValueType]]:
    yield from types.tensors.items()
    for body in types.bodies.values():
        yield from all_types(body)


def declared(model: ModelProto, name: str) -> str:
    return next(str(value_type(v.type)) for v in (*model.graph.output, *model.graph.value_info) if v.name == name)


def random_feed(model: ModelProto, symbol: int = 2) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    constants = {tensor.name for tensor in model.graph.initializer}
    feed = {}
    for value in model.graph.input:
        if value.name not in constants:
            kind = value_type(value.type)
            dims = [d if isinstance(d, int) and d > 0 else symbol for d in kind.shape]
            feed[value.name] = np.asarray(rng.random(dims) + 0.5, helper.tensor_dtype_to_np_dtype(kind.elem_type))
    return feed


@pytest.mark.parametrize("name", MODELS)
def test_leaves_the_given_model_alone_and_is_idempotent(name):
    model = parse_model(MODELS[name])
    before = as_bytes(model)
    first = prepare(model)
    assert as_bytes(model) == before
    second = prepare(first.model)
    assert second.changes == ()
    assert as_bytes(second.model) == as_bytes(first.model)
    assert second.types == first.types


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_model_comes_out_equal(name):
    model = parse_model(HEALTHY[name])
    prepared = prepare(model)
    assert as_bytes(prepared.model) == as_bytes(model)
    assert prepared.changes == ()
    assert prepared.model is not model


@pytest.mark.parametrize("name", MODELS)
def test_every_value_has_a_type_and_no_made_up_symbol(name):
    model = parse_model(MODELS[name])
    prepared = prepare(model)
    given = {d for g in walk_graphs(model.graph) for v in (*g.input, *g.output, *g.value_info) for d in dims_of(v)}
    for value, kind in all_types(prepared.types):
        assert kind.kind != "tensor" or kind.elem_type, value
        for dim in kind.shape or ():
            assert dim in given if isinstance(dim, str) else dim is None or dim >= 0, (value, kind)
    graphs = list(walk_graphs(prepared.model.graph))
    values = {name for g in graphs for n in g.node for name in n.output if name}
    values |= {v.name for g in graphs for v in g.input} | {t.name for g in graphs for t in g.initializer}
    assert {value for value, _ in all_types(prepared.types)} == values


def dims_of(value: onnx.ValueInfoProto) -> tuple[int | str | None, ...]:
    return value_type(value.type).shape or ()


@pytest.mark.parametrize("name", RUNNABLE)
def test_types_agree_with_the_runtime(name):
    model = parse_model(RUNNABLE[name])
    prepared = prepare(model)
    onnx.checker.check_model(prepared.model, full_check=name != "if_different_ranks")
    probe = ModelProto()
    probe.CopyFrom(prepared.model)
    made = [o for node in probe.graph.node for o in node.output if o]
    types = prepared.types.tensors
    for tensor in made:
        if tensor not in {v.name for v in probe.graph.output} and types[tensor].kind != "optional":
            probe.graph.output.add(name=tensor)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(probe.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    for tensor, value in zip(names, session.run(None, random_feed(model)), strict=True):
        kind = types[tensor]
        if kind.kind == "sequence":
            assert isinstance(value, list)
            continue
        if value.dtype != object:
            assert helper.np_dtype_to_tensor_dtype(value.dtype) == kind.elem_type, tensor
        assert kind.shape is None or len(kind.shape) == value.ndim, (tensor, kind, value.shape)
        for dim, size in zip(kind.shape or (), value.shape, strict=False):
            assert not isinstance(dim, int) or dim == size, (tensor, kind, value.shape)
        if tensor in {v.name for v in model.graph.output} and name != "if_different_ranks":
            assert len(dims_of(next(v for v in prepared.model.graph.output if v.name == tensor))) == value.ndim


@pytest.mark.parametrize(
    ("name", "output", "expected"),
    [
        ("stale_rank0", "y", "float[3, 5]"),
        ("stale_rank0_beside_symbolic", "y", "float[batch, 5]"),
        ("stale_rank0_beside_symbolic", "z", "float[batch, 5]"),
        ("symbol_beside_stale", "y", "float[rows, 5]"),
        ("declared_0_1", "y", "float[0, 1]"),
        ("declared_minus_1", "y", "float[3, 2]"),
        ("declared_open", "y", "float[?, ?]"),
        ("k_computed", "v", "float[2, ?]"),
        ("nonzero", "y", "int64[2, ?]"),
        ("nms", "y", "int64[?, 3]"),
        ("reshape_computed", "y", "float[3, 4]"),
        ("fp16_cast", "y", "float[1, 2, 8, 8]"),
        ("if_captures", "y", "float[n, 3]"),
        ("nested_if_constants", "y", "float[3, 2]"),
        ("identity_of_scales", "y", "float[1, 1, 8, 8]"),
        ("identity_of_scales", "z", "float[1, 1, 8, 8]"),
        ("if_passes_outer", "y", "float[2, 3]"),
        ("loop", "y", "float[2, 3]"),
        ("loop_counter", "y", "float[2, 3]"),
        ("loop_counter_of_one", "y", "float[3]"),
        ("scan", "s", "float[4, 3]"),
        ("qdq_fp16", "y", "float16[2, 3]"),
        ("k_above_axis", "y", "float[3, 5]"),
        ("k_above_axis", "z", "float[n, 3]"),
        ("custom_declared", "y", "float[n, 3]"),
        ("stale_value_info", "u", "float[1, 2, 8, 8]"),
        ("stale_split", "u", "float[2, 64]"),
    ],
)
def test_declarations_after_preparation(name, output, expected):
    assert declared(prepare(parse_model(MODELS[name])).model, output) == expected


@pytest.mark.parametrize(
    ("output", "inferred", "expected"),
    [
        ("float[b,6]", "float[?,5]", "float[b, 5]"),
        ("float[7,6]", "float[n,5]", "float[7, 5]"),
        ("float[-1,6]", "float[n,5]", "float[n, 5]"),
        ("float[0,6]", "float[n,5]", "float[n, 5]"),
        ("float[0,5]", "float[3,5]", "float[3, 5]"),
        ("float[b,c]", "float[3,5]", "float[b, c]"),
        ("float[b,5]", "float[n,?]", "float[b, 5]"),
        ("float[-1,5]", "float[n,5]", "float[-1, 5]"),
        ("float[1,2,3]", "float[n,?]", "float[n, ?]"),
        ("int32[1]", "float[n,?]", "float[n, ?]"),
    ],
)
def test_stale_dims_are_adopted_position_by_position(output, inferred, expected):
    model = parse_model(f"{HEAD} g ({inferred} x) => ({output} y) {{ y = Relu(x) }}")
    assert declared(prepare(model).model, "y") == expected


@pytest.mark.parametrize(
    ("inner", "inferred", "expected"),
    [
        ("float[7,6]", "float[n,5]", "float[n, 5]"),
        ("float[1,6]", "float[?,5]", "float[?, 5]"),
        ("float[1,5]", "float[?,5]", "float[1, 5]"),
        ("int32[1,6]", "float[?,5]", "float[?, 5]"),
    ],
)
def test_a_value_info_that_is_wrong_in_one_dim_isnt_believed_in_another(inner, inferred, expected):
    text = f"{HEAD} g ({inferred} x) => (float[?,5] y) <{inner} u> {{ u = Relu(x) y = Neg(u) }}"
    prepared = prepare(parse_model(text))
    assert declared(prepared.model, "u") == expected
    assert str(prepared.types.tensors["u"]) == expected


DIMS = st.sampled_from(["?", "a", "b", "-1", "0", "1", "2", "3"])
SHAPES = st.lists(DIMS, min_size=1, max_size=3)


@settings(max_examples=150, deadline=None)
@given(given_output=SHAPES, given_input=SHAPES)
def test_whatever_is_declared_the_output_ends_with_the_true_rank(given_output, given_input):
    text = f"{HEAD} g (float[{','.join(given_input)}] x) => (float[{','.join(given_output)}] y) {{ [r] y = Relu(x) }}"
    prepared = prepare(parse_model(text))
    before = list(dims_of(parse_model(text).graph.output[0]))
    after = dims_of(prepared.model.graph.output[0])
    true = [d if isinstance(d, str) or (d or 0) > 0 else None for d in dims_of(prepared.model.graph.input[0])]
    assert len(after) == len(true)
    numbers = [isinstance(a, int) and isinstance(b, int) for a, b in zip(before, true, strict=False)]
    stale = len(before) != len(true) or any(n and a != b for n, a, b in zip(numbers, before, true, strict=True))
    assert bool(prepared.changes) == stale
    if not stale:
        assert list(after) == before
    for index, (ours, implied) in enumerate(zip(after, true, strict=True)):
        assert not (isinstance(ours, int) and isinstance(implied, int)) or ours == implied
        if len(before) == len(true) and isinstance(before[index], str) and not isinstance(implied, int):
            assert ours == before[index]
        if isinstance(implied, int):
            assert prepared.types.tensors["y"].shape[index] == implied
    assert prepare(prepared.model).changes == ()


def test_changes_name_the_place_and_both_types():
    model = parse_model(MODELS["if_captures"])
    changes = [c for c in prepare(model).changes if c.rule != "S8"]
    assert [(c.rule, c.where, c.what) for c in changes] == [
        ("S2", 'output "y"', "declared float[], is float[n, 3]"),
        ("S7", 'output "a" in then_branch of If "If_0"', "declared float[], is float[n, 3]"),
        ("S7", 'output "b" in else_branch of If "If_0"', "declared float[], is float[n, 3]"),
    ]


def test_types_of_bodies_are_found_by_node_position():
    types = prepare(parse_model(MODELS["if_captures"])).types
    assert types.bodies[1, "then_branch"].tensors["a"] == ValueType(TensorProto.FLOAT, ("n", 3))
    assert "r" not in types.bodies[1, "then_branch"].tensors


def test_if_branches_of_different_rank_leave_type_without_shape():
    prepared = prepare(parse_model(MODELS["if_different_ranks"]))
    assert prepared.types.tensors["y"] == ValueType(TensorProto.FLOAT)
    assert any('"y" keeps its declared shape' in w for w in prepared.warnings)


def test_one_bad_node_costs_only_what_is_downstream_and_is_named():
    prepared = prepare(parse_model(MODELS["k_above_axis"]))
    assert prepared.types.tensors["v"] == ValueType(TensorProto.FLOAT, ("n", None))
    assert prepared.types.tensors["c"].elem_type == TensorProto.FLOAT
    assert prepared.types.tensors["a"].shape == ("n", 3)
    assert [w for w in prepared.warnings if 'gave up at TopK "TopK_0"' in w and "less than the requested k" in w]


def test_a_growing_loop_value_gets_no_wrong_dim():
    prepared = prepare(parse_model(MODELS["loop_growing"]))
    body = prepared.types.bodies[0, "body"].tensors
    assert prepared.types.tensors["y"].shape == body["state"].shape == body["next"].shape == (None, 3)


def test_a_body_does_not_declare_numbers_for_dims_that_change() -> None:
    prepared = prepare(parse_model(MODELS["loop_growing"]))
    changes = [(c.rule, c.where, c.what) for c in prepared.changes if c.rule == "S7"]
    assert changes == [
        ("S7", 'input "state" in body of Loop "Loop_0"', "declared float[2, 3], is float[?, 3]"),
        ("S7", 'output "next" in body of Loop "Loop_0"', "declared float[2, 3], is float[?, 3]"),
    ]


def test_a_body_yields_a_copy_of_an_outer_tensor() -> None:
    prepared = prepare(parse_model(MODELS["if_passes_outer"]))
    changes = [(c.where, c.what) for c in prepared.changes if "copy" in c.what]
    assert changes == [
        ('output "r" in then_branch of If (unnamed, output "y")', 'an outer tensor, now its copy "r_inside"'),
        (
            'output "x" in then_branch of If (unnamed, output "b") in else_branch of If (unnamed, output "y")',
            'an outer tensor, now its copy "x_inside"',
        ),
    ]


def test_nested_loops_settle():
    prepared = prepare(parse_model(MODELS["loop_nested"]))
    assert {k.shape for _, k in all_types(prepared.types) if k.elem_type == TensorProto.FLOAT} == {(2, 3)}


def test_a_custom_operator_without_any_type_is_a_warning():
    model = parse_model(CUSTOM + "g (float[n,3] x) => (float[n,3] y) { v = foo.Bar(x) w = foo.Bar(v) y = Relu(x) }")
    prepared = prepare(model)
    assert prepared.types.tensors["v"] == ValueType(0)
    assert any('"v", made by Bar "Bar_0"' in w for w in prepared.warnings)


def test_a_local_function_survives_and_types_its_call():
    model = parse_model(
        CUSTOM
        + """g (float[n,3] x) => (float y) { v = foo.Twice(x) y = Relu(v) }
        <domain: "foo", opset_import: ["": 17]> Twice (a) => (b) { b = Add(a, a) }"""
    )
    prepared = prepare(model)
    assert prepared.types.tensors["v"] == ValueType(TensorProto.FLOAT, ("n", 3))
    assert list(prepared.model.functions) == list(model.functions)
    assert prepared.warnings == ()


def test_doc_strings_and_denotations_of_a_corrected_output_stay():
    model = parse_model(MODELS["symbol_beside_stale"])
    output = model.graph.output[0]
    output.doc_string, output.type.denotation = "what it is", "TENSOR"
    output.type.tensor_type.shape.dim[1].denotation = "DATA_FEATURE"
    after = prepare(model).model.graph.output[0]
    assert (after.doc_string, after.type.denotation) == ("what it is", "TENSOR")
    assert after.type.tensor_type.shape.dim[1].denotation == "DATA_FEATURE"


def test_a_missing_output_type_is_adopted():
    model = parse_model(MODELS["stale_rank0"])
    model.graph.output[0].ClearField("type")
    assert declared(prepare(model).model, "y") == "float[3, 5]"


def test_an_output_that_nothing_is_known_of_keeps_its_declaration():
    model = parse_model(HEAD + "g (float[2,6] x, int64[k] s) => (float[3,4] y) { y = Reshape(x, s) }")
    prepared = prepare(model)
    assert declared(prepared.model, "y") == "float[3, 4]"
    assert prepared.types.tensors["y"] == ValueType(TensorProto.FLOAT)
    assert 'output "y" keeps its declared shape, float[3, 4]: nothing could be inferred' in prepared.warnings


def test_large_payloads_are_neither_needed_nor_lost():
    model = parse_model(HEAD + "g (float[n,2000] x) => (float[n] y) { y = MatMul(x, w) }")
    weight = np.random.default_rng(0).random((2000, 3), np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    before = as_bytes(model)
    prepared = prepare(model, copy=False)
    assert prepared.model is model
    assert declared(model, "y") == "float[n, 3]"
    assert len(as_bytes(model)) > len(before)
    assert np.array_equal(onnx.numpy_helper.to_array(model.graph.initializer[0]), weight)


def test_infer_types_touches_nothing():
    model = parse_model(MODELS["stale_rank0"])
    before = as_bytes(model)
    types, notes = infer_types(model)
    assert types.tensors["y"] == ValueType(TensorProto.FLOAT, (3, 5))
    assert (as_bytes(model), notes) == (before, ())
