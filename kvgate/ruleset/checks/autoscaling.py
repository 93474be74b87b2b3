"""What autoscalers and dashboards watch."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from kvgate.engine.metrics import find_metric
from kvgate.findings.finding import Severity
from kvgate.manifests.tree import node_at, scalar_at, text_at
from kvgate.patterns import regex
from kvgate.ruleset.case import Case
from kvgate.ruleset.checks import NoParams, check
from kvgate.ruleset.checks.runtime import LoadTime, minutes
from kvgate.ruleset.model import Draft
from kvgate.ruleset.scalers import Watched, first_line, watched
from kvgate.ruleset.scene import Scene
from kvgate.source.text import SourceFile, Span
from kvgate.source.yaml_tree import Mapping, Scalar, is_null, scalar_bool, scalar_int

if TYPE_CHECKING:
    from kvgate.manifests.objects import ClusterObject


@check("autoscaling-metric", values=("metric", "scaler", "what", "beside", "target"), scope="tree")
def autoscaling_metric(scene: Scene, params: NoParams) -> Iterator[Draft]:
    """An autoscaler that watches how busy the GPU or the processor looks."""
    for scaler, case in _scalers(scene):
        metrics = watched(scaler)
        good = [metric for metric in metrics if not metric.is_utilization]
        bad = [metric for metric in metrics if metric.is_utilization]
        if not bad:
            continue
        first = bad[0]
        on_gpu = first.kind not in ("cpu", "memory")
        yield Draft(
            at=first.span,
            case=case,
            variant="memory" if first.is_memory else None,
            values={
                "metric": " ".join(first.text.split()),
                "scaler": f"{scaler.kind} {scaler.name}",
                "what": "the GPU" if on_gpu else "the processor",
                "beside": "",
                "target": scaler.text("spec", "scaleTargetRef", "name") or "",
            },
            ceiling=Severity.INFO if good and not on_gpu else None,
        )
    for case in scene.cases:
        yield from _knative(case)
        yield from _of_values(case)


def _scalers(scene: Scene) -> Iterator[tuple[ClusterObject, Case | None]]:
    """Autoscalers of vLLM servers, each with its unit where that is among the files."""
    owners: dict[int, Case] = {}
    for case in scene.cases:
        for scaler in scene.objects.autoscalers(case.unit) if case.host.is_object else ():
            owners.setdefault(id(scaler.node), case)
    for scaler in scene.objects.of_kind("HorizontalPodAutoscaler", "ScaledObject"):
        owner = owners.get(id(scaler.node))
        if owner is not None:
            yield scaler, owner
            continue
        named = "vllm" in f"{scaler.text('spec', 'scaleTargetRef', 'name') or ''} {scaler.name}".lower()
        if named and not _scales_another_program(scene, scaler):
            yield scaler, None


def _scales_another_program(scene: Scene, scaler: ClusterObject) -> bool:
    """Whether the workload that an autoscaler names is among the files, which were read and have no server there."""
    kind, name = (scaler.text("spec", "scaleTargetRef", key) for key in ("kind", "name"))
    return name is not None and bool(scene.objects.images(kind or "Deployment", name))


def _of_values(case: Case) -> Iterator[Draft]:
    """Charts name the target of their autoscaler among their values."""
    for key in ("autoscaling", "hpa", "horizontalPodAutoscaler"):
        switch = case.host.value(key, "enabled")
        if switch is None or scalar_bool(switch) is not True:
            continue
        for name, what in (
            ("targetCPUUtilizationPercentage", "cpu"),
            ("targetCPUUtilization", "cpu"),
            ("targetMemoryUtilizationPercentage", "memory"),
            ("targetMemoryUtilization", "memory"),
        ):
            target = case.host.value(key, name)
            if not isinstance(target, Scalar) or is_null(target) or not target.value:
                continue
            holder = case.host.value(key)
            place = holder.entry(name) if isinstance(holder, Mapping) else None
            yield Draft(
                at=place.key.span if place is not None else target.span,
                case=case,
                variant="memory" if what == "memory" else None,
                values={
                    "metric": what,
                    "scaler": f"the chart's {key}",
                    "what": "the processor",
                    "beside": "",
                    "target": case.unit.name,
                },
            )
            return


_KNATIVE_METRIC: Final = "autoscaling.knative.dev/metric"
_KSERVE_METRIC: Final = "serving.kserve.io/metric"
_DEPLOYMENT_MODE: Final = "serving.kserve.io/deploymentMode"


def _knative(case: Case) -> Iterator[Draft]:
    """KServe and Knative name the metric on the object itself."""
    document = case.unit.document
    if case.unit.kind not in ("InferenceService", "LLMInferenceService", "Service"):
        return
    annotations = node_at(document, "metadata", "annotations")
    metric = next(
        (
            found
            for found in (
                scalar_at(document, "spec", "predictor", "scaleMetric"),
                scalar_at(annotations, _KNATIVE_METRIC),
                scalar_at(annotations, _KSERVE_METRIC),
            )
            if found is not None
        ),
        None,
    )
    values: dict[str, Any] = {
        "metric": metric.value if metric is not None else "cpu",
        "scaler": f"{case.unit.kind} {case.unit.name}",
        "what": "the processor",
        "beside": "",
        "target": case.unit.name,
    }
    if metric is not None and metric.value in ("cpu", "memory"):
        variant = "memory" if metric.value == "memory" else None
        yield Draft(at=metric.span, case=case, variant=variant, values=values)
        return
    most = scalar_at(document, "spec", "predictor", "maxReplicas")
    least = scalar_int(node_at(document, "spec", "predictor", "minReplicas"))
    mode = text_at(node_at(document, "metadata", "annotations"), _DEPLOYMENT_MODE)
    count = scalar_int(most)
    raw = mode in ("RawDeployment", "Standard")
    grows = raw and count is not None and count > (1 if least is None else least)
    if grows and most is not None and node_at(document, "spec", "predictor", "autoScaling") is None:
        yield Draft(at=most.span, case=case, variant="kserve-default", values=values)


# -- scaling from zero -------------------------------------------------------------------------------------------------

_FROM_OUTSIDE: Final = regex(
    r"inference_pool|inference_extension|gateway|router|envoy|nginx|istio|ingress|http_requests|queue_(?:length|depth)|litellm"
    r"|kafka|rabbit|sqs|redis|epp|pending_requests_total|activator",
    re.IGNORECASE,
)


@check(
    "scale-from-zero",
    params=LoadTime,
    values=("scaler", "metric", "cooldown", "load", "least", "weights"),
    scope="tree",
)
def scale_from_zero(scene: Scene, params: LoadTime) -> Iterator[Draft]:
    """An autoscaler that cannot leave zero, or leaves it too hastily."""
    for scaler, case in _scalers(scene):
        keda = scaler.kind == "ScaledObject"
        key = "minReplicaCount" if keda else "minReplicas"
        node = scalar_at(scaler.at("spec"), key)
        least = scalar_int(node) if node is not None else (0 if keda else 1)
        if least is None:
            continue
        weights = case.weight_bytes if case is not None else None
        load = params.fast(weights)
        place = node.span if node is not None else scaler.span
        metrics = watched(scaler)
        inside = [metric for metric in metrics if not _comes_from_outside(metric)]
        values: dict[str, Any] = {
            "scaler": f"{scaler.kind} {scaler.name}",
            "metric": " ".join(inside[0].text.split()) if inside else "",
            "cooldown": "",
            "load": minutes(load),
        }
        if least == 0 and metrics and len(inside) == len(metrics):
            yield Draft(at=place, case=case, values=values)
        cooldown = scalar_at(scaler.at("spec"), "cooldownPeriod")
        seconds = scalar_int(cooldown) if cooldown is not None else None
        if keda and least == 0 and cooldown is not None and seconds is not None and seconds < load:
            yield Draft(
                at=cooldown.span, case=case, variant="cooldown", values={**values, "cooldown": minutes(seconds)}
            )
        yield from _silent_triggers(scaler, case, values)
        if not keda and least != 0:
            yield from _hasty(scaler, case, values)


def _comes_from_outside(metric: Watched) -> bool:
    if metric.kind in ("cron", "kafka", "rabbitmq", "redis", "aws-sqs-queue", "external-push", "http"):
        return True
    return _FROM_OUTSIDE.search(metric.text) is not None


def _silent_triggers(scaler: ClusterObject, case: Case | None, values: dict[str, Any]) -> Iterator[Draft]:
    """KEDA takes a query without a result for zero unless told otherwise: a misspelt name never scales."""
    if scaler.kind != "ScaledObject" or scaler.at("spec", "fallback") is not None:
        return
    for trigger in scaler.items("spec", "triggers"):
        if text_at(trigger, "type") != "prometheus":
            continue
        query = scalar_at(trigger, "metadata", "query")
        ignored = scalar_at(trigger, "metadata", "ignoreNullValues")  # KEDA's metadata are texts
        if query is None or (ignored is not None and ignored.value.lower() == "false"):
            continue
        if re.search(r"\bor\s+(?:on\(\)\s+)?vector\(", query.value):
            continue
        yield Draft(
            at=first_line(query) if ignored is None else ignored.span,
            case=case,
            variant="silent",
            values={**values, "metric": " ".join(query.value.split())},
            ceiling=None if ignored is not None else Severity.INFO,
        )
        return


def _hasty(scaler: ClusterObject, case: Case | None, values: dict[str, Any]) -> Iterator[Draft]:
    """Scale-up decisions follow each other faster than a pod starts."""
    if scaler.at("spec", "behavior") is None and scaler.at("spec", "advanced") is None:
        yield Draft(at=scaler.span, case=case, variant="no-behavior", values=values, ceiling=Severity.INFO)


# -- names of metrics --------------------------------------------------------------------------------------------------

# What may not stand before a literal is asked behind it: a pattern that begins with text is found much faster.
_NAME: Final = regex(r"vllm(?<![\w:]vllm)(?P<sign>[:_])(?P<name>[a-z][a-z0-9_]*)")
_QUERIES: Final = regex(
    r"""(?m)^[ \t]*(?:-[ \t]*)?["']?(?:expr|query|promql|record|seriesQuery|metricsQuery|metricName)["']?\s*:"""
    r"""|kind:\s*(?:HorizontalPodAutoscaler|ScaledObject|ScaledJob)\b|["'](?:expr|query)["']\s*:|rate\(|histogram_quantile|(?:sum|avg)\s*(?:by\b|\()"""
)
_SUM: Final = regex(r"sum(?<!\wsum)\s*(?:(?:by|without)\s*\([^()]*\)\s*)?\(\s*vllm[:_](?P<name>[a-z_]+)")
_DIVIDED: Final = regex(r"[^\n]*\)\s*/")
_DEFINES: Final = regex(r"""(?:\bas\s*:\s*["']?|record\s*:\s*["']?|target_label\s*:|replacement\s*:\s*["']?)vllm_""")
_MAPS: Final = regex(r"""\bas\s*:\s*["']?(?:vllm_|\$\{?1\}?)|vllm_\$\{?1""")
_SCANNED: Final = (".yaml", ".yml", ".json", ".rules", ".py", ".sh", ".js", ".ts", ".jsonnet", ".libsonnet", ".tf")


