"""Quantizers under test: one small interface, and an adapter for each tool that speaks it.

Importing this package loads no quantizer and nothing heavy; an adapter does so when it first quantizes.
"""

from onnxq.policies import POLICIES, Policy
from onnxq.quantizers.own import DEFAULT, OnnxqQuantizer
from onnxq.quantizers.quantizer import DEFAULT_SETTINGS, Quantizer, Settings
from onnxq.quantizers.specs import resolve

__all__ = [
    "DEFAULT",
    "DEFAULT_SETTINGS",
    "POLICIES",
    "OnnxqQuantizer",
    "Policy",
    "Quantizer",
    "Settings",
    "resolve",
]
