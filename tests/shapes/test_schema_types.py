import onnx
import pytest
from onnx import AttributeProto, ModelProto, TypeProto, helper
from onnx.defs import OpSchema
from onnx.parser import parse_model
from shape_models import HEAD

from onnxq.shapes.gaps import fill_gaps
from onnxq.shapes.graphs import is_typed, walk
from onnxq.shapes.schema_types import output_types, parse_type
from onnxq.shapes.schemas import Operators
from onnxq.shapes.skeleton import make_skeleton

AttributeType = OpSchema.AttrType

# Their output types depend on attributes that a made-up node doesn't have.
UNDETERMINED = {"Constant", "ZipMap", "DictVectorizer", "CategoryMapper", "LabelEncoder", "LinearClassifier"}
UNDETERMINED |= {"TreeEnsemble", "TreeEnsembleClassifier", "Gradient"}
SOME = {AttributeType.INT: 1, AttributeType.INTS: [1, 1], AttributeType.FLOATS: [1.0], AttributeType.STRING: "ab->ab"}


def example(schema: OpSchema) -> tuple[onnx.NodeProto, dict[str, TypeProto]]:
    """A node with all inputs, each of the first type that its schema allows (float where it may be)."""
    types = {}
    for index, formal in enumerate(schema.inputs):
        allowed = [c.allowed_type_strs for c in schema.type_constraints if c.type_param_str == formal.type_str]
        names = sorted(allowed[0]) if allowed else [formal.type_str]
        types[f"i{index}"] = parse_type("tensor(float)" if "tensor(float)" in names else names[0])
    outputs = [f"o{index}" for index in range(len(schema.outputs))]
    attributes = {name: SOME.get(a.type) for name, a in schema.attributes.items() if a.required}
    return helper.make_node(schema.name, list(types), outputs, domain=schema.domain, **attributes), types


@pytest.mark.parametrize("schema", onnx.defs.get_all_schemas(), ids=lambda s: f"{s.domain}.{s.name}")
def test_each_operator_has_types_as_its_schema_allows(schema):
    node, types = example(schema)
    model = ModelProto(opset_import=[helper.make_opsetid(schema.domain, schema.since_version)])
    inferred = output_types(node, types, Operators(model))
    if schema.name in UNDETERMINED or any(a.type == AttributeProto.GRAPH for a in schema.attributes.values()):
        return
    allowed = {c.type_param_str: set(c.allowed_type_strs) for c in schema.type_constraints}
    for name, formal in zip(node.output, schema.outputs, strict=True):
        if not formal.is_homogeneous and name not in inferred:
            continue
        assert is_typed(inferred.get(name)), (schema.name, name)
        kinds = [parse_type(text) for text in allowed.get(formal.type_str, {formal.type_str})]
        assert any(same_kind(inferred[name], kind) for kind in kinds), (schema.name, name)


def same_kind(a: TypeProto, b: TypeProto) -> bool:
    return a.WhichOneof("value") == b.WhichOneof("value") and a.tensor_type.elem_type == b.tensor_type.elem_type


def test_old_versions_never_raise():
    for schema in onnx.defs.get_all_schemas_with_history():
        node, types = example(schema)
        model = ModelProto(opset_import=[helper.make_opsetid(schema.domain, schema.since_version)])
        assert isinstance(output_types(node, types, Operators(model)), dict)


def test_types_alone_cover_bodies_without_any_shape_inference():
    model = parse_model(
        HEAD
        + """g (float16[2,3] x, bool c) => (y, s, z) <int64 n = {3}> {
        y, s = Loop(n, c, x) < body = b (int64 i, bool ci, float16[2,3] st) => (bool co, float16 nx, float each) {
            co = Identity(ci) nx = Add(st, x) each = Cast<to = 1>(nx) }>
        z = If(c) < then_branch = t () => (float a) { a = Relu(s) },
            else_branch = e () => (float b) { b = Neg(s) }> }"""
    )
    operators = Operators(model)
    graph = make_skeleton(model, operators).graph
    fill_gaps(graph, operators)
    kinds = {v.name: v.type.tensor_type.elem_type for g, _ in walk(graph) for v in (*g.input, *g.value_info)}
    assert kinds == {
        "x": 10, "c": 9, "y": 10, "s": 1, "z": 1, "i": 7, "ci": 9, "st": 10, "co": 9, "nx": 10, "each": 1,
        "a": 1, "b": 1,
    }  # fmt: skip


@pytest.mark.parametrize(
    "text", ["tensor(float16)", "seq(tensor(int64))", "optional(seq(tensor(string)))", "map(int64, tensor(float))"]
)
def test_type_strings_round_trip(text):
    proto = parse_type(text)
    assert is_typed(proto)
    assert parse_type("nonsense(float)") is None
    if text.startswith("optional"):
        assert proto.optional_type.elem_type.sequence_type.elem_type.tensor_type.elem_type == onnx.TensorProto.STRING
