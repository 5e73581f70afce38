"""A Python function as a quantizer: `function(model, feeds, options) -> ModelProto`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from onnxq.errors import UsageError
from onnxq.policies import Policy
from onnxq.quantizers.peers import PeerQuantizer, describe, usable_python
from onnxq.quantizers.quantizer import Quantizer, Settings

if TYPE_CHECKING:
    from onnx import ModelProto

    from onnxq.calibration import CalibrationData


@dataclass(frozen=True)
class CallableQuantizer:
    """A function in this process.

    Attributes:
        name: Its name.
        version: Of the tool; "0" if it isn't declared.
        policy: Whose fusion rules it follows.
        function: Takes the model, a list of feeds (input name -> array), and the options as a dict.
    """

    name: str
    version: str
    policy: Policy
    function: Callable[[ModelProto, list[dict[str, Any]], dict[str, Any]], ModelProto]

    def quantize(
        self, model: ModelProto, calibration_data: CalibrationData | None, options: Mapping[str, Any]
    ) -> ModelProto:
        """Quantize a model.

        Raises:
            TypeError: The function returned no model.
            Exception: Whatever it raises.
        """
        from onnx import ModelProto

        from onnxq.quantizers.exchange import peer_feeds

        result = self.function(model, peer_feeds(model, calibration_data, options), dict(options))
        if not isinstance(result, ModelProto):
            raise TypeError(f"{self.name} returned a {type(result).__name__}, and a ModelProto is wanted")
        return result


def callable_quantizer(target: str, settings: Settings, policy: Policy | None, name: str | None) -> Quantizer:
    """A function as a quantizer, in another Python if the settings name one for it.

    Args:
        target: "package.module:function". Its attributes `name`, `version` and `policy` count, if it has them.
        settings: Which Python has it, and the time limit there.
        policy: Overrides the declared policy, which is "tensorrt" if there is none.
        name: Overrides the declared name, which is the target with a dot if there is none.

    Raises:
        UsageError: It can't be imported, or is nothing to call.
    """
    module, colon, path = target.partition(":")
    if not (module and colon and path):
        raise UsageError(f'quantizer "python:{target}": write python:package.module:function')
    default = name or f"{module}.{path}"
    if default in settings.peer_pythons:
        python = usable_python(default, settings.peer_pythons[default])
        found = describe(default, python, target, settings)
        return PeerQuantizer(
            name or found["name"] or default,
            found["version"] or "0",
            policy or found["policy"] or "tensorrt",
            target,
            python,
            settings.time_limit,
            lambda model, options: dict(options),
        )
    function = _load(target, module, path)
    return CallableQuantizer(
        name or getattr(function, "name", None) or default,
        getattr(function, "version", None) or "0",
        policy or getattr(function, "policy", None) or "tensorrt",
        function,
    )


def _load(target: str, module: str, path: str) -> Any:
    try:
        found: Any = import_module(module)
    except Exception as error:  # a module may raise anything while it is imported
        raise UsageError(
            f'quantizer "python:{target}": {module} can\'t be imported: {type(error).__name__}: {error}'
        ) from error
    for part in path.split("."):
        if not hasattr(found, part):
            raise UsageError(f'quantizer "python:{target}": {module} has no "{path}"')
        found = getattr(found, part)
    if not callable(found):
        raise UsageError(f'quantizer "python:{target}": a {type(found).__name__} is nothing to call')
    return found
