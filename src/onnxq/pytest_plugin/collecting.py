"""Which cases are in the run: what pytest collects, and the cases of a marked test."""

from __future__ import annotations

import os
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from onnxq.pytest_plugin.options import OPTIONS_KEY, CorpusOptions, tested_quantizers


def arguments(config: pytest.Config, paths: Sequence[Path]) -> list[str]:
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
        return [str(path) for path in apart]
    if config.args_source == sources.ARGS and not on_command_line:
        return [*config.args]
    start = config.invocation_params.dir
    named = [Path(os.path.abspath(start / argument.partition("::")[0])) for argument in config.args]  # noqa: PTH100
    if config.args_source == sources.ARGS:
        apart = [p for p in apart if not any(n != p and n.is_relative_to(p) for n in named)]
    added = [path for path in apart if not _is_reached(config, path, named)]
    if pytest.version_tuple < (9,) and any(path.is_relative_to(folder) for path in added for folder in named):
        # pytest 8 takes the outer of two arguments for collected as soon as it has passed it on its way to the inner
        # one, and forgets what else is there. Nothing is there twice: it doesn't get to the inner one by itself.
        config.option.keepduplicates = True
    return [*config.args, *map(str, added)]


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
