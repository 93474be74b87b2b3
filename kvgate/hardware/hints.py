"""From what manifests say about nodes and resources to the GPU.

Each hint (a node selector or affinity key with the values it allows, a resource with its count) narrows the catalogue
to the GPUs it could mean; what all hints agree on is the finding. Several values of one key are alternatives. Which
label says what is data (``data/labels.json``, ``data/instances.json``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Final, Literal

from kvgate.hardware.catalogue import GIB, Entry, entries, match_gpu
from kvgate.hardware.gpu import Gpu
from kvgate.patterns import regex
from kvgate.records import record
from kvgate.tables import load_table

Operator = Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]

_NAME_IT: Final = "name it in kvgate.yaml (gpu:) or with --gpu"
_SHARED: Final = regex(r"-shared$", re.IGNORECASE)


@record
class GpuHint:
    """A label key and the values a manifest allows for it, or a resource name and its count.

    ``operator`` is that of a Kubernetes node selector requirement; a plain selector is ``In`` with one value.
    """

    key: str
    values: Sequence[str]
    operator: Operator = "In"


@record
class GpuFinding:
    """What the hints say together.

    Attributes:
        gpu: the one GPU they mean, None otherwise.
        name_text: the value as written that says so.
        count_hint: GPUs of the replica (resources), else of the node (instance type, count label); None when not said.
        basis: ``declared`` when a product or machine is named, ``assumed`` when only properties (architecture, memory)
            leave a single GPU of the catalogue, ``unknown`` without one.
        reason: why there is no GPU, or what else to know of it; None when nothing needs saying.
        hint: the hint that decided.
        shared: the GPU is time-sliced: other pods use the same memory.
        candidates: the GPUs that remain possible where there are several.
    """

    gpu: Gpu | None
    name_text: str | None
    count_hint: int | None
    basis: Literal["declared", "assumed", "unknown"]
    reason: str | None
    hint: GpuHint | None
    shared: bool = False
    candidates: tuple[Gpu, ...] = ()


@dataclass(slots=True)
class _Evidence:
    """What one hint says.

    ``gpus`` holds what it could mean by the catalogue's product (a slice or share under its board's name), None when it
    does not say. ``weight`` orders hints: a named product decides.
    """

    hint: GpuHint
    gpus: Mapping[str, Gpu] | None = None
    weight: int = 0
    resource: bool = False
    count: int | None = None
    profile: str | None = None
    shared: bool = False
    failure: str | None = None
    blocker: str | None = None


def gpu_from_hints(hints: Sequence[GpuHint]) -> GpuFinding:
    """The GPU that node labels and resource requests mean together."""
    found = [evidence for hint in hints if (evidence := _read(hint))]
    for evidence in found:
        if evidence.blocker:
            return _nothing(evidence, evidence.blocker)
    resources = [evidence.count for evidence in found if evidence.resource and evidence.count is not None]
    nodes = {evidence.count for evidence in found if not evidence.resource and evidence.count is not None}
    count = sum(resources) if resources else nodes.pop() if len(nodes) == 1 else None
    shared = any(evidence.shared for evidence in found)

    speaking = sorted((evidence for evidence in found if evidence.gpus is not None), key=_decides_first)
    profiles = [evidence for evidence in found if evidence.profile]
    failed = next((evidence for evidence in found if evidence.failure), None)
    if profiles:
        return _slice(profiles, speaking, count, shared)
    if not speaking or speaking[0].weight == _WEIGHTS["vendor"]:
        if failed:
            return replace(_nothing(failed, failed.failure), count_hint=count, shared=shared)
        return _unnamed(found, count, shared)
    remaining = _intersection(speaking)
    decisive = speaking[0]
    text = _text(decisive.hint)
    if not remaining:
        return GpuFinding(None, text, count, "unknown", _contradiction(speaking), decisive.hint, shared)
    gpus = tuple(remaining.values())
    if len(gpus) > 1:
        options = ", ".join(gpu.name for gpu in gpus[:6]) + (", ..." if len(gpus) > 6 else "")
        reason = f"{decisive.hint.key}: {text} leaves several GPUs ({options}): {_NAME_IT}"
        return GpuFinding(None, text, count, "unknown", reason, decisive.hint, shared, gpus)
    weak = decisive.weight < _WEIGHTS["product"]
    note = "time-sliced: other pods use the same GPU memory" if shared else None
    if weak:
        note = f"the only GPU of the catalogue that fits {decisive.hint.key}: {text}"
    return GpuFinding(gpus[0], text, count, "assumed" if weak else "declared", note, decisive.hint, shared)


def _decides_first(evidence: _Evidence) -> tuple[int, int]:
    return -evidence.weight, len(evidence.gpus or ())


# Properties narrow, names decide; a vendor alone names nothing.
_WEIGHTS: Final = {"vendor": 1, "property": 2, "product": 3}


def _nothing(evidence: _Evidence, reason: str | None) -> GpuFinding:
    return GpuFinding(None, _text(evidence.hint), None, "unknown", reason, evidence.hint)


def _text(hint: GpuHint) -> str:
    return ", ".join(hint.values)


def _unnamed(found: Sequence[_Evidence], count: int | None, shared: bool) -> GpuFinding:
    resource = next((evidence.hint for evidence in found if evidence.resource), None)
    if resource is None:
        return GpuFinding(None, None, count, "unknown", None, None, shared)
    reason = f"{resource.key} does not say which GPU: {_NAME_IT}"
    if resource.key == "device":
        reason = f"no file says which GPU: {_NAME_IT}"
    return GpuFinding(None, None, count, "unknown", reason, resource, shared)


def _contradiction(speaking: Iterable[_Evidence]) -> str:
    said = " and ".join(f"{evidence.hint.key}: {_text(evidence.hint)}" for evidence in speaking)
    return f"no GPU of the catalogue is {said}"


def _intersection(evidence: Iterable[_Evidence]) -> Mapping[str, Gpu]:
    remaining: Mapping[str, Gpu] | None = None
    for item in evidence:
        assert item.gpus is not None
        if remaining is None:
            remaining = item.gpus
        else:
            remaining = {name: gpu for name, gpu in remaining.items() if name in item.gpus}
    return remaining or {}


def _slice(profiles: Sequence[_Evidence], speaking: Sequence[_Evidence], count: int | None, shared: bool) -> GpuFinding:
    names = {evidence.profile for evidence in profiles}
    decisive = profiles[0]
    text = decisive.hint.key if decisive.resource else _text(decisive.hint)
    if len(names) > 1:
        reason = f"several MIG profiles ({', '.join(sorted(str(name) for name in names))}): one engine sees one slice"
        return GpuFinding(None, text, count, "unknown", reason, decisive.hint, shared)
    profile = decisive.profile
    parents = _intersection(speaking)
    if speaking and not parents:
        return GpuFinding(None, text, count, "unknown", _contradiction(speaking), decisive.hint, shared)
    parent = next(iter(parents)) if len(parents) == 1 else ""
    match = match_gpu(f"{parent} MIG {profile}")
    basis: Literal["declared", "unknown"] = "declared" if match.gpu else "unknown"
    return GpuFinding(match.gpu, text, count, basis, match.reason, decisive.hint, shared, match.candidates)


# --- one hint ---------------------------------------------------------------------------------------------------------


def _read(hint: GpuHint) -> _Evidence | None:
    """What a hint says, None when its key says nothing about GPUs."""
    if resource := _resource(hint):
        return resource
    labels = load_table("hardware/labels")
    says = labels["labels"].get(hint.key)
    generic = False
    if says is None:
        last = re.sub(r"[-_.]", "", hint.key.rpartition("/")[2].lower())
        says, generic = labels["generic"].get(last), True
    if says is None or not hint.values or hint.operator in {"Exists", "DoesNotExist"}:
        return None
    if hint.operator in {"Gt", "Lt"} and says not in {"memory_mib", "memory_gb"}:
        return None
    return _READERS[says](hint, generic)


@cache
def _resource_kinds() -> tuple[tuple[re.Pattern[str], str], ...]:
    rows = load_table("hardware/labels")["resources"]
    return tuple((regex(pattern, re.IGNORECASE), kind) for pattern, kind in rows)


def _resource(hint: GpuHint) -> _Evidence | None:
    # A label can have the name of a resource (nvidia.com/gpu: "true"); a count is a number or missing.
    if not all(value.isdecimal() or not value for value in hint.values):
        return None
    kind = next((kind for pattern, kind in _resource_kinds() if pattern.fullmatch(hint.key)), None)
    if kind is None or hint.key in load_table("hardware/labels")["labels"]:
        return None
    counts = [int(value) for value in hint.values if value]
    evidence = _Evidence(hint, resource=True, count=counts[0] if counts else None)
    if counts == [0]:
        return None
    if kind in {"nvidia", "amd", "nvidia-shared"}:
        evidence.weight = _WEIGHTS["vendor"]
        evidence.gpus = _where(lambda entry: entry.gpu.vendor == kind.partition("-")[0])
        evidence.shared = kind == "nvidia-shared"
    elif kind == "mig":
        evidence.profile = hint.key.rpartition("mig-")[2]
    elif kind == "product":
        match = match_gpu(hint.key.rpartition("/")[2])
        if not match.candidates:
            return None
        evidence.gpus, evidence.weight = {gpu.name: gpu for gpu in match.candidates}, _WEIGHTS["product"]
    elif kind != "device":
        evidence.blocker = f"{hint.key} is {kind}: kvgate's catalogue holds NVIDIA and AMD GPUs"
    return evidence


def _where(holds: Callable[[Entry], bool]) -> Mapping[str, Gpu]:
    return {name: entry.gpu for name, entry in entries().items() if holds(entry)}


def _product(hint: GpuHint, generic: bool) -> _Evidence | None:
    labels = load_table("hardware/labels")
    own = {key.lower(): name for key, name in labels["products"].get(hint.key, {}).items()}
    gpus: dict[str, Gpu] = {}
    profiles: set[str | None] = set()
    for value in hint.values:
        if name := own.get(value.lower()):
            gpus[name] = entries()[name].gpu
            continue
        match = match_gpu(value)
        if match.candidates:
            profiles.add(_profile_of(match.candidates[0]))
            gpus.update((gpu.name.partition(" MIG ")[0], gpu) for gpu in match.candidates)
            continue
        other = next(
            (what for pattern, what in labels["not_gpus"]["product"] if re.fullmatch(pattern, value.lower())), None
        )
        if other:
            return _Evidence(
                hint, blocker=f"{hint.key}: {value} is {other}: kvgate's catalogue holds NVIDIA and AMD GPUs"
            )
        if generic:
            return None
        return _Evidence(hint, weight=_WEIGHTS["product"], failure=f"{hint.key}: {match.reason}")
    shared = any(_SHARED.search(value) for value in hint.values)
    evidence = _named(hint, gpus, shared=shared)
    if len(profiles) == 1:
        evidence.profile = profiles.pop()
    elif any(profiles):
        evidence.failure = f"{hint.key}: {_text(hint)} allows slices of different sizes: {_NAME_IT}"
        evidence.gpus = None
    return evidence


def _profile_of(gpu: Gpu) -> str | None:
    return gpu.name.partition(" MIG ")[2] or None


def _named(hint: GpuHint, gpus: Mapping[str, Gpu], count: int | None = None, shared: bool = False) -> _Evidence:
    if hint.operator == "NotIn":
        excluded = _where(lambda entry: entry.gpu.name not in gpus)
        return _Evidence(hint, gpus=excluded, weight=_WEIGHTS["vendor"])
    return _Evidence(hint, gpus=gpus, weight=_WEIGHTS["product"], count=count, shared=shared)


def _instance_type(hint: GpuHint, generic: bool) -> _Evidence | None:
    gpus: dict[str, Gpu] = {}
    counts: set[int | None] = set()
    for value in hint.values:
        known = _instance(value)
        if isinstance(known, str):
            return _Evidence(
                hint, blocker=f"{hint.key}: {value} has {known}: kvgate's catalogue holds NVIDIA and AMD GPUs"
            )
        if known is None:
            # A machine without a GPU of ours, or one that the table does not know: nothing is said.
            return (
                None
                if generic or len(hint.values) == 1
                else _Evidence(
                    hint,
                    weight=_WEIGHTS["product"],
                    failure=f"{hint.key}: {value} is no instance type with a GPU that the catalogue knows",
                )
            )
        gpu, count = known
        gpus[gpu.name.partition(" (")[0]] = gpu
        counts.add(count)
    return _named(hint, gpus, counts.pop() if len(counts) == 1 else None)


def _instance(name: str) -> tuple[Gpu, int | None] | str | None:
    """The GPU and the number of GPUs of an instance type; words for an accelerator that is none; None when unknown."""
    data = load_table("hardware/instances")
    lowered = name.strip().lower().removeprefix("ml.")
    if known := data["types"].get(lowered):
        return entries()[known[0]].gpu, known[1]
    if part := data["partial"].get(lowered):
        return _part(entries()[part[0]], part[1], part[2]), 1
    family, _, size = lowered.partition(".")
    if known := data["families"].get(family):
        return entries()[known[0]].gpu, known[1].get(size)
    for pattern, gpu in data["patterns"]:
        if match := re.fullmatch(pattern, lowered):
            return entries()[gpu].gpu, int(match[1]) if match.groups() else None
    return next((what for pattern, what in data["none"] if re.fullmatch(pattern, lowered)), None)


def _part(entry: Entry, numerator: int, denominator: int) -> Gpu:
    """A share of one GPU that a hypervisor hands out: its part of the board, less what the guest's driver keeps."""
    assert entry.name_gb is not None
    high = entry.name_gb * GIB * numerator // denominator
    low = high - 7 * GIB // 10
    return replace(
        entry.gpu,
        name=f"{entry.gpu.name} ({numerator}/{denominator})",
        memory_bytes=(low + high) // 2,
        memory_low=low,
        memory_high=high,
        basis="declared",
    )


