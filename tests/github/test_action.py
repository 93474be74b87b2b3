"""The action, run as the runner would run it: its own steps, a clean environment, and inputs that mean harm."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
ACTION = ROOT / "action.yml"
GIB = 2**30
MANIFEST = """\
apiVersion: v1
kind: Pod
metadata: {name: chat}
spec:
  nodeSelector: {nvidia.com/gpu.product: NVIDIA-L4}
  containers:
    - name: vllm
      image: vllm/vllm-openai:v0.19.1
      args: [--model=Qwen/Qwen2.5-7B-Instruct, --max-model-len=8192, --kv-cache-memory-bytes=%d]
      resources: {limits: {nvidia.com/gpu: 1}}
"""

pytestmark = [
    pytest.mark.skipif(not ACTION.exists(), reason="the distribution does not carry the action"),
    pytest.mark.skipif(os.name == "nt", reason="which bash is found differs; the example workflow runs it on Windows"),
]


@dataclass
class Result:
    code: int
    log: str
    outputs: dict[str, dict[str, str]] = field(default_factory=dict)

    @property
    def run(self) -> dict[str, str]:
        return self.outputs.get("run", {})

    @property
    def commands(self) -> list[str]:
        """Lines that the runner would take as commands: blanks before them do not count, stopped ones do not either."""
        found, stopped = [], ""
        for line in self.log.splitlines():
            text = line.strip()
            if stopped:
                stopped = "" if text == f"::{stopped}::" else stopped
            elif text.startswith("::stop-commands::"):
                stopped = text.removeprefix("::stop-commands::")
            elif text.startswith("::") or "##[" in text:
                found.append(text)
        return found


class Runner:
    """A checkout of a pull request's merge commit, and what a runner gives its steps."""

    def __init__(self, tmp_path: Path) -> None:
        self.tmp = tmp_path
        self.origin, self.workspace, self.temp = (tmp_path / name for name in ("origin", "workspace", "temp"))
        for folder in (self.origin, self.temp, tmp_path / "home"):
            folder.mkdir()
        self.environ = {
            "PATH": os.environ["PATH"], "HOME": str(tmp_path / "home"), "GIT_CONFIG_NOSYSTEM": "1", "LANG": "C",
        }  # fmt: skip
        self.git("init", "--quiet", "--initial-branch=main")
        self.base = self.commit(MANIFEST % (6 * GIB))
        self.event: dict[str, Any] = {}
        self.name = "pull_request"

    def git(self, *words: str, cwd: Path | None = None) -> str:
        identity = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
        place = cwd or self.origin
        result = subprocess.run(
            ["git", *identity, *words], cwd=place, env=self.environ, capture_output=True, text=True, check=True
        )
        return result.stdout.strip()

    def commit(self, text: str, **files: str) -> str:
        for name, words in {"pod.yaml": text, **files}.items():
            (self.origin / name).parent.mkdir(parents=True, exist_ok=True)
            (self.origin / name).write_text(words)
        self.git("add", "--all", "--force")
        self.git("commit", "--quiet", "--allow-empty", "-m", "x")
        return self.git("rev-parse", "HEAD")

    def open_pull_request(self, text: str, *, depth: int = 1, **files: str) -> None:
        """What actions/checkout does for a pull request: the merge commit, at a depth."""
        self.git("checkout", "--quiet", "-b", "topic")
        head = self.commit(text, **files)
        self.git("checkout", "--quiet", "main")
        self.git("merge", "--quiet", "--no-ff", "--no-edit", "topic")
        merge = self.git("rev-parse", "HEAD")
        self.git("reset", "--quiet", "--hard", self.base)
        self.git("update-ref", "refs/pull/12/merge", merge)
        source = {"sha": head, "repo": {"full_name": "o/r"}}
        self.event = {"number": 12, "pull_request": {"base": {"sha": self.base}, "head": source, "labels": []}}
        self.check_out(merge, depth)

    def check_out(self, commit: str, depth: int) -> None:
        self.workspace.mkdir()
        self.git("init", "--quiet", cwd=self.workspace)
        self.git("remote", "add", "origin", f"file://{self.origin}", cwd=self.workspace)
        self.git("fetch", "--quiet", "--no-tags", f"--depth={depth}", "origin", commit, cwd=self.workspace)
        self.git("checkout", "--quiet", "--detach", "FETCH_HEAD", cwd=self.workspace)

    def __call__(self, steps: tuple[str, ...] = ("Fetch the base", "kvgate", "Verdict"), **inputs: str) -> Result:
        """Run the named steps of the action with inputs (a dash is an underscore here)."""
        action = yaml.safe_load(ACTION.read_text(encoding="utf-8"))
        values = {name: str(spec["default"]) for name, spec in action["inputs"].items()}
        values |= {name.replace("_", "-"): value for name, value in inputs.items()}
        result = Result(0, "", {"install": {"python": sys.executable}, "python": {"python-path": sys.executable}})
        for step in action["runs"]["steps"]:
            if step.get("name") not in steps or "run" not in step:
                continue
            process = self.start(step, values, result)
            result.log += process.communicate(timeout=120)[0]
            pairs = (line.partition("=") for line in (self.temp / "output").read_text().splitlines())
            result.outputs[step.get("id", step["name"])] = {name: value for name, _, value in pairs}
            result.code = process.returncode
            if result.code:
                break
        return result

    def start(self, step: dict[str, Any], inputs: dict[str, str], result: Result) -> subprocess.Popen[str]:
        """A step as the runner starts it: a shell that ends by the first failure."""
        event, output = self.tmp / "event.json", self.temp / "output"
        event.write_text(json.dumps(self.event))
        output.write_text("")
        environment = {name: self.expand(text, inputs, result) for name, text in step.get("env", {}).items()}
        return subprocess.Popen(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]], cwd=self.workspace,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, encoding="utf-8",
            env={
                **self.environ, "CI": "true", "GITHUB_ACTIONS": "true", "GITHUB_ACTION_PATH": str(ROOT),
                "GITHUB_EVENT_NAME": self.name, "GITHUB_EVENT_PATH": str(event), "GITHUB_REPOSITORY": "o/r",
                "GITHUB_WORKSPACE": str(self.workspace), "GITHUB_OUTPUT": str(output),
                "GITHUB_STEP_SUMMARY": str(self.temp / "summary.md"), "GITHUB_API_URL": "http://127.0.0.1:9",
                "RUNNER_TEMP": str(self.temp), **environment,
            },
        )  # fmt: skip

    def expand(self, text: str, inputs: dict[str, str], result: Result) -> str:
        """An expression of the action as GitHub evaluates it: only plain references are written there."""

        def value(match: re.Match[str]) -> str:
            path = match[1].split(".")
            match path:
                case ["inputs", name]:
                    return inputs[name]
                case ["steps", step, "outputs", name]:
                    return result.outputs.get(step, {}).get(name, "")
                case ["github", "event", *keys]:
                    found: Any = self.event
                    for key in keys:
                        found = (found or {}).get(key)
                    return str(found or "")
                case _:
                    raise AssertionError(f"no plain reference: {match[0]}")

        return re.sub(r"\$\{\{\s*([\w.-]+)\s*\}\}", value, text)


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    return Runner(tmp_path.resolve())


