"""`onnxq convert`: half precision without quantization."""

from __future__ import annotations

from argparse import Namespace
from collections import Counter
from pathlib import Path

from onnxq.cli.arguments import model_path
from onnxq.cli.display import count, show, written
from onnxq.convert import Lowered, convert


def convert_command(options: Namespace) -> int:
    """`onnxq convert`: write the converted model, then say what stayed float32."""
    model = model_path(options)
    stem = model.name.removesuffix(".onnx")
    output = Path(options.output) if options.output else model.with_name(f"{stem}.{options.precision}.onnx")
    lowered = convert(
        model,
        keep_io_types=options.keep_io_types is not False,
        low_precision_type=options.precision,
        op_types_to_exclude=options.op_types_to_exclude,
        nodes_to_exclude=options.nodes_to_exclude,
        output_path=output,
    )
    if not options.quiet:
        show(kept_text(lowered, output))
    return 0


def kept_text(lowered: Lowered, output: Path) -> str:
    """What a conversion made of a model, in a few lines."""
    lines = [written(output)]
    reasons = Counter(kept.why for kept in lowered.kept)
    lines += [f"float32: {count(number, 'node')}: {why.value}" for why, number in reasons.items()]
    return "\n".join(lines)
