"""Peak memory of each command on a model of more than 2 GiB, as a ratio to the size of the model's files."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

LIMIT = 1.5
"""What the ratio may be: a second copy of the weights would make it 2."""

WIDTH = 4096
WEIGHT = WIDTH * WIDTH * 4
EMBEDDINGS = 4 * WIDTH

OUTSIDE = "weights/model.bin"
"""The external data, in a folder below that of the model."""


@dataclass(frozen=True)
class Measured:
    """One command.

    Attributes:
        command: Its words.
        seconds: How long it took.
        peak: Its greatest resident memory, in bytes. Mapped pages of files count.
    """

    command: str
    seconds: float
    peak: int


def write_model(file: Path, blocks: int) -> None:
    """An embedding table, residual blocks of two weights each, a weight behind a Transpose. Nothing is held."""
    import numpy as np
    from onnx import TensorProto, helper

    rng = np.random.default_rng(0)
    tensors, nodes = [], [helper.make_node("Gather", ["table", "ids"], ["h0"], "embed")]
    data = file.parent / OUTSIDE
    data.parent.mkdir()
    with data.open("wb") as stream:

        def weight(name: str, shape: tuple[int, ...], *, low: float | None = None) -> str:
            bound = (3 / WIDTH) ** 0.5
            start = stream.tell()
            for _ in range(shape[0]):
                row = rng.random(shape[1:], dtype=np.float32)
                stream.write((row * 2 * bound - bound if low is None else row + low).tobytes())
            tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=shape, data_location=TensorProto.EXTERNAL)
            entries = {"location": OUTSIDE, "offset": start, "length": stream.tell() - start}
            for key, value in entries.items():
                tensor.external_data.add(key=key, value=str(value))
            tensors.append(tensor)
            return name

        weight("table", (EMBEDDINGS, WIDTH))
        for block in range(blocks):
            n, skip = f"b{block}", f"h{block}"
            weight(f"{n}_up", (WIDTH, WIDTH)), weight(f"{n}_down", (WIDTH, WIDTH)), weight(f"{n}_bias", (1, WIDTH))
            weight(f"{n}_gain", (1, WIDTH), low=0.5)
            nodes += [
                helper.make_node("Mul", [skip, f"{n}_gain"], [f"{n}_m"], f"{n}_m"),
                helper.make_node("MatMul", [f"{n}_m", f"{n}_up"], [f"{n}_u"], f"{n}_u"),
                helper.make_node("Add", [f"{n}_u", f"{n}_bias"], [f"{n}_a"], f"{n}_a"),
                helper.make_node("Relu", [f"{n}_a"], [f"{n}_r"], f"{n}_r"),
                helper.make_node("MatMul", [f"{n}_r", f"{n}_down"], [f"{n}_d"], f"{n}_d"),
                helper.make_node("Add", [f"{n}_d", skip], [f"h{block + 1}"], f"{n}_sum"),
            ]
        weight("head", (WIDTH, WIDTH))
    nodes += [
        helper.make_node("Transpose", ["head"], ["head_t"], "turn"),
        helper.make_node("MatMul", [f"h{blocks}", "head_t"], ["y"], "head"),
    ]
    ids = helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch", 8])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 8, WIDTH])
    graph = helper.make_graph(nodes, "large", [ids], [y], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    file.write_bytes(model.SerializeToString())


def measure(words: list[str], command: str) -> Measured:
    """Run a process of its own, and ask the system for its peak."""
    start = time.perf_counter()
    process = subprocess.Popen([sys.executable, *words], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{command}: exit status {process.returncode}")
    unit = 1 if sys.platform == "darwin" else 1024
    return Measured(command, time.perf_counter() - start, usage.ru_maxrss * unit)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gib", type=float, default=2.5, help="size of the model (default: 2.5)")
    parser.add_argument("--folder", help="where to put a temporary folder; it takes three times the model's size")
    parser.add_argument("--write", nargs=2, metavar=("FILE", "BLOCKS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.write:
        write_model(Path(options.write[0]), int(options.write[1]))
        return 0
    blocks = round((options.gib * 2**30 - EMBEDDINGS * WIDTH * 4 - WEIGHT) / (2 * WEIGHT))
    with tempfile.TemporaryDirectory(prefix="onnxq-large-", dir=options.folder) as folder:
        file = Path(folder, "model.onnx")
        # This process writes no model itself: a child starts with its parent's peak.
        subprocess.run([sys.executable, __file__, "--write", file, str(blocks)], check=True)
        size = file.stat().st_size + (file.parent / OUTSIDE).stat().st_size
        print(f"{size / 2**30:.2f} GiB, of which the largest weight has {EMBEDDINGS * WIDTH * 4 / size:.0%}")
        print(f"{'command':<40}{'seconds':>8}{'peak / size':>12}")
        worst = 0.0
        for command in (
            "inspect model.onnx",
            "explain model.onnx",
            "quantize -q model.onnx -o int8.onnx --high-precision-dtype fp32 --calibration-data ids.npz",
            "check model.onnx int8.onnx",
            "inspect int8.onnx",
            "quantize -q model.onnx -o int8_fp16.onnx --high-precision-dtype fp16 --calibration-data ids.npz",
            "check model.onnx int8_fp16.onnx",
            "convert -q model.onnx -o fp16.onnx",
        ):
            words = [w if w.startswith("-") or "." not in w else str(Path(folder, w)) for w in command.split()]
            if "ids.npz" in command:
                _write_ids(Path(folder, "ids.npz"))
            found = measure(["-m", "onnxq", *words], command)
            worst = max(worst, found.peak / size)
            shown = command.replace("--calibration-data ids.npz", "").replace("--high-precision-dtype ", "")
            print(f"{shown:<40}{found.seconds:8.1f}{found.peak / size:12.2f}", flush=True)
    print(f"worst: {worst:.2f}, allowed: {LIMIT}")
    return 0 if worst <= LIMIT else 1


def _write_ids(file: Path) -> None:
    code = f"import numpy; numpy.savez({str(file)!r}, ids=numpy.arange(16).reshape(2, 8) * 1000)"
    subprocess.run([sys.executable, "-c", code], check=True)


if __name__ == "__main__":
    raise SystemExit(main())
