"""A process that has imported a peer and forks for each model: the import is paid once, and no model sees another.

    this process <--- a socket: what to do, what became of it ---> server ---- forks ----> quantizes one model
         ^                                                                                        |
         +------------------------------ one pipe a model: output --------------------------------+

A fork starts where the import ended, like a process of its own, but for the time that the import takes. The server
ends with this process, whose end of the socket is then closed.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

from onnxq.errors import PeerError
from onnxq.quantizers.process import Ended, Tail, ended, kill_group, killed_with_us

_LONGEST_ANSWER = 64


class ForkServer:
    """Runs forks of a server, which it starts when the first model comes, and again when it is gone.

    Args:
        arguments: The program and its arguments; the descriptor of its socket is added.
        environment: Its environment variables.
    """

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        self._arguments = tuple(arguments)
        self._environment = dict(environment)
        self._lock = Lock()
        self._server: _Server | None = None

    def with_environment(self, variables: Mapping[str, str]) -> ForkServer:
        """Another server, with other values of some environment variables."""
        return ForkServer(self._arguments, {**self._environment, **variables})

    def run(self, arguments: Sequence[str], *, folder: Path, time_limit: float) -> Ended:
        """Quantize one model in a fork.

        Args:
            arguments: For the fork.
            folder: Where it works, and where its temporary files go.
            time_limit: Seconds after which it is killed with its children; those until the server is ready included.

        Returns:
            How it ended; or how the server did, if there was none to fork.

        Raises:
            PeerError: The server can't be started.
        """
        from onnxq.quantizers.exchange import temporary_files

        request = {"folder": str(folder), "environment": temporary_files(folder), "arguments": list(arguments)}
        with self._lock:
            server, self._server = self._server, None  # it is kept if all goes well
            if server is None or not server.is_alive:
                server = _Server.start(self._arguments, self._environment)
            try:
                found = server.run(json.dumps(request).encode(), time_limit)
            except BaseException:
                server.close()
                raise
            if server.is_alive:
                self._server = server
            return found


@dataclass(eq=False)
class _Server:
    """A server that runs.

    Attributes:
        process: It leads a process group of its own.
        channel: This end of the socket.
        output: What the server itself prints, and not one of its forks.
    """

    process: subprocess.Popen[bytes]
    channel: socket.socket
    output: Tail
    _unread: bytes = field(default=b"", init=False)

    @staticmethod
    def start(arguments: Sequence[str], environment: Mapping[str, str]) -> _Server:
        """Start one; it imports the peer while nobody waits for it yet."""
        from onnxq.quantizers.exchange import private_environment

        ours, its = socket.socketpair()
        with its:
            try:
                process = subprocess.Popen(
                    [*arguments, str(its.fileno())],
                    bufsize=0,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    env=private_environment(None, environment),
                    pass_fds=[its.fileno()],
                    start_new_session=True,
                )
            except OSError as error:
                ours.close()
                raise PeerError(f"{arguments[0]} can't be started: {error}") from None
        server = _Server(process, ours, Tail(process.stdout))
        weakref.finalize(server, _end, process, ours)
        return server

    @property
    def is_alive(self) -> bool:
        """Whether it can be asked again."""
        return self.process.poll() is None

    def run(self, request: bytes, time_limit: float) -> Ended:
        """Have one model quantized; a server that doesn't answer in time, or at all, is closed."""
        deadline = time.monotonic() + time_limit
        with killed_with_us(self.process.pid):
            fork, tail = self._ask(request, deadline)
            if fork is None or tail is None:
                return self._gone(time_limit, deadline)
            with killed_with_us(fork):
                try:
                    status = self._answer(deadline)
                finally:
                    kill_group(fork)
            if status is None and time.monotonic() < deadline:
                return self._gone(time_limit, deadline)
            if status is None:
                self._answer(deadline + _SECONDS_TO_REAP)  # of the fork that was killed
            return ended(status, time_limit, tail)

    def close(self) -> None:
        """End it, whatever it does."""
        _end(self.process, self.channel)

    def _ask(self, request: bytes, deadline: float) -> tuple[int | None, Tail | None]:
        """Send a request with the pipe for its output. Returns the number of the fork; None if there is no server."""
        reading, writing = os.pipe()
        tail = Tail(os.fdopen(reading, "rb", buffering=0))
        try:
            socket.send_fds(self.channel, [request], [writing])
        except OSError:
            return None, None
        finally:
            os.close(writing)
        return self._answer(deadline), tail

    def _answer(self, deadline: float) -> int | None:
        """The next number that the server sends; None if it doesn't in time, or is gone."""
        while b"\n" not in self._unread:
            self.channel.settimeout(max(deadline - time.monotonic(), 0.001))
            try:
                received = self.channel.recv(_LONGEST_ANSWER)
            except OSError:
                return None
            if not received:
                return None
            self._unread += received
        line, _, self._unread = self._unread.partition(b"\n")
        return int(line)

    def _gone(self, time_limit: float, deadline: float) -> Ended:
        """How a server ended that should have forked."""
        is_late = time.monotonic() >= deadline
        if not is_late:
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(_SECONDS_TO_REAP)
        status = None if is_late else self.process.returncode
        self.close()
        return ended(status, time_limit, self.output)


_SECONDS_TO_REAP = 10.0
"""For a process that has been killed, or has closed its end of the socket, to be gone."""


def _end(process: subprocess.Popen[bytes], channel: socket.socket) -> None:
    channel.close()
    kill_group(process.pid)
    process.wait()
