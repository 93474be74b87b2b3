"""``kvgate diff`` through the real command line: exit codes, formats as they are printed, and what they promise.

The pool is given (``--kv-cache-memory-bytes``), so that every figure is exact: 6 GiB hold 3,072 blocks of 2 MiB, a
request of 8,500 tokens takes 532 of them. The golden files are written anew with ``KVGATE_WRITE_GOLDEN=1``.
"""

from __future__ import annotations

import json
import os
import re
import xml.etree.ElementTree as ET
from functools import cache
from importlib.resources import files
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from referencing import Registry, Resource

HERE = Path(__file__).resolve().parent
SARIF = HERE.parent / "report" / "data" / "sarif-schema-2.1.0.json"
GIB = 2**30

# A rule with words of its own, so that the golden files do not follow the words of built-in ones.
RULE = """\
id: small-pool
title: A given pool below 4 GiB
family: mine
severity: error
confidence: high
status: stable
since: 0.1.0
when: args.kv_cache_memory_bytes != null && args.kv_cache_memory_bytes < 4294967296
at: arg:kv_cache_memory_bytes
message: "a pool of {args.kv_cache_memory_bytes:gib}"
remediation: Give it more.
why: A demonstration.
"""


def manifest(repo, gib: int, **options) -> str:
    args = ("--max-model-len=16384", f"--kv-cache-memory-bytes={gib * GIB}", *options.pop("more", ()))
    return repo.server(args=args, **options)


@pytest.fixture
def changed(repo):
    """Half the pool, a new name, a loosened policy, a server that goes and one that comes."""
    repo.commit(
        {
            "deploy/chat.yaml": manifest(repo, 6),
            "deploy/old.yaml": manifest(repo, 6, name="old", model="Qwen/Qwen2.5-7B-Instruct"),
            "deploy/same.yaml": manifest(repo, 6, name="same"),
            "kvgate.yaml": "version: 1\ngate: {max_capacity_drop: 10%}\n",
            ".kvgate/rules/small-pool.yaml": RULE,
        }
    )
    repo.commit(
        {
            "deploy/chat.yaml": manifest(repo, 3, more=("--served-model-name=chat",)),
            "deploy/old.yaml": None,
            "deploy/new.yaml": manifest(
                repo, 6, name="new", model="Qwen/Qwen2.5-0.5B-Instruct", image="vllm/vllm-openai:latest"
            ),
            "kvgate.yaml": "version: 1\ngate: {max_capacity_drop: 90%}\n",
        }
    )
    return repo


def diff(repo, *words, **environment):
    return repo.cli("diff", "--base", "HEAD~1", "--head", "HEAD", *words, **environment)


@cache
def validator() -> Draft202012Validator:
    folder = files("kvgate.report") / "schemas"
    schemas = {
        place.name: json.loads(place.read_text("utf-8")) for place in folder.iterdir() if place.name.endswith(".json")
    }
    registry: Registry = Registry().with_resources(
        (name, Resource.from_contents(schema)) for name, schema in schemas.items()
    )
    return Draft202012Validator(schemas["kvgate.diff-1.json"], registry=registry)


def without_predictions(text: str) -> str:
    """The JSON without each side's whole prediction, which has its own contract and tests."""
    data = json.loads(text)
    for unit in data["units"]:
        for side in ("base", "head"):
            if unit[side] is not None:
                del unit[side]["prediction"]
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def scrubbed(text: str) -> str:
    text = re.sub(r'("kvgate"|"version"|"semanticVersion"): "\d[^"]*"', r'\1: "@@VERSION@@"', text)
    text = text.replace('"version": "@@VERSION@@",\n  "runs"', '"version": "2.1.0",\n  "runs"')
    text = re.sub(r"\b[0-9a-f]{12} (\\?\(HEAD)", r"@@COMMIT@@ \1", text)
    return re.sub(r"\b[0-9a-f]{40}\b", "@@COMMIT@@", text)


