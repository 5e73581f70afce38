"""Runs the corpus through onnxq and its peers, and writes docs/compatibility.md.

    python benchmarks/compatibility.py --peer-python modelopt=mo037/bin/python --peer-python modelopt=mo047/bin/python

A quantizer that is named with several Pythons is run in each, so that its versions stand side by side.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import re
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from itertools import groupby
from pathlib import Path

from markdown_text import escaped, row, table_head

from onnxq.corpus.case import load_case
from onnxq.corpus.checks import run_check
from onnxq.corpus.discover import find_cases
from onnxq.corpus.run import CaseRun, run_case
from onnxq.errors import PeerError
from onnxq.invariants import quantized_inputs
from onnxq.quantizers import Quantizer, Settings, resolve
from onnxq.testing import find_node

REPOSITORY = Path(__file__).parents[1]
PAGE = REPOSITORY / "docs" / "compatibility.md"
FOUNDING = "residual/convtranspose_conv"
REFUSALS = "refusals"
AT_ONCE = 20
"""Cases that one process runs."""


@dataclass(frozen=True)
class Tool:
    """A quantizer to run: its spec, and the Python that has it."""

    spec: str
    python: str | None = None

    @property
    def settings(self) -> Settings:
        return Settings({} if self.python is None else {self.spec: self.python})


@dataclass(frozen=True)
class Result:
    """What came of one case with one quantizer.

    `checks` maps each check that was reached to whether it passed, `adds` each Add that the case speaks of to what it
    reads quantized. Not offered is a case that asks for an option that the tool has nothing like.
    """

    tool: str
    policy: str
    case: str
    checks: dict[str, bool]
    adds: dict[str, list[str]]
    error: str
    seconds: float
    is_offered: bool = True

    @property
    def family(self) -> str:
        return self.case.partition("/")[0]

    @property
    def is_good(self) -> bool:
        """All checks passed; of a case that has to be refused: no model came out, whatever the message."""
        return bool(self.error) if self.is_refusal else all(self.checks.values())

    @property
    def is_refusal(self) -> bool:
        return "raises" in self.checks

    @property
    def failed(self) -> list[str]:
        return [name for name, passed in self.checks.items() if not passed]


def measure_some(tool: Tool, files: Sequence[Path]) -> list[Result]:
    """Several cases in one process, so that a peer is imported once for all of them."""
    quantizer = resolve(tool.spec, tool.settings)
    return [measure(quantizer, file) for file in files]


def measure(quantizer: Quantizer, file: Path) -> Result:
    case = load_case(file)
    start = time.perf_counter()
    run = run_case(case, quantizer)
    seconds = time.perf_counter() - start
    names = case.checks(quantizer.policy)
    if run.error is not None:
        names = tuple(name for name in names if name in ("raises", "quantizes"))
    return Result(
        f"{quantizer.name} {quantizer.version}",
        run.policy,
        f"{file.parents[1].name}/{file.parent.name}",
        {name: not run_check(name, run) for name in names},
        adds_of(run),
        error_of(run),
        seconds,
        is_offered=not run.not_offered or case.expect.raises is not None,
    )


def adds_of(run: CaseRun) -> dict[str, list[str]]:
    names = run.expect.quantized_add_inputs or {}
    if run.quantized is None or not names:
        return {}
    found = quantized_inputs(run.pair)
    return {name: found.get(find_node(run.pair, name)[0], []) for name in names}


def error_of(run: CaseRun) -> str:
    if run.error is None:
        return ""
    has_output = isinstance(run.error, PeerError) and run.error.output
    text = run.error.output.rpartition("\n")[2] if has_output else run.failure
    return re.sub(r"/\S*/onnxq-\w+/(?:ort\.quant\.\w+/)?", "", text)  # random names of folders


def page(results: Sequence[Result], command: str) -> Iterator[str]:
    tools = list(dict.fromkeys(r.tool for r in results))
    yield "# Compatibility\n"
    yield f"""\
What {len({r.case for r in results})} cases of the builtin corpus find in onnxq and in its peers:
{", ".join(tools)}.
Each was given the same models, the same options and the same calibration samples, in the environment that its own
requirements ask for, on the CPU. This page is written by

    {command}

A quantizer is judged by its own policy: under "tensorrt" exactly the skip of a residual Add is quantized, under
"onnxruntime" both inputs may be. Most cases say only which placement is right for TensorRT; then nothing is said here
about onnxruntime's. Many cases are faults that were found in these very tools, so the numbers say what the corpus tells
apart, not how good a tool is with everyday models.
"""
    yield from founding_table([r for r in results if r.case == FOUNDING])
    yield from family_table(results, tools)
    yield from check_table(results, tools)
    yield from appendix(results, tools)


def founding_table(results: Iterable[Result]) -> Iterator[str]:
    yield "## The case that the project began with\n"
    yield f"`{FOUNDING}`: a branch of ConvTranspose and one of Conv meet in an Add.\n"
    yield from table_head(["quantizer", "policy", "inputs of the Add that are quantized", "right under its policy"])
    for result in results:
        shown = " and ".join(f"`{name}`" for name in result.adds["add"])
        count = len(result.adds["add"])
        is_right = "yes" if result.checks["quantized-add-inputs"] else "**no**"
        yield f"| {result.tool} | {result.policy} | {count}: {shown} | {is_right} |"
    yield ""


def family_table(results: Sequence[Result], tools: Sequence[str]) -> Iterator[str]:
    yield "## Cases that pass, by family\n"
    yield """\
