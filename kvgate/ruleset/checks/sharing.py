"""Several servers on the same GPUs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any, Final

from kvgate.findings.finding import Severity
from kvgate.manifests.tree import entries_at, items_at, node_at, text_at
from kvgate.patterns import regex
from kvgate.records import record
from kvgate.ruleset.case import Case
from kvgate.ruleset.checks import check
from kvgate.ruleset.model import Draft
from kvgate.ruleset.scene import Scene
from kvgate.ruleset.words import listed
from kvgate.source.text import Span
from kvgate.source.yaml_tree import Node, Scalar
from kvgate.source.yaml_tree import Sequence as YamlSequence


@record
class Sharing:
    """Shares of one GPU: what all servers on it may claim together, and one alone.

    ``sliced`` is for a GPU that is time-sliced, ``beside`` for one with a program that is no vLLM server.
    """

    most: float = 0.95
    sliced: float = 0.6
    beside: float = 0.85


@check("shared-gpu", params=Sharing, values=("servers", "sum", "shares", "gpus", "other", "share"), scope="tree")
def shared_gpu(scene: Scene, params: Sharing) -> Iterator[Draft]:
    """Servers whose shares of one GPU are more than the GPU."""
    for group in _groups(scene.cases):
        yield from _together(group, params)
        yield from _beside_others(group, params)
    sliced = _time_slices(scene)
    for case in scene.cases:
        share = share_of(case)
        if (
            (case.plan.gpu_shared or (sliced is not None and _is_sliced(case)))
            and share is not None
            and share > params.sliced
        ):
            yield Draft(
                at="arg:gpu_memory_utilization",
                case=case,
                variant="sliced",
                values=_values((case,), (share,), set()),
                related=((sliced, "the device plugin slices every GPU"),) if sliced is not None else (),
            )


_SLICES: Final = regex(r"timeSlicing:[\s\S]{0,400}?\breplicas:\s*(?P<count>\d{1,9})\b")


def _is_sliced(case: Case) -> bool:
    """Whether a server asks for GPUs of the device plugin that slices them: NVIDIA's."""
    return any(request.resource.startswith("nvidia.com/") for request in case.unit.gpu_requests)


def _time_slices(scene: Scene) -> Span | None:
    """Where the device plugin's configuration cuts each GPU into several, by time alone."""
    for file in scene.files.values():
        match = _SLICES.search(file.text) if "timeSlicing" in file.text else None
        if match is not None and int(match["count"]) > 1:
            return Span(file, match.start("count"), match.end("count"))
    return None


def _together(group: Sequence[Case], params: Sharing) -> Iterator[Draft]:
    clashing: dict[int, Case] = {}
    gpus: set[str] = set()
    known = [(case, _devices(case), share) for case in group if (share := share_of(case)) is not None]
    on_some = [(case, devices, share) for case, devices, share in known if devices]
    for (left, here, one), (right, there, other) in combinations(on_some, 2):
        common = here & there
        if not common or one + other <= params.most:
            continue
        if common <= gpus and id(left) in clashing and id(right) in clashing:
            continue  # says nothing new
        if _alternatives(left, right):
            continue
        clashing |= {id(left): left, id(right): right}
        gpus |= common
    found = [case for case in group if id(case) in clashing]
    if not found:
        return
    values = tuple(share_of(case) or 0 for case in found)
    first, *others = found
    yield Draft(
        at="arg:gpu_memory_utilization",
        case=first,
        values=_values(found, values, gpus),
        ceiling=_started_together(found),
        related=tuple((_place(case), "on the same GPU") for case in others),
    )


def _started_together(found: Sequence[Case]) -> Severity | None:
    """What the number of servers, and of files, leaves of the severity.

    Many servers on one GPU are more often a list to choose from than something that is started whole, and services
    with profiles are started by name, or all together by their profile.
    """
    if len(found) > 3 or all(_profiles(case) for case in found):
        return Severity.INFO
    return Severity.WARNING if len(found) > 2 or len({case.unit.path for case in found}) > 1 else None


def _place(case: Case) -> Span:
    from kvgate.ruleset.locate import locate

    return locate(case, "arg:gpu_memory_utilization")


