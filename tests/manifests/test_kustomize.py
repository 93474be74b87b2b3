"""Kustomize bases, overlays and patches, read without kustomize."""

from __future__ import annotations

import time
from textwrap import dedent

import pytest

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
    (over,) = tree(overlay, **{"over/patch.yaml": patch})
    assert (over.id, over.path, over.span.line) == ("Deployment/prod/llm/vllm@over", "over/patch.yaml", 8)
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
    (over,) = tree(overlay)
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
    (over,) = tree(overlay.format(resource="../base"))
    assert words(over) == "--model org/other --max-model-len 30000 --enforce-eager"
    assert over.path == "over/kustomization.yaml"
    assert [variable.name for variable in over.environment] == ["MODEL"]
    assert over.words[1].span.line == 9
    text = overlay.format(resource="https://example.com/x.git?ref=1").replace("name: llm", "name: vllm")
    (alone,) = units(**{"k/kustomization.yaml": text})
    assert words(alone).startswith("--model org/other --max-model-len 30000")
    assert alone.span.line == 7
    assert alone.name == "vllm"


PATCHES = {
    "over/a-args.yaml": """\
        apiVersion: apps/v1
        kind: Deployment
        metadata: {name: llm}
        spec: {template: {spec: {containers: [{name: vllm, args: [--model, org/big, --tensor-parallel-size=2]}]}}}
        """,
    "over/b-place.yaml": """\
        apiVersion: apps/v1
        kind: Deployment
        metadata: {name: llm}
        spec: {template: {spec: {nodeSelector: {gpu: h100}}}}
        """,
    "over/c-count.yaml": """\
        - {op: replace, path: /spec/replicas, value: 4}
        - {op: add, path: /spec/template/spec/containers/0/resources, value: {limits: {nvidia.com/gpu: 2}}}
        """,
}
OVERLAY = """\
    kind: Kustomization
    resources: [../base]
    images: [{name: vllm/vllm-openai, newTag: v0.11.0}]
    patches:
      - {path: b-place.yaml}
      - {path: a-args.yaml}
      - {target: {kind: Deployment, name: llm}, path: c-count.yaml}
    """


def test_the_patches_of_one_kustomization_make_one_server() -> None:
    (over,) = tree(OVERLAY, **PATCHES)
    assert (over.id, over.path, over.span.line) == ("Deployment/default/llm/vllm@over", "over/a-args.yaml", 1)
    assert words(over) == "--model org/big --tensor-parallel-size=2"
    assert [(hint.key, hint.values) for hint in over.node_hints] == [("gpu", ("h100",))]
    assert [(request.resource, request.count) for request in over.gpu_requests] == [("nvidia.com/gpu", 2)]
    assert over.replicas == 4
    assert over.image is not None
    assert over.image.value == "vllm/vllm-openai:v0.11.0"


def test_each_overlay_is_a_server_of_its_own_and_the_base_none() -> None:
    second = "kind: Kustomization\nresources: [../base]\nimages: [{name: vllm/vllm-openai, newTag: v0.10.0}]\n"
    one, two = tree(OVERLAY, **PATCHES, **{"small/kustomization.yaml": second})
    assert (one.path, two.path, two.span.line) == ("over/a-args.yaml", "small/kustomization.yaml", 3)
    assert (one.id, two.id) == ("Deployment/default/llm/vllm@over", "Deployment/default/llm/vllm@small")
    assert (words(two), two.replicas) == ("--model org/m", 1)
    assert two.image is not None
    assert (two.image.value, two.image.span.path) == ("vllm/vllm-openai:v0.10.0", "small/kustomization.yaml")


def test_a_base_that_something_deploys_as_it_is_stays_a_server() -> None:
    plain = "kind: Kustomization\nnamespace: dev\nresources: [../base]\n"
    base, over = tree(OVERLAY, **PATCHES, **{"plain/kustomization.yaml": plain})
    assert (base.path, over.path) == ("base/deployment.yaml", "over/a-args.yaml")
    # a folder of another name is deployed itself as well
    files = {
        "llm/deployment.yaml": BASE,
        "llm/kustomization.yaml": BASE_KUSTOMIZATION,
        "over/kustomization.yaml": OVERLAY.replace("../base", "../llm"),
    }
    assert [unit.path for unit in units(**files, **PATCHES)] == ["llm/deployment.yaml", "over/a-args.yaml"]


def test_what_stands_on_an_overlay_is_the_overlay() -> None:
    top = "kind: Kustomization\nresources: [../over]\nnamespace: prod\n"
    (over,) = tree(OVERLAY, **PATCHES, **{"cluster/kustomization.yaml": top})
    assert over.path == "over/a-args.yaml"


