import onnx
import pytest
from onnx import ModelProto
from onnx.parser import parse_model
from shape_models import CUSTOM, HEAD

from onnxq.errors import InvalidModelError
from onnxq.protos import walk_graphs
from onnxq.shapes import prepare

IF = """y = If(c) < then_branch = t () => (float[2,3] a) {{ {then} }},
    else_branch = e () => (float[2,3] b) {{ b = Relu(x) }}> }}"""


def with_if(then: str, before: str = "") -> str:
    return HEAD + f"g (float[2,3] x, bool c) => (float[2,3] y) {{ {before} " + IF.format(then=then)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (HEAD + "g (float[2] x) => (float[2] x) { }", ["no nodes"]),
        (HEAD + "g (float[2] image) => (float[2] y) { y = Relu(imag) }", ["Relu", '"imag"', "near misses: image"]),
        (HEAD + "g (float[2] x) => (float[2] yy) { y = Relu(x) }", ['output "yy"', "near misses: y"]),
        (HEAD + "g (float[2] x) => (float[2] y) { y = Relu(x) y = Neg(x) }", ['"y"', "Relu", "Neg"]),
        (HEAD + "g (float[2] x) => (float[2] y) { y = Relu(x) x = Neg(y) }", ['"x"', 'input "x"', "Neg"]),
        (HEAD + "g (float[2] x) => (float[2] y) { y = Add(x, z) [back] z = Neg(y) }", ["cycle", "Add", 'Neg "back"']),
        (HEAD + "g (float[2] x) => (float[2] y) { y = Reluu(x) }", ["Reluu", "near misses", "Relu"]),
        (HEAD + "g (float[2] x) => (float[2] y) { y = Gelu(x) }", ["Gelu", "opset 17"]),
        (HEAD + "g (float[2] x) => (float[2] y) { y = ai.onnx.ml.Scaler(x) }", ["Scaler", "import", "ai.onnx.ml"]),
        (with_if("a = Neg(q)"), ['"q"', "then_branch of If", "Neg"]),
        (with_if("r = Abs(x) a = Neg(r)", "r = Relu(x)"), ['"r"', "Abs", "hides", "then_branch"]),
        (with_if("a = Neg(q) q = Abs(a)"), ["cycle", "then_branch"]),
    ],
)
def test_contradictory_models_are_refused_with_names(text, named):
    model = parse_model(text)
    with pytest.raises(InvalidModelError) as error:
        prepare(model)
    assert "\n" not in str(error.value)
    for part in named:
        assert part in str(error.value)


@pytest.mark.parametrize(
    "model", [ModelProto(), ModelProto(ir_version=8), ModelProto(ir_version=8, graph=onnx.GraphProto())]
)
def test_what_is_no_model_is_refused(model):
    with pytest.raises(InvalidModelError):
        prepare(model)


def test_duplicate_inputs_and_initializers_are_refused():
    model = parse_model(HEAD + "g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { y = Add(x, w) }")
    twice = ModelProto()
    twice.CopyFrom(model)
    twice.graph.initializer.append(model.graph.initializer[0])
    with pytest.raises(InvalidModelError, match='"w"'):
        prepare(twice)
    model.graph.input.append(model.graph.input[0])
    with pytest.raises(InvalidModelError, match='input "x"'):
        prepare(model)


def test_sorting_keeps_the_stored_order_where_it_can():
    text = HEAD + "g (float[2] x) => (float[2] d) { [d] d = Add(b, c) [b] b = Relu(a) [a] a = Abs(x) [c] c = Neg(x) }"
    prepared = prepare(parse_model(text))
    assert [node.name for node in prepared.model.graph.node] == ["a", "b", "c", "d"]
    assert [(c.rule, c.where) for c in prepared.changes] == [("S8", 'graph "g"')]


def test_captures_count_when_nodes_are_sorted():
    text = (
        HEAD
        + "g (float[2,3] x, bool c) => (float[2,3] y) { "
        + IF.format(then="a = Neg(late)").replace("}> }", "}> late = Relu(x) }")
    )
    prepared = prepare(parse_model(text))
    assert [node.op_type for node in prepared.model.graph.node] == ["Relu", "If"]


def test_node_names_become_unique_over_all_graphs_and_the_first_keeps_its_own():
    text = with_if("[n] a = Neg(r)", "[n] p = Relu(x) [Relu_0] q = Relu(p) r = Relu(q) [n] s = Relu(r)")
    prepared = prepare(parse_model(text))
    names = [node.name for graph in walk_graphs(prepared.model.graph) for node in graph.node]
    assert len(set(names)) == len(names)
    assert "" not in names
    assert names[:4] == ["n", "Relu_0", "Relu_1", "n_0"]


def test_an_opset_listed_as_ai_onnx_is_the_default_one():
    model = parse_model(HEAD + "g (float[2] x) => (float[2] y) { y = Relu(x) }")
    model.opset_import[0].domain = "ai.onnx"
    assert prepare(model).types.tensors["y"].shape == (2,)


def test_custom_operators_are_no_errors():
    prepare(parse_model(CUSTOM + "g (float[2] x) => (float[2] y) { y = foo.Anything(x) }"))
