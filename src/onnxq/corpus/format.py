"""The text of a case: what keys `case.toml` has, and of which type each is.

A wrong key or value is a `CorpusError` that names the file, the key and what is allowed there.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import fields

from onnxq.errors import CorpusError

SCHEMA = 1
"""Version of the case format that this onnxq reads."""

TEXT_LIMIT = 256 * 1024
"""Bytes that a case file may have."""

GoldenKind = Literal["placement", "shapes", "ranges"]
"""What a golden file can be about; it is called `<kind>.txt`."""

GOLDEN_KINDS: tuple[GoldenKind, ...] = get_args(GoldenKind)

Text = Annotated[str, Meta(min_length=1)]
Dim = int | Text
"""A number, a symbol, or "?" for a dim that has neither value nor symbol."""

Tensors = list[str | list[str]]
"""Names of tensors. A list among them stands for any one of its members, where more than one answer is right."""


class ModelSource(Struct, frozen=True, forbid_unknown_fields=True):
    """`[model]`: where the float model comes from, exactly one of `builder` and `file`."""

    builder: str | None = None
    """A name in `onnxq_builders.BUILDERS`."""
    file: str | None = None
    """An ONNX file in the folder of the case."""
    args: dict[str, Any] = {}
    """Keyword arguments of the builder."""


class Expectation(Struct, frozen=True, forbid_unknown_fields=True):
    """What must hold of the quantized model; None says nothing about it.

    Nodes are named by their name or their first output, and tensors as in the float model.
    """

    quantized_add_inputs: dict[str, Tensors] | None = None
    """Add (or Sum) -> the input tensors that it reads quantized, in any order."""
    quantized_inputs: dict[str, Tensors] | None = None
    """The same for any node."""
    outputs: dict[str, list[Dim]] | None = None
    """Output -> its declared dims, exactly."""
    output_types: dict[str, str] | None = None
    """Output -> its declared element type, such as "float" or "int64"."""
    node_types: dict[str, str] | None = None
    """Node, also one of a body -> element type of the first output that the node itself makes, before any Cast."""
    initializer_types: dict[str, str] | None = None
    """Initializer, or output of a Constant -> element type in which it is stored."""
    casts: Annotated[int, Meta(ge=0)] | None = None
    """How many Casts there are, those of bodies included."""
    opset: Annotated[int, Meta(ge=1)] | None = None
    """Version of the default operator set."""
    relations: list[Text] | None = None
    """Names in `onnxq.relations.RELATIONS` that must hold of the model, beside those that other checks are about."""
    runs: bool | None = None
    """Whether onnxruntime runs the quantized model. True unless given."""
    float_runs: bool | None = None
    """Whether onnxruntime runs the float model, so that the two can be compared. Like `runs` unless given."""
    min_sqnr_db: float | dict[str, float] | None = None
    """Least signal to quantization noise ratio: of each float output, or only of those that a table names."""


class PolicyExpectation(Expectation, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`[[expect.policy]]`: replaces what it states for quantizers of one policy."""

    when: Literal["tensorrt", "onnxruntime"]


class Expect(Expectation, frozen=True, forbid_unknown_fields=True):
    """`[expect]`."""

    raises: str | None = None
    """Name of the error class in `onnxq.errors`, for a case whose right answer is a refusal."""
    mentions: list[Text] = []
    """With `raises`: what the message must hold, such as the name of a node."""
    policy: list[PolicyExpectation] = []

    def under(self, policy: str, meant_for: str = "tensorrt") -> Expect:
        """What holds for quantizers of one policy.

        Args:
            policy: The policy.
            meant_for: The policy that the case itself was written for. What it says of the placement says nothing about
                another one, unless `[[expect.policy]]` does.
        """
        expect = self
        if policy != meant_for:
            expect = msgspec.structs.replace(expect, quantized_add_inputs=None, quantized_inputs=None)
        for override in self.policy:
            if override.when == policy:
                stated = {f.name: getattr(override, f.name) for f in fields(Expectation)}
                expect = msgspec.structs.replace(expect, **{k: v for k, v in stated.items() if v is not None})
        return expect


class KnownFailure(Struct, frozen=True, forbid_unknown_fields=True):
    """`[[known_failure]]`: a check that a quantizer is known not to pass."""

    quantizer: Text
    check: Text
    reason: Text
    versions: str = ""
    """Version specifier, as PEP 440 writes it; "" for all versions."""


