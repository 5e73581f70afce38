"""Declarations that contradict what the operators imply (rules S2 to S5 and S7).

Positions of a shape are compared one by one. A symbol never contradicts anything and is never renamed; 0 and negative
numbers in a declaration mean "unknown", since exporters write them so, unless the tensor is really empty.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping

from onnx import GraphProto, NodeProto, TensorShapeProto, TypeProto, ValueInfoProto

from onnxq.protos import bodies
from onnxq.shapes.changes import Change
from onnxq.shapes.graphs import TRIP_INPUTS, body_place, has_shape, is_typed, passed_in
from onnxq.shapes.inference import Inferred
from onnxq.tensor_types import value_type

Dimension = TensorShapeProto.Dimension


def correct_declarations(graph: GraphProto, inferred: Inferred) -> tuple[list[Change], list[str]]:
    """Bring the declarations of a graph and its bodies in line with what its operators imply.

    Healthy declarations stay byte for byte as they are.

    Args:
        graph: Changed in place: types of outputs, `value_info`, inputs and outputs of bodies. The graph's own inputs
            are trusted.
        inferred: What the operators imply.

    Returns:
        The changes, and warnings about outputs whose declaration couldn't be checked.
    """
    changes: list[Change] = []
    warnings: list[str] = []
    for value in graph.output:
        implied = inferred.types.get(value.name)
        if implied is None or not has_shape(implied):
            warnings.append(_unchecked(value))
        if implied is not None:
            changes += _correct(value, implied, "output", "", wants_shape=True)
    _correct_inner(graph, inferred, ChainMap(), "", changes)
    return changes, warnings


def _correct_inner(
    graph: GraphProto, inferred: Inferred, outer: ChainMap[str, TypeProto], place: str, changes: list[Change]
) -> None:
    known = outer.new_child(dict(inferred.types))
    stale = []
    for index, value in enumerate(graph.value_info):
        if value.name not in known:
            if not _belongs(value.name, graph):
                stale.append(index)
                changes.append(Change("S5", f'value_info "{value.name}"{place}', "dropped: there is no such tensor"))
        else:
            changes += _correct(value, known[value.name], "value_info", place)
    for index in reversed(stale):
        del graph.value_info[index]
    for position, node in enumerate(graph.node):
        for attribute, body in bodies(node):
            below = inferred.bodies[position, attribute]
            there = body_place(node, attribute, place)
            for value, _ in zip(body.input, passed_in(node, attribute, body), strict=False):
                changes += _correct_if_declared(value, below, "input", there)
            for value in body.output:
                changes += _correct_if_declared(value, below, "output", there)
            if node.op_type == "Loop":
                changes += _open_changing_dims(node, body, below, known, there)
            _correct_inner(body, below, known, there, changes)


def _open_changing_dims(
    node: NodeProto, body: GraphProto, inferred: Inferred, known: Mapping[str, TypeProto], place: str
) -> list[Change]:
    """A dim that the initial value of a Loop has and that doesn't last can't be declared as a number in its body."""
    changes = []
    for start, formal, end in zip(node.input[TRIP_INPUTS:], body.input[TRIP_INPUTS:], body.output[1:], strict=False):
        initial = value_type(known.get(start, TypeProto())).shape or ()
        lasting = value_type(inferred.types.get(formal.name, TypeProto())).shape or ()
        changing = [
            i for i, (a, b) in enumerate(zip(initial, lasting, strict=False)) if isinstance(a, int) and b is None
        ]
        for role, value in (("input", formal), ("output", end)):
            before, dims = str(value_type(value.type)), value.type.tensor_type.shape.dim
            numbers = [i for i in changing if i < len(dims) and dims[i].HasField("dim_value")]
            for i in numbers:
                dims[i].ClearField("dim_value")
            if numbers:
                what = f"declared {before}, is {value_type(value.type)}"
                changes.append(Change("S7", f'{role} "{value.name}"{place}', what))
    return changes


def _correct_if_declared(value: ValueInfoProto, inferred: Inferred, role: str, place: str) -> list[Change]:
    """Bodies needn't declare their inputs and outputs: what they don't say stays unsaid."""
    implied = inferred.types.get(value.name)
    if implied is None or not is_typed(value.type):
        return []
    return _correct(value, implied, role, place)


def _correct(
    value: ValueInfoProto, implied: TypeProto, role: str, place: str, *, wants_shape: bool = False
) -> list[Change]:
    before = str(value_type(value.type)) if is_typed(value.type) else "nothing"
    rules = []
    if not is_typed(value.type) or value.type.WhichOneof("value") != implied.WhichOneof("value"):
        denotation = value.type.denotation
        value.type.CopyFrom(implied)
        value.type.denotation = denotation
        rules.append("S4")
    elif implied.HasField("tensor_type"):
        if value.type.tensor_type.elem_type != implied.tensor_type.elem_type:
            value.type.tensor_type.elem_type = implied.tensor_type.elem_type
            rules.append("S4")
        is_public = role != "value_info"
        if correct_shape(value.type.tensor_type, implied.tensor_type, wants_shape=wants_shape, keeps_numbers=is_public):
            rules.append("S2")
    what = f"declared {before}, is {value_type(value.type)}"
    where = f'{role} "{value.name}"{place}'
    if place or role == "value_info":
        rules = ["S7" if place else "S5"] if rules else []
    return [Change(rule, where, what) for rule in rules]


def correct_shape(
    declared: TypeProto.Tensor, implied: TypeProto.Tensor, *, wants_shape: bool, keeps_numbers: bool = True
) -> bool:
    """Rule S2 for one tensor.

    Args:
        declared: Changed in place where it is stale.
        implied: What the operators say.
        wants_shape: A missing shape counts as stale too.
        keeps_numbers: Whether numbers of a stale shape stay where the operators leave a dim open. They are part of the
            interface in an output; elsewhere a shape that is wrong in one dim is no witness for the others.

    Returns:
        Whether something changed.
    """
    if not implied.HasField("shape"):
        return False
    if not declared.HasField("shape"):
        if wants_shape:
            declared.shape.CopyFrom(implied.shape)
        return wants_shape
    if len(declared.shape.dim) != len(implied.shape.dim):
        declared.shape.CopyFrom(implied.shape)
        return True
    pairs = list(zip(declared.shape.dim, implied.shape.dim, strict=True))
    stale = any(_contradicts(ours, theirs) for ours, theirs in pairs)
    if stale:
        for ours, theirs in pairs:
            if theirs.HasField("dim_value") or _is_unknown(ours) or (ours.HasField("dim_value") and not keeps_numbers):
                _adopt(ours, theirs)
    return stale


def _contradicts(declared: Dimension, implied: Dimension) -> bool:
    both = declared.HasField("dim_value") and implied.HasField("dim_value")
    return both and declared.dim_value != implied.dim_value


def _is_unknown(dim: Dimension) -> bool:
    return not dim.dim_param and not (dim.HasField("dim_value") and dim.dim_value > 0)


def _adopt(dim: Dimension, implied: Dimension) -> None:
    denotation = dim.denotation
    dim.CopyFrom(implied)
    if denotation:
        dim.denotation = denotation


def _unchecked(value: ValueInfoProto) -> str:
    if has_shape(value.type):
        return f'output "{value.name}" keeps its declared shape, {value_type(value.type)}: nothing could be inferred'
    return f'output "{value.name}" has no shape, and none could be inferred'


def _belongs(name: str, graph: GraphProto) -> bool:
    return any(name in node.output for node in graph.node) or any(name == value.name for value in graph.input)


def merged_types(inferred: Mapping[str, TypeProto], graph: GraphProto, *, is_body: bool) -> dict[str, TypeProto]:
    """Inferred types, with unknown dims filled from declarations of the same rank.

    What a Loop carries is left out: a dim that changes from one iteration to the next is often declared as a number.

    Args:
        inferred: What the operators imply.
        graph: Its declarations are corrected already.
        is_body: Whether it is a body; the inputs and outputs of one may be carried by a Loop.

    Returns:
        Value name -> type; a rank that the operators leave open stays open.
    """
    types = dict(inferred)
    carried = {name for node in graph.node if node.op_type == "Loop" for name in node.output}
    if is_body:
        carried.update(value.name for value in (*graph.input, *graph.output))
    for value in (*graph.value_info, *graph.output):
        known = types.get(value.name)
        if known is None or value.name in carried or not known.HasField("tensor_type"):
            continue
        declared = value.type.tensor_type.shape.dim
        dims = known.tensor_type.shape.dim
        if len(declared) != len(dims) or not any(
            _is_open(d) and not _is_unknown(o) for d, o in zip(dims, declared, strict=True)
        ):
            continue
        filled = TypeProto()
        filled.CopyFrom(known)
        for dim, ours in zip(filled.tensor_type.shape.dim, declared, strict=True):
            if _is_open(dim) and not _is_unknown(ours):
                dim.CopyFrom(ours)
        types[value.name] = filled
    return types


def _is_open(dim: Dimension) -> bool:
    return dim.WhichOneof("value") is None
