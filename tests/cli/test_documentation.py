"""The examples of the command line's page are what the commands print."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from onnxq.cli import main

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"
EXAMPLES = re.findall(r"```console\n\$ onnxq (.*)\n((?:.*\n)*?)```", PAGE.read_text(encoding="utf-8"))


def without_digits(text: str) -> str:
    """Scales and sizes differ in their last digits between versions of what computes them."""
    return re.sub(r"\d+\.\d+", "#", text)


def test_there_are_examples():
    assert {line.split()[0] for line, _ in EXAMPLES} == {"inspect", "explain", "diff"}


@pytest.mark.parametrize(("line", "printed"), EXAMPLES, ids=[line for line, _ in EXAMPLES])
def test_an_example(onnxq, quantized, capsys, line, printed):
    assert onnxq("quantize -q float.onnx -o less.onnx --high_precision_dtype fp32 --nodes_to_exclude conv2").status == 0
    capsys.readouterr()
    main(shlex.split(line))
    assert without_digits(capsys.readouterr().out) == without_digits(printed)
