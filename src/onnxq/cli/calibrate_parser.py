"""The grammar of `onnxq calibrate` and `onnxq ranges`, and of the options that say how to calibrate."""

from __future__ import annotations

import argparse
import math
import re
from argparse import ArgumentParser

from onnxq.cli.arguments import Commands, Parser, add_command, add_model, add_selection, add_target, whole_number

_UNITS = {"": 1, "B": 1} | {
    prefix + unit: base**power
    for power, prefix in enumerate("KMGT", 1)
    for unit, base in (("iB", 1024), ("B", 1000), ("", 1024))
}


def add_calibrate(subparsers: Commands) -> None:
    """Add `onnxq calibrate` to the parser."""
    parser = add_command(
        subparsers,
        "calibrate",
        "calibrate_command:calibrate_command",
        "find the ranges of activations, for `onnxq quantize --ranges`",
        "Only the tensors that would be quantized are looked at, so give both commands the same policy and selection.",
    )
    add_model(parser)
    parser.add_argument(
        "-o",
        "--output",
        "--output-path",
        metavar="FILE",
        help="the file to write (default: MODEL.ranges.json); a TensorRT calibration cache if it ends in .cache",
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress, no summary; errors and warnings only")
    add_calibration(parser, "--data", "--calibration-data", "--calibration-data-path")
    add_target(parser, activation_type=False)
    add_selection(parser)


def add_calibration(parser: ArgumentParser, *data: str) -> argparse._ArgumentGroup:
    """Options that say what to calibrate with, and how.

    Args:
        parser: What they are added to.
        data: Names of the option for the data; the destination is `calibration_data`.

    Returns:
        Their group, for more of them.
    """
    group = parser.add_argument_group("calibration")
    group.add_argument(
        *data,
        dest="calibration_data",
        metavar="FILE",
        help=".npz with an array for each input, or .npy for the only one; samples along axis 0 (default: one random "
        "sample, fit for tests only)",
    )
    group.add_argument(
        "--calibration-method",
        metavar="METHOD",
        help="entropy, max, percentile or mse (default: by policy)",
    )
    group.add_argument(
        "--percentile",
        type=_number,
        default=99.99,
        metavar="P",
        help="for percentile: how many of the values other than zero aren't clipped (default: 99.99)",
    )
    group.add_argument(
        "--calibration-shapes", metavar="SHAPES", help="settle dims that the model leaves open: x:1x3x224x224,y:1x10"
    )
    group.add_argument(
        "--memory-limit",
        type=memory_size,
        metavar="SIZE",
        help="run the model in segments whose activations take no more, for instance 512MiB",
    )
    group.add_argument("--seed", type=whole_number, default=0, help="of the random sample (default: 0)")
    return group


def add_ranges(subparsers: Commands) -> None:
    """Add `onnxq ranges` to the parser."""
    text = "merge files of ranges that `onnxq calibrate` wrote"
    parser = subparsers.add_parser("ranges", help=text, description=f"{text[0].upper()}{text[1:]}.")
    inner = parser.add_subparsers(title="commands", metavar="COMMAND", required=True, parser_class=Parser)
    merge = add_command(
        inner,
        "merge",
        "calibrate_command:merge_command",
        "merge files of ranges, from parts of one data set",
        "The result is what one calibration on all of the data gives.",
    )
    merge.add_argument("files", nargs="+", metavar="FILE", help="written by `onnxq calibrate`, for the same model")
    merge.add_argument(
        "-o", "--output", required=True, metavar="FILE", help="the file to write; a TensorRT cache if it ends in .cache"
    )
    merge.add_argument("-q", "--quiet", action="store_true", help="no summary; errors only")


def memory_size(text: str) -> int:
    """A number of bytes, as the type of an argument: 512MiB, 2G, 100000."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-zA-Z]*)", text.strip(), re.ASCII)
    unit = {name.lower(): factor for name, factor in _UNITS.items()}.get(match[2].lower()) if match else None
    if match is None or unit is None or float(match[1]) * unit < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no size like 512MiB or 2GiB")
    return int(float(match[1]) * unit)


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if math.isnan(value):
        raise argparse.ArgumentTypeError(f"{text!r} is no number")
    return value
