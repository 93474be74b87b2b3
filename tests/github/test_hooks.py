"""The pre-commit hooks: what triggers them, and that they find faults in a repository of their own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
HOOKS = ROOT / ".pre-commit-hooks.yaml"

pytestmark = pytest.mark.skipif(not HOOKS.exists(), reason="the distribution does not carry the hooks")


@pytest.fixture(scope="module")
def hook():
    return hooks()["kvgate"]


def hooks():
    return {hook["id"]: hook for hook in yaml.safe_load(HOOKS.read_text(encoding="utf-8"))}


def test_it_reads_the_whole_repository_once(hook):
    assert (hook["id"], hook["entry"], hook["language"]) == ("kvgate", "kvgate check", "python")
    assert hook["pass_filenames"] is False
    assert hook["require_serial"] is True
    assert "types" not in hook


@pytest.mark.parametrize(
    "path",
    [
        "deploy/chat.yaml", "compose.yml", "values.yaml.j2", "a.yaml.tmpl", "task.json", "run.sh", "bin/start", "run",
        "Dockerfile", "docker/Dockerfile.gpu", "llm.dockerfile", "Containerfile", "Makefile", "justfile", "a.service",
        "vllm.container", "start.bat", "start.ps1", ".env", "deploy/.env", ".env.prod", "prod.env", "app/rag.py",
        "kvgate.yaml", ".kvgate.yml", ".kvgate/models/a__b/config.json", ".kvgate/rules/mine.yaml", "job.sbatch",
        "web/client.ts", "prometheus/alerts.rules", "prompts/rag.jinja", "log.jsonl", "nginx.conf", "pyproject.toml",
    ],
)  # fmt: skip
def test_what_can_change_a_verdict_triggers_it(hook, path):
    assert re.search(hook["files"], path)


def test_every_kind_of_file_that_is_read_triggers_it(hook):
    from kvgate.manifests.formats import format_of_name
    from kvgate.prompt_files import SUFFIXES
    from kvgate.ruleset.scene import BESIDE_SUFFIXES

    endings = re.findall(r"\.[a-z0-9]+", (ROOT / "kvgate/manifests/formats.py").read_text(encoding="utf-8"))
    read = {f"a{ending}" for ending in endings if format_of_name(f"a{ending}") is not None}
    assert len(read) > 10
    for name in (*read, *(f"a{suffix}" for suffix in SUFFIXES | BESIDE_SUFFIXES)):
        assert re.search(hook["files"], name), name


@pytest.mark.parametrize("path", ["README.md", "logo.png", "src/main.rs", "a.yaml.bak", "notes.txt", "x.lock", "a.pyc"])
def test_what_cannot_does_not(hook, path):
    assert not re.search(hook["files"], path)


def test_pre_commit_takes_the_hooks():
    """Its own schema; a key that it does not know is a warning, and an error here."""
    clientlib = pytest.importorskip("pre_commit.clientlib")
    assert [hook["id"] for hook in clientlib.load_manifest(str(HOOKS))] == ["kvgate", "kvgate-prompts"]


def test_the_hook_for_prompts_is_triggered_by_what_the_command_reads():
    from kvgate.prompt_files import SUFFIXES

    identify = pytest.importorskip("identify.identify")
    hook = hooks()["kvgate-prompts"]
    assert (hook["entry"], hook["pass_filenames"]) == ("kvgate prompts", False)
    # JSON lines have no type of their own
    for suffix in SUFFIXES - {".jsonl", ".ndjson"}:
        assert identify.tags_from_filename(f"a{suffix}") & set(hook["types_or"]), suffix


PROMPT = """\
from datetime import datetime

RULES = "You answer questions about trains, and you never invent a connection. " * 20


def build_messages(question):
    system = f"It is {datetime.now()}. {RULES}"
    return [{"role": "system", "content": system}, {"role": "user", "content": question}]
"""


@pytest.mark.packaging
@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="installs from the repository")
def test_pre_commit_finds_the_example_s_fault(tmp_path):
    """As a user has it: the repository as source of the hooks, installed by pip from a clone of it."""
    tree = tmp_path / "tree"
    shutil.copytree(ROOT / "tests" / "examples" / "deploy", tree / "deploy")
    (tree / "prompt.py").write_text(PROMPT, encoding="utf-8")
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("GIT_", "GITHUB_", "PYTEST", "COV", "HF_")) and name != "PYTHONPATH"
    }
    environ = {**kept, "PRE_COMMIT_HOME": str(tmp_path / "home"), "HF_HOME": str(tmp_path / "hub")}

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, cwd=tree, env=environ, capture_output=True, text=True, encoding="utf-8", check=False, timeout=600
        )

    head = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()
    source = f"file://{ROOT.as_posix()}"
    (tree / ".pre-commit-config.yaml").write_text(
        f"repos: [{{repo: '{source}', rev: {head}, hooks: [{{id: kvgate}}, {{id: kvgate-prompts}}]}}]\n"
    )
    assert run("git", "init", "--quiet").returncode == 0
    assert run("git", "add", ".").returncode == 0
    result = run(sys.executable, "-m", "pre_commit", "run", "--all-files", "--color=never")
    assert result.returncode == 1, result.stdout + result.stderr
    assert "error[peak-concurrency-exceeds-kv-cache]" in result.stdout
    assert "deploy/rag-chat.yaml" in result.stdout
    assert "prompt.py:7:" in result.stdout
    assert "warning[volatile-text-before-static-prefix]" in result.stdout
    (tree / "prompt.py").unlink()
    shutil.rmtree(tree / "deploy")
    run("git", "add", "--all")
    result = run(sys.executable, "-m", "pre_commit", "run", "--all-files", "--color=never")
    assert (result.returncode, "(no files to check)" in result.stdout or "Passed" in result.stdout) == (0, True)