def test_the_patches_of_a_component_hold_where_it_is_used() -> None:
    component = "kind: Component\npatches: [{path: a-args.yaml}]\n"
    files = {
        "parts/big/kustomization.yaml": component,
        "parts/big/a-args.yaml": PATCHES["over/a-args.yaml"],
        "over/b-place.yaml": PATCHES["over/b-place.yaml"],
    }
    overlay = "kind: Kustomization\nresources: [../base]\ncomponents: [../parts/big]\npatches: [{path: b-place.yaml}]\n"
    (over,) = tree(overlay, **files)
    assert (over.path, words(over)) == ("parts/big/a-args.yaml", "--model org/big --tensor-parallel-size=2")
    assert [(hint.key, hint.values) for hint in over.node_hints] == [("gpu", ("h100",))]


def test_a_generated_config_map_makes_another_server() -> None:
    text = BASE.replace("{name: MODEL, value: org/m}", "{name: MODEL, valueFrom: {configMapKeyRef: {name: c, key: m}}}")
    generator = "configMapGenerator: [{name: c, literals: [m=%s]}]\n"
    files = {
        "base/deployment.yaml": text,
        "base/kustomization.yaml": BASE_KUSTOMIZATION + generator % "org/small",
        "a/kustomization.yaml": "kind: Kustomization\nresources: [../base]\n" + generator % "org/large",
        "b/kustomization.yaml": "kind: Kustomization\nresources: [../base]\n" + generator % "org/small",
    }
    assert {unit.path: words(unit) for unit in units(**files)} == {
        "base/deployment.yaml": "--model org/small",
        "a/kustomization.yaml": "--model org/large",
    }


CONFIGURED = BASE.replace("args: [--model, $(MODEL)]", "args: [--model, $(MODEL), --port, $(PORT)]").replace(
    "env: [{name: MODEL, value: org/m}, {name: A, value: base}]", "envFrom: [{configMapRef: {name: c}}]"
)
MAP = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {MODEL: org/%s%s}\n"


def test_a_patch_of_a_config_map_makes_another_server_of_what_it_leaves_too() -> None:
    overlay = "kind: Kustomization\nresources: [../base]\npatches: [{path: c.yaml}]\n"
    files = {
        "base/deployment.yaml": CONFIGURED,
        "base/c.yaml": MAP % ("small", ", PORT: '8000'"),
        "base/kustomization.yaml": "kind: Kustomization\nresources: [deployment.yaml, c.yaml]\n",
        "a/kustomization.yaml": overlay,
        "a/c.yaml": MAP % ("large", ""),
        "b/kustomization.yaml": overlay,
        "b/c.yaml": MAP % ("small", ""),  # changes nothing
    }
    assert [(unit.id.partition("@")[2], unit.path, words(unit)) for unit in units(**files)] == [
        ("", "base/deployment.yaml", "--model org/small --port 8000"),
        ("a", "a/c.yaml", "--model org/large --port 8000"),
    ]
    # a server that the overlay changes itself sees the same
    scaled = {name: text for name, text in files.items() if not name.startswith("b/")}
    scaled["a/kustomization.yaml"] += "replicas: [{name: llm, count: 3}]\n"
    (over,) = units(**scaled)
    assert (over.replicas, words(over)) == (3, "--model org/large --port 8000")


def test_a_generator_merges_with_that_of_its_base() -> None:
    generator = "configMapGenerator: [{name: c, behavior: %s, literals: [%s]}]\n"
    files = {
        "base/deployment.yaml": CONFIGURED,
        "base/kustomization.yaml": BASE_KUSTOMIZATION + generator % ("create", "MODEL=org/small, PORT=8000"),
        "a/kustomization.yaml": "kind: Kustomization\nresources: [../base]\n"
        + generator % ("merge", "MODEL=org/large"),
        "b/kustomization.yaml": "kind: Kustomization\nresources: [../base]\n" + generator % ("replace", "MODEL=org/b"),
    }
    assert {unit.path: words(unit) for unit in units(**files)} == {
        "a/kustomization.yaml": "--model org/large --port 8000",
        "b/kustomization.yaml": "--model org/b --port ?$(PORT)",
    }


