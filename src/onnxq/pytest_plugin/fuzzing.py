"""Items that search for models that a quantizer gets wrong (`--onnxq-fuzz N`): one for each quantizer and strategy.

They aren't below any file, so pytest doesn't collect them: they are added to what it has collected. From there on they
are items like all others, for `-k`, `--lf` and pytest-xdist, which gives each to a worker of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from onnxq.printable import printable
from onnxq.pytest_plugin.items import make_item
from onnxq.pytest_plugin.options import OPTIONS_KEY, CorpusOptions, run_settings, tested_quantizers

if TYPE_CHECKING:
    from onnxq.quantizers import Quantizer

NAME = "onnxq-fuzz"
"""What the ids of the items begin with."""


class FaultsFound(Exception):  # noqa: N818 (a finding about a quantizer, no error of a program)
    """A search found something; the message is shown as it stands."""


def add_searches(session: pytest.Session, items: list[pytest.Item]) -> None:
    """Add the searches that are asked for to what pytest has collected."""
    options = session.config.stash[OPTIONS_KEY]
    if not options.fuzz:
        return
    collector = Searches.from_parent(session, name=NAME, nodeid=NAME)
    for item in collector.collect():
        session.ihook.pytest_itemcollected(item=item)
        items.append(item)


class Searches(pytest.Collector):
    """The searches of a run."""

    def collect(self) -> Iterator[pytest.Item]:
        """One for each quantizer and strategy; they share the number of models."""
        from onnxq.fuzz import SOURCES

        options = self.config.stash[OPTIONS_KEY]
        models = -(-options.fuzz // len(SOURCES))
        for spec, quantizer in tested_quantizers(self.config).items():
            for source in SOURCES:
                name = f"{source}[{quantizer.name}]"
                what = {"spec": spec, "quantizer": quantizer, "source": source, "models": models}
                yield make_item(SearchItem, self, name, **what)


class SearchItem(pytest.Item):
    """One search."""

    def __init__(self, *, spec: str, quantizer: Quantizer, source: str, models: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._spec, self._quantizer, self._source, self._models = spec, quantizer, source, models
        self.user_properties += [
            ("onnxq_quantizer", quantizer.name),
            ("onnxq_quantizer_version", quantizer.version),
            ("onnxq_strategy", source),
        ]

    def runtest(self) -> None:
        """Search, write down what was found, and fail if that is anything."""
        from onnxq.fuzz import Budget, finding_text, models_of, save_finding, search

        options = self.config.stash[OPTIONS_KEY]
        result = search(
            self._quantizer,
            models_of([self._source]),
            budget=Budget(models=self._models),
            seed=self._seed(),
            spec=self._spec,
            run_settings=run_settings(options),
        )
        if result.is_interrupted:
            raise KeyboardInterrupt
        if result.findings:
            folder = options.save_failures
            saved = [None if folder is None else save_finding(finding, folder) for finding in result.findings]
            texts = [finding_text(f, case) for f, case in zip(result.findings, saved, strict=True)]
            raise FaultsFound("\n\n".join([self._heading(len(texts), result.models), *texts, *self._hint(folder)]))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """What was found, without a traceback of the search."""
        from onnxq.errors import OnnxqError

        if isinstance(excinfo.value, FaultsFound | OnnxqError):
            return printable(str(excinfo.value))
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, None, str]:
        """Which search this is."""
        return self.path, None, f"{NAME}: {self.name}"

    def _seed(self) -> int:
        """That of hypothesis's own option, so that a nightly run can draw other models; else always the same."""
        given = self.config.getoption("hypothesis_seed", None)
        if given == "random":
            from random import SystemRandom

            return SystemRandom().randrange(2**32)
        return int(given or 0)

    def _heading(self, found: int, models: int) -> str:
        kinds = f"{found} kind{'s' if found != 1 else ''} of faults"
        return f"{self._quantizer.name} {self._quantizer.version}: {kinds} in {models} models drawn from {self._source}"

    def _hint(self, folder: Path | None) -> list[str]:
        if folder is not None:
            return []
        return ["to keep them as cases of a corpus: the same command with --onnxq-save-failures=DIR"]


def fuzz_header(options: CorpusOptions) -> list[str]:
    """What the header of the run says of the searches."""
    return [f"onnxq fuzz: {options.fuzz} models for each quantizer"] if options.fuzz else []
