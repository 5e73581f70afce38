"""Statistics of activations: run the float model on the calibration data and look.

Where bounds are enough, the looking is done inside the graph and its bodies. Every tensor asked for gets three
reductions, and only their scalars leave the runtime:

              +-> ReduceMin -> low
    tensor ---+-> ReduceMax -> high
              +-> ReduceSum -> not finite if an element is NaN or infinite (the other two may miss a NaN)

Where histograms are wanted, the tensors leave the runtime and are counted one after the other. Either way, what is held
is one batch, and what was seen so far: memory doesn't grow with the number of samples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from onnx import GraphProto, ModelProto, NodeProto, helper

from onnxq.calibration.calibrators import Calibrator
from onnxq.calibration.extract import extract
from onnxq.calibration.histogram import count
from onnxq.calibration.passes import ProbedModel, Setup
from onnxq.calibration.probes import Merge, Reading, probing
from onnxq.calibration.ranges import Ranges
from onnxq.calibration.runtime import open_session, run, serialize
from onnxq.calibration.statistics import Statistics, TensorStatistics
from onnxq.errors import CalibrationError
from onnxq.protos import bodies, describe
from onnxq.scopes import body_path, locate, tensor_key


class _Seen(NamedTuple):
    """What one run shows of a tensor, and whether an element may be NaN or infinite."""

    statistics: TensorStatistics | None
    is_doubtful: bool = False


def collect(
    model: ModelProto,
    tensors: Sequence[str],
    feeds: Iterable[Mapping[str, Any]],
    calibrator: Calibrator,
    *,
    setup: Setup | None = None,
    progress: Callable[[int], None] | None = None,
    first: int = 0,
) -> Statistics:
    """What the elements of each tensor are over all samples, as far as a calibrator wants to know.

    Only the ancestors of the tensors are run: a part of the model behind them that the runtime refuses does no harm.
    The feeds are walked once, holding one at a time; their shapes may differ. The runtime computes float16 in float32,
    so bounds of float16 tensors may be those before rounding.

    Args:
        model: The float model, prepared: topologically sorted, types known. It isn't modified.
        tensors: Keys of float tensors (see `onnxq.scopes`): in the main graph their names, graph inputs and outputs
            included; in a body the body's path and the name. Of those only what the body sees when it runs counts.
        feeds: One mapping of input name to array a run; inputs that the tensors don't need are ignored.
        calibrator: Whether histograms are collected depends on it.
        setup: How the runtime runs the model; by default as it is written.
        progress: Called after each run with the number of runs so far.
        first: Number of the first sample, for messages.

    Returns:
        What was seen of each tensor.

    Raises:
        ValueError: A key is that of no tensor, or of one known to be no float tensor.
        CalibrationError: There are no samples, the model doesn't load or run, or an element is NaN or infinite.
        UnsupportedError: The model is too large for the runtime to take as one message, a tensor is in a body of
            another operator than If, Loop and Scan, or the memory bound is too small.
    """
    names = list(dict.fromkeys(tensors))
    probe, look = (_whole, _count) if calibrator.needs_histograms else (_bounds, _read_bounds)
    probed = ProbedModel(model, names, probe, setup or Setup()) if names else None
    found: dict[str, TensorStatistics | None] = dict.fromkeys(names)
    number = 0
    for feed in feeds:
        where = f"calibration sample {first + number}"
        doubtful = []
        for name, readings in probed.run(feed, where) if probed is not None else ():
            seen, before = look(readings), found[name]
            if seen.is_doubtful:
                doubtful.append(name)
            if seen.statistics is not None:
                found[name] = seen.statistics if before is None else before.merged(seen.statistics)
            del readings
        if doubtful:
            _refuse_non_finite(model, doubtful, feed, where)
        del feed  # not to keep it alive while the next one is made
        number += 1
        if progress is not None:
            progress(number)
    if not number:
        raise CalibrationError("calibration data: no samples")
    return Statistics(found, calibrator, number)


def collect_max(
    model: ModelProto,
    tensors: Sequence[str],
    feeds: Iterable[Mapping[str, Any]],
    *,
    setup: Setup | None = None,
    progress: Callable[[int], None] | None = None,
    optimize: bool = False,
) -> Ranges:
    """Least and greatest value of each tensor over all samples ("max" calibration); the rest as `collect`.

    Returns:
        A range for each tensor that had an element in some sample; the others are in `never_finite`.
    """
    chosen = replace(setup or Setup(), optimize=optimize)
    return collect(model, tensors, feeds, Calibrator("max"), setup=chosen, progress=progress).ranges()


def _whole(tensor: str, kind: int, fresh: Callable[[str], str]) -> tuple[list[NodeProto], list[Reading]]:
    return [], [Reading(tensor, kind, Merge.ALL)]


def _count(readings: list[Any]) -> _Seen:
    """Take the values out of the list, so that they are gone once they are counted."""
    values: NDArray[Any] = readings.pop()
    if not values.size:
        return _Seen(None)
    low, high = float(values.min()), float(values.max())  # NaN if an element is
    if not (math.isfinite(low) and math.isfinite(high)):
        return _Seen(None, is_doubtful=True)
    return _Seen(TensorStatistics(low, high, count(values, max(-low, high))))


def _bounds(tensor: str, kind: int, fresh: Callable[[str], str]) -> tuple[list[NodeProto], list[Reading]]:
    merges = (Merge.LEAST, Merge.GREATEST, Merge.TOTAL)
    readings = [Reading(fresh(f"{tensor}_{merge.name.lower()}"), kind, merge) for merge in merges]
    return [helper.make_node(r.merge.value, [tensor], [r.output], keepdims=0) for r in readings], readings


def _finite(tensor: str, kind: int, fresh: Callable[[str], str]) -> tuple[list[NodeProto], list[Reading]]:
    """A finite x minus itself is 0, any other is NaN: the sum of that tells, and can't overflow as the sum of x can."""
    zero, total = fresh(f"{tensor}_zero"), fresh(f"{tensor}_total")
    nodes = [
        helper.make_node("Sub", [tensor, tensor], [zero]),
        helper.make_node("ReduceSum", [zero], [total], keepdims=0),
    ]
    return nodes, [Reading(total, kind, Merge.TOTAL)]


