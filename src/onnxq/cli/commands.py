"""What `onnxq quantize` and `onnxq check` do: call the library, print the result, return the exit status."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from dataclasses import asdict
from pathlib import Path

from onnxq.calibration import parse_shapes
from onnxq.cli.arguments import model_path
from onnxq.cli.display import naming, show, summary_text, violations_text
from onnxq.cli.progress import showing_progress
from onnxq.errors import UsageError
from onnxq.invariants import INVARIANTS, check
from onnxq.model_io import load_model
from onnxq.pipeline import find_quantization, quantize
from onnxq.placement import SelectionOptions
from onnxq.printable import one_line


def quantize_command(options: Namespace) -> int:
    """`onnxq quantize`: write the quantized model, then say what became of it."""
    model = model_path(options)
    output = _default_output(model) if options.output is None else options.output
    shapes = None if options.calibration_shapes is None else parse_shapes(options.calibration_shapes)
    with showing_progress(quiet=options.quiet) as progress:
        result = quantize(
            model,
            quantize_mode=options.quantize_mode,
            calibration_data=options.calibration_data,
            calibration_method=options.calibration_method,
            percentile=options.percentile,
            calibration_shapes=shapes,
            calibration_cache_path=options.calibration_cache_path,
            ranges=options.ranges,
            memory_limit=options.memory_limit,
            high_precision_dtype=options.high_precision_dtype,
            policy=options.policy,
            activation_type=options.activation_type,
            keep_io_types=options.keep_io_types,
            direct_io_types=options.direct_io_types,
            op_types_to_exclude_fp16=options.op_types_to_exclude_fp16,
            nodes_to_exclude_fp16=options.nodes_to_exclude_fp16,
            op_types_to_quantize=options.op_types_to_quantize,
            op_types_to_exclude=options.op_types_to_exclude,
            nodes_to_quantize=options.nodes_to_quantize,
            nodes_to_exclude=options.nodes_to_exclude,
            quantize_outputs=options.quantize_outputs,
            dq_only=options.dq_only,
            on_quantized=options.on_quantized,
            output_path=output,
            seed=options.seed,
            progress=progress,
        )
    for warning in result.warnings:
        _warn(warning)
    if not options.quiet:
        show(summary_text(result, Path(output)))
    return 0


def check_command(options: Namespace) -> int:
    """`onnxq check`: all invariants on a pair of models; status 1 if one is violated."""
    float_model, quantized = load_model(options.float_model), load_model(options.quantized)
    if find_quantization(quantized) is None:
        if find_quantization(float_model) is not None:
            raise UsageError(f"{options.float_model} holds Q/DQ and {options.quantized} holds none: swap them")
        _warn(f"{options.quantized} holds no Q/DQ, so most invariants have nothing to look at")
    with naming(options.float_model):
        violations = check(
            float_model,
            quantized,
            policy=options.policy,
            selection=SelectionOptions(quantize_outputs=options.quantize_outputs),
            keep_io_types=options.keep_io_types,
            direct_io_types=options.direct_io_types,
            only=options.only,
        )
    if options.json:
        print(json.dumps([asdict(v) for v in violations], indent=1))
    else:
        show(violations_text(violations, checked=len(set(options.only or INVARIANTS))))
    return 1 if violations else 0


def _warn(message: str) -> None:
    print(f"onnxq: warning: {one_line(message)}", file=sys.stderr)


def _default_output(model: Path) -> Path:
    return model.parent / f"{model.name.removesuffix('.onnx')}.quant.onnx"
