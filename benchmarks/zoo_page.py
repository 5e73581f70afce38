"""docs/compatibility_zoo.md from the results of zoo.py."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from markdown_text import escaped, row, table_head
from zoo_measure import TOOLS, Add, Result, verdicts_of

EXPORTER_NAMES = {
    "trace": "the tracing exporter (`dynamo=False`, opset 17)",
    "dynamo": "the newer exporter (`dynamo=True`)",
}


def page(results: Sequence[Result], promised: Mapping[str, str]) -> Iterator[str]:
    """The lines of the page.

    Args:
        results: What came of each file.
        promised: Architecture -> what onnxq has to quantize of each of its residual Adds: "skip" or "none".
    """
    versions = {name: version for r in results for name, version in r.versions.items()}
    tools = [tool for tool in TOOLS if any(tool in r.seconds for r in results)]
    names = " and ".join(f"{tool} {versions[tool]}" for tool in tools)
    count = len({r.model for r in results})
    yield "# Architectures of timm\n"
    yield f"""\
What {names} do with the residual Adds of {count} architectures,
in the files that torch exports: timm {versions["timm"]}, torch {versions["torch"]}, random weights, inputs as small as
each architecture takes, calibration by "max" on the same 4 samples. This page is written by

    python benchmarks/zoo.py --models-dir FOLDER --python PYTHON_WITH_TIMM --modelopt-python PYTHON_WITH_MODELOPT

and benchmarks/README.md tells how to make the two environments.

**Which operand is the skip** is read off the running PyTorch model, and not by any of onnxq's code. Where a module adds
two tensors of one shape, the skip is the one that it carries past its branch: what the module was given, what it last
added to that, or what comes from a child that the authors call `downsample`, `shortcut` or `skip`. If neither or both
operands are so, such as where HRNet fuses its streams, the skip isn't known, and the Add is only compared. In the file
an Add is found again by the values of its operands.
"""
    yield from promises(results, promised, tools)
    for exporter in dict.fromkeys(r.exporter for r in results):
        yield from overview([r for r in results if r.exporter == exporter], exporter, tools)
    yield from differences(results, tools)
    yield from troubles(results)


def promises(results: Sequence[Result], promised: Mapping[str, str], tools: Sequence[str]) -> Iterator[str]:
    yield "## What has to hold\n"
    for verdict, says in (("skip", "exactly the skip is quantized"), ("none", "both inputs stay float")):
        chosen = [r for r in results if promised.get(r.model) == verdict]
        if not chosen:
            continue
        yield f"Of each residual Add of these {says}. Such Adds / all whose skip is known:\n"
        yield from table_head(["architecture", "exporter", *tools])
        for result in chosen:
            yield row([result.model, result.exporter, *(share([result], tool, verdict) for tool in tools)])
        for exporter in dict.fromkeys(r.exporter for r in chosen):
            of_exporter = [r for r in chosen if r.exporter == exporter]
            yield row(["**all**", exporter, *(share(of_exporter, tool, verdict) for tool in tools)])
        yield ""


def share(results: Iterable[Result], tool: str, verdict: str) -> str:
    adds = [add for result in results for add in result.known]
    return f"{sum(tool in add.quantized and add.verdict(tool) == verdict for add in adds)} / {len(adds)}"


def overview(results: Sequence[Result], exporter: str, tools: Sequence[str]) -> Iterator[str]:
    yield f"## Exported by {EXPORTER_NAMES[exporter]}\n"
    yield """\
Adds: of two computed tensors of one shape. Known: those whose skip is known, and what each tool quantizes of them.
Alike: Adds of which both tools quantize the same inputs. Violations: of `onnxq check` in onnxq's result. SQNR of the
output on a fifth sample, in dB; with random weights it says little but within one row. Seconds: ModelOpt's with its own
process.
"""
    verdicts = [f"{tool}: of known" for tool in tools]
    numbers = [f"{tool}: {what}" for what in ("SQNR", "seconds") for tool in tools]
    yield from table_head(
        ["architecture", "input", "nodes", "Adds", "known", *verdicts, "alike", "violations", *numbers]
    )
    for r in results:
        if "export" in r.errors:
            yield row([r.model, "no export", *[""] * (len(verdicts) + len(numbers) + 5)])
            continue
        yield row(
            [
                r.model,
                "x".join(map(str, r.input)),
                r.nodes,
                len(r.adds),
                len(r.known),
                *(verdicts_of(r.known, tool) for tool in tools),
                alike(r.adds, tools),
                len(r.violations) if "onnxq" in r.sqnr else "-",
                *(f"{r.sqnr[tool]:.1f}" if tool in r.sqnr else "-" for tool in tools),
                *(f"{r.seconds[tool]:.1f}" if tool in r.seconds else "-" for tool in tools),
            ]
        )
    yield ""


def alike(adds: Iterable[Add], tools: Sequence[str]) -> str:
    both = [add for add in adds if all(tool in add.quantized for tool in tools)]
    same = sum(len({tuple(add.quantized[tool]) for tool in tools}) == 1 for add in both)
    return f"{same} / {len(both)}" if both and len(tools) > 1 else "-"


def differences(results: Sequence[Result], tools: Sequence[str]) -> Iterator[str]:
    yield "## Adds of which onnxq doesn't quantize the skip, or the tools don't agree\n"
    yield """\
By the class of the module that adds. "one": the skip isn't known, and one input is quantized. The rules are those of
[](placement.md). R4: no input comes from a convolution whose kernel could add the other one; that is so where a branch
ends in a MatMul, as in transformers, or in a gate of pooled data, as in squeeze-and-excitation. R5 with the branch
quantized: only the shortcut has such a convolution, so that one adds the branch. R9: the convolution stays float.
"""
    counts: Counter[tuple[str, ...]] = Counter()
    for result in results:
        for add in result.adds:
            verdicts = [add.verdict(tool) if tool in add.quantized else "-" for tool in tools]
            differ = len({tuple(found) for found in add.quantized.values()}) > 1
            if differ or (add.skip is not None and verdicts[0] != "skip"):
                block = add.module.partition("(")[2].rstrip(")") or "not known"
                counts[(result.model, result.exporter, block, verdicts[0], add.rule, *verdicts[1:])] += 1
    yield from table_head(["architecture", "exporter", "module", "onnxq", "rule", *tools[1:], "Adds"])
    for key, count in counts.items():
        yield row([*key, count])
    yield ""


def troubles(results: Sequence[Result]) -> Iterator[str]:
    lines = [
        f"- {r.model}, {r.exporter}: {escaped(text)}"
        for r in results
        for text in (
            *(f"{what} failed: {why}" for what, why in r.errors.items()),
            *(f"violation {violation}" for violation in r.violations),
            *(f"the file has no Add with the operands of that in {where}" for where in r.missing),
        )
    ]
    if lines:
        yield "## What failed\n"
        yield from lines
        yield ""
