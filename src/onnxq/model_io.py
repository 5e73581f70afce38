"""Reading and writing model files: external data, one-line errors, atomic writes.

Nothing here changes an input file, and an output appears whole or not at all.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
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
from onnxq.protos import walk_tensors

PROTO_LIMIT = 2**31 - 1
"""Bytes that one protobuf message may have; a larger model needs external data."""

PathLike = str | os.PathLike[str]


def load_model(path: PathLike) -> onnx.ModelProto:
    """Load a model with all of its external data.

    Args:
        path: An ONNX file. Its external data are looked for beside it, whatever the current directory is.

    Returns:
        The model, complete in memory.

    Raises:
        InvalidModelError: The file is missing, empty, truncated, no ONNX model, or lacks external data.
    """
    file = Path(path)
    model = onnx.ModelProto()
    try:
        raw = file.read_bytes()
        model.ParseFromString(raw)
    except FileNotFoundError:
        raise InvalidModelError(f"{file}: no such file") from None
    except IsADirectoryError:
        raise InvalidModelError(f"{file}: is a directory, an ONNX file is wanted") from None
    except OSError as error:
        raise InvalidModelError(f"{file}: can't be read: {error.strerror}") from None
    except (DecodeError, RuntimeError):
        raise InvalidModelError(f"{file}: not an ONNX model, or truncated: it can't be parsed as protobuf") from None
    if not raw:
        raise InvalidModelError(f"{file}: the file is empty")
    if not model.HasField("graph") or not model.ir_version:
        raise InvalidModelError(f"{file}: not an ONNX model: it has no graph or no IR version")
    _load_external_data(model, file)
    return model


def save_model(model: onnx.ModelProto, path: PathLike) -> None:
    """Write a model so that the file appears whole or not at all.

    A model beyond the limit of protobuf gets its weights in `<name>.data` beside it.

    Args:
        model: What to write. It isn't modified.
        path: The file to write; an existing one is replaced.

    Raises:
        UsageError: The folder is missing or can't be written to.
    """
    file = Path(path)
    check_writable(file)
    with _temporary_sibling(file) as folder:
        if model.ByteSize() < PROTO_LIMIT:
            (folder / file.name).write_bytes(model.SerializeToString())
            (folder / file.name).replace(file)
        else:
            _save_with_external_data(model, file, folder)


def check_writable(path: PathLike) -> None:
    """Fail early, before the long work, where an output couldn't be written.

    Args:
        path: The file that will be written later.

    Raises:
        UsageError: Naming what is wrong with the place.
    """
    file = Path(path)
    if file.is_dir():
        raise UsageError(f"{file}: is a directory, name a file to write")
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
    file = Path(path)
    check_writable(file)
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


def _load_external_data(model: onnx.ModelProto, file: Path) -> None:
    for tensor in walk_tensors(model):
        if not uses_external_data(tensor):
            continue
        try:
            load_external_data_for_tensor(tensor, str(file.parent))
        except Exception as error:  # the library raises several unrelated types for a missing or forbidden file
            location = next((e.value for e in tensor.external_data if e.key == "location"), "?")
            raise InvalidModelError(
                f'{file}: the external data of tensor "{tensor.name}" can\'t be read from "{location}", '
                f"which must lie beside the model: {str(error).splitlines()[0]}"
            ) from None
        tensor.data_location = TensorProto.DEFAULT
        del tensor.external_data[:]
