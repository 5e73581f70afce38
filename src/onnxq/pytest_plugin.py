"""The pytest plugin: runs corpora of cases, and offers models and quantizers as fixtures.

pytest imports this module whenever it starts, so only pytest and the standard library are imported here, and the rest
when a test needs it.

How the cases get into the run: the paths of the corpora are added to the arguments that pytest collects, and the hook
`pytest_collect_file` takes every case file at or below them. From there on they are files and items like all others,
so node ids, `-k`, `--lf`, `--deselect` and pytest-xdist work as they always do.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from onnxq.corpus.case import Case
    from onnxq.corpus.run import CaseRun
    from onnxq.quantizers import Quantizer

pytest.register_assert_rewrite("onnxq.testing")

pytest_plugins = ("onnxq.pytest_fixtures",)

READABLE = "case-is-readable"
"""Name of the item that stands for a case that can't be read."""


@dataclass(frozen=True)
class CorpusOptions:
    """What the options, or their twins in the ini file, ask for.

    Attributes:
        paths: Absolute paths of the corpora.
        cases: All case files at or below them.
        specs: Quantizers to test.
    """

    paths: tuple[Path, ...]
    cases: tuple[Path, ...]
    specs: tuple[str, ...]


OPTIONS_KEY = pytest.StashKey[CorpusOptions]()


class CheckFailure(Exception):  # noqa: N818 (what it says is a finding about a quantizer, no error of a program)
    """A check found something wrong; the message is shown as it stands."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options and their ini twins."""
    corpus = "folder of cases (or one case.toml) to add to the run, or 'builtin' for the cases that come with onnxq"
    outside = "write --onnxq-corpus=PATH for one outside of the project, or pytest takes it for the project"
    quantizer = "quantizer to test (default: onnxq)"
    group = parser.getgroup("onnxq", "ONNX quantizers")
    group.addoption("--onnxq-corpus", action="append", metavar="PATH", help=f"{corpus}; {outside}; can be repeated")
    group.addoption("--onnxq-quantizer", action="append", metavar="SPEC", help=f"{quantizer}; can be repeated")
    parser.addini("onnxq_corpus", f"{corpus}; applies where no files are named on the command line", type="linelist")
    parser.addini("onnxq_quantizer", quantizer, type="linelist")


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, check the options, and add the corpora to what is collected."""
    config.addinivalue_line(
        "markers",
        "onnxq_cases(*patterns): run the test once per corpus case whose id, such as 'residual/identity', matches one "
        "of the patterns (all cases without patterns); the test gets the case as argument onnxq_case",
    )
    if config.getoption("help"):
        return
    config.stash[OPTIONS_KEY] = options = _read_options(config)
    if options.paths:
        config.args[:] = _arguments(config, options.paths)


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Say which cases are in the run and which quantizers are tested."""
    options = config.stash[OPTIONS_KEY]
    if not options.paths:
        return []
    from onnxq.quantizers import resolve

    count = f"{len(options.cases)} case{'s' if len(options.cases) != 1 else ''}"
    paths = ", ".join(os.path.relpath(path, config.rootpath) for path in options.paths)
    quantizers = [f"{q.name} {q.version}" for q in map(resolve, options.specs)]
    return [f"onnxq corpus: {paths} ({count})", f"onnxq quantizers: {', '.join(quantizers)}"]


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> CaseFile | None:
    """Take case files below a corpus, and those that the command line names."""
    from onnxq.corpus.discover import CASE_FILE

    if file_path.name != CASE_FILE:
        return None
    below = any(file_path.is_relative_to(path) for path in parent.config.stash[OPTIONS_KEY].paths)
    if not below and not parent.session.isinitpath(file_path):
        return None
    root = parent.config.rootpath
    kwargs: dict[str, Any] = {"path": file_path}
    if not file_path.is_relative_to(root):
        # Else pytest starts the id below the corpus: two corpora can have equal ids, and none can be pasted.
        kwargs["nodeid"] = Path(os.path.relpath(file_path, root)).as_posix()
    case_file: CaseFile = CaseFile.from_parent(parent, **kwargs)
    return case_file


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize tests that are marked with `onnxq_cases`, and those that ask for `onnxq_quantizer`."""
    options = metafunc.config.stash[OPTIONS_KEY]
    patterns = [p for mark in metafunc.definition.iter_markers("onnxq_cases") for p in mark.args or ("*",)]
    if patterns:
        if "onnxq_case" not in metafunc.fixturenames:
            raise pytest.Collector.CollectError(
                f"{metafunc.definition.nodeid}: marked with onnxq_cases, so it must have an argument onnxq_case"
            )
        cases = _matching_cases(options, patterns)
        metafunc.parametrize("onnxq_case", [pytest.param(c, id=name) for name, c in cases], indirect=True)
    if "onnxq_quantizer" in metafunc.fixturenames:
        metafunc.parametrize("onnxq_quantizer", options.specs, indirect=True, scope="session")


class CaseFile(pytest.File):
    """One case file: an item for each quantizer and check. Holds what was quantized until its last item is done."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._runs: dict[str, CaseRun] = {}

    def collect(self) -> Iterator[pytest.Item]:
        """One item per quantizer and check; a single failing one if the case can't be read."""
        from onnxq.corpus.case import load_case
        from onnxq.errors import CorpusError
        from onnxq.quantizers import resolve

        try:
            case = load_case(self.path)
        except CorpusError as error:
            yield _make_item(BrokenCaseItem, self, READABLE, message=str(error))
            return
        for spec in self.config.stash[OPTIONS_KEY].specs:
            quantizer = resolve(spec)
            for check in case.checks(quantizer.policy):
                name = f"{check}[{quantizer.name}]"
                yield _make_item(CheckItem, self, name, case=case, quantizer=quantizer, check=check)

    def run_of(self, case: Case, quantizer: Quantizer) -> CaseRun:
        """The run of the case by a quantizer; the first call makes it."""
        from onnxq.corpus.run import run_case

        if quantizer.name not in self._runs:
            self._runs[quantizer.name] = run_case(case, quantizer)
        return self._runs[quantizer.name]

    def teardown(self) -> None:
        """Let go of the models."""
        self._runs.clear()


