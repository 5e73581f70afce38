"""Decides every edge of a model: the rules in their order, each applied once to the whole graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace
from types import MappingProxyType

from onnxq.errors import UsageError
from onnxq.graph import ABSENT, Edge, GraphIndex, Use, build_dominators
from onnxq.placement.attention import long_attention
from onnxq.placement.backbone import Backbones, find_backbones
from onnxq.placement.integer_kernels import CPU_OP_TYPES
from onnxq.placement.kernels import is_int8, kernel_results
from onnxq.placement.linear import linear_decisions
from onnxq.placement.never import Unseen, why_exact, why_never
from onnxq.placement.normalization import normalization_decisions
from onnxq.placement.onnxruntime_policy import KernelRequest, place_kernels
from onnxq.placement.ops import is_control_flow, is_copy, is_linear
from onnxq.placement.outputs import NO_KERNEL, decide_outputs, integer_outputs, output_decisions
from onnxq.placement.placement import Decision, EdgeLabel, NodeLabel, OutputDecision, Placement, Reason
from onnxq.placement.pooling import pooling_decisions
from onnxq.placement.residual import ResidualAdd, find_residuals
from onnxq.placement.rules import Rule
from onnxq.placement.scale_groups import find_scale_groups
from onnxq.placement.selection import DEFAULT_OP_TYPES, Selection, SelectionOptions, near_matches, select
from onnxq.placement.unserved import unserved
from onnxq.policies import ACTIVATION_TYPES, POLICIES


def place(
    index: GraphIndex,
    options: SelectionOptions | None = None,
    *,
    unseen: Unseen = MappingProxyType({}),
    policy: str = "tensorrt",
    activation_type: str | None = None,
) -> Placement:
    """Work out which edges get Q/DQ. Every body is placed like a graph of its own.

    Args:
        index: The prepared model.
        options: What the user wants quantized; None for everything that the rules take.
        unseen: Tensors that calibration saw no value of, and how that came; what needs their ranges stays float (P6).
        policy: Whose kernels the result is for: "tensorrt" or "onnxruntime".
        activation_type: Integer type of the activations; None for the default of the policy.

    Returns:
        A decision with its reason for each edge that carries a float tensor.

    Raises:
        UsageError: The options name what isn't there, or the policy has no such type.
        UnsupportedError: The options ask for what is never quantized.
    """
    integers = activation_type_of(policy, activation_type)
    for_cpu = policy == "onnxruntime"
    selection = select(index, options or SelectionOptions(), CPU_OP_TYPES if for_cpu else DEFAULT_OP_TYPES)
    backbones = find_backbones(index)
    residuals = find_residuals(index, build_dominators(index), backbones)
    asks_for_outputs = options is not None and options.quantize_outputs
    decisions = _Decisions(index, selection, unseen)
    outputs = tuple[OutputDecision, ...]()
    if for_cpu:
        asked = integer_outputs(index, unseen) if asks_for_outputs else frozenset()
        request = KernelRequest(index, decisions.open_selection(), unseen, integers, decisions.asked_for(), asked)
        edges, stored = place_kernels(request, residuals, backbones)
        decisions.take(edges)
        if asks_for_outputs:
            outputs = decide_outputs(index, lambda use: stored.get(use, NO_KERNEL))
    else:
        decisions.decide(residuals, backbones)
        if asks_for_outputs:
            outputs = output_decisions(index, decisions.by_edge, selection.exclude, backbones, unseen)
    nodes = node_labels(index)
    return Placement(
        decisions=decisions.by_edge,
        labels={edge: _edge_label(index, nodes, edge) for edge in decisions.by_edge},
        residuals=tuple(residuals),
        scale_groups=_scale_groups(index, decisions.by_edge, outputs),
        nodes=nodes,
        outputs=outputs,
    )


def activation_type_of(policy: str, activation_type: str | None = None) -> str:
    """The integer type of activations: the one given, or the default of the policy.

    Raises:
        UsageError: The policy is unknown, or its target has no such type.
    """
    if policy not in POLICIES:
        near = near_matches(policy, set(POLICIES))
        raise UsageError(f"policy={policy!r} is unknown, it can be: {', '.join(POLICIES)}{near}")
    possible = ACTIVATION_TYPES[policy]
    if activation_type is not None and activation_type not in possible:
        raise UsageError(
            f"activation_type={activation_type!r} isn't possible with policy={policy!r}, which takes "
            f"{' or '.join(possible)}"
        )
    return activation_type or possible[0]


def node_labels(index: GraphIndex) -> tuple[NodeLabel, ...]:
    """How a person finds each node, by number."""
    return tuple(
        NodeLabel(index.scopes[scope].path, node.name, node.op_type, next((o for o in node.output if o), ""))
        for node, scope in zip(index.nodes, index.node_scope, strict=True)
    )


def _scale_groups(
    index: GraphIndex, decisions: Mapping[Edge, Decision], outputs: Iterable[OutputDecision]
) -> tuple[tuple[str, ...], ...]:
    """Keys of the activations that share a scale, graph outputs among them."""
    edges = [edge for edge, decision in decisions.items() if decision.quantize and not decision.constant]
    uses = {*map(index.use, edges), *(output.use for output in outputs if output.decision.quantize)}
    groups = find_scale_groups(index, uses, dict.fromkeys(edge.node for edge in edges))
    return tuple(tuple(index.key(use) for use in group) for group in groups)


def _edge_label(index: GraphIndex, nodes: Sequence[NodeLabel], edge: Edge) -> EdgeLabel:
    node = nodes[edge.node]
    tensor = index.tensor_names[index.inputs[edge.node][edge.input]]
    return EdgeLabel(node.graph, node.node, node.op_type, node.output, tensor)


def _calibratable(index: GraphIndex) -> list[bool]:
    """Whether calibration can look into each graph: the main one, and bodies of If, Loop and Scan in such graphs."""
    found: list[bool] = []
    for scope in index.scopes:
        owner = scope.owner
        found.append(owner == ABSENT or (is_control_flow(index, owner) and found[index.node_scope[owner]]))
    return found


class _Decisions:
    """The decisions so far; each edge is decided once, a residual Add's edges once more."""

    def __init__(self, index: GraphIndex, selection: Selection, unseen: Unseen) -> None:
        self._index = index
        self._selection = selection
        self._unseen = unseen
        self._can_calibrate = _calibratable(index)
        self._no_gain = unserved(index) | long_attention(index)
        self.by_edge: dict[Edge, Decision] = {}
        self._plain = {rule: Decision(False, Reason(rule)) for rule in Rule}

    def decide(self, residuals: Sequence[ResidualAdd], backbones: Backbones) -> None:
        """Policy tensorrt: every node, then residual Adds, then what follows its neighbours."""
        for node in range(len(self._index.nodes)):
            self._decide_node(node, self._by_input(node))
        in_int8 = {
            self._index.use(edge)
            for edge, decision in self.by_edge.items()
            if decision.quantize and not decision.constant and is_linear(self._index, edge.node)
        }
        for residual in residuals:
            self._decide_residual(residual, in_int8)
        followers = self._followers()
        self.by_edge |= normalization_decisions(self._index, followers, self.by_edge, self._unseen)
        kernels = kernel_results(self._index, self.by_edge, residuals, backbones)
        self.by_edge |= pooling_decisions(self._index, followers, self.by_edge, kernels, backbones, self._unseen)

    def take(self, decided: Mapping[Edge, Decision]) -> None:
        """Policy onnxruntime: what its rules decided."""
        slots: dict[int, dict[int, Decision]] = {}
        for edge, decision in decided.items():
            slots.setdefault(edge.node, {})[edge.input] = decision
        for node in range(len(self._index.nodes)):
            self._decide_node(node, slots.get(node, {}))

    def open_selection(self) -> Selection:
        """What of the selection can be calibrated."""
        nodes = frozenset(filter(self._is_open, self._selection.quantize))
        return replace(self._selection, quantize=nodes, by_name=self._selection.by_name & nodes)

    def asked_for(self) -> dict[int, dict[int, Decision]]:
        """What the inputs of each node get that the user named, whatever kernels there are."""
        return {node: self._by_input(node) for node in sorted(self._selection.by_name)}

    def _decide_node(self, node: int, decided: Mapping[int, Decision]) -> None:
        otherwise = self._plain[self._why_float(node)]
        for slot, tensor in enumerate(self._index.inputs[node]):
            if tensor != ABSENT and self._index.tensor_types[tensor].is_float:
                self.by_edge[Edge(node, slot)] = decided.get(slot, otherwise)

    def _decide_residual(self, residual: ResidualAdd, in_int8: Set[Use]) -> None:
        """R5 to R10: the skip edge gets Q/DQ if the trunk's convolution is quantized itself.

        Nor does R9 keep a skip float that a linear op reads quantized, beside a trunk that is merely too small (P2):

        s --+--> depthwise Conv, int8 -> Conv of 8 channels, float --> Add      the Add reads the int8 values of s that
            `---------------------------------------------------------'        are there, instead of a float copy
        """
        node = residual.node
        if not self._is_open(node):
            return
        reason = Reason(residual.rule, residual.looked_at, residual.why)
        if residual.skip is None or residual.trunk is None or residual.backbone is None:
            if node not in self._selection.by_name:
                self._set(node, {slot: Decision(False, reason) for slot in range(len(self._index.inputs[node]))})
            return
        skip, skip_edge = Decision(True, reason), Edge(node, residual.skip)
        is_small = residual.backbone in self._no_gain and residual.backbone not in self._selection.exclude
        is_there = is_small and self._index.use(skip_edge) in in_int8
        if not is_int8(self.by_edge, residual.backbone) and not is_there:
            name = self._index.nodes[residual.backbone].name
            skip = Decision(False, Reason(Rule.R9, residual.looked_at, f'"{name}" is not quantized'))
        never = why_never(self._index, skip_edge, self._unseen)
        if never:
            skip = Decision(False, Reason(Rule.P6, residual.looked_at, f"it {never}"))
        self._set(
            node, {residual.skip: skip, residual.trunk: Decision(False, replace(skip.reason, rule=residual.rule))}
        )

    def _is_open(self, node: int) -> bool:
        """Whether the user wants the node quantized, and calibration can see its inputs."""
        return node in self._selection.quantize and self._can_calibrate[self._index.node_scope[node]]

    def _followers(self) -> list[int]:
        """Nodes that may be quantized and that the user didn't ask for: the rules are to decide."""
        wanted = self._selection.quantize - self._selection.by_name
        return [node for node in sorted(wanted) if self._is_open(node)]

    def _set(self, node: int, decided: dict[int, Decision]) -> None:
        for slot, decision in decided.items():
            if Edge(node, slot) in self.by_edge:
                self.by_edge[Edge(node, slot)] = decision

    def _by_input(self, node: int) -> dict[int, Decision]:
        if not self._is_open(node):
            return {}
        if is_linear(self._index, node):
            return self._linear(node)
        return self._asked_for(node) if node in self._selection.by_name else {}

    def _linear(self, node: int) -> dict[int, Decision]:
        """P1, unless int8 gains nothing for the op and the user didn't ask for it (P2)."""
        decided = dict(linear_decisions(self._index, node, self._unseen))
        if node not in self._no_gain or node in self._selection.by_name:
            return decided
        stays_float = Decision(False, Reason(Rule.P2, detail=self._no_gain[node]))
        return {slot: stays_float if decision.quantize else decision for slot, decision in decided.items()}

    def _asked_for(self, node: int) -> dict[int, Decision]:
        """An op that has no rule of its own, but that the user asked for: its float data inputs."""
        decided = {}
        for slot, tensor in enumerate(self._index.inputs[node]):
            if not self._index.is_variable(tensor):
                continue
            why = why_exact(self._index, node, slot) or why_never(self._index, Edge(node, slot), self._unseen)
            reason = Reason(Rule.P6, detail=f"it {why}") if why else Reason(Rule.SELECTED)
            decided[slot] = Decision(not why, reason)
        return decided

    def _why_float(self, node: int) -> Rule:
        if node in self._selection.exclude:
            return Rule.P2
        if not self._can_calibrate[self._index.node_scope[node]]:
            return Rule.BODY
        if is_copy(self._index, node):
            return Rule.P5
        return Rule.P1 if is_linear(self._index, node) and node in self._selection.quantize else Rule.NOT_SELECTED
