"""Strategies for models that are hard to lower to half precision, and the function that makes a model of a topology.

Each is a line of pieces (`onnxq.strategies.pieces`), every one of which reads some earlier value. In float32 all of
them run and stay finite.
"""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st
from hypothesis.errors import InvalidArgument

from onnxq.strategies.labelled import LabelledModel
from onnxq.strategies.network import Network
from onnxq.strategies.pieces import SHAPE, VARIANTS, WRITERS
from onnxq.strategies.topology import CONSTANTS, NODE_NAMES, PIECES, Piece, PrecisionTopology, Topology

FARTHEST = 3
"""How many tensors back a piece may reach."""


def build_precision(topology: PrecisionTopology) -> LabelledModel:
    """The model of a topology. Every topology has one, and always the same.

    The model is float32, [2, 16] in and (with few exceptions) out, passes the checker and strict shape inference, and
    its outputs are finite on inputs of ordinary size. onnxruntime loads it unless all nodes have one name.
    """
    frame = Topology(
        opset=topology.opset, node_names=topology.node_names, constants=topology.constants, seed=topology.seed
    )
    net = Network(frame)
    given = net.input(SHAPE)
    values = [given]
    for piece in topology.pieces:
        source = values[-1 - min(piece.source, len(values) - 1)]
        values.append(WRITERS[piece.kind](net, source, given, piece.variant))
    if net.is_empty:
        net.apply("Identity", [given], SHAPE)
    labelled = net.finish()
    return LabelledModel(labelled.model, labelled.adds, topology)


def precision_topologies(
    *,
    max_pieces: int = 5,
    pieces: Sequence[str] = PIECES,
    node_names: Sequence[str] = ("unique", "unnamed"),
    constants: Sequence[str] = ("initializer", "node"),
    opset: int = 20,
) -> st.SearchStrategy[PrecisionTopology]:
    """Topologies for `build_precision`. All arguments restrict what is legal.

    Args:
        max_pieces: Most pieces in one topology.
        pieces: Kinds of pieces allowed, out of `PIECES`.
        node_names: Ways to name nodes, out of `NODE_NAMES`.
        constants: Ways to store constants, out of `CONSTANTS`.
        opset: Version of the default operator set, 17 or more.

    Raises:
        InvalidArgument: An argument is out of range, empty, or unknown.
    """
    for name, given, known in (
        ("pieces", pieces, PIECES),
        ("node_names", node_names, NODE_NAMES),
        ("constants", constants, CONSTANTS),
    ):
        if isinstance(given, str) or not given or not set(given) <= set(known):
            raise InvalidArgument(f"{name} must be a non-empty sequence out of {', '.join(known)}, not {given!r}")
    if max_pieces < 1:
        raise InvalidArgument(f"max_pieces must be at least 1, not {max_pieces!r}")
    piece = st.builds(
        Piece,
        st.sampled_from([kind for kind in PIECES if kind in pieces]),
        st.integers(0, FARTHEST),
        st.integers(0, VARIANTS - 1),
    )
    return st.builds(
        PrecisionTopology,
        st.lists(piece, min_size=1, max_size=max_pieces).map(tuple),
        st.just(opset),
        st.sampled_from([name for name in NODE_NAMES if name in node_names]),
        st.sampled_from([name for name in CONSTANTS if name in constants]),
        st.integers(0, 255),
    )


def precision_models(
    *,
    max_pieces: int = 5,
    pieces: Sequence[str] = PIECES,
    node_names: Sequence[str] = ("unique", "unnamed"),
    constants: Sequence[str] = ("initializer", "node"),
    opset: int = 20,
) -> st.SearchStrategy[LabelledModel]:
    """Models that are hard to lower to half precision: `build_precision` over `precision_topologies`, same arguments.

    In them: initializers that both precisions read, values out of range or tiny and of either sign, masks of the lowest
    float with a row masked throughout, epsilons that vanish, chains of Casts and Casts at outputs, Resize with
    constant, copied and computed scales, empty tensors and an empty roi, large positions, sequences, bodies that
    capture.
    """
    return precision_topologies(
        max_pieces=max_pieces, pieces=pieces, node_names=node_names, constants=constants, opset=opset
    ).map(build_precision)
