"""The networks that speed is measured on."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

CHANNELS = 16
"""The fewest that int8 kernels serve, so that convolutions are quantized."""

SHAPE = (1, CHANNELS, 16, 16)


def resnet(blocks: int) -> onnx.ModelProto:
    """`blocks` identity blocks: Conv-BN-Relu-Conv-BN, Add, Relu."""
    rng = np.random.default_rng(0)
    nodes, weights = [], []

    def conv_bn(source: str, name: str) -> str:
        kernel = (rng.standard_normal((CHANNELS, CHANNELS, 3, 3)) * 0.02).astype(np.float32)
        weights.append(numpy_helper.from_array(kernel, f"{name}_w"))
        parameters = [f"{name}_{part}" for part in ("scale", "bias", "mean", "var")]
        weights.extend(
            numpy_helper.from_array(np.full(CHANNELS, v, np.float32), p)
            for p, v in zip(parameters, (1, 0, 0, 1), strict=True)
        )
        nodes.append(helper.make_node("Conv", [source, f"{name}_w"], [f"{name}_c"], name=f"{name}_c", pads=[1] * 4))
        nodes.append(helper.make_node("BatchNormalization", [f"{name}_c", *parameters], [f"{name}_n"], f"{name}_n"))
        return f"{name}_n"

    skip = "x"
    for block in range(blocks):
        first = conv_bn(skip, f"b{block}_1")
        nodes.append(helper.make_node("Relu", [first], [f"b{block}_r"], f"b{block}_r"))
        trunk = conv_bn(f"b{block}_r", f"b{block}_2")
        nodes.append(helper.make_node("Add", [trunk, skip], [f"b{block}_a"], f"b{block}_a"))
        skip = f"b{block}_y"
        nodes.append(helper.make_node("Relu", [f"b{block}_a"], [skip], skip))
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, SHAPE) for name in ("x", skip)]
    graph = helper.make_graph(nodes, "resnet", values[:1], values[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


STAGES = ((3, 64), (4, 128), (6, 256), (3, 512))
"""Blocks and width of each stage."""


def resnet50() -> onnx.ModelProto:
    """Bottleneck blocks of Conv-BN-Relu, Conv-BN-Relu, Conv-BN, Add, Relu, with random weights; 25 million of them."""
    rng = np.random.default_rng(0)
    nodes, weights = [], []

    def add(op: str, inputs: list[str], output: str, **attributes: object) -> str:
        nodes.append(helper.make_node(op, inputs, [output], output, **attributes))
        return output

    def conv_bn(source: str, name: str, shape: tuple[int, int], kernel: int, stride: int = 1) -> str:
        fan_in = shape[1] * kernel**2
        values = rng.standard_normal((*shape, kernel, kernel), dtype=np.float32) * np.float32((2 / fan_in) ** 0.5)
        weights.append(numpy_helper.from_array(values, f"{name}_w"))
        pads = [kernel // 2] * 4
        output = add("Conv", [source, f"{name}_w"], f"{name}_c", strides=[stride] * 2, pads=pads)
        parameters = [f"{name}_{part}" for part in ("scale", "bias", "mean", "var")]
        for parameter, value in zip(parameters, (1, 0, 0, 1), strict=True):
            weights.append(numpy_helper.from_array(np.full(shape[0], value, np.float32), parameter))
        return add("BatchNormalization", [output, *parameters], f"{name}_n")

    last = add("Relu", [conv_bn("x", "stem", (64, 3), 7, 2)], "stem_r")
    last = add("MaxPool", [last], "pool", kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    channels = 64
    for stage, (blocks, width) in enumerate(STAGES):
        for block in range(blocks):
            name, stride = f"s{stage}b{block}", 2 if stage and not block else 1
            skip = last if block else conv_bn(last, f"{name}_d", (4 * width, channels), 1, stride)
            trunk = add("Relu", [conv_bn(last, f"{name}_1", (width, channels), 1)], f"{name}_1r")
            trunk = add("Relu", [conv_bn(trunk, f"{name}_2", (width, width), 3, stride)], f"{name}_2r")
            trunk = conv_bn(trunk, f"{name}_3", (4 * width, width), 1)
            last = add("Relu", [add("Add", [trunk, skip], f"{name}_a")], name)
            channels = 4 * width
    last = add("Flatten", [add("GlobalAveragePool", [last], "mean")], "flat")
    weights.append(numpy_helper.from_array(rng.standard_normal((2048, 1000), dtype=np.float32) * np.float32(0.02), "w"))
    add("Gemm", [last, "w"], "y")
    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", (1, 3, 224, 224)), ("y", (1, 1000)))
    ]
    graph = helper.make_graph(nodes, "resnet50", values[:1], values[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
