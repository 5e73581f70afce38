"""Whatever a case holds, it passes or fails in the way that onnxq means: no crash, no error of a library.

Few examples, unless the profile asks for many: `pytest tests/security --hypothesis-profile nightly`.
"""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path
from random import Random

import onnx
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mutations import mutated_bytes, mutated_case, mutated_model
from onnx import ModelProto

from onnxq.corpus.case import load_case
from onnxq.corpus.checks import run_check
from onnxq.corpus.discover import builtin_corpus
from onnxq.corpus.run import run_case
from onnxq.errors import OnnxqError
from onnxq.quantizers import OnnxqQuantizer
from onnxq_builders import build

BUILT = ("residual.convtranspose_conv", "residual.silu", "weak.topk", "weak.stale_rank0_output", "weak.detection")
HEAD = 'schema = 1\ntitle = "a title"\nsource = "made up"\n[model]\nfile = "model.onnx"\n'

fuzz = settings(
    max_examples=settings().max_examples if settings().max_examples > 100 else 40,
    suppress_health_check=list(HealthCheck),
)


@fuzz
@given(st.randoms(use_true_random=False))
def test_any_case_file(random: Random) -> None:
    folder = random.choice(case_folders())
    text = (folder / "case.toml").read_text(encoding="utf-8")
    damaged = mutated_bytes(random, text.encode()) if random.randint(0, 3) == 0 else mutated_case(random, text).encode()
    others = {file.name: file.read_bytes() for file in folder.iterdir() if file.suffix in (".onnx", ".npz")}
    try_case({**others, "case.toml": damaged})


@fuzz
@given(st.randoms(use_true_random=False))
def test_any_model(random: Random) -> None:
    model = random.choice(models())
    if random.randint(0, 3) == 0:
        damaged = mutated_bytes(random, model.SerializeToString())
    else:
        damaged = mutated_model(random, model).SerializeToString()
    try_case({"case.toml": HEAD.encode(), "model.onnx": damaged})


def try_case(files: dict[str, bytes]) -> None:
    """Read, quantize and check a case. What goes wrong on purpose is fine, all else is raised."""
    with tempfile.TemporaryDirectory() as folder:
        for name, content in files.items():
            Path(folder, name).write_bytes(content)
        try:
            case = load_case(Path(folder, "case.toml"))
            run = run_case(case, OnnxqQuantizer())
            if run.error is not None and not isinstance(run.error, OnnxqError):
                raise run.error
            for check in case.checks(run.policy):
                run_check(check, run)
        except OnnxqError:
            pass


@cache
def case_folders() -> list[Path]:
    return sorted(file.parent for file in builtin_corpus().glob("*/*/case.toml"))


@cache
def models() -> list[ModelProto]:
    stored = [onnx.load(file) for folder in case_folders() for file in sorted(folder.glob("model.onnx"))]
    return [*stored, *(build(name) for name in BUILT)]
