from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import onnxq
from onnxq.errors import UsageError
from onnxq.quantizers import DEFAULT, Quantizer, Settings, resolve
from onnxq_builders import build

LINE = f"command:{sys.executable} tool.py {{input}} {{output}}"


def test_onnxq() -> None:
    quantizer: Quantizer = resolve("onnxq")
    assert (quantizer.name, quantizer.version, quantizer.policy) == (DEFAULT, onnxq.__version__, "tensorrt")
    model = build("residual.identity")
    options = {"op_types_to_quantize": ["Conv"]}
    assert quantizer.quantize(model, None, options) == onnxq.quantize(model, **options).model
    assert model == build("residual.identity")


def test_importing_and_resolving_loads_nothing_heavy() -> None:
    specs = ["onnxq", "onnxruntime", LINE, "python:json:dumps"]
    code = (
        "import sys; from onnxq.quantizers import resolve\n"
        f"for spec in {specs!r}: resolve(spec)\n"
        "print(*[m for m in ('onnx', 'onnxruntime', 'numpy', 'google', 'msgspec') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.split() == []


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("", "there is none of this name; available: onnxq, onnxruntime, modelopt"),
        ("onnx", 'did you mean "onnxq" or "onnxruntime"'),
        ("model-opt", 'did you mean "modelopt"?'),
        ("python:os.path", "write python:package.module:function"),
        ("python::join", "write python:package.module:function"),
        ("python:os:nothing", 'os has no "nothing"'),
        ("python:os:path", "a module is nothing to call"),
        ("python:no_such_module_here:f", "no_such_module_here can't be imported: ModuleNotFoundError"),
        ("python:os:getcwd@tensorflow", 'os has no "getcwd@tensorflow"'),
        ("onnxq@tensorflow", 'no policy "tensorflow"; .*there are: tensorrt, onnxruntime'),
        ("onnxq@tensorr", 'did you mean "tensorrt"'),
        ("mine=onnxq", "there is none of this name"),
        ("command:tool {input}", "{output} is missing"),
        ("command:tool {output}", "{input} is missing"),
        ("command:", "{input} is missing"),
        ("command:tool '{input} {output}", "can't be split: No closing quotation"),
        ("command:no-such-program-here {input} {output}", 'there is no program "no-such-program-here"'),
    ],
)
def test_a_wrong_spec_says_what_to_do(spec: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        resolve(spec)
    assert str(caught.value).startswith('quantizer "')
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("spec", "name", "policy"),
    [
        ("onnxq:tensorrt", "onnxq", "tensorrt"),
        ("onnxq:onnxruntime", "onnxq:onnxruntime", "onnxruntime"),
        ("onnxq@onnxruntime", "onnxq:onnxruntime", "onnxruntime"),
        ("onnxruntime", "onnxruntime", "onnxruntime"),
        ("onnxruntime@tensorrt", "onnxruntime", "tensorrt"),
        ("python:os.path:join", "os.path.join", "tensorrt"),
        ("mine=python:os.path:join@onnxruntime", "mine", "onnxruntime"),
        (LINE, Path(sys.executable).name, "tensorrt"),
        (f"my-tool={LINE}@onnxruntime", "my-tool", "onnxruntime"),
    ],
)
def test_name_and_policy(spec: str, name: str, policy: str) -> None:
    quantizer = resolve(spec)
    assert (quantizer.name, quantizer.policy) == (name, policy)


def test_an_at_sign_in_a_command_line_is_only_a_policy_at_its_end() -> None:
    quantizer = resolve(f"{LINE} --to me@example --for @tensorrt x")
    assert quantizer.arguments[-5:] == ("--to", "me@example", "--for", "@tensorrt", "x")  # type: ignore[attr-defined]


class TestRegistered:
    """Quantizers of other packages, found by the metadata of an installed distribution."""

    MODULE = """
        class Good:
            name, version, policy = "good", "1.2", "onnxruntime"
            def quantize(self, model, calibration_data, options):
                return model

        class Bad(Good):
            version = "yesterday"

        class Nameless(Good):
            name = None

        class Elsewhere(Good):
            policy = "elsewhere"

        class Idle:
            name, version, policy = "idle", "1", "tensorrt"

        def factory():
            return Good()

        def broken():
            raise KeyError("configuration")
    """

    @pytest.fixture(autouse=True)
    def _install(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        info = tmp_path / "their_tool-3.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-tool\nVersion: 3.0\n")
        names = ("Good", "Bad", "Nameless", "Elsewhere", "Idle", "factory", "broken", "missing")
        points = "".join(f"{name.lower()} = their_onnxq_tool:{name}\n" for name in names)
        (info / "entry_points.txt").write_text(f"[onnxq.quantizers]\n{points}onnxq = their_onnxq_tool:Good\n")
        lines = self.MODULE.replace("\n        ", "\n")
        (tmp_path / "their_onnxq_tool.py").write_text(lines)
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.delitem(sys.modules, "their_onnxq_tool", raising=False)

    @pytest.mark.parametrize("spec", ["good", "factory"])
    def test_a_class_or_a_factory(self, spec: str) -> None:
        quantizer = resolve(spec)
        assert (quantizer.name, quantizer.version, quantizer.policy) == ("good", "1.2", "onnxruntime")

    def test_ours_can_t_be_replaced(self) -> None:
        assert resolve("onnxq").name == "onnxq"

    @pytest.mark.parametrize(
        ("spec", "message"),
        [
            ("bad", 'version "yesterday" isn\'t one as PEP 440 writes it'),
            ("nameless", "Nameless.name should be a string"),
            ("elsewhere", 'its policy is "elsewhere"; possible: tensorrt, onnxruntime'),
            ("idle", "Idle has no method quantize"),
            ("broken", "their_onnxq_tool:broken, registered by their-tool, fails: KeyError: 'configuration'"),
            ("missing", "registered by their-tool, fails: AttributeError"),
            ("good@tensorrt", "declares its policy itself"),
            ("goood", 'available: onnxq, onnxruntime, modelopt, bad, broken.*did you mean "good"'),
        ],
    )
    def test_a_wrong_one_says_whose_it_is(self, spec: str, message: str) -> None:
        with pytest.raises(UsageError, match=message):
            resolve(spec)


class TestPeerPythons:
    def test_a_peer_that_isnt_installed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "path", [])  # nothing is installed
        with pytest.raises(UsageError) as caught:
            resolve("modelopt")
        message = str(caught.value)
        assert f"nvidia-modelopt isn't installed in {sys.executable}" in message
        assert 'pip install "nvidia-modelopt[onnx]"' in message
        assert "--onnxq-peer-python modelopt=PATH" in message

    def test_another_python_without_it(self, bare_python: str) -> None:
        with pytest.raises(UsageError, match=f"onnxruntime isn't installed in {bare_python}"):
            resolve("onnxruntime", Settings({"onnxruntime": bare_python}))

    def test_no_python(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="is no Python interpreter"):
            resolve("onnxruntime", Settings({"onnxruntime": str(tmp_path / "python")}))

    def test_something_else_than_a_python(self) -> None:
        with pytest.raises(UsageError, match=r"asked .*/false for onnxruntime,.* and it ended with exit status 1"):
            resolve("onnxruntime", Settings({"onnxruntime": "false"}))

    def test_a_link_stays_a_link(self, tmp_path: Path, bare_python: str) -> None:
        link = tmp_path / "linked"
        link.symlink_to(bare_python)
        with pytest.raises(UsageError, match=f"isn't installed in {link}"):
            resolve("onnxruntime", Settings({"onnxruntime": str(link)}))
