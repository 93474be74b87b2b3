"""What stands around a server: probes, volumes, limits, ports and shutdown in pods, Compose and docker run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kvgate.config import Config
from kvgate.manifests.read import read_tree
from kvgate.manifests.tree import Tree
from kvgate.plan import ModelContext, PlanOverrides, make_plan
from kvgate.ruleset.case import Case, weight_bytes_of_name
from kvgate.ruleset.host import Host, docker_bytes, duration_seconds
from kvgate.ruleset.scene import Scene
from kvgate.source.text import SourceFile


def host(path: str, text: str) -> Host:
    """The surroundings of the one server in a file."""
    file = SourceFile(path, text)
    (unit,) = read_tree([file]).units
    root = Path("/nowhere")
    plan = make_plan(unit, Config(root=root), PlanOverrides(), ModelContext(root=root))
    case = Case(plan, None, Scene([file], Tree([file])))
    case.scene.cases = (case,)
    return case.host


def pod(container: str = "", spec: str = "") -> Host:
    return host(
        "pod.yaml",
        "apiVersion: v1\nkind: Pod\nmetadata: {name: chat}\nspec:\n" + spec + "  containers:\n    - name: vllm\n"
        "      image: vllm/vllm-openai:v0.19.1\n      args: [--model=m/m]\n" + container,
    )


def compose(service: str) -> Host:
    return host(
        "compose.yaml",
        "services:\n  vllm:\n    image: vllm/vllm-openai:v0.19.1\n    command: --model m/m\n" + service,
    )


def script(options: str) -> Host:
    return host("run.sh", f"#!/bin/sh\ndocker run {options} vllm/vllm-openai:v0.19.1 --model m/m --max-model-len 8\n")


# -- probes --------------------------------------------------------------------------------------------------------


def test_a_probe_has_kubernetes_defaults() -> None:
    probe = pod("      livenessProbe: {httpGet: {path: /health, port: 8000}}\n").probe("liveness")
    assert probe is not None
    assert (probe.delay_seconds, probe.period_seconds, probe.timeout_seconds, probe.failures) == (0, 10, 1, 3)
    assert (probe.budget_seconds, probe.tolerance_seconds, probe.path, probe.handler) == (30, 30, "/health", "httpGet")
    assert probe.spans == {}


def test_a_probe_says_what_is_written_and_where() -> None:
    here = pod(
        "      startupProbe:\n        tcpSocket: {port: 8000}\n        initialDelaySeconds: 20\n"
        "        periodSeconds: 5\n        failureThreshold: 60\n"
    )
    probe = here.probe("startup")
    assert probe is not None
    assert probe.budget_seconds == 20 + 5 * 60
    assert probe.place.text == "failureThreshold: 60"
    assert here.probe("readiness") is None
    assert here.probe("healthcheck") is None


def test_a_figure_that_is_no_number_is_unknown() -> None:
    probe = pod("      startupProbe: {exec: {command: [x]}, failureThreshold: '{{ n }}'}\n").probe("startup")
    assert probe is not None
    assert probe.budget_seconds is None


def test_a_health_check_of_compose() -> None:
    probe = compose(
        "    healthcheck:\n      test: [CMD, curl, -f, 'http://localhost:8000/health']\n      interval: 1m30s\n"
        "      retries: 4\n      start_period: 60s\n"
    ).probe("healthcheck")
    assert probe is not None
    assert probe.budget_seconds == 60 + 90 * 4
    assert probe.path == "/health"
    assert compose("    healthcheck: {disable: true}\n").probe("healthcheck") is None
    assert compose("    healthcheck: {test: [NONE]}\n").probe("healthcheck") is None


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("1m30s", 90), ("2h", 7200), ("500ms", 0.5), ("45", 45), ("soon", None)]
)
def test_durations(text: str, seconds: float | None) -> None:
    assert duration_seconds(text) == seconds


# -- limits --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("here", "limit"),
    [
        (lambda: pod("      resources: {limits: {memory: 32Gi}}\n"), 32 * 2**30),
        (lambda: pod("      resources: {requests: {memory: 32Gi}}\n"), None),
        (lambda: compose("    mem_limit: 64g\n"), 64 * 2**30),
        (lambda: compose("    deploy: {resources: {limits: {memory: 512M}}}\n"), 512 * 2**20),
        (lambda: script("--gpus all --memory 16g"), 16 * 2**30),
        (lambda: script("--gpus all -m16g"), 16 * 2**30),
        (lambda: script("--gpus all"), None),
    ],
)
def test_the_memory_limit(here: Any, limit: int | None) -> None:
    found = here().memory_limit
    assert (found.value if found is not None else None) == limit


@pytest.mark.parametrize(("text", "size"), [("16g", 2**34), ("512MB", 2**29), ("1.5gb", 3 * 2**29), ("all", None)])
def test_docker_sizes(text: str, size: int | None) -> None:
    assert docker_bytes(text) == size


@pytest.mark.parametrize(("text", "cores"), [("'4'", 4), ("500m", 0.5), ("x", None)])
def test_the_processor_limit(text: str, cores: float | None) -> None:
    found = pod(f"      resources: {{limits: {{cpu: {text}}}}}\n").cpu_limit
    assert found is not None
    assert found.value == cores


# -- volumes -------------------------------------------------------------------------------------------------------


def kinds(here: Host) -> dict[str, tuple[str, str]]:
    return {mount.target: (mount.kind, mount.source) for mount in here.mounts}


def test_mounts_of_a_pod() -> None:
    here = pod(
        "      volumeMounts:\n"
        + "".join(f"        - {{name: {name}, mountPath: /{name}}}\n" for name in ("a", "b", "c", "d", "e")),
        "  volumes:\n    - {name: a, persistentVolumeClaim: {claimName: models}}\n    - {name: b, emptyDir: {}}\n"
        "    - {name: c, emptyDir: {medium: Memory}}\n    - {name: d, hostPath: {path: /data}}\n",
    )
    assert kinds(here) == {
        "/a": ("pvc", "models"), "/b": ("emptyDir", ""), "/c": ("memory", ""), "/d": ("hostPath", "/data"),
        "/e": ("other", ""),
    }  # fmt: skip


def test_mounts_of_compose() -> None:
    here = compose(
        "    volumes:\n      - ./models:/models:ro\n      - cache:/root/.cache\n      - ${DIR:-/srv}:/srv\n"
        "      - /anon\n"
        "      - {type: bind, source: ./x, target: /x}\n    tmpfs: [/tmp]\n"
    )
    assert kinds(here) == {
        "/models": ("bind", "./models"), "/root/.cache": ("volume", "cache"), "/srv": ("bind", "${DIR:-/srv}"),
        "/anon": ("anonymous", ""), "/x": ("bind", "./x"), "/tmp": ("tmpfs", ""),
    }  # fmt: skip
    assert next(mount for mount in here.mounts if mount.target == "/models").read_only


def test_mounts_of_docker_run() -> None:
    here = script("--gpus all -v ~/.cache:/root/.cache --volume=m:/m --mount type=bind,source=/a,target=/b")
    assert kinds(here) == {"/root/.cache": ("bind", "~/.cache"), "/m": ("volume", "m"), "/b": ("bind", "/a")}


def test_the_innermost_mount_holds_a_path() -> None:
    here = compose("    volumes: ['a:/root', 'b:/root/.cache/huggingface', 'c:/root/.cachex']\n")
    found = here.mounted_at("/root/.cache/huggingface/hub")
    assert found is not None
    assert found.source == "b"
    outer = here.mounted_at("/root/.cache/vllm")
    assert outer is not None
    assert outer.source == "a"
    assert here.mounted_at("/models") is None


# -- network, user, shutdown ---------------------------------------------------------------------------------------


def ports(here: Host) -> list[tuple[str | None, str, bool]]:
    return [(port.address, port.port, port.local) for port in here.published]


def test_published_ports() -> None:
    assert ports(compose("    ports: ['8000:8000', '127.0.0.1:8001:8000', '8002']\n")) == [
        (None, "8000", False), ("127.0.0.1", "8000", True), (None, "8002", False),
    ]  # fmt: skip
    assert ports(compose("    ports: [{target: 8000, published: '80', host_ip: 127.0.0.1}]\n")) == [
        ("127.0.0.1", "80", True)
    ]
    assert ports(script("--gpus all -p 8000:8000 --publish=127.0.0.1:1:2")) == [
        (None, "8000", False), ("127.0.0.1", "2", True),
    ]  # fmt: skip
    assert ports(pod("      ports: [{containerPort: 8000, hostPort: 80}, {containerPort: 9000}]\n")) == [
        (None, "80", False)
    ]


def test_the_host_network() -> None:
    assert pod(spec="  hostNetwork: true\n").host_network is not None
    assert compose("    network_mode: host\n").host_network is not None
    assert script("--gpus all --network=host").host_network is not None
    assert script("--gpus all --net host").host_network is not None
    assert pod().host_network is None


def test_service_links() -> None:
    assert pod().service_links
    assert not pod(spec="  enableServiceLinks: false\n").service_links
    assert not compose("").service_links


def test_the_user() -> None:
    by_pod = pod(spec="  securityContext: {runAsUser: 1000, runAsNonRoot: true}\n")
    assert by_pod.user is not None
    assert by_pod.user.value == 1000
    assert by_pod.non_root is not None
    own = pod("      securityContext: {runAsUser: 0}\n", "  securityContext: {runAsUser: 1000}\n").user
    assert own is not None
    assert own.value == 0
    assert [here.user.value for here in (compose("    user: '7:7'\n"), script("--gpus all -u 8:8")) if here.user] == [
        7,
        8,
    ]
    assert pod().user is None


def test_shutdown() -> None:
    here = pod(
        "      lifecycle: {preStop: {exec: {command: [sh, -c, 'sleep 5; sleep 10']}}}\n",
        "  terminationGracePeriodSeconds: 90\n",
    )
    assert (here.grace.value if here.grace else None, here.pre_stop.value if here.pre_stop else None) == (90, 15)
    sleep = pod("      lifecycle: {preStop: {sleep: {seconds: 7}}}\n")
    assert sleep.pre_stop is not None
    assert (sleep.pre_stop.value, sleep.grace) == (7, None)
    stop = compose("    stop_grace_period: 1m\n").grace
    assert stop is not None
    assert stop.value == 60


# -- models --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "gigabytes"),
    [
        ("acme/chat-70B-instruct", 140),
        ("acme/chat-70b-AWQ", 39.2),
        ("acme/chat-7B-FP8", 7.35),
        ("mistralai/Mixtral-8x7B-v0.1", 112),
        ("acme/chat-0.5B", 1),
        ("acme/chat", None),
        ("meta-llama/Llama-4-Scout-17B-16E-Instruct", None),  # active, not all
        ("acme/chat-120b-speculator.eagle3", None),
        (None, None),
    ],
)
def test_the_size_in_a_name(name: str | None, gigabytes: float | None) -> None:
    found = weight_bytes_of_name(name)
    assert found == (None if gigabytes is None else pytest.approx(gigabytes * 1e9, rel=0.01))
