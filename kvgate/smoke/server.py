"""A vLLM server as a child process: started, watched, and ended whatever happens."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType, TracebackType
from typing import IO, Any, Final, Literal, Self

from kvgate.smoke.command import ENVIRONMENT
from kvgate.smoke.processes import MARK, belonging, descendants, end_all
from kvgate.smoke.verify import SmokeError

HOST: Final = "127.0.0.1"
_POLL_S: Final = 0.5
_HEALTH_TIMEOUT_S: Final = 5.0
# A server that has printed why it cannot start ends by itself; some hang instead.
_DYING_S: Final = 30.0

Readiness = Literal["ready", "exited", "hang", "dying"]


class Server:
    """A started server. Use it as a context manager: leaving ends the process and everything below it.

    ``folder`` is its working directory, made for it alone; ``guard_environment`` is that of the process that ends it
    should this one be killed.

    Raises:
        SmokeError: the program cannot be started.
    """

    def __init__(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str],
        guard_environment: Mapping[str, str],
        log: Path,
        folder: Path,
    ) -> None:
        self.mark = uuid.uuid4().hex
        self.log = log
        self._seen: set[tuple[int, int]] = set()
        self._ended = threading.Event()
        self._guard = subprocess.Popen(
            [sys.executable, "-P", "-m", "kvgate.smoke.guard"],  # -P: a folder kvgate of the tree is not meant
            env=dict(guard_environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            text=True,
        )
        # before the server is there: an interrupt may come while it is being started
        self._tell_guard(json.dumps({"mark": self.mark, "folder": str(folder)}) + "\n")
        try:
            with log.open("wb") as output:
                self.process: subprocess.Popen[Any] = subprocess.Popen(  # noqa: S603 - built from parsed arguments
                    list(argv),
                    env={**environment, MARK: self.mark},
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    cwd=folder,
                    start_new_session=True,
                )
        except OSError as error:
            self._dismiss_guard(done=True)
            raise SmokeError(f"{argv[0]}: cannot be started: {error.strerror or error}") from None
        self._tell_guard(json.dumps({"pid": self.pid}) + "\n")
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative for a signal."""
        return self.process.poll()

    def gone(self, within_s: float = 3.0) -> int | None:
        """The exit code of a server whose connections broke: the process can outlive them for a moment."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=within_s)
        return self.exit_code

    def text(self) -> str:
        """The log so far."""
        try:
            return self.log.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""

    def end(self) -> None:
        """End the server and everything that it started; a second call does nothing.

        Raises:
            SmokeError: something of it is still alive after half a minute.
        """
        if self._ended.is_set():
            return
        self._ended.set()
        with _undisturbed():
            gone = end_all(self.pid, self.mark, lambda: tuple(self._seen))
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout=1)
            self._dismiss_guard(done=gone)
        if not gone:
            left = sorted(belonging(self.pid, self.mark, tuple(self._seen)))
            raise SmokeError(f"processes of the server could not be ended: {', '.join(map(str, left))}")

    def _watch(self) -> None:
        """Remember descendants: one that leaves the session and loses its parent is not found otherwise."""
        while not self._ended.wait(_POLL_S):
            self._seen |= descendants(self.pid)

    def _tell_guard(self, line: str) -> None:
        stream: IO[str] | None = self._guard.stdin
        if stream is not None:
            with contextlib.suppress(BrokenPipeError, ValueError):
                stream.write(line)
                stream.flush()

    def _dismiss_guard(self, *, done: bool) -> None:
        if done:
            self._tell_guard("done\n")
        if self._guard.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._guard.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._guard.wait(timeout=20)

    def wait_ready(self, port: int, timeout_s: float) -> Readiness:
        """Wait until ``/health`` answers, the process ends, or the time is over."""
        import httpx

        from kvgate.engine.logs import read_log

        deadline = time.monotonic() + timeout_s
        failing_since: float | None = None
        size = -1
        while time.monotonic() < deadline:
            if self.exit_code is not None:
                return "exited"
            with contextlib.suppress(httpx.HTTPError):
                answer = httpx.get(f"http://{HOST}:{port}/health", timeout=_HEALTH_TIMEOUT_S, trust_env=False)
                # the process that answers must be the one that was started
                if answer.status_code == 200 and self.exit_code is None:
                    return "ready"
            if failing_since is not None and time.monotonic() - failing_since > _DYING_S:
                return "dying"
            if failing_since is None and (now := self._size()) != size:
                size = now
                cause = read_log(self.text()).cause
                if cause is not None and cause.kind != "error":
                    failing_since = time.monotonic()
            time.sleep(_POLL_S)
        return "hang"

    def _size(self) -> int:
        try:
            return self.log.stat().st_size
        except OSError:
            return -1


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """No second ctrl-C keeps the processes from being ended."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = [signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]
    before = [(number, signal.signal(number, signal.SIG_IGN)) for number in numbers]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """SIGTERM and SIGHUP end a run as ctrl-C does: through all the ``finally`` on the way."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    numbers = [signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]
    before = [(number, signal.signal(number, stop)) for number in numbers]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)


def free_port(asked: int | None) -> int:
    """A port of the loopback interface that nobody listens on.

    Raises:
        SmokeError: the one that was asked for is in use.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, asked or 0))
        except OSError as error:
            raise SmokeError(f"port {asked} cannot be used: {error.strerror or error}") from None
        port: int = probe.getsockname()[1]
    if asked is not None and _listened_on(asked):
        raise SmokeError(f"port {asked} is in use")
    return port


