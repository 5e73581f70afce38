"""What `onnxq corpus add|list|run|strip` do: call the library, print the result, return the exit status."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from fnmatch import fnmatchcase
from pathlib import Path

from onnxq.calibration import parse_shapes
from onnxq.cli.arguments import peer_settings
from onnxq.cli.corpus_display import added_text, cases_text, failures_text, outcomes_text, stripped_text
from onnxq.cli.display import show
from onnxq.cli.progress import showing_progress
from onnxq.corpus.add import CaseRequest, add_case
from onnxq.corpus.case import Case, load_case
from onnxq.corpus.checks import CHECKS
from onnxq.corpus.discover import BUILTIN, case_id, corpus_path, find_cases
from onnxq.corpus.format import GOLDEN_KINDS, allowed, golden_check
from onnxq.corpus.outcomes import Outcome, run_cases
from onnxq.corpus.strip import strip_weights
from onnxq.errors import CorpusError, UsageError
from onnxq.model_io import check_writable, load_model, model_files, save_model
from onnxq.placement import SelectionOptions
from onnxq.quantizers import DEFAULT, resolve
from onnxq.renaming import rename_all
from onnxq.seeded import restore_weights

_SELECTION = tuple(field.name for field in fields(SelectionOptions))


def add_command(options: Namespace) -> int:
    """`onnxq corpus add`: make a case of a model."""
    shapes = None if options.calibration_shapes is None else parse_shapes(options.calibration_shapes)
    request = CaseRequest(
        model=options.model,
        name=options.name,
        title=options.title,
        source=options.source,
        tags=options.tags,
        strip=options.strip_weights,
        above=options.above,
        seed=options.seed,
        rename=options.rename,
        anonymous=options.anonymous,
        calibration_data=options.calibration_data,
        options={"calibration_shapes": shapes} | {name: getattr(options, name) or None for name in _SELECTION},
        known_failures=options.known_failures,
        refusal=options.refusal,
    )
    show(added_text(add_case(options.to, request, resolve(options.quantizer or DEFAULT, peer_settings(options)))))
    return 0


def list_command(options: Namespace) -> int:
    """`onnxq corpus list`: the cases with their tags and titles; status 2 if one can't be read."""
    chosen = list(_chosen(options))
    if options.json:
        print(json.dumps([_as_json(name, file, case) for name, file, case in chosen], indent=1))
    else:
        show(cases_text((name, case) for name, _, case in chosen))
    return 2 if any(isinstance(case, CorpusError) for _, _, case in chosen) else 0


def run_command(options: Namespace) -> int:
    """`onnxq corpus run`: all checks; status 1 if one fails, 2 if a case can't be read."""
    known = {*CHECKS, *map(golden_check, GOLDEN_KINDS)}
    for check in options.only or ():
        if check not in known:
            raise UsageError(f"--only: {allowed('check', check, known)}")
    quantizers = [resolve(spec, peer_settings(options)) for spec in dict.fromkeys(options.quantizer or [DEFAULT])]
    names = {file: name for name, file, _ in _chosen(options)}
    found: list[Outcome] = []
    with showing_progress(quiet=options.quiet or options.json) as progress:
        for number, (file, name) in enumerate(names.items(), 1):
            if progress is not None:
                progress(f"case {number} of {len(names)}: {json.dumps(name)}")
            found += run_cases([file], quantizers, only=options.only)
    if not found:
        raise UsageError("no case has any of the checks that --only names")
    _show_outcomes(options, names, found)
    statuses = {outcome.status for outcome in found}
    return 2 if "unreadable" in statuses else int("failed" in statuses)


def strip_command(options: Namespace) -> int:
    """`onnxq corpus strip`: write a model without its weights."""
    check_writable(options.output, inputs=model_files(options.model))
    model = load_model(options.model)
    if options.rename:
        rename_all(model)
    stripped = strip_weights(model, above=options.above, seed=options.seed)
    if options.fill:
        restore_weights(stripped.model)
    save_model(stripped.model, options.output)
    for name in stripped.not_finite:
        print(f"onnxq: warning: {json.dumps(name)} holds NaN or infinite numbers, which became finite", file=sys.stderr)
    show(stripped_text(stripped, options.model, options.output))
    return 0


def _show_outcomes(options: Namespace, names: dict[Path, str], found: Sequence[Outcome]) -> None:
    if options.json:
        fields = ("quantizer", "check", "status", "message")
        print(json.dumps([{"case": names[o.case], **{f: getattr(o, f) for f in fields}} for o in found], indent=1))
        return
    table = outcomes_text(names, found, only_bad=options.quiet)
    show("\n\n".join(text for text in (failures_text(names, found), table) if text))


def _chosen(options: Namespace) -> Iterator[tuple[str, Path, Case | CorpusError]]:
    """Id, file, and content or fault of the cases that are asked for."""
    paths = [corpus_path(path, Path.cwd()) for path in options.paths or [BUILTIN]]
    files = {file: case_id(file, paths) for file in find_cases(paths)}
    matching = {file: name for file, name in files.items() if _matches(name, options.pattern)}
    if not matching:
        raise UsageError(f'-k: no case matches "{options.pattern}", of {len(files)}; `onnxq corpus list` lists them')
    found = [(name, file, _read(file)) for file, name in matching.items()]
    tags = set(options.tag or ())
    tagged = [item for item in found if isinstance(item[2], CorpusError) or tags <= set(item[2].definition.tags)]
    if tags and not any(isinstance(case, Case) for _, _, case in tagged):
        known = {tag for _, _, case in found if isinstance(case, Case) for tag in case.definition.tags}
        raise UsageError(f"--tag: no case has {_listed(tags)}; the tags are: {_listed(known)}")
    yield from tagged


def _matches(name: str, pattern: str | None) -> bool:
    return pattern is None or fnmatchcase(name, f"*{pattern}*")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in sorted(names)) or "none"


def _read(file: Path) -> Case | CorpusError:
    try:
        return load_case(file)
    except CorpusError as error:
        return error


def _as_json(name: str, file: Path, case: Case | CorpusError) -> dict[str, object]:
    if isinstance(case, CorpusError):
        return {"id": name, "path": str(file), "error": str(case)}
    definition = case.definition
    return {
        "id": name,
        "path": str(file),
        "title": definition.title,
        "source": definition.source,
        "tags": list(definition.tags),
        "quantizers_known_to_fail": sorted({known.quantizer for known in definition.known_failure}),
    }
