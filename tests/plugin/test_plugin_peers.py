from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

MakeRefusal = Callable[..., Path]
MakeNetwork = Callable[..., Path]


def usage_error(result: pytest.RunResult) -> str:
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    return result.stderr.str()


@pytest.mark.parametrize("value", ["modelopt", "=python", "modelopt="])
def test_a_peer_python_needs_name_and_path(pytester: pytest.Pytester, value: str) -> None:
    assert "--onnxq-peer-python: expected NAME=PATH" in usage_error(pytester.runpytest(f"--onnxq-peer-python={value}"))


@pytest.mark.parametrize("value", ["0", "-1", "soon", "inf", "nan"])
def test_a_time_limit_is_a_number_of_seconds(pytester: pytest.Pytester, value: str) -> None:
    assert "--onnxq-time-limit: expected a number" in usage_error(pytester.runpytest(f"--onnxq-time-limit={value}"))


@pytest.mark.parametrize("ini", [False, True], ids=["option", "ini"])
def test_settings_reach_the_quantizers(
    pytester: pytest.Pytester, refusal: MakeRefusal, monkeypatch: pytest.MonkeyPatch, ini: bool
) -> None:
    import onnxq.quantizers
    from onnxq.quantizers import Settings

    refusal("corpus/a")
    seen = []
    original = onnxq.quantizers.resolve
    monkeypatch.setattr(onnxq.quantizers, "resolve", lambda spec, s: seen.append(s) or original(spec, s))
    args = ["--onnxq-peer-python", "modelopt=/one/python", "--onnxq-time-limit", "2.5"]
    if ini:
        pytester.makeini("[pytest]\nonnxq_peer_python = modelopt=/one/python\nonnxq_time_limit = 2.5")
        args = []
    pytester.runpytest("--onnxq-corpus", "corpus", *args).assert_outcomes(passed=1)
    assert seen == [Settings(peer_pythons={"modelopt": "/one/python"}, time_limit=2.5)]


def test_a_hanging_peer_fails_its_case(pytester: pytest.Pytester, network: MakeNetwork) -> None:
    network("corpus/net")
    script = pytester.makepyfile(slow="import time\nprint('going to sleep', flush=True)\ntime.sleep(60)\n")
    spec = f"slow=command:{sys.executable} {script} {{input}} {{output}}"
    args = ("--onnxq-corpus", "corpus", "--onnxq-quantizer", spec, "--onnxq-time-limit", "2", "-k", "quantizes")
    result = pytester.runpytest(*args)
    assert result.parseoutcomes()["failed"] == 1
    result.stdout.fnmatch_lines(["quantizes of slow 0:", "*PeerError: *", "*going to sleep*"])
