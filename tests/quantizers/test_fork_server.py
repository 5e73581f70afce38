"""A server that forks a process for each model: nothing passes from one to the next, and nothing outlives its end."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from subprocess import Popen
from textwrap import dedent

import numpy as np
import pytest
from onnx import ModelProto

from onnxq.errors import PeerError
from onnxq.quantizers.fork_server import ForkServer
from onnxq.quantizers.peers import RUNNER
from onnxq.quantizers.process import Ended

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")

PEER = """
    import os, sys, tempfile, time
    from pathlib import Path
    calls = []

    def quantize(model, feeds, options):
        what = options["what"]
        calls.append(what)
        Path("pid").write_text(str(os.getpid()))
        print(what, len(calls), os.getcwd(), tempfile.gettempdir(), os.environ["PYTHONHASHSEED"])
        if what == "aborts":
            os.abort()
        if what == "sleeps":
            time.sleep(60)
        if what == "raises":
            raise KeyError("conv7")
        if what == "exits":
            sys.exit(3)
        if what == "leaves":
            sys.exit()
"""


class Folder:
    """The files of one model after the other, and a server whose peer does what the model says."""

    def __init__(self, path: Path) -> None:
        self.path = path
        (path / "peer_of_test.py").write_text(dedent(PEER))
        environment = {**os.environ, "PYTHONPATH": str(path)}
        self.server = ForkServer([sys.executable, str(RUNNER), "serve", "peer_of_test:quantize"], environment)

    def run(self, what: str, time_limit: float = 30.0) -> Ended:
        arguments = self.files(what)
        return self.server.run(arguments, folder=self.path, time_limit=time_limit)

    def files(self, what: str) -> list[str]:
        names = ["model", "calibration", "options", "output"]
        (self.path / "model").write_bytes(ModelProto(ir_version=8).SerializeToString())
        with (self.path / "calibration").open("wb") as file:
            np.savez(file, x=np.zeros(1))
        (self.path / "options").write_text(json.dumps({"runs": 1, "scalars": [], "options": {"what": what}}))
        return [str(self.path / name) for name in names]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def is_there(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_no_model_sees_another(folder: Folder) -> None:
    outputs = [folder.run("leaves").output.split() for _ in range(3)]
    assert [output[:2] for output in outputs] == [["leaves", "1"]] * 3
    assert all(Path(path).samefile(folder.path) for output in outputs for path in output[2:4])
    assert [output[4] for output in outputs] == [os.environ.get("PYTHONHASHSEED", "0")] * 3


@pytest.mark.parametrize(
    ("what", "how", "last"),
    [
        ("aborts", "was killed by SIGABRT", ""),
        ("raises", "ended with exit status 1", "KeyError: 'conv7'"),
        ("exits", "ended with exit status 3", "exits 1 "),
        ("leaves", "ended with exit status 0", "leaves 1 "),
    ],
)
def test_the_end_of_a_fork_is_told_and_the_server_goes_on(folder: Folder, what: str, how: str, last: str) -> None:
    ended = folder.run(what)
    assert (ended.how, ended.is_success) == (how, what == "leaves")
    assert last in ended.output
    server = folder.server._server
    assert folder.run("leaves").is_success
    assert folder.server._server is server is not None


def test_a_fork_that_takes_too_long_is_killed(folder: Folder) -> None:
    folder.run("leaves")
    ended = folder.run("sleeps", time_limit=0.5)
    assert (ended.how, ended.status) == ("didn't end within 0.5 s and was killed", None)
    assert not is_there(int((folder.path / "pid").read_text()))
    assert folder.run("leaves").is_success


def test_a_server_that_is_gone_is_started_again(folder: Folder) -> None:
    folder.run("leaves")
    server = folder.server._server
    assert server is not None
    os.kill(server.process.pid, signal.SIGKILL)
    server.process.wait()
    assert folder.run("leaves").is_success


def test_a_server_that_fails_is_told_as_the_end_of_the_model(tmp_path: Path) -> None:
    script = tmp_path / "peer.py"
    script.write_text("import sys; print('no module named peer'); sys.exit(2)")
    ended = ForkServer([sys.executable, str(script)], os.environ).run([], folder=tmp_path, time_limit=30)
    assert (ended.how, ended.output) == ("ended with exit status 2", "no module named peer")
    script.write_text("import time; time.sleep(60)")
    ended = ForkServer([sys.executable, str(script)], os.environ).run([], folder=tmp_path, time_limit=0.5)
    assert ended.how == "didn't end within 0.5 s and was killed"
    with pytest.raises(PeerError, match=r"nothing-there can't be started"):
        ForkServer(["/nothing-there"], {}).run([], folder=tmp_path, time_limit=30)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_nothing_outlives_who_asked(folder: Folder) -> None:
    arguments = folder.files("sleeps")
    script = folder.path / "asks.py"
    script.write_text(
        dedent(f"""
        import os
        from pathlib import Path
        from onnxq.quantizers.fork_server import ForkServer
        server = ForkServer([{sys.executable!r}, {str(RUNNER)!r}, "serve", "peer_of_test:quantize"], os.environ)
        server.run({arguments!r}, folder=Path({str(folder.path)!r}), time_limit=60)
        """)
    )
    paths = os.pathsep.join([str(folder.path), *filter(None, sys.path)])
    with Popen([sys.executable, str(script)], env={**os.environ, "PYTHONPATH": paths}) as asking:
        pid = folder.path / "pid"
        wait_for(lambda: pid.exists() and bool(pid.read_text()))
        fork = int(pid.read_text())
        assert is_there(fork)
        asking.kill()
    wait_for(lambda: not is_there(fork))


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.05)
