"""Arrays whose leading axis counts samples, in memory or in a file, read a few rows at a time.

A file is read front to back through numpy's own header format, also inside an npz, so that however many samples
it holds, only those of one batch are in memory.
"""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from onnxq.errors import CalibrationError


class Column(Protocol):
    """An array that can be read by rows."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the whole."""

    def blocks(self, size: int, skip: int = 0) -> Iterator[NDArray[Any]]:
        """Consecutive slices of `size` rows along the leading axis, but the first `skip`; the whole without axes."""


@dataclass(frozen=True)
class ArrayColumn:
    """An array in memory."""

    array: NDArray[Any]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the whole."""
        return self.array.shape

    def blocks(self, size: int, skip: int = 0) -> Iterator[NDArray[Any]]:
        """Views of `size` rows each; the whole if there are no axes."""
        if not self.array.ndim:
            yield self.array
            return
        for start in range(skip * size, len(self.array), size):
            yield self.array[start : start + size]


@dataclass(frozen=True)
class FileColumn:
    """An array in an npy file, or in a member of an npz file.

    Attributes:
        path: The file.
        member: Name inside the npz; None for an npy file.
        shape: Shape of the whole, from the header.
        dtype: Of the elements, from the header.
        fortran_order: Whether the file holds columns together; then it can only be read as a whole.
    """

    path: Path
    member: str | None
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran_order: bool

    def blocks(self, size: int, skip: int = 0) -> Iterator[NDArray[Any]]:
        """Arrays of `size` rows each; the whole if there are no axes."""
        with _opened(self.path, self.member) as stream:
            _read_header(stream, self.path)
            if self.fortran_order and len(self.shape) > 1:
                stream.seek(0)
                yield from ArrayColumn(npy.read_array(stream, allow_pickle=False)).blocks(size, skip)
                return
            length, *inner = self.shape or (1,)
            block = (size, *inner) if self.shape else ()
            if self.shape:
                stream.seek(skip * self._bytes(block), io.SEEK_CUR)
            for _ in range(length // size - skip if self.shape else 1):
                yield self._read(stream, block)

    def _read(self, stream: IO[bytes], shape: tuple[int, ...]) -> NDArray[Any]:
        wanted = self._bytes(shape)
        raw = stream.read(wanted)
        if len(raw) < wanted:
            raise EOFError("it ends early")
        return np.frombuffer(raw, self.dtype).reshape(shape)

    def _bytes(self, shape: tuple[int, ...]) -> int:
        return int(np.prod(shape, dtype=np.int64)) * self.dtype.itemsize


def open_columns(path: Path) -> Mapping[str | None, Column]:
    """The arrays of an npz file by name, or the one of an npy file under None. Only headers are read.

    Args:
        path: A file whose name ends in .npz or .npy.

    Returns:
        The columns.

    Raises:
        CalibrationError: The file is missing, of another kind, damaged, or holds pickled objects.
    """
    suffix = path.suffix.lower()
    if suffix == ".npy":
        return {None: _file_column(path, None)}
    if suffix != ".npz":
        raise CalibrationError(f"{path}: calibration data come as .npz or .npy, written by numpy.savez or numpy.save")
    with _readable(path), zipfile.ZipFile(path) as archive:
        members = archive.namelist()
    return {member.removesuffix(".npy"): _file_column(path, member) for member in members}


def _file_column(path: Path, member: str | None) -> FileColumn:
    with _opened(path, member) as stream:
        shape, fortran_order, dtype = _read_header(stream, path)
    return FileColumn(path, member, shape, dtype, fortran_order)


def _read_header(stream: IO[bytes], path: Path) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    read = npy.read_array_header_1_0 if npy.read_magic(stream) == (1, 0) else npy.read_array_header_2_0
    shape, fortran_order, dtype = read(stream)
    if dtype.hasobject:
        raise CalibrationError(f"{path}: holds pickled objects, which onnxq never loads: save plain arrays")
    return shape, fortran_order, dtype


@contextmanager
def _opened(path: Path, member: str | None) -> Iterator[IO[bytes]]:
    with _readable(path), ExitStack() as stack:
        if member is None:
            yield stack.enter_context(path.open("rb"))
        else:
            archive = stack.enter_context(zipfile.ZipFile(path))
            yield stack.enter_context(archive.open(member))


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise CalibrationError(f"{path}: no such file") from None
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise CalibrationError(f"{path}: not a numpy file, or truncated: {reason}") from None
