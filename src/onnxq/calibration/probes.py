"""Looking at tensors inside the runtime, in the main graph and in bodies, so that only what was seen leaves it.

A probe is a few nodes that read something off a tensor. In a body the readings are handed out, and merged on the way:

    If      then: t -> probe -> low      else: +inf       each branch yields the readings of both; one that doesn't run
                                                          gives the neutral value, which says "saw nothing"
    Loop    body: t -> probe -> low      -> [n] -> ReduceMin -> low      the readings of all rounds, then one of them;
    Scan                                                                 no round gives an empty tensor, "saw nothing"

A Loop collects vectors, whose length may differ from round to round, in a tensor that it carries. Bodies in bodies are
no different: what the inner one hands out is read off in the outer one.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
import onnx
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from onnxq.calibration.extract import extract
from onnxq.errors import UnsupportedError
from onnxq.protos import NameSource, bodies, describe, is_default_domain, opset_version
from onnxq.scopes import body_path, locate
from onnxq.tensor_types import FLOAT_TYPES, value_type


class Merge(Enum):
    """How the readings of several runs of a body become one, and what a body that didn't run has read."""

    LEAST = "ReduceMin"
    GREATEST = "ReduceMax"
    TOTAL = "ReduceSum"
    ALL = "Reshape"
    """The readings are whole tensors; those of bodies become vectors, one behind the other."""


_NEUTRAL = {Merge.LEAST: np.inf, Merge.GREATEST: -np.inf, Merge.TOTAL: 0.0}


@dataclass(frozen=True, slots=True)
class Reading:
    """What a probe reads off a tensor.

    Attributes:
        output: The tensor that holds it: a scalar, or of `Merge.ALL` one of any shape.
        elem_type: Its element type.
        merge: How several of them become one.
    """

    output: str
    elem_type: int
    merge: Merge


Probe = Callable[[str, int, Callable[[str], str]], tuple[list[NodeProto], list[Reading]]]
"""(tensor, its element type, source of new names) -> nodes that look at the tensor, and what they read off it. The
element type is float or double: a tensor of another float type is widened first."""

PROBED_BODIES = {"If": ("then_branch", "else_branch"), "Loop": ("body",), "Scan": ("body",)}
"""Operators whose bodies can be looked into, and the attributes that hold these."""


def probing(
    model: ModelProto,
    tensors: Sequence[str],
    probe: Probe,
    *,
    types: Mapping[str, int] | None = None,
    carried: Sequence[str] = (),
) -> ModelProto:
    """The part of a model that computes some tensors, with a probe on each.

    Args:
        model: The float model, prepared; it isn't modified.
        tensors: Keys of float tensors, see `onnxq.scopes`, each once.
        probe: What to put on each.
        types: Element types of tensors of the main graph, as far as they are known beside what the model declares.
        carried: Tensors of the main graph that are outputs too, as they are.

    Returns:
        A model whose outputs are the readings, by tensor, then what is carried. It doesn't compute what they don't
        need.

    Raises:
        ValueError: A key is that of no tensor, or of one that is known to be no float tensor.
        UnsupportedError: A tensor is in a body of another operator than If, Loop and Scan.
    """
    locations = locate(model, tensors)
    part = extract(model, [*tensors, *carried])
    known = {**(types or {}), **_element_types(model.graph)}
    del part.graph.output[:]
    for value in part.graph.input:
        _open_dims(value)
    if not opset_version(part):
        part.opset_import.append(helper.make_opsetid("", 13))
    by_path: dict[str, list[str]] = {}
    for key in tensors:
        by_path.setdefault(locations[key].site.path, []).append(key)
    names = {key: location.name for key, location in locations.items()}
    readings = _Prober(probe, NameSource(part).fresh, names, by_path).add(part.graph, "", ChainMap(known))
    outputs = [*(r.output for key in tensors for r in readings[key]), *carried]
    part.graph.output.extend(onnx.ValueInfoProto(name=name) for name in outputs)
    return part


