"""Kustomize bases, overlays and patches, read without kustomize."""

from __future__ import annotations

from textwrap import dedent

from kvgate.manifests.read import read_tree
from kvgate.manifests.unit import ServeUnit
from kvgate.source.text import SourceFile

BASE = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: llm
spec:
  replicas: 1
  template:
    spec:
      nodeSelector: {gpu: l4}
      containers:
        - name: vllm
          image: vllm/vllm-openai
          command: [python3, -m, vllm.entrypoints.openai.api_server]
          args: [--model, $(MODEL)]
          env: [{name: MODEL, value: org/m}, {name: A, value: base}]
        - name: side
          image: nginx
"""
BASE_KUSTOMIZATION = "resources: [deployment.yaml]\nkind: Kustomization\n"


def units(**files: str) -> list[ServeUnit]:
    sources = [SourceFile(path, dedent(text)) for path, text in files.items()]
    return list(read_tree(sources).units)


def tree(overlay: str, **more: str) -> list[ServeUnit]:
    return units(
        **{
            "base/deployment.yaml": BASE,
            "base/kustomization.yaml": BASE_KUSTOMIZATION,
            "over/kustomization.yaml": overlay,
            **more,
        }
    )


def words(unit: ServeUnit) -> str:
    return " ".join(("?" if word.unresolved else "") + word.value for word in unit.words)


def test_a_patch_file_is_read_with_its_base() -> None:
    patch = """\
        apiVersion: apps/v1
        kind: Deployment
        metadata: {name: llm}
        spec:
          template:
            spec:
              containers:
                - name: vllm
                  args: [--model, $(MODEL), --max-model-len=1200]
                  env: [{name: A, value: over}]
        """
    overlay = "resources: [../base]\npatches:\n  - path: patch.yaml\nnamespace: prod\n"
    base, over = tree(overlay, **{"over/patch.yaml": patch})
    assert (base.id, base.path, words(base)) == ("Deployment/default/llm/vllm", "base/deployment.yaml", "--model org/m")
    assert (over.id, over.path, over.span.line) == ("Deployment/prod/llm/vllm", "over/patch.yaml", 8)
    assert words(over) == "--model org/m --max-model-len=1200"
    assert over.words[2].span.path == "over/patch.yaml"
    assert over.image is not None
    assert over.image.value == "vllm/vllm-openai"
    environment = {variable.name: variable.value.value for variable in over.environment if variable.value is not None}
    assert environment == {"MODEL": "org/m", "A": "over"}
    assert [(hint.key, hint.values) for hint in over.node_hints] == [("gpu", ("l4",))]


def test_a_patch_whose_base_is_elsewhere_is_read_for_itself() -> None:
    patch = """\
        apiVersion: apps/v1
        kind: Deployment
        metadata: {name: vllm-llm}
        spec: {template: {spec: {containers: [{name: c, args: [--model, m, --max-model-len, "8"]}]}}}
        """
    overlay = "kind: Kustomization\nresources: [https://x/y?ref=1]\npatchesStrategicMerge: [p.yaml]\n"
    (found,) = units(**{"over/kustomization.yaml": overlay, "over/p.yaml": patch})
    assert words(found) == "--model m --max-model-len 8"
    assert found.image is None


def test_an_inline_strategic_patch() -> None:
    overlay = """\
        apiVersion: kustomize.config.k8s.io/v1beta1
        kind: Kustomization
        resources: [../base]
        patches:
          - target: {kind: Deployment}
            patch: |-
              apiVersion: apps/v1
              kind: Deployment
              metadata: {name: whatever}
              spec:
                replicas: 5
        """
    _, over = tree(overlay)
    assert (over.path, over.replicas, words(over)) == ("over/kustomization.yaml", 5, "--model org/m")
    assert over.span.line == 7
    assert over.replicas_span is not None
    assert over.replicas_span.line == 11


def test_json_patches_on_a_base_and_without_one() -> None:
    overlay = """\
        kind: Kustomization
        apiVersion: kustomize.config.k8s.io/v1beta1
        resources: [{resource}]
        patches:
          - target: {{kind: Deployment, name: llm}}
            patch: |-
              - op: replace
                path: /spec/template/spec/containers/0/args
                value: [--model, org/other, --max-model-len, "30000"]
              - {{op: add, path: /spec/template/spec/containers/0/args/-, value: --enforce-eager}}
              - op: remove
                path: /spec/template/spec/containers/0/env/1
        """
    _, over = tree(overlay.format(resource="../base"))
    assert words(over) == "--model org/other --max-model-len 30000 --enforce-eager"
    assert over.path == "over/kustomization.yaml"
    assert [variable.name for variable in over.environment] == ["MODEL"]
    assert over.words[1].span.line == 9
    text = overlay.format(resource="https://example.com/x.git?ref=1").replace("name: llm", "name: vllm")
    (alone,) = units(**{"k/kustomization.yaml": text})
    assert words(alone).startswith("--model org/other --max-model-len 30000")
    assert alone.span.line == 7
    assert alone.name == "vllm"


def test_patches_that_make_no_other_server() -> None:
    labels = """\
        kind: Kustomization
        resources: [../base]
        patches:
          - {target: {kind: Deployment}, patch: '[{"op": "add", "path": "/metadata/labels/a", "value": "vllm"}]'}
          - {path: p.yaml}
        """
    patch = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: llm, labels: {a: vllm}}\n"
    assert len(tree(labels, **{"over/p.yaml": patch})) == 1


def test_the_kustomization_beside_a_file_sets_its_image_and_namespace() -> None:
    text = """\
        kind: Kustomization
        namespace: ai
        resources: [deployment.yaml]
        images: [{name: vllm/vllm-openai, newTag: v0.10.2}]
        replicas: [{name: llm, count: 3}]
        """
    (found,) = units(**{"base/deployment.yaml": BASE, "base/kustomization.yaml": text})
    assert found.id == "Deployment/ai/llm/vllm"
    assert found.image is not None
    assert found.image.value == "vllm/vllm-openai:v0.10.2"
    assert found.image.span.path == "base/kustomization.yaml"
    assert found.image.span.text == "v0.10.2"
    assert found.replicas == 3


def test_generated_config_maps() -> None:
    text = BASE.replace(
        "env: [{name: MODEL, value: org/m}, {name: A, value: base}]", "envFrom: [{configMapRef: {name: conf}}]"
    )
    kustomization = (
        "kind: Kustomization\nresources: [d.yaml]\nconfigMapGenerator: [{name: conf, literals: [MODEL=org/gen]}]\n"
    )
    (found,) = units(**{"d.yaml": text, "kustomization.yaml": kustomization})
    assert words(found) == "--model org/gen"


def test_overlays_that_go_round_end() -> None:
    loop = "kind: Kustomization\nresources: [../b, ../a]\npatches: [{path: p.yaml}]\n"
    patch = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: vllm}\nspec: {replicas: 2}\n"
    files = {"a/kustomization.yaml": loop, "b/kustomization.yaml": loop, "a/p.yaml": patch, "b/p.yaml": patch}
    assert units(**files) == []


def test_shapes_that_kustomize_refuses() -> None:
    for text in (
        "kind: Kustomization\npatches: vllm\nresources: {a: b}\n",
        "kind: Kustomization\npatches: [vllm, {patch: [a]}, {path: {a: b}}, {patch: '- vllm'}]\n",
        "kind: Kustomization\npatches: [{target: {name: '('}, patch: \"[{op: add, path: '/spec/vllm'}]\"}]\n",
        "kind: Kustomization\nimages: [vllm, {name: [a]}]\nreplicas: vllm\nresources: [d.yaml]\n",
    ):
        assert isinstance(units(**{"kustomization.yaml": text, "d.yaml": BASE}), list)
