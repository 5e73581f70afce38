"""What a case may be: cases and models come from strangers, and reading one must cost little and touch nothing else.

No code of a case runs, no file outside of its folder is read, and whatever is too large is refused before memory is
spent on it. What can't be seen without running the model, such as a shape that the model computes, is caught by
a bound on memory. Time isn't bounded here: a Loop may run for ever, and a runner's time limit ends it.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError, Message
from onnx import ModelProto, TensorProto, ValueInfoProto
from onnx.external_data_helper import uses_external_data

from onnxq.errors import CorpusError, InvalidModelError
from onnxq.protos import bodies, describe, walk_graphs, walk_tensors
from onnxq.tensor_types import value_type

SIZE_LIMIT = 64 * 2**20
"""Bytes that one model of the corpus may have, external data included, and calibration data likewise."""

NODE_LIMIT = 20_000
"""Nodes of one model, those of bodies and functions included."""

DEPTH_LIMIT = 8
"""How deep bodies may be nested."""

RANK_LIMIT = 32
"""Dims of one tensor."""

WEIGHT_LIMIT = 2**26
"""Elements of all stored tensors together, those made from a seed included."""

TENSOR_LIMIT = 2**26
"""Elements of one tensor that the model declares, or that follows from what it declares."""

MEMORY_LIMIT = 4 * 2**30
"""Bytes that reading or running a case may take on top of what the process has."""


def file_inside(where: str, folder: Path, name: str) -> Path:
    """The regular file of a name, if it really lies in a folder, links followed, and isn't too big.

    Args:
        where: What names the file, for messages.
        folder: The case's folder.
        name: As given by the case or the model.

    Returns:
        The file, links resolved.

    Raises:
        CorpusError: It lies elsewhere, is none, or has more than `SIZE_LIMIT` bytes.
    """
    root = folder.resolve()
    try:
        file = (root / name).resolve()
        if not file.is_relative_to(root):
            raise CorpusError(f'{where}: "{name}" lies outside of the folder of the case')
        if not file.is_file():
            raise CorpusError(f'{where}: there is no file "{name}" in the folder of the case')
        size = file.stat().st_size
    except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: links in a circle
        raise CorpusError(f'{where}: "{name}" is no usable path: {error}') from None
    if size > SIZE_LIMIT:
        raise CorpusError(f'{where}: "{name}" has {size} bytes, and a case may have {SIZE_LIMIT >> 20} MiB')
    return file


def check_model_file(where: str, file: Path) -> None:
    """Check a model file before it is loaded: its external data, and what `check_model` checks.

    Args:
        where: What names the file, for messages.
        file: A file that `file_inside` has passed.

    Raises:
        CorpusError: Naming the limit.
    """
    model = ModelProto()
    try:
        model.ParseFromString(file.read_bytes())
    except (DecodeError, RuntimeError):
        return  # not a model: loading it says so
    known = [tensor for tensor in walk_tensors(model) if uses_external_data(tensor)]
    if len(known) != sum(1 for _ in _external_anywhere(model)):
        raise CorpusError(f"{where}: external data of what is neither an initializer nor an attribute of a node")
    size = file.stat().st_size
    size += sum(_external_size(f"{where}: external data", file.parent, tensor) for tensor in known)
    if size > SIZE_LIMIT:
        raise CorpusError(f"{where}: {size} bytes with its external data; allowed: {SIZE_LIMIT >> 20} MiB")
    check_model(where, model)


def check_model(where: str, model: ModelProto) -> None:
    """Check the size of a model: nodes, nesting, stored tensors, and the tensors that running it makes.

    Args:
        where: What the model comes from, for messages.
        model: Its values aren't looked at, so they may be in other files.

    Raises:
        CorpusError: Naming the limit and what is beyond it.
    """
    nodes = _count_nodes(where, model)
    if nodes > NODE_LIMIT:
        raise CorpusError(f"{where}: {nodes:,} nodes; allowed: {NODE_LIMIT:,}")
    stored = 0
    for tensor in walk_tensors(model):
        _check_rank(where, tensor.name, len(tensor.dims))
        stored += _elements(tensor.dims)
    for graph in walk_graphs(model.graph):
        for sparse in graph.sparse_initializer:  # is made dense
            _check_rank(where, sparse.values.name, len(sparse.dims))
            stored += _elements(sparse.dims)
    if stored > WEIGHT_LIMIT:
        raise CorpusError(f"{where}: {stored:,} stored elements; allowed: {WEIGHT_LIMIT:,}")
    for graph in walk_graphs(model.graph):
        _check_values(where, "is declared with", (*graph.input, *graph.output, *graph.value_info))
    _check_inferred(where, model)


def check_arrays(where: str, file: Path) -> None:
    """Check calibration data before they are read: an archive may unpack to far more than its size.

    Args:
        where: What names the file, for messages.
        file: A file that `file_inside` has passed.

    Raises:
        CorpusError: The arrays have more than `SIZE_LIMIT` bytes.
    """
    if not zipfile.is_zipfile(file):
        return
    try:
        with zipfile.ZipFile(file) as archive:
            size = sum(member.file_size for member in archive.infolist())
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        return  # damaged: reading it says so
    if size > SIZE_LIMIT:
        raise CorpusError(f"{where}: {size} bytes when unpacked; allowed: {SIZE_LIMIT >> 20} MiB")


def check_shape(where: str, shape: Iterable[int]) -> None:
    """Check one shape that a case asks for.

    Raises:
        CorpusError: It has too many elements.
    """
    elements = _elements(shape)
    if elements > TENSOR_LIMIT:
        raise CorpusError(f"{where}: {elements:,} elements; allowed: {TENSOR_LIMIT:,}")


@contextmanager
def bounded_memory() -> Iterator[None]:
    """Let the block take `MEMORY_LIMIT` more bytes of address space, where the system offers that (Linux).

    Child processes inherit the bound, so nothing that starts one belongs into the block.

    Raises:
        InvalidModelError: The block ran out of memory.
    """
    try:
        with _address_space(MEMORY_LIMIT):
            yield
    except MemoryError:
        raise InvalidModelError(f"the model needs more than {MEMORY_LIMIT >> 30} GiB of memory") from None


@contextmanager
def _address_space(more: int) -> Iterator[None]:
    try:
        import resource

        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    except (ImportError, OSError):
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    bounds = [pages * resource.getpagesize() + more, *(b for b in (soft, hard) if b != resource.RLIM_INFINITY)]
    resource.setrlimit(resource.RLIMIT_AS, (min(bounds), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _external_size(where: str, folder: Path, tensor: TensorProto) -> int:
    """Bytes that loading one tensor reads: many tensors may name the same file."""
    size, length = 0, None
    for entry in tensor.external_data:
        if entry.key == "location":
            size = file_inside(where, folder, entry.value).stat().st_size
        elif entry.key == "length" and entry.value.isascii() and entry.value.isdigit():
            length = int(entry.value[:20])
    return size if length is None else min(size, length)


def _count_nodes(where: str, model: ModelProto) -> int:
    level = [*model.graph.node, *(node for function in model.functions for node in function.node)]
    count, depth = len(level), 0
    while level := [inner for node in level for _, body in bodies(node) for inner in body.node]:
        count, depth = count + len(level), depth + 1
        if depth > DEPTH_LIMIT:
            raise CorpusError(f"{where}: bodies nested {depth} deep; allowed: {DEPTH_LIMIT}")
    return count


def _external_anywhere(message: Message) -> Iterator[TensorProto]:
    """Every tensor that names another file, wherever the model holds it."""
    if isinstance(message, TensorProto):
        if uses_external_data(message) or message.external_data:
            yield message
        return
    for field, value in message.ListFields():
        if field.message_type is not None:
            for inner in [value] if isinstance(value, Message) else value:
                yield from _external_anywhere(inner)


def _check_rank(where: str, name: str, rank: int) -> None:
    if rank > RANK_LIMIT:
        raise CorpusError(f'{where}: tensor "{name}" has {rank} dims; allowed: {RANK_LIMIT}')


def _check_values(where: str, how: str, values: Iterable[ValueInfoProto]) -> None:
    for value in values:
        shape = value_type(value.type).shape or ()
        _check_rank(where, value.name, len(shape))
        elements = _elements(dim for dim in shape if isinstance(dim, int))
        if elements > TENSOR_LIMIT:
            raise CorpusError(f'{where}: tensor "{value.name}" {how} {elements:,} elements; allowed: {TENSOR_LIMIT:,}')


def _check_inferred(where: str, model: ModelProto) -> None:
    """A ConstantOfShape, Expand or Tile of a few bytes can ask for any amount of memory."""
    try:
        inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
    except Exception:  # a broken model: what quantizes it says so
        return
    named = {name: node for graph in walk_graphs(inferred.graph) for node in graph.node for name in node.output}
    for graph in walk_graphs(inferred.graph):
        for value in graph.value_info:
            maker = f"of {describe(named[value.name])} has" if value.name in named else "has"
            _check_values(where, maker, [value])


def _elements(dims: Iterable[int]) -> int:
    """What dims hold as far as they are known: 0 and below stand for any length where exporters write them."""
    return math.prod(dim for dim in dims if dim > 0)
