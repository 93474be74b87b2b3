"""``kvgate init``: what it finds becomes a kvgate.yaml that works, and nothing that is there changes."""

from __future__ import annotations

import os
import re

import pytest
import yaml

from kvgate.config import read_config

COMPOSE = """\
services:
  llm:
    image: registry.example.com/vllm:prod
    command: --model /models/llama --max-model-len 8192
"""


@pytest.fixture
def found(repo):
    repo.write({"deploy/chat.yaml": repo.server(load={}), "compose.yaml": COMPOSE, ".github/CODEOWNERS": ""})
    return repo


def uncommented(text: str) -> str:
    """The file as it is once a person has filled every blank as shown."""
    return re.sub(r"(?m)^(\s*)# (?=(?:vllm_version|models|gpu|gpu_count|workload): ?|  )", r"\1", text)


def test_the_files_are_written_and_shown_as_a_diff(found):
    result = found.cli("init")
    assert result.returncode == 0
    assert result.stderr == (
        "kvgate.yaml: written\n.github/workflows/kvgate.yml: written\n.pre-commit-config.yaml: written\n"
    )
    for name in ("kvgate.yaml", ".github/workflows/kvgate.yml", ".pre-commit-config.yaml"):
        text = (found.root / name).read_text()
        assert f"--- /dev/null\n+++ b/{name}\n" in result.stdout
        assert "".join(f"+{line}\n" for line in text.splitlines()) in result.stdout
        assert yaml.safe_load(text)


def test_kvgate_yaml_names_the_units_and_the_blanks(found):
    found.cli("init")
    text = (found.root / "kvgate.yaml").read_text()
    config = read_config("kvgate.yaml", text.encode(), found.root)
    assert [unit.match.id for unit in config.units] == ["compose.yaml/llm", "Deployment/default/chat/vllm"]
    assert config.gate.on_unknown == "fail"
    assert "meta-llama/Llama-3.1-8B-Instruct, vLLM 0.19.1, NVIDIA GeForce RTX 4090" in text
    assert '#   "/models/llama": organisation/name' in text
    assert '# vllm_version: "0.19.1"  # the image does not say it' in text
    compose = text.partition("compose.yaml/llm")[2].partition("- match")[0]
    assert "# gpu: NVIDIA L4" in compose
    assert "# gpu:" not in text.partition("Deployment/default/chat")[2], "the manifest says it"
    assert text.count("# workload:") == 2
    assert found.cli("check", ".", "--fail-on", "never").returncode == 0


def test_every_blank_works_once_it_is_filled(found):
    found.cli("init")
    place = found.root / "kvgate.yaml"
    config = read_config("kvgate.yaml", uncommented(place.read_text()).encode(), found.root)
    assert config.vllm_version == "0.19.1"
    assert config.models == {"/models/llama": "organisation/name"}
    first, second = config.units
    assert (first.gpu, first.gpu_count, first.vllm_version, second.gpu) == ("NVIDIA L4", 1, "0.19.1", None)
    for unit in config.units:
        assert unit.workload is not None
        assert unit.workload.prompt_tokens is not None
        assert (unit.workload.peak_concurrency, unit.workload.prompt_tokens.p95) == (20, 7500)


def test_nothing_is_overwritten(found):
    mine = {
        "kvgate.yaml": "version: 1\n",
        ".pre-commit-config.yaml": "repos: []\n",
        ".github/workflows/kvgate.yml": "a: 1\n",
    }
    found.write(mine)
    result = found.cli("init")
    assert result.returncode == 0
    assert {name: (found.root / name).read_text() for name in mine} == mine
    assert "kvgate.yaml is there and stays as it is." in result.stdout
    assert ".pre-commit-config.yaml is there and stays as it is. To be added to it:\n    repos:\n" in result.stdout
    assert result.stderr == ""


@pytest.mark.parametrize("name", ["kvgate.yml", ".kvgate.yaml"])
def test_another_name_of_kvgate_yaml_counts_as_there(found, name):
    found.write({name: "version: 1\n"})
    found.cli("init")
    assert not (found.root / "kvgate.yaml").exists()


def test_a_second_run_writes_nothing(found):
    found.cli("init")
    before = {path: path.read_bytes() for path in found.root.rglob("*") if path.is_file() and ".git" not in path.parts}
    assert found.cli("init").stderr == ""
    after = {path: path.read_bytes() for path in found.root.rglob("*") if path.is_file() and ".git" not in path.parts}
    assert before == after


def test_a_dry_run_writes_nothing(found):
    result = found.cli("init", "--dry-run")
    assert "+++ b/kvgate.yaml" in result.stdout
    assert not (found.root / "kvgate.yaml").exists()
    assert result.stderr == ""


def test_it_is_written_to_the_root_of_the_repository(found):
    found.cli("init", cwd="deploy")
    assert (found.root / "kvgate.yaml").exists()
    assert not (found.root / "deploy" / "kvgate.yaml").exists()
    assert "deploy/chat.yaml:" in (found.root / "kvgate.yaml").read_text()


def test_gitlab(repo):
    repo.write({".gitlab-ci.yml": "stages: [test]\n", "compose.yaml": COMPOSE})
    result = repo.cli("init")
    assert (repo.root / ".gitlab-ci.yml").read_text() == "stages: [test]\n"
    shown = result.stdout.partition("# .gitlab-ci.yml is there and stays as it is. To be added to it:\n")[2]
    job = yaml.safe_load(shown.partition("\n\n---")[0].partition("\n\n#")[0])
    assert job["kvgate"]["artifacts"]["reports"] == {"codequality": "gl-code-quality-report.json"}
    assert all(isinstance(line, str) for line in job["kvgate"]["before_script"] + job["kvgate"]["script"])
    assert not (repo.root / ".github").exists()


def test_a_repository_without_servers(repo):
    repo.write({"README.md": "x"})
    assert repo.cli("init").returncode == 0
    assert read_config("kvgate.yaml", (repo.root / "kvgate.yaml").read_bytes(), repo.root).units == ()


def test_names_from_the_tree_stay_names(repo):
    name = 'x"\n    gate: {max_capacity_drop: 100%}\n  # ' + "\x1b[31m"
    text = repo.server(load={}).replace("  name: chat", "  name: " + yaml.safe_dump(name, width=10_000).strip("\n.- "))
    repo.write({"a.yaml": text.replace("  name: 'x", "  name: 'x")})
    repo.write({"b.yaml": repo.server(name='"q: {x} # y"', model='"a: b\\nunits: []"', load={})})
    repo.cli("init")
    place = repo.root / "kvgate.yaml"
    config = read_config("kvgate.yaml", place.read_bytes(), repo.root)
    assert config.gate.max_capacity_drop == 0
    assert len(config.units) >= 1
    assert "\x1b" not in place.read_text()


@pytest.mark.skipif(os.name == "nt", reason="links need a privilege on Windows")
def test_a_link_out_of_the_repository_is_not_followed(found, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (found.root / ".github" / "workflows").symlink_to(outside)
    result = found.cli("init")
    assert result.returncode == 2
    assert "a link that leads out of the repository" in result.stderr
    assert list(outside.iterdir()) == []


def test_a_path_that_does_not_exist(found):
    assert found.cli("init", "nowhere").returncode == 2
    assert not (found.root / "kvgate.yaml").exists()
