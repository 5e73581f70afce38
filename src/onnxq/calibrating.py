"""Calibration by itself: what quantization needs to know of the activations, found now and used later, or elsewhere."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path

import onnx
from google.protobuf.message import EncodeError

from onnxq.calibration import (
    CalibrationData,
    Ranges,
    Statistics,
    make_feeds,
    ranges_text,
    read_ranges,
    why_unrunnable,
)
from onnxq.convert import least_opset
from onnxq.errors import InvalidModelError, UnsupportedError, UsageError
from onnxq.model_io import PathLike, check_writable, write_text
from onnxq.pipeline import PER_CHANNEL_OPSET, Progress, collect_statistics, make_calibrator, make_plan
from onnxq.placement import SelectionOptions, activation_type_of
from onnxq.sharding import Work, collect_sharded


def calibrate(
    model: PathLike | onnx.ModelProto,
    data: CalibrationData | None = None,
    *,
    method: str | None = None,
    policy: str = "tensorrt",
    percentile: float = 99.99,
    calibration_shapes: Mapping[str, Sequence[int]] | None = None,
    op_types_to_quantize: Sequence[str] | None = None,
    op_types_to_exclude: Sequence[str] | None = None,
    nodes_to_quantize: Sequence[str] | None = None,
    nodes_to_exclude: Sequence[str] | None = None,
    quantize_outputs: bool = False,
    memory_limit: int | None = None,
    executor: Executor | None = None,
    shard_size: int = 32,
    threads: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Statistics:
    """Look at the activations that `onnxq.quantize` quantizes, with the same selection of nodes.

    Args:
        model: An ONNX file or a model in memory. Neither is changed.
        data: As `calibration_data` of `onnxq.quantize`; None makes up one random sample, fit for tests only.
        method: "entropy", "max", "percentile" or "mse"; None is "entropy", or "max" for onnxruntime. What was collected
            for any of them but "max" serves all.
        policy: Whose kernels the model is quantized for, as in `onnxq.quantize`: it decides which tensors these are.
        percentile: For "percentile": how many of the values other than zero, in percent, aren't clipped.
        calibration_shapes: Input name -> shape, where the model leaves it open.
        op_types_to_quantize: Only these op types.
        op_types_to_exclude: Never these op types.
        nodes_to_quantize: Only nodes whose whole name matches one of these regular expressions.
        nodes_to_exclude: Never nodes whose whole name matches one of these.
        quantize_outputs: Whether to look at outputs of the model too that int8 kernels yield.
        memory_limit: Bytes that the activations of one sample may take; the model is then run in segments.
        executor: Who runs the samples, in shards: any executor whose work can be pickled, such as a
            `ProcessPoolExecutor` or `Client.get_executor()` of dask.distributed. A model and data that are given by
            path are read where the work is done.
        shard_size: Samples a shard. Each loads the model anew.
        threads: How many the runtime uses; None for all cores, and for one in a shard. Runs on as many threads give
            exactly the same; on more or fewer, the runtime rounds some sums otherwise in the last bit.
        seed: Of the made-up sample.
        progress: Told what is being done.

    Returns:
        What was seen: give it to `onnxq.quantize` as `ranges`, store it with `onnxq.save_ranges`, or merge it with that
        of other data by `Statistics.merged`.

    Raises:
        UsageError: An argument has an unknown value, or a pattern matches nothing.
        UnsupportedError: The arguments ask for what onnxq doesn't do.
        InvalidModelError: The model is no usable float model.
        CalibrationError: The data don't fit the model, or it doesn't run on them.
    """
    activation_type_of(policy)
    calibrator = make_calibrator(method, percentile, policy)
    if shard_size < 1:
        raise UsageError(f"shard_size={shard_size} is no positive number of samples")
    if threads is not None and threads < 1:
        raise UsageError(f"threads={threads} is no positive number")
    if executor is not None and memory_limit is not None:
        raise UnsupportedError("memory_limit and executor don't go together: a shard runs the model whole")
    tell = progress or (lambda _: None)
    options = SelectionOptions(
        op_types_to_quantize, op_types_to_exclude, nodes_to_quantize, nodes_to_exclude, quantize_outputs
    )
    tell("preparing and placing")
    min_opset = max(PER_CHANNEL_OPSET, least_opset("fp16", quantized=True))
    plan = make_plan(model, options, min_opset=min_opset, policy=policy)
    unrunnable = why_unrunnable(plan.index)
    if unrunnable:
        raise InvalidModelError(unrunnable)
    feeds = make_feeds(plan.prepared.model, data, shapes=calibration_shapes, seed=seed)
    if executor is None:
        return collect_statistics(plan, feeds, calibrator, memory_limit=memory_limit, threads=threads or 0, tell=tell)
    shapes = {name: tuple(shape) for name, shape in (calibration_shapes or {}).items()}
    work = Work(_portable(model), min_opset, tuple(plan.placement.activations), calibrator, shapes, threads or 1)
    tell(f"calibrating tensors: {len(work.tensors)}")
    file = Path(data).resolve() if isinstance(data, str | os.PathLike) else None
    return collect_sharded(executor, work, feeds, file, shard_size, lambda n: tell(f"calibrated samples: {n}"))


def save_ranges(statistics: Statistics, path: PathLike, *, inputs: Iterable[PathLike] = ()) -> None:
    """Write statistics to a file, which appears whole or not at all.

    Args:
        statistics: From `calibrate`.
        path: Where to. A name that ends in .cache gets a TensorRT calibration cache, which holds only the ranges that
            are chosen; any other JSON, which holds all.
        inputs: Files that must stay as they are.

    Raises:
        UsageError: The folder is missing or can't be written to, or the file is one of the inputs.
        CalibrationError: A cache can't hold the name of a tensor.
    """
    check_writable(path, inputs=inputs)
    write_text(ranges_text(statistics, path), path)


def load_ranges(path: PathLike) -> Statistics | Ranges:
    """Read a file of ranges.

    Args:
        path: Written by `save_ranges`, or a TensorRT calibration cache.

    Returns:
        The statistics; of a cache the ranges of -127 to 127 scales.

    Raises:
        CalibrationError: It can't be read, or is neither.
    """
    return read_ranges(path)


def _portable(model: PathLike | onnx.ModelProto) -> Path | bytes:
    """The model as it travels with a shard."""
    if not isinstance(model, onnx.ModelProto):
        return Path(model).resolve()
    try:
        return bytes(model.SerializeToString())
    except (EncodeError, ValueError):  # what protobuf raises beyond its limit
        raise UnsupportedError("a model of 2 GiB and more is handed to an executor by path: save it") from None
