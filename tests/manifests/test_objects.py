"""Which Services, autoscalers, routes and claims belong to a server."""

from __future__ import annotations

import pytest

from kvgate.manifests.objects import Objects, distance, nearest
from kvgate.manifests.read import read_tree
from kvgate.manifests.tree import Tree
from kvgate.manifests.unit import ServeUnit
from kvgate.source.text import SourceFile

SERVER = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: chat, namespace: llm}
spec:
  template:
    metadata: {labels: {app: chat, tier: gpu}}
    spec:
      containers:
        - name: proxy
          image: nginx
        - name: vllm
          image: vllm/vllm-openai:v0.19.1
          args: [--model=Qwen/Qwen2.5-7B-Instruct]
      volumes:
        - {name: m, persistentVolumeClaim: {claimName: models}}
"""
SERVICE = """\
apiVersion: v1
kind: Service
metadata: {name: NAME}
spec: {selector: {SELECTOR}}
"""


def service(name: str, selector: str = "app: chat") -> str:
    return SERVICE.replace("NAME", name).replace("SELECTOR", selector)


def around(**files: str) -> tuple[Objects, ServeUnit]:
    """Objects and the one unit of files; ``__`` in a name is a slash."""
    sources = [SourceFile(path.replace("__", "/") + ".yaml", text) for path, text in files.items()]
    tree = Tree(sources)
    (unit,) = read_tree(sources).units
    return Objects(tree), unit


def names(found: list[object]) -> list[str]:
    return [one.name for one in found]  # type: ignore[attr-defined]


def test_the_pod_is_found_around_the_container() -> None:
    objects, unit = around(a=SERVER)
    pod = objects.pod(unit)
    assert pod is not None
    assert pod.labels == {"app": "chat", "tier": "gpu"}
    assert names(objects.services(unit)) == []


@pytest.mark.parametrize(
    ("selector", "belongs"),
    [("app: chat", True), ("app: chat, tier: gpu", True), ("app: chat, tier: cpu", False), ("app: web", False)],
)
def test_a_service_belongs_by_all_its_labels(selector: str, belongs: bool) -> None:
    objects, unit = around(a=SERVER, b=service("front", selector))
    assert names(objects.services(unit)) == ["front"] * belongs


def test_a_service_of_another_namespace_does_not_belong() -> None:
    other = service("front").replace("{name: front}", "{name: front, namespace: web}")
    objects, unit = around(a=SERVER, b=other)
    assert names(objects.services(unit)) == []


def test_of_many_examples_only_the_nearest_counts() -> None:
    objects, unit = around(one__a=SERVER, one__svc=service("mine"), two__svc=service("theirs"))
    assert names(objects.services(unit)) == ["mine"]


def test_the_same_file_is_nearer_than_the_same_directory() -> None:
    objects, unit = around(a=SERVER + "---\n" + service("inside"), b=service("beside"))
    assert names(objects.services(unit)) == ["inside"]


def test_autoscalers_belong_by_their_target() -> None:
    scaler = (
        "apiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nmetadata: {name: NAME}\n"
        "spec: {scaleTargetRef: {kind: KIND, name: TARGET}}\n---\n"
    )
    text = "".join(
        scaler.replace("NAME", name).replace("KIND", kind).replace("TARGET", target)
        for name, kind, target in (
            ("yes", "Deployment", "chat"),
            ("set", "StatefulSet", "chat"),
            ("no", "Deployment", "web"),
        )
    )
    keda = (
        "apiVersion: keda.sh/v1alpha1\nkind: ScaledObject\nmetadata: {name: keda}\n"
        "spec: {scaleTargetRef: {name: chat}}\n"
    )
    objects, unit = around(a=SERVER, b=text + keda)
    assert names(objects.autoscalers(unit)) == ["yes", "keda"]


ROUTES = {
    "Ingress": "spec: {rules: [{http: {paths: [{backend: {service: {name: front}}}]}}]}",
    "HTTPRoute": "spec: {rules: [{backendRefs: [{name: front}]}]}",
    "Route": "spec: {to: {kind: Service, name: front}}",
    "VirtualService": "spec: {http: [{route: [{destination: {host: front.llm.svc}}]}]}",
}


@pytest.mark.parametrize("kind", ROUTES)
def test_routes_belong_through_their_service(kind: str) -> None:
    route = f"apiVersion: x/v1\nkind: {kind}\nmetadata: {{name: way}}\n{ROUTES[kind]}\n"
    objects, unit = around(a=SERVER, b=service("front"), c=route)
    assert names(objects.routes(unit)) == ["way"]
    objects, unit = around(a=SERVER, b=service("other"), c=route)
    assert names(objects.routes(unit)) == []


def test_claims_policies_and_pools_belong() -> None:
    more = (
        "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: models}\n---\n"
        "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: others}\n---\n"
        "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: all}\nspec: {podSelector: {}}\n---\n"
        "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: web}\n"
        "spec: {podSelector: {matchLabels: {app: web}}}\n---\n"
        "apiVersion: inference.networking.k8s.io/v1\nkind: InferencePool\nmetadata: {name: new}\n"
        "spec: {selector: {matchLabels: {app: chat}}}\n---\n"
        "apiVersion: inference.networking.x-k8s.io/v1alpha2\nkind: InferencePool\nmetadata: {name: old}\n"
        "spec: {selector: {app: chat}}\n"
    )
    objects, unit = around(a=SERVER, b=more)
    assert names(objects.claims(unit)) == ["models"]
    assert names(objects.policies(unit)) == ["all"]
    assert names(objects.pools(unit)) == ["new", "old"]


def test_lists_are_looked_into_and_templates_as_far_as_they_go() -> None:
    listed = "apiVersion: v1\nkind: List\nitems:\n" + "".join(
        f"  - {{apiVersion: v1, kind: Service, metadata: {{name: {name}}}, spec: {{selector: {{app: chat}}}}}}\n"
        for name in ("a", "b")
    )
    template = service("c").replace("{name: c}", "\n  name: {{ .Release.Name }}")
    objects, unit = around(a=SERVER, b=listed, c=template)
    assert names(objects.services(unit)) == ["a", "b", "{{ .Release.Name }}"]


@pytest.mark.parametrize(
    ("left", "right", "steps"),
    [("a/b.yaml", "a/b.yaml", -1), ("a/b.yaml", "a/c.yaml", 0), ("a/b.yaml", "c.yaml", 1), ("a/b.yaml", "c/d.yaml", 2)],
)
def test_distance_counts_directories(left: str, right: str, steps: int) -> None:
    assert distance(left, right) == distance(right, left) == steps


def test_the_nearest_of_nothing_is_nothing() -> None:
    assert nearest([], "a.yaml", str) == []
    assert nearest(["x/a", "b", "c"], "d", str) == ["b", "c"]


def test_a_file_is_read_for_the_kinds_that_it_names(monkeypatch: pytest.MonkeyPatch) -> None:
    scaler = "apiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nmetadata: {name: chat}\n"
    texts = {"a.yaml": service("a"), "b.yaml": scaler, "c.yaml": scaler + "---\n" + service("c"), "d.yaml": SERVER}
    tree = Tree([SourceFile(path, text) for path, text in texts.items()])
    read: list[str] = []
    stream = tree.stream
    monkeypatch.setattr(tree, "stream", lambda file: read.append(file.path) or stream(file))
    objects = Objects(tree)
    assert [found.name for found in objects.of_kind("HorizontalPodAutoscaler")] == ["chat", "chat"]
    assert read == ["b.yaml", "c.yaml"]
    assert [found.name for found in objects.of_kind("Service")] == ["a", "c"]
    assert read == ["b.yaml", "c.yaml", "a.yaml"]
    assert [found.file.path for found in objects.all] == ["a.yaml", "b.yaml", "c.yaml", "c.yaml"]
    assert len(read) == 3, "each once, and never what holds none of the kinds"