# -- what it does --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [1, 2])
def test_a_pull_request_that_takes_capacity(runner, depth):
    runner.open_pull_request(MANIFEST % (3 * GIB), depth=depth)
    result = runner(comment="off", token="")
    assert result.code == 1
    assert (f"fetched {runner.base}" in result.log) == (depth == 1)
    assert result.run["gate"] == "fail"
    data = json.loads(Path(result.run["capacity"]).read_text())
    assert data["schema"] == "kvgate.diff/1"
    assert data["base"]["commit"] == runner.base
    assert result.run["findings"] == str(len(data["findings"]["new"]))
    assert json.loads(Path(result.run["sarif"]).read_text())["version"] == "2.1.0"
    assert "the gate is closed" in (runner.temp / "summary.md").read_text()
    assert any(line.startswith("::error file=pod.yaml,line=9") for line in result.commands)


def test_a_pull_request_that_takes_none(runner):
    runner.open_pull_request(MANIFEST % (6 * GIB), other="x")
    result = runner(comment="off", token="", sarif="false", summary="false")
    assert (result.code, result.run["gate"], result.run["sarif"]) == (0, "pass", "")
    assert not (runner.temp / "summary.md").exists()
    assert result.commands == ["::group::kvgate", "::endgroup::"]


def test_a_comment_that_cannot_be_written_costs_nothing(runner):
    """Nobody answers at the API's address here, as nobody lets a fork's token write."""
    runner.open_pull_request(MANIFEST % (6 * GIB))
    result = runner(token="ghs_secret", **{"fail-on": "error"})
    assert result.code == 0
    assert "ghs_secret" not in result.log


