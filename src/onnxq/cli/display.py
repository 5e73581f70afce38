"""What the commands print, as text: columns are aligned, and no line is cut or broken to fit a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from onnxq.errors import InvalidModelError
from onnxq.invariants import Violation
from onnxq.model_io import model_files
from onnxq.pipeline import QuantizationResult
from onnxq.placement.ops import LINEAR
from onnxq.printable import one_line, printable

MOST_CHANGES = 10
"""How many corrected declarations the summary of a quantization lists."""


def show(text: str) -> None:
    """Print text that may hold names from models: what a terminal would obey is escaped."""
    print(printable(text))


def summary_text(result: QuantizationResult, output: Path) -> str:
    """What a quantization made of a model, in a few lines."""
    placement = result.placement
    op_types = {edge.node: label.op_type for edge, label in placement.labels.items()}
    total, quantized = Counter(op_types.values()), Counter(op_types[n] for n in {e.node for e in placement.quantized})
    parts = [
        f"{quantized[op_type]} of {total[op_type]} {op_type}"
        if op_type in LINEAR
        else f"{quantized[op_type]} {op_type}"
        for op_type in sorted(total, key=lambda op_type: (-quantized[op_type], op_type))
        if quantized[op_type] or op_type in LINEAR
    ]
    residual = sum(r.is_residual for r in placement.residuals)
    found = f"{count(residual, 'residual Add')}, {count(len(result.ranges), 'calibrated tensor')}"
    lines = [
        written(output),
        f"quantized: {', '.join(parts) or 'nothing'} ({found})",
    ]
    for name, means in result.integers.items():
        scale, zero_point = float(means.scale.reshape(())), int(means.zero_point.reshape(()))
        dtype = means.zero_point.dtype
        lines.append(f'integers: "{one_line(name)}" is {dtype}, and means (integer - {zero_point}) * {scale:.9g}')
    changes = [f"changed: {change.where}: {change.what}" for change in result.changes if change.rule != "S8"]
    lines += changes[:MOST_CHANGES]
    if len(changes) > MOST_CHANGES:
        lines.append(f"changed: and {len(changes) - MOST_CHANGES} more, `onnxq inspect` on the float model lists them")
    return "\n".join(lines)


def violations_text(violations: Sequence[Violation], *, checked: int) -> str:
    """What is violated, or that nothing is."""
    invariants = count(checked, "invariant")
    if not violations:
        return f"no violations of {invariants}"
    broken = len({violation.invariant for violation in violations})
    total = f"{count(len(violations), 'violation')}, of {broken} out of {invariants}"
    return "\n\n".join([*map(str, violations), total])


def aligned(rows: Sequence[Sequence[str]], *, indent: int = 0, right: bool = False) -> list[str]:
    """Rows of cells as lines; `right` aligns all columns but the first to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [c.rjust(w) if right and n else c.ljust(w) for n, (c, w) in enumerate(zip(row, widths, strict=True))]
        lines.append(" " * indent + "  ".join(cells).rstrip())
    return lines


def count(number: int, noun: str) -> str:
    """A number with its noun, in the plural unless it is one."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def written(output: Path) -> str:
    """The files of a model that was written, and their size."""
    files = model_files(output)
    return f"wrote {', '.join(map(str, files))} ({size(sum(file.stat().st_size for file in files))})"


def size(number: int) -> str:
    """Bytes for a person."""
    return f"{number / 1e6:.1f} MB" if number >= 100_000 else f"{number / 1e3:.1f} kB"


@contextmanager
def naming(path: str | Path) -> Iterator[None]:
    """Errors about a model tell which file it came from."""
    try:
        yield
    except InvalidModelError as error:
        raise InvalidModelError(str(error) if str(error).startswith(str(path)) else f"{path}: {error}") from None