@pytest.mark.parametrize(
    ("form", "name"),
    [
        ("text", "diff.txt"), ("json", "diff.json"), ("markdown", "diff.md"), ("github", "diff.github.txt"),
        ("gitlab", "diff.gitlab.json"), ("junit", "diff.junit.xml"), ("sarif", "diff.sarif"),
    ],
)  # fmt: skip
def test_every_format_as_it_is_printed(changed, form, name):
    result = diff(changed, "--format", form, "--select", "small-pool")
    assert result.returncode == 1
    shown = scrubbed(without_predictions(result.stdout) if form == "json" else result.stdout)
    golden = HERE / "golden" / name
    if os.environ.get("KVGATE_WRITE_GOLDEN"):
        golden.write_text(shown, encoding="utf-8")
    assert shown == golden.read_text(encoding="utf-8")


def test_the_words_on_stderr(changed):
    assert diff(changed).stderr == (
        "4 servers compared, 3 changed; 4 new (2 errors), 0 fixed, 0 unchanged findings; the gate is closed: 1 reason\n"
    )
    assert diff(changed, "-q").stderr == ""


def test_the_json_fits_its_schema(changed):
    data = json.loads(diff(changed, "--format", "json").stdout)
    assert [error.message for error in validator().iter_errors(data)] == []
    assert data["schema"] == "kvgate.diff/1"
    unit = data["units"][0]
    # (3072 - 1) // 532 = 5 and (1536 - 1) // 532 = 2, on each of two replicas
    assert (unit["base"]["capacity"]["requests"], unit["head"]["capacity"]["requests"]) == (10, 4)
    assert unit["change"] == pytest.approx(-0.6)
    data["gate"]["verdict"] = "perhaps"
    assert list(validator().iter_errors(data))


def test_sarif_is_valid_and_complete(changed):
    import jsonschema

    data = json.loads(diff(changed, "--format", "sarif").stdout)
    jsonschema.validate(data, json.loads(SARIF.read_text(encoding="utf-8")))
    (run,) = data["runs"]
    found = {result["ruleId"]: result for result in run["results"]}
    assert set(found) == {
        "capacity-drop", "unit-removed", "policy-changed-in-head", "image-not-pinned",
        "peak-concurrency-exceeds-kv-cache", "max-model-len-as-capacity", "small-pool",
    }  # fmt: skip
    assert set(found) <= {rule["id"] for rule in run["tool"]["driver"]["rules"]}
    assert found["capacity-drop"]["level"] == "error"
    assert list(found["capacity-drop"]["partialFingerprints"]) == ["kvgate/v1"]


def test_sarif_of_a_clean_comparison(repo):
    repo.commit({"a.yaml": manifest(repo, 6)})
    repo.commit({})
    result = diff(repo, "--format", "sarif")
    assert result.returncode == 0
    assert json.loads(result.stdout)["runs"][0]["results"] == []
    assert diff(repo, "--format", "github").stdout == ""
    assert json.loads(diff(repo, "--format", "gitlab").stdout) == []
    assert ET.fromstring(diff(repo, "--format", "junit").stdout).get("failures") == "0"


def test_every_format_has_the_same_exit_code(changed):
    for form in ("text", "json", "sarif", "github", "gitlab", "junit", "markdown"):
        assert diff(changed, "--format", form).returncode == 1, form
        assert diff(changed, "--format", form, "--fail-on", "never").returncode == 0, form


def test_what_makes_the_exit_code(repo):
    repo.commit({"a.yaml": manifest(repo, 6)})
    repo.commit({"a.yaml": manifest(repo, 6, image="vllm/vllm-openai:latest")})
    assert diff(repo).returncode == 0, "a warning"
    assert diff(repo, "--fail-on", "warning").returncode == 1
    repo.commit({"a.yaml": manifest(repo, 6, image="vllm/vllm-openai:latest", replicas=3)})
    assert diff(repo, "--fail-on", "warning").returncode == 0, "an old warning"


def test_select_does_not_switch_the_gate_off(changed):
    assert diff(changed, "--select", "image-not-pinned").returncode == 1
    assert "capacity-drop" in diff(changed, "--select", "image-not-pinned").stdout
    assert diff(changed, "--ignore", "capacity,mine,capacity-drop").returncode == 0