def test_a_merge_group_and_a_push(runner):
    head = runner.commit(MANIFEST % (3 * GIB))
    runner.check_out(head, 1)
    for name, event in (
        ("merge_group", {"merge_group": {"base_sha": runner.base, "head_sha": head}}),
        ("push", {"before": runner.base, "after": head}),
    ):
        runner.name, runner.event = name, event
        result = runner(token="", sarif="false")
        assert (result.code, result.run["gate"]) == (1, "fail"), name


def test_a_new_branch_without_a_base_says_what_to_fetch(runner):
    runner.check_out(runner.base, 1)
    runner.name, runner.event = "push", {"before": "0" * 40, "repository": {"default_branch": "main"}}
    result = runner(token="", sarif="false")
    assert result.code == 2
    assert "fetch-depth: 0" in result.log


def test_a_schedule_has_nothing_to_compare_with(runner):
    runner.check_out(runner.base, 1)
    runner.name = "schedule"
    result = runner(token="")
    assert (result.code, result.run["gate"]) == (0, "none")
    assert json.loads(Path(result.run["capacity"]).read_text())["schema"] == "kvgate.report/1"


def test_inputs_reach_kvgate(runner):
    runner.open_pull_request(MANIFEST % (3 * GIB))
    result = runner(
        comment="off", token="", paths="\n  pod.yaml\n\n", gpu="RTX 4090", vllm_version="0.19.1", fail_on="never"
    )
    assert (result.code, result.run["gate"]) == (0, "fail")
    (unit,) = json.loads(Path(result.run["capacity"]).read_text())["units"]
    assert unit["head"]["gpu"] == "NVIDIA GeForce RTX 4090"


# -- harm ----------------------------------------------------------------------------------------------------------

HOSTILE = [
    "$(touch PWNED)",
    "`touch PWNED`",
    '"; touch PWNED; "',
    "'; touch PWNED #",
    "${{ github.token }}",
    "--fail-on=never",
    "--output=PWNED",
    "-h",
    "a\ntouch PWNED",
    "x\n::set-env name=X::y",
    "::error::x",
    "x\ngate=pass",
    "../../etc/passwd",
    "\\",
    "%0A::error::x",
    "\x1b]0;x\x07",
]


@pytest.mark.parametrize(
    "name", ["paths", "config", "base", "fail_on", "gpu", "vllm_version", "comment", "sarif", "summary"]
)
def test_inputs_are_data(runner, name):
    runner.open_pull_request(MANIFEST % (3 * GIB))
    before = sorted(path.name for path in runner.workspace.iterdir())
    for value in HOSTILE:
        result = runner(**{"comment": "off", "token": "", "sarif": "false", "summary": "false", name: value})
        assert result.code in (1, 2), (value, result.log)
        assert result.run.get("gate", "fail") in ("fail", "none"), value
        assert sorted(path.name for path in runner.workspace.iterdir()) == before, value
        assert not list(runner.tmp.rglob("PWNED")), value
        for command in result.commands:
            assert re.match(
                r"::(?:error (?:file=pod\.yaml|title=kvgate)|warning file=|notice file=|group::|endgroup::)", command
            )
        assert "Traceback" not in result.log, result.log


def test_what_stands_in_the_tree_is_no_command(runner):
    words = "::add-mask::x %0A::error::y\\n::stop-commands::z ${{ secrets.X }} $(touch PWNED)"
    text = (MANIFEST % (3 * GIB)).replace("{name: chat}", f'{{name: "{words}"}}')
    other = (MANIFEST % GIB).replace("[--model", f'["--{words}", --model').replace("vllm/vllm", f"{words}/vllm")
    broken = "kind: Deployment\n  vllm: [serve\n"
    runner.open_pull_request(text, **{"::error::name.yaml": broken, "other.yaml": other})
    result = runner(comment="off", token="", sarif="false")
    assert result.code == 1
    for command in result.commands:
        assert re.match(r"::(?:error file=|warning file=|notice file=|group::kvgate$|endgroup::$)", command), command
    assert not list(runner.tmp.rglob("PWNED"))


