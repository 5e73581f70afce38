"""Types of single nodes from their schemas, without shapes where those would need the node's data.

A node that shape inference can't handle (TopK with a K beyond its axis, say) leaves its outputs and everything
downstream untyped. Types need less than shapes: the schema, the types of the inputs and the attributes are enough.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from onnx import NodeProto, TensorProto, TypeProto
from onnx.defs import OpSchema
from onnx.shape_inference import infer_node_outputs

from onnxq.protos import bodies
from onnxq.shapes.graphs import is_typed, without_shape
from onnxq.shapes.schemas import Operators

Types = Mapping[str, TypeProto]


def output_types(node: NodeProto, known: Types, operators: Operators) -> dict[str, TypeProto]:
    """Types of a node's outputs. It can't fail on a valid node.

    Args:
        node: Its bodies, if any, are typed already.
        known: Types of the values it reads.
        operators: The operators of its model.

    Returns:
        Output name -> type; an output that can't be typed (a custom operator's) is missing.
    """
    from_bodies = _control_flow_types(node)
    if from_bodies is not None:
        return from_bodies
    schema = operators.schema(node)
    if schema is None:
        return {}
    inputs = {name: known[name] for name in node.input if name in known}
    for types in (inputs, {name: without_shape(proto) for name, proto in inputs.items()}):
        inferred = _library_types(schema, node, types, operators)
        if inferred:
            return inferred
    return _formal_types(schema, schema.outputs, node.output, _variables(schema, node, known))


def input_types(node: NodeProto, known: Types, operators: Operators) -> dict[str, TypeProto]:
    """Types that a node's schema demands of its inputs, as far as its other inputs and outputs fix them.

    Args:
        node: Any node.
        known: Types of the values around it.
        operators: The operators of its model.

    Returns:
        Input name -> type, without shapes.
    """
    schema = operators.schema(node)
    return _formal_types(schema, schema.inputs, node.input, _variables(schema, node, known)) if schema else {}


def refusal(node: NodeProto, known: Types, data: Mapping[str, TensorProto], operators: Operators) -> str:
    """Why shape inference refuses a node, in its own words; empty if it doesn't say.

    Args:
        node: Any node.
        known: Types of the values it reads.
        data: Those of them that are constant.
        operators: The operators of its model.

    Returns:
        One line.
    """
    schema = operators.schema(node)
    if schema is None or any(True for _ in bodies(node)):
        return ""
    types = {name: known[name] for name in node.input if name in known}
    try:
        infer_node_outputs(schema, node, types, dict(data), opset_imports=operators.imports)
    except Exception as error:  # the library raises several unrelated types; only the text is wanted
        return str(error).strip().partition("\n")[0]
    return ""


def _control_flow_types(node: NodeProto) -> dict[str, TypeProto] | None:
    graphs = dict(bodies(node))
    if node.op_type == "If":
        branches = [[value.type for value in body.output] for body in graphs.values()]
        per_output: list[list[TypeProto]] = [list(types) for types in zip(*branches, strict=False)]
    elif node.op_type in ("Loop", "Scan") and "body" in graphs:
        skip = 1 if node.op_type == "Loop" else 0
        per_output = [[value.type] for value in graphs["body"].output[skip:]]
    else:
        return None
    pairs = zip(node.output, per_output, strict=False)
    chosen = {name: next((t for t in types if is_typed(t)), None) for name, types in pairs if name}
    return {name: without_shape(proto) for name, proto in chosen.items() if proto is not None}


def _library_types(schema: OpSchema, node: NodeProto, types: Types, operators: Operators) -> dict[str, TypeProto]:
    """ONNX's inference of this node alone, which gets no data and so can't stumble over them."""
    try:
        inferred: dict[str, TypeProto] = infer_node_outputs(schema, node, dict(types), opset_imports=operators.imports)
    except Exception:  # several unrelated types; any of them means "doesn't know"
        return {}
    return inferred if all(is_typed(inferred.get(name)) for name in node.output if name) else {}


def _variables(schema: OpSchema, node: NodeProto, known: Types) -> dict[str, TypeProto]:
    """Type variables of the schema that an input or output of known type fixes."""
    bound: dict[str, TypeProto] = {}
    for formals, names in ((schema.inputs, node.input), (schema.outputs, node.output)):
        for name, formal in zip(names, _repeated(formals, len(names)), strict=False):
            if is_typed(known.get(name)) and formal.is_homogeneous:
                bound.setdefault(formal.type_str, without_shape(known[name]))
    return bound


def _formal_types(
    schema: OpSchema, formals: Sequence[OpSchema.FormalParameter], names: Sequence[str], variables: Types
) -> dict[str, TypeProto]:
    types = {}
    for name, formal in zip(names, _repeated(formals, len(names)), strict=False):
        proto = _formal_type(formal, schema, variables)
        if name and proto is not None:
            types[name] = proto
    return types


def _formal_type(formal: OpSchema.FormalParameter, schema: OpSchema, variables: Types) -> TypeProto | None:
    if formal.type_str in variables and formal.is_homogeneous:
        return variables[formal.type_str]
    allowed = [c.allowed_type_strs for c in schema.type_constraints if c.type_param_str == formal.type_str]
    names = list(allowed[0]) if allowed else [formal.type_str]
    return parse_type(names[0]) if len(names) == 1 else None


def _repeated(formals: Sequence[OpSchema.FormalParameter], count: int) -> Iterator[OpSchema.FormalParameter]:
    """The formal parameters of `count` actual ones: a variadic last one repeats."""
    for index in range(count):
        if index < len(formals):
            yield formals[index]
        elif formals and formals[-1].option == OpSchema.FormalParameterOption.Variadic:
            yield formals[-1]


def parse_type(text: str) -> TypeProto | None:
    """Read a type as schemas write it: `tensor(float16)`, `seq(tensor(int64))`, `map(int64, tensor(float))`."""
    kind, _, inner = text.removesuffix(")").partition("(")
    proto = TypeProto()
    if kind == "tensor":
        proto.tensor_type.elem_type = TensorProto.DataType.Value(inner.upper())
    elif kind == "sparse_tensor":
        proto.sparse_tensor_type.elem_type = TensorProto.DataType.Value(inner.upper())
    elif kind == "map":
        key, _, value = inner.partition(",")
        content = parse_type(value.strip()) or parse_type(f"tensor({value.strip()})")
        proto.map_type.key_type = TensorProto.DataType.Value(key.strip().upper())
        proto.map_type.value_type.CopyFrom(content or TypeProto())
    elif kind in ("seq", "optional"):
        content = parse_type(inner)
        element = proto.sequence_type.elem_type if kind == "seq" else proto.optional_type.elem_type
        element.CopyFrom(content or TypeProto())
    else:
        return None
    return proto