Passed / tried. A case passes if all its checks do; one that has to be refused passes if no model comes out. What asks
for options that a tool has nothing like, such as half precision, isn't tried with it.
"""
    yield from table_head(["family", "cases", *tools])
    families = sorted({r.family for r in results}, key=lambda family: (family == REFUSALS, family))
    for family in families:
        of_family = [[r for r in results if r.tool == tool and r.family == family] for tool in tools]
        yield row([family, len(of_family[0]), *map(passed_of_tried, of_family)])
    of_tool = [[r for r in results if r.tool == tool] for tool in tools]
    yield row(["**all**", len(of_tool[0]), *map(passed_of_tried, of_tool)])
    yield ""


def passed_of_tried(results: Sequence[Result]) -> str:
    tried = [r for r in results if r.is_offered]
    return f"{sum(r.is_good for r in tried)} / {len(tried)}" if tried else "-"


def check_table(results: Sequence[Result], tools: Sequence[str]) -> Iterator[str]:
    yield "## Failures by check\n"
    yield "Failed / made. Where no model came out, only `quantizes` was made. Refusals don't count here.\n"
    yield from table_head(["check", *tools])
    considered = [r for r in results if r.is_offered and not r.is_refusal]
    for check in dict.fromkeys(name for r in considered for name in r.checks):
        cells = []
        for tool in tools:
            verdicts = [r.checks[check] for r in considered if r.tool == tool and check in r.checks]
            cells.append(f"{verdicts.count(False)} / {len(verdicts)}")
        yield row([f"`{check}`", *cells])
    yield ""


def appendix(results: Sequence[Result], tools: Sequence[str]) -> Iterator[str]:
    yield "## Case by case\n"
    yield "Cases that some quantizer doesn't pass. In brackets: what each Add that the case names reads quantized.\n"
    ordered = sorted(results, key=lambda r: (r.case, tools.index(r.tool)))
    for case, group in groupby(ordered, key=lambda r: r.case):
        members = list(group)
        if all(r.is_good or not r.is_offered for r in members):
            continue
        yield f"### {case}\n"
        for result in members:
            yield f"- {result.tool}: {verdict(result)}{adds_text(result)}"
        yield ""


def verdict(result: Result) -> str:
    if result.is_refusal:
        return "refused" if result.error else "**quantized**"
    if not result.is_offered:
        return f"not tried: {escaped(result.error)}"
    if result.error:
        return f"**no model**: {escaped(result.error)}"
    return "passes" if result.is_good else f"**fails** {', '.join(result.failed)}"


def adds_text(result: Result) -> str:
    adds = [f"{add}: {' + '.join(names) or 'none'}" for add, names in result.adds.items()]
    return f" [{escaped('; '.join(adds))}]" if adds else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer-python", action="append", default=[], metavar="NAME=PATH", help="can be repeated")
    parser.add_argument("--family", action="append", metavar="NAME", help="only this family; can be repeated")
    parser.add_argument("--jobs", type=int, default=1, help="cases to run at the same time")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="write the results to this file, as JSON")
    parser.add_argument("--render", type=Path, metavar="FILE", help="run nothing, take the results from this file")
    given = parser.parse_args()
    if given.render:
        results = [Result(**entry) for entry in json.loads(given.render.read_text(encoding="utf-8"))]
    else:
        peers = [Tool(*argument.split("=", 1)) for argument in given.peer_python]
        results = run_all([Tool("onnxq"), Tool("onnxruntime"), *peers], given.family, given.jobs)
    if given.keep:
        given.keep.write_text(json.dumps([asdict(result) for result in results]), encoding="utf-8")
    PAGE.write_text("\n".join(page(results, command_for(results))), encoding="utf-8")


def run_all(tools: Sequence[Tool], families: Sequence[str] | None, jobs: int) -> list[Result]:
    cases = find_cases([REPOSITORY / "corpus" / family for family in families or ("",)])
    results: list[Result] = []
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        for tool in tools:
            chunks = [cases[start : start + AT_ONCE] for start in range(0, len(cases), AT_ONCE)]
            for number, found in enumerate(pool.map(partial(measure_some, tool), chunks), start=1):
                results += found
                print(f"\r{found[0].tool}: {number}/{len(chunks)}", end="", file=sys.stderr)
            print(file=sys.stderr)
    return results


def command_for(results: Sequence[Result]) -> str:
    """What to type, without the paths of one machine."""
    peers = dict.fromkeys(r.tool for r in results if r.tool.split()[0] not in ("onnxq", "onnxruntime"))
    pythons = [f"--peer-python {tool.split()[0]}=PYTHON_WITH_{tool.split()[1]}" for tool in peers]
    measured = {r.family for r in results}
    every = {file.parents[1].name for file in find_cases([REPOSITORY / "corpus"])}
    families = [f"--family {family}" for family in sorted(measured)] if measured != every else []
    return " ".join(["python benchmarks/compatibility.py", *families, *pythons])


if __name__ == "__main__":
    main()
