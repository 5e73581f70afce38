"""Writes a precision assignment into a model: Casts where precisions meet, constants in the precision of their readers.

    x (float32 input) -> Cast -> Conv (half) -> y_low -> Cast -> y (float32 output)

A tensor has one precision where it is made. Whoever wants the other one reads a Cast of it; all such readers share one.
What can be made in either precision (a stored constant, a ConstantOfShape, a Cast of integers) is made in the one that
its readers want, and a constant or Cast in both if they differ. Bodies of If, Loop and Scan have float32 boundaries, so
that both sides of each boundary agree (rule F6); inside, the same rules hold.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from onnxq.graph import ABSENT, MAIN_GRAPH, Edge, GraphIndex
from onnxq.precision.assign import Assignment
from onnxq.precision.operators import FLOAT, QDQ, READS_ANY, SOURCES
from onnxq.precision.values import constant_value, overflows, scale_to_low, to_low
from onnxq.protos import NameSource, is_default_domain
from onnxq.tensor_data import tensor_values


def write_precision(
    model: ModelProto, index: GraphIndex, assignment: Assignment, low: int, *, keep_io_types: bool
) -> None:
    """Lower a model in place. The index is void afterwards.

    Args:
        model: The model that `index` was built from.
        index: Its index.
        assignment: The precision of each node.
        low: The half-precision type.
        keep_io_types: Whether the model's float32 inputs and outputs stay float32. Otherwise they become half.
    """
    writer = _Writer(model, index, assignment, low, keep_io_types=keep_io_types)
    for tensor, found in enumerate(index.tensor_types):
        if found.kind == "tensor" and found.elem_type == FLOAT:
            writer.settle(tensor)
    writer.retype_captured()
    for scope in reversed(range(len(index.scopes))):  # inner graphs first: rebuilding an outer one copies them
        writer.rebuild(scope)


@dataclass
class _Additions:
    """What goes into one graph: nodes at its beginning, and nodes behind others."""

    first: list[NodeProto] = field(default_factory=list)
    after: dict[int, list[NodeProto]] = field(default_factory=dict)


class _Writer:
    """Settles one tensor after the other, collecting new nodes, then puts them in."""

    def __init__(
        self, model: ModelProto, index: GraphIndex, assignment: Assignment, low: int, *, keep_io_types: bool
    ) -> None:
        self._index = index
        self._assignment = assignment
        self._low = low
        self._keep_io_types = keep_io_types
        self._names = NameSource(model)
        self._suffix = TensorProto.DataType.Name(low).lower()
        self._made: dict[int, int] = {}
        self._additions = [_Additions() for _ in index.scopes]
        self._inputs = {id(s.graph): {v.name: v for v in s.graph.input} for s in index.scopes}
        self._outputs = {id(s.graph): {v.name: v for v in s.graph.output} for s in index.scopes}
        self._declared = {id(s.graph): {v.name: v for v in s.graph.value_info} for s in index.scopes}

    def settle(self, tensor: int) -> None:
        """Decide in which precision a float32 tensor is made, and serve its readers."""
        index = self._index
        low, wide = self._readers(tensor)
        producer, is_output = index.producers[tensor], index.is_output[tensor]
        is_main = index.tensor_scope[tensor] == MAIN_GRAPH
        public_low = is_main and not self._keep_io_types
        graph = self._graph(tensor)
        declared = self._inputs[id(graph)].get(index.tensor_names[tensor])
        is_public = declared is not None or (is_output and tensor in index.initializers)
        if is_public and public_low and not self._is_beyond_range(tensor):
            self._retype(declared)
            self._convert_initializer(tensor)
            self._made_low(tensor, low, wide, public_low=True)
        elif declared is not None:
            self._made_float(tensor, low, public_low=False)
        elif tensor in index.initializers:
            self._settle_initializer(graph, tensor, low, is_read_wide=bool(wide) or is_output)
        elif low and not is_output and self._settle_source(tensor, low, wide):
            return
        elif self._is_low(producer, tensor):
            self._made_low(tensor, low, wide, public_low=public_low)
        else:
            self._made_float(tensor, low, public_low=public_low)

    def rebuild(self, scope: int) -> None:
        """Put the collected nodes of one graph into it."""
        index, additions = self._index, self._additions[scope]
        graph = index.scopes[scope].graph
        own = (n for n, s in enumerate(index.node_scope) if s == scope)
        nodes = [*additions.first, *(x for n in own for x in (index.nodes[n], *additions.after.get(n, ())))]
        del graph.node[:]
        graph.node.extend(nodes)

    def retype_captured(self) -> None:
        """Bodies may declare the types of outer tensors that they read."""
        lowered = {self._index.tensor_names[t] for t, made in self._made.items() if made == self._low}
        for scope in self._index.scopes[1:]:
            for value in scope.graph.value_info:
                if value.name in lowered and value.type.tensor_type.elem_type == FLOAT:
                    self._retype(value)

    def _readers(self, tensor: int) -> tuple[list[Edge], list[Edge]]:
        low: list[Edge] = []
        wide: list[Edge] = []
        for edge in self._index.consumers[tensor]:
            node = self._index.nodes[edge.node]
            if node.op_type in READS_ANY and is_default_domain(node):
                continue
            slots = self._assignment.slots.get(edge.node)
            (low if slots is not None and edge.input in slots.inputs else wide).append(edge)
        return low, wide

    def _is_low(self, producer: int, tensor: int) -> bool:
        slots = self._assignment.slots.get(producer) if producer != ABSENT else None
        return slots is not None and self._index.outputs[producer].index(tensor) in slots.outputs

    def _made_low(self, tensor: int, low: list[Edge], wide: list[Edge], *, public_low: bool) -> None:
        """The tensor is made in half precision. A float32 output gets its name by a Cast from a new tensor."""
        name = self._index.tensor_names[tensor]
        graph, is_output = self._graph(tensor), self._index.is_output[tensor]
        self._made[tensor] = self._low
        if is_output and not public_low:
            made = self._names.fresh(f"{name}_{self._suffix}")
            self._made[tensor] = FLOAT  # under its own name
            self._rename_output(tensor, made)
            self._redirect(low, made)
            self._nodes_behind(tensor).append(self._cast(made, name, FLOAT))
            return
        if is_output:
            self._retype(self._outputs[id(graph)][name])
        self._retype(self._declared[id(graph)].get(name))
        self._cast_for(wide, tensor, FLOAT)

    def _made_float(self, tensor: int, low: list[Edge], *, public_low: bool) -> None:
        """The tensor is made in float32. A half-precision output gets its name by a Cast from a new tensor."""
        name = self._index.tensor_names[tensor]
        if self._index.is_output[tensor] and public_low:
            graph = self._graph(tensor)
            made = self._names.fresh(f"{name}_float")
            self._retype(self._outputs[id(graph)][name])
            self._retype(self._declared[id(graph)].get(name))
            self._rename_output(tensor, made)
            self._redirect([e for e in self._index.consumers[tensor] if e not in low], made)
            self._nodes_behind(tensor).append(self._cast(made, name, self._low))
        elif low:
            self._declare(tensor)
            self._cast_for(low, tensor, self._low)

    def _declare(self, tensor: int) -> None:
        """What a custom operator yields is known from who reads it, unless it is declared. A Cast reads anything."""
        index, graph, name = self._index, self._graph(tensor), self._index.tensor_names[tensor]
        producer = index.producers[tensor]
        if producer == ABSENT or is_default_domain(index.nodes[producer]) or index.is_output[tensor]:
            return
        if name not in self._declared[id(graph)]:
            shape = index.tensor_types[tensor].shape
            graph.value_info.append(helper.make_tensor_value_info(name, FLOAT, shape))

    def _settle_initializer(self, graph: GraphProto, tensor: int, low: list[Edge], *, is_read_wide: bool) -> None:
        stored = self._index.initializers[tensor]
        if low and not is_read_wide:
            self._convert_initializer(tensor)
            self._retype(self._declared[id(graph)].get(stored.name))
        elif low:
            name = self._names.fresh(f"{stored.name}_{self._suffix}")
            graph.initializer.append(numpy_helper.from_array(self._lowered(tensor), name))
            self._redirect(low, name)

    def _is_beyond_range(self, tensor: int) -> bool:
        stored = self._index.initializers.get(tensor)
        return stored is not None and overflows(tensor_values(stored), self._low)

    def _convert_initializer(self, tensor: int) -> None:
        stored = self._index.initializers.get(tensor)
        if stored is not None:
            doc = stored.doc_string
            stored.CopyFrom(numpy_helper.from_array(self._lowered(tensor), stored.name))
            stored.doc_string = doc

    def _lowered(self, tensor: int) -> NDArray[Any]:
        """The values of an initializer in half precision."""
        readers = self._index.consumers[tensor]
        is_scale = readers and all(e.input == 1 and self._index.nodes[e.node].op_type in QDQ for e in readers)
        return (scale_to_low if is_scale else to_low)(tensor_values(self._index.initializers[tensor]), self._low)

    def _settle_source(self, tensor: int, low: list[Edge], wide: list[Edge]) -> bool:
        """A node that can yield either precision. Returns whether the tensor was settled here."""
        producer = self._index.producers[tensor]
        changed = self._in_low(producer)
        if changed is None or (wide and changed.op_type == "ConstantOfShape"):
            return False
        if not wide:
            self._index.nodes[producer].CopyFrom(changed)
            self._made[tensor] = self._low
            self._retype(self._declared[id(self._graph(tensor))].get(changed.output[0]))
            return True
        changed.name = self._names.fresh(f"{changed.name}_{self._suffix}")
        changed.output[0] = self._names.fresh(f"{changed.output[0]}_{self._suffix}")
        self._redirect(low, changed.output[0])
        self._nodes_behind(tensor).append(changed)
        return True

    def _in_low(self, producer: int) -> NodeProto | None:
        """The node as it yields half precision: a Constant, a ConstantOfShape, a Cast of no float; else None."""
        node = self._index.nodes[producer]
        if not is_default_domain(node) or producer in self._assignment.kept:
            return None
        changed = NodeProto()
        changed.CopyFrom(node)
        if node.op_type in SOURCES:
            value = constant_value(node)
            if value is None:
                return None
            lowered = numpy_helper.from_array(to_low(value, self._low))
            del changed.attribute[:]
            changed.attribute.append(helper.make_attribute("value", lowered))
            return changed
        if node.op_type == "Cast" and not self._index.tensor_types[self._index.inputs[producer][0]].is_float:
            for attribute in changed.attribute:
                if attribute.name == "to":
                    attribute.i = self._low
            return changed
        return None

    def _cast_for(self, readers: list[Edge], tensor: int, to: int) -> None:
        """Let readers, those in bodies too, read a Cast of a tensor."""
        if readers:
            name, suffix = self._index.tensor_names[tensor], "float" if to == FLOAT else self._suffix
            result = self._names.fresh(f"{name}_{suffix}")
            self._nodes_behind(tensor).append(self._cast(name, result, to))
            self._redirect(readers, result)

    def _cast(self, source: str, result: str, to: int) -> NodeProto:
        return helper.make_node("Cast", [source], [result], name=self._names.fresh(f"{result}_cast"), to=to)

    def _nodes_behind(self, tensor: int) -> list[NodeProto]:
        additions = self._additions[self._index.tensor_scope[tensor]]
        producer = self._index.producers[tensor]
        return additions.first if producer == ABSENT else additions.after.setdefault(producer, [])

    def _redirect(self, edges: Iterable[Edge], name: str) -> None:
        for edge in edges:
            self._index.nodes[edge.node].input[edge.input] = name

    def _rename_output(self, tensor: int, name: str) -> None:
        producer = self._index.producers[tensor]
        self._index.nodes[producer].output[self._index.outputs[producer].index(tensor)] = name

    def _retype(self, value: ValueInfoProto | None) -> None:
        if value is not None:
            value.type.tensor_type.elem_type = self._low

    def _graph(self, tensor: int) -> GraphProto:
        return self._index.scopes[self._index.tensor_scope[tensor]].graph