@check("metric-names", values=("name", "instead", "since", "release", "where", "written"), scope="tree")
def metric_names(scene: Scene, params: NoParams) -> Iterator[Draft]:
    """Queries for metrics that the release does not export, or that cannot be added up."""
    aliased = bool(scene.matches(_DEFINES, "vllm_") or scene.matches(_MAPS, "vllm_", "$1", "${1"))
    for file in scene.everything.values():
        if "vllm" not in file.text or not file.path.endswith(_SCANNED) or not _QUERIES.search(file.text):
            continue
        case = _nearest_case(scene, file)
        version, assumed = _release(scene, case)
        yield from _stale(file, case, version, assumed=assumed, aliased=aliased)


def _stale(
    file: SourceFile, case: Case | None, version: str | None, *, assumed: bool, aliased: bool
) -> Iterator[Draft]:
    seen: set[str] = set()
    ceiling = Severity.INFO if assumed else None
    for match in _NAME.finditer(file.text):
        metric = find_metric(match["name"])
        written = match.group()
        if metric is None or written in seen or _is_comment(file, match.start()):
            continue
        span = Span(file, match.start(), match.end())
        values: dict[str, Any] = {
            "name": f"vllm:{match['name']}",
            "instead": f" Take vllm:{metric.instead} instead." if metric.instead else "",
            "since": metric.last,
            "release": f"vLLM {version}" + (" (assumed)" if assumed else ""),
            "where": "",
            "written": written,
        }
        if match["sign"] == "_":
            if aliased or not _in_query(file, match.start()):
                continue
            seen.add(written)
            yield Draft(at=span, case=case, variant="underscore", values=values)
            continue
        standing = metric.standing(version)
        if standing in ("hidden", "removed"):
            seen.add(written)
            hidden = standing == "hidden"
            said = {**values, "since": metric.hidden} if hidden else values
            yield Draft(at=span, case=case, variant="hidden" if hidden else None, values=said, ceiling=ceiling)
    for match in _SUM.finditer(file.text):
        metric = find_metric(match["name"])
        if metric is None or not metric.share or _DIVIDED.match(file.text, match.end()):
            continue
        values = {
            "name": f"vllm:{metric.name}", "instead": "", "since": "", "release": "", "where": "",
            "written": match.group(),
        }  # fmt: skip
        yield Draft(at=Span(file, match.start(), match.end()), case=case, variant="summed", values=values)


