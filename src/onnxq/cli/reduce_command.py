"""`onnxq reduce`: search, write the model with its samples, and say how to go on."""

from __future__ import annotations

import shlex
from argparse import Namespace
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from onnxq.calibration import make_feeds, parse_shapes
from onnxq.cli.arguments import model_path, peer_settings
from onnxq.cli.display import count, naming, show, written
from onnxq.cli.progress import showing_progress
from onnxq.corpus.case import load_case
from onnxq.errors import UnsupportedError, UsageError
from onnxq.model_io import check_writable, load_model, model_files, save_model
from onnxq.printable import one_line
from onnxq.quantizers import DEFAULT, Quantizer, resolve
from onnxq.reduce import (
    Predicate,
    Reduction,
    ReductionProblem,
    check_predicate,
    command_predicate,
    command_words,
    is_storable,
    known_check,
    problem_of,
    reduce_model,
    write_samples,
)
from onnxq.tensor_types import value_type


@dataclass(frozen=True)
class Original:
    """What is to be reduced.

    Attributes:
        problem: The model and its samples.
        options: What the quantizer is told.
    """

    problem: ReductionProblem
    options: Mapping[str, Any]


_ENDS = {"done": "", "time": ", stopped when the time was up", "interrupted": ", interrupted"}


def reduce_command(options: Namespace) -> int:
    """`onnxq reduce`: write the reduced model and its samples, then say what became of it."""
    path = model_path(options)
    _refuse_contradictions(options)
    quantizer = None if options.check is None else _quantizer(options)
    if options.command is not None:
        command_words(options.command)
    inputs = [path] if path.suffix == ".toml" else model_files(path)
    inputs += [options.calibration_data] if options.calibration_data else []
    output, samples = _places(path, options.output, inputs)
    with naming(path):
        original = _original(path, options)
    with showing_progress(quiet=options.quiet) as progress:
        if progress is not None:
            progress("looking for the fault in the original")
        predicate, seen = _predicate(original, quantizer, options)
        reduction = reduce_model(original.problem, predicate, time_limit=options.time, progress=progress)
    _save(reduction.problem, output, samples, inputs)
    if not options.quiet:
        show(_summary(reduction, seen, options, output, samples))
        if original.options:
            show(f"the quantizer was told what the case has in [quantize]: {', '.join(original.options)}")
    return 0


def _refuse_contradictions(options: Namespace) -> None:
    """One fault, and no option that would do nothing for it."""
    if (options.check is None) == (options.command is None):
        raise UsageError("name the fault: --check NAME, or --command LINE")
    if options.command is not None and (options.quantizer is not None or options.peer_python):
        raise UsageError("--quantizer and --peer-python belong to --check: with --command the program judges")
    if options.check is not None and options.exit_status is not None:
        raise UsageError("--exit-status belongs to --command")
    if not options.samples:
        raise UsageError("--samples: a model can't be reduced without any sample to run it on")


def _quantizer(options: Namespace) -> Quantizer:
    """The quantizer, found before anything costs time."""
    known_check(options.check)
    return resolve(options.quantizer or DEFAULT, peer_settings(options))


def _places(path: Path, wanted: str | None, inputs: Iterable[str | Path]) -> tuple[Path, Path]:
    """Where model and samples go, both of which can be written."""
    check_writable(_default_output(path) if wanted is None else wanted, inputs=inputs)
    output = _default_output(path) if wanted is None else Path(wanted)
    samples = _beside(output, ".npz")
    if samples == output:
        raise UsageError(f"{output}: is where the samples go, name the model otherwise: {_beside(output, '.onnx')}")
    check_writable(samples, inputs=inputs)
    return output, samples


def _default_output(path: Path) -> Path:
    """Beside a model; of a case, which is no place for it, where the command is typed."""
    if path.suffix == ".toml":
        return Path(f"{path.resolve().parent.name}.reduced.onnx")
    return _beside(path, ".reduced.onnx")


def _beside(path: Path, ending: str) -> Path:
    """A file of the same name with another ending; what else has a dot in a name is no ending."""
    return path.with_name(f"{path.name.removesuffix('.onnx').removesuffix('.npz')}{ending}")


