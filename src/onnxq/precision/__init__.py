"""Half precision for what isn't quantized: which nodes, and the Casts where precisions meet."""

from onnxq.precision.assign import Assignment, Kept, assign, computed_constants
from onnxq.precision.casts import simplify_casts
from onnxq.precision.lower import write_precision
from onnxq.precision.operators import Operators
from onnxq.precision.suited import float_activations, unsuited_nodes
from onnxq.precision.values import overflows

__all__ = [
    "Assignment",
    "Kept",
    "Operators",
    "assign",
    "computed_constants",
    "float_activations",
    "overflows",
    "simplify_casts",
    "unsuited_nodes",
    "write_precision",
]