def test_nothing_of_the_checkout_is_imported_or_run(runner):
    evil = "import pathlib; pathlib.Path(__file__).with_name('PWNED').touch(); raise SystemExit(0)\n"
    names = ("kvgate.py", "yaml.py", "json.py", "github.py", "pip.py", "venv.py", "sitecustomize.py", "re.py")
    runner.open_pull_request(MANIFEST % (3 * GIB), **dict.fromkeys(names, evil), git="#!/bin/sh\ntouch PWNED\n")
    for name in ("git", "kvgate.py"):
        (runner.workspace / name).chmod(0o755)
    runner.environ["PATH"] = f".:{runner.environ['PATH']}"
    result = runner(comment="off", token="", sarif="false")
    assert (result.code, result.run["gate"]) == (1, "fail")
    assert not (runner.workspace / "PWNED").exists()


def test_a_choice_that_is_none_is_said(runner):
    runner.open_pull_request(MANIFEST % (6 * GIB))
    result = runner(comment="off", token="", fail_on="everything")
    assert result.code == 2
    assert "fail-on: one of error, warning, info, never expected, got 'everything'" in result.log


# -- smoke ---------------------------------------------------------------------------------------------------------

FAKE = ROOT / "tests" / "smoke" / "fake_vllm.py"
POD = """\
apiVersion: v1
kind: Pod
metadata:
  name: tiny
  annotations: {kvgate.dev/prompt-tokens: "7500", kvgate.dev/output-tokens: "1000", kvgate.dev/peak-concurrency: "20"}
spec:
  containers:
    - name: vllm
      image: vllm/vllm-openai-cpu:v0.32.0
      args:
        [--model=/models/tiny, --dtype=float32, --enforce-eager, --block-size=32, --num-gpu-blocks-override=1280]
      env: [{name: VLLM_CPU_KVCACHE_SPACE, value: "1"}]
"""
TREE = {
    "kvgate.yaml": "version: 1\nmodels: {/models/tiny: tiny}\nsmoke: {allow: {models: [tiny]}}\n",
    "tiny/config.json": json.dumps(
        {
            "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 128, "intermediate_size": 256,
            "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
            "vocab_size": 512, "max_position_embeddings": 16384, "torch_dtype": "float32", "hidden_act": "silu",
        }
    ),
}  # fmt: skip
needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are looked up in /proc")


class SmokeRunner(Runner):
    """A pull request of the repository's own people, and a machine whose python3 is the fake vLLM."""

    def __init__(self, tmp_path: Path, text: str = POD, **files: str) -> None:
        super().__init__(tmp_path)
        self.pids = self.tmp / "pids"
        self.environ["VLLM_FAKE_PIDS"] = str(self.pids)
        self.open_pull_request(text, **{**TREE, **files})

    def smoke(self, **inputs: str) -> Result:
        given = {
            "mode": "smoke",
            "paths": "pod.yaml",
            "python": str(FAKE),
            "smoke_options": "--requests=4",
            "token": "",
        }
        return self(**{**given, **inputs})

    @property
    def started(self) -> list[int]:
        return [int(line) for line in self.pids.read_text().split()] if self.pids.exists() else []


@pytest.fixture
def machine(tmp_path: Path) -> SmokeRunner:
    return SmokeRunner(tmp_path.resolve())


def evidence(result: Result) -> dict[str, Path]:
    return {path.name: path for path in Path(result.run["evidence"]).iterdir()}


@needs_proc
def test_a_server_that_does_as_predicted(machine):
    result = machine.smoke()
    assert (result.code, result.run["verdict"], result.run["gate"]) == (0, "holds", "none"), result.log
    kept = evidence(result)
    assert sorted(kept) == ["server.log", "verdict.json", "verdict.md", "verdict.txt"]
    assert json.loads(kept["verdict.json"].read_text())["schema"] == "kvgate.smoke/1"
    assert "CPU KV cache size: 40,960 tokens" in kept["server.log"].read_text()
    assert kept["verdict.md"].read_text() in (machine.temp / "summary.md").read_text()
    assert kept["verdict.txt"].read_text() in result.log
    assert result.commands == ["::group::kvgate", "::endgroup::"]
    assert "fetched" not in result.log, "there is nothing to compare with"


