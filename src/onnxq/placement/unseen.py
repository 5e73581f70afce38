"""What can't be quantized for what calibration saw of it: nothing, or too small values (rule P6).

A tensor that was empty each time has no range, nor has one in a body that never ran. A float16 tensor needs a float16
scale, and there is none for values of 1e-5.
"""

from __future__ import annotations

from collections.abc import Collection

from onnxq.graph import ABSENT, MAIN_GRAPH, GraphIndex, Use
from onnxq.placement.never import Unseen
from onnxq.placement.placement import Placement

_EMPTY = "was empty in every sample"
_NEVER_RAN = "is in a body that never ran in calibration"
TOO_SMALL = "holds values too small for a float16 scale"
"""Why a float16 tensor can't be quantized."""


def why_unseen(index: GraphIndex, placement: Placement, keys: Collection[str]) -> Unseen:
    """Tell why calibration saw no value of some tensors.

    Args:
        index: The prepared model.
        placement: What was to be calibrated.
        keys: Keys of the tensors without a value.

    Returns:
        Each of them, as its graph sees it -> why. If nothing in a body had a value, the body never ran.
    """
    missing = set(uses_of(index, placement, keys))
    ran = {MAIN_GRAPH} | {use.scope for use in _calibrated(index, placement) if use not in missing}
    return {use: _EMPTY if use.scope in ran else _NEVER_RAN for use in _calibrated(index, placement) if use in missing}


def uses_of(index: GraphIndex, placement: Placement, keys: Collection[str]) -> list[Use]:
    """The quantized activations with the given keys, each as its graph sees it, in order of first use."""
    wanted = set(keys)
    return [use for use in _calibrated(index, placement) if index.key(use) in wanted]


def _calibrated(index: GraphIndex, placement: Placement) -> list[Use]:
    read = [index.use(e) for e in placement.quantized if not placement[e].constant]
    return list(dict.fromkeys([*read, *(output.use for output in placement.quantized_outputs)]))


def unseen_warnings(index: GraphIndex, unseen: Unseen) -> list[str]:
    """What the user should know about them: one line a tensor; of a body that never ran, one line in all."""
    idle = {use.scope: None for use, why in unseen.items() if why == _NEVER_RAN}
    outermost = [scope for scope in idle if not any(outer in idle for outer in _around(index, scope))]
    return [
        *(f'tensor "{index.key(use)}" {why} and stays float' for use, why in unseen.items() if use.scope not in idle),
        *(
            f'body "{index.scopes[scope].path}" never ran on the calibration data, so all of it stays float'
            for scope in outermost
        ),
    ]


def _around(index: GraphIndex, scope: int) -> list[int]:
    """The bodies around a body."""
    found = []
    while index.scopes[scope].owner != ABSENT:
        scope = index.node_scope[index.scopes[scope].owner]
        found.append(scope)
    return found