def test_the_working_tree_is_the_head(repo):
    repo.commit({"a.yaml": manifest(repo, 6)})
    repo.write({"a.yaml": manifest(repo, 3)})
    result = repo.cli("diff")
    assert result.returncode == 1
    assert "head: working tree, uncommitted changes included" in result.stdout
    assert "(merge base with main)" in result.stdout
    assert repo.cli("diff", "--head", "HEAD").returncode == 0


def test_nothing_to_compare(repo):
    repo.commit({"README.md": "x"})
    result = repo.cli("diff")
    assert result.returncode == 0
    assert "nothing to compare: no vLLM server found in either state" in result.stdout
    assert repo.cli("diff", "--strict").returncode == 1


def test_paths_are_limits_on_both_sides(changed):
    (unit,) = json.loads(diff(changed, "deploy/chat.yaml", "--format", "json").stdout)["units"]
    assert unit["id"] == "Deployment/default/chat/vllm"
    units = json.loads(diff(changed, "deploy/old.yaml", "--format", "json").stdout)["units"]
    assert [unit["match"] for unit in units] == ["removed"]


def test_a_subdirectory(changed):
    result = changed.cli("diff", "--base", "HEAD~1", "--head", "HEAD", "chat.yaml", "--format", "json", cwd="deploy")
    (unit,) = json.loads(result.stdout)["units"]
    assert unit["head"]["path"] == "deploy/chat.yaml", "relative to kvgate.yaml"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["nowhere"], "kvgate: nowhere: neither the base nor the head has such a file or directory"),
        (
            ["main"],
            "kvgate: main: neither the base nor the head has such a file or directory"
            " (a revision to compare with: --base main)\n",
        ),
        ([".."], "kvgate: ..: outside of the repository"),
        (["--base", "nosuch"], 'kvgate: the base "nosuch" is no commit of this repository'),
        (["--base", "--output=x"], 'kvgate: "--output=x" is no revision'),
        (["--head", "nosuch"], 'kvgate: "nosuch" is no commit of this repository'),
        (["--gpu", "Voodoo 2"], "kvgate: --gpu:"),
        (["--vllm-version", "soon"], "kvgate: --vllm-version:"),
        (["--baseline", "missing.json"], "kvgate: missing.json: neither the base nor the head has such a file"),
        (["--select", "nosuch"], "kvgate: --select: there is no rule or family"),
        (["--output", "no/folder/x"], "kvgate: no/folder/x: cannot be written"),
    ],
)
def test_usage_is_2_and_one_line(repo, words, line):
    repo.commit({"a.yaml": manifest(repo, 6)})
    result = repo.cli("diff", *words)
    assert result.returncode == 2, result
    assert result.stderr.startswith(line)
    assert (result.stderr.count("\n"), result.stdout) == (1, "")