@needs_proc
@pytest.mark.parametrize(
    ("variables", "verdict", "words"),
    [
        (
            {"VLLM_FAKE_BLOCKS": "640"},
            "contradicted",
            "the pool has 640 blocks, predicted 1,280 from the arguments alone",
        ),
        ({"VLLM_FAKE_MODE": "exit"}, "refused", "the server ended by itself: exit code 3 before it was ready"),
    ],
)
def test_a_server_that_does_not_closes_the_gate(machine, variables, verdict, words):
    machine.environ |= variables
    result = machine.smoke()
    assert (result.code, result.run["verdict"]) == (1, verdict)
    assert f"::error title=kvgate::{words}" in result.commands
    assert "server.log" in evidence(result)


@needs_proc
def test_a_run_that_cannot_be_made(machine):
    result = machine.smoke(python="/nowhere/python")
    assert (result.code, result.run["verdict"], result.run["evidence"]) == (2, "", "")
    assert "/nowhere/python: cannot be started" in result.log
    assert "::error title=kvgate::the smoke run could not be made; the log says why" in result.commands


def pull_request(name: str | None) -> dict[str, Any]:
    return {"pull_request": {"head": {"repo": name and {"full_name": name}}}}


FORKS = {
    "pull_request": pull_request("someone/r"),
    "pull_request_target": pull_request("someone/r"),
    "deleted": pull_request(None),
    "nothing said": {"pull_request": {}},
    "pull_request_review_comment": {"comment": {}, **pull_request("someone/r")},
    "workflow_run": {"workflow_run": {"head_repository": {"full_name": "someone/r"}}},
    "issue_comment": {"issue": {"pull_request": {"url": "x"}}},
}


@pytest.mark.parametrize("event", FORKS.values(), ids=list(FORKS))
def test_forks_are_refused(machine, event):
    machine.event = event
    result = machine.smoke()
    assert result.code == 2
    assert result.commands[0].startswith("::error title=kvgate::refused: ")
    assert machine.started == []


@needs_proc
@pytest.mark.parametrize(
    "event",
    [pull_request("o/r"), {"workflow_run": {"head_repository": {"full_name": "o/r"}}}, {"issue": {}}, {"ref": "x"}],
)
def test_what_the_repositorys_own_people_start_runs(machine, event):
    machine.event = event
    result = machine.smoke(smoke_options="--no-load")
    assert (result.code, result.run["verdict"]) == (0, "holds"), result.log


@needs_proc
@pytest.mark.parametrize("name", ["mode", "paths", "config", "gpu", "unit", "python", "url", "smoke_options"])
def test_inputs_of_a_smoke_run_are_data(machine, name):
    before = sorted(path.name for path in machine.workspace.iterdir())
    for value in HOSTILE:
        result = machine.smoke(**{"smoke_options": "--no-load", name: value})
        assert result.code == 2, (value, result.log)
        assert result.run.get("verdict", "") == ""
        assert sorted(path.name for path in machine.workspace.iterdir()) == before, value
        assert not list(machine.tmp.rglob("PWNED")), value
        for command in result.commands:
            assert re.match(r"::(?:error title=kvgate::|group::kvgate$|endgroup::$)", command), command
        assert "Traceback" not in result.log, result.log
    assert machine.started == []


@pytest.mark.parametrize("option", ["--keep-log=x", "--output=x", "--format=text", "--python=x", "-v", "x", "--url=x"])
def test_options_that_have_inputs_or_say_where_evidence_goes_are_refused(machine, option):
    result = machine.smoke(smoke_options=f"--no-load\n{option}")
    assert result.code == 2
    assert result.commands[0].startswith("::error title=kvgate::smoke-options: one of --model, ")


