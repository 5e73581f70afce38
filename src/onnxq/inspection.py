"""What a person wants to know about a model at a glance: its interface, its Adds, its Q/DQ, what is stale in it."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

import onnx

from onnxq.graph import MAIN_GRAPH
from onnxq.invariants import ModelPair
from onnxq.pipeline import find_quantization
from onnxq.placement import is_linear
from onnxq.protos import opset_version
from onnxq.rewrite import strip_pairs
from onnxq.tensor_types import value_type


@dataclass(frozen=True, slots=True)
class AddReport:
    """One Add, or Sum of two.

    Attributes:
        node: Its name, after preparation.
        inputs: The tensors that it adds.
        skip: The input that belongs in int8; None if the Add is not residual.
        quantized: Inputs that are quantized in this model.
        why: What the rules saw.
    """

    node: str
    inputs: tuple[str, ...]
    skip: str | None
    quantized: tuple[str, ...]
    why: str


@dataclass(frozen=True, slots=True)
class Inspection:
    """A model at a glance.

    Attributes:
        opset: Version of the default operator set.
        inputs: Name -> declared type.
        outputs: Name -> declared type.
        nodes: Op type -> number of nodes in the main graph and the bodies.
        quantized: Op type -> number of nodes with a quantized input.
        pairs: Number of DequantizeLinear nodes.
        linear: Number of linear nodes in the main graph.
        adds: The Adds.
        changes: What preparation would change: stale declarations, missing names, order.
        warnings: What preparation couldn't find out.
    """

    opset: int
    inputs: dict[str, str]
    outputs: dict[str, str]
    nodes: dict[str, int]
    quantized: dict[str, int]
    pairs: int
    linear: int
    adds: tuple[AddReport, ...]
    changes: tuple[str, ...]
    warnings: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """As plain data, for JSON."""
        return asdict(self)


def inspect(model: onnx.ModelProto) -> Inspection:
    """Look at a float or a quantized model.

    Args:
        model: Any model; it isn't changed.

    Returns:
        What there is to see.

    Raises:
        InvalidModelError: The model is no usable model.
    """
    float_model = strip_pairs(model) if find_quantization(model) is not None else model
    pair = ModelPair.of(float_model, model)
    index, placement = pair.plan.index, pair.plan.placement
    read_quantized: dict[int, list[str]] = {}
    for node, _, tensor, quantization in pair.edges():
        if quantization is not None:
            read_quantized.setdefault(node, []).append(tensor)
    adds = []
    for residual in placement.residuals:
        names = tuple(index.tensor_names[t] for t in index.inputs[residual.node])
        skip = names[residual.skip] if residual.skip is not None else None
        quantized = tuple(read_quantized.get(residual.node, ()))
        adds.append(AddReport(index.nodes[residual.node].name, names, skip, quantized, residual.why))
    stored = {tensor.name for tensor in model.graph.initializer}
    main = [n for n, scope in enumerate(index.node_scope) if scope == MAIN_GRAPH]
    return Inspection(
        opset=opset_version(model),
        inputs={v.name: str(value_type(v.type)) for v in model.graph.input if v.name not in stored},
        outputs={v.name: str(value_type(v.type)) for v in model.graph.output},
        nodes=_counted(node.op_type for node in index.nodes),
        quantized=_counted(index.nodes[n].op_type for n in read_quantized),
        pairs=sum(node.op_type == "DequantizeLinear" for node in model.graph.node),
        linear=sum(is_linear(index, n) for n in main),
        adds=tuple(adds),
        changes=tuple(f"{c.where}: {c.what}" for c in pair.plan.prepared.changes),
        warnings=pair.plan.prepared.warnings,
    )


def _counted(op_types: Any) -> dict[str, int]:
    return dict(sorted(Counter(op_types).items(), key=lambda item: (-item[1], item[0])))