class Definition(Struct, frozen=True, forbid_unknown_fields=True):
    """A whole case file."""

    schema: int
    title: Text
    source: Text
    model: ModelSource
    tags: list[Text] = []
    goldens: list[GoldenKind] = []
    """Goldens that every quantizer needs; others are compared where they are there."""
    quantize: dict[str, Any] = {}
    expect: Expect = Expect()
    known_failure: list[KnownFailure] = []


def golden_check(kind: GoldenKind) -> str:
    """Name of the check that compares a golden."""
    return f"golden-{kind}"


def read_definition(file: Path) -> Definition:
    """Read a case file and check its keys and types; what they refer to is checked in `onnxq.corpus.case`.

    Args:
        file: The case file.

    Returns:
        Its content.

    Raises:
        CorpusError: Naming the file, the key and what is allowed.
    """
    try:
        data = tomllib.loads(_read_text(file))
    except RecursionError:
        raise CorpusError(f"{file}: nested too deep") from None
    except ValueError as error:  # TOMLDecodeError, and numbers of too many digits
        raise CorpusError(f"{file}: not TOML: {error}") from None
    try:
        _check_table(data, Definition, "")
    except _MisfitError as misfit:
        raise CorpusError(f"{file}: {misfit}") from None
    definition = msgspec.convert(data, Definition)
    if definition.schema != SCHEMA:
        raise CorpusError(f"{file}: schema: found {definition.schema}, and this version of onnxq reads schema {SCHEMA}")
    return definition


def allowed(what: str, name: str, known: Iterable[str]) -> str:
    """A message about a name that isn't known: the near misses, then all that there are."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=3)
    near += [n for n in names if name and (n.startswith(name) or name in n.split(".")) and n not in near]
    hint = "; did you mean " + " or ".join(f'"{n}"' for n in near) + "?" if near else "."
    return f'unknown {what} "{name}"{hint} Allowed: {", ".join(names) or "none"}'


class _MisfitError(Exception):
    """A key or value that doesn't fit; the message starts with its path."""


def _read_text(file: Path) -> str:
    try:
        if not file.is_file():
            raise CorpusError(f"{file}: no such file")
        size = file.stat().st_size
        if size > TEXT_LIMIT:
            raise CorpusError(f"{file}: {size} bytes; a case file may have {TEXT_LIMIT}")
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise CorpusError(f"{file}: can't be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise CorpusError(f"{file}: not UTF-8 text: {error.reason} at byte {error.start}") from None


def _check_table(table: object, struct: type[Struct], path: str) -> None:
    known = {field.name: field for field in fields(struct)}
    if not isinstance(table, dict):
        raise _MisfitError(f"{path}: expected a table with the keys {', '.join(known)}; found {table!r}")
    for key in table:
        if key not in known:
            raise _MisfitError(f"{_join(path, key)}: {allowed('key', key, known)}")
    for name, field in known.items():
        if field.required and name not in table:
            raise _MisfitError(f"{_join(path, name)}: this key is missing")
    for key, value in table.items():
        _check_value(value, known[key].type, _join(path, key))


def _check_value(value: object, kind: Any, path: str) -> None:
    """Descends as far as the types say where it goes on, so that the path of what doesn't fit is exact."""
    (kind, *others) = [k for k in get_args(kind) if k is not NoneType] if _is_union(kind) else [kind]
    if others:
        kind = Union[(kind, *others)]
    if isinstance(kind, type) and issubclass(kind, Struct):
        _check_table(value, kind, path)
    elif get_origin(kind) is dict and isinstance(value, dict):
        for key, item in value.items():
            _check_value(item, get_args(kind)[1], _join(path, key))
    elif get_origin(kind) is list and isinstance(value, list):
        for position, item in enumerate(value):
            _check_value(item, get_args(kind)[0], f"{path}[{position}]")
    elif get_origin(kind) is Literal and value not in get_args(kind):
        raise _MisfitError(f"{path}: expected one of {', '.join(map(repr, get_args(kind)))}; found {value!r}")
    else:
        misfit = type_misfit(value, kind)
        if misfit:
            raise _MisfitError(f"{path}: {misfit}")


def type_misfit(value: object, kind: Any) -> str:
    """Why a value is not of a type, or ""; also "" where the type can't be checked."""
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        wanted = str(error).split(" - at ")[0].replace("`", "")
        return f"{wanted[0].lower()}{wanted[1:]}; found {value!r}"
    except TypeError:  # a type that msgspec doesn't know
        return ""
    return ""


def _is_union(kind: Any) -> bool:
    return isinstance(kind, UnionType) or get_origin(kind) is Union


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key
