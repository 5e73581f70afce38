"""Reading and writing model files: external data, one-line errors, atomic writes.

Nothing here changes an input file, and an output appears whole or not at all. The heavy weights of a large model are
neither read with it nor copied: see `onnxq.tensor_data`.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import BinaryIO

import onnx
from google.protobuf.message import DecodeError, EncodeError
from onnx import ModelProto, TensorProto
from onnx.external_data_helper import load_external_data_for_tensor, uses_external_data

from onnxq.errors import InvalidModelError, UnsupportedError, UsageError
from onnxq.protos import walk_graphs, walk_tensors, with_initializers
from onnxq.seeded import restore_weights
from onnxq.tensor_data import (
    byte_size,
    file_of,
    is_heavy,
    is_large,
    is_mappable,
    is_mapped,
    leave_in_file,
    self_contained,
    tensor_values,
)

PathLike = str | os.PathLike[str]

_ALIGNMENT = 4096
"""Of each weight in a data file: a page, so that it can be mapped into memory."""


def load_model(path: PathLike) -> onnx.ModelProto:
    """Load a model with all of its external data, and with made-up weights where it was stripped of its own.

    Args:
        path: An ONNX file. Its external data are looked for beside it and below, whatever the current directory is.

    Returns:
        The model, complete in memory. Of a large one the heavy weights that are external stay in their files, which
        must remain as they are; `onnxq.tensor_data.tensor_values` reads them.

    Raises:
        InvalidModelError: The file is missing, empty, truncated, no ONNX model, or lacks external data.
    """
    file = Path(path)
    model = _parse(file)
    _load_external_data(model, file)
    try:
        restore_weights(model)
    except InvalidModelError as error:
        raise InvalidModelError(f"{file}: {error}") from None
    return model


def model_files(path: PathLike) -> list[Path]:
    """The files that a model consists of: its own, and those with its external data.

    Args:
        path: An ONNX file.

    Returns:
        Its path, then those of its external data in order of first use, whether they exist or not.

    Raises:
        InvalidModelError: The file is missing, empty, truncated, or no ONNX model.
    """
    file = Path(path)
    tensors = (t for t in walk_tensors(_parse(file)) if uses_external_data(t))
    return [file, *dict.fromkeys(file.parent / _location(tensor) for tensor in tensors)]


def save_model(model: onnx.ModelProto, path: PathLike, *, inputs: Iterable[PathLike] = ()) -> None:
    """Write a model so that the file appears whole or not at all.

    A large model gets its weights in `<name>.data` beside it, in place of those of the file that it replaces. If that
    name is taken by anything else, it is `<name>.1.data`, and so on. A symbolic link stays one: the file that it points
    to is written.

    Args:
        model: What to write. It isn't modified.
        path: The file to write; an existing one is replaced.
        inputs: Files that must stay as they are, so that no weights go there.

    Raises:
        UsageError: The folder is missing or can't be written to.
        UnsupportedError: The model is too large without its weights.
    """
    check_writable(path)
    file = Path(path).resolve()
    with _temporary_sibling(file) as folder:
        if is_large(model):
            data = _free_data_file(file, {*inputs, *_mapped_files(model)})
            _write_parts(model, folder / file.name, folder / data.name)
            _rename_both(folder, file, data)
        else:
            (folder / file.name).write_bytes(_serialize(self_contained(model)))
            (folder / file.name).replace(file)


def check_writable(path: PathLike, *, inputs: Iterable[PathLike] = ()) -> None:
    """Fail early, before the long work, where an output couldn't be written, or mustn't be.

    Args:
        path: The file that will be written later.
        inputs: Files that must stay as they are: the output may be none of them, under whatever path. Only asked for if
            the output exists.

    Raises:
        UsageError: Naming what is wrong with the place.
    """
    if not os.fspath(path):
        raise UsageError("the name of the output file is empty")
    file = Path(path).resolve()
    if file.is_dir():
        raise UsageError(f"{path}: is a directory, name a file to write")
    if file.exists() and not file.is_file():
        raise UsageError(f"{path}: is a device or a pipe, name a file to write")
    for existing in inputs if file.exists() else ():
        if Path(existing).exists() and file.samefile(existing):
            raise UsageError(f"{path}: is an input of this run, which is never overwritten: name another output file")
    if not file.parent.is_dir():
        raise UsageError(f"{file.parent}: no such directory, so {file.name} can't be written there")
    try:
        with tempfile.TemporaryDirectory(prefix=".onnxq-", dir=file.parent):
            pass
    except OSError as error:
        raise UsageError(f"{file.parent}: can't be written to: {error.strerror}") from None


def why_invalid(model: onnx.ModelProto) -> str:
    """Ask the ONNX checker about a model, types and shapes included.

    Args:
        model: Any model.

    Returns:
        Its first complaint in one line; empty for a valid model.
    """
    try:
        if is_large(model) or _mapped_files(model):
            _check_without_weights(model)
        else:
            onnx.checker.check_model(model, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError, RuntimeError, ValueError) as error:
        return " ".join(str(error).split()) or type(error).__name__
    return ""


def write_text(text: str, path: PathLike) -> None:
    """Write a text file (UTF-8) so that it appears whole or not at all.

    Args:
        text: The content.
        path: The file to write; an existing one is replaced.

    Raises:
        UsageError: The folder is missing or can't be written to.
    """
    check_writable(path)
    file = Path(path).resolve()
    with _temporary_sibling(file) as folder:
        (folder / file.name).write_text(text, encoding="utf-8")
        (folder / file.name).replace(file)


@contextmanager
def _temporary_sibling(file: Path) -> Iterator[Path]:
    """A folder on the same file system as `file`, so that a rename from it is atomic; gone afterwards."""
    try:
        with tempfile.TemporaryDirectory(prefix=".onnxq-", dir=file.parent) as folder:
            yield Path(folder)
    except OSError as error:
        raise UsageError(f"{file}: can't be written: {error.strerror or error}") from None


def _free_data_file(file: Path, inputs: Iterable[PathLike]) -> Path:
    """Where the weights of a model go: a name that is free, or that only the file that is replaced refers to."""
    try:
        replaceable = {path.resolve() for path in model_files(file)[1:]}
    except InvalidModelError:  # there is no file yet, or it is no model
        replaceable = set()
    replaceable -= {Path(path).resolve() for path in inputs}
    names = (f"{file.name}{f'.{number}' if number else ''}.data" for number in count())
    return next(
        data for data in map(file.with_name, names) if data in replaceable or not (data.exists() or data.is_symlink())
    )


def _write_parts(model: ModelProto, file: Path, data: Path) -> None:
    """Write a model and its heavy weights to two files, one weight after the other."""
    with data.open("wb") as stream:
        light = with_initializers(model, (_moved(tensor, stream, data.name) for tensor in model.graph.initializer))
    file.write_bytes(_serialize(light))


def _moved(tensor: TensorProto, stream: BinaryIO, location: str) -> TensorProto:
    """The tensor itself, or one that refers to its values in a file, to which they are written."""
    if not is_heavy(tensor):
        return tensor
    offset = -(-stream.tell() // _ALIGNMENT) * _ALIGNMENT
    stream.seek(offset)
    if is_mapped(tensor):
        stream.write(tensor_values(tensor).data)
    elif tensor.HasField("raw_data"):
        stream.write(tensor.raw_data)
    else:
        stream.write(onnx.numpy_helper.from_array(tensor_values(tensor)).raw_data)
    return _reference(tensor, location, offset, stream.tell() - offset)


def _reference(tensor: TensorProto, location: str, offset: int, length: int) -> TensorProto:
    outside = TensorProto(
        name=tensor.name,
        data_type=tensor.data_type,
        dims=tensor.dims,
        doc_string=tensor.doc_string if tensor.HasField("doc_string") else None,
        metadata_props=tensor.metadata_props,
        data_location=TensorProto.EXTERNAL,
    )
    for key, value in (("location", location), ("offset", str(offset)), ("length", str(length))):
        outside.external_data.add(key=key, value=value)
    return outside


def _rename_both(folder: Path, file: Path, data: Path) -> None:
    """Put a model file and its data file into their places. What was there comes back if that fails."""
    before = folder / "before"
    if data.exists():
        data.rename(before)
    try:
        (folder / data.name).replace(data)
        (folder / file.name).replace(file)
    except BaseException:
        data.unlink(missing_ok=True)
        if before.exists():
            before.rename(data)
        raise


def _check_without_weights(model: ModelProto) -> None:
    """Show the checker a copy whose heavy weights are in an empty file: it looks at their types and shapes only."""
    with tempfile.TemporaryDirectory(prefix="onnxq-") as folder:
        file, data = Path(folder, "model.onnx"), Path(folder, "model.onnx.data")
        outside = []
        for tensor in model.graph.initializer:
            size = byte_size(tensor)
            if tensor.HasField("raw_data") and is_heavy(tensor) and len(tensor.raw_data) != size:
                raise ValueError(f'tensor "{tensor.name}" holds {len(tensor.raw_data)} bytes, its shape has {size}')
            outside.append(_reference(tensor, data.name, 0, size) if is_heavy(tensor) or is_mapped(tensor) else tensor)
        with data.open("wb") as stream:
            stream.truncate(max(map(byte_size, outside), default=0))
        file.write_bytes(_serialize(with_initializers(model, outside)))
        onnx.checker.check_model(file, full_check=True)


def _serialize(model: ModelProto) -> bytes:
    try:
        return bytes(model.SerializeToString())
    except (EncodeError, ValueError):  # what protobuf raises beyond its limit of 2 GiB
        raise UnsupportedError(
            "the model has 2 GiB or more beside the initializers of its main graph, so no ONNX file can hold it: "
            "store the weights as initializers of the main graph"
        ) from None


def _mapped_files(model: ModelProto) -> list[Path]:
    return list(dict.fromkeys(file_of(tensor) for tensor in model.graph.initializer if is_mapped(tensor)))


def _parse(file: Path) -> onnx.ModelProto:
    """The model as the file has it, external data not loaded."""
    model = onnx.ModelProto()
    try:
        raw = file.read_bytes()
        model.ParseFromString(raw)
    except FileNotFoundError:
        raise InvalidModelError(f"{file}: no such file") from None
    except IsADirectoryError:
        raise InvalidModelError(f"{file}: is a directory, an ONNX file is wanted") from None
    except (OSError, ValueError) as error:  # ValueError: the path holds a null character
        raise InvalidModelError(f"{file}: can't be read: {getattr(error, 'strerror', None) or error}") from None
    except (DecodeError, RuntimeError):
        raise InvalidModelError(f"{file}: not an ONNX model, or truncated: it can't be parsed as protobuf") from None
    if not raw:
        raise InvalidModelError(f"{file}: the file is empty")
    if not model.HasField("graph") or not model.ir_version:
        raise InvalidModelError(f"{file}: not an ONNX model: it has no graph or no IR version")
    if not all(isinstance(name, str) for name in _names(model)):
        raise InvalidModelError(f"{file}: not an ONNX model, or damaged: it holds names that aren't UTF-8")
    return model


def _names(model: onnx.ModelProto) -> Iterator[object]:
    """Every name that later steps may read. One that isn't UTF-8 is handed out as bytes by protobuf."""
    yield from (opset.domain for opset in model.opset_import)
    for graph in walk_graphs(model.graph):
        yield graph.name
        yield from (tensor.name for tensor in graph.initializer)
        for value in (*graph.input, *graph.output, *graph.value_info):
            yield value.name
            yield from (dim.dim_param for dim in value.type.tensor_type.shape.dim)
        for node in graph.node:
            yield from (node.name, node.op_type, node.domain, *node.input, *node.output)
            yield from (attribute.name for attribute in node.attribute)


