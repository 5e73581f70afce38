"""Pooling ops follow their neighbours (rule P3): int8 where what stands before or behind works in int8, else float.

    int8 Conv -> Relu -> pool                          yes: the data are stored in int8 anyway, a fourth of the reading
    int8 Conv -> Add(int8 skip) -> Relu -> pool        yes: the Add is part of the kernel
    pool -> Flatten -> int8 Gemm                       yes: the result is wanted in int8
    pool -> pool -> Concat -> int8 Conv                both: an int8 pool is a neighbour that works in int8
    pool -> Relu -> int8 Conv                          no: Relu is a kernel of its own there, and computes in float
    Conv -> Relu -> MaxPool                            no pair of its own: the pool closes the convolution's pattern

One walk over the nodes backward finds who reads in int8, one forward who stores in int8. A pool that only the walk
forward takes has all its data from int8 kernels and int8 pools, so it can't be news to a pool before it. Two walks are
enough.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from onnxq.graph import ABSENT, Edge, GraphIndex, stored_value
from onnxq.placement.backbone import Backbones
from onnxq.placement.kernels import Decisions, common_origin, moved
from onnxq.placement.never import Unseen, why_exact, why_never
from onnxq.placement.ops import POOLS
from onnxq.placement.placement import Decision, Reason
from onnxq.placement.rules import Rule
from onnxq.protos import is_default_domain


def pooling_decisions(
    index: GraphIndex,
    candidates: Iterable[int],
    decisions: Decisions,
    kernels: Sequence[int],
    backbones: Backbones,
    unseen: Unseen,
) -> dict[Edge, Decision]:
    """Decide the data input of each pooling op.

    Args:
        index: The model.
        candidates: Numbers of the nodes that may be quantized and that no other rule has decided.
        decisions: Of all nodes with other rules.
        kernels: The int8 kernel that stores each tensor, as `kernel_results` gives it.
        backbones: The convolution that can still finish each tensor.
        unseen: What calibration saw no value of.
    """
    pools = {n for n in candidates if is_pool(index, n) and Edge(n, 0) in decisions}
    decided = {
        pool: Decision(False, why) for pool in sorted(pools) if (why := _why_not(index, pool, backbones, unseen))
    }
    taken = _follow(index, pools - decided.keys(), decisions, kernels)
    for pool in pools - decided.keys():
        why = taken.get(pool, Reason(Rule.P3, detail="no neighbour works in int8"))
        decided[pool] = Decision(pool in taken, why)
    return {Edge(pool, 0): decided[pool] for pool in sorted(pools)}


def is_pool(index: GraphIndex, node: int) -> bool:
    """Whether the node is a pooling op of the ONNX standard, or global average pooling written as ReduceMean.

    Exporters write the global pool in both ways, depending on how the source spells it (a mean over the last two axes
    or a pooling layer), and TensorRT's parser makes a reduction of both. So they are one thing to it, and get the same.
    """
    proto = index.nodes[node]
    if not is_default_domain(proto) or index.outputs[node][0] == ABSENT:
        return False
    return proto.op_type in POOLS or (proto.op_type == "ReduceMean" and _is_global_pool(index, node))


def _is_global_pool(index: GraphIndex, node: int) -> bool:
    """Whether a ReduceMean is over height and width (and depth), and no step of a normalization.

    Three axes don't say which of them are the channels: a mean over the last one is a global pool of [N, C, L], but the
    first step of a normalization of [N, T, C]. So it stays float.

    t -+-> ReduceMean -+-> Sub      a mean that is taken off its own data is a statistic: rounding it shifts everything
       `---------------'
    """
    data, result = index.inputs[node][0], index.outputs[node][0]
    rank = index.tensor_types[data].rank
    axes = _axes(index, node)
    if rank is None or rank < 4 or axes is None or {a % rank for a in axes} != set(range(2, rank)):
        return False
    return not _is_taken_off(index, result, index.origins[data])


def _is_taken_off(index: GraphIndex, mean: int, data: int) -> bool:
    """Whether a Sub joins the tensor, or a copy of it, with `data`."""
    copies = [mean]
    for tensor in copies:
        for reader in (edge.node for edge in index.consumers[tensor]):
            if index.nodes[reader].op_type == "Sub" and data in (index.origins[t] for t in index.inputs[reader]):
                return True
            if moved(index, reader) == (tensor,):  # of one source, so that no copy is visited for two means
                copies.extend(t for t in index.outputs[reader] if t != ABSENT)
    return False


def _axes(index: GraphIndex, node: int) -> list[int] | None:
    """The axes of a reduction, as attribute or as second input; None if it names none, or computes them."""
    if len(index.inputs[node]) < 2 or index.inputs[node][1] == ABSENT:
        return next((list(a.ints) for a in index.nodes[node].attribute if a.name == "axes"), None)
    value = stored_value(index, index.origins[index.inputs[node][1]])
    return None if value is None else [int(axis) for axis in value.reshape(-1)]


def _why_not(index: GraphIndex, pool: int, backbones: Backbones, unseen: Unseen) -> Reason | None:
    """Why a pool gets no pair whatever its neighbours do; None if that is up to them."""
    why = why_exact(index, pool, 0) or why_never(index, Edge(pool, 0), unseen)
    if why:
        return Reason(Rule.P6, detail=f"it {why}")
    conv = backbones.of_tensor[index.outputs[pool][0]]
    if conv != ABSENT:
        return Reason(Rule.P3, (conv,), f'the pool closes the pattern of "{index.nodes[conv].name}"')
    return None


def _follow(index: GraphIndex, pools: set[int], decisions: Decisions, kernels: Sequence[int]) -> dict[int, Reason]:
    """The pools with a neighbour that works in int8, each with that neighbour."""
    readers = _int8_readers(index, pools, decisions)
    stored = list(kernels)  # like `kernels`, and int8 pools count as well
    taken: dict[int, Reason] = {}
    for node in range(len(index.nodes)):
        if node in pools:
            reader, data = readers[index.outputs[node][0]], index.inputs[node][0]
            producer = stored[data] if index.local_producer(data, node) != ABSENT else ABSENT
            if reader != ABSENT:
                taken[node] = Reason(Rule.P3, (reader,), f'"{index.nodes[reader].name}" reads its result in int8')
            elif producer != ABSENT:
                taken[node] = Reason(Rule.P3, (producer,), f'"{index.nodes[producer].name}" stores its data in int8')
            origin = node if node in taken else ABSENT
        else:
            origin = common_origin(index, node, moved(index, node), stored)
        for tensor in index.outputs[node]:
            if tensor != ABSENT and stored[tensor] == ABSENT:
                stored[tensor] = origin
    return taken


def _int8_readers(index: GraphIndex, pools: set[int], decisions: Decisions) -> list[int]:
    """By tensor: a node that reads it quantized, itself or its copies; such a pool counts, and hence its readers do.

    Readers in bodies don't: a body captures the tensor as it is, and quantizes it for itself.
    """
    readers = [ABSENT] * len(index.tensor_names)
    for edge, decision in decisions.items():
        tensor = index.inputs[edge.node][edge.input]
        is_local = index.local_producer(tensor, edge.node) != ABSENT
        if decision.quantize and not decision.constant and is_local and readers[tensor] == ABSENT:
            readers[tensor] = edge.node
    for node in reversed(range(len(index.nodes))):
        reader = next((readers[t] for t in index.outputs[node] if t != ABSENT and readers[t] != ABSENT), ABSENT)
        if reader == ABSENT:
            continue
        sources, seen = (index.inputs[node][:1], node) if node in pools else (moved(index, node), reader)
        for source in sources:
            if source != ABSENT and readers[source] == ABSENT and index.local_producer(source, node) != ABSENT:
                readers[source] = seen
    return readers
