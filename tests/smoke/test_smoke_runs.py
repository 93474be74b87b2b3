"""``kvgate smoke`` against a server that behaves, and against ones that do not. Real processes, real sockets."""

import contextlib
import http.server
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are looked up in /proc")

SCHEMA = json.loads(files("kvgate.report").joinpath("schemas/kvgate.smoke-1.json").read_text(encoding="utf-8"))


def checked(verdict: Any) -> Any:
    jsonschema.validate(verdict, SCHEMA)
    return verdict


def test_a_server_that_does_as_predicted(tree: Any, article: str) -> None:
    tree.write(article)
    result = tree.smoke("--keep-log", "server.log")
    verdict = checked(result.json)
    assert (result.code, verdict["outcome"], verdict["cause"]) == (0, "holds", None)
    assert verdict["unit"]["id"] == "Pod/default/tiny/vllm"
    assert verdict["differences"] == []
    holds = {check["check"]: check["holds"] for check in verdict["checks"]}
    assert set(holds.values()) == {True}
    assert {"num_gpu_blocks", "size_tokens", "max_concurrency", "running", "running_when_full", "preemptions"} <= set(
        holds
    )
    sustained, declared = verdict["load"]["phases"]
    assert (sustained["clients"], sustained["completed"], sustained["preemptions"]) == (4, 4, 0)
    assert (declared["clients"], declared["completed"], declared["failed"]) == (20, 40, 0)
    assert declared["peak_running"] == 5
    assert declared["preemptions"] > 0
    assert declared["hit_rate"] == 0.25
    assert "CPU KV cache size: 40,960 tokens" in (tree.folder / "server.log").read_text(encoding="utf-8")
    assert len(tree.pids) == 1


def test_text_and_markdown_of_a_run(tree: Any, article: str) -> None:
    tree.write(article)
    result = tree.run(
        "smoke", "pod.json", "--format", "text", "--format", "markdown", "--output", "-", "--output", "s.md"
    )
    assert "the prediction holds" in result.out or (tree.folder / "-").exists()
    text = (tree.folder / "-").read_text(encoding="utf-8")
    assert re.search(r"running when full +4..5 +5 +holds +20 clients", text)
    markdown = (tree.folder / "s.md").read_text(encoding="utf-8")
    assert "| declared | 20 | 40/40 |" in markdown
    assert "**kvgate smoke**: `Pod/default/tiny/vllm`: the prediction holds" in markdown


def test_a_pool_that_is_smaller_than_the_manifest_says(tree: Any, article: str) -> None:
    tree.write(article)
    tree.environment = {"VLLM_FAKE_BLOCKS": "640", "VLLM_FAKE_SLOTS": "2"}
    result = tree.smoke("--requests", "6")
    verdict = checked(result.json)
    assert (result.code, verdict["outcome"]) == (1, "contradicted")
    assert verdict["cause"] == "the pool has 640 blocks, predicted 1,280 from the arguments alone"
    failed = [(check["check"], check["given"]) for check in verdict["checks"] if check["holds"] is False]
    assert failed == [
        ("num_gpu_blocks", "the arguments alone"),
        ("running_when_full", "4 clients"),
        ("running_when_full", "20 clients"),
    ]


def test_preemptions_below_the_sustained_number(tree: Any, article: str) -> None:
    tree.write(article)
    tree.environment = {"VLLM_FAKE_PREEMPT_ABOVE": "3"}
    verdict = checked(tree.smoke("--requests", "4").json)
    assert verdict["outcome"] == "contradicted"
    assert verdict["cause"] == "the number of preemptions is 1, predicted 0 with 4 clients"


def test_a_smaller_load_has_one_phase_and_no_preemption(tree: Any, manifest: Any) -> None:
    tree.write(manifest({"prompt-tokens": 1000, "output-tokens": 100, "peak-concurrency": 3}))
    verdict = checked(tree.smoke().json)
    assert verdict["outcome"] == "holds"
    (phase,) = verdict["load"]["phases"]
    assert (phase["name"], phase["clients"], phase["completed"], phase["preemptions"]) == ("declared", 3, 6, 0)