_Readings = dict[str, list[Reading]]
"""Key of a tensor -> its readings, in the graph at hand."""


@dataclass(frozen=True)
class _Prober:
    """Puts probes into graphs.

    Attributes:
        probe: The probe.
        fresh: Source of new names.
        names: Key of each tensor -> its name where it is.
        by_path: Path of a graph -> keys of the tensors to look at there.
    """

    probe: Probe
    fresh: Callable[[str], str]
    names: Mapping[str, str]
    by_path: Mapping[str, list[str]]

    def add(self, graph: GraphProto, path: str, types: ChainMap[str, int]) -> _Readings:
        """Put probes into a graph and the bodies below it."""
        found: _Readings = {}
        for node in list(graph.node):
            inner = {
                name: self.add(body, body_path(path, node, name), types.new_child(_element_types(body)))
                for name, body in bodies(node)
            }
            if any(inner.values()):
                found.update(self._hand_out(graph, node, inner))
        for key in self.by_path.get(path, ()):
            found[key] = self._look_at(graph, self.names[key], types)
        return found

    def _look_at(self, graph: GraphProto, tensor: str, types: Mapping[str, int]) -> list[Reading]:
        source, kind = tensor, types.get(tensor, TensorProto.UNDEFINED)
        if kind not in FLOAT_TYPES and kind != TensorProto.UNDEFINED:
            raise ValueError(
                f'"{tensor}" is {TensorProto.DataType.Name(kind).lower()}, only float tensors have a range'
            )
        if kind not in (TensorProto.FLOAT, TensorProto.DOUBLE):  # the runtime reduces no 16-bit floats
            source = self.fresh(f"{tensor}_wide")
            kind = TensorProto.DOUBLE if kind == TensorProto.UNDEFINED else TensorProto.FLOAT
            graph.node.append(helper.make_node("Cast", [tensor], [source], to=kind))
        nodes, readings = self.probe(source, kind, self.fresh)
        graph.node.extend(nodes)
        return readings

    def _hand_out(self, graph: GraphProto, owner: NodeProto, inner: Mapping[str, _Readings]) -> _Readings:
        """Let a node yield what its bodies read off, and add what merges it."""
        if owner.op_type not in PROBED_BODIES or not is_default_domain(owner):
            raise UnsupportedError(f"{describe(owner)} holds a body that can't be looked into: exclude its nodes")
        held = dict(bodies(owner))
        if owner.op_type == "If":
            return dict(self._hand_out_branch(owner, held, inner))
        body = held["body"]
        missing = _results(owner, body) - len(owner.output)
        owner.output.extend(self.fresh(f"{owner.name}_unread") for _ in range(missing))
        return {key: [self._hand_out_rounds(graph, owner, body, r) for r in rs] for key, rs in inner["body"].items()}

    def _hand_out_branch(
        self, owner: NodeProto, held: Mapping[str, GraphProto], inner: Mapping[str, _Readings]
    ) -> Iterator[tuple[str, list[Reading]]]:
        for branch, found in inner.items():
            other = next(body for name, body in held.items() if name != branch)
            for key, readings in found.items():
                yield key, [self._hand_out_choice(owner, held[branch], other, reading) for reading in readings]

    def _hand_out_choice(self, owner: NodeProto, body: GraphProto, other: GraphProto, reading: Reading) -> Reading:
        instead = self.fresh(f"{reading.output}_unseen")
        other.node.append(helper.make_node("Constant", [], [instead], value=_nothing(reading)))
        body.output.append(_declared(reading, self._handed_out(body, reading)))
        other.output.append(_declared(reading, instead))
        owner.output.append(self.fresh(f"{reading.output}_chosen"))
        return Reading(owner.output[-1], reading.elem_type, reading.merge)

    def _hand_out_rounds(self, graph: GraphProto, owner: NodeProto, body: GraphProto, reading: Reading) -> Reading:
        if reading.merge is Merge.ALL and owner.op_type == "Loop":
            return self._collect(graph, owner, body, reading)
        body.output.append(_declared(reading, self._handed_out(body, reading)))
        rounds, merged = self.fresh(f"{reading.output}_rounds"), self.fresh(f"{reading.output}_merged")
        owner.output.append(rounds)
        for item in owner.attribute:  # of Scan: one number a scan output
            if item.name in ("scan_output_axes", "scan_output_directions"):
                item.ints.append(0)
        if reading.merge is Merge.ALL:
            self._flatten(graph, rounds, merged)
        else:
            graph.node.append(helper.make_node(reading.merge.value, [rounds], [merged], keepdims=0))
        return Reading(merged, reading.elem_type, reading.merge)

    def _collect(self, graph: GraphProto, owner: NodeProto, body: GraphProto, reading: Reading) -> Reading:
        """Let a Loop carry a vector that each round appends to: what rounds yield apart has to be of one shape."""
        start, before, after, total = (
            self.fresh(f"{reading.output}_{what}") for what in ("start", "before", "after", "total")
        )
        graph.initializer.append(_nothing(reading))
        graph.initializer[-1].name = start
        flat = self._handed_out(body, reading)
        body.node.append(helper.make_node("Concat", [before, flat], [after], axis=0))
        owner.input.extend([""] * (2 - len(owner.input)))
        carried = len(owner.input) - 2
        owner.input.append(start)
        owner.output.insert(carried, total)
        body.input.append(_declared(reading, before))
        body.output.insert(1 + carried, _declared(reading, after))
        return Reading(total, reading.elem_type, reading.merge)

    def _handed_out(self, body: GraphProto, reading: Reading) -> str:
        """The output of a body for a reading; all parts of a whole have to be of one rank."""
        if reading.merge is not Merge.ALL:
            return reading.output
        flat = self.fresh(f"{reading.output}_flat")
        self._flatten(body, reading.output, flat)
        return flat

    def _flatten(self, graph: GraphProto, tensor: str, flat: str) -> None:
        shape = self.fresh(f"{tensor}_shape")
        graph.node.append(helper.make_node("Constant", [], [shape], value_ints=[-1]))
        graph.node.append(helper.make_node("Reshape", [tensor, shape], [flat]))