def _values(found: Sequence[Case], shares: Sequence[float], gpus: set[str]) -> dict[str, Any]:
    return {
        "servers": listed(f'"{case.unit.name or case.unit.id}"' for case in found),
        "sum": f"{sum(shares):.2f}".rstrip("0").rstrip("."),
        "shares": " + ".join(f"{share:g}" for share in shares),
        "gpus": f"GPU {', '.join(sorted(gpus))}" if gpus else "the GPU",
        "other": "",
        "share": f"{shares[0]:g}",
    }


def share_of(case: Case) -> float | None:
    """The share of its GPUs that a server takes; None where it is not a share."""
    if case.argument("kv_cache_memory_bytes") is not None or case.is_unresolved("gpu_memory_utilization"):
        return None
    hidden = any(problem.kind == "unresolved-words" for problem in case.plan.parsed.problems)
    if hidden and case.argument("gpu_memory_utilization") is None:
        return None  # it may stand among the words that nobody sees
    share = case.effective("gpu_memory_utilization")
    return float(share) if isinstance(share, int | float) and not isinstance(share, bool) else None


#: Kinds of units that run side by side for as long as the machine runs.
_SERVICES: Final = ("systemd", "quadlet")

# -- which servers see the same GPUs -----------------------------------------------------------------------------------


def _groups(cases: Sequence[Case]) -> list[list[Case]]:
    """Servers that run on one machine: of one Compose file, one pod, one script."""
    groups: dict[object, list[Case]] = {}
    for case in cases:
        if case.backend in ("cpu", "tpu", "hpu"):
            continue
        unit = case.unit
        if case.host.is_compose:
            groups.setdefault(("compose", unit.path), []).append(case)
        elif case.host.is_object:
            pod = case.host.pod
            if not unit.gpu_requests:
                # past the device plugin: whatever the pods of a directory see, they see together
                groups.setdefault(("node", unit.path.rpartition("/")[0]), []).append(case)
            elif pod is not None:
                groups.setdefault(("pod", id(pod.spec)), []).append(case)
        else:
            # steps of a pipeline follow each other; commands of one script may run side by side
            folder = unit.path.rpartition("/")[0]
            place = ("machine", folder) if unit.kind in _SERVICES else ("script", unit.path, id(unit.node))
            groups.setdefault(place, []).append(case)
    return [group for group in groups.values() if group]


def _devices(case: Case) -> set[str]:
    """The GPUs that a server runs on, by their index or id on the machine: the first of those it sees."""
    count = case.local_gpus
    host = case.host
    environment = case.plan.environment
    hidden = {variable.name for variable in case.unit.environment if variable.value is None}
    if count is None or hidden & {"CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"}:
        return set()
    visible: list[str] | None = None
    if host.is_compose:
        visible = _compose_devices(case)
        if visible == []:
            return set()
    elif host.is_object:
        # the device plugin gives every container GPUs of its own, unless the container helps itself to all
        if case.unit.gpu_requests or environment.get("NVIDIA_VISIBLE_DEVICES") in (None, "", "none", "void"):
            return set()
    elif host.is_docker_run:
        option = host.docker_option("--gpus")
        if option is None:
            return set()
        visible = _docker_gpus(option[0])
    elif case.unit.kind == "quadlet":
        ids = re.findall(r"nvidia\.com/gpu=([\w:-]+)", case.unit.span.file.text)
        if not ids:
            return set()
        visible = None if "all" in ids else ids
    elif case.unit.kind not in _SERVICES and not _in_background(case):
        return set()
    for name in ("NVIDIA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"):
        text = environment.get(name)
        if text is None or text.strip() in ("", "all"):
            continue
        wanted = [part.strip() for part in text.split(",") if part.strip()]
        if visible is None:
            visible = wanted
        elif all(part.isdecimal() and int(part) < len(visible) for part in wanted):
            visible = [visible[int(part)] for part in wanted]  # indices among those that the container sees
        else:
            visible = wanted
    if visible is None:
        # services that name no GPU may be meant for machines of their own
        return set() if case.unit.kind in _SERVICES else {str(index) for index in range(count)}
    return set(visible[:count])


def _compose_devices(case: Case) -> list[str] | None:
    """Ids of the devices that a Compose service reserves; None for all of them, empty where there are none."""
    return _reserved(case.unit.node) if case.unit.gpu_requests else []


def _reserved(node: Node | None) -> list[str] | None:
    devices = items_at(node, "deploy", "resources", "reservations", "devices") or items_at(node, "gpus")
    for device in devices:
        ids = node_at(device, "device_ids")
        if isinstance(ids, YamlSequence):
            return [part for item in ids.items if isinstance(item, Scalar) for part in item.value.split(",") if part]
        count = text_at(device, "count")
        return _first(count) if count is not None else None
    return None


