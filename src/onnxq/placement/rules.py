"""The names of the placement rules, as `onnxq explain` prints them, and what each says in one line."""

from __future__ import annotations

from enum import Enum


class Rule(Enum):
    """A rule that can decide an edge. The value says what it is, for a person."""

    R1 = "no residual Add: the inputs must be two, float, variable, and of equal shape"
    R4 = "no residual Add: no input comes from a convolution that can run last"
    R5 = "residual Add: one input is fused with its convolution, the other is the skip"
    R6 = "residual Add: the longer branch is fused with its convolution, the shorter one is the skip"
    R7 = "residual Add: branches of equal length, the heavier one is fused, the other one is the skip"
    R9 = "residual Add whose convolution stays float: nothing to fold it into"
    P1 = "input or weight of a linear op"
    P2 = "excluded, or int8 gains nothing for it"
    P3 = "a pooling op follows its neighbours: int8 if what stands before or behind it works in int8"
    P4 = "LayerNormalization reads int8 if an int8 convolution yields its data"
    P5 = "a copy op moves the data, quantization moves across it"
    P6 = "never quantized"
    O1 = "data or weight of an integer kernel of a linear op"
    O2 = "bias of an integer kernel: int32, at the product of the scales of data and weight"
    O3 = "an op with an integer kernel follows its neighbours: integers before it and behind it"
    O4 = "what an integer kernel stores is read by all as it was rounded"
    O5 = "residual Add of an integer convolution: both inputs"
    O6 = "no integer kernel can run the op as it stands here"
    OUTPUT = "graph output that was asked for: what an int8 kernel stores leaves the graph rounded"
    BODY = "inside a body that stays float: what isn't of an If, Loop or Scan can't be calibrated"
    SELECTED = "input of an op that was asked for by name or type"
    NOT_SELECTED = "input of an op that isn't quantized"


KERNEL_RULES = frozenset({Rule.O1, Rule.O2, Rule.O3, Rule.O4, Rule.O5, Rule.O6})
"""The rules of policy `onnxruntime`."""