@needs_proc
def test_what_stands_in_the_manifest_of_a_smoke_run_is_no_command(tmp_path):
    words = "::error::y ##[error]z ::stop-commands::z %0A::error::x $(touch PWNED)"
    args = "[--model=/models/tiny,"
    text = POD.replace("name: tiny\n", f'name: "{words}"\n')
    text = text.replace(args, f'{args} "--chat-template={words}", "--::error::x=1",')
    text = text.replace('value: "1"}', f'value: "1"}}, {{name: "::error::V", value: "{words}"}}')
    machine = SmokeRunner(tmp_path.resolve(), text)
    result = machine.smoke(smoke_options="--no-load")
    assert result.code in (0, 1), result.log
    for command in result.commands:
        assert re.match(r"::(?:error title=kvgate::|group::kvgate$|endgroup::$)", command), command
    assert not list(machine.tmp.rglob("PWNED"))


@needs_proc
def test_nothing_of_the_checkout_is_imported_or_run_in_a_smoke_run(tmp_path):
    evil = "import pathlib; pathlib.Path(__file__).with_name('PWNED').touch(); raise SystemExit(0)\n"
    names = ("kvgate/__init__.py", "kvgate/smoke/__init__.py", "json.py", "httpx.py", "shutil.py", "sitecustomize.py",
             "vllm/__init__.py", "signal.py")  # fmt: skip
    machine = SmokeRunner(tmp_path.resolve(), **dict.fromkeys(names, evil))
    result = machine.smoke(smoke_options="--no-load")
    assert (result.code, result.run["verdict"]) == (0, "holds"), result.log
    assert not list(machine.workspace.rglob("PWNED"))


@needs_proc
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_cancelled_job_leaves_nothing(machine, number):
    machine.environ["VLLM_FAKE_MODE"] = "hang"
    action = yaml.safe_load(ACTION.read_text(encoding="utf-8"))
    step = next(step for step in action["runs"]["steps"] if step.get("id") == "run")
    inputs = {name: str(spec["default"]) for name, spec in action["inputs"].items()}
    inputs |= {"mode": "smoke", "paths": "pod.yaml", "python": str(FAKE), "token": ""}
    outputs = Result(0, "", {"install": {"python": sys.executable}})
    process = machine.start(step, inputs, outputs)
    deadline = time.monotonic() + 60
    while not machine.started and time.monotonic() < deadline:
        time.sleep(0.05)
    (server,) = machine.started
    process.send_signal(number)  # to the process that the runner started, and to no other
    log = process.communicate(timeout=60)[0]
    assert process.returncode == 0, log
    output = (machine.temp / "output").read_text()
    assert "code=130" in output
    assert not Path(f"/proc/{server}").exists()


# -- how it is written ---------------------------------------------------------------------------------------------

FILES = [ACTION, *sorted((ROOT / ".github" / "workflows").glob("*.yml"))]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_actions_are_pinned_and_nothing_is_pasted_into_scripts(path):
    text = path.read_text(encoding="utf-8")
    for line in re.findall(r"^\s*(?:- )?uses: (.+)$", text, re.MULTILINE):
        assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line) or line.startswith(
            ("./ #", "./.kvgate-action #")
        ), line
    assert "pull_request_target" not in text
    data = yaml.safe_load(text)
    jobs = data["jobs"].values() if "jobs" in data else [data["runs"]]
    scripts = [step["run"] for job in jobs for step in job["steps"] if "run" in step]
    assert scripts
    assert not any("${{" in script for script in scripts)
    if "jobs" in data:
        assert data["permissions"] == {}
        assert all("permissions" in job for job in data["jobs"].values())


def test_the_token_that_can_publish_is_in_a_job_of_its_own():
    jobs = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8"))["jobs"]
    holders = [name for name, job in jobs.items() if "id-token" in job["permissions"]]
    assert holders == ["publish"]
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert not any("run" in step for step in jobs["publish"]["steps"])


def test_every_requirement_has_hashes():
    text = (ROOT / ".github/requirements.txt").read_text(encoding="utf-8")
    blocks = re.split(r"\n(?=\S)", text.strip())
    assert len(blocks) > 30
    assert all(re.match(r"[a-z0-9-]+==\S+", block) and "--hash=sha256:" in block for block in blocks)
    assert "http" not in text.replace("httpcore", "").replace("httpx", "")


