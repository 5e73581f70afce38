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
from networks import SHAPE, resnet


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
