"""`onnxq fuzz`: search for models that a quantizer gets wrong, or check the relations on one."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path
from textwrap import indent
from typing import Any

from hypothesis.database import DirectoryBasedExampleDatabase

from onnxq.cli.arguments import peer_settings
from onnxq.cli.display import count, naming, show
from onnxq.cli.fuzz_parser import DEFAULT_SECONDS
from onnxq.cli.progress import showing_progress
from onnxq.corpus.case import load_case
from onnxq.errors import UsageError
from onnxq.fuzz import (
    RELATIONS,
    Budget,
    Finding,
    Relation,
    SearchResult,
    Trial,
    find_relation,
    finding_text,
    models_of,
    save_finding,
    search,
)
from onnxq.invariants import Violation
from onnxq.model_io import load_model
from onnxq.quantizers import DEFAULT, Quantizer, resolve
from onnxq.quantizers.exchange import DATA_OPTIONS, peer_feeds

SEARCH_OPTIONS = ("time", "models", "findings", "strategies", "save_failures", "database")


def fuzz_command(options: Namespace) -> int:
    """Search, or check one model; status 1 if something is wrong."""
    relations = [find_relation(name) for name in dict.fromkeys(options.relations or ())] or list(RELATIONS)
    quantizer = resolve(options.quantizer or DEFAULT, peer_settings(options))
    if options.model is not None:
        return _check_one(options, quantizer, relations)
    return _search(options, quantizer, relations)


def _search(options: Namespace, quantizer: Quantizer, relations: Sequence[Relation]) -> int:
    models = models_of(list(dict.fromkeys(options.strategies or ())))
    if options.save_failures is not None:
        _make_folder(options.save_failures)
    limits = {name: getattr(options, name) for name in ("models", "findings") if getattr(options, name) is not None}
    limit = options.time or (float("inf") if limits else DEFAULT_SECONDS)
    with showing_progress(quiet=options.quiet or options.json) as progress:
        result = search(
            quantizer,
            models,
            budget=Budget(seconds=limit, **limits),
            relations=relations,
            seed=options.seed,
            spec=options.quantizer or DEFAULT,
            run_settings=peer_settings(options),
            database=None if options.database is None else DirectoryBasedExampleDatabase(options.database),
            progress=progress,
        )
    saved = [None if options.save_failures is None else save_finding(f, options.save_failures) for f in result.findings]
    if options.json:
        print(json.dumps([_as_json(f, case) for f, case in zip(result.findings, saved, strict=True)], indent=1))
    elif result.findings or not options.quiet:
        show("\n\n".join(_report(result, saved, quantizer, options)))
    return int(bool(result.findings))


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--save-failures: {folder}: {error.strerror or error}") from None


def _report(
    result: SearchResult, saved: Sequence[Path | None], quantizer: Quantizer, options: Namespace
) -> Iterator[str]:
    found = count(len(result.findings), "kind") + " of faults" if result.findings else "nothing wrong"
    ended = ", interrupted" if result.is_interrupted else ""
    yield (
        f"{quantizer.name} {quantizer.version}: {found} in {count(result.models, 'model')} "
        f"({result.seconds:.0f} s, seed {options.seed}{ended})"
    )
    for number, (finding, case) in enumerate(zip(result.findings, saved, strict=True), 1):
        yield f"{number}. {finding_text(finding, case)}"
    if result.findings and options.save_failures is None:
        yield "to keep them as cases of a corpus: the same command with --save-failures DIR"


def _as_json(finding: Finding, case: Path | None) -> dict[str, Any]:
    return {
        "relation": finding.fault.relation,
        "cause": finding.fault.cause,
        **_violation_json(finding.violation),
        "models": finding.models,
        "seconds": round(finding.seconds, 1),
        "nodes": finding.size[0],
        "drawn": finding.drawn,
        "seed": finding.trial.seed,
        "is_flaky": finding.is_flaky,
        "case": None if case is None else str(case),
    }


def _violation_json(violation: Violation) -> dict[str, str]:
    return {name: getattr(violation, name) for name in ("invariant", "where", "expected", "found")}


def _check_one(options: Namespace, quantizer: Quantizer, relations: Sequence[Relation]) -> int:
    given = [f"--{name.replace('_', '-')}" for name in SEARCH_OPTIONS if getattr(options, name) is not None]
    if given:
        raise UsageError(f"{given[0]} is about a search: leave it out, or leave out MODEL")
    with naming(options.model):
        trial = _trial(options, quantizer)
    wrong, held, skipped = list[tuple[Relation, Violation]](), list[str](), dict[str, str]()
    with showing_progress(quiet=options.quiet or options.json) as progress:
        for relation in relations:
            if progress is not None:
                progress(f"checking {relation.name}")
            verdict = relation.judge(trial)
            wrong += [(relation, violation) for violation in verdict.violations]
            if verdict.skipped:
                skipped[relation.name] = verdict.skipped
            elif not verdict.violations:
                held.append(relation.name)
    if options.json:
        print(json.dumps([{"relation": r.name, "cause": v.cause, **_violation_json(v)} for r, v in wrong], indent=1))
    elif wrong or not options.quiet:
        blocks = [
            f"{relation.name}: {relation.says}\n{indent(str(violation), '    ')}" for relation, violation in wrong
        ]
        last = [f"hold: {', '.join(held)}"] if held else []
        last += [f"not checked: {name}: {why}" for name, why in skipped.items()]
        show("\n\n".join([*blocks, "\n".join(last)]).rstrip())
    return int(bool(wrong))


def _trial(options: Namespace, quantizer: Quantizer) -> Trial:
    """The model that is named, with the samples and options of its case if it is one."""
    model, data, told = None, None, dict[str, Any]()
    if options.model.suffix == ".toml":
        case = load_case(options.model)
        model, data, told = case.load_model(), case.calibration_data, dict(case.options)
    else:
        model = load_model(options.model)
    told.setdefault("seed", options.seed)
    return Trial(
        quantizer,
        model,
        seed=options.seed,
        options={name: value for name, value in told.items() if name not in DATA_OPTIONS},
        spec=options.quantizer or DEFAULT,
        settings=peer_settings(options),
        samples=peer_feeds(model, data, told),
    )
