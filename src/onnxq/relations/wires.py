"""What a quantizer decided, as it can be compared between a model and a changed version of it.

A node is known by the first tensor that it yields, in a body with the same of the node that holds the body before it:
node names, orders and positions may all have changed, and operands may have changed places.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from onnxq.graph import MAIN_GRAPH
from onnxq.invariants import ModelPair, Violation
from onnxq.invariants.integers import element_type, scale_axis
from onnxq.placement.ops import RESIDUAL, is_linear
from onnxq.relations.variant import NOTHING

FLOAT = "float"


@dataclass(frozen=True, slots=True)
class Wire:
    """A float tensor and a node that reads it, once or several times.

    Attributes:
        reader: First output of the node, after the first output and the attribute of each node around it.
        tensor: Name of the tensor.
    """

    reader: tuple[str, ...]
    tensor: str


@dataclass(frozen=True, slots=True)
class Decided:
    """What became of a wire.

    Attributes:
        how: "float", or an element type and the axis of its scales; one for each time that the node reads the tensor,
            sorted.
        where: The wire, for a person.
        kind: The same without names: what kind of operator it is, and whether it reads a constant there.
    """

    how: tuple[str, ...]
    where: str
    kind: str

    def __str__(self) -> str:
        return " and ".join(self.how)


def decided(pair: ModelPair, old_names: Mapping[str, str] = NOTHING) -> dict[Wire, Decided]:
    """What was decided of each float edge whose node the quantizer left in the model.

    Args:
        pair: The float model, perhaps a changed one, and what a quantizer made of it.
        old_names: Tensor of the float model -> its name before the change, see `Variant`. A wire through an Identity
            node that was put in counts as one wire, and as quantized if it is so before or behind the node.

    Returns:
        By wire, in the old names.

    Raises:
        OnnxqError: The float model is no usable model.
    """
    index = pair.plan.index
    found: dict[Wire, list[str]] = {}
    numbers: dict[Wire, tuple[int, int]] = {}
    through: dict[int, str] = {}
    for node, slot, name, quantization in pair.edges():
        tensor = index.inputs[node][slot]
        how = FLOAT
        if quantization is not None:
            axis = scale_axis(quantization, index.tensor_types[tensor].rank)
            how = element_type(pair, quantization) + ("" if axis is None else f" along axis {axis}")
        if how == FLOAT:
            how = through.get(tensor, FLOAT)
        output = index.outputs[node][0]
        if index.nodes[node].op_type == "Identity" and _old(index.tensor_names[output], old_names) == _old(
            name, old_names
        ):
            through[output] = how
            continue
        wire = Wire(tuple(_reader(pair, node, old_names)), _old(name, old_names))
        found.setdefault(wire, []).append(how)
        numbers.setdefault(wire, (node, slot))
    return {
        wire: Decided(tuple(sorted(how)), *_described(pair, *numbers[wire], wire.tensor)) for wire, how in found.items()
    }


def differences(
    relation: str, before: Mapping[Wire, Decided], after: Mapping[Wire, Decided], change: str
) -> Iterator[Violation]:
    """What was decided in different ways.

    Args:
        relation: Name of the relation that is violated then.
        before: Of the model as it was given.
        after: Of the changed one, in the same names. Wires that only one of the two has aren't compared.
        change: What the changed one is, to follow "in".
    """
    for wire, decision in before.items():
        other = after.get(wire)
        if other is not None and other.how != decision.how:
            yield Violation(
                relation,
                decision.where,
                f"{decision}, as in the model that was given",
                f"{other}, in {change}",
                cause=f"{decision.kind}: {decision} and {other}",
            )


def _old(name: str, old_names: Mapping[str, str]) -> str:
    return old_names.get(name, name)


def _reader(pair: ModelPair, node: int, old_names: Mapping[str, str]) -> Iterator[str]:
    index = pair.plan.index
    scope = index.scopes[index.node_scope[node]]
    if index.node_scope[node] != MAIN_GRAPH:
        yield from _reader(pair, scope.owner, old_names)
        yield scope.attribute
    yield _old(next((name for name in index.nodes[node].output if name), ""), old_names)


def _described(pair: ModelPair, node: int, slot: int, tensor: str) -> tuple[str, str]:
    index = pair.plan.index
    constant = " constant" if index.is_constant(index.inputs[node][slot]) else ""
    op_type = index.nodes[node].op_type
    reader = "linear op" if is_linear(index, node) else "Add" if op_type in RESIDUAL else "other op"
    return f'input "{tensor}" of {pair.where(node)}', f"{reader}{constant} input"
