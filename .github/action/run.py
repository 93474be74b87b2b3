"""The action's own steps: fetch the base, run kvgate, hand out the results.

    python -I -X utf8 run.py fetch
    python -I -X utf8 run.py run

Everything comes from the environment (``INPUT_*`` and what GitHub sets); nothing of it reaches a shell. What kvgate
prints for people goes between ``::stop-commands::`` marks, since it quotes files of the pull request.
"""

from __future__ import annotations

import base64
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from kvgate.source.snapshot import git_program

OBJECT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
EVENTS = ("pull_request", "merge_group", "push")
CHOICES = {
    "mode": ("gate", "smoke"),
    "fail-on": ("error", "warning", "info", "never"),
    "comment": ("update", "delete", "off"),
    "sarif": ("true", "false"),
    "summary": ("true", "false"),
}
DEFAULTS = {"mode": "gate", "fail-on": "error", "comment": "update", "sarif": "true", "summary": "true"}

#: Options of ``kvgate smoke`` that a workflow may set; the others say where the evidence goes, or have inputs.
SMOKE_OPTIONS = (
    "model", "dummy-weights", "port", "start-seconds", "load-seconds", "no-load", "requests", "max-request-tokens",
    "seed", "log", "online",
)  # fmt: skip
#: Where an event names the repository that its commits come from.
SOURCES = (("pull_request", "head", "repo"), ("workflow_run", "head_repository"))
EVIDENCE = {"text": "verdict.txt", "json": "verdict.json", "markdown": "verdict.md"}


def given(name: str) -> str:
    """An input, without the blanks around it; its default where it is empty.

    Raises:
        SystemExit: it is none of the choices.
    """
    value = os.environ.get(f"INPUT_{name.upper().replace('-', '_')}", "").strip() or DEFAULTS.get(name, "")
    if name in CHOICES and value not in CHOICES[name]:
        fail(f"{name}: one of {', '.join(CHOICES[name])} expected, got {value!r}")
    return value


def fail(words: str) -> NoReturn:
    """Say what is wrong as an annotation, and stop as kvgate does for wrong usage."""
    annotate(words)
    raise SystemExit(2)


def annotate(words: str) -> None:
    """An error of the job; whatever stands in the words, they end no command and begin none."""
    escaped = words.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    print(f"::error title=kvgate::{escaped}", flush=True)


def git(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [git_program(os.environ), "-c", f"core.hooksPath={os.devnull}", "-c", "core.fsmonitor=false", *words]
    return subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, encoding="utf-8", check=False
    )


def fetch() -> None:
    """Bring the commit that the change is compared with into a shallow clone.

    A failure is left to kvgate, which says what the checkout has to fetch.
    """
    if given("mode") == "smoke" or given("base"):
        return
    wanted = [os.environ.get("KVGATE_MERGE_GROUP_BASE", ""), os.environ.get("KVGATE_BEFORE", "")]
    if os.environ.get("GITHUB_EVENT_NAME") == "pull_request":
        head = git("cat-file", "commit", "HEAD").stdout.partition("\n\n")[0]
        wanted = re.findall(r"^parent ([0-9a-f]{40,64})$", head, re.MULTILINE)[:1]
    for sha in wanted:
        if not OBJECT.fullmatch(sha) or not sha.strip("0"):
            continue
        if git("cat-file", "-e", f"{sha}^{{commit}}").returncode == 0:
            continue
        result = git("fetch", "--no-tags", "--no-recurse-submodules", "--depth=1", "origin", sha, **credentials())
        print(f"fetched {sha}" if result.returncode == 0 else f"{sha} could not be fetched")


def credentials() -> dict[str, str]:
    """The token for one fetch, in the environment, where no list of processes shows it."""
    token, server = os.environ.get("GITHUB_TOKEN", ""), os.environ.get("GITHUB_SERVER_URL", "https://github.com")
    variables = {"GIT_TERMINAL_PROMPT": "0"}
    if token and server.startswith("https://"):
        basic = base64.b64encode(f"x-access-token:{token}".encode()).decode()
        print(f"::add-mask::{basic}", flush=True)
        variables |= {
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": f"http.{server}/.extraheader",
            "GIT_CONFIG_VALUE_0": f"AUTHORIZATION: basic {basic}",
        }
    return variables


def run() -> None:
    """The mode that is asked for: run kvgate, print, and write the outputs."""
    folder = Path(os.environ["RUNNER_TEMP"]) / "kvgate"
    folder.mkdir(parents=True, exist_ok=True)
    paths = lines("paths") or ["."]
    if given("mode") == "smoke":
        smoke(folder / "smoke", paths)
    else:
        gate(folder, paths)


def lines(name: str) -> list[str]:
    """The lines of an input that are not blank."""
    return [line.strip() for line in given(name).splitlines() if line.strip()]


def options(*names: str) -> list[str]:
    """Inputs that are options of kvgate, as far as they are set."""
    return [f"--{name}={given(name)}" for name in names if given(name)]


