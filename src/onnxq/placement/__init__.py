"""Where Q/DQ go: a decision and its reason for every edge of the float graph, before anything is written."""

from onnxq.graph import Edge
from onnxq.placement.absorbed import Bounds, known_bounds
from onnxq.placement.linear import weight_axis
from onnxq.placement.never import Unseen, never_quantized
from onnxq.placement.onnxruntime_policy import unfolded_normalizations
from onnxq.placement.ops import copy_sources, is_copy, is_linear
from onnxq.placement.place import activation_type_of, place
from onnxq.placement.placement import Decision, EdgeLabel, NodeLabel, OutputDecision, Placement, Reason
from onnxq.placement.residual import AddInput, ResidualAdd
from onnxq.placement.rules import Rule
from onnxq.placement.selection import SelectionOptions
from onnxq.placement.unseen import TOO_SMALL, unseen_warnings, uses_of, why_unseen

__all__ = [
    "TOO_SMALL",
    "AddInput",
    "Bounds",
    "Decision",
    "Edge",
    "EdgeLabel",
    "NodeLabel",
    "OutputDecision",
    "Placement",
    "Reason",
    "ResidualAdd",
    "Rule",
    "SelectionOptions",
    "Unseen",
    "activation_type_of",
    "copy_sources",
    "is_copy",
    "is_linear",
    "known_bounds",
    "never_quantized",
    "place",
    "unfolded_normalizations",
    "unseen_warnings",
    "uses_of",
    "weight_axis",
    "why_unseen",
]
