"""Invariants of the model as a whole: it is valid, keeps its interface, and computes the same operators."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from onnx import ModelProto, TensorProto, ValueInfoProto

from onnxq.invariants.pair import ModelPair
from onnxq.invariants.violation import Violation
from onnxq.model_io import why_invalid
from onnxq.protos import describe
from onnxq.rewrite import integer_interface
from onnxq.tensor_types import ValueType, value_type

_WRITTEN_BY_TOOLS = frozenset({"Cast", "Constant", "DequantizeLinear", "Identity", "QuantizeLinear"})
"""Operators that a quantizer may add or remove without changing what is computed."""

_HALF = (TensorProto.FLOAT16, TensorProto.BFLOAT16)


def valid(pair: ModelPair) -> list[Violation]:
    """The ONNX checker accepts the quantized model in full, unless it already refused the float model."""
    problem = why_invalid(pair.quantized)
    if not problem or why_invalid(pair.float_model):
        return []
    return [Violation("valid", "model", "accepted by the ONNX checker with full_check", problem)]


def unique_names(pair: ModelPair) -> list[Violation]:
    """No two nodes of the quantized main graph have one name, and no two tensors."""
    found = []
    for kind, names in (("node", _node_names), ("tensor", _tensor_names)):
        before, after = Counter(names(pair.float_model)), Counter(names(pair.quantized))
        found += [
            Violation("unique-names", f'{kind} "{name}"', f"one {kind} of that name", f"{count} {kind}s")
            for name, count in after.items()
            if name and count > max(1, before[name])
        ]
    return found


def _node_names(model: ModelProto) -> Iterator[str]:
    return (node.name for node in model.graph.node)


def _tensor_names(model: ModelProto) -> Iterator[str]:
    yield from (tensor.name for tensor in model.graph.initializer)
    yield from (name for node in model.graph.node for name in node.output)


def io_preserved(pair: ModelPair) -> list[Violation]:
    """Inputs and outputs keep their names, order and element types, as far as no other types were asked for.

    Without `keep_io_types` float32 may become half. With `direct_io_types` a float may also become integers, if a
    DequantizeLinear reads the input, or a QuantizeLinear yields the output.
    """
    integers = integer_interface(pair.quantized) if pair.direct_io_types else {}
    found = []
    for kind, before, after in _interfaces(pair):
        names, kept = [v.name for v in before], [v.name for v in after]
        if names != kept:
            found.append(Violation("io-preserved", f"{kind}s of the model", ", ".join(names), ", ".join(kept)))
        for value, twin in _matched(before, after):
            expected, got = value_type(value.type), value_type(twin.type)
            if not pair.keep_io_types and expected.elem_type == TensorProto.FLOAT and got.elem_type in _HALF:
                continue
            if expected.is_float and value.name in integers:
                continue
            if (expected.kind, expected.elem_type) != (got.kind, got.elem_type):
                found.append(Violation("io-preserved", f'{kind} "{value.name}"', _type_name(expected), _type_name(got)))
    return found


def shapes_preserved(pair: ModelPair) -> list[Violation]:
    """Inputs and outputs keep rank and known dims; no output loses its shape field."""
    found = []
    for kind, before, after in _interfaces(pair):
        for value, twin in _matched(before, after):
            expected, got = value_type(value.type), value_type(twin.type)
            if expected.kind == "tensor" and expected.shape is not None and not _same_numbers(expected, got):
                found.append(Violation("shapes-preserved", f'{kind} "{value.name}"', str(expected), str(got)))
    return found


def symbolic_dims_preserved(pair: ModelPair) -> list[Violation]:
    """Dims that the float model names keep their names."""
    found = []
    for kind, before, after in _interfaces(pair):
        for value, twin in _matched(before, after):
            expected, got = value_type(value.type), value_type(twin.type)
            for position, dim in enumerate(expected.shape or ()):
                kept = got.shape[position] if got.shape is not None and position < len(got.shape) else None
                if isinstance(dim, str) and kept != dim:
                    where = f'dim {position} of {kind} "{value.name}"'
                    found.append(Violation("symbolic-dims-preserved", where, dim, str(kept)))
    return found


def operators_preserved(pair: ModelPair) -> list[Violation]:
    """Every operator of the float model is still there, bodies included, and none was added but Q/DQ and Casts.

    What is computed from constants only, such as a Transpose of a weight, may be stored as its result instead.
    """
    index = pair.plan.index
    before = Counter(node.op_type for node in index.nodes)
    foldable = Counter(
        n.op_type for n, ts in zip(index.nodes, index.outputs, strict=True) if all(map(index.is_constant, ts))
    )
    after = Counter(node.op_type for graph in pair.main.walk() for node in graph.graph.node)
    return [
        Violation("operators-preserved", f"{op} nodes", f"{before[op]}", f"{after[op]}")
        for op in sorted(before | after)
        if op not in _WRITTEN_BY_TOOLS and not before[op] - foldable[op] <= after[op] <= before[op]
    ]


def outputs_float(pair: ModelPair) -> list[Violation]:
    """No graph output comes from a Q/DQ, Casts aside, unless it did so in the float model or was asked for.

    onnxruntime's own kernels write int8, so under its policy a pair belongs behind the last operator too.
    """
    if pair.policy != "tensorrt" or pair.selection.quantize_outputs:
        return []
    expected = "made by the operator of the float model, without a pair behind it"
    return [
        Violation("outputs-float", f'output "{name}"', expected, f"made by {describe(found.dequantize)}")
        for name, found in pair.outputs()
        if found is not None
    ]


def _interfaces(pair: ModelPair) -> Iterator[tuple[str, list[ValueInfoProto], list[ValueInfoProto]]]:
    """Inputs and outputs of both models. The float model's are taken after preparation: a stale one isn't binding."""
    before, after = pair.plan.prepared.model, pair.quantized
    inputs = [_without_initializers(m.graph.input, m.graph.initializer) for m in (before, after)]
    yield "input", inputs[0], inputs[1]
    yield "output", list(before.graph.output), list(after.graph.output)


def _without_initializers(
    values: Iterable[ValueInfoProto], initializers: Iterable[TensorProto]
) -> list[ValueInfoProto]:
    stored = {tensor.name for tensor in initializers}
    return [value for value in values if value.name not in stored]


def _matched(
    before: list[ValueInfoProto], after: list[ValueInfoProto]
) -> Iterator[tuple[ValueInfoProto, ValueInfoProto]]:
    twins = {value.name: value for value in after}
    return ((value, twins[value.name]) for value in before if value.name in twins)


def _same_numbers(expected: ValueType, got: ValueType) -> bool:
    if got.shape is None or expected.shape is None or len(expected.shape) != len(got.shape):
        return False
    return all(a == b or not isinstance(a, int) for a, b in zip(expected.shape, got.shape, strict=True))


def _type_name(found: ValueType) -> str:
    return str(ValueType(found.elem_type, None, found.kind))