class CheckItem(pytest.Item):
    """One check of one case by one quantizer."""

    def __init__(self, *, case: Case, quantizer: Quantizer, check: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._case = case
        self._quantizer = quantizer
        self._check = check
        definition = case.definition
        self.user_properties += [
            ("onnxq_case", definition.title),
            ("onnxq_source", definition.source),
            ("onnxq_tags", " ".join(definition.tags)),
            ("onnxq_quantizer", quantizer.name),
            ("onnxq_quantizer_version", quantizer.version),
            ("onnxq_check", check),
        ]
        known = case.known_failure(quantizer.name, quantizer.version, check)
        if known is not None:
            self.add_marker(pytest.mark.xfail(reason=known.reason, strict=True, raises=CheckFailure))

    def runtest(self) -> None:
        """Quantize, unless another item did already, and check."""
        from onnxq.corpus.checks import run_check

        assert isinstance(self.parent, CaseFile)
        run = self.parent.run_of(self._case, self._quantizer)
        if run.error is not None and self._check not in ("raises", "quantizes"):
            known = self._case.known_failure(self._quantizer.name, self._quantizer.version, "quantizes")
            if known is not None:
                pytest.skip(f"nothing to check, {self._quantizer.name} is known to fail: {known.reason}")
        problems = run_check(self._check, run)
        if problems:
            raise CheckFailure("\n".join(problems))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """What is wrong with the quantized model or the case, without a traceback of the harness."""
        from onnxq.errors import CorpusError

        if isinstance(excinfo.value, CorpusError):
            return str(excinfo.value)
        if not isinstance(excinfo.value, CheckFailure):
            return super().repr_failure(excinfo, style)
        title = self._case.definition.title
        return f"{title}\n{self._check} of {self._quantizer.name} {self._quantizer.version}:\n\n{excinfo.value}"

    def reportinfo(self) -> tuple[Path, None, str]:
        """The case file, and which of its checks this is; no line, because ids must not change with it."""
        return self.path, None, f"{self.path.parent.name}: {self.name}"


class BrokenCaseItem(pytest.Item):
    """Stands for a case that can't be read, and fails."""

    def __init__(self, *, message: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._message = message

    def runtest(self) -> None:
        """Fail."""
        raise CheckFailure(self._message)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """What is wrong with the case file."""
        return str(excinfo.value) if isinstance(excinfo.value, CheckFailure) else super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, None, str]:
        """The case file."""
        return self.path, None, f"{self.path.parent.name}: {self.name}"


def _make_item(kind: type[pytest.Item], parent: CaseFile, name: str, **kwargs: Any) -> pytest.Item:
    """An item whose id is given as text.

    From the name alone pytest 9 makes an id that takes `[...]` for no parameter, and `--lf`, which reads ids from a
    file, wouldn't find the item again.
    """
    item: pytest.Item = kind.from_parent(parent, name=name, nodeid=f"{parent.nodeid}::{name}", **kwargs)
    return item


def _read_options(config: pytest.Config) -> CorpusOptions:
    """Options of the command line, relative to where it was typed; else those of the ini file, relative to the file."""
    given, base = config.getoption("onnxq_corpus"), config.invocation_params.dir
    if not given:
        given, base = config.getini("onnxq_corpus"), config.inipath.parent if config.inipath else config.rootpath
    specs = config.getoption("onnxq_quantizer") or config.getini("onnxq_quantizer") or ["onnxq"]
    if not given and specs == ["onnxq"]:
        return CorpusOptions((), (), ("onnxq",))
    from onnxq.corpus.discover import corpus_path, find_cases
    from onnxq.errors import OnnxqError
    from onnxq.quantizers import resolve

    try:
        for spec in specs:
            resolve(spec)
        paths = tuple(dict.fromkeys(corpus_path(path, base) for path in given))
        return CorpusOptions(paths, tuple(find_cases(paths)), tuple(dict.fromkeys(specs)))
    except OnnxqError as error:
        raise pytest.UsageError(str(error)) from None


def _arguments(config: pytest.Config, paths: Sequence[Path]) -> list[str]:
    """What pytest should collect.

    - Files named on the command line: these and the corpora of the command line. But an argument that lies in a corpus
      selects from it, so that one failing case can be run again without the others.
    - `testpaths`: these and the corpora.
    - Nothing: the corpora alone if the command line names them; if the ini file does, they come with the rest.
    """
    sources = pytest.Config.ArgsSource
    on_command_line = bool(config.getoption("onnxq_corpus"))
    if config.args_source == sources.INVOCATION_DIR and on_command_line:
        return [str(path) for path in paths]
    if config.args_source != sources.ARGS:
        return [*config.args, *map(str, paths)]
    start = config.invocation_params.dir
    named = [Path(os.path.abspath(start / argument.partition("::")[0])) for argument in config.args]  # noqa: PTH100
    unselected = [p for p in paths if not any(n != p and n.is_relative_to(p) for n in named)]
    return [*config.args, *(str(path) for path in unselected if on_command_line)]


def _matching_cases(options: CorpusOptions, patterns: Sequence[str]) -> list[tuple[str, Path]]:
    """Case id and case file, of the corpora of the run or else of the builtin one."""
    from onnxq.corpus.discover import builtin_corpus, case_id, find_cases

    paths = options.paths or (builtin_corpus(),)
    cases = [(case_id(case, paths), case) for case in find_cases(paths)]
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name, _ in cases):
            names = ", ".join(name for name, _ in cases)
            raise pytest.Collector.CollectError(f'onnxq_cases: no case matches "{pattern}"; there are: {names}')
    return [(name, case) for name, case in cases if any(fnmatchcase(name, p) for p in patterns)]
