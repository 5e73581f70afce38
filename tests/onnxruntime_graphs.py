"""What onnxruntime makes of a model before it runs it: the kernels in the optimized graph."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import onnx
import onnxruntime as ort

FLOAT_LINEAR = ("Conv", "FusedConv", "FusedGemm", "FusedMatMul", "Gemm", "MatMul")
"""Float kernels of what could be integer ones."""


def optimized_ops(model: onnx.ModelProto) -> Counter[str]:
    """Op type -> number of nodes in the main graph, after all optimizations."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    with TemporaryDirectory() as folder:
        options.optimized_model_filepath = str(Path(folder) / "optimized.onnx")
        ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return Counter(node.op_type for node in onnx.load(options.optimized_model_filepath).graph.node)


def float_linear(ops: Counter[str]) -> int:
    """How many linear ops are float kernels."""
    return sum(ops[op] for op in FLOAT_LINEAR)
