"""One read-only index over a model: producers, consumers, order, dominators, fingerprints."""

from onnxq.graph.constants import constant_node_value, stored_value
from onnxq.graph.dominators import ROOT, Dominators, build_dominators
from onnxq.graph.fingerprint import COMMUTATIVE, Fingerprints, build_fingerprints, constant_digest
from onnxq.graph.index import ABSENT, MAIN_GRAPH, Edge, GraphIndex, Kind, Scope, Use, build_index

__all__ = [
    "ABSENT",
    "COMMUTATIVE",
    "MAIN_GRAPH",
    "ROOT",
    "Dominators",
    "Edge",
    "Fingerprints",
    "GraphIndex",
    "Kind",
    "Scope",
    "Use",
    "build_dominators",
    "build_fingerprints",
    "build_index",
    "constant_digest",
    "constant_node_value",
    "stored_value",
]
