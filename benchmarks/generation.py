"""How many models a second the strategies draw, and where the time goes: drawing, building, checking, running.

    python benchmarks/generation.py

Of each strategy the topologies are drawn first, alone, and of those with 10 nodes or more models are built, put to the
checker and run in onnxruntime, without optimizations.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from typing import Any

import hypothesis
import onnx
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from markdown_text import row, table_head

from onnxq.calibration import make_feeds
from onnxq.numerics import run_model
from onnxq.protos import walk_nodes
from onnxq.strategies import (
    LabelledModel,
    build,
    build_model,
    build_precision,
    model_topologies,
    precision_topologies,
    residual_topologies,
)

LEAST_NODES = 10
STRATEGIES: dict[str, tuple[st.SearchStrategy[Any], Callable[[Any], LabelledModel]]] = {
    "residual": (residual_topologies(node_names=["unique"]), build),
    "models": (model_topologies(max_nodes=60), build_model),
    "precision": (precision_topologies(max_pieces=12), build_precision),
}


def drawn(topologies: st.SearchStrategy[Any], count: int) -> tuple[list[Any], float]:
    """Topologies, and the seconds that drawing one took."""
    found: list[Any] = []

    @hypothesis.seed(0)
    @settings(max_examples=count, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @hypothesis.given(topologies)
    def draw(topology: Any) -> None:
        found.append(topology)

    start = time.perf_counter()
    draw()
    return found, (time.perf_counter() - start) / len(found)


def each(work: Callable[[Any], object], items: Sequence[Any]) -> float:
    """Seconds that some work takes for one item."""
    start = time.perf_counter()
    for item in items:
        work(item)
    return (time.perf_counter() - start) / len(items)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=2000, help="topologies to draw")
    parser.add_argument("--run", type=int, default=200, help="models to check and run")
    options = parser.parse_args()
    print(
        "\n".join(
            table_head(["strategy", "nodes", "drawn and built / s", "drawing", "building", "checking", "running"])
        )
    )
    for name, (topologies, make) in STRATEGIES.items():
        found, drawing = drawn(topologies, options.count)
        models = [model for model in (make(t).model for t in found) if _size(model) >= LEAST_NODES]
        large = [t for t in found if _size(make(t).model) >= LEAST_NODES]
        building = each(make, large)
        some = models[: options.run]
        checking = each(lambda model: onnx.checker.check_model(model, full_check=True), some)
        running = each(lambda model: run_model(model, list(make_feeds(model, None))), some)
        parts = (drawing, building, checking, running)
        shares = [f"{part / sum(parts):.0%} ({part * 1e3:.1f} ms)" for part in parts]
        nodes = sum(map(_size, models)) / len(models)
        print(row([name, f"{nodes:.0f}", f"{1 / (drawing + building):.0f}", *shares]))


def _size(model: onnx.ModelProto) -> int:
    return sum(1 for _ in walk_nodes(model.graph.node))


if __name__ == "__main__":
    main()