FAILURES = {
    "refuse": (
        "kv-cache-too-small",
        "the server did not start: one request of max_model_len does not fit the KV cache: 16.00 GiB needed, 3.97 GiB "
        "available; up to 4,064 tokens would fit; it was predicted to start",
    ),
    "exit": ("exited", "the server ended by itself: exit code 3 before it was ready"),
    "hang": ("hang", "the server was not ready in time: not ready after 3 seconds"),
    "half": ("hang", "the server was not ready in time: not ready after 3 seconds"),
    "oom": ("out-of-memory", "the server ran out of memory: an allocation of 2.00 GiB failed"),
    "segfault-in-load": ("crashed", "the server ended during the load: SIGSEGV (signal 11) during the load"),
    "crash-in-load": ("out-of-memory", "the server ran out of memory: an allocation of 2.00 GiB failed"),
}


@pytest.mark.parametrize("mode", FAILURES)
def test_failures_are_results(tree: Any, article: str, mode: str) -> None:
    tree.write(article)
    tree.environment = {"VLLM_FAKE_MODE": mode}
    result = tree.smoke("--start-seconds", "3")
    verdict = checked(result.json)
    kind, cause = FAILURES[mode]
    assert (result.code, verdict["outcome"], verdict["cause"]) == (1, "refused", cause)
    assert verdict["refusal"]["kind"] == kind
    if mode in ("refuse", "oom", "crash-in-load"):
        assert verdict["lines"]
        assert verdict["refusal"]["message"] in [line["text"] for line in verdict["lines"]]


def test_a_load_that_hangs_is_cut_short(tree: Any, article: str) -> None:
    tree.write(article)
    tree.environment = {"VLLM_FAKE_MODE": "hang-in-load"}
    verdict = checked(tree.smoke("--load-seconds", "2").json)
    assert "the load was cut short after 2 seconds" in verdict["notes"]
    assert verdict["load"]["phases"][0]["cut_short"]


def test_a_server_that_takes_no_completions_shows_nothing(tree: Any, article: str) -> None:
    """A pooling model, for one: its pool can be compared, and what it holds cannot be shown."""
    tree.write(article)
    tree.environment = {"VLLM_FAKE_MODE": "no-completions"}
    result = tree.smoke()
    verdict = checked(result.json)
    assert (result.code, verdict["outcome"]) == (2, "unknown")
    assert verdict["cause"] == ("the server takes no such request (400): The model does not support Completions API")
    assert {check["holds"] for check in verdict["checks"]} == {True}


@pytest.mark.parametrize("mode", ["stubborn", "family"])
def test_what_does_not_want_to_end_is_ended(tree: Any, manifest: Any, mode: str) -> None:
    tree.write(manifest({"prompt-tokens": 100, "output-tokens": 10, "peak-concurrency": 1}))
    tree.environment = {"VLLM_FAKE_MODE": mode}
    assert tree.smoke().code == 0
    assert len(tree.pids) == (3 if mode == "family" else 1)
    # the fixture asserts that none of them is alive


@pytest.mark.parametrize(
    ("stage", "number"),
    [
        ("hang", "SIGINT"),
        ("hang", "SIGHUP"),
        ("hang-in-load", "SIGINT"),
        ("hang-in-load", "SIGTERM"),
        ("family", "SIGTERM"),
    ],
)
def test_an_interrupted_run_leaves_nothing(tree: Any, article: str, number: str, stage: str, wait: Any) -> None:
    tree.write(article)
    tree.environment = {"VLLM_FAKE_MODE": stage}
    process = tree.start("smoke", "pod.json", "--quiet", "--load-seconds", "60")
    wait(lambda: len(tree.pids) >= (3 if stage == "family" else 1))
    if stage == "hang-in-load":
        wait(lambda: len(tree.pids) > 1)  # the fake says so when a request arrives
    process.send_signal(getattr(signal, number))
    out, err = process.communicate(timeout=40)
    assert (process.returncode, out, err.strip()) == (130, "", "")


