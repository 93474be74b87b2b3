"""Files that are named alone: they are read with the chart around them, and with what they refer to beside them."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from click.testing import CliRunner

from kvgate.cli import cli

TEMPLATE = """\
    apiVersion: apps/v1
    kind: Deployment
    metadata: {name: llm}
    spec:
      replicas: {{ .Values.replicas }}
      template:
        spec:
          containers:
            - name: vllm
              image: vllm/vllm-openai:v0.10.0
              args: {{ include "serving.args" . }}
              resources: {limits: {nvidia.com/gpu: {{ .Values.gpus }}}}
    """
FILES = {
    "c/Chart.yaml": "name: serving\nversion: 0.1.0\n",
    "c/values.yaml": "weights: org/small\nspan: 4096\ngpus: 1\nreplicas: 2\n",
    "c/values-prod.yaml": "weights: org/large\ngpus: 4\n",
    "c/templates/llm.yaml": TEMPLATE,
    "c/templates/more/names.tpl": (
        '{{ define "serving.args" }}["--model={{ .Values.weights }}", "--max-model-len={{ .Values.span }}"]{{ end }}'
    ),
    "c/templates/other.yaml": (
        "apiVersion: v1\nkind: Pod\nmetadata: {name: other}\nspec:\n  containers:\n"
        "  - {name: vllm, image: 'vllm/vllm-openai:v0.10.0', args: [--model, org/fixed]}\n"
    ),
}
OWN = ("c/templates/llm.yaml", "org/small", {"max_model_len": 4096}, 1)
PROD = ("c/values-prod.yaml", "org/large", {"max_model_len": 4096}, 4)


def write(root: Path, files: dict[str, str]) -> None:
    for path, text in files.items():
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(dedent(text))


def check(*words: str) -> Any:
    result = CliRunner().invoke(cli, ["check", "--format", "json", "-q", *words], catch_exceptions=False)
    return json.loads(result.stdout)


def servers(report: Any) -> list[tuple[str, str, dict[str, Any], int]]:
    return [(unit["path"], unit["model"], unit["args"], unit["gpu"]["count"]) for unit in report["units"]]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("c/values.yaml", [OWN]),
        ("c/values-prod.yaml", [PROD]),
        ("c/templates/llm.yaml", [OWN]),
        ("c/templates/more/names.tpl", [OWN]),  # the words of its server stand there
        ("c/templates/other.yaml", [("c/templates/other.yaml", "org/fixed", {}, 1)]),
        ("c/Chart.yaml", []),
    ],
)
def test_a_file_of_a_chart_named_alone_is_read_with_the_chart(
    root: Path, path: str, expected: list[tuple[str, str, dict[str, Any], int]]
) -> None:
    write(root, FILES)
    assert servers(check(path)) == expected


def test_a_file_named_alone_has_the_servers_that_it_has_in_its_folder(root: Path) -> None:
    write(root, FILES)
    whole = check("c")["units"]
    paths = ("c/values.yaml", "c/values-prod.yaml", "c/templates/other.yaml")
    alone = {unit["id"] for path in paths for unit in check(path)["units"]}
    assert alone == {unit["id"] for unit in whole}
    assert len(whole) == 3


def test_values_of_a_chart_below_another_one_are_handed_down(root: Path) -> None:
    inner = {f"above/charts/{path}": text for path, text in FILES.items() if "prod" not in path and "other" not in path}
    write(root, {**inner, "above/Chart.yaml": "name: above\n", "above/values.yaml": "serving: {weights: org/none}\n"})
    write(root, {"above/values.yaml": "c: {weights: org/handed}\n"})
    expected = [("above/charts/c/templates/llm.yaml", "org/handed", {"max_model_len": 4096}, 1)]
    assert servers(check("above/values.yaml")) == expected
    assert servers(check("above/charts/c/values.yaml")) == expected


def test_a_comment_in_a_file_around_switches_a_finding_off_there(root: Path) -> None:
    pinned = TEMPLATE.replace("vllm-openai:v0.10.0", "vllm-openai:latest")
    write(root, {**FILES, "c/templates/llm.yaml": pinned})
    rules = {(finding["rule"], finding["path"]) for finding in check("c/values.yaml")["findings"]}
    assert ("image-not-pinned", "c/templates/llm.yaml") in rules
    quiet = pinned.replace("vllm-openai:latest", "vllm-openai:latest # kvgate: ignore[image-not-pinned]")
    write(root, {"c/templates/llm.yaml": quiet})
    rules = {(finding["rule"], finding["path"]) for finding in check("c/values.yaml")["findings"]}
    assert not any(rule == "image-not-pinned" for rule, _ in rules)


POD = """\
    apiVersion: v1
    kind: Pod
    metadata: {name: llm}
    spec:
      containers:
        - name: vllm
          image: vllm/vllm-openai:v0.10.0
          args: ["--model=$(MODEL)"]
          env: [{name: MODEL, valueFrom: {configMapKeyRef: {name: serving, key: model}}}]
    """
MAP = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: serving}\ndata: {model: org/mapped}\n"
GENERATOR = "resources: [pod.yaml]\nconfigMapGenerator:\n- {name: serving, literals: [model=org/mapped]}\n"


@pytest.mark.parametrize("beside", [{"map.yaml": MAP}, {"kustomization.yaml": GENERATOR}])
def test_a_manifest_named_alone_is_read_with_the_config_maps_beside_it(root: Path, beside: dict[str, str]) -> None:
    write(root, {"k/pod.yaml": POD, **{f"k/{name}": text for name, text in beside.items()}})
    write(root, {"k/more.yaml": MAP + "---\n" + dedent(POD).replace("name: llm", "name: another")})
    assert [unit["model"] for unit in check("k/pod.yaml")["units"]] == ["org/mapped"]


def test_a_model_named_alone_is_read_with_its_runtime_beside_it(root: Path) -> None:
    runtime = """\
        apiVersion: serving.kserve.io/v1alpha1
        kind: ServingRuntime
        metadata: {name: vllm}
        spec:
          containers:
            - name: kserve-container
              image: vllm/vllm-openai:v0.10.0
              args: [--model=/mnt/models, --max-model-len=2048]
    """
    model = """\
        apiVersion: serving.kserve.io/v1beta1
        kind: InferenceService
        metadata: {name: m}
        spec:
          predictor:
            model: {modelFormat: {name: vLLM}, runtime: vllm, storageUri: hf://org/m, args: [--seed=1]}
    """
    write(root, {"k/runtime.yaml": runtime, "k/model.yaml": model})
    (alone,), (whole,) = check("k/model.yaml")["units"], check("k")["units"]
    assert alone == whole
    assert (alone["path"], alone["args"]["max_model_len"], alone["args"]["seed"]) == ("k/model.yaml", 2048, 1)


def test_what_lies_around_the_root_is_not_read(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(root, FILES)
    monkeypatch.chdir(root / "c" / "templates")
    (unit,) = check("llm.yaml")["units"]
    assert unit["model"] != "org/small"


def test_what_is_excluded_is_not_read_around_a_file(root: Path) -> None:
    write(root, {**FILES, "kvgate.yaml": "version: 1\nexclude: [names.tpl]\n"})
    assert "org/small" not in [unit["model"] for unit in check("c/values.yaml")["units"]]


def test_a_link_beside_a_file_is_not_followed_out_of_the_root(
    root: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (outside / "map.yaml").write_text(MAP)
    write(root, {"k/pod.yaml": POD})
    (root / "k" / "map.yaml").symlink_to(outside / "map.yaml")
    (unit,) = check("k/pod.yaml")["units"]
    assert unit["model"] != "org/mapped"
