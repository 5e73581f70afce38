"""Calibration of a network of ResNet-50's size: onnxq against onnxruntime.quantization, a process for each run.

Time is that of the whole process, imports and files included; memory is the most that it held. The floor is what no
quantizer can do without: load the model, open a session, run the samples, save the model.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

METHODS = ("max", "entropy", "percentile")
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


def feeds(samples: int) -> Iterator[dict[str, np.ndarray]]:
    """Made one by one, so that no tool is charged for them."""
    for seed in range(samples):
        yield {"x": np.random.default_rng(seed).standard_normal((1, 3, 224, 224), dtype=np.float32)}


def with_onnxq(path: Path, output: Path, method: str, samples: int) -> None:
    import onnxq

    onnxq.quantize(
        path,
        calibration_data=feeds(samples),
        calibration_method=method,
        high_precision_dtype="fp32",
        output_path=output,
    )


def with_onnxruntime(path: Path, output: Path, method: str, samples: int) -> None:
    import logging

    from onnxruntime.quantization import CalibrationDataReader, CalibrationMethod, QuantType, quantize_static

    class Reader(CalibrationDataReader):
        def __init__(self) -> None:
            self._feeds = feeds(samples)

        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(self._feeds, None)

    logging.disable(logging.WARNING)
    quantize_static(
        path,
        output,
        Reader(),
        per_channel=True,
        activation_type=QuantType.QInt8,
        calibrate_method={
            "max": CalibrationMethod.MinMax,
            "entropy": CalibrationMethod.Entropy,
            "percentile": CalibrationMethod.Percentile,
        }[method],
        extra_options={"ActivationSymmetric": True, "WeightSymmetric": True},
    )


def floor(path: Path, output: Path, method: str, samples: int) -> None:
    import onnxruntime as ort

    model = onnx.load(path)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for feed in feeds(samples):
        session.run(None, feed)
    onnx.save(model, output)


TOOLS: dict[str, Callable[[Path, Path, str, int], None]] = {
    "onnxq": with_onnxq,
    "onnxruntime": with_onnxruntime,
    "floor": floor,
}


def measured(tool: str, path: Path, method: str, samples: int) -> tuple[float, float]:
    """Seconds and MiB of a process in which a tool quantizes the model."""
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, __file__, "--child", tool, str(path), f"{folder}/out.onnx", method, str(samples)]
        start = time.perf_counter()
        done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
        return time.perf_counter() - start, json.loads(done.stdout.splitlines()[-1])


def child(tool: str, path: str, output: str, method: str, samples: str) -> None:
    import resource

    TOOLS[tool](Path(path), Path(output), method, int(samples))
    print(json.dumps(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, nargs="+", default=[8, 32])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--repeat", type=int, default=1, help="take the quickest of so many runs")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.onnx")
        onnx.save(resnet50(), path)
        print("samples  method      seconds: onnxq  onnxruntime  floor   ratio  to floor   MiB: onnxq  onnxruntime")
        for samples in options.samples:
            for method in options.methods:
                rows = {
                    tool: min(measured(tool, path, method, samples) for _ in range(options.repeat)) for tool in TOOLS
                }
                (own, held), (peer, peer_held), (least, _) = rows.values()
                ratios = f"{peer / own:6.1f}x {own / least:8.1f}x"
                print(f"{samples:7}  {method:10} {own:14.2f} {peer:12.2f} {least:6.2f} {ratios}", end=" ")
                print(f"{held:12.0f} {peer_held:12.0f}", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(*sys.argv[2:])
    else:
        main()
