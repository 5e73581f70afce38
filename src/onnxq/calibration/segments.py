"""Cutting a model into segments that are run one after the other, so that each needs no more memory than is allowed.

    x --> n1 --> n2 --> n3 --> n4 --> ...       cut before n3 and where a value is read across, it is carried:
          '------------------>                  kept from one segment to the next, for one sample
    '---- segment ---' '-- segment --'

What a segment needs is estimated from above, as if the runtime freed nothing while it runs: the sample, what is carried
in, all that its nodes yield, and copies of what leaves the runtime.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper

from onnxq.calibration.extract import reads
from onnxq.errors import UnsupportedError
from onnxq.protos import describe
from onnxq.tensor_types import GraphTypes, ValueType

_UNTYPED = ValueType(TensorProto.UNDEFINED)


@dataclass(frozen=True)
class MemoryBound:
    """How much memory the activations of one sample may take.

    Attributes:
        limit: In bytes. Weights don't count: they are in memory anyway.
        infer: Infers the types of all values of a model, bodies apart.
    """

    limit: int
    infer: Callable[[ModelProto], GraphTypes]


@dataclass(frozen=True)
class Cut:
    """One segment of a model.

    Attributes:
        start: Position of its first node.
        stop: Position behind its last node.
        carried: What it yields for later ones.
        dropped: What nobody needs after it, of all that is carried so far.
    """

    start: int
    stop: int
    carried: tuple[str, ...]
    dropped: tuple[str, ...]


def cut(
    model: ModelProto, fetched: Sequence[str], shapes: Mapping[str, Sequence[int]], bound: MemoryBound
) -> tuple[tuple[Cut, ...], Mapping[str, ValueType]]:
    """Cut a model into as few consecutive segments as its order of nodes allows.

    Args:
        model: Topologically sorted.
        fetched: Tensors that leave the runtime in full.
        shapes: Input name -> shape of one sample.
        bound: What is allowed. A tensor whose size can't be inferred counts as the greatest that its node reads.

    Returns:
        The segments, and the types that were inferred for the shapes.

    Raises:
        UnsupportedError: One node alone needs more than is allowed; the message says how much.
    """
    types = bound.infer(_with_shapes(model, shapes)).tensors
    flow = _Flow(list(model.graph.node), types, frozenset(fetched), set(shapes))
    cuts = []
    start = 0
    while start < len(flow.nodes):
        stop = flow.furthest(start, bound.limit)
        cuts.append(flow.cut(start, stop))
        start = stop
    return tuple(cuts), types


class _Flow:
    """How many bytes come to be, and stay alive, along the nodes of a model."""

    def __init__(
        self,
        nodes: Sequence[NodeProto],
        types: Mapping[str, ValueType],
        fetched: frozenset[str],
        inputs: set[str],
    ) -> None:
        self.nodes = nodes
        self._made = {name: i for i, node in enumerate(nodes) for name in node.output if name}
        self._last = {name: i for i, node in enumerate(nodes) for name in reads(node) if name in self._made}
        self._sizes = self._measure(types, inputs)
        sample = sum(self._sizes[name] for name in inputs if name in self._sizes)
        size = self._sizes
        made = [sum(size[o] * (1 + (o in fetched)) for o in node.output if o) for node in nodes]
        self._made_before = [0, *accumulate(made)]
        steps, uncarriable = [0] * (len(nodes) + 1), [0] * (len(nodes) + 1)
        for name, last in self._last.items():
            first = self._made[name] + 1  # alive at the cuts before nodes `first` to `last`
            steps[first] += size[name]
            steps[last + 1 if last + 1 < len(steps) else last] -= size[name]
            if not _is_carriable(types.get(name, _UNTYPED)):
                uncarriable[first] += 1
                uncarriable[last + 1 if last + 1 < len(steps) else last] -= 1
        self._alive = list(accumulate(steps))
        self._blocked = list(accumulate(uncarriable))
        self._sample = sample

    def needs(self, start: int, stop: int) -> int:
        """Bytes for the nodes from `start` up to `stop`."""
        made = self._made_before[stop] - self._made_before[start]
        return self._sample + self._alive[start] + made + self._alive[stop]

    def furthest(self, start: int, limit: int) -> int:
        """Where the longest segment from `start` on ends that needs no more than allowed."""
        best = None
        for stop in range(start + 1, len(self.nodes) + 1):
            if best is not None and self.needs(start, stop) - self._alive[stop] > limit:
                break
            if self._blocked[stop]:
                continue
            if self.needs(start, stop) <= limit:
                best = stop
            elif best is None:
                what = describe(self.nodes[start]) if stop == start + 1 else self._span(start, stop)
                raise UnsupportedError(
                    f"memory_limit: {what} alone needs {size_text(self.needs(start, stop))}, and "
                    f"{size_text(limit)} are allowed: raise the limit, or make the samples smaller"
                )
        return len(self.nodes) if best is None else best

    def cut(self, start: int, stop: int) -> Cut:
        """The segment between two positions."""
        outputs = [o for node in self.nodes[start:stop] for o in node.output if o in self._last]
        carried = tuple(name for name in outputs if self._last[name] >= stop)
        read = dict.fromkeys(name for node in self.nodes[start:stop] for name in reads(node) if name in self._made)
        dropped = tuple(name for name in read if self._made[name] < start and self._last[name] < stop)
        return Cut(start, stop, carried, dropped)

    def _measure(self, types: Mapping[str, ValueType], inputs: set[str]) -> dict[str, int]:
        sizes = {name: _bytes(types.get(name, _UNTYPED)) or 0 for name in inputs}
        for node in self.nodes:
            most = max((sizes.get(name, 0) for name in reads(node)), default=0)
            for name in filter(None, node.output):
                known = _bytes(types.get(name, _UNTYPED))
                sizes[name] = most if known is None else known
        return sizes

    def _span(self, start: int, stop: int) -> str:
        return f"what lies between {describe(self.nodes[start])} and {describe(self.nodes[stop - 1])}"


def size_text(number: int) -> str:
    """A number of bytes for a person, rounded up."""
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if number >= factor:
            return f"{math.ceil(number * 10 / factor) / 10:g} {unit}"
    return f"{number} bytes"


def _with_shapes(model: ModelProto, shapes: Mapping[str, Sequence[int]]) -> ModelProto:
    copy = ModelProto()
    copy.CopyFrom(model)
    for value in copy.graph.input:
        if value.name in shapes:
            kind = value.type.tensor_type.elem_type
            value.CopyFrom(helper.make_tensor_value_info(value.name, kind, list(shapes[value.name])))
    return copy


def _is_carriable(found: ValueType) -> bool:
    """Whether numpy can hold the value between two runs, and the runtime take it back."""
    if found.kind != "tensor" or found.elem_type in (TensorProto.UNDEFINED, TensorProto.STRING):
        return False
    return helper.tensor_dtype_to_np_dtype(found.elem_type).type.__module__ == "numpy"


def _bytes(found: ValueType) -> int | None:
    if found.kind != "tensor" or found.elem_type in (TensorProto.UNDEFINED, TensorProto.STRING) or found.shape is None:
        return None
    if not all(isinstance(dim, int) for dim in found.shape):
        return None
    itemsize = np.dtype(helper.tensor_dtype_to_np_dtype(found.elem_type)).itemsize
    return math.prod(dim for dim in found.shape if isinstance(dim, int)) * itemsize
