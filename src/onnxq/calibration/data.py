"""Calibration data in every form that people have them, as one stream of feeds.

A *feed* is what one run of the model takes: input name -> array. Messages call it a sample and count from 0.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto

from onnxq.calibration.columns import ArrayColumn, Column, open_columns
from onnxq.calibration.inputs import InputSpec, check_names, fit, input_specs
from onnxq.errors import CalibrationError, UnsupportedError, UsageError


class DataReader(Protocol):
    """onnxruntime's `CalibrationDataReader`, or anything that quacks like it."""

    def get_next(self) -> Mapping[str, Any] | None:
        """The next feed; None when there are no more."""


CalibrationData = (
    str | os.PathLike[str] | Mapping[str, NDArray[Any]] | NDArray[Any] | DataReader | Iterable[Mapping[str, Any]]
)
"""A .npz or .npy file, arrays by input name, the array of the only input, a reader, or feeds one by one."""


@dataclass(frozen=True)
class Feeds:
    """Feeds to run the model on, checked one by one as they are taken; only one is held.

    Data in files, arrays and lists can be walked again; a reader or a generator only once.

    Attributes:
        description: What they are, for the report.
        is_random: Whether they were made up because there are no data.
        specs: What the model's inputs take.
        source: Where the feeds come from, unchecked.
        first: Number of the first, for messages.
    """

    description: str
    is_random: bool
    specs: tuple[InputSpec, ...]
    source: Iterable[Any]
    first: int = 0

    def __iter__(self) -> Iterator[dict[str, NDArray[Any]]]:
        number = self.first
        for raw in self.source:
            feed = self._checked(raw, f"calibration sample {number}")
            del raw  # neither name may keep a feed alive while the source makes the next
            yield feed
            del feed
            number += 1
        if number == self.first:
            raise CalibrationError(f"calibration data ({self.description}): no samples")

    @property
    def runs(self) -> int | None:
        """How many there are, if that is known beforehand."""
        return self.source.runs if isinstance(self.source, _Slices) else None

    def part(self, start: int, stop: int) -> Feeds:
        """Some of the feeds, if their number is known."""
        if not isinstance(self.source, _Slices):
            raise TypeError("only feeds cut from arrays have parts")
        return replace(self, source=replace(self.source, first=start, runs=stop), first=start)

    def _checked(self, raw: Any, where: str) -> dict[str, NDArray[Any]]:
        if not isinstance(raw, Mapping):
            raise CalibrationError(f"{where} is a {type(raw).__name__}: it should map input names to arrays")
        check_names(self.specs, raw, where)
        return {spec.name: fit(spec, raw[spec.name], where) for spec in self.specs}


def make_feeds(
    model: ModelProto,
    data: CalibrationData | None,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    seed: int = 0,
) -> Feeds:
    """Make the feeds of a model from calibration data.

    Arrays (in memory or in a file) hold samples along their leading axis. One run takes as many rows as the input's
    first dim says, or one where that is open. An input of rank 0 takes one array of shape [] for all runs, or
    one element a run of an array of shape [N]. Feeds from a reader or an iterable are used as they come, and their
    shapes may differ.

    Without data there is one sample of seeded random numbers: floats from the standard normal distribution, so that
    both signs occur; bools at random; integers 1, because that is a valid index, an unmasked position, and a
    length that isn't empty in most models. Dims that are open become 1.

    Args:
        model: The model; its inputs are the graph inputs that no initializer gives a value.
        data: See `CalibrationData`.
        shapes: Input name -> shape, which settles dims that the model leaves open: for random data, for the number of
            rows that a run takes, and for the check of each feed.
        seed: Of the random data.

    Returns:
        The feeds. Names and shapes of arrays are checked here, the rest as the feeds are taken.

    Raises:
        CalibrationError: The data can't be read, or don't fit the model.
        UsageError: `shapes` don't fit the model, or `data` is of no known kind.
        UnsupportedError: An input is no tensor, or there are no data and random ones can't be made.
    """
    specs = input_specs(model, shapes)
    if data is None:
        return _random_feeds(specs, seed)
    if isinstance(data, str | os.PathLike):
        path = Path(data)
        columns = {_only_input(specs, path) if n is None else n: c for n, c in open_columns(path).items()}
        return _sliced_feeds(specs, columns, str(path))
    if isinstance(data, np.ndarray):
        return _sliced_feeds(specs, {_only_input(specs, "calibration data"): _array_column(data)}, "array")
    if isinstance(data, Mapping):
        return _sliced_feeds(specs, {name: _array_column(a, name) for name, a in data.items()}, "arrays")
    if hasattr(data, "get_next"):
        return Feeds(type(data).__name__, False, specs, iter(data.get_next, None))
    if isinstance(data, Iterable):
        return Feeds("feeds", False, specs, data)
    raise UsageError(
        f"calibration data: a {type(data).__name__} is none of: path of an .npz or .npy file, array, "
        "mapping of input name to array, CalibrationDataReader, iterable of such mappings"
    )


