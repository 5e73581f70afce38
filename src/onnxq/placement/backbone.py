"""Which convolution can still finish a tensor in its own kernel: the backbone of the tensor (rule R2).

Walking back from a tensor through what a kernel applies to its result (the epilogue) and through ops that only move
data, the first Conv or ConvTranspose is the backbone:

    Conv -> BatchNormalization -> Relu -> Transpose -> tensor        backbone: the Conv
    Conv -> Sigmoid --.
       `-------------> Mul -> tensor                                 backbone: the Conv (SiLU written out)
    Conv -> Relu -> MaxPool -> tensor                                backbone: the Conv
    Conv -> Add(other) -> Relu -> tensor                             none: a second Add stands between

The walk is done for all tensors at once, in one pass forward: each node hands the backbone of its data on, or drops it.
"""

from __future__ import annotations

from dataclasses import dataclass

from onnxq.graph import ABSENT, GraphIndex
from onnxq.placement.ops import ACTIVATIONS, ARITHMETIC, GATE_ONLY, SATURATING, copy_sources, is_convolution, is_copy
from onnxq.protos import is_default_domain

_GATE_LENGTH = 8
"""Most steps from an activation's end back to its beginning; the longest form in use, Gelu by Tanh, has seven."""


@dataclass(frozen=True, slots=True)
class Backbones:
    """Backbones, and the steps of the walk that finds them.

    Attributes:
        of_tensor: By tensor: the number of the Conv or ConvTranspose node that is its backbone, or `ABSENT`.
        ends: By tensor: the number of the tensor at which the walk ended, where there is no backbone.
        passed_on: By node: the tensors that it passes on, as epilogue or copy; empty for what ends the walk.
    """

    of_tensor: list[int]
    ends: list[int]
    passed_on: list[tuple[int, ...]]


def find_backbones(index: GraphIndex) -> Backbones:
    """Find the backbone of every tensor, in one pass over the nodes."""
    backbone = [ABSENT] * len(index.tensor_names)
    ends = list(range(len(index.tensor_names)))
    activated = [False] * len(index.tensor_names)
    passed_on: list[tuple[int, ...]] = []
    steps = _PointwiseSteps(index)
    for node, proto in enumerate(index.nodes):
        steps.add(node)
        sources = () if is_convolution(index, node) else _passed_on(index, node, steps, activated)
        passed_on.append(sources)
        if is_convolution(index, node):
            found, passed_activation = node, False
        else:
            found = _common_backbone(index, node, sources, backbone)
            passed_activation = proto.op_type in ACTIVATIONS or any(activated[t] for t in sources)
            passed_activation |= node in steps.written_out
            passed_activation &= proto.op_type != "MaxPool"  # which ends the pattern: a second pool isn't part of it
        for tensor in index.outputs[node]:
            if tensor != ABSENT:
                backbone[tensor], activated[tensor] = found, found != ABSENT and passed_activation
                if found == ABSENT:
                    ends[tensor] = _end(index, node, sources, backbone, ends, tensor)
    return Backbones(backbone, ends, passed_on)


def _end(
    index: GraphIndex, node: int, sources: tuple[int, ...], backbone: list[int], ends: list[int], tensor: int
) -> int:
    """Where the walk from `tensor`, which the node yields, ends: where that from a source does, else here."""
    for source in sources:
        if source != ABSENT and index.local_producer(source, node) == ABSENT:
            return source
        if source != ABSENT and backbone[source] == ABSENT:
            return ends[source]
    return tensor


def _common_backbone(index: GraphIndex, node: int, sources: tuple[int, ...], backbone: list[int]) -> int:
    """The one backbone that all sources lead to, within the graph of the node."""
    if any(t == ABSENT or index.local_producer(t, node) == ABSENT for t in sources):
        return ABSENT
    found = {backbone[t] for t in sources}
    return found.pop() if len(found) == 1 else ABSENT