def test_outside_of_a_repository_is_2(repo, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    result = repo.cli("diff", cwd="../outside")
    assert result.returncode == 2
    assert "is in no git working tree" in result.stderr


@pytest.mark.parametrize("side", ["base", "head"])
def test_a_wrong_kvgate_yaml_is_2(repo, side):
    wrong, right = "version: 1\nvllm_version: 0.11\n", "version: 1\n"
    first, second = (wrong, right) if side == "base" else (right, wrong)
    repo.commit({"a.yaml": manifest(repo, 6), "kvgate.yaml": first})
    repo.commit({"kvgate.yaml": second})
    result = diff(repo)
    assert result.returncode == 2
    assert result.stderr == (
        f'kvgate: in the {side}: kvgate.yaml:2:15: 0.11 is a number in YAML: quote it, as in "0.11"\n'
    )


def test_a_pull_request_by_its_environment(repo, tmp_path):
    """What the runner gives: the event's name, its payload in a file, the merge commit checked out."""
    base = repo.commit({"a.yaml": manifest(repo, 6)})
    repo.git("checkout", "--quiet", "-b", "topic")
    head = repo.commit({"a.yaml": manifest(repo, 3)})
    repo.git("checkout", "--quiet", "--detach", base)
    repo.git("merge", "--quiet", "--no-ff", "--no-edit", head)
    payload = {"number": 3, "pull_request": {"base": {"sha": base}, "head": {"sha": head}, "labels": []}}
    place = tmp_path / "event.json"
    environment = {"GITHUB_EVENT_NAME": "pull_request", "GITHUB_EVENT_PATH": str(place)}
    place.write_text(json.dumps(payload))
    result = repo.cli("diff", **environment)
    assert result.returncode == 1
    assert "(first parent of the merge commit of pull request 3)" in result.stdout
    payload["pull_request"]["labels"] = [{"name": "kvgate/accept-capacity-drop"}]
    place.write_text(json.dumps(payload))
    result = repo.cli("diff", **environment)
    assert result.returncode == 0
    assert 'the label "kvgate/accept-capacity-drop" accepts it' in result.stdout
    place.unlink()
    assert repo.cli("diff", **environment).returncode == 2


def test_nothing_of_the_temporary_folder_is_printed(changed, tmp_path):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    for form in ("text", "json", "markdown", "sarif"):
        result = diff(changed, "--format", form, "-v", TMPDIR=str(scratch))
        assert str(scratch) not in result.stdout + result.stderr
    assert list(scratch.iterdir()) == [], "and nothing is left in it"


# -- what the tree can write into a comment ------------------------------------------------------------------------

HOSTILE = (
    "@everyone #1 GH-2 <img src=x onerror=alert(1)> [x](http://e.vil) `x` | $(id) ${{ x }} ::error::x https://e.vil"
)


def test_nothing_from_the_tree_is_markup_or_a_mention(repo):
    args = ("--max-model-len=16384", f"--kv-cache-memory-bytes={6 * GIB}", f"'--max-modle-len={HOSTILE}'")
    repo.commit({"a.yaml": manifest(repo, 6), "b.yaml": manifest(repo, 6, name="b")})
    text = repo.server(args=args, image=f"'{HOSTILE}'").replace("name: chat", f"name: '{HOSTILE}'")
    repo.commit({"a.yaml": text, "b.yaml": None})
    shown = diff(repo, "--format", "markdown").stdout
    outside = re.sub(r"(`+)(?:.|\n)*?\1", "", shown)
    assert "everyone" in shown
    for text in ("@everyone", "#1", "GH-2", "<img", "](http", "://e.vil", "| $(id)"):
        assert text not in outside, text
    for line in diff(repo, "--format", "github").stdout.splitlines():
        assert line.startswith(("::error file=", "::warning file=", "::notice file=", "kvgate:"))


def test_a_comment_stays_below_github_s_limit(repo):
    names = [f"server-{number}" for number in range(120)]
    more = tuple(f"--no-such-flag-{number}=1" for number in range(3))
    repo.commit({"a.yaml": "---\n".join(manifest(repo, 6, name=name) for name in names)})
    repo.commit({"a.yaml": "---\n".join(manifest(repo, 3, name=name, more=more) for name in names)})
    shown = diff(repo, "--format", "markdown").stdout
    assert 40_000 < len(shown.encode()) < 65_536
    assert "left out, since GitHub limits the size" in shown
    assert shown.count("|---") > 0
    assert all(line.count("|") == 8 for line in shown.splitlines() if line.startswith("|") and "---" not in line)
    assert shown.count("<details>") == shown.count("</details>")


def test_the_comparison_s_own_rules_are_explained(repo):
    from kvgate.gate.rules import RULES

    for rule in RULES.values():
        shown = repo.cli("explain", rule.id).stdout
        assert shown.startswith(f"{rule.id}: {rule.title}\n")
        assert all(line == line.rstrip() and len(line) <= 110 for line in shown.splitlines())
        assert rule.remediation.endswith(".")


def test_long_names_are_cut_in_their_middle(repo):
    name = "a-very-long-name-" * 20
    repo.commit({"a.yaml": manifest(repo, 6, name=name)})
    repo.commit({"a.yaml": manifest(repo, 3, name=name)})
    row = next(line for line in diff(repo).stdout.splitlines() if line.startswith("Deployment/"))
    assert "…" in row
    assert len(row) <= 120
