"""The grammar of `onnxq reduce`."""

from __future__ import annotations

from onnxq.cli.arguments import Commands, add_command, add_model, add_peer_options, seconds, whole_number

DEFAULT_SAMPLES = 8


def add_reduce(subparsers: Commands) -> None:
    """Add `onnxq reduce` to the parser."""
    parser = add_command(
        subparsers,
        "reduce",
        "reduce_command:reduce_command",
        "find a smallest model that still violates a check, or on which a program still fails",
        "MODEL is an ONNX file, or the case.toml of a corpus. Every candidate is valid and runs before it is asked "
        "about. Beside the model its samples are written, as .npz. Ctrl-C ends the search with the best so far.",
        epilog=_checks,
    )
    add_model(parser)
    parser.add_argument("-o", "--output", metavar="FILE", help="the model to write (default: MODEL.reduced.onnx)")
    parser.add_argument("--time", type=seconds, metavar="SECONDS", help="end the search then, with the best so far")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress, no summary; errors only")
    fault = parser.add_argument_group("the fault", "Either --check or --command.")
    fault.add_argument("--check", metavar="NAME", help="a check that the quantizer's result violates")
    fault.add_argument("--quantizer", metavar="SPEC", help="whose result is checked (default: onnxq)")
    fault.add_argument(
        "--command",
        metavar="LINE",
        help="a program that doesn't end with exit status 0 on a model with the fault: `prog {input}`; {calibration} "
        "stands for the samples, {output} for a file that it may write. No shell is involved; see --time-limit too",
    )
    fault.add_argument("--exit-status", type=whole_number, metavar="N", help="with which it ends then (default: any)")
    add_peer_options(fault)
    data = parser.add_argument_group("samples")
    data.add_argument(
        "--calibration-data",
        "--data",
        metavar="FILE",
        help=".npz with an array for each input, or .npy for the only one; samples along axis 0 (default: one random "
        "sample)",
    )
    data.add_argument(
        "--samples",
        type=whole_number,
        default=DEFAULT_SAMPLES,
        metavar="N",
        help=f"how many of them are kept, the first ones (default: {DEFAULT_SAMPLES})",
    )
    data.add_argument(
        "--calibration-shapes", metavar="SHAPES", help="settle dims that the model leaves open: x:1x3x224x224,y:1x10"
    )
    data.add_argument("--seed", type=whole_number, default=0, help="of the random sample (default: 0)")


def _checks() -> str:
    from onnxq.reduce import REDUCIBLE

    return f"Checks: {', '.join(REDUCIBLE)}."