def test_the_requirements_are_those_of_the_project():
    import tomllib

    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    text = (ROOT / ".github/requirements.txt").read_text(encoding="utf-8")
    pinned = dict(re.findall(r"^([a-z0-9-]+)==([^\s;\\]+)", text, re.MULTILINE))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    needed = [*project["project"]["dependencies"], *project["project"]["optional-dependencies"]["github"]]
    for requirement in map(Requirement, [*needed, *project["build-system"]["requires"]]):
        assert requirement.specifier.contains(pinned[canonicalize_name(requirement.name)]), requirement


@pytest.mark.packaging
@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_the_install_step_in_a_clean_environment(runner):
    """From the action's own checkout, by its hashes, away from the workspace; then the rest of the steps with it."""
    evil = "raise SystemExit('imported')\n"
    runner.open_pull_request(MANIFEST % (3 * GIB), **{"pip.py": evil, "venv.py": evil, "setup.py": evil})
    runner.environ |= {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_"))}
    result = runner(("Install kvgate",))
    assert result.code == 0, result.log
    python = result.outputs["install"]["python"]
    shown = subprocess.run([python, "-I", "-m", "kvgate", "--version"], capture_output=True, text=True, check=True)
    assert shown.stdout.startswith("kvgate ")
    code = "import github, kvgate; print(kvgate.__file__)"
    imported = subprocess.run([python, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert str(runner.temp) in imported.stdout


# -- the reusable workflow -----------------------------------------------------------------------------------------

WORKFLOW = ROOT / ".github" / "workflows" / "smoke.yml"


def script_of(job: str, name: str | None) -> str:
    """The script of a step; of the only one where it has no name."""
    steps = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))["jobs"][job]["steps"]
    (script,) = [step["run"] for step in steps if "run" in step and step.get("name") == name]
    return script


def bash(script: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script], cwd=cwd, capture_output=True, text=True,
        env={"PATH": os.environ["PATH"], "GITHUB_REPOSITORY": "o/r", **environment}, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("change", "source", "code"),
    [("", "", 0), ("12", "o/r", 0), ("12", "someone/r", 2), ("12", "", 2), ("12", "o/r/../x", 2)],
)
def test_the_machine_is_not_even_asked_for_a_fork(tmp_path, change, source, code):
    done = bash(script_of("admit", None), tmp_path, CHANGE=change, SOURCE=source)
    assert done.returncode == code
    assert ("::error title=kvgate::refused" in done.stdout) == (code == 2)


def test_the_smoke_job_waits_for_admission_and_protection():
    jobs = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))["jobs"]
    assert (jobs["admit"]["permissions"], jobs["smoke"]["permissions"]) == ({}, {"contents": "read"})
    assert jobs["smoke"]["needs"] == "admit"
    assert "if" not in jobs["smoke"], "a condition of its own would run it without admission"
    assert jobs["smoke"]["environment"] == "${{ inputs.environment }}"


def test_a_tree_cannot_stand_where_the_action_is_put(tmp_path):
    script = script_of("smoke", "Room for the action")
    assert bash(script, tmp_path).returncode == 0
    (tmp_path / ".kvgate-action").symlink_to("nowhere")
    assert bash(script, tmp_path).returncode == 2


@pytest.mark.parametrize(
    "version", ["0.19.1; touch PWNED", "$(touch PWNED)", "x @ file:///y", "0.19.1 --index-url=x", ">=1"]
)
def test_only_a_release_is_installed(tmp_path, version):
    done = bash(
        script_of("smoke", "Install vLLM"), tmp_path, VERSION=version, PYTHON="touch", RUNNER_TEMP=str(tmp_path)
    )
    assert (done.returncode, list(tmp_path.iterdir())) == (2, [])


def test_the_workflow_hands_every_input_on():
    """An input that is declared and reaches nothing would be a promise broken in silence."""
    text = WORKFLOW.read_text(encoding="utf-8")
    workflow = yaml.safe_load(text)
    declared = workflow[True]["workflow_call"]["inputs"]  # YAML 1.1 reads the key `on` as true
    assert {name for name in declared if not re.search(rf"inputs\.{re.escape(name)}\b(?!-)", text)} == set()
    (step,) = [step for step in workflow["jobs"]["smoke"]["steps"] if step.get("id") == "kvgate"]
    assert set(step["with"]) <= set(yaml.safe_load(ACTION.read_text(encoding="utf-8"))["inputs"])
    assert all(spec.get("description") for spec in declared.values())
