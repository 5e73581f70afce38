import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import ModelProto, helper
from onnx.parser import parse_model

from onnxq.errors import UnsupportedError
from onnxq.protos import opset_version, walk_graphs
from onnxq.shapes import prepare, raise_opset


def old(opset: int, text: str) -> ModelProto:
    return parse_model(f'<ir_version: 7, opset_import: ["": {opset}]> g {text}')


def run(model: ModelProto, seed: int = 0) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(seed)
    feed = {}
    for value in session.get_inputs():
        dims = [d if isinstance(d, int) else 2 for d in value.shape]
        feed[value.name] = np.asarray(rng.random(dims), np.bool_ if value.type == "tensor(bool)" else np.float32)
    return session.run(None, feed)


@pytest.mark.parametrize(
    "model",
    [
        old(11, "(float[n,2,4,4] x) => (float[n,2,4,4] y) { y = Softmax<axis = 1>(x) }"),
        old(
            10,
            "(float[1,2,4,4] x) => (float[1,2,6,6] y) <float[4] s = {1, 1, 1.5, 1.5}> {"
            'y = Resize<mode = "linear">(x, s) }',
        ),
        old(10, "(float[1,2,4,4] x) => (float[1,2,10,10] y) <float[4] s = {1, 1, 2.5, 2.5}> { y = Resize(x, s) }"),
        old(9, "(float[1,2,4,4] x) => (float[1,2,6,6] y) <float[4] s = {1, 1, 1.5, 1.5}> { y = Upsample(x, s) }"),
        old(8, "(float[2,4] x) => (float[2,2] v, int64[2,2] i) { v, i = TopK<k = 2>(x) }"),
        old(10, "(float[2,4] x) => (float[2,4] y) { y = Clip<min = 0.2, max = 0.6>(x) }"),
        old(9, "(float[2,4] x) => (float[2,6] y) { y = Pad<pads = [0, 1, 0, 1], value = 2.0>(x) }"),
        old(9, "(float[2,4] x) => (float[2,2] y) { y = Slice<axes = [1], starts = [1], ends = [3]>(x) }"),
        old(
            11,
            """(float[2,3,4] x) => (float[2] y, float[2,1,1] z) {
            s = ReduceSum<axes = [1, 2]>(x) y = Squeeze<axes = [1, 2]>(s) z = ReduceMean<axes = [1, 2]>(x) }""",
        ),
        old(
            11,
            """(float[2,3] x, bool c) => (float[1,2] y) { y = If(c) < then_branch = t () => (float[1,2] a) {
                a1 = ReduceSum<axes = [1], keepdims = 0>(x) a = Unsqueeze<axes = [0]>(a1) },
            else_branch = e () => (float[1,2] b) {
                b1 = ReduceMax<axes = [1], keepdims = 0>(x) b = Unsqueeze<axes = [0]>(b1) }> }""",
        ),
    ],
)
def test_a_converted_model_computes_the_same(model):
    for opset in (13, 21):
        converted = raise_opset(model, opset)
        assert opset_version(converted) == opset
        onnx.checker.check_model(converted)
        for before, after in zip(run(model), run(converted), strict=True):
            np.testing.assert_allclose(after, before, atol=1e-6)


def test_all_that_is_no_node_survives():
    model = parse_model(
        """<ir_version: 7, opset_import: ["": 11, "foo": 1], producer_name: "p", doc_string: "m",
        metadata_props: ["a": "b"]>
        g (float[N,3,8,8] x) => (float[N,M,8,8] y) <float[3,3,1,1] unused, float[N,K,8,8] t> {
            [first] t = Conv(x, w) u = foo.Bar(t) y = Relu(u) h = ReduceMax<axes = [2]>(t) z = Squeeze<axes = [2]>(h) }
        <domain: "foo", opset_import: ["": 11]> Bar (a) => (b) { b = Neg(a) }"""
    )
    weight = np.arange(3600, dtype=np.float32).reshape(3, 3, 20, 20)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(2, np.float32), "spare"))
    model.graph.doc_string = "g doc"
    model.graph.output[0].doc_string = "out doc"
    model.graph.input[0].type.denotation = "IMAGE"
    model.graph.node[0].doc_string = "node doc"
    model.graph.node[0].metadata_props.add(key="k", value="v")
    model.graph.metadata_props.add(key="k", value="v")
    model.graph.quantization_annotation.add(tensor_name="t")
    model.graph.value_info[1].doc_string = "vi doc"
    before = model.SerializeToString(deterministic=True)
    converted = raise_opset(model, 13)
    assert model.SerializeToString(deterministic=True) == before
    for field in (
        "input",
        "output",
        "value_info",
        "initializer",
        "doc_string",
        "name",
        "metadata_props",
        "quantization_annotation",
    ):
        assert getattr(converted.graph, field) == getattr(model.graph, field), field
    assert converted.graph.node[0] == model.graph.node[0]
    for field in ("functions", "metadata_props", "producer_name", "doc_string", "ir_version"):
        assert getattr(converted, field) == getattr(model, field), field
    assert {entry.domain: entry.version for entry in converted.opset_import} == {"": 13, "foo": 1}


def test_a_new_enough_model_is_returned_as_it_is():
    model = old(13, "(float[2] x) => (float[2] y) { y = Relu(x) }")
    assert raise_opset(model, 13) is model
    custom = parse_model('<ir_version: 7, opset_import: ["foo": 1]> g (float[2] x) => (float[2] y) { y = foo.Relu(x) }')
    assert raise_opset(custom, 13) is custom


def test_what_cannot_be_converted_is_refused_by_name():
    model = old(
        9, "(float[1,1,4,4] x, float[4] s) => (float[1,1,8,8] y) { a = Relu(x) [up] y = Upsample(a, s) z = Scan9(y) }"
    )
    del model.graph.node[2]
    model.graph.node.append(helper.make_node("Gone", ["y"], ["z"], name="gone"))
    with pytest.raises(UnsupportedError, match='Gone "gone"'):
        raise_opset(model, 13)
    with pytest.raises(UnsupportedError, match="upgrade onnx"):
        raise_opset(old(9, "(float[2] x) => (float[2] y) { y = Relu(x) }"), 999)


def test_preparation_converts_and_names_the_new_nodes():
    prepared = prepare(
        old(11, "(float[2,3] x) => (float y) { y = ReduceSum<axes = [1], keepdims = 0>(x) }"), min_opset=13
    )
    assert [c.what for c in prepared.changes if c.rule == "F9"] == ["opset 11 converted to 13"]
    names = [node.name for graph in walk_graphs(prepared.model.graph) for node in graph.node]
    assert all(names)
    assert prepared.types.tensors["y"].shape == (2,)
    again = prepare(prepared.model, min_opset=13)
    assert again.model == prepared.model
    assert again.changes == ()
