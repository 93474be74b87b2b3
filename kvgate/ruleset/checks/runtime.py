"""Probes, shutdown, volumes, devices and users: what the platform does with the server."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from kvgate.findings.finding import Severity
from kvgate.manifests.tree import entries_at, node_at, scalar_at, text_at
from kvgate.patterns import regex
from kvgate.records import record
from kvgate.ruleset.case import Case
from kvgate.ruleset.checks import NoParams, check
from kvgate.ruleset.host import COMPOSE_GRACE_SECONDS, GRACE_SECONDS, Mount, Probe
from kvgate.ruleset.model import Draft
from kvgate.ruleset.words import gib
from kvgate.source.yaml_tree import scalar_bool

_CPU_LIKE: Final = ("cpu", "tpu", "hpu", "xpu")


@record
class LoadTime:
    """How long a start takes: bytes of the weights at a rate, and what comes beside.

    ``fast_gb_per_second`` and ``slow_gb_per_second`` are the bounds of what was seen with compilation and CUDA graphs
    included (0.14 to 0.4 GB/s); ``fixed_seconds`` passes whatever the size.
    """

    fast_gb_per_second: float = 0.4
    slow_gb_per_second: float = 0.15
    fixed_seconds: float = 60.0

    def fast(self, weights: int | None) -> float:
        return self.fixed_seconds + (weights or 0) / 1e9 / self.fast_gb_per_second

    def slow(self, weights: int | None) -> float:
        return self.fixed_seconds + (weights or 0) / 1e9 / self.slow_gb_per_second


def minutes(seconds: float) -> str:
    """``45 s``, ``12 min``."""
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _load_values(case: Case, params: LoadTime, probe: Probe) -> dict[str, Any]:
    weights = case.weight_bytes
    budget = probe.budget_seconds or 0
    return {
        "budget": minutes(budget),
        "sum": f"{probe.delay_seconds or 0:g} + {probe.failures} x {probe.period_seconds or 0:g} s",
        "fast": minutes(params.fast(weights)),
        "slow": minutes(params.slow(weights)),
        "weights": f"{gib(weights)} of weights" if weights is not None else "a model of unknown size",
        "failures": None
        if not probe.period_seconds
        else max(1, -(-int(params.slow(weights) * 1.2) // max(1, int(probe.period_seconds)))),
        "period": f"{probe.period_seconds or 0:g}",
        "kind": probe.kind,
    }


_LOAD_VALUES: Final = ("budget", "sum", "fast", "slow", "weights", "failures", "period", "kind")


@check("startup-probe", params=LoadTime, values=_LOAD_VALUES)
def startup_probe(case: Case, params: LoadTime) -> Iterator[Draft]:
    """The startup probe gives up before the model can be loaded."""
    probe = case.host.probe("startup")
    variant = None
    ceiling = None
    if probe is None:
        probe = case.host.probe("healthcheck")
        if probe is None:
            return
        variant = "healthcheck"
        if not _waited_for(case):
            ceiling = Severity.INFO  # Compose only reports it
    budget = probe.budget_seconds
    weights = case.weight_bytes
    if budget is None or budget >= params.slow(weights):
        return
    if budget >= params.fast(weights):
        if weights is None:
            return
        ceiling = Severity.INFO
    yield Draft(at=probe.place, variant=variant, values=_load_values(case, params, probe), ceiling=ceiling)


def _waited_for(case: Case) -> bool:
    """Whether another Compose service, Swarm or a restarter acts on the health of this one."""
    services = node_at(case.unit.document, "services")
    for entry in entries_at(services):
        condition = text_at(node_at(entry.value, "depends_on"), case.unit.name, "condition")
        image = text_at(entry.value, "image") or ""
        if condition == "service_healthy" or "autoheal" in image:
            return True
    return node_at(case.unit.node, "deploy", "update_config") is not None


@check("liveness-alone", params=LoadTime, values=_LOAD_VALUES)
def liveness_alone(case: Case, params: LoadTime) -> Iterator[Draft]:
    """A liveness probe without a startup probe."""
    host = case.host
    probe = host.probe("liveness")
    if probe is None or host.probe("startup") is not None or host.is_patch:
        return
    budget = probe.budget_seconds
    if budget is None:
        return
    weights = case.weight_bytes
    short = budget < params.slow(weights)
    delayed = (probe.delay_seconds or 0) >= params.slow(weights)
    yield Draft(
        at=probe.place if short else probe.spans.get("delay", probe.span),
        variant=None if short else "delayed" if delayed else "ample",
        values=_load_values(case, params, probe),
        ceiling=None if short or (delayed and (probe.delay_seconds or 0) >= 600) else Severity.INFO,
    )


@record
class Tolerance:
    """Seconds within which an answer, and the last of several, must come to be trusted under load."""

    timeout_seconds: float = 2.0
    ready_seconds: float = 30.0
    alive_seconds: float = 30.0


@check("probe-tolerance", params=Tolerance, values=("kind", "timeout", "stated", "tolerance", "sum", "other"))
def probe_tolerance(case: Case, params: Tolerance) -> Iterator[Draft]:
    """Probes that a busy server fails."""
    host = case.host
    ready, alive = host.probe("readiness"), host.probe("liveness")
    told = False
    for probe in (alive, ready):
        if probe is None or probe.timeout_seconds is None or probe.tolerance_seconds is None:
            continue
        if probe.handler in ("tcpSocket",):
            continue
        limit = params.alive_seconds if probe.kind == "liveness" else params.ready_seconds
        tight = probe.timeout_seconds < params.timeout_seconds
        values = {
            "kind": probe.kind,
            "timeout": f"{probe.timeout_seconds:g} s",
            "stated": "" if "timeout" in probe.spans else " (the default)",
            "tolerance": minutes(probe.tolerance_seconds),
            "sum": f"{probe.failures} x {probe.period_seconds or 0:g} s",
            "other": "",
        }
        if tight and probe.tolerance_seconds <= limit:
            killed = probe.kind == "liveness"
            told = told or killed
            yield Draft(
                at=probe.spans.get("timeout", probe.span),
                variant="restarted" if killed else None,
                values=values,
            )
    if told or ready is None or alive is None or alive.tolerance_seconds is None or ready.tolerance_seconds is None:
        return
    if alive.tolerance_seconds < ready.tolerance_seconds and (alive.timeout_seconds or 0) <= (
        ready.timeout_seconds or 0
    ):
        yield Draft(
            at=alive.place,
            variant="stricter",
            values={
                "kind": "liveness",
                "timeout": f"{alive.timeout_seconds or 0:g} s",
                "stated": "",
                "tolerance": minutes(alive.tolerance_seconds),
                "sum": f"{alive.failures} x {alive.period_seconds or 0:g} s",
                "other": minutes(ready.tolerance_seconds),
            },
        )


# -- shutdown ----------------------------------------------------------------------------------------------------------


@check("grace", values=("grace", "stated", "hook", "drain", "sum"))
def grace(case: Case, params: NoParams) -> Iterator[Draft]:
    """The pod is killed before it has drained."""
    host = case.host
    hook = host.pre_stop
    drain = case.argument("shutdown_timeout")
    drain = float(drain) if isinstance(drain, int | float) and not isinstance(drain, bool) else 0.0
    hold = hook.value if hook is not None and hook.value is not None else 0.0
    if not (hold or drain) or host.is_patch:
        return
    stated = host.grace
    if stated is not None and stated.value is None:
        return
    default = COMPOSE_GRACE_SECONDS if host.is_compose or host.is_docker_run else GRACE_SECONDS
    seconds = stated.value if stated is not None and stated.value is not None else float(default)
    if seconds > hold + drain:
        return
    parts = [f"{hold:g} s of preStop"] * bool(hold) + [f"{drain:g} s of --shutdown-timeout"] * bool(drain)
    place = stated.span if stated is not None else "arg:shutdown_timeout" if drain else hook.span if hook else None
    yield Draft(
        at=place,
        values={
            "grace": f"{seconds:g} s",
            "stated": "" if stated is not None else " (the default)",
            "hook": f"{hold:g}",
            "drain": f"{drain:g}",
            "sum": " + ".join(parts),
        },
    )


@check("rollout", values=("surge", "gpus", "replicas", "stated", "strategy"))
def rollout(case: Case, params: NoParams) -> Iterator[Draft]:
    """A rolling update starts a new pod before an old one ends, on GPUs that must be free."""
    if case.unit.kind not in ("Deployment", "DeploymentConfig") or case.backend in _CPU_LIKE or case.host.is_patch:
        return
    gpus = case.requested_gpus or case.local_gpus
    if not case.unit.gpu_requests or not gpus:
        return
    spec = node_at(case.unit.document, "spec")
    strategy = node_at(spec, "strategy")
    if text_at(strategy, "type") not in (None, "RollingUpdate"):
        return
    rolling = node_at(strategy, "rollingUpdate")
    surge, unavailable = scalar_at(rolling, "maxSurge"), scalar_at(rolling, "maxUnavailable")
    replicas = case.unit.replicas if case.unit.replicas is not None else 1
    extra = _share(surge.value if surge is not None else "25%", replicas, up=True)
    fewer = _share(unavailable.value if unavailable is not None else "25%", replicas, up=False)
    if extra is None or fewer is None or extra < 1 or fewer > 0 or replicas < 1:
        return
    written = surge is not None or unavailable is not None
    if not written and gpus < 8:
        return
    yield Draft(
        at=unavailable.span if unavailable is not None else surge.span if surge is not None else None,
        values={
            "surge": extra,
            "gpus": gpus * extra,
            "replicas": replicas,
            "stated": "" if written else "the default strategy ",
            "strategy": f"maxSurge {surge.value if surge else '25%'}, "
            f"maxUnavailable {unavailable.value if unavailable else '25%'}",
        },
        ceiling=None if written else Severity.INFO,
    )


def _share(text: str, replicas: int, *, up: bool) -> int | None:
    """A count, or a percentage of the replicas, rounded as the Deployment controller does."""
    match = re.fullmatch(r"(\d{1,9})(%?)", text.strip())
    if match is None:
        return None
    number = int(match[1])
    if not match[2]:
        return number
    whole = number * replicas
    return -(-whole // 100) if up else whole // 100


# -- devices -----------------------------------------------------------------------------------------------------------


@check("gpu-requested", values=("image", "where"))
def gpu_requested(case: Case, params: NoParams) -> Iterator[Draft]:
    """A CUDA server that is given no GPU."""
    unit, host = case.unit, case.host
    if unit.gpu_requests or case.backend in _CPU_LIKE or case.plan.image is None or not case.plan.image.is_vllm:
        return
    if not unit.image or not unit.image.resolved or case.argument("device") == "cpu":
        return
    environment = case.plan.environment
    if environment.get("NVIDIA_VISIBLE_DEVICES") not in (None, "", "none", "void") and host.is_object:
        return
    if "VLLM_CPU_KVCACHE_SPACE" in environment:
        return
    if host.is_compose:
        if _hands_over_devices(case):
            return
        where = "compose"
    elif host.is_object:
        if unit.kind not in ("Pod", "Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Job", "CronJob"):
            return
        if scalar_bool(node_at(host.node, "securityContext", "privileged")) is True:
            return
        if text_at(host.spec, "runtimeClassName") or node_at(host.spec, "resourceClaims") is not None:
            return
        where = "pod"
    elif host.is_docker_run:
        if host.docker_flag("--gpus", "--device", "--runtime", "--privileged") is not None:
            return
        where = "docker"
    else:
        return
    yield Draft(
        variant=None if where == "pod" else where,
        values={"image": unit.image.value, "where": where},
        ceiling=Severity.WARNING,
    )


def _hands_over_devices(case: Case) -> bool:
    """Whether a Compose service gets devices by keys that are no request for GPUs, or inherits what is not read."""
    node = case.unit.node
    for key in ("devices", "runtime", "gpus", "privileged", "extends", "device_cgroup_rules"):
        if node_at(node, key) is not None:
            return True
    return bool(node_at(node, "deploy", "resources", "reservations"))


# -- users and paths ---------------------------------------------------------------------------------------------------


_CACHE_VARIABLES: Final = ("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "TRANSFORMERS_CACHE")
_HOME_VARIABLES: Final = ("HOME", "XDG_CACHE_HOME", *_CACHE_VARIABLES)
_VLLM_USER: Final = 2000  # the user that newer images bring


@check("cache-writable", values=("user", "path", "mount"))
def cache_writable(case: Case, params: NoParams) -> Iterator[Draft]:
    """A user that cannot write where caches go by default."""
    host = case.host
    if case.plan.image is None or not case.plan.image.is_vllm:
        return
    user, non_root, read_only = host.user, host.non_root, host.read_only_root
    number = user.value if user is not None else None
    plain = (number is not None and number > 0) or (user is None and non_root is not None)
    if not plain and read_only is None:
        return
    environment = {variable.name for variable in case.unit.environment}
    values: dict[str, Any] = {"user": f"{number:.0f}" if number is not None else "", "path": "", "mount": ""}
    if read_only is not None and not plain:
        if host.is_values:
            return  # what the chart mounts is not among its values
        writable = [mount for mount in host.mounts if not mount.read_only]
        if not any(mount.target.startswith(("/root", "/tmp", "/home", "/cache")) for mount in writable):  # noqa: S108
            yield Draft(at=read_only, variant="read-only", values={**values, "path": "/root/.cache"})
        return
    at_root = next((mount for mount in host.mounts if mount.target.startswith("/root")), None)
    place = user.span if user is not None else non_root
    if at_root is not None and not environment & set(_HOME_VARIABLES):
        yield Draft(
            at=at_root.span,
            variant="root-mount",
            values={**values, "path": at_root.target, "mount": at_root.target},
            related=((place, "the user"),) if place is not None else (),
        )
        return
    known = {"HOME", "USER", "LOGNAME", "TORCHINDUCTOR_CACHE_DIR"}
    if number == _VLLM_USER or not case.plan.image.official or environment & known:
        return
    if environment & set(_CACHE_VARIABLES) and "VLLM_CACHE_ROOT" in environment and user is None:
        return
    yield Draft(at=place, variant="no-home" if number is not None else None, values={**values, "path": "/.cache"})


_HUB_CACHE: Final = "/root/.cache/huggingface"
_PERSISTENT: Final = frozenset({"pvc", "hostPath", "bind", "volume", "nfs", "csi", "image", "ephemeral"})
_MODEL_PATH: Final = regex(r"cache|hugging|hf|model|weights|data|hub", re.IGNORECASE)


@check("cache-persisted", values=("cache", "set_by", "mount", "model", "size", "kind", "replicas"))
def cache_persisted(case: Case, params: NoParams) -> Iterator[Draft]:
    """A model of the Hub that every start downloads again."""
    from kvgate.models.lock import is_hub_id

    host = case.host
    reference = case.plan.model_reference
    if reference is None or not is_hub_id(reference) or case.unit.storage_model is not None:
        return
    if not (host.is_compose or host.is_object or host.is_docker_run) or case.unit.kind in ("Job", "CronJob"):
        return
    if case.unit.image is None or any(flag in case.plan.values for flag in ("load_format",)):
        return
    cache, set_by = _model_cache(case)
    if cache is None:
        return
    mount = host.mounted_at(cache)
    if mount is not None and mount.kind in _PERSISTENT:
        return
    weights = case.weight_bytes
    autoscaled = host.is_object and bool(case.scene.objects.autoscalers(case.unit))
    values: dict[str, Any] = {
        "cache": cache,
        "set_by": set_by,
        "mount": "",
        "model": reference,
        "size": f" ({gib(weights)})" if weights is not None else "",
        "kind": mount.kind if mount is not None else "",
        "replicas": case.plan.replicas,
    }
    elsewhere = next((one for one in host.mounts if one.kind in _PERSISTENT and _meant_for_models(one)), None)
    if mount is None and elsewhere is not None:
        yield Draft(at=elsewhere.span, variant="elsewhere", values={**values, "mount": elsewhere.target})
        return
    many = autoscaled or case.plan.replicas > 1
    yield Draft(
        at=mount.span if mount is not None else None,
        variant="scaled" if many else "empty-dir" if mount is not None else None,
        values=values,
        ceiling=None if many else Severity.INFO,
    )


def _meant_for_models(mount: Mount) -> bool:
    if mount.target.startswith(("/dev", "/etc", "/var/run", "/run", "/tmp", "/proc", "/sys")):  # noqa: S108
        return False
    last = mount.target.rstrip("/").rpartition("/")[2]
    return "." not in last and bool(_MODEL_PATH.search(f"{mount.target} {mount.source}"))


def _model_cache(case: Case) -> tuple[str | None, str]:
    """Where the server keeps what it downloads, and what says so; None where a variable hides it."""
    given = case.plan.values.get("download_dir")
    if given is not None:
        return (given, "--download-dir") if isinstance(given, str) else (None, "")
    names = {variable.name: variable for variable in case.unit.environment}
    for name, below in (
        ("HF_HUB_CACHE", ""),
        ("HUGGINGFACE_HUB_CACHE", ""),
        ("HF_HOME", ""),
        ("TRANSFORMERS_CACHE", ""),
        ("XDG_CACHE_HOME", "/huggingface"),
        ("HOME", "/.cache/huggingface"),
    ):
        if name in names:
            value = names[name].value
            return (value.value.rstrip("/") + below, name) if value is not None and value.value else (None, "")
    return _HUB_CACHE, "the default"


@check("cpu-threads", values=("limit", "backend"))
def cpu_threads(case: Case, params: NoParams) -> Iterator[Draft]:
    """A processor limit, and no number of threads that goes with it."""
    limit = case.host.cpu_limit
    if limit is None or limit.value is None:
        return
    names = {variable.name for variable in case.unit.environment}
    if names & {"OMP_NUM_THREADS", "VLLM_CPU_OMP_THREADS_BIND", "TORCH_NUM_THREADS", "MKL_NUM_THREADS"}:
        return
    on_cpu = case.backend == "cpu"
    if not on_cpu and limit.value > 8:
        return
    yield Draft(
        at=limit.span,
        variant="cpu" if on_cpu else None,
        values={"limit": f"{limit.value:g}", "backend": case.backend or "cuda"},
        ceiling=None if on_cpu or limit.value <= 4 else Severity.INFO,
    )
