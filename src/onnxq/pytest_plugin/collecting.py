"""Which cases are in the run: what pytest collects, and the cases of a marked test."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from onnxq.printable import one_line
from onnxq.pytest_plugin.items import CaseFile
from onnxq.pytest_plugin.options import OPTIONS_KEY, CorpusOptions, tested_quantizers


@dataclass(frozen=True)
class Collection:
    """How the corpora get into the run.

    Attributes:
        arguments: What pytest should collect.
        hidden: Corpora that lie in a folder of `arguments`, but below one that pytest ignores: often the builtin one,
            in a virtual environment within the project. As further arguments pytest 9 would drop them; pytest 8 would
            lose the rest instead. So their cases are added to what pytest has collected.
    """

    arguments: tuple[str, ...]
    hidden: tuple[Path, ...] = ()


def plan_collection(config: pytest.Config, paths: Sequence[Path]) -> Collection:
    """What pytest should collect.

    - Files named on the command line: these and the corpora of the command line. But an argument that lies in a corpus
      selects from it, so that one failing case can be run again without the others.
    - `testpaths`: these and the corpora.
    - Nothing: the corpora alone if the command line names them; if the ini file does, they come with the rest.
    """
    sources = pytest.Config.ArgsSource
    on_command_line = bool(config.getoption("onnxq_corpus"))
    apart = [p for p in paths if not any(other != p and p.is_relative_to(other) for other in paths)]
    if config.args_source == sources.INVOCATION_DIR and on_command_line:
        return Collection(tuple(map(str, apart)))
    if config.args_source == sources.ARGS and not on_command_line:
        return Collection(tuple(config.args))
    start = config.invocation_params.dir
    named = [Path(os.path.abspath(start / argument.partition("::")[0])) for argument in config.args]  # noqa: PTH100
    if config.args_source == sources.ARGS:
        apart = [p for p in apart if not any(n != p and n.is_relative_to(p) for n in named)]
    within = [path for path in apart if any(path.is_relative_to(folder) for folder in named)]
    added = [str(path) for path in apart if path not in within]
    hidden = [path for path in within if not _is_reached(config, path, named)]
    return Collection((*config.args, *added), tuple(hidden))


def collect_hidden(session: pytest.Session, items: list[pytest.Item], paths: tuple[Path, ...]) -> None:
    """Add the cases of hidden corpora to what was collected, in the way in which pytest itself collects."""
    if not paths:
        return
    from onnxq.corpus.discover import find_cases

    for path in find_cases(paths):
        report = session.ihook.pytest_make_collect_report(collector=make_case_file(session, path))
        session.ihook.pytest_collectreport(report=report)
        for item in report.result or ():
            session.ihook.pytest_itemcollected(item=item)
            items.append(item)


def make_case_file(parent: pytest.Collector, path: Path) -> CaseFile:
    """The collector of a case."""
    relative = Path(os.path.relpath(path, parent.config.rootpath)).as_posix()
    kwargs: dict[str, Any] = {"path": path}
    if relative.startswith("../") or not relative.isprintable():
        # Outside of the project pytest starts the id below the corpus: two corpora can have equal ids, and none can be
        # pasted. Ids are printed as they are.
        kwargs["nodeid"] = one_line(relative)
    case_file: CaseFile = CaseFile.from_parent(parent, **kwargs)
    return case_file


def _is_reached(config: pytest.Config, path: Path, folders: Sequence[Path]) -> bool:
    """Whether pytest gets to a path by itself from one of the folders that it collects, past none that it ignores."""
    return any(
        not any(
            config.hook.pytest_ignore_collect(collection_path=on_the_way, config=config)
            for on_the_way in (path, *path.parents)
            if on_the_way != folder and on_the_way.is_relative_to(folder)
        )
        for folder in folders
        if path.is_relative_to(folder)
    )


def parametrize(metafunc: pytest.Metafunc) -> None:
    """Parametrize a test that is marked with `onnxq_cases`, and one that asks for `onnxq_quantizer`."""
    marks = list(metafunc.definition.iter_markers("onnxq_cases"))
    if marks:
        if "onnxq_case" not in metafunc.fixturenames:
            raise pytest.Collector.CollectError(
                f"{metafunc.definition.nodeid}: marked with onnxq_cases, so it must have an argument onnxq_case"
            )
        cases = _marked_cases(metafunc.config.stash[OPTIONS_KEY], marks)
        metafunc.parametrize("onnxq_case", [pytest.param(c, id=name) for name, c in cases], indirect=True)
    if "onnxq_quantizer" in metafunc.fixturenames:
        quantizers = tested_quantizers(metafunc.config).values()
        params = [pytest.param(quantizer, id=quantizer.name) for quantizer in quantizers]
        metafunc.parametrize("onnxq_quantizer", params, indirect=True, scope="session")


def _marked_cases(options: CorpusOptions, marks: Sequence[pytest.Mark]) -> list[tuple[str, Path]]:
    """Case id and case file of the cases that any of the marks names; each mark must name some."""
    from onnxq.corpus.discover import builtin_corpus, case_id, find_cases

    paths = options.paths or (builtin_corpus(),)
    cases = [(case_id(case, paths), case) for case in (options.cases or find_cases(paths))]
    chosen: set[Path] = set()
    for mark in marks:
        unknown = mark.kwargs.keys() - {"tags"}
        tags = mark.kwargs.get("tags", [])
        if unknown or isinstance(tags, str) or not all(isinstance(t, str) for t in (*tags, *mark.args)):
            raise pytest.Collector.CollectError(f"onnxq_cases: takes patterns and tags=[...]; found {mark}")
        chosen |= {case for name, case in _named(cases, mark.args) if not tags or set(tags) <= _tags(case)}
        if not chosen:
            raise pytest.Collector.CollectError(f"onnxq_cases: no case has {_described(mark)}")
    return [(name, case) for name, case in cases if case in chosen]


def _named(cases: Sequence[tuple[str, Path]], patterns: Sequence[str]) -> list[tuple[str, Path]]:
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name, _ in cases):
            names = ", ".join(name for name, _ in cases)
            raise pytest.Collector.CollectError(f'onnxq_cases: no case matches "{pattern}"; there are: {names}')
    return [(name, case) for name, case in cases if not patterns or any(fnmatchcase(name, p) for p in patterns)]


def _tags(case_file: Path) -> set[str]:
    """Tags of a case; none if it can't be read, which fails elsewhere."""
    from onnxq.corpus.format import read_definition
    from onnxq.errors import CorpusError

    try:
        return set(read_definition(case_file).tags)
    except CorpusError:
        return set()


def _described(mark: pytest.Mark) -> str:
    tags = " and ".join(f'"{tag}"' for tag in mark.kwargs["tags"])
    among = f" among those that match {' or '.join(map(repr, mark.args))}" if mark.args else ""
    return f"the tags {tags}{among}"
