"""The pytest plugin: runs corpora of cases, and offers models and quantizers as fixtures.

pytest imports this package whenever it starts, so only pytest and the standard library are imported here, and the rest
when a test needs it.

How the cases get into the run: the paths of the corpora are added to the arguments that pytest collects, and the hook
`pytest_collect_file` takes every case file at or below them. From there on they are files and items like all others,
so node ids, `-k`, `--lf`, `--deselect` and pytest-xdist work as they always do.

    options        what can be asked for
    collecting     which cases are in the run
    fuzzing        items that search for faults
    items          case files, and an item for each check and quantizer
    records        what an item's report carries to where results are printed
    details        what the HTML page shows of one case
    summary        what is said, written and deleted at the end
"""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path

import pytest

from onnxq.pytest_plugin.collecting import collect_hidden, make_case_file, parametrize, plan_collection
from onnxq.pytest_plugin.fuzzing import add_searches, fuzz_header
from onnxq.pytest_plugin.items import BrokenCaseItem, CaseFile, CheckItem, finish_report
from onnxq.pytest_plugin.options import OPTIONS_KEY, add_options, read_options, tested_quantizers
from onnxq.pytest_plugin.summary import Summary

pytest.register_assert_rewrite("onnxq.testing")

pytest_plugins = ("onnxq.pytest_fixtures",)

HIDDEN_KEY = pytest.StashKey[tuple[Path, ...]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options and their ini twins."""
    add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, check the options, and add the corpora to what is collected."""
    config.addinivalue_line(
        "markers",
        "onnxq_cases(*patterns, tags=[]): run the test once per corpus case whose id, such as 'residual/identity', "
        "matches one of the patterns (all cases without patterns) and that has all of the tags; the test gets the case "
        "as argument onnxq_case",
    )
    if config.getoption("help"):
        return
    config.stash[OPTIONS_KEY] = options = read_options(config)
    config.stash[HIDDEN_KEY] = ()
    if options.paths or options.fuzz or options.specs != ("onnxq",):
        tested_quantizers(config)
    if options.paths:
        collection = plan_collection(config, options.paths)
        config.args[:] = collection.arguments
        config.stash[HIDDEN_KEY] = collection.hidden
    elif options.fuzz and config.args_source == pytest.Config.ArgsSource.INVOCATION_DIR:
        config.args[:] = []  # the searches alone: nobody has named any tests
    if not hasattr(config, "workerinput"):  # a worker of pytest-xdist: its controller does that
        config.pluginmanager.register(Summary(config, options), "onnxq-summary")


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Say which cases are in the run, which quantizers are tested, and what is written."""
    options = config.stash[OPTIONS_KEY]
    if not options.paths:
        return fuzz_header(options)
    count = f"{len(options.cases)} case{'s' if len(options.cases) != 1 else ''}"
    paths = ", ".join(os.path.relpath(path, config.rootpath) for path in options.paths)
    quantizers = [f"{q.name} {q.version}" for q in tested_quantizers(config).values()]
    lines = [f"onnxq corpus: {paths} ({count})", f"onnxq quantizers: {', '.join(quantizers)}"]
    if options.update != "none":
        lines.append(f"onnxq goldens: {options.update} are written")
    if config.getoption("dist", "no") == "load":
        lines.append("onnxq: with --dist loadfile each case would be quantized only once")
    return lines + fuzz_header(options)


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> CaseFile | None:
    """Take case files below a corpus, and those that the command line names."""
    from onnxq.corpus.discover import CASE_FILE

    if file_path.name != CASE_FILE:
        return None
    below = any(file_path.is_relative_to(path) for path in parent.config.stash[OPTIONS_KEY].paths)
    if not below and not parent.session.isinitpath(file_path):
        return None
    return make_case_file(parent, file_path)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Add cases that pytest doesn't get to, and searches, before anything is deselected."""
    collect_hidden(session, items, config.stash[HIDDEN_KEY])
    add_searches(session, items)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize tests that are marked with `onnxq_cases`, and those that ask for `onnxq_quantizer`."""
    parametrize(metafunc)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Attach to the reports of cases what the end of the run needs to know."""
    report = yield
    if isinstance(item, CheckItem | BrokenCaseItem):
        finish_report(item, call, report)
    return report
