"""A case that has been read and checked: where its model comes from, how to quantize it, what to expect.

Nothing in a case is executed. A builder is a name from a fixed list, and no file outside the case's folder is read.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_type_hints

import onnx
from google.protobuf.message import DecodeError
from onnx import ModelProto
from onnx.external_data_helper import uses_external_data
from packaging.specifiers import InvalidSpecifier, SpecifierSet

import onnxq.errors
from onnxq.corpus.checks import check_names
from onnxq.corpus.format import Definition, Expect, KnownFailure, allowed, read_definition, type_misfit
from onnxq.errors import CorpusError, OnnxqError
from onnxq.model_io import load_model
from onnxq.pipeline import quantize
from onnxq.protos import walk_tensors
from onnxq_builders import BUILDERS

SIZE_LIMIT = 64 * 2**20
"""Bytes that one model of the corpus may have, external data included, and calibration data likewise."""

ARGUMENT_LIMIT = 4096
"""Greatest number that a builder gets as an argument: models of the corpus are small."""

_NOT_FOR_CASES = ("model", "output_path", "progress")


@dataclass(frozen=True)
class Case:
    """One case of a corpus.

    Attributes:
        path: The case file.
        definition: Its content.
    """

    path: Path
    definition: Definition

    @property
    def folder(self) -> Path:
        """Where its files are."""
        return self.path.parent

    @property
    def expect(self) -> Expect:
        """What must hold after quantization, whatever the policy."""
        return self.definition.expect

    @property
    def calibration_data(self) -> Path | None:
        """Its file of calibration data, if it has one."""
        name = self.definition.quantize.get("calibration_data")
        return None if name is None else self.folder / name

    @property
    def options(self) -> dict[str, Any]:
        """Arguments for the quantizer, calibration data apart."""
        return {k: v for k, v in self.definition.quantize.items() if k != "calibration_data"}

    def checks(self, policy: str) -> tuple[str, ...]:
        """Names of the checks that a quantizer of this policy must pass, in order."""
        return check_names(self.expect.under(policy))

    def known_failure(self, quantizer: str, version: str, check: str) -> KnownFailure | None:
        """Why a quantizer is known not to pass a check, if it is."""
        return next(
            (
                known
                for known in self.definition.known_failure
                if (known.quantizer, known.check) == (quantizer, check)
                and SpecifierSet(known.versions).contains(version, prereleases=True)
            ),
            None,
        )

    def load_model(self) -> ModelProto:
        """Build the float model, or load it.

        Raises:
            CorpusError: The builder refuses its arguments, or external data lie outside the case's folder.
            InvalidModelError: The file is no usable ONNX model.
        """
        source = self.definition.model
        if source.builder is not None:
            try:
                model = BUILDERS[source.builder](**source.args)
            except (TypeError, ValueError) as error:
                raise CorpusError(f"{self.path}: model.args: builder {source.builder}: {error}") from None
            if model.ByteSize() > SIZE_LIMIT:
                raise CorpusError(f"{self.path}: model.args: the model has more than {SIZE_LIMIT >> 20} MiB")
            return model
        file = self.folder / str(source.file)
        _check_external_data(self.path, file)
        return load_model(file)


def load_case(path: Path) -> Case:
    """Read a case and check everything in it that can be checked without building its model.

    Args:
        path: The case file.

    Returns:
        The case.

    Raises:
        CorpusError: Naming the file, the key, and what is allowed there.
    """
    case = Case(path, read_definition(path))
    _check_model(case)
    _check_options(case)
    _check_expect(case)
    _check_known_failures(case)
    return case


def _check_model(case: Case) -> None:
    source = case.definition.model
    if (source.builder is None) == (source.file is None):
        found = "neither" if source.builder is None else "both"
        raise CorpusError(f"{case.path}: model: expected exactly one of builder and file; found {found}")
    if source.builder is None:
        if source.args:
            raise CorpusError(f"{case.path}: model.args: only a builder takes arguments, a file doesn't")
        _check_file(case.path, "model.file", str(source.file))
        return
    if source.builder not in BUILDERS:
        raise CorpusError(f"{case.path}: model.builder: {allowed('builder', source.builder, BUILDERS)}")
    builder = BUILDERS[source.builder]
    _check_arguments(case.path, "model.args", source.args, get_type_hints(builder), inspect.signature(builder))
    for name, value in source.args.items():
        if isinstance(value, int) and abs(value) > ARGUMENT_LIMIT:
            raise CorpusError(f"{case.path}: model.args.{name}: at most {ARGUMENT_LIMIT} in size; found {value}")


def _check_options(case: Case) -> None:
    options = dict(case.definition.quantize)
    data = options.pop("calibration_data", None)
    if data is not None:
        if not isinstance(data, str):
            raise CorpusError(f"{case.path}: quantize.calibration_data: expected the name of a file; found {data!r}")
        _check_file(case.path, "quantize.calibration_data", data)
    signature = inspect.signature(quantize)
    kept = [p for name, p in signature.parameters.items() if name not in _NOT_FOR_CASES]
    _check_arguments(case.path, "quantize", options, get_type_hints(quantize), signature.replace(parameters=kept))


def _check_arguments(
    path: Path, table: str, given: Mapping[str, Any], types: Mapping[str, Any], signature: inspect.Signature
) -> None:
    for name, value in given.items():
        if name not in signature.parameters:
            raise CorpusError(f"{path}: {table}.{name}: {allowed('argument', name, signature.parameters)}")
        misfit = type_misfit(value, types[name])
        if misfit:
            raise CorpusError(f"{path}: {table}.{name}: {misfit}")


def _check_expect(case: Case) -> None:
    expect = case.expect
    types = [name.lower() for name, _ in onnx.TensorProto.DataType.items()]
    for name in (t for stated in (expect, *expect.policy) for t in (stated.output_types or {}).values()):
        if name not in types:
            raise CorpusError(f"{case.path}: expect.output_types: {allowed('element type', name, types)}")
    if expect.raises is None:
        if expect.mentions:
            raise CorpusError(f"{case.path}: expect.mentions: goes with raises, which is missing")
        return
    classes = [n for n, c in vars(onnxq.errors).items() if isinstance(c, type) and issubclass(c, OnnxqError)]
    if expect.raises not in classes:
        raise CorpusError(f"{case.path}: expect.raises: {allowed('error class', expect.raises, classes)}")
    if expect != Expect(raises=expect.raises, mentions=expect.mentions):
        raise CorpusError(
            f"{case.path}: expect: a case that raises has no model to expect anything of; found other keys"
        )


def _check_known_failures(case: Case) -> None:
    names = dict.fromkeys(name for policy in ("tensorrt", "onnxruntime") for name in case.checks(policy))
    for position, known in enumerate(case.definition.known_failure):
        key = f"{case.path}: known_failure[{position}]"
        if known.check not in names:
            raise CorpusError(f"{key}.check: {allowed('check', known.check, names)}")
        try:
            SpecifierSet(known.versions)
        except InvalidSpecifier:
            raise CorpusError(
                f'{key}.versions: expected a specifier such as "<0.39"; found "{known.versions}"'
            ) from None


def _check_file(case_file: Path, key: str, name: str) -> Path:
    """The file of a name, if it really lies in the case's folder, links followed, and isn't too big."""
    folder = case_file.parent.resolve()
    try:
        file = (folder / name).resolve()
        if not file.is_relative_to(folder):
            raise CorpusError(f'{case_file}: {key}: "{name}" lies outside of the folder of the case')
        if not file.is_file():
            raise CorpusError(f'{case_file}: {key}: there is no file "{name}" in the folder of the case')
        size = file.stat().st_size
    except (OSError, ValueError) as error:
        raise CorpusError(f'{case_file}: {key}: "{name}" is no usable path: {error}') from None
    if size > SIZE_LIMIT:
        raise CorpusError(f'{case_file}: {key}: "{name}" has {size} bytes, and a case may have {SIZE_LIMIT >> 20} MiB')
    return file


def _check_external_data(case_file: Path, file: Path) -> None:
    model = ModelProto()
    try:
        model.ParseFromString(file.read_bytes())
    except (DecodeError, RuntimeError):
        return  # not a model: loading it says so
    names = {
        entry.value
        for tensor in walk_tensors(model)
        if uses_external_data(tensor)
        for entry in tensor.external_data
        if entry.key == "location"
    }
    size = file.stat().st_size
    size += sum(_check_file(case_file, "model.file: external data", name).stat().st_size for name in sorted(names))
    if size > SIZE_LIMIT:
        raise CorpusError(
            f"{case_file}: model.file: {size} bytes with its external data; allowed: {SIZE_LIMIT >> 20} MiB"
        )