def _results(owner: NodeProto, body: GraphProto) -> int:
    """How many outputs a Loop or Scan has, those included that nobody reads."""
    return len(body.output) - (1 if owner.op_type == "Loop" else 0)


def _nothing(reading: Reading) -> TensorProto:
    """What a branch has read that didn't run."""
    dtype = helper.tensor_dtype_to_np_dtype(reading.elem_type)
    empty = np.zeros(0, dtype) if reading.merge is Merge.ALL else np.array(_NEUTRAL[reading.merge], dtype)
    return numpy_helper.from_array(empty)


def _declared(reading: Reading, name: str) -> onnx.ValueInfoProto:
    shape = [None] if reading.merge is Merge.ALL else []
    return helper.make_tensor_value_info(name, reading.elem_type, shape)


def _element_types(graph: GraphProto) -> dict[str, int]:
    declared = ((v.name, value_type(v.type).elem_type) for v in (*graph.value_info, *graph.output, *graph.input))
    known = {name: kind for name, kind in declared if kind != TensorProto.UNDEFINED}
    return {**known, **{t.name: t.data_type for t in graph.initializer}}


def _open_dims(value: onnx.ValueInfoProto) -> None:
    """Forget dims declared 0 or negative, as the check of the feeds does; the runtime takes a 0 at its word."""
    for dim in value.type.tensor_type.shape.dim:
        if dim.WhichOneof("value") == "dim_value" and dim.dim_value <= 0:
            dim.Clear()