def _passed_on(index: GraphIndex, node: int, steps: _PointwiseSteps, activated: list[bool]) -> tuple[int, ...]:
    """Tensors that the node hands on through its epilogue or copy function; empty when it ends the walk."""
    proto = index.nodes[node]
    if not is_default_domain(proto):
        return ()
    if is_copy(index, node):
        return copy_sources(index, node)
    if proto.op_type == "BatchNormalization":
        return index.inputs[node][:1] if not any(map(index.is_variable, index.inputs[node][1:])) else ()
    if proto.op_type == "MaxPool":
        # The pool closes the pattern Conv -> activation -> MaxPool; any other pool is a kernel of its own.
        return index.inputs[node][:1] if activated[index.inputs[node][0]] else ()
    source = steps.epilogue[node]
    return (source,) if source != ABSENT else ()


class _PointwiseSteps:
    """For each pointwise node the tensor it is a function of, found in node order.

    Attributes:
        epilogue: Per node: the tensor that it is a pointwise epilogue of, else `ABSENT`.
        written_out: Nodes that end a written-out activation.
    """

    def __init__(self, index: GraphIndex) -> None:
        self._index = index
        self._inner = [ABSENT] * len(index.nodes)
        self.epilogue = [ABSENT] * len(index.nodes)
        self.written_out: set[int] = set()

    def add(self, node: int) -> None:
        proto = self._index.nodes[node]
        if not is_default_domain(proto):
            return
        variable = [t for t in self._index.inputs[node] if self._index.is_variable(t)]
        if proto.op_type in ACTIVATIONS or proto.op_type in ARITHMETIC or proto.op_type in GATE_ONLY:
            if len(variable) == 1 and self._keeps_shape(node, variable[0]):
                self._inner[node] = variable[0]
                if proto.op_type not in GATE_ONLY and not self._inverts(node):
                    self.epilogue[node] = variable[0]
            elif len(variable) == 2 and proto.op_type in ARITHMETIC:
                self._join(node, variable[0], variable[1])

    def _inverts(self, node: int) -> bool:
        """Whether it is constant / t, which belongs to a gate but scales nothing."""
        return self._index.nodes[node].op_type == "Div" and self._index.is_constant(self._index.inputs[node][0])

    def _join(self, node: int, left: int, right: int) -> None:
        """Two operands that are functions of one tensor: one function of it; with a gate, an activation.

        t ----------> Mul      Gelu: t -> Mul(0.5) ----------------------> Mul
         `-> gate ---'                `-> Div(1.4) -> Erf -> Add(1) ------'
        """
        lefts, rights = self._chain(left), self._chain(right)
        meeting = next((t for t in lefts if t in rights), ABSENT)
        if meeting == ABSENT:
            return
        self._inner[node] = meeting
        left_ops, right_ops = self._between(lefts, meeting), self._between(rights, meeting)
        straight_and_gate = {
            "Mul": [(left_ops, right_ops), (right_ops, left_ops)],
            "Div": [(left_ops, right_ops)],
        }.get(self._index.nodes[node].op_type, [])
        if any(straight <= ARITHMETIC and SATURATING & gate for straight, gate in straight_and_gate):
            self.epilogue[node] = meeting
            self.written_out.add(node)

    def _chain(self, tensor: int) -> list[int]:
        """The tensor, then the tensors that it is a pointwise function of, nearest first. Identity is no step."""
        origins = self._index.origins
        chain = [origins[tensor]]
        while len(chain) <= _GATE_LENGTH:
            producer = self._index.producers[chain[-1]]
            if producer == ABSENT or self._inner[producer] == ABSENT:
                break
            chain.append(origins[self._inner[producer]])
        return chain

    def _between(self, chain: list[int], end: int) -> frozenset[str]:
        """Operators on the chain before it reaches `end`."""
        nodes = (self._index.producers[t] for t in chain[: chain.index(end)])
        return frozenset(self._index.nodes[node].op_type for node in nodes)

    def _keeps_shape(self, node: int, source: int) -> bool:
        """Whether the result has the shape of its variable operand: a constant that widens it is no epilogue."""
        before = self._index.tensor_types[source].shape
        output = self._index.outputs[node][0]
        after = self._index.tensor_types[output].shape if output != ABSENT else None
        if before is None or after is None:
            return True
        return len(before) == len(after) and all(
            a == b for a, b in zip(before, after, strict=True) if isinstance(a, int) and isinstance(b, int)
        )
