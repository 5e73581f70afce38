"""Calibration in shards: pieces of work that processes of one machine or of many can do, and whose results merge.

    data --+--> samples 0 to 31  --> statistics --.
           +--> samples 32 to 63 --> statistics ---+--> merged: exactly those of one run over all samples
           `--> ...

A shard of a file holds its path and which samples to take, so that whoever works on it reads them itself; other
samples travel with the shard. It holds the model by path too, if there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, wait
from dataclasses import dataclass
from functools import reduce
from itertools import islice
from pathlib import Path
from typing import Any

import onnx
from numpy.typing import NDArray

from onnxq.calibration import Calibrator, Feeds, Setup, Statistics, collect, make_feeds
from onnxq.errors import CalibrationError
from onnxq.model_io import load_model
from onnxq.shapes import prepare

IN_FLIGHT = 16
"""Shards that hold samples and are handed out at a time, so that no more of the data is in memory."""


@dataclass(frozen=True)
class Work:
    """What all shards of a calibration share. It can be pickled.

    Attributes:
        model: Path of the float model, or the model as bytes.
        min_opset: The opset that it is prepared for.
        tensors: Keys of the tensors to look at.
        calibrator: What for.
        shapes: Shapes of inputs that the model leaves open.
        threads: How many the runtime uses for one shard.
    """

    model: Path | bytes
    min_opset: int
    tensors: tuple[str, ...]
    calibrator: Calibrator
    shapes: Mapping[str, tuple[int, ...]]
    threads: int = 1


@dataclass(frozen=True)
class FileShard:
    """Samples in a file."""

    path: Path
    start: int
    stop: int


@dataclass(frozen=True)
class SampleShard:
    """Samples themselves, and the number of the first."""

    feeds: tuple[Mapping[str, NDArray[Any]], ...]
    start: int


Shard = FileShard | SampleShard


def collect_shard(work: Work, shard: Shard) -> Statistics:
    """Do one piece of work.

    Raises:
        OnnxqError: As `onnxq.calibration.collect`.
    """
    given = load_model(work.model) if isinstance(work.model, Path) else onnx.load_from_string(work.model)
    prepared = prepare(given, min_opset=work.min_opset, copy=False)
    samples: Iterable[Mapping[str, NDArray[Any]]]
    if isinstance(shard, FileShard):
        samples = make_feeds(prepared.model, shard.path, shapes=work.shapes).part(shard.start, shard.stop)
    else:
        samples = shard.feeds
    setup = Setup(threads=work.threads, types=prepared.types)
    return collect(prepared.model, work.tensors, samples, work.calibrator, setup=setup, first=shard.start)


def collect_sharded(
    executor: Executor, work: Work, feeds: Feeds, path: Path | None, size: int, progress: Callable[[int], None]
) -> Statistics:
    """Have all shards worked on, and merge what comes back.

    Args:
        executor: Who does it. It isn't shut down.
        work: What all have in common.
        feeds: All samples.
        path: The file that they are in, if any.
        size: Samples a shard.
        progress: Called with the number of samples that are done.

    Returns:
        The statistics of all samples.

    Raises:
        CalibrationError: A shard fails, or the executor breaks. What isn't begun then is called off.
    """
    shards = _file_shards(path, feeds.runs or 0, size) if path is not None else _sample_shards(feeds, size)
    limit = None if path is not None else IN_FLIGHT
    pending: set[Future[Statistics]] = set()
    whole: list[Statistics] = []
    try:
        while True:
            pending |= {
                executor.submit(collect_shard, work, shard)
                for shard in islice(shards, None if limit is None else limit - len(pending))
            }
            if not pending:
                break
            done, pending = wait(pending, return_when=FIRST_COMPLETED)
            whole = [reduce(Statistics.merged, [*whole, *(future.result() for future in done)])]
            progress(whole[0].samples)
    except BrokenExecutor as error:
        raise CalibrationError(f"a process that calibrated a shard died, maybe for want of memory: {error}") from None
    finally:
        for future in pending:
            future.cancel()
    if not whole:
        raise CalibrationError("calibration data: no samples")
    return whole[0]


def _file_shards(path: Path, runs: int, size: int) -> Iterator[Shard]:
    return (FileShard(path, start, min(start + size, runs)) for start in range(0, runs, size))


def _sample_shards(feeds: Feeds, size: int) -> Iterator[Shard]:
    samples, start = iter(feeds), 0
    while part := tuple(islice(samples, size)):
        yield SampleShard(part, start)
        start += len(part)
