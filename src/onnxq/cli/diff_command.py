"""`onnxq diff`: two models or placements side by side, by tensor."""

from __future__ import annotations

import json
import sys
from argparse import Namespace

from onnxq.cli.diff_display import diff_records, print_diff
from onnxq.diff import compare, read_views


def diff_command(options: Namespace) -> int:
    """`onnxq diff`: status 1 if the two differ."""
    a, b = read_views(options.a, options.b, float_model=options.float_model)
    found = compare(a, b, scale_tolerance=options.scale_tolerance)
    if options.quiet:
        return 0 if found.is_same else 1
    if not (a.quantized or b.quantized):
        print("onnxq: warning: neither has anything quantized", file=sys.stderr)
    if options.json:
        print(json.dumps(diff_records(found, options.scale_tolerance), indent=1))
    else:
        print_diff(found, options.scale_tolerance)
    return 0 if found.is_same else 1
