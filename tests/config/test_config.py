"""kvgate.yaml: every field, every error with its place, and the published schema saying the same as the reader."""

import json
from importlib.resources import files
from pathlib import Path

import jsonschema
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kvgate.config import ChartConfig, Config, ConfigError, find_config, load_config, read_config

FULL = """\
version: 1
vllm_version: "0.11.2"
gpu: NVIDIA L4
models: {/models/llama: meta-llama/Llama-3.1-8B-Instruct}
units:
  - match: {path: "deploy/rag/*.yaml", container: vllm}
    gpu: NVIDIA GeForce RTX 4090
    workload:
      peak_concurrency: 20
      prompt_tokens: {p95: 7500}
      output_tokens: 1000
      shared_prefix_tokens: 1500
      prompt: app/rag.py:build_messages
    min_sustained: 20
    gpu_count: 1
gate: {max_capacity_drop: 10%, on_unknown: warn}
smoke: {tolerance: 5%, allow: {trust_remote_code: [], env: [A], models: []}}
render: [helm]
charts: [{path: charts/llm, values: [values-prod.yaml], release: llm, namespace: ai}]
baseline: .kvgate/baseline.json
profile: all
rules: {image-not-pinned: off, max-model-len-as-capacity: {severity: error}, unknown-gpu: warning}
exclude: ["vendor/**"]
online: true
"""

SCHEMA = json.loads((files("kvgate") / "schemas" / "kvgate.config-1.json").read_text())


def read(text: str) -> Config:
    return read_config("kvgate.yaml", text.encode(), Path("/tree"))


def test_every_field() -> None:
    config = read(FULL)
    assert config.vllm_version == "0.11.2"
    assert config.gpu == "NVIDIA L4"
    assert config.models == {"/models/llama": "meta-llama/Llama-3.1-8B-Instruct"}
    (unit,) = config.units
    assert unit.gpu == "NVIDIA GeForce RTX 4090"
    assert unit.gpu_count == 1
    assert unit.min_sustained == 20
    assert unit.workload is not None
    assert unit.workload.peak_concurrency == 20
    assert unit.workload.prompt_tokens is not None
    assert unit.workload.prompt_tokens.p95 == 7500
    assert unit.workload.output_tokens is not None
    assert unit.workload.output_tokens.p95 == 1000, "a plain number is the 95th percentile"
    assert unit.workload.shared_prefix_tokens == 1500
    assert config.gate.max_capacity_drop == pytest.approx(0.1)
    assert config.gate.on_unknown == "warn"
    assert config.smoke.allow_env == ("A",)
    assert config.render == ("helm",)
    assert config.charts == (ChartConfig("charts/llm", ("values-prod.yaml",), "llm", "ai"),)
    assert config.rules["image-not-pinned"].off
    assert config.rules["max-model-len-as-capacity"].severity == "error"
    assert config.rules["unknown-gpu"].severity == "warning"
    assert config.online
    jsonschema.validate(yaml.safe_load(FULL), SCHEMA)


def test_an_empty_file_is_the_defaults() -> None:
    assert read("# nothing yet\n").profile == "recommended"


