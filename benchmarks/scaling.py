"""How the time to quantize grows with the graph: onnxq against onnxruntime.quantization, ResNet-style, N blocks."""

from __future__ import annotations

import argparse
import logging
import math
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

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
            numpy_helper.from_array(np.full(CHANNELS, v, np.float32), p) for p, v in zip(parameters, (1, 0, 0, 1), strict=True)
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


def with_onnxq(path: Path, output: Path, feed: dict[str, np.ndarray]) -> None:
    import onnxq

    onnxq.quantize(path, calibration_data=[feed], output_path=output)


def with_onnxruntime(path: Path, output: Path, feed: dict[str, np.ndarray]) -> None:
    from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static

    class Reader(CalibrationDataReader):
        def __init__(self) -> None:
            self._feeds: Iterator[dict[str, np.ndarray]] = iter([feed])

        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(self._feeds, None)

    logging.disable(logging.WARNING)
    symmetric = {"ActivationSymmetric": True, "WeightSymmetric": True}
    quantize_static(path, output, Reader(), per_channel=True, activation_type=QuantType.QInt8, extra_options=symmetric)


TOOLS: dict[str, Callable[[Path, Path, dict[str, np.ndarray]], None]] = {
    "onnxq": with_onnxq,
    "onnxruntime": with_onnxruntime,
}


def seconds(tool: str, blocks: int) -> float:
    """Seconds that a tool needs in this process, files included; imports and first use are not counted."""
    feed = {"x": np.random.default_rng(1).standard_normal(SHAPE).astype(np.float32)}
    with tempfile.TemporaryDirectory() as folder:
        path, output = Path(folder, "model.onnx"), Path(folder, "out.onnx")
        onnx.save_model(resnet(blocks), path)
        start = time.perf_counter()
        TOOLS[tool](path, output, feed)
        return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("blocks", type=int, nargs="*", default=[16, 32, 64])
    parser.add_argument("--only", choices=TOOLS, help="measure one tool")
    options = parser.parse_args()
    tools = [options.only] if options.only else list(TOOLS)
    for tool in tools:
        seconds(tool, 2)
    print("blocks", *(f"{tool:>12}" for tool in tools), "       ratio" if len(tools) == 2 else "")
    rows: list[list[float]] = []
    for blocks in options.blocks:
        rows.append([seconds(tool, blocks) for tool in tools])
        ratio = f"{rows[-1][1] / rows[-1][0]:11.1f}x" if len(tools) == 2 else ""
        print(f"{blocks:6}", *(f"{value:12.3f}" for value in rows[-1]), ratio)
    if len(rows) > 1:
        step = math.log(options.blocks[-1] / options.blocks[-2])
        exponents = [math.log(last / before) / step for before, last in zip(rows[-2], rows[-1], strict=True)]
        print("exponent of the last step:", *(f"{e:.2f}" for e in exponents))


if __name__ == "__main__":
    main()
