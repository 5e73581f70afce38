"""Speed and memory of whole processes: onnxq, its peers, and what nobody can do without.

    python benchmarks/run.py --modelopt-python MODELOPT/bin/python

Each measurement is a process of its own: `onnxq quantize`, the peers by onnxq's own runner, and the floor, which loads
the model, opens a session, runs the samples and saves the model. Imports and files are in the time; memory is the most
that the process held. The tools take turns, and of several rounds the median counts. The ratios are what to read.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from markdown_text import row, table_head
from networks import SHAPE, resnet, resnet50

from onnxq.quantizers.exchange import write_feeds
from onnxq.quantizers.peers import RUNNER, modelopt_arguments, onnxruntime_arguments, python_environment

BLOCKS = (64, 128, 256)
MODES = {"int8": "fp32", "int8+fp16": "fp16"}
METHODS = ("max", "entropy")
SAMPLES = (8, 32)

FLOOR = """
import sys, onnx, numpy, onnxruntime
source, samples, runs, target = sys.argv[1:]
model = onnx.load(source)
session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
for part in numpy.split(numpy.load(samples)["x"], int(runs)):
    session.run(None, {"x": part})
onnx.save(model, target)
"""


@dataclass(frozen=True)
class Cost:
    """What one process took: seconds from start to end, and MiB that it held at most."""

    seconds: float
    mebibytes: float


@dataclass(frozen=True)
class Job:
    """A model to quantize.

    Attributes:
        name: What the row is called.
        model: The file.
        samples: The samples, as .npz.
        runs: How many they are.
        method: Calibration method.
        half: Type of what isn't quantized.
    """

    name: str
    model: Path
    samples: Path
    runs: int
    method: str
    half: str


def commands(job: Job, folder: Path, pythons: Mapping[str, str]) -> Iterator[tuple[str, list[str]]]:
    """The command of each tool that can do the job."""
    output = str(folder / "out.onnx")
    data = [str(job.model), str(job.samples), str(job.runs), output]
    yield "floor", [sys.executable, "-c", FLOOR, *data]
    told = ["--calibration-method", job.method, "--high-precision-dtype", job.half, "-q"]
    files = [str(job.model), "--calibration-data", str(job.samples), "-o", output]
    yield "onnxq", [sys.executable, "-m", "onnxq", "quantize", *files, *told]
    options = {"calibration_method": job.method, "high_precision_dtype": job.half}
    for peer, translate in (("onnxruntime", onnxruntime_arguments), ("modelopt", modelopt_arguments)):
        if peer in pythons and (peer == "modelopt" or job.half == "fp32"):
            arguments = folder / f"{peer}.json"
            model = onnx.load(job.model, load_external_data=False)
            arguments.write_text(json.dumps({"runs": job.runs, "scalars": [], "options": translate(model, options)}))
            runner = [pythons[peer], str(RUNNER), "quantize", peer]
            yield peer, [*runner, str(job.model), str(job.samples), str(arguments), output]


def cost_of(command: Sequence[str]) -> Cost:
    """Run a command in a process of its own."""
    start = time.perf_counter()
    environment = python_environment(command[0])
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment)
    said = process.stderr.read() if process.stderr else b""
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{command[:4]} failed:\n{said.decode(errors='replace')[-2000:]}")
    return Cost(time.perf_counter() - start, usage.ru_maxrss / 1024)


def measure(job: Job, pythons: Mapping[str, str], rounds: int) -> dict[str, Cost]:
    """The median cost of each tool."""
    found: dict[str, list[Cost]] = {}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            for tool, command in commands(job, Path(folder), pythons):
                found.setdefault(tool, []).append(cost_of(command))
    return {
        tool: Cost(statistics.median(c.seconds for c in costs), statistics.median(c.mebibytes for c in costs))
        for tool, costs in found.items()
    }


def jobs(folder: Path, blocks: Sequence[int], samples: Sequence[int]) -> Iterator[Job]:
    """Networks of growing depth, then calibration of one of ResNet-50's size."""
    one = folder / "one.npz"
    write_feeds([{"x": np.random.default_rng(1).standard_normal(SHAPE, dtype=np.float32)}], one)
    for count in blocks:
        model = folder / f"resnet_{count}.onnx"
        onnx.save(resnet(count), model)
        for mode, half in MODES.items():
            yield Job(f"{count} blocks, {mode}", model, one, 1, "max", half)
    if samples:
        model = folder / "resnet50.onnx"
        onnx.save(resnet50(), model)
    for count in samples:
        data = folder / f"{count}.npz"
        shape = (1, 3, 224, 224)
        write_feeds(
            [{"x": np.random.default_rng(n).standard_normal(shape, dtype=np.float32)} for n in range(count)], data
        )
        for method in METHODS:
            yield Job(f"ResNet-50, {method}, {count} samples", model, data, count, method, "fp32")


def table(results: Mapping[str, Mapping[str, Cost]], peers: Sequence[str]) -> Iterator[str]:
    """Rows of seconds, ratios and memory."""
    tools = ["onnxq", *peers]
    times = [f"{tool}: s" for tool in tools]
    ratios = [f"{peer} / onnxq" for peer in peers]
    yield from table_head(["", *times, *ratios, "onnxq / floor", *(f"{tool}: MiB" for tool in tools)])
    for name, costs in results.items():
        own, floor = costs["onnxq"], costs["floor"]
        seconds = [f"{costs[t].seconds:.2f}" if t in costs else "-" for t in tools]
        faster = [f"{costs[p].seconds / own.seconds:.1f}" if p in costs else "-" for p in peers]
        held = [f"{costs[t].mebibytes:.0f}" if t in costs else "-" for t in tools]
        yield row([name, *seconds, *faster, f"{own.seconds / floor.seconds:.1f}", *held])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--modelopt-python", metavar="PATH", help="a Python that has ModelOpt")
    parser.add_argument("--blocks", type=int, nargs="*", default=list(BLOCKS))
    parser.add_argument("--samples", type=int, nargs="*", default=list(SAMPLES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--without-onnxruntime", action="store_true", help="which takes minutes for 256 blocks")
    options = parser.parse_args()
    pythons = {} if options.without_onnxruntime else {"onnxruntime": sys.executable}
    pythons |= {"modelopt": options.modelopt_python} if options.modelopt_python else {}
    results: dict[str, dict[str, Cost]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for job in jobs(Path(folder), options.blocks, options.samples):
            results[job.name] = measure(job, pythons, options.rounds)
            print(job.name, {tool: round(cost.seconds, 2) for tool, cost in results[job.name].items()}, file=sys.stderr)
    print("\n".join(table(results, list(pythons))))


if __name__ == "__main__":
    main()
