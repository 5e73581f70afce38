"""Preparation of models: order, names, stale declarations, types and shapes."""

from onnxq.shapes.changes import Change
from onnxq.shapes.inference import infer_types
from onnxq.shapes.opset import raise_opset
from onnxq.shapes.prepare import Prepared, prepare

__all__ = ["Change", "Prepared", "infer_types", "prepare", "raise_opset"]
