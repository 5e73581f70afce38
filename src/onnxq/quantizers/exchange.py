"""Handing a model to a quantizer in another process, and taking the result: by files in a private folder."""

from __future__ import annotations

import json
import os
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto

from onnxq.calibration import CalibrationData, make_feeds
from onnxq.errors import InvalidModelError, PeerError, UnsupportedError
from onnxq.model_io import load_model, save_model
from onnxq.quantizers.process import Ended

DATA_OPTIONS = ("calibration_shapes", "seed")
"""Options of `onnxq.quantize` that are about calibration data: the harness makes the data, so that all tools get the
same."""

Feed = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Files:
    """What is exchanged, all in one folder that only this user can read.

    Attributes:
        model: The float model.
        calibration: Arrays by input name, samples along the leading axis, as .npz.
        options: JSON: the options, and how to cut the arrays into samples.
        output: Where the quantized model goes.
    """

    model: Path
    calibration: Path
    options: Path
    output: Path

    @property
    def folder(self) -> Path:
        """Where they are."""
        return self.model.parent


def quantize_in_process(
    name: str,
    run: Callable[[Files], Ended],
    model: ModelProto,
    feeds: Iterable[Feed],
    options: Mapping[str, Any],
) -> ModelProto:
    """Have a program quantize a model.

    Args:
        name: What messages call it.
        run: Runs the program on the files, in whichever way.
        model: The float model.
        feeds: The calibration samples.
        options: For the program, written down as JSON.

    Returns:
        The quantized model.

    Raises:
        PeerError: It failed, didn't end, or left no usable model.
        UnsupportedError: A sample can't be written as .npz.
    """
    with tempfile.TemporaryDirectory(prefix="onnxq-", ignore_cleanup_errors=True) as temporary:
        folder = Path(temporary)
        files = Files(*(folder / n for n in ("model.onnx", "calibration.npz", "options.json", "quantized.onnx")))
        save_model(model, files.model)
        layout = write_feeds(feeds, files.calibration)
        files.options.write_text(json.dumps({**layout, "options": dict(options)}), encoding="utf-8")
        ended = run(files)
        if not ended.is_success:
            last = ended.output.rpartition("\n")[2]
            raise PeerError(f"{name} {ended.how}{f': {last}' if last else ''}", ended.output)
        if not files.output.exists():
            raise PeerError(f"{name} {ended.how}, but wrote no model", ended.output)
        try:
            return load_model(files.output)
        except InvalidModelError as error:
            raise PeerError(f"{name} {ended.how}, but what it wrote can't be read: {error}", ended.output) from None


def private_environment(folder: Path | None, environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Environment variables for a program whose temporary files go to a folder, and which runs the same every time."""
    own = os.environ if environment is None else environment
    return {"PYTHONHASHSEED": "0", **own, **({} if folder is None else temporary_files(folder))}


def temporary_files(folder: Path) -> dict[str, str]:
    """Environment variables that say where temporary files go."""
    return dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(folder))


def peer_feeds(model: ModelProto, data: CalibrationData | None, options: Mapping[str, Any]) -> list[Feed]:
    """The calibration samples that onnxq itself would use, so that every quantizer gets the same.

    Args:
        model: The float model.
        data: Of the case; None makes up one seeded sample.
        options: Of the case, of which those in `DATA_OPTIONS` count.

    Returns:
        One mapping of input name to array a run.

    Raises:
        CalibrationError: The data don't fit the model.
    """
    return list(make_feeds(model, data, shapes=options.get("calibration_shapes"), seed=options.get("seed", 0)))


def write_feeds(feeds: Iterable[Feed], file: Path) -> dict[str, Any]:
    """Write samples as .npz: the arrays of each input joined along the leading axis, scalars as one axis.

    Args:
        feeds: The samples.
        file: What to write.

    Returns:
        "runs": how many samples there are, which is the number of equal parts that each array can be split into;
        "scalars": names of the inputs of rank 0.

    Raises:
        UnsupportedError: An input takes what .npz can't hold, or its shape isn't the same in all samples.
    """
    samples = list(feeds)
    with zipfile.ZipFile(file, "w") as archive:  # numpy.savez takes some names for its own parameters
        for name in samples[0] if samples else ():
            parts = [sample[name] for sample in samples]
            if parts[0].dtype.kind not in "biufc":
                raise UnsupportedError(f'input "{name}" takes {parts[0].dtype}, which no .npz file holds')
            if len({part.shape for part in parts}) > 1:
                raise UnsupportedError(f'input "{name}": samples of different shapes can\'t be joined in an .npz file')
            joined = np.concatenate([part if part.ndim else part.reshape(1) for part in parts])
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, joined, allow_pickle=False)
    scalars = [name for name, value in samples[0].items() if not value.ndim] if samples else []
    return {"runs": len(samples), "scalars": scalars}
