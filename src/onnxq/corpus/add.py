"""Making a case of any model: its file, what a quantizer makes of it now, and where it comes from.

What is written down is what the quantizer did, not what is right: a person has to look at it. But a case that the
quantizer doesn't pass is never written, unless its failures are to be known failures.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import ModelProto

from onnxq.corpus.case import Case, load_case
from onnxq.corpus.defaults import DEFAULT_ABOVE
from onnxq.corpus.format import SCHEMA
from onnxq.corpus.golden import compare_golden
from onnxq.corpus.outcomes import Outcome, outcomes
from onnxq.corpus.run import CaseRun, run_case
from onnxq.corpus.strip import Stripped, strip_weights
from onnxq.corpus.write import case_text, new_case_folder
from onnxq.errors import CalibrationError, CorpusError, InvalidModelError, OnnxqError, PeerError
from onnxq.invariants.pair import quantized_inputs
from onnxq.model_io import load_model
from onnxq.numerics import run_model
from onnxq.printable import one_line
from onnxq.quantizers import Quantizer
from onnxq.renaming import rename_all
from onnxq.tensor_data import is_large, self_contained
from onnxq.tensor_types import value_type
from onnxq.testing import DEFAULT_SQNR_DB

MODEL = "model.onnx"
"""Name of the model's file in a new case."""

_SQNR_MARGIN_DB = 3
_REASON_LENGTH = 200


@dataclass(frozen=True)
class CaseRequest:
    """What to make a case of, and how.

    Attributes:
        model: An ONNX file.
        name: "family/case".
        title: What is special about it; None for a line that says where it comes from.
        source: Where it comes from; None for the tools that it was seen with.
        tags: Words to find it by.
        strip: Whether the weights become recipes.
        above: Weights with more elements than this do.
        seed: Of those weights.
        rename: Whether nodes, tensors and symbolic dims get neutral names. The options then refer to those.
        anonymous: Whether nothing is said about the file that the case is made of.
        calibration_data: An .npz or .npy file to copy.
        options: For `[quantize]`.
        known_failures: Whether checks that fail become known failures.
        refusal: Whether the right answer is the error that the quantizer gives.
    """

    model: Path
    name: str
    title: str | None = None
    source: str | None = None
    tags: Sequence[str] = ()
    strip: bool = False
    above: int = DEFAULT_ABOVE
    seed: int = 0
    rename: bool = False
    anonymous: bool = False
    calibration_data: Path | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    known_failures: bool = False
    refusal: bool = False


@dataclass(frozen=True)
class AddedCase:
    """What was written.

    Attributes:
        path: The case file.
        stripped: What became of the weights, if they were stripped.
        outcomes: All checks of the case by the quantizer: passed, or known to fail.
    """

    path: Path
    stripped: Stripped | None
    outcomes: Sequence[Outcome]


def add_case(corpus: Path, request: CaseRequest, quantizer: Quantizer) -> AddedCase:
    """Make a case of a model, run it once, and write it, whole or not at all.

    Args:
        corpus: The folder of the corpus.
        request: What to make.
        quantizer: Whose result becomes what is expected.

    Returns:
        What was written.

    Raises:
        UsageError: The name is taken or isn't one, or the corpus can't be written to.
        InvalidModelError: The model can't be loaded.
        CorpusError: The quantizer refuses the model or fails checks, or a limit of cases is exceeded.
    """
    model = load_model(request.model)
    renamed = rename_all(model) if request.rename else {}
    stripped = strip_weights(model, above=request.above, seed=request.seed) if request.strip else None
    content = model if stripped is None else stripped.model
    if is_large(content):
        raise CorpusError(f"{request.model}: too large for a case; --strip-weights leaves the weights out")
    with new_case_folder(corpus, request.name) as folder:
        (folder / MODEL).write_bytes(self_contained(content).SerializeToString(deterministic=True))
        try:
            draft = {**_head(request, quantizer), "quantize": _quantize(request, folder, renamed)}
            found = _fill(draft, folder, request, quantizer)
            _write_file(folder, {**draft, **found}, _comments(request, stripped))
            results = _accept(load_case(folder / "case.toml"), quantizer)
        except CorpusError as error:  # about a folder that will be gone
            raise CorpusError(str(error).replace(str(folder), str(corpus / request.name))) from None
    path = corpus / request.name / "case.toml"
    return AddedCase(path, stripped, results)


def _head(request: CaseRequest, quantizer: Quantizer) -> dict[str, Any]:
    versions = ", ".join(f"{tool.__name__} {tool.__version__}" for tool in (onnx, onnxruntime, np))
    seen = f"observed with {quantizer.name} {quantizer.version} on {date.today().isoformat()} ({versions})"
    title = f"A model of the family {request.name.partition('/')[0]}"
    return {
        "schema": SCHEMA,
        "title": request.title or (title if request.anonymous else f"The topology of {request.model.name}"),
        "source": request.source or seen,
        "tags": list(request.tags),
        "model": {"file": MODEL},
    }


def _comments(request: CaseRequest, stripped: Stripped | None) -> list[str]:
    """What can't be said by keys: how the files of the case were made."""
    lines = ["Made by `onnxq corpus add`: what is expected is what the quantizer did, so read it before you trust it."]
    if not request.anonymous:
        digest = hashlib.sha256(request.model.read_bytes()).hexdigest()
        lines.append(f"{MODEL} was made of {request.model.name}, sha256 {digest}.")
    if stripped is not None:
        count = f"{stripped.tensors} weights of {stripped.stripped:,} elements"
        lines.append(f"{count} were stripped, seed {request.seed}.")
    return lines


