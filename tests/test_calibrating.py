"""Calibration apart from quantization: the same result, whatever way the samples and the ranges go."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto

import onnxq
import onnxq_builders
from onnxq.calibration import Calibrator, Range
from onnxq.cli import main
from onnxq.errors import CalibrationError, UnsupportedError, UsageError
from onnxq.sharding import IN_FLIGHT

METHODS = ("entropy", "max", "percentile", "mse")


def network() -> ModelProto:
    return onnxq_builders.build("residual.projection")


def samples(number: int = 7, seed: int = 0) -> np.ndarray:
    random = np.random.default_rng(seed)
    dims = [d.dim_value or 1 for d in network().graph.input[0].type.tensor_type.shape.dim]
    return random.standard_t(3, (number * dims[0], *dims[1:])).astype(np.float32)


def same(one: ModelProto, two: ModelProto) -> bool:
    return one.SerializeToString(deterministic=True) == two.SerializeToString(deterministic=True)


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    onnx.save(network(), tmp_path / "m.onnx")
    np.save(tmp_path / "d.npy", samples())
    return tmp_path / "m.onnx", tmp_path / "d.npy"


@pytest.mark.parametrize("method", METHODS)
def test_quantizing_with_ranges_is_quantizing_with_the_data(tmp_path: Path, method: str) -> None:
    direct = onnxq.quantize(network(), calibration_data=samples(), calibration_method=method, percentile=99)
    found = onnxq.calibrate(network(), samples(), method=method, percentile=99)
    onnxq.save_ranges(found, tmp_path / "r.json")
    assert onnxq.load_ranges(tmp_path / "r.json") == found
    for ranges in (found, tmp_path / "r.json", str(tmp_path / "r.json")):
        result = onnxq.quantize(network(), ranges=ranges)
        assert same(result.model, direct.model)
        assert result.ranges == direct.ranges
        assert not result.warnings
    assert same(onnxq.quantize(network(), ranges=direct.ranges).model, direct.model)


def test_what_was_collected_for_one_method_serves_all() -> None:
    found = onnxq.calibrate(network(), samples())
    for method in METHODS:
        result = onnxq.quantize(network(), ranges=found, calibration_method=method)
        assert same(
            result.model, onnxq.quantize(network(), calibration_data=samples(), calibration_method=method).model
        )
    bounds = onnxq.calibrate(network(), samples(), method="max")
    with pytest.raises(CalibrationError, match=r'collected for method "max".*calibrate again'):
        onnxq.quantize(network(), ranges=bounds, calibration_method="entropy")


def test_by_default_it_is_entropy() -> None:
    assert onnxq.calibrate(network(), samples()).calibrator == Calibrator("entropy")
    explicit = onnxq.quantize(network(), calibration_data=samples(), calibration_method="entropy")
    assert same(onnxq.quantize(network(), calibration_data=samples()).model, explicit.model)


def test_caches_go_round(tmp_path: Path) -> None:
    direct = onnxq.quantize(network(), calibration_data=samples(), high_precision_dtype="fp32")
    onnxq.save_ranges(onnxq.calibrate(network(), samples()), tmp_path / "c.cache")
    options = {"high_precision_dtype": "fp32"}
    again = onnxq.quantize(network(), calibration_cache_path=tmp_path / "c.cache", **options)
    assert same(again.model, direct.model)
    assert same(onnxq.quantize(network(), ranges=tmp_path / "c.cache", **options).model, direct.model)


def test_a_tensor_without_a_scale_stays_float(tmp_path: Path) -> None:
    cache = tmp_path / "c.cache"
    onnxq.save_ranges(onnxq.calibrate(network(), samples()), cache)
    head, first, *rest = cache.read_text().splitlines()
    cache.write_text("\n".join([head, *rest, "stranger: 3f800000"]))
    result = onnxq.quantize(network(), calibration_cache_path=cache)
    name = first.partition(":")[0]
    assert name not in result.placement.activations
    assert result.placement.activations == [line.partition(":")[0] for line in rest]
    assert result.warnings == (
        f'{cache}: no scale for tensor "{name}", so it stays float',
        f'{cache}: the model has no tensor "stranger"',
    )
    assert onnxq.check(network(), result.model) == []


def test_sources_exclude_each_other_and_must_fit(tmp_path: Path) -> None:
    found = onnxq.calibrate(network(), samples())
    with pytest.raises(UsageError, match="ranges and calibration_data are two sources"):
        onnxq.quantize(network(), calibration_data=samples(), ranges=found)
    with pytest.raises(UsageError, match="calibration_cache_path and ranges are two sources"):
        onnxq.quantize(network(), calibration_cache_path="c.cache", ranges=found)
    with pytest.raises(CalibrationError, match=r"no range for tensor.*same selection"):
        onnxq.quantize(network(), ranges={"other": Range(0, 1)})
    fewer = onnxq.calibrate(network(), samples(), op_types_to_quantize=["Add"])
    with pytest.raises(CalibrationError, match="no range for tensor"):
        onnxq.quantize(network(), ranges=fewer)
    assert len(fewer) < len(found)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"method": "kl"}, "calibration_method='kl'"),
        ({"percentile": 0}, "percentile=0"),
        ({"shard_size": 0}, "shard_size=0"),
        ({"memory_limit": -1}, "memory_limit=-1"),
        ({"threads": 0}, "threads=0"),
    ],
)
def test_what_calibrate_refuses(options: dict, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        onnxq.calibrate(network(), samples(), **options)


# Shards


class Here(Executor):
    """Does the work at once, pickling it as another process would need it."""

    def submit(self, fn, /, *args, **kwargs) -> Future:
        fn, args = pickle.loads(pickle.dumps((fn, args)))
        future: Future = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


@pytest.mark.parametrize("size", [1, 3, 7, 100])
@pytest.mark.parametrize("form", ["path", "array", "feeds"])
def test_shards_give_what_one_run_gives(files: tuple[Path, Path], form: str, size: int) -> None:
    path, data = files
    name = network().graph.input[0].name
    batch = len(samples()) // 7
    model, given = {
        "path": (path, data),
        "array": (network(), samples()),
        "feeds": (network(), ({name: part} for part in np.split(samples(), len(samples()) // batch))),
    }[form]
    told: list[str] = []
    found = onnxq.calibrate(model, given, executor=Here(), shard_size=size, progress=told.append)
    assert found == onnxq.calibrate(path, data, threads=1)
    assert found.samples == 7
    assert told[-1] == "calibrated samples: 7"


def test_other_samples_are_not_all_in_memory() -> None:
    taken = 0
    name = network().graph.input[0].name
    part = samples(1)

    class Slow(Here):
        def submit(self, fn, /, *args, **kwargs) -> Future:
            assert taken <= finished + IN_FLIGHT + 1
            return super().submit(fn, *args, **kwargs)

    finished = 0

    def count(message: str) -> None:
        nonlocal finished
        if message.startswith("calibrated"):
            finished = int(message.split()[-1])

    def feeds() -> Iterator[dict[str, np.ndarray]]:
        nonlocal taken
        for _ in range(3 * IN_FLIGHT):
            taken += 1
            yield {name: part}

    found = onnxq.calibrate(network(), feeds(), executor=Slow(), shard_size=1, progress=count, method="max")
    assert found.samples == 3 * IN_FLIGHT


def test_a_broken_sample_is_named_by_its_number_in_the_whole(files: tuple[Path, Path]) -> None:
    path, data = files
    values = samples()
    batch = len(values) // 7
    values[5 * batch, 0, 0, 0] = np.nan
    np.save(data, values)
    for given in (data, values):
        with pytest.raises(CalibrationError, match="sample 5 holds NaN"):
            onnxq.calibrate(path, given, executor=Here(), shard_size=2)


def test_limits_and_executors_do_not_go_together() -> None:
    with pytest.raises(UnsupportedError, match="memory_limit and executor"):
        onnxq.calibrate(network(), samples(), executor=Here(), memory_limit=10**9)


def test_processes(files: tuple[Path, Path]) -> None:
    path, data = files
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as executor:
        whole = onnxq.calibrate(path, data, threads=1)
        assert onnxq.calibrate(path, data, executor=executor, shard_size=2) == whole
        assert onnxq.calibrate(network(), samples(), executor=executor, shard_size=4) == whole
        with pytest.raises(CalibrationError, match="no such file"):
            onnxq.calibrate(path, "gone.npy", executor=executor)


def die(*_: object) -> None:
    os._exit(3)


def test_a_process_that_dies(files: tuple[Path, Path]) -> None:
    class Deadly(ProcessPoolExecutor):
        def submit(self, fn, /, *args, **kwargs) -> Future:
            return super().submit(die)

    with (
        Deadly(1, mp_context=multiprocessing.get_context("spawn")) as executor,
        pytest.raises(CalibrationError, match="a process that calibrated a shard died"),
    ):
        onnxq.calibrate(*files, executor=executor)


def test_a_dask_cluster(files: tuple[Path, Path]) -> None:
    distributed = pytest.importorskip("distributed", reason="the extra `distributed` isn't installed")
    path, data = files
    with (
        distributed.LocalCluster(2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
        client.get_executor() as executor,
    ):
        whole = onnxq.calibrate(path, data, threads=1)
        assert onnxq.calibrate(path, data, executor=executor, shard_size=2) == whole
        assert onnxq.calibrate(network(), samples(), executor=executor, shard_size=3) == whole


# The command line


def test_parts_merge_on_the_command_line(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(network(), "m.onnx")
    values = samples(6)
    for name, part in {"all": values, "a": values[: len(values) // 3], "b": values[len(values) // 3 :]}.items():
        np.save(f"{name}.npy", part)
    for name in ("all", "a", "b"):
        assert main(["calibrate", "m.onnx", "--data", f"{name}.npy", "-o", f"{name}.json", "-q"]) == 0
    assert main(["ranges", "merge", "b.json", "a.json", "-o", "c.json"]) == 0
    assert Path("c.json").read_bytes() == Path("all.json").read_bytes()
    assert "wrote c.json" in capsys.readouterr().out
    assert main(["ranges", "merge", "c.json", "-o", "c.cache", "-q"]) == 0
    for words in (["--calibration_data", "all.npy"], ["--ranges", "c.json"], ["--calibration_cache_path=c.cache"]):
        assert main(["quantize", "m.onnx", *words, "-q", "-o", f"{words[0].lstrip('-').partition('=')[0]}.onnx"]) == 0
    written = Path("calibration_data.onnx").read_bytes()
    assert Path("ranges.onnx").read_bytes() == written
    assert Path("calibration_cache_path.onnx").read_bytes() == written
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("calibrate --data d.npy", "name one model"),
        ("calibrate m.onnx --data d.npy -o d.npy", "never overwritten"),
        ("calibrate m.onnx --data d.npy -o m.onnx", "never overwritten"),
        ("calibrate m.onnx --data gone.npy", "gone.npy: no such file"),
        ("calibrate m.onnx --data d.npy --memory-limit 3QB", "no size like 512MiB"),
        ("calibrate m.onnx --data d.npy --memory-limit 1KiB", "alone needs"),
        ("calibrate m.onnx --data d.npy --percentile x", "'x' is no number"),
        ("calibrate m.onnx --data d.npy --calibration-method maxx", "did you mean 'max'"),
        ("ranges", "COMMAND"),
        ("ranges merge", "FILE"),
        ("ranges merge d.npy -o x.json", "no file of ranges"),
        ("ranges merge gone.json -o x.json", "gone.json: can't be read"),
        ("quantize m.onnx --ranges d.npy", "no file of ranges"),
        ("quantize m.onnx --ranges x.json --calibration_cache_path y.cache", "two sources"),
    ],
)
def test_mistakes_are_named(files: tuple[Path, Path], monkeypatch, capsys, line: str, says: str) -> None:
    monkeypatch.chdir(files[0].parent)
    assert main(line.split()) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("onnxq: error: ")
    assert says in error
    assert sorted(p.name for p in Path().iterdir()) == ["d.npy", "m.onnx"]


def test_a_memory_limit_on_the_command_line(files: tuple[Path, Path], monkeypatch, capsys) -> None:
    monkeypatch.chdir(files[0].parent)
    for words in ([], ["--memory_limit", "1.5MiB"]):
        assert main(["calibrate", "m.onnx", "--data", "d.npy", "-q", "-o", f"{len(words)}.json", *words]) == 0
    assert Path("0.json").read_bytes() == Path("2.json").read_bytes()
    assert main(["calibrate", "m.onnx", "-q"]) == 0
    assert "one random sample, fit for tests only" in capsys.readouterr().err
    assert Path("m.ranges.json").exists()


@pytest.mark.skipif(os.name == "nt", reason="signals are of POSIX")
@pytest.mark.parametrize("command", ["calibrate", "quantize"])
def test_an_interrupt_leaves_nothing_behind(tmp_path: Path, command: str) -> None:
    work, temporary = tmp_path / "work", tmp_path / "tmp"
    work.mkdir()
    temporary.mkdir()
    onnx.save(network(), work / "m.onnx")
    np.save(work / "d.npy", np.concatenate([samples(50)] * 400))
    words = [sys.executable, "-m", "onnxq", command, "m.onnx", "--calibration-data", "d.npy"]
    environment = {**os.environ, "TMPDIR": str(temporary)}
    # A shell has its background jobs ignore SIGINT, and whatever is started by them does too.
    heeds = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    child = subprocess.Popen(words, cwd=work, env=environment, stderr=subprocess.PIPE, text=True, preexec_fn=heeds)
    assert child.stderr is not None
    with child:
        for line in child.stderr:
            if "calibrated samples" in line:
                child.send_signal(signal.SIGINT)
                break
        rest = child.stderr.read()
    assert child.returncode == 130
    assert rest.splitlines()[-1] == "onnxq: interrupted"
    assert "Traceback" not in rest
    assert sorted(p.name for p in work.iterdir()) == ["d.npy", "m.onnx"]
    assert {p.name for p in temporary.iterdir()} <= {".ses"}  # onnxruntime writes that when it is imported
