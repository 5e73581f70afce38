from __future__ import annotations

import onnx
from onnx.parser import parse_model

from onnxq.graph import ABSENT, MAIN_GRAPH, Edge, GraphIndex, Kind, build_index
from onnxq.shapes import prepare

HEAD = '<ir_version: 8, opset_import: ["": 17, "custom": 1]> '


def index_of(text: str) -> GraphIndex:
    prepared = prepare(parse_model(HEAD + text))
    return build_index(prepared.model, prepared.types)


def tensor(index: GraphIndex, name: str) -> int:
    return index.tensor_names.index(name)


def names(index: GraphIndex, tensors: tuple[int, ...]) -> list[str]:
    return [index.tensor_names[t] if t != ABSENT else "" for t in tensors]


def test_producers_consumers_and_outputs() -> None:
    index = index_of("g (float[2] x) => (float[2] y, float[2] r) { r = Relu(x) y = Add(r, r) }")
    assert [node.op_type for node in index.nodes] == ["Relu", "Add"]
    r = tensor(index, "r")
    assert index.producers[r] == 0
    assert index.consumers[r] == [Edge(1, 0), Edge(1, 1)]
    assert index.is_output[r]
    assert not index.is_output[tensor(index, "x")]
    assert index.producers[tensor(index, "x")] == ABSENT
    assert names(index, tuple(index.graph_inputs)) == ["x"]


def test_every_tensor_has_its_type() -> None:
    index = index_of("g (float[n, 3] x) => (float y) <float[3] w = {1, 2, 3}> { a = Mul(x, w) y = Relu(a) }")
    assert [str(index.tensor_types[tensor(index, t)]) for t in "xwa"] == ["float[n, 3]", "float[3]", "float[n, 3]"]


def test_optional_inputs_and_outputs_that_are_left_out() -> None:
    index = index_of("g (float[4] x) => (float[4] y) <float h = {1.0}> { a = Dropout(x) y = Clip(a, , h) }")
    assert names(index, index.inputs[1]) == ["a", "", "h"]
    assert index.data_inputs(1) == [tensor(index, "a")]


def test_a_missing_output_in_the_middle_is_absent() -> None:
    model = parse_model(HEAD + "g (float[1,4,2] x, float[1,8,2] w, float[1,8,2] r) => (float y) { y = LSTM(x, w, r) }")
    model.graph.node[0].output[:] = ["", "y"]
    model.graph.node[0].attribute.append(onnx.helper.make_attribute("hidden_size", 2))
    prepared = prepare(model)
    index = build_index(prepared.model, prepared.types)
    assert names(index, index.outputs[0]) == ["", "y"]


def test_kinds() -> None:
    index = index_of(
        """g (float[n, 4] x) => (float y, float v, int64 t, float z) <float[4] w = {1, 2, 3, 4}, int64 one = {1}> {
            s = Shape(x)
            n1 = Gather(s, one)
            f = Cast<to = 1>(n1)
            w2 = Mul(w, w)
            c = Constant<value = float {2.0}>()
            w3 = Mul(w2, c)
            i = Identity(w)
            j = Identity(x)
            y = Mul(j, w3)
            v = RandomNormalLike(w)
            z = Mul(f, w)
            t = Size(w)
        }"""
    )
    kinds = {name: index.tensor_kinds[number].name for number, name in enumerate(index.tensor_names)}
    assert {n for n, k in kinds.items() if k == "CONSTANT"} == {"w", "one", "w2", "c", "w3", "i", "t"}
    assert {n for n, k in kinds.items() if k == "SHAPE"} == {"s", "n1", "f", "z"}
    assert {n for n, k in kinds.items() if k == "DATA"} == {"x", "j", "y", "v"}


def test_what_a_custom_operator_yields_is_data() -> None:
    index = index_of("g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { a = custom.Op(w) y = Add(x, a) }")
    assert index.tensor_kinds[tensor(index, "a")] == Kind.DATA


def test_an_initializer_among_the_inputs_is_a_constant() -> None:
    model = parse_model(HEAD + "g (float[2] x, float[2] w) => (float[2] y) <float[2] w = {1, 2}> { y = Add(x, w) }")
    assert [v.name for v in model.graph.input] == ["x", "w"]
    prepared = prepare(model)
    index = build_index(prepared.model, prepared.types)
    assert index.tensor_names.count("w") == 1
    assert index.tensor_kinds[tensor(index, "w")] == Kind.CONSTANT
    assert names(index, tuple(index.graph_inputs)) == ["x"]