def _nearest_case(scene: Scene, file: SourceFile) -> Case | None:
    from kvgate.manifests.objects import nearest

    found = nearest(scene.cases, file.path, lambda case: case.unit.path)
    declared = [case for case in found if case.plan.version_basis == "declared"]
    return next(iter(declared or found), None)


def _release(scene: Scene, case: Case | None) -> tuple[str | None, bool]:
    if case is not None:
        return case.plan.version, case.plan.version_basis == "assumed"
    config = scene.config
    if config is not None and config.vllm_version:
        return config.vllm_version, False
    from kvgate.engine.releases import newest_release

    return newest_release(), True


def _is_comment(file: SourceFile, at: int) -> bool:
    start = file.text.rfind("\n", 0, at) + 1
    return file.text[start:at].lstrip().startswith(("#", "//"))


def _in_query(file: SourceFile, at: int) -> bool:
    """Whether a name stands in PromQL, where names are taken as they are, and is no metric name of an autoscaler."""
    start = file.text.rfind("\n", 0, at) + 1
    end = file.text.find("\n", at)
    line = file.text[start : end if end >= 0 else len(file.text)]
    if re.search(r"""["']?(?:expr|query|promql)["']?\s*:""", line):
        return True
    if re.match(r"""\s*-?\s*["']?(?:name|metricName|matchName|as)["']?\s*:""", line):
        return False
    before = file.text[max(0, start - 400) : start]
    key = re.findall(r"""(?m)^\s*-?\s*["']?(\w+)["']?\s*:""", before)
    return bool(key) and key[-1] in ("expr", "query", "promql")
