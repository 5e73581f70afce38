"""Ranges of activations: run the float model on the calibration data and look.

The looking is done inside the graph and its bodies. Every tensor asked for gets three reductions, and only their
scalars leave the runtime, so memory doesn't grow with the number of tensors or of samples:

              +-> ReduceMin -> low
    tensor ---+-> ReduceMax -> high
              +-> ReduceSum -> not finite if an element is NaN or infinite (the other two may miss a NaN)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import GraphProto, ModelProto, NodeProto, helper

from onnxq.calibration.extract import extract
from onnxq.calibration.probes import Merge, Reading, probing
from onnxq.calibration.ranges import Range, Ranges
from onnxq.calibration.runtime import open_session, run, serialize
from onnxq.errors import CalibrationError
from onnxq.protos import bodies, describe
from onnxq.scopes import body_path, locate, tensor_key


def collect_max(
    model: ModelProto,
    tensors: Sequence[str],
    feeds: Iterable[Mapping[str, Any]],
    *,
    progress: Callable[[int], None] | None = None,
    optimize: bool = False,
) -> Ranges:
    """Least and greatest value of each tensor over all samples ("max" calibration).

    Only the ancestors of the tensors are run: a part of the model behind them that the runtime refuses does no harm.
    The feeds are walked once, holding one at a time; their shapes may differ. The runtime computes float16 in float32,
    so bounds of float16 tensors may be those before rounding.

    Args:
        model: The float model, prepared: topologically sorted, types known. It isn't modified.
        tensors: Keys of float tensors (see `onnxq.scopes`): in the main graph their names, graph inputs and outputs
            included; in a body the body's path and the name. Of those only what the body sees when it runs counts.
        feeds: One mapping of input name to array a run; inputs that the tensors don't need are ignored.
        progress: Called after each run with the number of runs so far.
        optimize: Whether the runtime may rewrite the graph. Off, the ranges are those of the model as written.

    Returns:
        A range for each tensor that had an element in some sample; the others are in `never_finite`.

    Raises:
        ValueError: A key is that of no tensor, or of one known to be no float tensor.
        CalibrationError: There are no samples, the model doesn't load or run, or an element is NaN or infinite.
        UnsupportedError: The model is too large for the runtime to take as one message, or a tensor is in a body of
            another operator than If, Loop and Scan.
    """
    names = list(dict.fromkeys(tensors))
    session = open_session(serialize(probing(model, names, _bounds)), optimize=optimize) if names else None
    low, high = np.full(len(names), np.inf), np.full(len(names), -np.inf)
    number = 0
    for feed in feeds:
        if session is not None:
            where = f"calibration sample {number}"
            least, greatest, total = _scalars(run(session, feed, where), 3)
            empty = least > greatest
            doubtful = ~np.isfinite(total) | ~(empty | (np.isfinite(least) & np.isfinite(greatest)))
            if doubtful.any():
                _refuse_non_finite(model, [names[i] for i in np.flatnonzero(doubtful)], feed, where)
            np.minimum(low, least, out=low)
            np.maximum(high, greatest, out=high)
        del feed  # not to keep it alive while the next one is made
        number += 1
        if progress is not None:
            progress(number)
    if not number:
        raise CalibrationError("calibration data: no samples")
    seen = low <= high
    return Ranges(
        {name: Range(float(low[i]), float(high[i])) for i, name in enumerate(names) if seen[i]},
        tuple(name for i, name in enumerate(names) if not seen[i]),
    )


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


def _scalars(values: Sequence[NDArray[Any]], columns: int) -> NDArray[np.float64]:
    """Results of the probes in float64, shape [columns, tensors]."""
    return np.array(values, dtype=np.float64).reshape(-1, columns).T


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