def test_a_sparse_initializer_among_the_inputs_is_a_constant() -> None:
    model = parse_model(HEAD + "g (float[2,3] x, float[3,2] w) => (float[2,2] y) { y = MatMul(x, w) }")
    sparse = onnx.helper.make_sparse_tensor(
        onnx.helper.make_tensor("w", onnx.TensorProto.FLOAT, [1], [1.0]),
        onnx.helper.make_tensor("w_i", onnx.TensorProto.INT64, [1], [4]),
        [3, 2],
    )
    model.graph.sparse_initializer.append(sparse)
    index = build_index(model, prepare(model).types)
    assert index.tensor_names.count("w") == 1
    assert index.tensor_kinds[tensor(index, "w")] == Kind.CONSTANT
    assert names(index, tuple(index.graph_inputs)) == ["x"]


def test_origins_see_through_identity() -> None:
    index = index_of("g (float[2] x) => (float[2] y) { a = Identity(x) b = Identity(a) c = Relu(b) y = Identity(c) }")
    origins = {name: index.tensor_names[index.origins[t]] for t, name in enumerate(index.tensor_names)}
    assert origins == {"x": "x", "a": "x", "b": "x", "c": "c", "y": "c"}


def test_unnamed_and_equally_named_nodes_are_told_apart() -> None:
    model = parse_model(HEAD + "g (float[2] x) => (float[2] y) { [n] a = Relu(x) [n] b = Abs(a) y = Neg(b) }")
    index = build_index(model, prepare(model).types)
    assert [node.op_type for node in index.nodes] == ["Relu", "Abs", "Neg"]
    assert index.producers[tensor(index, "b")] == 1


def test_if_bodies_capture_each_outer_tensor_once() -> None:
    index = index_of(
        """g (float[2] x, bool c) => (float[2] y) <float[2] w = {1, 2}> {
            r = Relu(x)
            y = If(c) <
                then_branch = t () => (float[2] a) { a1 = Add(r, w) a = Add(a1, r) },
                else_branch = e () => (float[2] b) { b = Neg(x) }>
        }"""
    )
    assert [node.op_type for node in index.nodes] == ["Relu", "If", "Add", "Add", "Neg"]
    assert names(index, index.captures[1]) == ["r", "w", "x"]
    assert names(index, tuple(index.data_inputs(1))) == ["c", "r", "x"]
    places = [index.scopes[s].attribute for s in index.node_scope]
    assert places == ["", "", "then_branch", "then_branch", "else_branch"]
    assert Edge(2, 0) in index.consumers[tensor(index, "r")]
    assert index.local_producer(tensor(index, "r"), 1) == 0
    assert index.local_producer(tensor(index, "r"), 2) == ABSENT
    assert index.tensor_scope[tensor(index, "a1")] != MAIN_GRAPH


def test_nested_bodies_capture_through_every_level() -> None:
    index = index_of(
        """g (float[2] x, bool c) => (float[2] y) {
            r = Relu(x)
            y = If(c) <
                then_branch = t () => (float[2] a) { a = If(c) <
                    then_branch = tt () => (float[2] aa) { aa = Neg(r) },
                    else_branch = te () => (float[2] ab) { ab = Abs(r) }> },
                else_branch = e () => (float[2] b) { b = Neg(x) }>
        }"""
    )
    outer, inner = (n for n, node in enumerate(index.nodes) if node.op_type == "If")
    assert names(index, index.captures[inner]) == ["r"]
    assert names(index, index.captures[outer]) == ["c", "r", "x"]


def test_loop_and_scan_bodies_see_their_own_inputs() -> None:
    index = index_of(
        """g (float[2] x, bool c) => (float y, float[3,2] z) <int64 n = {3}> {
            y = Loop(n, c, x) <body = b (int64 i, bool ci, float[2] state) => (bool co, float[2] next) {
                co = Identity(ci) next = Add(state, x) }>
            s = Unsqueeze(x, zero) zero = Constant<value = int64[1] {0}>()
            w = Tile(s, reps) reps = Constant<value = int64[2] {3, 1}>()
            e, z = Scan<num_scan_inputs = 1, body = sb (float[2] carry, float[2] row) => (float[2] out, float[2] each) {
                out = Add(carry, row) each = Mul(out, x) }>(x, w)
        }"""
    )
    loop, scan = (n for n, node in enumerate(index.nodes) if node.op_type in ("Loop", "Scan"))
    assert names(index, index.captures[loop]) == ["x"]
    assert names(index, index.captures[scan]) == ["x"]
    assert index.tensor_kinds[tensor(index, "state")] == Kind.DATA
    assert index.producers[tensor(index, "state")] == ABSENT


def test_producers_come_before_readers_captures_included() -> None:
    index = index_of(
        """g (float[2] x, bool c) => (float[2] y) {
            y = If(c) <then_branch = t () => (float[2] a) { a = Neg(late) },
                       else_branch = e () => (float[2] b) { b = Neg(x) }>
            late = Relu(x)
        }"""
    )
    for node in range(len(index.nodes)):
        for t in (*index.inputs[node], *index.captures[node]):
            assert t == ABSENT or index.producers[t] < node
