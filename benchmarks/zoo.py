"""Compares onnxq with ModelOpt on architectures of timm, and writes docs/compatibility_zoo.md.

    python benchmarks/zoo.py --models-dir FOLDER --python ZOO/bin/python --modelopt-python MODELOPT/bin/python

zoo_export.py exports each architecture and writes down which operand of each Add is the skip, read off the running
PyTorch model. Here each file is quantized by both tools with the same samples, and what they do with these Adds is held
against that. An Add is found in the file by the values of its operands, so neither names nor the exporter matter.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict
from pathlib import Path

from zoo_measure import EXPORTERS, Add, Result, measure, verdicts_of
from zoo_page import page

from onnxq.quantizers.process import run_program

REPOSITORY = Path(__file__).parents[1]
PAGE = REPOSITORY / "docs" / "compatibility_zoo.md"
EXPORT = Path(__file__).with_name("zoo_export.py")

SKIPS = (
    "resnet18",
    "resnext50_32x4d",
    "mobilenetv2_100",
    "mobilenetv3_small_100",
    "efficientnet_b0",
    "convnext_atto",
    "efficientvit_b0",
)
"""Of each residual Add in these exactly the skip has to be quantized."""

FLOATS = ("vit_tiny_patch16_224",)
"""No input of any residual Add in these may be quantized."""

PROMISED = {**dict.fromkeys(SKIPS, "skip"), **dict.fromkeys(FLOATS, "none")}

OTHERS = (
    "convnextv2_atto",
    "cspdarknet53",
    "densenet121",
    "dla34",
    "dpn68",
    "edgenext_xx_small",
    "efficientformerv2_s0",
    "ese_vovnet19b_dw",
    "fastvit_t8",
    "ghostnet_100",
    "hgnetv2_b0",
    "hrnet_w18_small",
    "inception_next_atto",
    "inception_v3",
    "levit_128s",
    "maxvit_pico_rw_256",
    "mixnet_s",
    "mobilenetv4_conv_small",
    "mobileone_s0",
    "mobilevit_xxs",
    "poolformer_s12",
    "regnety_002",
    "repvgg_a0",
    "repvit_m0_9",
    "res2net50_26w_4s",
    "resnest14d",
    "resnetv2_18",
    "seresnet50",
    "shvit_s1",
    "skresnet18",
    "starnet_s050",
    "swin_tiny_patch4_window7_224",
    "tiny_vit_5m_224",
    "xception41",
)


def export(model: str, folder: Path, python: str, time_limit: float) -> str:
    """Have an architecture exported unless it is there already; says what went wrong, "" if nothing."""
    if (folder / f"{model}.json").exists():
        return ""
    ended = run_program([python, str(EXPORT), str(folder), model], time_limit=time_limit)
    return "" if ended.is_success else f"the export {ended.how}: {ended.output.rpartition(chr(10))[2]}"


def run_all(
    models: Sequence[str],
    exporters: Sequence[str],
    folder: Path,
    python: str,
    modelopt_python: str | None,
    limit: float,
) -> list[Result]:
    """Each file in a process of its own: one that breaks takes no other with it."""
    results = []
    for model in models:
        error = export(model, folder, python, limit)
        for exporter in exporters:
            if error:
                result = Result(model, exporter, errors={"export": error})
            else:
                with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
                    try:
                        result = pool.submit(measure, model, exporter, folder, modelopt_python, limit).result()
                    except BrokenProcessPool:
                        result = Result(model, exporter, errors={"onnxq": "the process that measured it died"})
            results.append(result)
            print(said(result), file=sys.stderr)
    return results


def said(result: Result) -> str:
    verdicts = "; ".join(f"{tool} {verdicts_of(result.known, tool)}" for tool in result.sqnr)
    errors = "".join(f"; {what} failed: {why}" for what, why in result.errors.items())
    return f"{result.model}, {result.exporter}: {len(result.adds)} Adds; {verdicts}{errors}"


def broken_promises(results: Iterable[Result]) -> Iterator[str]:
    """What has to hold, and doesn't. An Add whose convolution stays float (R9) has no kernel to be folded into."""
    for result in results:
        promised = PROMISED.get(result.model)
        if promised is None:
            continue
        where = f"{result.model}, {result.exporter}"
        yield from (f"{where}: {what} failed: {why}" for what, why in result.errors.items() if what != "modelopt")
        yield from (f"{where}: no Add of the file is that of {module}" for module in result.missing)
        for add in result.known:
            found = add.verdict("onnxq")
            if found != promised and not (found == "none" and add.rule == "R9"):
                yield f"{where}: of the Add in {add.module} {found} is quantized, not {promised}, by {add.rule}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--models-dir", type=Path, metavar="FOLDER", help="for the exports; what is there is used again"
    )
    parser.add_argument("--python", metavar="PATH", help="a Python that has timm, for what isn't exported yet")
    parser.add_argument("--modelopt-python", metavar="PATH", help="a Python that has ModelOpt; without it onnxq only")
    parser.add_argument("--models", nargs="+", metavar="NAME", help="these architectures of timm, not the usual ones")
    parser.add_argument("--exporters", nargs="+", choices=EXPORTERS, default=[*EXPORTERS], help="default: both")
    parser.add_argument("--time-limit", type=float, default=600.0, metavar="SECONDS", help="for one step (600)")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="write the results to this file, as JSON")
    parser.add_argument("--render", type=Path, metavar="FILE", help="run nothing, take the results from this file")
    given = parser.parse_args()
    if given.render:
        results = read(given.render)
    elif given.models_dir is None:
        parser.error("--models-dir is needed, to put the exported models there")
    else:
        models = given.models or [*PROMISED, *OTHERS]
        given.models_dir.mkdir(parents=True, exist_ok=True)
        absent = [model for model in models if not (given.models_dir / f"{model}.json").exists()]
        if absent and given.python is None:
            parser.error(f"--python is needed, to export {', '.join(absent)}")
        results = run_all(
            models, given.exporters, given.models_dir, given.python, given.modelopt_python, given.time_limit
        )
    if given.keep:
        given.keep.write_text(json.dumps([asdict(result) for result in results], indent=1), encoding="utf-8")
    PAGE.write_text("\n".join(page(results, PROMISED)), encoding="utf-8")
    broken = list(broken_promises(results))
    print("\n".join(broken), file=sys.stderr)
    return int(bool(broken))


def read(file: Path) -> list[Result]:
    entries = json.loads(file.read_text(encoding="utf-8"))
    return [Result(**{**entry, "adds": [Add(**add) for add in entry["adds"]]}) for entry in entries]


if __name__ == "__main__":
    sys.exit(main())
