"""Strategies for models with residual Adds, and the function that makes a model of a topology.

How the draws are shaped, for the sake of shrinking: whether to go on is drawn beside each block (0 stops), a block's
choices are drawn together, the simplest choice is the first one everywhere, and what a graph must not contain is a
drawn set that shrinks to nothing ("swarm testing", Groce et al., 2012).
"""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st
from hypothesis.errors import InvalidArgument

from onnxq.errors import UsageError
from onnxq.strategies.blocks import BLOCK_KINDS, write_block
from onnxq.strategies.labelled import LabelledModel
from onnxq.strategies.layers import LARGE
from onnxq.strategies.network import Network
from onnxq.strategies.topology import ACTIVATIONS, CONSTANTS, KINDS, NODE_NAMES, Block, Topology

FARTHEST = 7
"""How many tensors back a block may reach; an index beyond the oldest means the oldest."""

ROWS = 5
"""The kinds lie in so many rows. Whether to go on and the row are one choice: 0 stops, so a topology has about as many
blocks as there are rows."""

FORMS = 4 * max(FARTHEST + 1, *(facts.variants for facts in BLOCK_KINDS.values()))
"""How many numbers hold two flags and the variant of any kind."""


def build(topology: Topology) -> LabelledModel:
    """The model of a topology. Every topology has one, and always the same.

    The model is float32, batch 1, passes the checker and strict shape inference, and its outputs are finite on inputs
    of ordinary size. onnxruntime loads it unless all nodes have one name (`Topology.node_names`).
    """
    net = Network(topology)
    shape = (1, topology.channels, LARGE, LARGE)
    values = [net.input(shape) for _ in range(topology.inputs)]
    for block in topology.blocks:
        x, y = (values[-1 - min(back, len(values) - 1)] for back in (block.source, block.other))
        # Even a block that did nothing counts as a tensor, so that doing nothing moves no index of a later block.
        values.append(write_block(net, block, x, y))
    if net.is_empty:
        net.apply("Identity", [values[-1]], shape)
    return net.finish()


def residual_topologies(
    *,
    max_blocks: int = 8,
    kinds: Sequence[str] = KINDS,
    activations: Sequence[str] = ACTIVATIONS,
    node_names: Sequence[str] = NODE_NAMES,
    constants: Sequence[str] = CONSTANTS,
    max_inputs: int = 2,
    channels: int = 16,
    opset: int = 20,
) -> st.SearchStrategy[Topology]:
    """Topologies of residual networks, for `build`. All arguments restrict what is legal.

    Args:
        max_blocks: Most blocks in one topology.
        kinds: Block kinds allowed, out of `KINDS`.
        activations: Activations allowed, out of `ACTIVATIONS`.
        node_names: Ways to name nodes, out of `NODE_NAMES`. Leave out "repeated" for tools that refuse it.
        constants: Ways to store constants, out of `CONSTANTS`.
        max_inputs: Most graph inputs.
        channels: Channels of the graph inputs, a multiple of 16.
        opset: Version of the default operator set.

    Raises:
        InvalidArgument: An argument is out of range, empty, or unknown.
    """
    for name, given, known in (
        ("kinds", kinds, KINDS),
        ("activations", activations, ACTIVATIONS),
        ("node_names", node_names, NODE_NAMES),
        ("constants", constants, CONSTANTS),
    ):
        _check_words(name, given, known)
    for name, number in (("max_blocks", max_blocks), ("max_inputs", max_inputs)):
        if number < 1:
            raise InvalidArgument(f"{name} must be at least 1, not {number!r}")
    try:
        Topology(channels=channels, opset=opset)
    except UsageError as error:
        raise InvalidArgument(str(error)) from error

    legal = [k for k in KINDS if k in kinds]
    width = -(-len(legal) // ROWS)
    rows = [range(start, min(start + width, len(legal))) for start in range(0, len(legal), width)]
    # A kind is a row and a place in it, because Hypothesis tries all smaller values of small numbers only. Every kind
    # draws the same five choices, so that a simpler one can take its place, and because up to five neighbouring
    # choices are deleted in one step.
    go_on = st.integers(0, ROWS)
    decisions = st.tuples(
        st.integers(0, width - 1),
        st.integers(0, FARTHEST),
        st.sampled_from([a for a in ACTIVATIONS if a in activations]),
        st.integers(0, FORMS - 1),
    )
    bans = st.frozensets(st.integers(1, len(legal) - 1)) if len(legal) > 1 else st.just(frozenset[int]())
    frames = st.tuples(
        st.integers(1, max_inputs),
        st.sampled_from([n for n in NODE_NAMES if n in node_names]),
        st.sampled_from([c for c in CONSTANTS if c in constants]),
        st.integers(0, 255),
    )

    @st.composite
    def topologies(draw: st.DrawFn) -> Topology:
        inputs, naming, storage, seed = draw(frames)
        banned = draw(bans)
        blocks: list[Block] = []
        while len(blocks) < max_blocks and (row := draw(go_on)) > 0:
            column, source, activation, form = draw(decisions)
            places = rows[(row - 1) % len(rows)]
            place = places[column % len(places)]
            # A banned kind gives way to a simpler one. A choice among those left would change with every lifted ban.
            while place in banned:
                place -= 1
            blocks.append(_block(legal[place], source, activation, form))
        return Topology(tuple(blocks), inputs, channels, opset, naming, storage, seed)

    return topologies()


def residual_models(
    *,
    max_blocks: int = 8,
    kinds: Sequence[str] = KINDS,
    activations: Sequence[str] = ACTIVATIONS,
    node_names: Sequence[str] = NODE_NAMES,
    constants: Sequence[str] = CONSTANTS,
    max_inputs: int = 2,
    channels: int = 16,
    opset: int = 20,
) -> st.SearchStrategy[LabelledModel]:
    """Models with the ground truth of their residual Adds: `build` over `residual_topologies`, same arguments."""
    return residual_topologies(
        max_blocks=max_blocks,
        kinds=kinds,
        activations=activations,
        node_names=node_names,
        constants=constants,
        max_inputs=max_inputs,
        channels=channels,
        opset=opset,
    ).map(build)


def _block(kind: str, source: int, activation: str, form: int) -> Block:
    """A block of what was drawn, without what its kind doesn't read.

    The form holds two flags, and above them the other source or the variant: no kind has both.
    """
    facts, number = BLOCK_KINDS[kind], form >> 2
    return Block(
        kind,
        source,
        number % (FARTHEST + 1) if facts.joins else 0,
        activation if facts.activates else "none",
        facts.flags and bool(form & 1),
        facts.flags and bool(form & 2),
        number % facts.variants,
    )


def _check_words(name: str, given: Sequence[str], known: Sequence[str]) -> None:
    if isinstance(given, str) or not given:
        raise InvalidArgument(f"{name} must be a non-empty sequence of words, not {given!r}")
    if unknown := [word for word in given if word not in known]:
        raise InvalidArgument(f"{name} has {unknown!r}; known are {', '.join(known)}")