def _original(path: Path, options: Namespace) -> Original:
    given = None if options.calibration_shapes is None else parse_shapes(options.calibration_shapes)
    data, shapes, seed, told = options.calibration_data, given, options.seed, {}
    if path.suffix == ".toml":
        case = load_case(path)
        model, told = case.load_model(), case.options
        data = data or case.calibration_data
        shapes = shapes or told.get("calibration_shapes")
        seed = told.get("seed", seed)
    else:
        model = load_model(path)
    feeds = list(islice(make_feeds(model, data, shapes=shapes, seed=seed), options.samples))
    for name, value in (feeds or [{}])[0].items():
        if not is_storable(value):
            raise UnsupportedError(f'input "{name}" takes {value.dtype}, which no .npz file holds beside the result')
    return Original(problem_of(model, feeds), told)


def _predicate(original: Original, quantizer: Quantizer | None, options: Namespace) -> tuple[Predicate, str]:
    """What the fault is, and how it shows in the original."""
    if quantizer is None:
        limit = {} if options.time_limit is None else {"time_limit": options.time_limit}
        run, ended = command_predicate(original.problem, options.command, exit_status=options.exit_status, **limit)
        return run, f"the program {ended.how}"
    check, finding = check_predicate(original.problem, quantizer, options.check, original.options)
    return check, f"{options.check}: {finding.problems[0].splitlines()[0]}"


def _save(problem: ReductionProblem, output: Path, samples: Path, inputs: Iterable[str | Path]) -> None:
    """Each file appears whole or not at all, and the model only if its samples can follow; without inputs none do."""
    draft = samples.with_name(f".{samples.name}.part")
    try:
        if problem.feeds[0]:
            write_samples(problem.feeds, draft)
        save_model(problem.model, output, inputs=inputs)
        if problem.feeds[0]:
            draft.replace(samples)
    finally:
        draft.unlink(missing_ok=True)


def _summary(reduction: Reduction, seen: str, options: Namespace, output: Path, samples: Path) -> str:
    has_samples = bool(reduction.problem.feeds[0])
    before, after = reduction.before, reduction.after
    sizes = (
        f"{count(before.nodes, 'node')} and {before.elements:,} elements became {after.nodes} and {after.elements:,}"
    )
    tried = f"{count(reduction.tried, 'candidate')} tried{_ENDS[reduction.stopped]}"
    lines = [f"fault: {one_line(seen)}", f"{sizes} ({tried})", written(output)]
    if has_samples:
        lines.append(f"wrote {samples} ({count(len(reduction.problem.feeds), 'sample')})")
    lines.append(f"see it again: {_again(reduction.problem, options, output, samples)}")
    if options.check is not None:
        lines.append(f"make it a case: {_add(reduction.problem, options, output, samples)}")
    return "\n".join(lines)


def _again(problem: ReductionProblem, options: Namespace, output: Path, samples: Path) -> str:
    """The command that finds the fault in the reduced model: where nothing is left to do, it ends at once."""
    words = ["onnxq", "reduce", str(output), *_data(problem, samples), *_tool(options)]
    for name in ("check", "command", "exit_status"):
        if getattr(options, name) is not None:
            words += [f"--{name.replace('_', '-')}", str(getattr(options, name))]
    return shlex.join(words)


def _add(problem: ReductionProblem, options: Namespace, output: Path, samples: Path) -> str:
    words = ["onnxq", "corpus", "add", str(output), *_data(problem, samples), *_tool(options)]
    return shlex.join([*words, "--known-failures", "--to", "CORPUS", "--name", "FAMILY/CASE"])


def _data(problem: ReductionProblem, samples: Path) -> list[str]:
    """Options for the samples: without shapes, an input whose first dim is open would take one row a run."""
    if not problem.feeds[0]:
        return []
    shapes = {name: value.shape for name, value in problem.feeds[0].items()}
    is_open = any(
        isinstance(dim, str | None) and length != 1
        for value in problem.model.graph.input
        for dim, length in zip(value_type(value.type).shape or (), shapes.get(value.name, ()), strict=False)
    )
    words = ["--calibration-data", str(samples)]
    text = ",".join(f"{name}:{'x'.join(map(str, shape))}" for name, shape in shapes.items() if shape)
    return [*words, "--calibration-shapes", text] if is_open else words


def _tool(options: Namespace) -> list[str]:
    words = [f"--peer-python={name}={path}" for name, path in options.peer_python]
    if options.quantizer is not None:
        words += ["--quantizer", options.quantizer]
    return words if options.time_limit is None else [*words, f"--time-limit={options.time_limit:g}"]
