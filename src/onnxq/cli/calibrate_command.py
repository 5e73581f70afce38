"""`onnxq calibrate` and `onnxq ranges merge`: ranges as files."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path

from onnxq.calibrating import calibrate, load_ranges, save_ranges
from onnxq.calibration import Statistics, merge_statistics, parse_shapes
from onnxq.cli.arguments import model_path
from onnxq.cli.display import count, show
from onnxq.cli.progress import showing_progress
from onnxq.errors import UsageError
from onnxq.model_io import check_writable, model_files
from onnxq.printable import one_line


def calibrate_command(options: Namespace) -> int:
    """`onnxq calibrate`: write the file, then say what it holds."""
    model = model_path(options)
    output = Path(options.output or model.with_name(f"{model.name.removesuffix('.onnx')}.ranges.json"))
    inputs = [*model_files(model), *([options.calibration_data] if options.calibration_data else [])]
    check_writable(output, inputs=inputs)
    if options.calibration_data is None:
        print("onnxq: warning: no calibration data: one random sample, fit for tests only", file=sys.stderr)
    with showing_progress(quiet=options.quiet) as progress:
        statistics = calibrate(
            model,
            options.calibration_data,
            method=options.calibration_method,
            policy=options.policy,
            percentile=options.percentile,
            calibration_shapes=None if options.calibration_shapes is None else parse_shapes(options.calibration_shapes),
            op_types_to_quantize=options.op_types_to_quantize,
            op_types_to_exclude=options.op_types_to_exclude,
            nodes_to_quantize=options.nodes_to_quantize,
            nodes_to_exclude=options.nodes_to_exclude,
            quantize_outputs=options.quantize_outputs,
            memory_limit=options.memory_limit,
            seed=options.seed,
            progress=progress,
        )
        save_ranges(statistics, output, inputs=inputs)
    for name, seen in statistics.items():
        if seen is None:
            print(f'onnxq: warning: tensor "{one_line(name)}" was empty in every sample', file=sys.stderr)
    if not options.quiet:
        show(_summary(statistics, output))
    return 0


def merge_command(options: Namespace) -> int:
    """`onnxq ranges merge`."""
    check_writable(options.output, inputs=options.files)
    parts = []
    for path in options.files:
        part = load_ranges(path)
        if not isinstance(part, Statistics):
            raise UsageError(
                f"{path}: a calibration cache holds no statistics to merge: give files of `onnxq calibrate`"
            )
        parts.append(part)
    whole = merge_statistics(parts)
    save_ranges(whole, options.output, inputs=options.files)
    if not options.quiet:
        show(_summary(whole, Path(options.output)))
    return 0


def _summary(statistics: Statistics, output: Path) -> str:
    samples = count(statistics.samples, "sample")
    return f"wrote {output}\n{count(len(statistics), 'tensor')} from {samples}, {statistics.calibrator.method}"