def gate(folder: Path, paths: list[str]) -> None:
    """Compare, or, where there is nothing to compare with, check."""
    common = options("config", "gpu", "vllm-version")
    sarif = folder / "kvgate.sarif"
    compared = os.environ.get("GITHUB_EVENT_NAME") in EVENTS or bool(given("base"))
    result = folder / ("diff.json" if compared else "check.json")
    text = folder / "report.txt"
    for old in (sarif, result, text):
        old.unlink(missing_ok=True)
    formats = ["--format=text", f"--output={text}", "--format=json", f"--output={result}", "--format=github"]
    fail_on = f"--fail-on={given('fail-on')}"
    if compared:
        words = ["diff", *common, *formats, fail_on]
        words += [f"--base={given('base')}"] if given("base") else []
        words += ["--summary"] if given("summary") == "true" else []
        if given("comment") != "off" and os.environ.get("GITHUB_EVENT_NAME") == "pull_request":
            words.append(f"--comment={given('comment')}")
    else:
        words = ["check", *common, *formats, fail_on]
    code = kvgate([*words, "--", *paths])
    if text.exists():
        with quoting():
            print(text.read_text(encoding="utf-8"))
    there = [path for path in paths if Path(path).exists()]
    if given("sarif") == "true" and there:
        # all findings of the head: code scanning itself tells the new ones from the old
        kvgate(["check", *common, "--fail-on=never", "--quiet", "--format=sarif", f"--output={sarif}", "--", *there])
    write_outputs(code, result, sarif, compared)


def kvgate(words: list[str]) -> int:
    """Run kvgate with the interpreter of this script; its annotations go to the log as they are."""
    environment = {**os.environ, "NO_COLOR": "1", "COLUMNS": "120"}
    sys.stdout.flush()
    command = [sys.executable, "-I", "-X", "utf8", "-m", "kvgate", *words]
    process = subprocess.Popen(command, env=environment)
    for number in (signal.SIGINT, signal.SIGTERM):
        # a cancelled job: kvgate ends what it started, and its exit code is awaited
        signal.signal(number, lambda *_: process.terminate())
    return process.wait()


@contextmanager
def quoting() -> Iterator[None]:
    """A group of the log whose lines may quote the pull request: none of them is a workflow command."""
    token = secrets.token_hex(16)
    print(f"::group::kvgate\n::stop-commands::{token}", flush=True)
    try:
        yield
    finally:
        print(f"\n::{token}::\n::endgroup::", flush=True)


def smoke(folder: Path, paths: list[str]) -> None:
    """Start vLLM as the files say (or attach), and keep the evidence: log, verdict, summary."""
    refuse_forks()
    if len(paths) != 1:
        fail("paths: one file or folder expected in mode smoke")
    more = lines("smoke-options")
    for option in more:
        if not option.startswith("--") or option[2:].partition("=")[0] not in SMOKE_OPTIONS:
            fail(f"smoke-options: one of {', '.join(f'--{name}' for name in SMOKE_OPTIONS)} expected, got {option!r}")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    words = ["smoke", *options("config", "gpu", "vllm-version", "unit", "url"), *more]
    words.append(f"--python={given('python') or os.environ.get('KVGATE_VLLM_PYTHON') or 'python3'}")
    words.append(f"--keep-log={folder / 'server.log'}")
    for form, name in EVIDENCE.items():
        words += [f"--format={form}", f"--output={folder / name}"]
    with quoting():
        code = kvgate([*words, "--", *paths])
        text = folder / EVIDENCE["text"]
        if text.exists():
            print(text.read_text(encoding="utf-8"))
    result = folder / EVIDENCE["json"]
    verdict = json.loads(result.read_text(encoding="utf-8")) if result.exists() else {}
    if code:
        annotate(verdict.get("cause") or "the smoke run could not be made; the log says why")
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if summary and given("summary") == "true" and verdict:
        from kvgate.github.summary import append_summary

        append_summary(Path(summary), (folder / EVIDENCE["markdown"]).read_text(encoding="utf-8"))
    evidence = str(folder) if any(folder.iterdir()) else ""
    hand_out(code=str(code), findings="0", gate="none", verdict=verdict.get("outcome", ""), evidence=evidence)


def refuse_forks() -> None:
    """Stop where what is checked out may be written by someone who cannot write to this repository.

    A smoke run has this machine run what the files say.
    """
    event: dict[str, Any] = json.loads(Path(os.environ["GITHUB_EVENT_PATH"]).read_text(encoding="utf-8"))
    for name, *keys in SOURCES:
        if name in event:
            source = event[name]
            for key in keys:
                source = (source or {}).get(key)
            # a fork that was deleted has no name any more
            if (source or {}).get("full_name") != os.environ["GITHUB_REPOSITORY"]:
                fail("refused: this comes from a fork, and a smoke run has this machine run what the files say")
    if "pull_request" in event.get("issue", {}):
        fail("refused: the event does not say whose pull request it is about")


def write_outputs(code: int, result: Path, sarif: Path, compared: bool) -> None:
    data = json.loads(result.read_text(encoding="utf-8")) if result.exists() else {}
    found = data.get("findings", {})
    count = len(found.get("new", [])) if compared and isinstance(found, dict) else len(found)
    hand_out(
        code=str(code),
        findings=str(count),
        gate=data["gate"]["verdict"] if compared and data else "none",
        capacity=str(result) if result.exists() else "",
        sarif=str(sarif) if sarif.exists() else "",
    )


def hand_out(**values: str) -> None:
    """The outputs of the action."""
    with Path(os.environ["GITHUB_OUTPUT"]).open("a", encoding="utf-8") as stream:
        stream.writelines(f"{name}={value}\n" for name, value in values.items())


if __name__ == "__main__":
    {"fetch": fetch, "run": run}[sys.argv[1]]()
