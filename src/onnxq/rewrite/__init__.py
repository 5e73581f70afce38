"""Editing the graph: writing Q/DQ pairs, taking them out again, and integers as inputs and outputs."""

from onnxq.rewrite.direct_io import integer_interface, take_integers
from onnxq.rewrite.qdq import Pair, pair_up, write_pairs
from onnxq.rewrite.strip import strip_pairs

__all__ = ["Pair", "integer_interface", "pair_up", "strip_pairs", "take_integers", "write_pairs"]