def _instance_family(hint: GpuHint, generic: bool) -> _Evidence | None:
    data = load_table("hardware/instances")
    gpus: dict[str, Gpu] = {}
    for value in hint.values:
        lowered = value.strip().lower()
        names = {data["families"][lowered][0]} if lowered in data["families"] else set()
        names |= {known[0] for kind, known in data["types"].items() if kind.partition("-")[0] == lowered}
        if not names:
            return None
        gpus.update((name, entries()[name].gpu) for name in names)
    return _named(hint, gpus)


def _family(hint: GpuHint, generic: bool) -> _Evidence | None:
    wanted = {value.strip().lower().replace("_", "-") for value in hint.values}
    wanted |= {"ada-lovelace"} if "ada" in wanted else set()
    return _property(hint, _where(lambda entry: entry.family in wanted))


def _property(hint: GpuHint, gpus: Mapping[str, Gpu]) -> _Evidence | None:
    if hint.operator == "NotIn":
        gpus = _where(lambda entry: entry.gpu.name not in gpus)
    return _Evidence(hint, gpus=gpus, weight=_WEIGHTS["property"])


def _memory_mib(hint: GpuHint, generic: bool) -> _Evidence | None:
    return _memory(hint, 1)


def _memory_gb(hint: GpuHint, generic: bool) -> _Evidence | None:
    return _memory(hint, 1024)


