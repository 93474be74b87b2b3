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
import subprocess
import sys
from pathlib import Path

from kvgate.source.snapshot import git_program

OBJECT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
EVENTS = ("pull_request", "merge_group", "push")
CHOICES = {
    "fail-on": ("error", "warning", "info", "never"),
    "comment": ("update", "delete", "off"),
    "sarif": ("true", "false"),
    "summary": ("true", "false"),
}
DEFAULTS = {"fail-on": "error", "comment": "update", "sarif": "true", "summary": "true"}


def given(name: str) -> str:
    """An input, without the blanks around it; its default where it is empty.

    Raises:
        SystemExit: it is none of the choices.
    """
    value = os.environ.get(f"INPUT_{name.upper().replace('-', '_')}", "").strip() or DEFAULTS.get(name, "")
    if name in CHOICES and value not in CHOICES[name]:
        fail(f"{name}: one of {', '.join(CHOICES[name])} expected, got {value!r}")
    return value


def fail(words: str) -> None:
    """Say what is wrong as an annotation, and stop as kvgate does for wrong usage."""
    print(f"::error title=kvgate::{words}".replace("\n", "%0A").replace("\r", "%0D"), flush=True)
    raise SystemExit(2)


def git(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [git_program(os.environ), "-c", f"core.hooksPath={os.devnull}", "-c", "core.fsmonitor=false", *words]
    return subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, encoding="utf-8", check=False
    )


def fetch() -> None:
    """Bring the commit that the change is compared with into a shallow clone.

    A failure is left to kvgate, which says what the checkout has to fetch.
    """
    if given("base"):
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
    """Compare (or, where there is nothing to compare with, check), print, and write the outputs."""
    folder = Path(os.environ["RUNNER_TEMP"]) / "kvgate"
    folder.mkdir(parents=True, exist_ok=True)
    paths = [line.strip() for line in given("paths").splitlines() if line.strip()] or ["."]
    common = [f"--{name}={given(name)}" for name in ("config", "gpu", "vllm-version") if given(name)]
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
    quote(text)
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
    return subprocess.run(command, env=environment, check=False).returncode


def quote(file: Path) -> None:
    """Print a file that quotes the pull request: no line of it is a workflow command."""
    if file.exists():
        token = secrets.token_hex(16)
        words = file.read_text(encoding="utf-8")
        print(f"::group::kvgate\n::stop-commands::{token}\n{words}\n::{token}::\n::endgroup::", flush=True)


def write_outputs(code: int, result: Path, sarif: Path, compared: bool) -> None:
    data = json.loads(result.read_text(encoding="utf-8")) if result.exists() else {}
    found = data.get("findings", {})
    count = len(found.get("new", [])) if compared and isinstance(found, dict) else len(found)
    values = {
        "code": str(code),
        "findings": str(count),
        "gate": data["gate"]["verdict"] if compared and data else "none",
        "capacity": str(result) if result.exists() else "",
        "sarif": str(sarif) if sarif.exists() else "",
    }
    with Path(os.environ["GITHUB_OUTPUT"]).open("a", encoding="utf-8") as stream:
        stream.writelines(f"{name}={value}\n" for name, value in values.items())


if __name__ == "__main__":
    {"fetch": fetch, "run": run}[sys.argv[1]]()
