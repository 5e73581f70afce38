"""Programs as quantizers: what they get, and what becomes of those that misbehave."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto
from onnx.parser import parse_model

from onnxq.calibration import make_feeds
from onnxq.errors import CalibrationError, PeerError, UnsupportedError
from onnxq.quantizers import Quantizer
from onnxq.quantizers.process import LINE_LENGTH_LIMIT, LINE_LIMIT
from onnxq_builders import build

MakeTool = Callable[..., Quantizer]

COPY = "import shutil; shutil.copy(source, target)\n"
HEAD = '<ir_version: 8, opset_import: ["" : 17]>'
TEXT = f"{HEAD} g (float[n, 4] x, float file, int64[2] k) => (float[n, 4] z) {{z = Relu(x)}}"


@pytest.fixture(scope="module")
def model() -> ModelProto:
    return build("residual.identity")


def failure(tool: Quantizer, model: ModelProto) -> PeerError:
    with pytest.raises(PeerError) as caught:
        tool.quantize(model, None, {})
    assert "\n" not in str(caught.value)
    return caught.value


class TestWhatItGets:
    def keep(self, folder: Path) -> str:
        return f"for path in (source, *rest): shutil.copy(path, {str(folder)!r})\n"

    def test_model_samples_and_options(self, make_tool: MakeTool, tmp_path: Path) -> None:
        model = parse_model(TEXT)
        data = {"x": np.arange(12, dtype=np.float32).reshape(3, 4), "file": np.float32([1, 2, 3])}
        data["k"] = np.arange(6).reshape(3, 2).reshape(6)
        options = {"calibration_shapes": {"x": [1, 4]}, "nodes_to_exclude": ["a.*"]}
        result = make_tool(COPY + self.keep(tmp_path)).quantize(model, data, options)
        assert result == model
        with np.load(tmp_path / "calibration.npz") as arrays:
            found = {name: arrays[name] for name in arrays.files}
        assert found.keys() == data.keys()
        assert all(np.array_equal(found[name], data[name]) for name in data)
        written = json.loads((tmp_path / "options.json").read_text())
        assert written == {"runs": 3, "scalars": ["file"], "options": {"nodes_to_exclude": ["a.*"]}}

    def test_without_data_the_sample_that_onnxq_makes_up(
        self, make_tool: MakeTool, tmp_path: Path, model: ModelProto
    ) -> None:
        make_tool(COPY + self.keep(tmp_path)).quantize(model, None, {})
        (feed,) = make_feeds(model, None, seed=0)
        with np.load(tmp_path / "calibration.npz") as arrays:
            assert arrays.files == list(feed)
            assert all(np.array_equal(arrays[name], feed[name]) for name in feed)

    def test_what_it_writes_into_its_input_changes_nothing(self, make_tool: MakeTool, model: ModelProto) -> None:
        before = model.SerializeToString()
        make_tool(COPY + "open(source, 'w').write('spoilt')").quantize(model, None, {})
        assert model.SerializeToString() == before

    def test_all_its_files_are_private_and_gone_afterwards(
        self, make_tool: MakeTool, tmp_path: Path, model: ModelProto
    ) -> None:
        note = tmp_path / "note"
        tool = make_tool(
            f"""
            import os, shutil, tempfile
            shutil.copy(source, target)
            mode = os.stat(os.path.dirname(source)).st_mode & 0o777
            print(source, tempfile.mkdtemp(), oct(mode), sep="\\n", file=open({str(note)!r}, "w"))
            """
        )
        tool.quantize(model, None, {})
        source, made, mode = note.read_text().splitlines()
        assert mode == "0o700"
        assert not Path(source).parent.exists()
        assert not Path(made).exists()

    def test_the_same_hash_seed_every_time(self, make_tool: MakeTool, model: ModelProto, tmp_path: Path) -> None:
        tool = make_tool(COPY + f"open({str(tmp_path / 'hashes')!r}, 'a').write(str(hash('name')) + '\\n')")
        for _ in range(2):
            tool.quantize(model, None, {})
        assert len(set((tmp_path / "hashes").read_text().split())) == 1

    def test_options_without_a_place_for_them(self, make_tool: MakeTool, model: ModelProto) -> None:
        tool = make_tool(COPY, more="")
        assert tool.quantize(model, None, {"seed": 3}) == model
        with pytest.raises(UnsupportedError, match=r"fake can't be told op_types_to_exclude: .* no \{options\}"):
            tool.quantize(model, None, {"op_types_to_exclude": ["Conv"]})

    def test_data_that_dont_fit_are_no_failure_of_the_tool(self, make_tool: MakeTool, model: ModelProto) -> None:
        with pytest.raises(CalibrationError):
            make_tool(COPY).quantize(model, {"other": np.zeros(1)}, {})

    def test_samples_that_npz_can_t_hold(self, make_tool: MakeTool, model: ModelProto) -> None:
        (feed,) = make_feeds(model, None)
        name, value = next(iter(feed.items()))
        twice = [{name: value}, {name: np.concatenate([value, value])}]
        with pytest.raises(UnsupportedError, match=f'input "{name}": samples of different shapes'):
            make_tool(COPY).quantize(model, twice, {})


class TestFailures:
    def test_an_exit_status(self, make_tool: MakeTool, model: ModelProto) -> None:
        error = failure(make_tool("print('first'); sys.exit('node_7: no such axis')"), model)
        assert str(error) == "fake ended with exit status 1: node_7: no such axis"
        assert error.output == "first\nnode_7: no such axis"

    @pytest.mark.parametrize("name", ["SIGSEGV", "SIGABRT", "SIGKILL"])
    def test_a_signal(self, make_tool: MakeTool, model: ModelProto, name: str) -> None:
        tool = make_tool(f"import os, resource, signal\nresource.setrlimit(resource.RLIMIT_CORE, (0, 0))\n"
                         f"os.kill(os.getpid(), signal.{name})")  # fmt: skip
        assert str(failure(tool, model)) == f"fake was killed by {name}"

    def test_nothing_written(self, make_tool: MakeTool, model: ModelProto) -> None:
        assert str(failure(make_tool("print('done')"), model)) == "fake ended with exit status 0, but wrote no model"

    @pytest.mark.parametrize("content", [b"", b"no model at all \xff\xfe", b"\x08"])
    def test_garbage_written(self, make_tool: MakeTool, model: ModelProto, content: bytes) -> None:
        error = failure(make_tool(f"open(target, 'wb').write({content!r}); print('all is well')"), model)
        assert "ended with exit status 0, but what it wrote can't be read: " in str(error)
        assert error.output == "all is well"

    def test_a_folder_written(self, make_tool: MakeTool, model: ModelProto) -> None:
        assert "can't be read" in str(failure(make_tool("import os; os.mkdir(target)"), model))

    def test_a_truncated_model(self, make_tool: MakeTool, model: ModelProto) -> None:
        tool = make_tool("data = open(source, 'rb').read(); open(target, 'wb').write(data[:len(data) // 2])")
        assert "can't be read" in str(failure(tool, model))

    def test_a_model_written_by_a_tool_that_failed_doesnt_count(self, make_tool: MakeTool, model: ModelProto) -> None:
        assert str(failure(make_tool(COPY + "sys.exit(3)"), model)) == "fake ended with exit status 3"


class TestOutput:
    def test_only_the_end_is_kept(self, make_tool: MakeTool, model: ModelProto) -> None:
        error = failure(make_tool("for n in range(10_000): print('line', n)\nsys.exit(1)"), model)
        assert error.output.splitlines() == [f"line {n}" for n in range(10_000 - LINE_LIMIT, 10_000)]

    def test_long_lines_are_cut(self, make_tool: MakeTool, model: ModelProto) -> None:
        error = failure(make_tool("print('a' * 10_000_000); print('end'); sys.exit(1)"), model)
        assert error.output == "a" * LINE_LENGTH_LIMIT + "\nend"

    def test_bytes_that_are_no_text(self, make_tool: MakeTool, model: ModelProto) -> None:
        error = failure(make_tool(r"sys.stdout.buffer.write(b'caf\xe9 \xff\x00'); sys.exit(1)"), model)
        assert error.output == r"caf� �\x00"

    def test_control_characters_dont_reach_the_terminal(self, make_tool: MakeTool, model: ModelProto) -> None:
        shown = failure(make_tool(r"print('\x1b[31mred\x1b[0m\x1b]0;title\x07\u202e'); sys.exit(1)"), model).output
        assert shown == r"red\x1b]0;title\x07\u202e"

    def test_a_progress_bar_is_lines(self, make_tool: MakeTool, model: ModelProto) -> None:
        error = failure(make_tool(r"print('10 %\r20 %\rfailed', end=''); sys.exit(1)"), model)
        assert error.output == "10 %\n20 %\nfailed"

    def test_nothing_of_it_leaks(
        self, make_tool: MakeTool, model: ModelProto, capfd: pytest.CaptureFixture[str]
    ) -> None:
        make_tool(COPY + "print('out'); print('err', file=sys.stderr)").quantize(model, None, {})
        assert capfd.readouterr() == ("", "")


class TestTimeLimit:
    """Not one of these may take as long as the program would like to."""

    LIMIT = 0.5

    @pytest.fixture(autouse=True)
    def _is_quick(self) -> object:
        start = time.monotonic()
        yield
        assert time.monotonic() - start < 20

    def killed(self, tool: Quantizer, model: ModelProto) -> PeerError:
        error = failure(tool, model)
        assert str(error).startswith("fake didn't end within 0.5 s and was killed")
        return error

    def test_a_hang(self, make_tool: MakeTool, model: ModelProto) -> None:
        self.killed(make_tool("import time; time.sleep(60)", time_limit=self.LIMIT), model)

    def test_signals_ignored(self, make_tool: MakeTool, model: ModelProto) -> None:
        tool = make_tool(
            """
            import signal, time
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)
            time.sleep(60)
            """,
            time_limit=self.LIMIT,
        )
        self.killed(tool, model)

    def test_endless_output(self, make_tool: MakeTool, model: ModelProto) -> None:
        error = self.killed(make_tool("while True: print('again')", time_limit=self.LIMIT), model)
        assert len(error.output.splitlines()) == LINE_LIMIT

    def test_children_go_with_it(self, make_tool: MakeTool, model: ModelProto, tmp_path: Path) -> None:
        pid = tmp_path / "pid"
        tool = make_tool(
            f"""
            import subprocess, time
            child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
            open({str(pid)!r}, "w").write(str(child.pid))
            time.sleep(60)
            """,
            time_limit=1.5,
        )
        failure(tool, model)
        assert is_gone(int(pid.read_text()))

    @pytest.mark.parametrize("own_session", [False, True])
    def test_a_child_that_stays_behind_holds_nobody_up(
        self, make_tool: MakeTool, model: ModelProto, tmp_path: Path, own_session: bool
    ) -> None:
        pid = tmp_path / "pid"
        tool = make_tool(
            COPY
            + f"""
import subprocess
sleep = [sys.executable, "-c", "import time; time.sleep(60)"]
child = subprocess.Popen(sleep, start_new_session={own_session})
open({str(pid)!r}, "w").write(str(child.pid))
"""
        )
        try:
            assert tool.quantize(model, None, {}) == model
            assert own_session or is_gone(int(pid.read_text()))
        finally:
            if own_session:
                os.kill(int(pid.read_text()), signal.SIGKILL)


def is_gone(pid: int) -> bool:
    """Whether a process has ended, or does so within a moment."""
    for _ in range(100):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.02)
    return False