def test_only_a_mean_is_kept_apart() -> None:
    config = read("version: 1\nunits:\n  - workload: {prompt_tokens: {mean: 900}}\n")
    workload = config.units[0].workload
    assert workload is not None
    assert workload.prompt_tokens is not None
    assert (workload.prompt_tokens.p95, workload.prompt_tokens.mean) == (None, 900)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("version: 1\ngpus: L4\n", 'kvgate.yaml:2:1: unknown key "gpus" in kvgate.yaml, did you mean "gpu"?'),
        ("gpu: L4\n", 'kvgate.yaml:1:1: "version: 1" is missing'),
        ("version: 2\n", 'kvgate.yaml:1:10: version 1 is the only one known, got "2"'),
        (
            "version: 1\nvllm_version: 0.11\n",
            'kvgate.yaml:2:15: 0.11 is a number in YAML: quote it, as in "0.11"',
        ),
        (
            "version: 1\nvllm_version: latest\n",
            'kvgate.yaml:2:15: a vLLM release such as "0.11.2" expected, got "latest"',
        ),
        ("version: 1\nprofile: some\n", 'kvgate.yaml:2:10: one of recommended, all expected, got "some"'),
        ("version: 1\nunits: {}\n", "kvgate.yaml:2:8: a list expected, got a mapping"),
        (
            "version: 1\nunits:\n  - workload:\n      peak_concurrency: twenty\n",
            'kvgate.yaml:4:25: a whole number from 1 to 100,000,000 expected, got "twenty"',
        ),
        (
            "version: 1\nunits:\n- workload: {prompt_tokens: 100, shared_prefix_tokens: 200}\n",
            "kvgate.yaml:3:13: shared_prefix_tokens 200 is more than prompt_tokens 100, of which it is a part",
        ),
        ("version: 1\nbaseline: ../x.json\n", 'kvgate.yaml:2:11: "../x.json": a path inside the tree expected'),
        ("version: 1\nbaseline: /etc/passwd\n", 'kvgate.yaml:2:11: "/etc/passwd": a path inside the tree expected'),
        ("version: 1\ngate: {max_capacity_drop: 110%}\n", 'kvgate.yaml:2:27: a share such as 10% expected, got "110%"'),
        ("version: 1\nrules: {a: loud}\n", 'kvgate.yaml:2:12: one of error, warning, info, off expected, got "loud"'),
        ("version: 1\nversion: 1\n", 'kvgate.yaml:2:1: key "version" stands already in line 1'),
        ("version: 1\n---\nversion: 1\n", "kvgate.yaml:3:1: one document expected"),
        ("version: [1\n", "kvgate.yaml:1:12: while parsing a flow sequence: did not find expected ',' or ']'"),
    ],
)
def test_errors_have_a_place(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        read(text)
    assert str(error.value) == message


def test_not_utf8() -> None:
    with pytest.raises(ConfigError, match=r"kvgate\.yaml: not UTF-8: invalid start byte at byte 11"):
        read_config("kvgate.yaml", b"version: 1\n\xff", Path("/tree"))


def test_found_upwards_to_the_git_root_and_not_beyond(tmp_path: Path) -> None:
    inner = tmp_path / "repo" / "deploy" / "rag"
    inner.mkdir(parents=True)
    (tmp_path / "kvgate.yaml").write_text("version: 1\n")
    assert find_config(inner) == tmp_path / "kvgate.yaml"
    (tmp_path / "repo" / ".git").mkdir()
    assert find_config(inner) is None, "beyond the git root"
    (tmp_path / "repo" / "kvgate.yaml").write_text("version: 1\nonline: true\n")
    found = find_config(inner)
    assert found == tmp_path / "repo" / "kvgate.yaml"
    assert load_config(found).online


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("deploy/rag/*.yaml", "deploy/rag/a.yaml", True),
        ("deploy/rag/*.yaml", "x/deploy/rag/a.yaml", False),
        ("deploy/**", "deploy/a/b/c.yaml", True),
        ("**/vllm.yaml", "a/b/vllm.yaml", True),
        ("./deploy", "deploy/a.yaml", True),
    ],
)
def test_path_globs_are_relative_to_the_file(pattern: str, path: str, matches: bool) -> None:
    config = read(f"version: 1\nunits:\n- match: {{path: '{pattern}'}}\n  gpu: L4\n")
    found = config.unit(path=path, container=None, name="n", kind="Deployment", id="i")
    assert (found is not None) is matches


def test_the_first_match_wins() -> None:
    config = read("version: 1\nunits:\n- match: {container: vllm}\n  gpu: L4\n- gpu: T4\n")
    first = config.unit(path="a.yaml", container="vllm", name="n", kind="Pod", id="i")
    other = config.unit(path="a.yaml", container="x", name="n", kind="Pod", id="i")
    assert first is not None
    assert first.gpu == "L4"
    assert other is not None
    assert other.gpu == "T4"


_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 10**9)
    | st.sampled_from(["L4", "0.11.2", "10%", "fail", "all", "off", ""]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["p95", "mean", "match", "path", "workload", "prompt_tokens", "severity", "allow", "env", "x"]
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from([*SCHEMA["properties"], "other"]), _VALUES, max_size=4))
def test_reader_and_schema_agree(data: dict[str, object]) -> None:
    data = {"version": 1, **data} if data.get("version") != 1 else data
    data["version"] = 1
    text = yaml.safe_dump(data)
    accepted = jsonschema.Draft202012Validator(SCHEMA).is_valid(yaml.safe_load(text))
    refusal = ""
    try:
        read(text)
    except ConfigError as error:
        refusal = str(error)
    if refusal:
        # what a schema cannot say: shares as text, paths inside the tree, shared prefix within the prompt
        beyond = ("a share such as", "inside the tree", "shared_prefix_tokens", "release such as", "quote it")
        assert not accepted or any(words in refusal for words in beyond), refusal
    else:
        # the reader takes a number for a text, as YAML's writers expect (container: 1)
        assert accepted or any(isinstance(value, int) for value in _leaves(data)), text


def _leaves(value: object) -> list[object]:
    if isinstance(value, dict):
        return [leaf for inner in value.values() for leaf in _leaves(inner)]
    if isinstance(value, list):
        return [leaf for inner in value for leaf in _leaves(inner)]
    return [value]