def test_patches_aim_by_label_and_by_kind() -> None:
    base = BASE.replace("  name: llm\n", "  name: llm\n  labels: {app: chat}\n", 1)
    overlay = """\
        kind: Kustomization
        resources: [../base]
        patches:
          - target: {kind: Deployment, labelSelector: "app=%s"}
            patch: "[{op: replace, path: /spec/replicas, value: 7}]"
        """
    kustomization = {"base/deployment.yaml": base, "base/kustomization.yaml": BASE_KUSTOMIZATION}
    (found,) = units(**kustomization, **{"over/kustomization.yaml": overlay % "chat"})
    assert (found.path, found.replicas) == ("over/kustomization.yaml", 7)
    assert "base/deployment.yaml" in [
        unit.path for unit in units(**kustomization, **{"over/kustomization.yaml": overlay % "web"})
    ]


@pytest.mark.parametrize(
    ("name", "aims"),
    [("llm", True), ("l.*", True), ("(llm|chat)", True), ("[kl]+m", True), ("m", False), ("l", False),
     # what may take long to match is no pattern, nor is what is none
     ("(l+)+m", False), (".*l.*m.*", False), ("(", False)],
)  # fmt: skip
def test_a_target_s_name_is_a_pattern(name: str, aims: bool) -> None:
    found = tree(f"""\
        kind: Kustomization
        resources: [../base]
        patches:
          - target: {{name: '{name}'}}
            patch: "[{{op: replace, path: /spec/replicas, value: 7}}]"
        """)
    assert (7 in [unit.replicas for unit in found]) is aims


def test_many_patches_of_many_objects_cost_little() -> None:
    objects = "".join(
        f"apiVersion: v1\nkind: Secret\nmetadata: {{name: d{n}}}\nspec: {{x: vllm}}\n---\n" for n in range(1500)
    )
    pattern = "".join(f"- target: {{kind: Secret, name: '{'a' * n}.*.*b'}}\n  patch: '[]'\n" for n in range(1500))
    before = time.process_time()
    units(**{
        "base/a.yaml": objects + "apiVersion: v1\nkind: Secret\nmetadata: {name: " + "a" * 5_000 + "}\n",
        "base/kustomization.yaml": "resources: [a.yaml]\n",
        "over/kustomization.yaml": f"resources: [../base]\npatches:\n- path: p.yaml\n{pattern}",
        "over/p.yaml": objects,
    })  # fmt: skip
    assert time.process_time() - before < 10


def test_patches_of_one_absent_object_are_read_together() -> None:
    overlay = "kind: Kustomization\nresources: [https://x/y?ref=1]\npatches: [{path: p.yaml}, {path: q.yaml}]\n"
    head = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: vllm-llm}\n"
    files = {
        "over/kustomization.yaml": overlay,
        "over/p.yaml": head
        + 'spec: {template: {spec: {containers: [{name: c, args: [--model, m, --max-model-len, "8"]}]}}}',
        "over/q.yaml": head + "spec: {replicas: 3}",
    }
    (found,) = units(**files)
    assert (found.path, words(found), found.replicas) == ("over/p.yaml", "--model m --max-model-len 8", 3)


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


HELM_CHARTS = """\
kind: Kustomization
namespace: ai
helmCharts:
  - name: serving
    releaseName: chat
    valuesFile: chat.yaml
    valuesInline: {replicaCount: 2}
  - name: other
    valuesInline: {image: {repository: redis, tag: "7"}, replicaCount: 1}
"""
CHAT = """\
image: {repository: vllm/vllm-openai, tag: v0.10.0}
replicaCount: 1
model: org/m
extraArgs: [--max-model-len=4096]
"""


def test_charts_that_a_kustomization_installs() -> None:
    files = [SourceFile("k/kustomization.yaml", HELM_CHARTS), SourceFile("k/chat.yaml", CHAT)]
    (found,) = read_tree(files).units
    assert (found.id, found.path, found.span.line) == ("Kustomization/ai/chat", "k/kustomization.yaml", 4)
    assert [word.value for word in found.words] == ["--model", "org/m", "--max-model-len=4096"]
    assert found.replicas == 2


def test_charts_that_a_kustomization_installs_from_its_own_folder() -> None:
    template = """\
        apiVersion: v1
        kind: Pod
        metadata: {name: llm}
        spec: {containers: [{name: vllm, image: "vllm/vllm-openai:v0.10.0", args: [--model, {{ .Values.model }}]}]}
        """
    files = {
        "k/kustomization.yaml": "helmGlobals: {chartHome: ./home}\n" + HELM_CHARTS,
        "k/chat.yaml": CHAT,
        "k/home/serving/Chart.yaml": "name: serving\n",
        "k/home/serving/values.yaml": "model: org/own\n",
        "k/home/serving/templates/pod.yaml": dedent(template),
    }
    found = read_tree([SourceFile(path, text) for path, text in files.items()]).units
    words = {unit.path: [word.value for word in unit.words] for unit in found}
    assert words["k/kustomization.yaml"] == ["--model", "org/m"]