def test_a_killed_kvgate_takes_its_server_along(tree: Any, article: str, wait: Any, is_alive: Any) -> None:
    tree.write(article)
    tree.environment = {"VLLM_FAKE_MODE": "family"}
    process = tree.start("smoke", "pod.json", "--quiet")
    wait(lambda: len(tree.pids) == 3)
    folder = Path(os.readlink(f"/proc/{tree.pids[0]}/cwd"))
    process.kill()
    process.communicate(timeout=20)
    wait(lambda: not any(is_alive(pid) for pid in tree.pids), 40)
    wait(lambda: not folder.exists())


@pytest.mark.parametrize("stage", ["hang", "hang-in-load"])
def test_a_killed_server_is_a_result(tree: Any, article: str, stage: str, wait: Any) -> None:
    tree.write(article)
    tree.environment = {"VLLM_FAKE_MODE": stage}
    process = tree.start("smoke", "pod.json", "--format", "json", "--quiet", "--keep-log", "log")
    wait(lambda: tree.pids)
    if stage == "hang-in-load":
        wait(lambda: len(tree.pids) > 1)  # the fake says so when a request arrives
    os.kill(tree.pids[0], signal.SIGKILL)
    out, _ = process.communicate(timeout=40)
    verdict = checked(json.loads(out))
    assert (process.returncode, verdict["outcome"], verdict["refusal"]["kind"]) == (1, "refused", "killed")
    assert verdict["cause"].startswith(
        "the server was ended from outside: SIGKILL (signal 9, as the kernel does when memory runs out)"
    )


def test_a_port_in_use(tree: Any, article: str) -> None:
    tree.write(article)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        result = tree.smoke("--port", str(port))
    assert (result.code, result.out) == (2, "")
    assert f"port {port}" in result.err
    assert tree.pids == []


def test_a_terminal_shows_the_load(tree: Any, manifest: Any) -> None:
    """A bar on stderr where that is a terminal; stdout stays data."""
    import pty

    tree.write(manifest({"prompt-tokens": 100, "output-tokens": 10, "peak-concurrency": 3}))
    master, terminal = pty.openpty()
    command = [sys.executable, "-m", "kvgate", "smoke", "pod.json", "--format", "json"]
    variables = {**tree.variables(), "TERM": "xterm", "COLUMNS": "120"}
    with subprocess.Popen(
        command, cwd=tree.folder, env=variables, stdout=subprocess.PIPE, stderr=terminal, text=True
    ) as process:
        os.close(terminal)
        shown = b""
        # reading fails once the other side is closed
        with contextlib.suppress(OSError):
            while chunk := os.read(master, 65536):
                shown += chunk
        assert process.stdout is not None
        verdict = json.loads(process.stdout.read())
    os.close(master)
    assert (process.returncode, verdict["outcome"]) == (0, "holds")
    words = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode())
    assert re.search(r"load .* \d/6 .*3 running, 0 waiting", words), words


def test_an_interpreter_that_is_not_there(tree: Any, article: str) -> None:
    tree.write(article)
    result = tree.smoke("--python", "/nowhere/python")
    assert (result.code, result.out) == (2, "")
    assert result.err.splitlines()[-1] == "kvgate: /nowhere/python: cannot be started: No such file or directory"


# --- attaching --------------------------------------------------------------------------------------------------------


@pytest.fixture
def served(tree: Any, article: str, wait: Any) -> Any:
    """Starts the fake server by hand, as someone's own, and gives its URL."""
    tree.write(article)
    processes: list[subprocess.Popen[str]] = []

    def start(mode: str = "serve", model: str = "/models/tiny", **variables: str) -> str:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        log = (tree.folder / "own.log").open("w", encoding="utf-8")
        words = ["--dtype=float32", "--enforce-eager", "--block-size=32", "--num-gpu-blocks-override=1280"]
        processes.append(
            subprocess.Popen(
                [tree.python, "-m", "x", f"--model={model}", *words, f"--port={port}"],
                env={**tree.variables(), "VLLM_FAKE_MODE": mode, **variables},
                stdout=log,
                text=True,
            )
        )
        log.close()
        wait(lambda: "startup complete" in (tree.folder / "own.log").read_text(encoding="utf-8"))
        return f"http://127.0.0.1:{port}"

    yield start
    for process in processes:
        process.kill()
        process.wait()