def _docker_gpus(text: str) -> list[str] | None:
    if "$" in text:
        return []  # whichever they are
    if "device=" in text:
        return [part for part in text.partition("device=")[2].strip("\"'").split(",") if part]
    return _first(text)


def _first(count: str) -> list[str] | None:
    """Ids of the first devices of a machine; None where that is no number, or none of a machine's GPUs."""
    return [str(index) for index in range(int(count))] if re.fullmatch(r"[0-9]{1,3}", count) else None


_BACKGROUND: Final = regex(r"[^\n&|;]*(?:\\\n[^\n&|;]*)*&(?!&)")


def _in_background(case: Case) -> bool:
    """Whether a script goes on while the server runs."""
    span = case.unit.span
    text = span.file.text
    end = case.unit.words[-1].span.end if case.unit.words else span.end
    if any(word.span.file is not span.file for word in case.unit.words[-1:]):
        end = span.end
    return _BACKGROUND.match(text, max(end, span.start)) is not None


def _alternatives(left: Case, right: Case) -> bool:
    """Whether only one of two servers runs: branches of a script, one behind the other, profiles of Compose."""
    if left.host.is_compose:
        one, other = (_profiles(case) for case in (left, right))
        return bool(one or other) and not (one & other)
    if left.unit.path == right.unit.path and _address(left) & _address(right):
        return True
    notes = [{note.text for note in case.unit.notes if "only if" in note.reason} for case in (left, right)]
    return bool(notes[0] or notes[1]) and notes[0] != notes[1]


def _address(case: Case) -> set[str]:
    """What two servers of one machine cannot have both at once: the port of a process, the name of a container."""
    if not case.host.is_docker_run:
        return {f"port {case.effective('port')}"} if not case.is_unresolved("port") else {_written(case, "port")}
    names = (case.host.docker_option("--name"), case.host.docker_option("-p", "--publish"))
    return {option[0] for option in names if option is not None}


def _written(case: Case, name: str) -> str:
    from kvgate.ruleset.locate import locate

    return locate(case, f"arg:{name}").text


def _profiles(case: Case) -> set[str]:
    return {item.value for item in items_at(case.unit.node, "profiles") if isinstance(item, Scalar)}


# -- programs that are no vLLM servers ---------------------------------------------------------------------------------

_HARMLESS: Final = regex(r"exporter|dcgm|monitor|metrics|prometheus|grafana|nvtop|smi|proxy|nginx|init|download", re.I)

# A node of Ray's takes no memory of a GPU itself; the servers run in it.
_RAY_NODE: Final = regex(r"\bray\s+start\b")


def _command_text(service: Node) -> str:
    words = [node for key in ("entrypoint", "command") for node in (node_at(service, key), *items_at(service, key))]
    return " ".join(node.value for node in words if isinstance(node, Scalar))


def _beside_others(group: Sequence[Case], params: Sharing) -> Iterator[Draft]:
    first = group[0]
    if not first.host.is_compose:
        return
    names = {case.unit.name for case in group}
    others: list[tuple[str, list[str] | None, Span]] = []
    for entry in entries_at(first.unit.document, "services"):
        node, name = entry.value, entry.key.value
        devices = node_at(node, "deploy", "resources", "reservations", "devices") or node_at(node, "gpus")
        if name in names or devices is None or _HARMLESS.search(f"{name} {text_at(node, 'image') or ''}"):
            continue
        if items_at(node, "profiles") or _RAY_NODE.search(_command_text(node)):
            continue
        theirs = _reserved(node)
        visible = text_at(node, "environment", "CUDA_VISIBLE_DEVICES")
        if theirs is None and visible is not None:
            theirs = visible.split(",")
        others.append((name, theirs, entry.key.span))
    for case in group:
        share, ours = share_of(case), _devices(case)
        if share is None or not ours or share <= params.beside or _profiles(case):
            continue
        found = [(name, span) for name, theirs, span in others if theirs is None or ours & set(theirs)]
        if found:
            yield Draft(
                at="arg:gpu_memory_utilization",
                case=case,
                variant="beside",
                values={**_values((case,), (share,), ours), "other": listed(f'"{name}"' for name, _ in found)},
                related=tuple((span, "it has the same GPU") for _, span in found),
            )
