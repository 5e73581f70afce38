"""Breaks onnxq's own core in one place at a time, and tells which breaks the corpus and a search find.

    python benchmarks/detection.py --jobs 2
    python benchmarks/detection.py --peer modelopt=MODELOPT/bin/python --seconds 600

The first form: each mutant of mutants.toml is applied to a copy of the sources, and the corpus is run with that copy
until its first failure; what the corpus misses, `onnxq fuzz` is let search for. The judge is broken along with the
quantizer, since both ask the same core for the right placement: what is found, is found by what the cases and the
labels of drawn models state, by the changes of a model that must change nothing, and by the numbers.

The second form: a search in a peer. What comes of either is kept in detection.json, and docs/detection.md made of it.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from markdown_text import escaped, row, table_head

from onnxq.fuzz import RELATIONS, Budget, Finding, find_relation, models_of, search
from onnxq.quantizers import Settings, resolve

REPOSITORY = Path(__file__).parents[1]
MUTANTS = Path(__file__).with_name("mutants.toml")
PAGE = REPOSITORY / "docs" / "detection.md"
KEPT = Path(__file__).with_name("detection.json")
TIME_LIMIT = 600
"""Seconds for one run of the corpus. A mutant with which it doesn't end is found, too."""

MOST_CHARACTERS = 300
"""That the page shows of one violation."""

FAILED = re.compile(r"^(?:FAILED|ERROR) (?:corpus/)?(\S+?)(?:/case\.toml)?(?:::(\S+?))?(?:\[\S+\])?(?: - .*)?$", re.M)


@dataclass(frozen=True)
class Mutant:
    """One break.

    Attributes:
        name: What it is called here.
        file: The file, below src/onnxq.
        breaks: The rule that it breaks.
        old: What the file holds, once.
        new: What the mutant has instead.
    """

    name: str
    file: str
    breaks: str
    old: str
    new: str


@dataclass(frozen=True)
class Outcome:
    """What came of a mutant.

    Attributes:
        mutant: Its name.
        corpus: Where the corpus failed first; "" if nowhere.
        search: What a search found, if the corpus found nothing; "" if it didn't either.
        seconds: How long both took.
    """

    mutant: str
    corpus: str
    search: str
    seconds: float


def read_mutants(path: Path = MUTANTS) -> list[Mutant]:
    """Read the list.

    Raises:
        SystemExit: A mutant's old text doesn't occur once.
    """
    mutants = [Mutant(**entry) for entry in tomllib.loads(path.read_text(encoding="utf-8"))["mutant"]]
    for mutant in mutants:
        occurrences = (REPOSITORY / "src" / "onnxq" / mutant.file).read_text(encoding="utf-8").count(mutant.old)
        if occurrences != 1:
            raise SystemExit(f"{path.name}: mutant {mutant.name}: its old text occurs {occurrences} times, not once")
    return mutants


def measure(mutant: Mutant | None, arguments: Sequence[str], seconds: float) -> Outcome:
    """Run the corpus with a mutant, and search if it finds nothing; with none, as it is."""
    with tempfile.TemporaryDirectory() as folder:
        for part in ("src", "builders"):
            shutil.copytree(REPOSITORY / part, Path(folder, part), ignore=shutil.ignore_patterns("__pycache__"))
        if mutant is not None:
            file = Path(folder, "src", "onnxq", mutant.file)
            file.write_text(file.read_text(encoding="utf-8").replace(mutant.old, mutant.new), encoding="utf-8")
        start = time.monotonic()
        corpus = [
            f"--onnxq-corpus={REPOSITORY / 'corpus'}",
            "-q",
            "-x",
            "-p",
            "no:cacheprovider",
            "--tb=no",
            *arguments,
        ]
        found = _first_failure(_run(folder, ["pytest", *corpus], TIME_LIMIT))
        searched = "" if found or not seconds else _first_finding(_fuzz(folder, seconds))
        return Outcome(mutant.name if mutant else "", found, searched, time.monotonic() - start)


def _fuzz(folder: str, seconds: float) -> str:
    limits = ["--time", f"{seconds:g}", "--findings", "1", "-q", "--json"]
    return _run(folder, ["onnxq", "fuzz", *limits], seconds + TIME_LIMIT)


