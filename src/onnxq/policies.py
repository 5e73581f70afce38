"""Whose kernels a model is quantized for, and what follows from that. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, get_args

Policy = Literal["tensorrt", "onnxruntime"]
"""The target: "tensorrt" quantizes the skip of a residual Add and never its trunk, "onnxruntime" (its CPU) all inputs
and the result of what it runs as integer kernels."""

POLICIES: tuple[Policy, ...] = get_args(Policy)
"""All policies, the default first."""

ACTIVATION_TYPES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"tensorrt": ("int8",), "onnxruntime": ("uint8", "int8")}
)
"""Policy -> integer types that activations can have, the default first.

uint8 for onnxruntime: the kernels of x86 take no other activations. int8 is made uint8 when a model is loaded, pair by
pair, which leaves some patterns with both types, and so in float: Add or Mul of a constant, Concat, MaxPool (1.32).
What the integers can say is the same: 256 steps and a zero point.
"""

HIGH_PRECISION_DTYPES: Mapping[str, str] = MappingProxyType({"tensorrt": "fp16", "onnxruntime": "fp32"})
"""Policy -> type of what isn't quantized, unless the user says another. onnxruntime's CPU has no kernels for halves."""

CALIBRATION_METHODS: Mapping[str, str] = MappingProxyType({"tensorrt": "entropy", "onnxruntime": "max"})
"""Policy -> how ranges are chosen, unless the user says how.

Clipping pays where 127 steps have to do for the greatest absolute value. With a zero point 255 steps serve just the
range that there is; then "entropy" lost more than it won on most architectures of the builders
(benchmarks/onnxruntime_policy.py).
"""
