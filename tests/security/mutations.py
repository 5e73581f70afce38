"""Damages cases: text and bytes at random places, and models field by field, so that much of a model stays sound."""

from __future__ import annotations

import copy
import tomllib
from collections.abc import Iterator
from random import Random
from typing import Any

from google.protobuf.message import Message
from onnx import ModelProto

from onnxq.corpus.write import case_text

NUMBERS = (0, 1, -1, 2, 3, 7, 8, 255, 2**16, 2**31 - 1, -(2**31), 2**40, 2**63 - 1, -(2**63))
FLOATS = (0.0, -1.0, 1e-40, 3e38, float("inf"), float("nan"))
TEXTS = (
    "",
    "x",
    "y",
    "w",
    "a/../b",
    "../up",
    "/etc/passwd",
    "a\x00b",
    "\x1b[31mred",
    "ö\u202e",
    "Conv",
    "Loop",
    "n" * 5000,
)
VALUES = (*NUMBERS, *FLOATS[:4], *TEXTS, True, False, [], {}, [[]], [1, "a"], {"add": ["x"]}, {"y": [1]}, [{"a": 1}])


def mutated_bytes(random: Random, content: bytes) -> bytes:
    """Some bytes changed, dropped, repeated or put elsewhere."""
    result = bytearray(content)
    for _ in range(random.randint(1, 4)):
        start = random.randint(0, max(len(result) - 1, 0))
        end = min(start + random.choice((1, 1, 1, 2, 8, 64)), len(result))
        kind = random.randint(0, 4)
        if kind == 0:
            result[start:end] = bytes(random.randint(0, 255) for _ in range(end - start))
        elif kind == 1:
            del result[start:end]
        elif kind == 2:
            result[start:start] = result[start:end] * random.choice((1, 2, 50))
        elif kind == 3:
            del result[start:]
        else:
            place = random.randint(0, len(result))
            result[place:place] = result[start:end]
    return bytes(result)


def mutated_case(random: Random, text: str) -> str:
    """The text of a case in which some keys or values are others."""
    content = copy.deepcopy(tomllib.loads(text))
    for _ in range(random.randint(1, 3)):
        table, key = random.choice(list(_places(content)))
        kind = random.randint(0, 3)
        if kind == 0:
            del table[key]
        elif kind == 1:
            table[key] = random.choice(VALUES)
        elif kind == 2 and isinstance(table, dict):
            table[random.choice(TEXTS)] = table.pop(key)
        elif isinstance(table, dict):
            table[random.choice(OPTIONS)] = random.choice(VALUES)
        if not content:
            break
    return case_text(content)


OPTIONS = (
    *("builder", "file", "args", "calibration_data", "calibration_shapes", "nodes_to_exclude", "op_types_to_exclude"),
    *(
        "outputs",
        "raises",
        "runs",
        "min_sqnr_db",
        "quantized_inputs",
        "mentions",
        "policy",
        "when",
        "channels",
        "opset",
    ),
)


def mutated_model(random: Random, model: ModelProto) -> ModelProto:
    """A model in which some fields, anywhere in it, are others."""
    result = ModelProto()
    result.CopyFrom(model)
    for _ in range(random.randint(1, 4)):
        places = list(_fields(result))
        if not places:
            break
        message, field = random.choice(places)
        _change(random, message, field)
    return result


def _places(content: Any) -> Iterator[tuple[Any, Any]]:
    keys = list(content) if isinstance(content, dict) else list(range(len(content)))
    for key in keys:
        yield content, key
        if isinstance(content[key], dict | list):
            yield from _places(content[key])


def _fields(message: Message) -> Iterator[tuple[Message, Any]]:
    """Every field of every message that could be set; rare ones as often as common ones."""
    for field, value in message.ListFields():
        yield message, field
        if field.message_type is not None:
            for inner in [value] if isinstance(value, Message) else value:
                yield from _fields(inner)


def _change(random: Random, message: Message, field: Any) -> None:
    value = getattr(message, field.name)
    if isinstance(value, Message) or (field.message_type is None and isinstance(value, int | float | str | bytes)):
        if random.randint(0, 2) == 0:
            message.ClearField(field.name)
        elif not isinstance(value, Message):
            _set(random, message, field)
        else:
            _grow(random, value)
    elif not len(value) or random.randint(0, 3) == 0:
        message.ClearField(field.name)
    elif field.message_type is not None:
        position = random.randint(0, len(value) - 1)
        if random.randint(0, 1):
            del value[position]
        else:
            value.append(value[position])
    else:
        _set_item(random, value)


def _set_item(random: Random, value: Any) -> None:
    position = random.randint(0, len(value) - 1)
    kind = random.randint(0, 2)
    if kind == 0:
        del value[position]
    elif kind == 1:
        value.append(value[position])
    else:
        try:
            value[position] = _other(random, value[position])
        except (ValueError, TypeError):
            value[position] = 1


def _set(random: Random, message: Message, field: Any) -> None:
    try:
        setattr(message, field.name, _other(random, getattr(message, field.name)))
    except (ValueError, TypeError):
        message.ClearField(field.name)


def _other(random: Random, value: Any) -> Any:
    if isinstance(value, str):
        return random.choice(TEXTS)
    if isinstance(value, bytes):
        return mutated_bytes(random, value) if value else b"\x00"
    return random.choice(FLOATS) if isinstance(value, float) else random.choice(NUMBERS)


def _grow(random: Random, message: Message) -> None:
    """Set a field that isn't set."""
    names = [field.name for field in message.DESCRIPTOR.fields if field.message_type is None]
    if not names:
        return
    name = random.choice(names)
    value = getattr(message, name)
    if isinstance(value, int | float | str | bytes):
        try:
            setattr(message, name, _other(random, value))
        except (ValueError, TypeError):
            message.ClearField(name)