def _run(folder: str, module: Sequence[str], seconds: float) -> str:
    """What a module prints that is run with the mutant; "" if it ends with exit status 0."""
    paths = os.pathsep.join(str(Path(folder, part)) for part in ("src", "builders"))
    environment = {**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", *module]
    try:
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return f"no end within {seconds:g} s"
    return done.stdout or done.stderr if done.returncode else ""


def _first_finding(output: str) -> str:
    """The relation and the cause of the first finding in the JSON that `onnxq fuzz` prints."""
    try:
        first = json.loads(output)[0]
    except ValueError:
        return output.strip().rpartition("\n")[2]
    return f"{first['relation']}: {first['cause']}"


def _first_failure(output: str) -> str:
    failed = FAILED.search(output)
    if failed is None:
        return output.strip().rpartition("\n")[2]
    case = "/".join(failed[1].split("/")[-2:])
    return f"{case}: {failed[2]}" if failed[2] else case


def search_peer(
    peer: str, python: str, seconds: float, names: Sequence[str], strategies: Sequence[str]
) -> dict[str, Any]:
    """What a search finds in a peer: each kind of fault, and how large the smallest model is that shows it.

    Args:
        peer: Its name.
        python: A Python that has it.
        seconds: For the search.
        names: Of relations; none for all.
        strategies: What models are drawn from; none for all.
    """
    quantizer = resolve(peer, Settings(peer_pythons={peer: python}))
    relations = [find_relation(name) for name in names] or RELATIONS
    result = search(
        quantizer, models_of(strategies), budget=Budget(seconds=seconds), relations=relations, progress=print
    )
    about = f" ({', '.join([*names, *strategies])} alone)" if names or strategies else ""
    return {
        "peer": f"{quantizer.name} {quantizer.version}",
        "searches": [f"{result.models} models in {result.seconds:.0f} s{about}"],
        "findings": [_told(finding) for finding in result.findings],
    }


def merged(before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> Mapping[str, Any]:
    """Two searches in one peer: what the first one found, and what is new in the second."""
    if before is None:
        return after
    known = {(f["relation"], f["invariant"], f["cause"]) for f in before["findings"]}
    new = [f for f in after["findings"] if (f["relation"], f["invariant"], f["cause"]) not in known]
    searches = [*before["searches"], *after["searches"]]
    return {**before, "searches": searches, "findings": [*before["findings"], *new]}


def _told(finding: Finding) -> dict[str, Any]:
    violation = finding.violation
    return {
        "relation": finding.fault.relation,
        "invariant": finding.fault.invariant,
        "cause": finding.fault.cause,
        "seconds": round(finding.seconds, 1),
        "nodes": finding.size[0],
        "drawn": finding.drawn,
        "violation": f"{violation.where}: expected {violation.expected}; found {violation.found}",
    }


def page(mutants: Sequence[Mutant], kept: Mapping[str, Any]) -> Iterator[str]:
    """The lines of the page."""
    found = {name: Outcome(**entry) for name, entry in kept["mutants"].items()}
    measured = [mutant for mutant in mutants if mutant.name in found]
    yield "# What is detected\n"
    yield "This page is written by `benchmarks/detection.py`."
    yield from _mutants_page(measured, found, kept["seconds"]) if measured else ()
    for peer in kept["peers"].values():
        yield from _peer_page(peer)


def _mutants_page(measured: Sequence[Mutant], found: Mapping[str, Outcome], seconds: float) -> Iterator[str]:
    by_corpus = sum(bool(found[m.name].corpus) for m in measured)
    by_either = sum(bool(found[m.name].corpus or found[m.name].search) for m in measured)
    yield f"""\

## Mutants of onnxq

{len(measured)} semantic mutants of onnxq's own core, each with one changed rule, condition, axis, type or guard. The
corpus finds **{by_corpus} of {len(measured)}** ({100 * by_corpus / len(measured):.0f} %), the corpus and a search of
{seconds:g} s together **{by_either}** ({100 * by_either / len(measured):.0f} %).

    python benchmarks/detection.py

The judge is broken along with the quantizer, since both ask the same core for the right placement. So what is found, is
found by what the cases and the labels of drawn models state, by changes of a model that must change nothing, and by the
numbers. The table names the first check that fails, and only where the corpus finds nothing what the search finds.
"no end": with such a core onnxq doesn't come to an end on some case.

The corpus was made to find them: of the first 83 it missed 19. Three of these change no decision of any model, and
are gone or replaced; for each of the others there is a case now.
"""
    yield from table_head(["mutant", "what it breaks", "found by"])
    for mutant in measured:
        outcome = found[mutant.name]
        by = outcome.corpus or (f"search: {outcome.search}" if outcome.search else "")
        yield row([f"`{mutant.name}`", escaped(mutant.breaks), escaped(by) or "**not found**"])


def _peer_page(peer: Mapping[str, Any]) -> Iterator[str]:
    name, findings = peer["peer"], peer["findings"]
    yield f"""
## {name}

{len(findings)} kinds of faults in {", then ".join(peer["searches"])}, by

    python benchmarks/detection.py --peer {name.split()[0]}=PYTHON --seconds 600

Each is a violation of what onnxq expects under the fusion rules of the tool's target, or of what must hold of any
quantizer, see [](relations.md). Nodes: of the smallest model that shows it.
"""
    yield from table_head(["relation", "cause", "seen", "nodes", "after"])
    for f in sorted(findings, key=lambda f: (f["relation"], f["invariant"], f["cause"])):
        invariant = "" if f["invariant"] == f["relation"] else f" {f['invariant']}"
        seen = escaped(
            f["violation"] if len(f["violation"]) <= MOST_CHARACTERS else f["violation"][:MOST_CHARACTERS] + "..."
        )
        yield row([f"`{f['relation']}`{invariant}", escaped(f["cause"]), seen, str(f["nodes"]), f"{f['seconds']:g} s"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", metavar="NAME", help="only this mutant; can be repeated")
    parser.add_argument("--jobs", type=int, default=2, help="mutants to run at the same time")
    parser.add_argument("--seconds", type=float, default=60.0, help="for one search")
    parser.add_argument("--peer", metavar="NAME=PYTHON", help="search in this peer instead")
    parser.add_argument("--relations", nargs="*", default=[], metavar="NAME", help="of that search; default: all")
    parser.add_argument("--strategies", nargs="*", default=[], metavar="NAME", help="likewise")
    parser.add_argument("--render", action="store_true", help="run nothing, only write the page")
    parser.add_argument("pytest", nargs="*", help="more arguments for pytest")
    arguments = parser.parse_args()
    kept = (
        json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else {"seconds": 60, "mutants": {}, "peers": {}}
    )
    mutants = read_mutants()
    if arguments.peer:
        found = search_peer(*arguments.peer.split("="), arguments.seconds, arguments.relations, arguments.strategies)
        kept["peers"][found["peer"]] = merged(kept["peers"].get(found["peer"]), found)
    elif not arguments.render:
        kept["seconds"] = arguments.seconds
        kept["mutants"] |= run_mutants([m for m in mutants if m.name in (arguments.only or [m.name])], arguments)
    known = {mutant.name for mutant in mutants}
    kept["mutants"] = {name: entry for name, entry in kept["mutants"].items() if name in known}
    KEPT.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text("\n".join(page(mutants, kept)).rstrip("\n") + "\n", encoding="utf-8")


def run_mutants(mutants: Sequence[Mutant], arguments: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Measure mutants, after a look whether the corpus passes without any."""
    healthy = measure(None, arguments.pytest, 0)
    if healthy.corpus:
        raise SystemExit(f"the corpus fails without any mutant: {healthy.corpus}")
    outcomes = {}
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for outcome in pool.map(partial(measure, arguments=arguments.pytest, seconds=arguments.seconds), mutants):
            found = outcome.corpus or (f"search: {outcome.search}" if outcome.search else "NOT FOUND")
            print(f"{outcome.seconds:6.1f} s  {outcome.mutant}: {found}", flush=True)
            outcomes[outcome.mutant] = {**asdict(outcome), "seconds": round(outcome.seconds, 1)}
    return outcomes


if __name__ == "__main__":
    main()
