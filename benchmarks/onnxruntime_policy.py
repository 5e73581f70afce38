"""Policy onnxruntime against onnxruntime's own quantizer: accuracy and kernels, on the architectures of the builders.

    python benchmarks/onnxruntime_policy.py                    every architecture
    python benchmarks/onnxruntime_policy.py mobilenet.v2       some

Batch normalization is folded first, as is advised for onnxruntime's quantizer. Both get the same 16 random samples, and
are asked for uint8 activations and int8 weights per channel. Printed for each: SQNR in dB over the outputs on 16 other
samples, as the operators' definition has it; the same with the runtime's optimizations, and with
`session.x64quantprecision` beside; and how many linear ops and how many others run as integer kernels.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import ModelProto

import onnxq
from onnxq.numerics import run_model
from onnxq_builders import BUILDERS

SAMPLES = 16
METHODS = ("max", "entropy")
LINEAR = ("MatMulIntegerToFloat", "QGemm", "QLinearConv", "QLinearMatMul")

Feeds = list[dict[str, Any]]


def session(model: ModelProto, level: str, *, precise: bool = False, save: str = "") -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, f"ORT_ENABLE_{level}")
    if precise:
        options.add_session_config_entry("session.x64quantprecision", "1")
    if save:
        options.optimized_model_filepath = save
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def rewritten(model: ModelProto, level: str) -> ModelProto:
    with tempfile.TemporaryDirectory() as folder:
        session(model, level, save=f"{folder}/model.onnx")
        return onnx.load(f"{folder}/model.onnx")


def by_onnxruntime(
    model: ModelProto,
    feeds: Feeds,
    *,
    activation_type: str = "QUInt8",
    method: str = "MinMax",
    extra_options: dict[str, Any] | None = None,
) -> ModelProto:
    from onnxruntime.quantization import (
        CalibrationDataReader,
        CalibrationMethod,
        QuantFormat,
        QuantType,
        quantize_static,
    )

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        rest = iter(feeds)

        def get_next(self) -> dict[str, Any] | None:
            return next(self.rest, None)

    with tempfile.TemporaryDirectory() as folder:
        float_file, file = (str(Path(folder) / name) for name in ("float.onnx", "quantized.onnx"))
        onnx.save(model, float_file)
        quantize_static(
            float_file,
            file,
            Reader(),
            quant_format=QuantFormat.QDQ,
            activation_type=getattr(QuantType, activation_type),
            weight_type=QuantType.QInt8,
            per_channel=True,
            calibrate_method=getattr(CalibrationMethod, method),
            extra_options=extra_options,
        )
        return onnx.load(file)


def random_feeds(model: ModelProto, seed: int) -> Feeds:
    rng = np.random.default_rng(seed)
    stored = {tensor.name for tensor in model.graph.initializer}
    shapes = {
        value.name: [dim.dim_value or 1 for dim in value.type.tensor_type.shape.dim]
        for value in model.graph.input
        if value.name not in stored
    }
    return [{n: rng.standard_normal(shape, np.float32) for n, shape in shapes.items()} for _ in range(SAMPLES)]


def ratio(reference: list[dict[str, Any]], results: list[dict[str, Any]]) -> float:
    signal = noise = 0.0
    for before, after in zip(reference, results, strict=True):
        for name, value in before.items():
            signal += float(np.square(value.astype(np.float64)).sum())
            noise += float(np.square(value.astype(np.float64) - after[name]).sum())
    return 10 * float(np.log10(signal / noise)) if noise else np.inf


def run(model: ModelProto, feeds: Feeds, *, precise: bool) -> list[dict[str, Any]]:
    opened = session(model, "ALL", precise=precise)
    names = [output.name for output in opened.get_outputs()]
    return [dict(zip(names, opened.run(None, feed), strict=True)) for feed in feeds]


def row(name: str, tool: str, model: ModelProto, reference: list[dict[str, Any]], feeds: Feeds) -> str:
    ops = Counter(node.op_type for node in rewritten(model, "ALL").graph.node)
    linear = sum(ops[op] for op in LINEAR)
    others = sum(n for op, n in ops.items() if op.startswith("QLinear") and op not in LINEAR)
    ratios = (
        ratio(reference, run_model(model, feeds)),
        *(ratio(reference, run(model, feeds, precise=precise)) for precise in (False, True)),
    )
    return f"{name:20} {tool:14} {ratios[0]:8.1f} {ratios[1]:10.1f} {ratios[2]:8.1f} {linear:7} {others:7}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    every = [name for name in BUILDERS if name.split(".")[0] not in ("residual", "weak")]
    parser.add_argument("networks", nargs="*", default=every, metavar="NETWORK")
    logging.disable(logging.CRITICAL)
    print(f"{'network':20} {'quantizer':14} {'SQNR':>8} {'optimized':>10} {'precise':>8} {'linear':>7} {'others':>7}")
    for name in parser.parse_args().networks:
        model = rewritten(BUILDERS[name](), "BASIC")
        samples, feeds = random_feeds(model, 0), random_feeds(model, 1)
        reference = run_model(model, feeds)
        for method in METHODS:
            made = onnxq.quantize(
                model, policy="onnxruntime", calibration_data=samples, calibration_method=method
            ).model
            print(row(name, f"onnxq {method}", made, reference, feeds), flush=True)
        print(row(name, "onnxruntime", by_onnxruntime(model, samples), reference, feeds), flush=True)


if __name__ == "__main__":
    main()
