"""Editing the graph: writing Q/DQ pairs, and taking them out again."""

from onnxq.rewrite.qdq import Pair, pair_up, write_pairs
from onnxq.rewrite.strip import strip_pairs

__all__ = ["Pair", "pair_up", "strip_pairs", "write_pairs"]
