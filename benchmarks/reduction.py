"""How small models of ResNet-50's size get that a quantizer fails on, and what it costs: three faults, two models."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, helper, numpy_helper

from onnxq.quantizers.callables import CallableQuantizer
from onnxq.reduce import Reduction, check_predicate, problem_of, reduce_model
from onnxq_builders.registry import build

MOST_NODES = 12
MOST_SECONDS = 120.0
"""What each reduction may come to."""

BLOCKS = (3, 4, 6, 3)
"""Of ResNet-50 and ResNeXt-50."""

Quantize = Callable[[ModelProto, Any, Mapping[str, Any]], ModelProto]


@dataclass(frozen=True)
class Fault:
    """A quantizer with one fault.

    Attributes:
        says: The fault, for the table.
        check: The check that its result violates.
        quantize: The quantizer.
    """

    says: str
    check: str
    quantize: Quantize


def with_pairs(model: ModelProto, edges: Iterable[tuple[int, int]], *, scale: float = 0.05) -> ModelProto:
    """The model with a Q/DQ pair on each of some edges: position of a node, and of one of its inputs."""
    copy = ModelProto()
    copy.CopyFrom(model)
    parameters = {"pair_scale": np.array(scale, np.float32), "pair_zero_point": np.array(0, np.int8)}
    copy.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in parameters.items())
    chosen, nodes = set(edges), []
    for position, node in enumerate(copy.graph.node):
        for slot in sorted(slot for at, slot in chosen if at == position):
            q, dq = f"pair_{position}_{slot}_q", f"pair_{position}_{slot}_dq"
            nodes.append(helper.make_node("QuantizeLinear", [node.input[slot], *parameters], [q]))
            nodes.append(helper.make_node("DequantizeLinear", [q, *parameters], [dq]))
            node.input[slot] = dq
        nodes.append(NodeProto.FromString(node.SerializeToString()))
    del copy.graph.node[:]
    copy.graph.node.extend(nodes)
    return copy


def both_inputs(model: ModelProto, feeds: Any, options: Mapping[str, Any]) -> ModelProto:
    """Both inputs of every Add."""
    adds = [at for at, node in enumerate(model.graph.node) if node.op_type == "Add"]
    return with_pairs(model, [(at, slot) for at in adds for slot in (0, 1)])


def crashing(model: ModelProto, feeds: Any, options: Mapping[str, Any]) -> ModelProto:
    """Fails on a Relu that an Add and a Conv read, deep in the model too."""
    readers: dict[str, set[str]] = {}
    for node in model.graph.node:
        for name in node.input:
            readers.setdefault(name, set()).add(node.op_type)
    for node in model.graph.node:
        if node.op_type == "Relu" and {"Add", "Conv"} <= readers.get(node.output[0], set()):
            raise KeyError(node.name)
    return with_pairs(model, ())


def too_coarse(model: ModelProto, feeds: Any, options: Mapping[str, Any]) -> ModelProto:
    """A scale that rounds everything to zero."""
    convs = [at for at, node in enumerate(model.graph.node) if node.op_type == "Conv"]
    return with_pairs(model, [(at, 0) for at in convs], scale=100.0)


FAULTS = (
    Fault("both inputs of each Add", "residual-skip-only", both_inputs),
    Fault("a crash on a skip behind a Relu", "quantizes", crashing),
    Fault("a scale that is too large", "close-to-float", too_coarse),
)


def measure(model: ModelProto, fault: Fault, feeds: Sequence[Mapping[str, Any]]) -> tuple[Reduction, float]:
    """One reduction, from the model in memory on, and its seconds."""
    start = time.perf_counter()
    problem = problem_of(model, feeds)
    predicate, _ = check_predicate(problem, CallableQuantizer("faulty", "0", "tensorrt", fault.quantize), fault.check)
    reduction = reduce_model(problem, predicate)
    return reduction, time.perf_counter() - start


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=224, help="height and width of the image (default: 224)")
    parser.add_argument("--samples", type=int, default=2, help="calibration samples that are kept (default: 2)")
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    shape = (1, 3, options.size, options.size)
    feeds = [{"x": rng.standard_normal(shape, np.float32)} for _ in range(options.samples)]
    models = {
        "ResNet-50": build("resnet.bottleneck", blocks=BLOCKS, width=64, size=options.size, classes=1000),
        "ResNeXt-50": build("resnext.basic", blocks=BLOCKS, width=96, groups=32, size=options.size, classes=1000),
    }
    is_good = True
    print(f"{'model':<12}{'MB':>5}  {'fault':<33}{'nodes':>12}{'elements':>20}{'candidates':>12}{'seconds':>9}")
    for name, model in models.items():
        for fault in FAULTS:
            found, seconds = measure(model, fault, feeds)
            nodes = f"{found.before.nodes} -> {found.after.nodes}"
            elements = f"{found.before.elements:,} -> {found.after.elements}"
            size = f"{name:<12}{model.ByteSize() / 1e6:5.0f}"
            print(f"{size}  {fault.says:<33}{nodes:>12}{elements:>20}{found.tried:12}{seconds:9.1f}", flush=True)
            is_good &= found.after.nodes <= MOST_NODES and seconds <= MOST_SECONDS
    print(f"allowed: {MOST_NODES} nodes, {MOST_SECONDS:g} s")
    return 0 if is_good else 1


if __name__ == "__main__":
    raise SystemExit(main())
