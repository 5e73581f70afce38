"""Breaks onnxq's own core in one place at a time, and tells which breaks the corpus finds.

    python benchmarks/detection.py --jobs 2

Each mutant of mutants.toml is applied to a copy of the sources, and the corpus is run with that copy until its first
failure. What comes of it is written to docs/detection.md. The judge is broken along with the quantizer, since both ask
the same core for the right placement: what is found, is found by what the cases state and by the numbers.
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
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from markdown_text import escaped, row, table_head

REPOSITORY = Path(__file__).parents[1]
MUTANTS = Path(__file__).with_name("mutants.toml")
PAGE = REPOSITORY / "docs" / "detection.md"
TIME_LIMIT = 900
"""Seconds for one run of the corpus."""

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
    """What came of a mutant: where the corpus failed first ("" if nowhere), and how long that took."""

    mutant: str
    found_by: str
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


def measure(mutant: Mutant | None, arguments: Sequence[str]) -> Outcome:
    """Run the corpus with a mutant; with none, as it is."""
    with tempfile.TemporaryDirectory() as folder:
        for part in ("src", "builders"):
            shutil.copytree(REPOSITORY / part, Path(folder, part), ignore=shutil.ignore_patterns("__pycache__"))
        if mutant is not None:
            file = Path(folder, "src", "onnxq", mutant.file)
            file.write_text(file.read_text(encoding="utf-8").replace(mutant.old, mutant.new), encoding="utf-8")
        paths = os.pathsep.join(str(Path(folder, part)) for part in ("src", "builders"))
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--tb=no", *arguments]
        start = time.monotonic()
        try:
            done = subprocess.run(
                [*command, f"--onnxq-corpus={REPOSITORY / 'corpus'}"],
                cwd=folder,
                env={**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"},
                capture_output=True,
                text=True,
                timeout=TIME_LIMIT,
                check=False,
            )
            found = _first_failure(done.stdout + done.stderr) if done.returncode else ""
        except subprocess.TimeoutExpired:
            found = f"no end within {TIME_LIMIT} s"
        return Outcome(mutant.name if mutant else "", found, time.monotonic() - start)


def _first_failure(output: str) -> str:
    failed = FAILED.search(output)
    if failed is None:
        return f"no start: {output.strip().splitlines()[-1] if output.strip() else 'no output'}"
    case = "/".join(failed[1].split("/")[-2:])
    return f"{case}: {failed[2]}" if failed[2] else case


def page(mutants: Sequence[Mutant], outcomes: Sequence[Outcome]) -> Iterator[str]:
    """The lines of the page."""
    found = {outcome.mutant: outcome.found_by for outcome in outcomes}
    killed = sum(bool(found[mutant.name]) for mutant in mutants)
    yield "# What the corpus detects\n"
    yield f"""\
{len(mutants)} semantic mutants of onnxq's own core, each with one changed rule, condition, axis, type or guard. The
corpus finds **{killed} of {len(mutants)}** ({100 * killed / len(mutants):.0f} %). This page is written by

    python benchmarks/detection.py

The judge is broken along with the quantizer, since both ask the same core for the right placement. So what is found, is
found by what the cases state, their goldens, and the numbers. The table names the first check that fails.
"""
    yield from table_head(["mutant", "what it breaks", "found by"])
    for mutant in mutants:
        yield row([f"`{mutant.name}`", escaped(mutant.breaks), escaped(found[mutant.name]) or "**not found**"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", metavar="NAME", help="only this mutant; can be repeated")
    parser.add_argument("--jobs", type=int, default=2, help="mutants to run at the same time")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="write the outcomes to this file, as JSON")
    parser.add_argument("--render", type=Path, metavar="FILE", help="run nothing, take the outcomes from this file")
    parser.add_argument("pytest", nargs="*", help="more arguments for pytest")
    arguments = parser.parse_args()
    mutants = [m for m in read_mutants() if not arguments.only or m.name in arguments.only]
    if arguments.render:
        outcomes = [Outcome(**entry) for entry in json.loads(arguments.render.read_text(encoding="utf-8"))]
    else:
        healthy = measure(None, arguments.pytest)
        if healthy.found_by:
            raise SystemExit(f"the corpus fails without any mutant: {healthy.found_by}")
        outcomes = []
        with ThreadPoolExecutor(arguments.jobs) as pool:
            for outcome in pool.map(partial(measure, arguments=arguments.pytest), mutants):
                print(f"{outcome.seconds:6.1f} s  {outcome.mutant}: {outcome.found_by or 'NOT FOUND'}", flush=True)
                outcomes.append(outcome)
    if arguments.keep:
        arguments.keep.write_text(json.dumps([asdict(o) for o in outcomes], indent=1), encoding="utf-8")
    if not arguments.only:
        PAGE.write_text("\n".join(page(mutants, outcomes)).rstrip("\n") + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
