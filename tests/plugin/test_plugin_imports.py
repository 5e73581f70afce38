from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("onnx", "onnxruntime", "onnx_graphsurgeon", "hypothesis", "numpy", "msgspec", "rich")

HELP = f"""
import sys, pytest
status = pytest.main(["--help"])
print("imported:", [name for name in {HEAVY} if name in sys.modules], "status:", int(status))
"""


@pytest.mark.parametrize(
    "args",
    # hypothesis' own plugin imports hypothesis as soon as it collects
    [["--help"], ["--version"], ["--collect-only", "-p", "no:hypothesispytest"]],
    ids=lambda args: args[0],
)
def test_pytest_starts_without_heavy_imports(pytester: pytest.Pytester, args: list[str]) -> None:
    script = HELP.replace('["--help"]', repr(args))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=pytester.path)
    assert "imported: [] status:" in done.stdout


def test_help_describes_the_options(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest("--help", "--onnxq-corpus", "nowhere")
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["ONNX quantizers:", "*--onnxq-corpus*", "*--onnxq-quantizer*", "*onnxq_corpus*"])
    pytester.runpytest("--markers").stdout.fnmatch_lines(["@pytest.mark.onnxq_cases(*"])


def test_the_assertion_helpers_are_rewritten(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        def test_it():
            import onnxq.testing
            print(type(onnxq.testing.__loader__).__name__)
        """
    )
    result = pytester.runpytest_subprocess("-rP")
    result.stdout.fnmatch_lines(["AssertionRewritingHook"])