def _quantize(request: CaseRequest, folder: Path, renamed: Mapping[str, str]) -> dict[str, Any]:
    options = {name: value for name, value in request.options.items() if value is not None}
    data = request.calibration_data
    if data is None:
        return options
    target = folder / f"calibration{data.suffix.lower()}"
    try:
        if renamed and target.suffix == ".npz":
            with np.load(data, allow_pickle=False) as arrays:
                np.savez(target, **{renamed.get(name, name): arrays[name] for name in arrays})
        else:
            target.write_bytes(data.read_bytes())
    except (OSError, ValueError) as error:
        raise CalibrationError(f"{data}: can't be read: {error}") from None
    return {"calibration_data": target.name, **options}


def _fill(draft: Mapping[str, Any], folder: Path, request: CaseRequest, quantizer: Quantizer) -> dict[str, Any]:
    """Run the draft, and say what it expects, which failures are known, and its golden."""
    case = _write_file(folder, draft)
    run = run_case(case, quantizer)
    if run.error is not None:
        return _failed(run, request, quantizer)
    expect = _expectations(run, quantizer, is_stripped=request.strip)
    found: dict[str, Any] = {"expect": expect, "known_failure": []}
    case = _write_file(folder, {**draft, **found})
    failed = [outcome for outcome in outcomes(case, quantizer) if outcome.status == "failed"]
    if failed and not request.known_failures:
        said = "; ".join(f"{o.check}: {' '.join(o.message.split())[:_REASON_LENGTH]}" for o in failed)
        raise CorpusError(
            f"{quantizer.name} fails checks, so nothing was written: {said}. "
            "--known-failures writes them down as known failures"
        )
    found["known_failure"] = [_known_failure(quantizer, o.check, o.message) for o in failed]
    case = _write_file(folder, {**draft, **found})
    compare_golden(run_case(case, quantizer), quantizer.name, "golden-placement", update="new")
    return found


def _failed(run: CaseRun, request: CaseRequest, quantizer: Quantizer) -> dict[str, Any]:
    error = run.error
    if request.refusal:
        if not isinstance(error, OnnxqError) or isinstance(error, PeerError):
            raise CorpusError(f"{quantizer.name} crashes, which is no refusal: {run.failure}")
        return {"expect": {"raises": type(error).__name__}}
    if request.known_failures:
        return {"known_failure": [_known_failure(quantizer, "quantizes", run.failure)]}
    raise CorpusError(
        f"{quantizer.name} doesn't quantize the model, so nothing was written: {run.failure}. If that is right, "
        "--refusal makes it the expected answer; if it is a fault, --known-failures writes it down"
    )


def _known_failure(quantizer: Quantizer, check: str, message: str) -> dict[str, Any]:
    reason = one_line(" ".join(message.split())[:_REASON_LENGTH]) or "seen when the case was added"
    return {"quantizer": quantizer.name, "check": check, "reason": reason}


def _expectations(run: CaseRun, quantizer: Quantizer, *, is_stripped: bool) -> dict[str, Any]:
    adds = _residual_adds(run)
    expect: dict[str, Any] = {"outputs": _outputs(run.pair.quantized)}
    if quantizer.policy == "tensorrt":
        expect = {"quantized_add_inputs": adds, **expect}
    elif adds:
        expect["policy"] = [{"when": quantizer.policy, "quantized_add_inputs": adds}]
    try:
        run_model(run.pair.float_model, run.feeds)
    except InvalidModelError:
        return {**expect, "runs": False}
    if is_stripped:
        expect["min_sqnr_db"] = _noisy_outputs(run)
    return expect


def _residual_adds(run: CaseRun) -> dict[str, list[str]]:
    """Add -> what it reads quantized, of every Add that the rules find to be residual."""
    pair = run.pair
    found = quantized_inputs(pair)
    names = Counter(node.name for node in pair.float_model.graph.node)
    label = {
        output: node.name if node.name and names[node.name] == 1 else node.output[0]
        for node in pair.float_model.graph.node
        for output in node.output
    }
    keys = [pair.key(r.node) for r in pair.plan.placement.residuals if r.is_residual]
    return {label.get(key, key): found[key] for key in keys if key in found}


def _outputs(model: ModelProto) -> dict[str, list[Any]]:
    kinds = {value.name: value_type(value.type) for value in model.graph.output}
    shapes = {name: kind.shape for name, kind in kinds.items() if kind.kind == "tensor" and kind.shape is not None}
    return {
        name: ["?" if dim is None else dim for dim in shape]
        for name, shape in shapes.items()
        if name and all(not isinstance(dim, int) or dim >= 0 for dim in shape)
    }


def _noisy_outputs(run: CaseRun) -> dict[str, float] | None:
    """Bounds for all outputs if one has more noise than usual: made-up weights may cancel out the signal."""
    if all(ratio >= DEFAULT_SQNR_DB for ratio in run.noise.values()) or not all(map(math.isfinite, run.noise.values())):
        return None
    return {name: float(min(math.floor(ratio) - _SQNR_MARGIN_DB, DEFAULT_SQNR_DB)) for name, ratio in run.noise.items()}


def _write_file(folder: Path, content: Mapping[str, Any], comments: Sequence[str] = ()) -> Case:
    (folder / "case.toml").write_text(case_text(content, comments=comments), encoding="utf-8")
    return load_case(folder / "case.toml")


def _accept(case: Case, quantizer: Quantizer) -> list[Outcome]:
    """Run the case as it will be, and refuse it if it doesn't pass."""
    results = outcomes(case, quantizer)
    failed = [o for o in results if o.status == "failed"]
    if failed:
        raise CorpusError(f"the new case doesn't pass, so nothing was written: {failed[0].check}: {failed[0].message}")
    return results