def _location(tensor: TensorProto) -> str:
    return _entries(tensor).get("location", "?")


def _entries(tensor: TensorProto) -> Mapping[str, str]:
    return {entry.key: entry.value for entry in tensor.external_data}


def _load_external_data(model: onnx.ModelProto, file: Path) -> None:
    """Read external data into the tensors, but for the heavy weights of a large model."""
    if is_large(model):
        for tensor in model.graph.initializer:
            if uses_external_data(tensor) and is_heavy(tensor) and is_mappable(tensor):
                _map(tensor, file)
    for tensor in walk_tensors(model):
        if not uses_external_data(tensor) or is_mapped(tensor):
            continue
        try:
            load_external_data_for_tensor(tensor, str(file.parent))
        except Exception as error:  # the library raises several unrelated types for a missing or forbidden file
            raise _unreadable(tensor, file, " ".join(str(error).split()) or type(error).__name__) from None
        tensor.ClearField("data_location")
        del tensor.external_data[:]


def _map(tensor: TensorProto, file: Path) -> None:
    """Leave a weight in its file, once it is sure to be there."""
    location, entries = _location(tensor), _entries(tensor)
    folder, size = file.parent.resolve(), byte_size(tensor)
    try:
        data = (folder / location).resolve()
        offset, length = (int(entries.get(key) or default) for key, default in (("offset", 0), ("length", size)))
        if Path(location).is_absolute() or not data.is_relative_to(folder):
            raise _unreadable(tensor, file, "it lies outside of the model's folder")
        if length != size or offset < 0:
            raise _unreadable(tensor, file, f"{length} bytes at {offset} are named, and its shape has {size}")
        if data.stat().st_size < offset + size or not data.is_file():
            raise _unreadable(tensor, file, f"the file has no {size} bytes at {offset}")
    except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: links in a circle
        raise _unreadable(tensor, file, getattr(error, "strerror", None) or str(error)) from None
    leave_in_file(tensor, data, offset)


def _unreadable(tensor: TensorProto, file: Path, reason: str) -> InvalidModelError:
    return InvalidModelError(
        f'{file}: the external data of tensor "{tensor.name}" can\'t be read from "{_location(tensor)}", '
        f"which must lie beside the model: {reason}"
    )
