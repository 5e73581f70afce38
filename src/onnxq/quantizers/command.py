"""Any program as a quantizer: it is run once per model."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnxq.errors import UnsupportedError, UsageError
from onnxq.policies import Policy
from onnxq.quantizers.quantizer import Settings

if TYPE_CHECKING:
    from onnx import ModelProto

    from onnxq.calibration import CalibrationData
    from onnxq.quantizers.exchange import Files
    from onnxq.quantizers.process import Ended

_PLACEHOLDER = re.compile(r"\{(input|output|calibration|options)\}")


@dataclass(frozen=True)
class CommandQuantizer:
    """A program that reads and writes files.

    Attributes:
        name: Its name.
        policy: Whose fusion rules it follows.
        arguments: The program and its arguments, with placeholders.
        time_limit: Seconds that one model may take.
        version: Not known; "0" stands for it.
    """

    name: str
    policy: Policy
    arguments: tuple[str, ...]
    time_limit: float
    version: str = "0"

    def quantize(
        self, model: ModelProto, calibration_data: CalibrationData | None, options: Mapping[str, Any]
    ) -> ModelProto:
        """Quantize a copy of a model.

        Raises:
            PeerError: It crashed, took too long, or left no usable model.
            UnsupportedError: There are options, and the command line has no place for them.
            CalibrationError: The calibration data don't fit the model.
        """
        from onnxq.quantizers.exchange import DATA_OPTIONS, peer_feeds, quantize_in_process

        others = {name: value for name, value in options.items() if name not in DATA_OPTIONS}
        if others and not any("{options}" in argument for argument in self.arguments):
            raise UnsupportedError(
                f"{self.name} can't be told {', '.join(others)}: its command line has no {{options}}, "
                "which stands for a JSON file with them"
            )
        feeds = peer_feeds(model, calibration_data, options)
        return quantize_in_process(self.name, self._run, model, feeds, others)

    def _run(self, files: Files) -> Ended:
        from onnxq.quantizers.exchange import private_environment
        from onnxq.quantizers.process import run_program

        environment = private_environment(files.folder)
        return run_program(self._filled_in(files), time_limit=self.time_limit, environment=environment)

    def _filled_in(self, files: Files) -> list[str]:
        paths = {"input": files.model, **{key: path for key, path in asdict(files).items() if key != "model"}}
        return [_PLACEHOLDER.sub(lambda match: str(paths[match[1]]), argument) for argument in self.arguments]


def command_quantizer(line: str, settings: Settings, policy: Policy | None, name: str | None) -> CommandQuantizer:
    """A program as a quantizer.

    Args:
        line: The command line. It is split as a shell would do it, but no shell runs it. {input} and {output} stand for
            the float and the quantized model; {calibration}, an .npz, and {options}, JSON, may be left out.
        settings: With the time limit.
        policy: Whose fusion rules it follows; "tensorrt" unless given.
        name: What to call it; the file name of the program unless given.

    Raises:
        UsageError: The command line is malformed, lacks a placeholder, or names no program.
    """
    try:
        arguments = tuple(shlex.split(line))
    except ValueError as error:
        raise UsageError(f'quantizer "command:{line}": the command line can\'t be split: {error}') from None
    for needed in ("{input}", "{output}"):
        if not any(needed in argument for argument in arguments[1:]):
            raise UsageError(
                f'quantizer "command:{line}": {needed} is missing; write it where the program takes the '
                f"{'float model' if needed == '{input}' else 'file to write'}"
            )
    if shutil.which(arguments[0]) is None:
        raise UsageError(f'quantizer "command:{line}": there is no program "{arguments[0]}"')
    return CommandQuantizer(name or Path(arguments[0]).name, policy or "tensorrt", arguments, settings.time_limit)
