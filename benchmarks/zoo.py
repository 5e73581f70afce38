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
from dataclasses import asdict, dataclass
from pathlib import Path

from zoo_measure import EXPORTERS, Add, Result, measure, verdicts_of
from zoo_page import page

from onnxq.errors import PeerError
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


@dataclass(frozen=True)
class Places:
    """Where the exports, a Python that has timm, and one that has ModelOpt are; and how long a step may take."""

    folder: Path
    python: str | None
    modelopt_python: str | None
    time_limit: float


def exporters_of(model: str, chosen: Sequence[str] | None) -> list[str]:
    return list(chosen or (EXPORTERS if model in PROMISED else ("trace",)))


def is_exported(model: str, exporters: Sequence[str], folder: Path) -> bool:
    file = folder / f"{model}.json"
    return file.exists() and set(exporters) <= set(json.loads(file.read_text(encoding="utf-8"))["exports"])


def run_all(models: Sequence[str], chosen: Sequence[str] | None, places: Places) -> Iterator[Result]:
    for model in models:
        exporters = exporters_of(model, chosen)
        error = "" if is_exported(model, exporters, places.folder) else export(model, exporters, places)
        for exporter in exporters:
            yield Result(model, exporter, errors={"export": error}) if error else run(model, exporter, places)


def export(model: str, exporters: Sequence[str], places: Places) -> str:
    """Have an architecture exported; says what went wrong, "" if nothing."""
    arguments = [str(places.python), str(EXPORT), str(places.folder), model, *exporters]
    try:
        ended = run_program(arguments, time_limit=places.time_limit)
    except PeerError as error:
        return str(error)
    return "" if ended.is_success else f"{places.python} {ended.how}: {ended.output.rpartition(chr(10))[2]}"


def run(model: str, exporter: str, places: Places) -> Result:
    """Measure one file in a process of its own: if that breaks, it takes no other with it."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        job = pool.submit(measure, model, exporter, places.folder, places.modelopt_python, places.time_limit)
        try:
            return job.result()
        except Exception as error:  # whatever it is, the other files still count
            return Result(model, exporter, errors={"measuring": f"{type(error).__name__}: {error}"})


def said(result: Result) -> str:
    verdicts = "".join(f"; {tool}: {verdicts_of(result.known, tool)}" for tool in result.sqnr)
    errors = "".join(f"; {what} failed: {why}" for what, why in result.errors.items())
    return f"{result.model}, {result.exporter}: {len(result.adds)} Adds{verdicts}{errors}"


def broken_promises(results: Iterable[Result]) -> Iterator[str]:
    """What has to hold, and doesn't."""
    for result in results:
        promised = PROMISED.get(result.model)
        if promised is None:
            continue
        where = f"{result.model}, {result.exporter}"
        yield from (f"{where}: {what} failed: {why}" for what, why in result.errors.items() if what != "modelopt")
        yield from (f"{where}: no Add of the file is that of {module}" for module in result.missing)
        for add in result.known if "onnxq" in result.sqnr else ():
            found = add.verdict("onnxq")
            if found != promised:
                yield f"{where}: of the Add in {add.module} onnxq quantizes {found}, not {promised}, by {add.rule}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--models-dir", type=Path, metavar="FOLDER", help="for the exports; what is there is used again")
    add("--python", metavar="PATH", help="a Python that has timm, for what isn't exported yet")
    add("--modelopt-python", metavar="PATH", help="a Python that has ModelOpt; without it onnxq only")
    add("--models", nargs="+", metavar="NAME", help="these architectures of timm, not the usual ones")
    add("--exporters", nargs="+", choices=EXPORTERS, help="default: both where something has to hold, else trace")
    add("--time-limit", type=float, default=600.0, metavar="SECONDS", help="for one step (600)")
    add("--keep", type=Path, metavar="FILE", help="write the results to this file, as JSON")
    add("--render", type=Path, metavar="FILE", help="run nothing, take the results from this file")
    given = parser.parse_args()
    if given.render:
        results = read(given.render)
    elif given.models_dir is None:
        parser.error("--models-dir is needed, to put the exported models there")
    else:
        models = given.models or [*PROMISED, *OTHERS]
        given.models_dir.mkdir(parents=True, exist_ok=True)
        absent = [m for m in models if not is_exported(m, exporters_of(m, given.exporters), given.models_dir)]
        if absent and given.python is None:
            parser.error(f"--python is needed, to export {', '.join(absent)}")
        places = Places(given.models_dir.resolve(), given.python, given.modelopt_python, given.time_limit)
        results = []
        for result in run_all(models, given.exporters, places):
            print(said(result), file=sys.stderr)
            results.append(result)
            if given.keep:
                given.keep.write_text(json.dumps([asdict(r) for r in results], indent=1), encoding="utf-8")
    if not any(result.nodes for result in results):
        sys.exit("no model could be exported and measured, so there is nothing to write")
    PAGE.write_text("\n".join(page(results, PROMISED)), encoding="utf-8")
    broken = list(broken_promises(results))
    print("\n".join(broken or ["what has to hold holds"]), file=sys.stderr)
    return int(bool(broken))


def read(file: Path) -> list[Result]:
    entries = json.loads(file.read_text(encoding="utf-8"))
    return [Result(**{**entry, "adds": [Add(**add) for add in entry["adds"]]}) for entry in entries]


if __name__ == "__main__":
    sys.exit(main())
