"""Placement alone: residual networks of growing depth, and chains of diamonds that a search along paths doubles with.

    python benchmarks/diamonds.py

    t -> Split -> Concat -> Split -> Concat ...     t -> Mul(t, t) -> Mul(t, t) ...     t -> Concat(t, t) -> Slice ...

In each chain a residual block stands at the end, so the rules have to look back through all of it. Seconds for index
and rules of a prepared model, without calibration, and the exponent of the last doubling; in the second row for the
residual analysis alone (dominators, backbones, residual Adds).
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import onnx
from markdown_text import row, table_head
from networks import CHANNELS, SHAPE, resnet
from onnx import NodeProto, TensorProto, helper, numpy_helper

from onnxq.graph import GraphIndex, build_dominators, build_index
from onnxq.placement import SelectionOptions, place
from onnxq.placement.backbone import find_backbones
from onnxq.placement.residual import find_residuals
from onnxq.shapes import prepare

Level = Callable[[str, str], list[NodeProto]]
"""What one level of a chain is made of: name of its input and of its output -> nodes."""


def split_concat(source: str, target: str) -> list[NodeProto]:
    halves = [f"{target}_a", f"{target}_b"]
    return [
        helper.make_node("Split", [source, "halves"], halves, axis=1),
        helper.make_node("Concat", halves, [target], axis=1),
    ]


def mul(source: str, target: str) -> list[NodeProto]:
    return [
        helper.make_node("Sigmoid", [source], [f"{target}_s"]),
        helper.make_node("Mul", [f"{target}_s", f"{target}_s"], [target]),
    ]


def concat(source: str, target: str) -> list[NodeProto]:
    return [
        helper.make_node("Concat", [source, source], [f"{target}_c"], axis=1),
        helper.make_node("Slice", [f"{target}_c", "zero", "channels", "one"], [target]),
    ]


CHAINS: dict[str, Level] = {"Split-Concat": split_concat, "Mul(t, t)": mul, "Concat(t, t)": concat}


def chain(level: Level, levels: int) -> onnx.ModelProto:
    """A Conv, so many levels, and a residual block behind them."""
    nodes, last = [helper.make_node("Conv", ["x", "w"], ["t0"])], "t0"
    for number in range(levels):
        nodes += level(last, f"t{number + 1}")
        last = f"t{number + 1}"
    nodes += [helper.make_node("Conv", [last, "w"], ["b"]), helper.make_node("Add", ["b", last], ["y"])]
    rng = np.random.default_rng(0)
    constants = {
        "w": rng.standard_normal((CHANNELS, CHANNELS, 1, 1)).astype(np.float32),
        "halves": np.array([CHANNELS // 2] * 2),
        "zero": np.array([0]),
        "one": np.array([1]),
        "channels": np.array([CHANNELS]),
    }
    used = {name for node in nodes for name in node.input}
    weights = [numpy_helper.from_array(value, name) for name, value in constants.items() if name in used]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, SHAPE) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "chain", values[:1], values[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def seconds(model: onnx.ModelProto, rounds: int, work: Callable[[GraphIndex], object] | None = None) -> float:
    """The quickest of some rounds of indexing and placing, or of some work on the index alone."""
    prepared = prepare(model)
    index, found = build_index(prepared.model, prepared.types), []
    for _ in range(rounds):
        start = time.perf_counter()
        if work is None:
            place(build_index(prepared.model, prepared.types), SelectionOptions())
        else:
            work(index)
        found.append(time.perf_counter() - start)
    return min(found)


def analyse(index: GraphIndex) -> object:
    """What placement knows of the residual Adds before it decides anything."""
    return find_residuals(index, build_dominators(index), find_backbones(index))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    sizes = (256, 512, 1024)
    print("\n".join(table_head(["", *(f"{size}: s" for size in sizes), "exponent"])))
    rows: list[tuple[str, Callable[[int], onnx.ModelProto], Callable[[GraphIndex], object] | None]] = [
        ("residual blocks", resnet, None),
        ("residual blocks, analysis alone", resnet, analyse),
        *((name, partial(chain, level), None) for name, level in CHAINS.items()),
    ]
    for name, make, work in rows:
        times = [seconds(make(size), options.rounds, work) for size in sizes]
        print(row([name, *(f"{t:.3f}" for t in times), f"{math.log2(times[-1] / times[-2]):.2f}"]))


if __name__ == "__main__":
    main()
