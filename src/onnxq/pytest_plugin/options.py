"""Options of the plugin: how they are declared, and what they ask for once they are read and checked."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

import pytest

if TYPE_CHECKING:
    from onnxq.corpus.golden import Update
    from onnxq.quantizers import Quantizer, Settings

UPDATES: tuple[Update, ...] = ("none", "new", "changed", "all")
Unused = Literal["ignore", "warn", "fail", "delete"]
UNUSED: tuple[Unused, ...] = get_args(Unused)

_T = TypeVar("_T", bound=str)

_CORPUS = "folder of cases (or one case.toml) to add to the run, or 'builtin' for the cases that come with onnxq"
_OUTSIDE = "write --onnxq-corpus=PATH for one outside of the project, or pytest takes it for the project"
_UNUSED = "what to do about golden files that no check reads (default: warn)"
_COMPLETE = "only cases of which every check ran are judged"

_REPEATED = (
    ("corpus", "PATH", f"{_CORPUS}; {_OUTSIDE}"),
    ("quantizer", "SPEC", "quantizer to test (default: onnxq)"),
    ("peer-python", "NAME=PATH", "run the quantizer NAME by the Python interpreter PATH, where it is installed"),
)

_SINGLE = (
    ("update", "|".join(UPDATES), "write golden files: those that are missing, those that differ, or both"),
    ("unused", "|".join(UNUSED), f"{_UNUSED}; {_COMPLETE}"),
    ("time-limit", "SECONDS", "how long a quantizer that runs in a process of its own may take for one model"),
    ("fuzz", "N", "draw N models for each quantizer, and search for what it gets wrong, see `onnxq fuzz`"),
    ("save-failures", "DIR", "with --onnxq-fuzz: write each finding as a case of the corpus DIR"),
    ("report", "FILE.html", "write a page about all cases that ran: graphs with their Q/DQ, decisions, errors"),
)


@dataclass(frozen=True)
class CorpusOptions:
    """What the options, or their twins in the ini file, ask for.

    Attributes:
        paths: Absolute paths of the corpora.
        cases: All case files at or below them.
        specs: Quantizers to test.
        update: Which golden files are written.
        unused: What happens to golden files that no check reads.
        peer_pythons: Quantizer -> interpreter that runs it.
        time_limit: Seconds that a quantizer in another process may take; None for its default.
        report: Page to write; None for none.
        fuzz: How many models are drawn for each quantizer.
        save_failures: Corpus for what is found in them; None to write nothing.
    """

    paths: tuple[Path, ...] = ()
    cases: tuple[Path, ...] = ()
    specs: tuple[str, ...] = ("onnxq",)
    update: Update = "none"
    unused: Unused = "warn"
    peer_pythons: tuple[tuple[str, str], ...] = ()
    time_limit: float | None = None
    report: Path | None = None
    fuzz: int = 0
    save_failures: Path | None = None


OPTIONS_KEY = pytest.StashKey[CorpusOptions]()
QUANTIZERS_KEY = pytest.StashKey[Mapping[str, "Quantizer"]]()


def add_options(parser: pytest.Parser) -> None:
    """Declare the options, and a twin of each for the ini file."""
    group = parser.getgroup("onnxq", "ONNX quantizers")
    for name, metavar, text in _REPEATED:
        group.addoption(f"--onnxq-{name}", action="append", metavar=metavar, help=f"{text}; can be repeated")
        parser.addini(_ini(name), text.partition("; ")[0], type="linelist")
    for name, metavar, text in _SINGLE:
        group.addoption(f"--onnxq-{name}", metavar=metavar, help=text)
        parser.addini(_ini(name), text, type="string", default="")
    in_ci = "allow that golden files are written or deleted although the environment variable CI is set"
    group.addoption("--onnxq-update-in-ci", action="store_true", default=None, help=in_ci)
    parser.addini(_ini("update-in-ci"), in_ci, type="bool", default=False)


def read_options(config: pytest.Config) -> CorpusOptions:
    """Options of the command line, relative to where it was typed; else those of the ini file, relative to the file.

    Raises:
        pytest.UsageError: A value isn't allowed, or golden files would be written in CI.
    """
    given, base = config.getoption("onnxq_corpus"), config.invocation_params.dir
    if not given:
        given, base = config.getini("onnxq_corpus"), _ini_folder(config)
    update = _choice(config, "update", UPDATES, "none")
    unused = _choice(config, "unused", UNUSED, "warn")
    _check_ci(config, update, unused)
    specs = tuple(dict.fromkeys(_value(config, "quantizer") or ["onnxq"]))
    options = CorpusOptions(
        specs=specs,
        update=update,
        unused=unused,
        peer_pythons=_peer_pythons(config),
        time_limit=_time_limit(config),
        report=_report(config),
        fuzz=_fuzz(config),
        save_failures=_path(config, "save-failures"),
    )
    if not given:
        return options
    from onnxq.corpus.discover import corpus_path, find_cases
    from onnxq.errors import OnnxqError

    try:
        paths = tuple(dict.fromkeys(corpus_path(path, base) for path in given))
        return replace(options, paths=paths, cases=tuple(find_cases(paths)))
    except OnnxqError as error:
        raise pytest.UsageError(str(error)) from None


def tested_quantizers(config: pytest.Config) -> Mapping[str, Quantizer]:
    """Spec -> quantizer, found once in a run.

    Raises:
        pytest.UsageError: There is no such quantizer, or two have one name.
    """
    if QUANTIZERS_KEY in config.stash:
        return config.stash[QUANTIZERS_KEY]
    from onnxq.errors import OnnxqError
    from onnxq.quantizers import resolve

    options = config.stash[OPTIONS_KEY]
    try:
        found = {spec: resolve(spec, run_settings(options)) for spec in options.specs}
    except OnnxqError as error:
        raise pytest.UsageError(str(error)) from None
    by_name: dict[str, str] = {}
    for spec, quantizer in found.items():
        other = by_name.setdefault(quantizer.name, spec)
        if other != spec:
            raise pytest.UsageError(
                f'--onnxq-quantizer: both "{other}" and "{spec}" are named "{quantizer.name}"; test one in each run'
            )
    config.stash[QUANTIZERS_KEY] = found
    return found


def run_settings(options: CorpusOptions) -> Settings:
    """How quantizers are run that have processes of their own."""
    from onnxq.quantizers import Settings

    limit = {} if options.time_limit is None else {"time_limit": options.time_limit}
    return Settings(dict(options.peer_pythons), **limit)


def command(config: pytest.Config, *arguments: str) -> str:
    """A pytest command to paste, with those options of this run that choose the project and the quantizers."""
    options = config.stash[OPTIONS_KEY]
    words = ["pytest"]
    if config.getoption("inifilename"):
        words += ["-c", str(config.getoption("inifilename"))]
    words += arguments
    if config.getoption("onnxq_peer_python"):
        words += [f"--onnxq-peer-python={name}={path}" for name, path in options.peer_pythons]
    if config.getoption("onnxq_time_limit"):
        words.append(f"--onnxq-time-limit={options.time_limit:g}")
    return shlex.join(words)


def same_command(config: pytest.Config, *arguments: str) -> str:
    """The command of this run, with further arguments."""
    return shlex.join(["pytest", *map(str, config.invocation_params.args), *arguments])


def _ini(name: str) -> str:
    return f"onnxq_{name.replace('-', '_')}"


def _ini_folder(config: pytest.Config) -> Path:
    return config.inipath.parent if config.inipath else config.rootpath


def _value(config: pytest.Config, name: str) -> Any:
    return config.getoption(_ini(name)) or config.getini(_ini(name))


def _choice(config: pytest.Config, name: str, allowed: Sequence[_T], default: _T) -> _T:
    value = _value(config, name) or default
    for choice in allowed:
        if value == choice:
            return choice
    raise pytest.UsageError(f'--onnxq-{name}: "{value}" is none of {", ".join(map(str, allowed))}')


def _check_ci(config: pytest.Config, update: str, unused: str) -> None:
    """A run in CI must not accept what it finds: it would always pass."""
    writing = [f"--onnxq-update {update}"] if update != "none" else []
    writing += ["--onnxq-unused delete"] if unused == "delete" else []
    if not writing or os.environ.get("CI", "").lower() in ("", "0", "false") or _value(config, "update-in-ci"):
        return
    raise pytest.UsageError(
        f"{' and '.join(writing)}: the environment variable CI is set, and golden files aren't changed in CI; run this "
        "on your own machine and commit the files, or add --onnxq-update-in-ci"
    )


def _peer_pythons(config: pytest.Config) -> tuple[tuple[str, str], ...]:
    pairs = []
    for text in _value(config, "peer-python"):
        name, equals, path = text.partition("=")
        if not (name and equals and path):
            raise pytest.UsageError(f'--onnxq-peer-python: expected NAME=PATH; found "{text}"')
        pairs.append((name.strip(), path.strip()))
    return tuple(pairs)


def _time_limit(config: pytest.Config) -> float | None:
    text = _value(config, "time-limit")
    if not text:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise pytest.UsageError(f'--onnxq-time-limit: expected a number of seconds above 0; found "{text}"')
    return seconds


def _fuzz(config: pytest.Config) -> int:
    text = str(_value(config, "fuzz") or 0)
    if not (text.isascii() and text.isdigit()):
        raise pytest.UsageError(f'--onnxq-fuzz: expected a number of models from 0 on; found "{text}"')
    return int(text)


def _report(config: pytest.Config) -> Path | None:
    path = _path(config, "report")
    if path is not None and not path.parent.is_dir():
        raise pytest.UsageError(f"--onnxq-report: there is no folder {path.parent}")
    return path


def _path(config: pytest.Config, name: str) -> Path | None:
    """A path from the command line, relative to where it was typed, or from the ini file, relative to the file."""
    given, base = config.getoption(_ini(name)), config.invocation_params.dir
    if not given:
        given, base = config.getini(_ini(name)), _ini_folder(config)
    return Path(base / given) if given else None