def _memory(hint: GpuHint, unit_mib: int) -> _Evidence | None:
    """Boards with that memory.

    The driver's label has what nvidia-smi prints; clouds write the figure of the product's name, as GiB (24,576 MiB of
    an A10G) or as decimal gigabytes (22,888).
    """
    if not all(re.fullmatch(r"\d{1,9}", value) for value in hint.values):
        return None
    wanted = [int(value) * unit_mib for value in hint.values]

    def holds(entry: Entry) -> bool:
        figures = [entry.board_mib] if entry.board_mib else []
        if entry.name_gb:
            figures += [entry.name_gb * 1024, entry.name_gb * 10**9 // 2**20]
        if hint.operator == "Gt":
            return any(figure > wanted[0] for figure in figures)
        if hint.operator == "Lt":
            return any(figure < wanted[0] for figure in figures)
        return any(abs(figure - value) <= value / 100 for figure in figures for value in wanted)

    return _property(hint, _where(holds))


def _capability(part: int) -> Callable[[GpuHint, bool], _Evidence | None]:
    def read(hint: GpuHint, generic: bool) -> _Evidence | None:
        wanted = {int(value) for value in hint.values if value.isdecimal() and len(value) < 4}
        if hint.operator not in {"In", "NotIn"} or not wanted:
            return None
        return _property(
            hint,
            _where(
                lambda entry: entry.gpu.compute_capability is not None and entry.gpu.compute_capability[part] in wanted
            ),
        )

    return read


def _count(hint: GpuHint, generic: bool) -> _Evidence | None:
    counts = {int(value) for value in hint.values if value.isdecimal() and len(value) < 4}
    if hint.operator != "In" or len(counts) != 1:
        return None
    return _Evidence(hint, weight=_WEIGHTS["vendor"], count=counts.pop())


def _mig_profile(hint: GpuHint, generic: bool) -> _Evidence | None:
    return _Evidence(hint, weight=_WEIGHTS["product"], profile=hint.values[0]) if len(hint.values) == 1 else None


def _sharing(hint: GpuHint, generic: bool) -> _Evidence | None:
    shared = any(value.lower() in {"time-sharing", "time-slicing", "mps"} for value in hint.values)
    return _Evidence(hint, weight=_WEIGHTS["vendor"], shared=True) if shared else None


def _tpu(hint: GpuHint, generic: bool) -> _Evidence | None:
    return _Evidence(hint, blocker=f"{hint.key}: {_text(hint)} is a TPU: kvgate's catalogue holds NVIDIA and AMD GPUs")


def _vendor(hint: GpuHint, generic: bool) -> _Evidence | None:
    vendors = {value.lower() for value in hint.values}
    if hint.operator != "In" or not vendors <= {"nvidia", "amd"}:
        return None
    return _Evidence(hint, gpus=_where(lambda entry: entry.gpu.vendor in vendors), weight=_WEIGHTS["vendor"])


_READERS: Final[Mapping[str, Callable[[GpuHint, bool], _Evidence | None]]] = {
    "product": _product,
    "instance_type": _instance_type,
    "instance_family": _instance_family,
    "family": _family,
    "memory_mib": _memory_mib,
    "memory_gb": _memory_gb,
    "capability_major": _capability(0),
    "capability_minor": _capability(1),
    "count": _count,
    "mig_profile": _mig_profile,
    "sharing": _sharing,
    "tpu": _tpu,
    "vendor": _vendor,
}


def gpus_of_instance(name: str) -> tuple[Gpu, int | None] | None:
    """The GPU of a cloud instance type and how many of them a node has; None when it has none that is known."""
    known = _instance(name)
    return known if isinstance(known, tuple) else None
