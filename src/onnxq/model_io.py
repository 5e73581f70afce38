"""Reading and writing model files: external data, one-line errors, atomic writes.

Nothing here changes an input file, and an output appears whole or not at all.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError
from onnx import TensorProto
from onnx.external_data_helper import (
    convert_model_to_external_data,
    load_external_data_for_tensor,
    uses_external_data,
)

from onnxq.errors import InvalidModelError, UsageError
from onnxq.protos import walk_graphs, walk_tensors
from onnxq.seeded import restore_weights

PROTO_LIMIT = 2**31 - 1
"""Bytes that one protobuf message may have; a larger model needs external data."""

PathLike = str | os.PathLike[str]


def load_model(path: PathLike) -> onnx.ModelProto:
    """Load a model with all of its external data, and with made-up weights where it was stripped of its own.

    Args:
        path: An ONNX file. Its external data are looked for beside it, whatever the current directory is.

    Returns:
        The model, complete in memory.

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


def save_model(model: onnx.ModelProto, path: PathLike) -> None:
    """Write a model so that the file appears whole or not at all.

    A model beyond the limit of protobuf gets its weights in `<name>.data` beside it. A symbolic link stays one: the
    file that it points to is written.

    Args:
        model: What to write. It isn't modified.
        path: The file to write; an existing one is replaced.

    Raises:
        UsageError: The folder is missing or can't be written to.
    """
    check_writable(path)
    file = Path(path).resolve()
    with _temporary_sibling(file) as folder:
        if model.ByteSize() < PROTO_LIMIT:
            (folder / file.name).write_bytes(model.SerializeToString())
            (folder / file.name).replace(file)
        else:
            _save_with_external_data(model, file, folder)


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
        if model.ByteSize() < PROTO_LIMIT:
            onnx.checker.check_model(model, full_check=True)
        else:
            with tempfile.TemporaryDirectory(prefix="onnxq-") as folder:
                file = Path(folder) / "model.onnx"
                save_model(model, file)
                onnx.checker.check_model(file, full_check=True)
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


def _save_with_external_data(model: onnx.ModelProto, file: Path, folder: Path) -> None:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    data = f"{file.name}.data"
    convert_model_to_external_data(copy, all_tensors_to_one_file=True, location=data)
    onnx.save_model(copy, folder / file.name)
    (folder / data).replace(file.with_name(data))
    (folder / file.name).replace(file)


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
    return next((e.value for e in tensor.external_data if e.key == "location"), "?")


def _load_external_data(model: onnx.ModelProto, file: Path) -> None:
    for tensor in walk_tensors(model):
        if not uses_external_data(tensor):
            continue
        try:
            load_external_data_for_tensor(tensor, str(file.parent))
        except Exception as error:  # the library raises several unrelated types for a missing or forbidden file
            reason = " ".join(str(error).split()) or type(error).__name__
            raise InvalidModelError(
                f'{file}: the external data of tensor "{tensor.name}" can\'t be read from "{_location(tensor)}", '
                f"which must lie beside the model: {reason}"
            ) from None
        tensor.ClearField("data_location")
        del tensor.external_data[:]
