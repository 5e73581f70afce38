"""The edges of integer kernels: what each reads, where the pair behind it stands, who reads that (policy onnxruntime).

Conv --> Q -> DQ --> Sigmoid -> Q -> DQ --> Mul        the pair stands behind the Conv, and all its readers
`--------------------------'             read the dequantized value
Conv -> Relu --> Q -> DQ --> Conv                      it stands behind the Relu, which the kernel absorbs
`----> float op
Conv --> Q -> DQ --> y (graph output)                  if outputs are to be quantized, the caller is such a reader
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Set
from dataclasses import replace

from onnxq.graph import ABSENT, MAIN_GRAPH, Edge, GraphIndex, Use
from onnxq.placement.absorbed import absorbable, all_within, clipped_to, known_bounds, only_reader, stored_by
from onnxq.placement.integer_kernels import LinearKernel, keeps_scale, operand_axis, results, why_stays_float
from onnxq.placement.placement import Decision, Reason
from onnxq.placement.rules import Rule
from onnxq.placement.scale_groups import find_scale_groups
from onnxq.placement.selection import Selection


class EdgeWriter:
    """Collects the decisions. First everything is told that reads integers, then what stores them.

    Args:
        index: The model.
        selection: What may be quantized.
        activation_type: Integer type of activations.
        asked_outputs: Graph outputs that are quantized where a kernel yields them.

    Attributes:
        decisions: The edges.
        outputs: The graph outputs that are quantized.
    """

    def __init__(self, index: GraphIndex, selection: Selection, activation_type: str, asked_outputs: Set[int]) -> None:
        self._index = index
        self._exclude = selection.exclude
        self._activation = Decision(True, Reason(Rule.O3), dtype=activation_type, symmetric=False)
        self._asked_outputs = asked_outputs
        self.decisions: dict[Edge, Decision] = {}
        self.outputs: dict[Use, Decision] = {}

    def read(self, node: int, slots: Iterable[int], reason: Reason) -> None:
        """Quantize inputs of an op; constants have the type of the activations too."""
        for slot in slots:
            constant = self._index.is_constant(self._index.inputs[node][slot])
            self.decisions[Edge(node, slot)] = replace(self._activation, reason=reason, constant=constant)

    def read_linear(self, kernel: LinearKernel) -> None:
        """O1 and O2: data, weight and bias of a linear op."""
        node = kernel.node
        self.read(node, (0, 1), Reason(Rule.O1, detail="data"))
        if self._index.is_constant(self._index.inputs[node][1]):
            axis = operand_axis(self._index, node, 1)
            detail = "weight, one scale in all" if axis is None else "weight, one scale an output channel"
            self.decisions[Edge(node, 1)] = Decision(True, Reason(Rule.O1, detail=detail), constant=True, axis=axis)
        if kernel.bias is not None:
            rank = self._index.tensor_types[self._index.inputs[kernel.bias.node][kernel.bias.input]].rank or 1
            axis = rank - 1 if self.decisions[Edge(node, 1)].axis is not None else None
            reason = Reason(Rule.O2, () if kernel.bias.node == node else (node,))
            factors = (Edge(node, 0), Edge(node, 1))
            self.decisions[kernel.bias] = Decision(True, reason, True, axis, "int32", product_of=factors)

    def read_as_asked(self, node: int, asked: Mapping[int, Decision]) -> None:
        """Inputs of an op that the user named and that runs in float whatever it reads."""
        for slot, decision in asked.items():
            if decision.quantize and not decision.constant:
                self.read(node, (slot,), decision.reason)
            elif slot < len(self._index.inputs[node]):
                self.decisions[Edge(node, slot)] = decision

    def store(self, linear: Iterable[LinearKernel], followers: Collection[int]) -> None:
        """O4: everything that reads what a kernel stores reads the dequantized value.

        Args:
            linear: The linear kernels.
            followers: The other nodes that run as integer kernels.
        """
        read = {self._index.use(edge) for edge, decision in self.decisions.items() if not decision.constant}
        read |= {Use(MAIN_GRAPH, tensor) for tensor in self._asked_outputs}
        own = {self._of(k.node, k.result) for k in linear if self._must_store(k, read)}
        moved = set[Use]()
        for node in followers:
            target = moved if keeps_scale(self._index, node) else own
            target.update(self._of(node, tensor) for tensor in results(self._index, node))
        behind = self._behind_activations(own, read | moved, followers)
        for use in sorted({*moved, *(behind.get(use, use) for use in own)}):
            producer = self._index.producers[use.tensor]
            reason = Reason(Rule.O4, (producer,), f'stored by the kernel of "{self._index.nodes[producer].name}"')
            for edge in self._index.consumers[use.tensor]:
                self.decisions.setdefault(edge, replace(self._activation, reason=reason))
            if use.tensor in self._asked_outputs:
                self.outputs[use] = replace(self._activation, reason=replace(reason, rule=Rule.OUTPUT))

    def keep(self, node: int, reason: Reason | None) -> None:
        """Leave the inputs of an op float that nothing else was said of, for a reason."""
        for slot, tensor in enumerate(self._index.inputs[node] if reason is not None else ()):
            if tensor != ABSENT and reason is not None:
                self.decisions.setdefault(Edge(node, slot), Decision(False, reason))

    def _must_store(self, kernel: LinearKernel, read: Collection[Use]) -> bool:
        """Whether a linear op stores integers: always, unless its kernel can yield float and nothing stands against it.

        Gemm -> float op                           float
        Gemm -> op that reads integers             integers
        Gemm -> Relu -> float op                   integers: with one reader behind it, the Relu is taken for a part of
                                                   the kernel's pattern, which then lacks its QuantizeLinear
        MatMul of matrices -> Add(computed)        integers: they would be made a Gemm without an int32 bias
        """
        index = self._index
        if why_stays_float(index, kernel.result, self._asked_outputs):
            return False
        stored = stored_by(index, kernel.result, self._exclude)
        if not kernel.may_be_float or any(self._of(kernel.node, t) in read for t in stored):
            return True
        reader = only_reader(index, kernel.result)
        if reader == ABSENT:
            return False
        if index.nodes[reader].op_type in ("Relu", "Clip"):
            return only_reader(index, index.outputs[reader][0]) != ABSENT
        is_matrix = index.tensor_types[kernel.result].rank in (None, 2)
        is_plain = index.nodes[kernel.node].op_type == "MatMul" and kernel.bias is None
        return index.nodes[reader].op_type == "Add" and is_matrix and is_plain

    def _behind_activations(
        self, own: Collection[Use], others: Collection[Use], followers: Iterable[int]
    ) -> dict[Use, Use]:
        """Results of kernels whose pair stands behind the activation that the kernel absorbs -> its result.

        Args:
            own: What kernels store that may absorb an activation.
            others: What else is quantized.
            followers: The nodes that run as integer kernels and aren't linear.
        """
        index = self._index
        activations = {use: absorbable(index, use.tensor, self._exclude) for use in own}
        behind = {
            use: Use(use.scope, index.outputs[node][0])
            for use, node in activations.items()
            if node != ABSENT and not why_stays_float(index, index.outputs[node][0], self._asked_outputs)
        }
        quantized = {*others, *(behind.get(use, use) for use in own)}
        groups = find_scale_groups(index, quantized, followers)
        members = {use: group for group in groups for use in group}
        bounds = known_bounds(index)
        return {
            use: result
            for use, result in behind.items()
            if all_within(
                (bounds[u.tensor] for u in members.get(result, [result])), clipped_to(index, activations[use])
            )
        }

    def _of(self, node: int, tensor: int) -> Use:
        return Use(self._index.node_scope[node], tensor)