def _only_input(specs: Sequence[InputSpec], where: object) -> str:
    if len(specs) != 1:
        names = ", ".join(s.name for s in specs) or "none"
        raise CalibrationError(
            f"{where}: one array, and the model has {len(specs)} inputs ({names}): give arrays by name, or an .npz"
        )
    return specs[0].name


def _array_column(value: Any, name: str = "") -> ArrayColumn:
    try:
        return ArrayColumn(np.asarray(value))
    except ValueError:
        raise CalibrationError(f'calibration data: "{name}" is no rectangular array') from None


@dataclass(frozen=True)
class _Slices:
    """Feeds cut from columns that all last for `runs` runs.

    Attributes:
        columns: For each input its column, the rows that a run takes, and whether a run takes a scalar. An array
            without axes serves every run.
        runs: How many there are.
        first: The first that is taken; those before it are passed over without being read.
    """

    columns: Mapping[str, tuple[Column, int, bool]]
    runs: int
    first: int = 0

    def __iter__(self) -> Iterator[dict[str, NDArray[Any]]]:
        constant = {name: next(c.blocks(1)) for name, (c, _, _) in self.columns.items() if not c.shape}
        blocks = {name: c.blocks(rows, self.first) for name, (c, rows, _) in self.columns.items() if c.shape}
        for _ in range(self.first, self.runs):
            feed = {name: next(b) for name, b in blocks.items()} | constant
            yield {name: a.reshape(()) if self.columns[name][2] else a for name, a in feed.items()}
            del feed


def _sliced_feeds(specs: tuple[InputSpec, ...], columns: Mapping[str, Column], description: str) -> Feeds:
    where = f"calibration data ({description})"
    check_names(specs, columns, where)
    plan = {s.name: (columns[s.name], _rows_a_run(s, columns[s.name], where), s.shape == ()) for s in specs}
    runs = {name: column.shape[0] // rows for name, (column, rows, _) in plan.items() if column.shape}
    if len(set(runs.values())) > 1:
        counts = ", ".join(f'"{name}" {n}' for name, n in runs.items())
        raise CalibrationError(f"{where}: the arrays last for different numbers of runs: {counts}")
    return Feeds(description, False, specs, _Slices(plan, next(iter(runs.values()), 1)))


def _rows_a_run(spec: InputSpec, column: Column, where: str) -> int:
    """How many rows of a column one run takes; an error where the column can't be cut that way."""
    shape = column.shape
    wanted = None if spec.shape is None else max(len(spec.shape), min(len(shape), 1))  # scalars: [] or [N]
    if wanted is not None and len(shape) != wanted:
        raise CalibrationError(
            f'{where}: input "{spec.name}" takes {spec}, so the data need {wanted} axes, samples along the first, '
            f"and have {len(shape)}: {list(shape)}"
        )
    first = spec.shape[0] if spec.shape else None
    rows = first if isinstance(first, int) else 1
    if shape and shape[0] % rows:
        over = shape[0] % rows
        raise CalibrationError(
            f'{where}: input "{spec.name}" takes {rows} samples a run, and {shape[0]} are no multiple of that: '
            f"add {rows - over} or drop {over}"
        )
    return rows


@dataclass(frozen=True)
class _RandomSample:
    """The one feed made up where there are no data."""

    shapes: Mapping[str, tuple[np.dtype[Any], tuple[int, ...]]]
    seed: int

    def __iter__(self) -> Iterator[dict[str, NDArray[Any]]]:
        random = np.random.default_rng(self.seed)
        yield {name: _random_array(random, dtype, shape) for name, (dtype, shape) in self.shapes.items()}


def _random_array(random: np.random.Generator, dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    if dtype.kind in "iu":
        return np.ones(shape, dtype)
    if dtype.kind == "b":
        return random.integers(0, 2, shape).astype(dtype)
    return np.asarray(random.standard_normal(shape)).astype(dtype)


def _random_feeds(specs: tuple[InputSpec, ...], seed: int) -> Feeds:
    shapes = {}
    for spec in specs:
        if spec.shape is None:
            raise UnsupportedError(
                f'input "{spec.name}" has no shape: give one in calibration_shapes, or give calibration data'
            )
        if spec.dtype == np.object_:
            raise UnsupportedError(f'input "{spec.name}" takes strings, which can\'t be made up: give calibration data')
        shapes[spec.name] = (spec.dtype, tuple(d if isinstance(d, int) else 1 for d in spec.shape))
    return Feeds(f"1 random sample, seed {seed}", bool(specs), specs, _RandomSample(shapes, seed))
