"""A case that has been read and checked: where its model comes from, how to quantize it, what to expect.

Nothing in a case is executed. A builder is a name from a fixed list, and no file outside the case's folder is read.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_type_hints

import onnx
from onnx import ModelProto
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

import onnxq.errors
from onnxq.corpus.checks import check_names
from onnxq.corpus.format import (
    GOLDEN_KINDS,
    Definition,
    Expect,
    KnownFailure,
    allowed,
    golden_check,
    read_definition,
    type_misfit,
)
from onnxq.corpus.limits import (
    SIZE_LIMIT,
    bounded_memory,
    check_arrays,
    check_model,
    check_model_file,
    check_shape,
    file_inside,
)
from onnxq.errors import CorpusError, OnnxqError
from onnxq.model_io import load_model
from onnxq.pipeline import quantize
from onnxq.policies import POLICIES
from onnxq_builders import BUILDERS

ARGUMENT_LIMIT = 4096
"""Greatest number that a builder gets as an argument: models of the corpus are small."""

PRODUCT_LIMIT = 2**22
"""Greatest product of all numbers that a builder gets."""

_NOT_FOR_CASES = ("model", "output_path", "progress", "calibration_cache_path", "ranges")


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

    def judged_by(self, policy: str) -> str:
        """The policy by which a quantizer of this policy is judged: the case's own, if its options name one."""
        return str(self.options.get("policy", policy))

    def expect_of(self, policy: str) -> Expect:
        """What must hold of the result of a quantizer of this policy."""
        return self.expect.under(self.judged_by(policy), self.judged_by(POLICIES[0]))

    def checks(self, policy: str) -> tuple[str, ...]:
        """Names of the checks that a quantizer of this policy must pass, in order."""
        return check_names(self.expect_of(policy))

    def known_failure(self, quantizer: str, version: str, check: str) -> KnownFailure | None:
        """Why a quantizer is known not to pass a check, if it is."""
        return next(
            (
                known
                for known in self.definition.known_failure
                if (known.quantizer, known.check) == (quantizer, check) and _is_in_range(version, known.versions)
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
        with bounded_memory():
            if source.builder is not None:
                return self._build(source.builder, source.args)
            file = self.folder / str(source.file)
            check_model_file(f"{self.path}: model.file", file)
            return load_model(file)

    def _build(self, builder: str, args: Mapping[str, Any]) -> ModelProto:
        where = f"{self.path}: model.args"
        try:
            model = BUILDERS[builder](**args)
        except (TypeError, ValueError, ArithmeticError, LookupError) as error:
            raise CorpusError(f"{where}: builder {builder}: {error}") from None
        if model.ByteSize() > SIZE_LIMIT:
            raise CorpusError(f"{where}: the model has more than {SIZE_LIMIT >> 20} MiB")
        check_model(where, model)
        return model


def load_case(path: Path) -> Case:
    """Read a case and check everything in it that can be checked without building its model.

    Args:
        path: The case file.

    Returns:
        The case.

    Raises:
        CorpusError: Naming the file, the key, and what is allowed there.
    """
    if path.is_symlink():
        file_inside(str(path), path.parent, path.name)
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
        file_inside(f"{case.path}: model.file", case.folder, str(source.file))
        return
    if source.builder not in BUILDERS:
        raise CorpusError(f"{case.path}: model.builder: {allowed('builder', source.builder, BUILDERS)}")
    builder = BUILDERS[source.builder]
    _check_arguments(case.path, "model.args", source.args, get_type_hints(builder), inspect.signature(builder))
    numbers = {name: _numbers(value) for name, value in source.args.items()}
    for name, value in ((name, value) for name, values in numbers.items() for value in values):
        if not abs(value) <= ARGUMENT_LIMIT:  # NaN is no number to compare
            raise CorpusError(f"{case.path}: model.args.{name}: at most {ARGUMENT_LIMIT} in size; found {value}")
    product = math.prod(abs(value) for values in numbers.values() for value in values if abs(value) > 1)
    if product > PRODUCT_LIMIT:
        raise CorpusError(f"{case.path}: model.args: their product is at most {PRODUCT_LIMIT}; found {product}")


def _numbers(value: Any) -> list[float]:
    """The numbers in an argument, those in lists and tables included."""
    if isinstance(value, list | dict):
        return [n for item in (value.values() if isinstance(value, dict) else value) for n in _numbers(item)]
    return [value] if isinstance(value, int | float) else []


def _check_options(case: Case) -> None:
    options = dict(case.definition.quantize)
    data = options.pop("calibration_data", None)
    if data is not None:
        if not isinstance(data, str):
            raise CorpusError(f"{case.path}: quantize.calibration_data: expected the name of a file; found {data!r}")
        where = f"{case.path}: quantize.calibration_data"
        check_arrays(where, file_inside(where, case.folder, data))
    signature = inspect.signature(quantize)
    kept = [p for name, p in signature.parameters.items() if name not in _NOT_FOR_CASES]
    _check_arguments(case.path, "quantize", options, get_type_hints(quantize), signature.replace(parameters=kept))
    if options.get("policy", POLICIES[0]) not in POLICIES:
        raise CorpusError(f"{case.path}: quantize.policy: {allowed('policy', str(options['policy']), POLICIES)}")
    _check_calibration_shapes(case, options.get("calibration_shapes") or {})


def _check_calibration_shapes(case: Case, shapes: Mapping[str, Any]) -> None:
    for name, shape in shapes.items():
        check_shape(f"{case.path}: quantize.calibration_shapes.{name}", shape)


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
    if expect.raises is not None and case.definition.goldens:
        raise CorpusError(f"{case.path}: goldens: a case that raises has no result to compare")
    types = [name.lower() for name, _ in onnx.TensorProto.DataType.items()]
    for key in ("output_types", "node_types", "initializer_types"):
        for name in (t for stated in (expect, *expect.policy) for t in (getattr(stated, key) or {}).values()):
            if name not in types:
                raise CorpusError(f"{case.path}: expect.{key}: {allowed('element type', name, types)}")
    _check_relations(case)
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


def _check_relations(case: Case) -> None:
    """Relations that need ground truth are what other keys state; those that need a spec can't be told from a case."""
    names = [name for stated in (case.expect, *case.expect.policy) for name in stated.relations or ()]
    if not names:
        return
    from onnxq.relations import RELATIONS

    possible = [r.name for r in RELATIONS if not {"ground truth", "spec"} & {*r.needs}]
    for name in names:
        if name not in possible:
            raise CorpusError(f"{case.path}: expect.relations: {allowed('relation', name, possible)}")


def _is_in_range(version: str, versions: str) -> bool:
    """Whether a version is in a range; one that can't be compared, such as that of a command, is in "" only."""
    try:
        return not versions or Version(version) in SpecifierSet(versions, prereleases=True)
    except InvalidVersion:
        return False


def _check_known_failures(case: Case) -> None:
    names = dict.fromkeys(name for policy in ("tensorrt", "onnxruntime") for name in case.checks(policy))
    if case.expect.raises is None:
        names.update(dict.fromkeys(map(golden_check, GOLDEN_KINDS)))
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