def test_attached_to_a_server_that_does_as_predicted(tree: Any, served: Any) -> None:
    url = served()
    result = tree.smoke("--url", url, "--requests", "10")
    verdict = checked(result.json)
    assert (result.code, verdict["outcome"]) == (0, "holds")
    assert verdict["server"]["version"] == "0.32.0"
    assert {check["check"] for check in verdict["checks"]} >= {"num_gpu_blocks", "block_size", "size_tokens", "running"}
    # what someone else started is left alone
    assert tree.smoke("--url", url, "--requests", "4", "--log", "own.log").code == 0


def test_attached_to_another_model(tree: Any, served: Any) -> None:
    result = tree.smoke("--url", served("wrong-model"))
    verdict = checked(result.json)
    assert (result.code, verdict["outcome"]) == (1, "contradicted")
    assert verdict["cause"] == (
        "this is not the deployment: model was someone-else/model, the manifest says /models/tiny"
    )
    assert verdict["load"] is None


def test_attached_to_a_server_that_wants_a_key(tree: Any, served: Any) -> None:
    url = served(VLLM_API_KEY="sk-right")
    result = tree.smoke("--url", url)
    assert (result.code, result.out) == (2, "")
    assert result.err == f"kvgate: {url} answers 401: set VLLM_API_KEY to a key that it accepts\n"
    tree.environment = {"VLLM_API_KEY": "sk-right"}
    result = tree.smoke("--url", url, "--requests", "2")
    assert result.code == 0
    assert "sk-right" not in result.out + result.err


def test_attached_to_nothing(tree: Any, article: str) -> None:
    tree.write(article)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{probe.getsockname()[1]}"
    result = tree.smoke("--url", url)
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith(f"kvgate: {url} cannot be reached")


def test_attached_to_something_else(tree: Any, article: str) -> None:
    tree.write(article)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<html>hello</html>")

        def log_message(self, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}"
        result = tree.smoke("--url", url)
        server.shutdown()
    assert (result.code, result.err) == (2, f"kvgate: {url}: /v1/models is not what an OpenAI endpoint answers\n")


def test_the_fake_is_executable() -> None:
    """Without the mode bit every test here would fail in its own way."""
    assert os.access(Path(__file__).parent / "fake_vllm.py", os.X_OK)
    assert sys.platform != "win32"


@pytest.mark.parametrize("pid_told", [True, False])
def test_the_guard_ends_a_server_that_nobody_has_in_hand(tmp_path: Path, pid_told: bool, wait: Any) -> None:
    """An interrupt can come between the start of a server and the moment that its pid is known."""
    mark, folder = "f" * 32, tmp_path / "own"
    folder.mkdir()
    guard = subprocess.Popen(
        [sys.executable, "-P", "-m", "kvgate.smoke.guard"], stdin=subprocess.PIPE, text=True, start_new_session=True
    )
    ignoring = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(600)"
    )
    server = subprocess.Popen(
        [sys.executable, "-c", ignoring],
        env={**os.environ, "KVGATE_SMOKE_RUN": mark},
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert server.stdout is not None
    server.stdout.readline()  # until then it does not ignore the signal
    bystander = subprocess.Popen([sys.executable, "-c", ignoring], start_new_session=True)
    try:
        told = json.dumps({"mark": mark, "folder": str(folder)}) + "\n"
        told += json.dumps({"pid": server.pid}) + "\n" if pid_told else ""
        guard.communicate(told, timeout=60)
        assert server.wait(timeout=10) == -signal.SIGKILL
        assert not folder.exists()
        assert bystander.poll() is None
    finally:
        for process in (server, bystander, guard):
            process.kill()
            process.wait()
        server.stdout.close()
