"""Quantizing in a process of its own, where sets and dicts of sets have another order.

    python -m onnxq.relations.hash_seed SPEC SETTINGS MODEL CALIBRATION OPTIONS OUTPUT        with PYTHONHASHSEED set

A peer runs in a process of its own anyway, which gets the seed.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from onnxq.errors import OnnxqError
from onnxq.model_io import load_model, save_model
from onnxq.quantizers import Settings, resolve
from onnxq.quantizers.exchange import Files, private_environment, quantize_in_process
from onnxq.quantizers.peer_runner import Samples
from onnxq.quantizers.peers import PeerQuantizer
from onnxq.quantizers.process import Ended, run_program

if TYPE_CHECKING:
    from onnxq.relations.trial import Outcome, Trial


def quantize_with_hash_seed(trial: Trial, seed: int) -> Outcome:
    """Quantize the model of a trial in a new process.

    Args:
        trial: With the spec of its quantizer.
        seed: The hash seed, from 0 to 4294967295.

    Returns:
        What came out.
    """
    from onnxq.relations.trial import Outcome

    if isinstance(trial.quantizer, PeerQuantizer):
        return replace(trial, quantizer=trial.quantizer.with_hash_seed(seed)).quantize(trial.model, trial.feeds)
    options = json.dumps({**asdict(trial.settings), "peer_pythons": dict(trial.settings.peer_pythons)})
    head = [sys.executable, "-m", "onnxq.relations.hash_seed", trial.spec, options]
    folders = os.pathsep.join(folder for folder in sys.path if folder)
    environment = {**os.environ, "PYTHONHASHSEED": str(seed), "PYTHONPATH": folders}

    def run(files: Files) -> Ended:
        return run_program(
            [*head, *map(str, (files.model, files.calibration, files.options, files.output))],
            time_limit=trial.settings.time_limit,
            environment=private_environment(files.folder, environment),
        )

    try:
        feeds = [dict(feed) for feed in trial.feeds]
        model = quantize_in_process(trial.quantizer.name, run, trial.model, feeds, trial.options)
    except OnnxqError as error:
        return Outcome(trial.model, trial.feeds, error=error)
    return Outcome(trial.model, trial.feeds, model)


def main(arguments: Sequence[str]) -> None:
    """Quantize one model, in the new process."""
    spec, settings, model, calibration, options, output = arguments
    quantizer = resolve(spec, Settings(**json.loads(settings)))
    given = json.loads(Path(options).read_text(encoding="utf-8"))
    samples = Samples(calibration, given["runs"], given["scalars"])
    save_model(quantizer.quantize(load_model(model), samples.feeds, given["options"]), output)


if __name__ == "__main__":
    main(sys.argv[1:])