def _listened_on(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        return probe.connect_ex((HOST, port)) == 0


def server_environment(environ: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """The environment of the server: what finds programs, libraries and caches, and what the unit may set.

    Tokens and settings of the surrounding job stay outside, but for the Hub's. Plugins are off unless the caller's own
    environment names them. What shapes the figures comes from the unit alone.
    """
    kept = {
        name: value
        for name, value in environ.items()
        if name in _KEPT or (name.startswith(_KEPT_PREFIXES) and name not in ENVIRONMENT)
    }
    quiet = {"VLLM_PLUGINS": "", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "PYTHONUNBUFFERED": "1"}
    return {**quiet, **kept, **own}


def guard_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of the guard: without the mark by which a runner ends all that a job left, the guard first."""
    return {name: value for name, value in environ.items() if name != _RUNNER_MARK}


_RUNNER_MARK: Final = "RUNNER_TRACKING_ID"  # of GitHub Actions
_KEPT: Final = frozenset(
    (
        "PATH", "HOME", "USER", "LANG", "TMPDIR", "LD_LIBRARY_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR", "CC", "CXX",
        "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy",
        "no_proxy", _RUNNER_MARK,
    )
)  # fmt: skip
_KEPT_PREFIXES: Final = (
    "LC_", "CUDA_", "NVIDIA_", "HIP_", "ROCR_", "ROCM_", "HF_", "HUGGINGFACE_", "VLLM_", "XDG_", "TRITON_", "TORCH",
    "OMP_", "NCCL_", "NUMBA_",
)  # fmt: skip


_FROM_OUTSIDE: Final = frozenset(("SIGKILL", "SIGTERM", "SIGINT", "SIGHUP"))


def ended_from_outside(code: int) -> bool:
    """Whether a process was told to end; other signals (a segmentation fault, an abort) are its own failures."""
    return _signal_name(code) in _FROM_OUTSIDE


def exit_words(code: int) -> str:
    """How a process ended, for people."""
    name = _signal_name(code)
    if code >= 0:
        return f"exit code {code}"
    hint = ", as the kernel does when memory runs out" if name == "SIGKILL" else ""
    return f"{name} (signal {-code}{hint})" if name else f"signal {-code}"


def _signal_name(code: int) -> str:
    try:
        return signal.Signals(-code).name if code < 0 else ""
    except ValueError:
        return ""
