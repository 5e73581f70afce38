"""Running the part of a model that some tensors need, with a probe on each, whole or a segment at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onnx import ModelProto, helper

from onnxq.calibration.extract import extract, reads
from onnxq.calibration.probes import Probe, probing
from onnxq.calibration.runtime import Session, open_session, run, serialize
from onnxq.calibration.segments import Cut, MemoryBound, cut
from onnxq.protos import copy_fields
from onnxq.scopes import locate
from onnxq.tensor_types import GraphTypes, ValueType

Readings = tuple[str, list[Any]]
"""Key of a tensor, and what its probe read off it in one run."""


@dataclass(frozen=True)
class Setup:
    """How the runtime runs a model.

    Attributes:
        optimize: Whether it may rewrite the graph.
        threads: How many it uses; 0 for all cores.
        types: Types of the model's values, as far as they are known beside what it declares.
        memory: Bound on the memory that activations take; None for none.
    """

    optimize: bool = False
    threads: int = 0
    types: GraphTypes | None = None
    memory: MemoryBound | None = None


@dataclass(frozen=True)
class _Segment:
    """A loaded segment: its outputs are the readings of some tensors, then what it carries."""

    session: Session
    tensors: tuple[str, ...]
    carried: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()


class ProbedModel:
    """A model with probes, loaded.

    Under a memory bound it is cut for the shapes of the first sample, and anew when a sample of other shapes comes.
    """

    def __init__(self, model: ModelProto, tensors: Sequence[str], probe: Probe, setup: Setup) -> None:
        """Load the model, unless the shapes of a sample are to decide how.

        Args:
            model: The float model, prepared.
            tensors: Keys of float tensors, each once.
            probe: What to put on each; it reads as many values off all tensors.
            setup: How to run it.

        Raises:
            CalibrationError: The runtime refuses the model.
        """
        self._model, self._tensors, self._probe, self._setup = model, tuple(tensors), probe, setup
        types = setup.types.tensors if setup.types is not None else {}
        self._types = {name: found.elem_type for name, found in types.items()}
        self._shapes: dict[str, tuple[int, ...]] | None = None
        self._cuts: tuple[Cut, ...] = ()
        self._segments = [self._load(model, self._tensors)] if setup.memory is None else []

    def run(self, feed: Mapping[str, Any], where: str) -> Iterator[Readings]:
        """Run it on one sample.

        Args:
            feed: Input name -> value.
            where: Which sample this is, for messages.

        Yields:
            The readings of each tensor; nothing keeps them alive here afterwards.

        Raises:
            CalibrationError: An input has no value, or the runtime fails.
            UnsupportedError: The memory bound is too small.
        """
        if self._setup.memory is not None:
            self._cut(feed, self._setup.memory)
        values = dict(feed)
        for segment in self._segments:
            results = run(segment.session, values, where)
            if segment.carried:
                values |= zip(segment.carried, results[-len(segment.carried) :], strict=True)
                del results[-len(segment.carried) :]
            for name in segment.dropped:
                del values[name]
            each = len(results) // max(len(segment.tensors), 1)
            results.reverse()
            for tensor in segment.tensors:
                yield tensor, [results.pop() for _ in range(each)]

    def _load(
        self, model: ModelProto, tensors: tuple[str, ...], carried: tuple[str, ...] = (), dropped: tuple[str, ...] = ()
    ) -> _Segment:
        program = serialize(probing(model, tensors, self._probe, types=self._types, carried=carried))
        arena = self._setup.memory is None  # an arena keeps what it once had, for each segment
        session = open_session(program, optimize=self._setup.optimize, threads=self._setup.threads, arena=arena)
        return _Segment(session, tensors, carried, dropped)

    def _cut(self, feed: Mapping[str, Any], bound: MemoryBound) -> None:
        shapes = {name: tuple(value.shape) for name, value in feed.items()}
        if shapes == self._shapes:
            return
        self._shapes = shapes
        part = extract(self._model, self._tensors)
        located = locate(part, self._tensors)
        fetched = [found.name for found in located.values() if found.site.root is None]
        cuts, types = cut(part, fetched, shapes, bound)
        if cuts == self._cuts and self._segments:
            return
        self._cuts, self._segments = cuts, []
        made = {name: number for number, node in enumerate(part.graph.node) for name in node.output}
        places = {
            key: made.get(found.name, 0) if found.site.root is None else found.site.root
            for key, found in located.items()
        }
        for piece in cuts or (Cut(0, 1, (), ()),):
            here = tuple(key for key in self._tensors if piece.start <= places[key] < piece.stop)
            self._segments.append(self._load(_segment(part, piece, types), here, piece.carried, piece.dropped))


def _segment(model: ModelProto, piece: Cut, types: Mapping[str, ValueType]) -> ModelProto:
    """The nodes of a segment as a model that has what is carried in among its inputs."""
    graph = model.graph
    nodes = graph.node[piece.start : piece.stop]
    made = {name for node in nodes for name in node.output}
    read = dict.fromkeys(name for node in nodes for name in reads(node) if name not in made)
    own = {value.name for value in graph.input}
    initializers = {tensor.name for tensor in graph.initializer} | {t.values.name for t in graph.sparse_initializer}
    outer = [name for name in read if name not in own | initializers]

    part = ModelProto()
    copy_fields(part, model, leave_out="graph")
    part.graph.name = graph.name
    part.graph.node.extend(nodes)
    first = piece.start == 0  # it looks at inputs and initializers too, which perhaps no node reads
    part.graph.initializer.extend(t for t in graph.initializer if first or t.name in read)
    part.graph.sparse_initializer.extend(t for t in graph.sparse_initializer if first or t.values.name in read)
    part.graph.input.extend(graph.input)
    part.graph.input.extend(helper.make_tensor_value_info(name, types[name].elem_type, None) for name in outer)
    return part