def _read_bounds(readings: list[Any]) -> _Seen:
    low, high, total = map(float, readings)
    if low > high:  # the bounds of nothing
        return _Seen(None, not math.isfinite(total))
    if not (math.isfinite(low) and math.isfinite(high)):
        return _Seen(None, is_doubtful=True)
    return _Seen(TensorStatistics(low, high), not math.isfinite(total))


def _refuse_non_finite(model: ModelProto, tensors: Sequence[str], feed: Mapping[str, Any], where: str) -> None:
    """Raise if one of the tensors really holds NaN or infinity: a sum may just have overflowed."""
    totals = run(open_session(serialize(probing(model, tensors, _finite))), feed, where)
    broken = {name for name, total in zip(tensors, totals, strict=True) if not np.isfinite(total)}
    if not broken:
        return
    tensor, producer = _first(model, broken)
    for value in extract(model, sorted(broken)).graph.input:
        array = feed.get(value.name)
        if isinstance(array, np.ndarray) and array.dtype.kind in "fV" and not np.isfinite(array).all():
            raise CalibrationError(
                f'{where} holds NaN or infinity in input "{value.name}", so tensor "{tensor}" has no '
                "range: drop or repair the sample"
            )
    raise CalibrationError(
        f'tensor "{tensor}" ({producer}) holds NaN or infinity on {where}: '
        "drop the sample, or exclude the nodes that read the tensor"
    )


def _first(model: ModelProto, keys: set[str]) -> tuple[str, str]:
    """Of some tensors, by their keys, the name of the first that the model computes, and what it is."""
    made = {key: (number, what) for number, (key, what) in enumerate(_made(model.graph, ""))}
    candidates = []
    for location in locate(model, keys).values():
        site = location.site
        origin = next((k for k in (tensor_key(p, location.name) for p in reversed(site.paths)) if k in made), "")
        number, what = made.get(origin, (len(made), "initializer"))
        place = f', in body "{site.path}"' if site.path else ""
        candidates.append((number, len(site.paths), location.name, f"{what}{place}"))
    _, _, name, what = min(candidates)
    return name, what


def _made(graph: GraphProto, path: str) -> Iterator[tuple[str, str]]:
    """Keys of the tensors that a graph gets and computes, in order, with what each is; bodies before their node."""
    for value in graph.input:
        yield tensor_key(path, value.name), "input of the body" if path else "graph input"
    for node in graph.node:
        for name, body in bodies(node):
            yield from _made(body, body_path(path, node, name))
        for output in node.output:
            if output:
                yield tensor_key(path, output), f"output of {describe(node)}"
