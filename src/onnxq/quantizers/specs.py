"""From a spec, as people type it, to a quantizer.

    [NAME=] onnxq[:POLICY] | onnxruntime | modelopt | python:MODULE:FUNCTION | command:LINE | REGISTERED   [@POLICY]

onnxq quantizes for the policy that it is given, in either place; the others are only judged by it. NAME goes with
python: and command: only, which have no name of their own. REGISTERED is a name in the entry point group
`onnxq.quantizers`, under which other packages offer theirs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from importlib.metadata import EntryPoint, entry_points
from typing import Any, cast

from onnxq.errors import UsageError
from onnxq.policies import POLICIES, Policy
from onnxq.quantizers.callables import callable_quantizer
from onnxq.quantizers.command import command_quantizer
from onnxq.quantizers.own import DEFAULT, OnnxqQuantizer
from onnxq.quantizers.peers import PEERS, find_peer
from onnxq.quantizers.quantizer import DEFAULT_SETTINGS, Quantizer, Settings

GROUP = "onnxq.quantizers"
"""Entry point group for quantizers of other packages: a class, or a function without parameters, that gives one."""

_FORMS = ("python:MODULE:FUNCTION", "command:PROGRAM {input} {output}")
_NAMED = re.compile(r"(?P<name>\w[\w.+-]*)=(?P<rest>(?:python|command):.*)", re.DOTALL)


def resolve(spec: str, settings: Settings = DEFAULT_SETTINGS) -> Quantizer:
    """Find the quantizer that a spec names.

    Args:
        spec: As given to `--onnxq-quantizer`.
        settings: Which Python has it, and how long it may take.

    Returns:
        Its adapter.

    Raises:
        UsageError: There is no such quantizer, it isn't installed, or doesn't say what it is; the message says what to
            do, and lists what there is.
    """
    named = _NAMED.fullmatch(spec)
    name, rest = (named["name"], named["rest"]) if named else (None, spec)
    rest, policy = _split_policy(rest)
    kind, colon, argument = rest.partition(":")
    if kind == "command" and colon:
        return command_quantizer(argument, settings, policy, name)
    if kind == "python" and colon:
        return _checked(spec, callable_quantizer(argument, settings, policy, name))
    if kind == DEFAULT and (not colon or argument in POLICIES):
        own = next((known for known in POLICIES if known == argument), policy)
        if policy not in (None, own):
            raise UsageError(f'quantizer "{spec}" names two policies')
        return OnnxqQuantizer(own or POLICIES[0])
    if rest in PEERS:
        return find_peer(rest, settings, policy)
    registered = {point.name: point for point in entry_points(group=GROUP)}
    if rest in registered:
        if policy is not None:
            raise UsageError(f'quantizer "{spec}": "{rest}" declares its policy itself, leave @{policy} out')
        return _checked(spec, _load(spec, registered[rest]))
    raise UsageError(_unknown(spec, rest, registered))


def _split_policy(text: str) -> tuple[str, Policy | None]:
    """Take "@policy" off the end; anything else behind an @ belongs to the rest."""
    for policy in POLICIES:
        if text.endswith(f"@{policy}"):
            return text.removesuffix(f"@{policy}"), policy
    return text, None


def _load(spec: str, point: EntryPoint) -> Any:
    owner = point.dist.name if point.dist else "a package without metadata"
    try:
        return point.load()()
    except Exception as error:  # the code of others
        raise UsageError(
            f'quantizer "{spec}": {point.value}, registered by {owner}, fails: {type(error).__name__}: {error}'
        ) from error


def _checked(spec: str, quantizer: Any) -> Quantizer:
    """Whether foreign code says what it is in the way that the harness needs it."""
    from packaging.version import InvalidVersion, Version

    for attribute in ("name", "version", "policy"):
        if not isinstance(getattr(quantizer, attribute, None), str):
            raise UsageError(f'quantizer "{spec}": {type(quantizer).__name__}.{attribute} should be a string')
    if not callable(getattr(quantizer, "quantize", None)):
        raise UsageError(f'quantizer "{spec}": {type(quantizer).__name__} has no method quantize')
    if quantizer.policy not in POLICIES:
        raise UsageError(f'quantizer "{spec}": its policy is "{quantizer.policy}"; possible: {", ".join(POLICIES)}')
    try:
        Version(quantizer.version)
    except InvalidVersion:
        raise UsageError(
            f'quantizer "{spec}": its version "{quantizer.version}" isn\'t one as PEP 440 writes it'
        ) from None
    return cast(Quantizer, quantizer)


def _unknown(spec: str, name: str, registered: Mapping[str, EntryPoint]) -> str:
    body, at, policy = name.rpartition(":" if name.startswith(f"{DEFAULT}:") else "@")
    if at and body:
        near = get_close_matches(policy, POLICIES, n=1)
        hint = f'; did you mean "{near[0]}"?' if near else ""
        return f'quantizer "{spec}": there is no policy "{policy}"{hint} (there are: {", ".join(POLICIES)})'
    names = [DEFAULT, *PEERS, *sorted(registered)]
    near = get_close_matches(name, names, n=2, cutoff=0.5)
    hint = "; did you mean " + " or ".join(f'"{n}"' for n in near) + "?" if near else ""
    return f'quantizer "{spec}": there is none of this name; available: {", ".join((*names, *_FORMS))}{hint}'
