"""Structural fingerprints: digests of how tensors are computed and read, the same under any renaming or reordering.

They decide between branches that are equal in every other respect, so they are computed only when such a tie occurs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from onnx import AttributeProto, NodeProto, TensorProto, numpy_helper

from onnxq.graph.constants import stored_value
from onnxq.graph.index import ABSENT, GraphIndex

COMMUTATIVE = frozenset({"Add", "And", "Equal", "Max", "Mean", "Min", "Mul", "Or", "Sum", "Xor"})
"""Operators whose inputs may be swapped without changing the result."""


@dataclass(frozen=True, slots=True)
class Fingerprints:
    """Digests by tensor number. Identity and what nothing reads leave no trace in them.

    Attributes:
        computed_by: What the tensor is computed from: operators, attributes, constants, types of inputs.
        read_by: What reads the tensor, and what the readers' results are used for.
    """

    computed_by: list[bytes]
    read_by: list[bytes]


def build_fingerprints(index: GraphIndex) -> Fingerprints:
    """Fingerprint every tensor: one pass forward, one backward. Reads all weights."""
    operators = [_operator(node) for node in index.nodes]
    computed = _computed_by(index, operators)
    return Fingerprints(computed, _read_by(index, operators, computed))


def constant_digest(index: GraphIndex, tensor: int) -> bytes:
    """Digest of a stored constant's type, shape and values; the same for an initializer and a Constant node.

    A constant that is computed gets the digest of what it is computed from, one level deep.
    """
    tensor = index.origins[tensor]
    value = stored_value(index, tensor)
    if value is not None:
        payload = repr(value.tolist()).encode() if value.dtype == object else value.tobytes()
        return _digest([str(value.dtype).encode(), str(value.shape).encode(), payload])
    producer = index.producers[tensor]
    if producer == ABSENT:
        return _digest([str(index.tensor_types[tensor]).encode()])
    stored = (t for t in index.inputs[producer] if t != ABSENT and stored_value(index, t) is not None)
    return _digest([_operator(index.nodes[producer]), *(constant_digest(index, t) for t in stored)])


def _computed_by(index: GraphIndex, operators: list[bytes]) -> list[bytes]:
    computed = [
        constant_digest(index, t) if index.producers[t] == ABSENT else b"" for t in range(len(index.tensor_names))
    ]
    for node, proto in enumerate(index.nodes):
        inputs = [computed[t] if t != ABSENT else b"" for t in index.inputs[node]]
        if proto.op_type in COMMUTATIVE:
            inputs.sort()
        for position, tensor in enumerate(index.outputs[node]):
            if tensor == ABSENT:
                continue
            if index.origins[tensor] != tensor:
                computed[tensor] = computed[index.origins[tensor]]
            elif proto.op_type == "Constant":
                computed[tensor] = constant_digest(index, tensor)
            else:
                computed[tensor] = _digest([operators[node], str(position).encode(), *inputs])
    return computed


def _read_by(index: GraphIndex, operators: list[bytes], computed: list[bytes]) -> list[bytes]:
    readings: list[list[bytes]] = [[b"output"] if out else [] for out in index.is_output]
    read = [b""] * len(index.tensor_names)
    for node in reversed(range(len(index.nodes))):
        outputs = [t for t in index.outputs[node] if t != ABSENT]
        for tensor in outputs:
            read[tensor] = _digest(sorted(readings[tensor]))
        if not any(readings[t] for t in outputs):
            continue
        if index.origins[outputs[0]] != outputs[0]:
            readings[index.inputs[node][0]] += readings[outputs[0]]
            continue
        operands = [computed[t] if t != ABSENT else b"" for t in index.inputs[node]]
        results = [read[t] if t != ABSENT else b"" for t in index.outputs[node]]
        commutes = index.nodes[node].op_type in COMMUTATIVE
        whole = _digest([operators[node], *(sorted(operands) if commutes else operands), *results])
        for slot, tensor in enumerate(index.inputs[node]):
            if tensor != ABSENT:
                readings[tensor].append(_digest([whole, b"" if commutes else str(slot).encode()]))
    for tensor, producer in enumerate(index.producers):
        if producer == ABSENT:
            read[tensor] = _digest(sorted(readings[tensor]))
    return read


def _operator(node: NodeProto) -> bytes:
    """Digest of an operator and its attributes. Of a body only the operators count: its names must not."""
    attributes = sorted((a.name.encode(), _attribute(a)) for a in node.attribute)
    return _digest([node.op_type.encode(), node.domain.encode(), *(part for pair in attributes for part in pair)])


def _attribute(attribute: AttributeProto) -> bytes:
    if attribute.type == AttributeProto.GRAPH:
        return " ".join(n.op_type for n in attribute.g.node).encode()
    if attribute.type == AttributeProto.TENSOR and attribute.t.data_type != TensorProto.STRING:
        return numpy_helper.to_array(attribute.t).tobytes()
    plain = AttributeProto()
    plain.CopyFrom(attribute)
    plain.doc_string = ""
    return bytes(plain.SerializeToString(deterministic=True))


def _digest(parts: Iterable[bytes]) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.digest()
