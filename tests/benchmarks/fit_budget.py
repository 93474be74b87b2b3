"""Fit the memory budget's coefficients to public start-ups, and say how well they predict starts left out.

    python tests/benchmarks/fit_budget.py            print the errors, leaving one source out at a time
    python tests/benchmarks/fit_budget.py --write    also write kvgate/capacity/data/calibration.json

``data/startups.jsonl`` holds one start-up a line: where it was published, the release, the model's Hub id, the GPU,
the engine arguments as stated, the environment where it matters, and the figures that the engine printed (GiB). Rows
whose source does not state the release (``version_stated``) help to fit single terms and are not scored. Every
coefficient is a median, every spread a quantile; nothing is random, so two runs write the same file.
"""

from __future__ import annotations

import json
import math
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from kvgate.capacity.budget import GIB, BudgetInputs, BudgetParts, budget_of, describe_budget, peak_bytes
from kvgate.capacity.prediction import Memory, Quantity
from kvgate.capacity.release import release_of
from kvgate.capacity.settings import RefusedError, resolve_settings
from kvgate.hardware.catalogue import find_gpu
from kvgate.models.cards import find_card
from kvgate.models.geometry import UnknownModelError, read_geometry
from kvgate.models.model import Model

HERE = Path(__file__).parent
STARTUPS = HERE / "data/startups.jsonl"
CALIBRATION = HERE.parents[1] / "kvgate/capacity/data/calibration.json"

#: What reading the engine's code says, and what a class gets of which no start-up is known. ``weight`` start-ups'
#: worth of it is mixed into each median.
PRIOR: Mapping[str, Any] = {
    # Bytes per sequence and vocabulary entry. sort: float32 logits, probabilities, sorted values, int64 indices and the
    # sort's buffers; flashinfer: logits, float32 logits, probabilities; kernel: logits, float32 logits, their copy and
    # noise; fused: logits and partial maxima.
    "sampler": {"sort": 38.3, "flashinfer": 11.0, "kernel": 14.0, "fused": 4.0, "none": 0.0},
    "forward": {"dense": 1.0, "experts": 1.0, "encoder": 1.0},
    # GiB outside torch.
    "non_torch": {
        "v0, one rank": 0.07,
        "v0, two ranks": 0.4,
        "v0, two ranks, NVSwitch": 0.6,
        "v0, more ranks": 0.5,
        "v0, more ranks, NVSwitch": 7.4,
        "v1, one rank": 0.1,
        "v1, one rank, 0.26 and later": 0.25,
        "v1, two ranks": 0.4,
        "v1, two ranks, NVSwitch": 0.6,
        "v1, two ranks, 0.26 and later": 0.5,
        "v1, two ranks, NVSwitch, 0.26 and later": 0.8,
        "v1, more ranks": 0.5,
        "v1, more ranks, NVSwitch": 2.2,
    },
    # GiB of the first graph, and GiB per layer of each further one.
    "graphs": {"first runner": 0.00012, "second runner": 0.00012},
    "first graph": 0.1,
    # GiB taken by others than the engine, and by what loads the weights where the host shares the memory.
    "other": {"discrete": 0.0, "unified": 0.5, "amd": 0.0},
    "loading": {"discrete": 0.0, "unified": 0.03, "amd": 0.0},
    # A draft model's share of the weights of the model it drafts for.
    "draft": 0.08,
    "weight": 1,
}
#: The largest spreads of the weights.
STORAGES = {"plain": 0.01, "quantized": 0.03, "multimodal": 0.02, "drafting": 0.05, "separate draft": 0.1}
#: Share of the start-ups that the interval is to hold, its largest median width as a share of the pool, and the step.
COVERAGE, STEP = 0.92, 0.0025
WIDEST = {"discrete": 0.09, "unified": 0.3, "amd": 0.3}
FACTORS = (0.25, 0.5, 0.75, 1.0)
CLASSES = ("discrete, V0", "discrete, V1", "unified memory", "AMD")


@dataclass(frozen=True, slots=True)
class Startup:
    """One start-up with the computed parts of its budget; ``parts`` with weights as measured where they were."""

    row: Mapping[str, Any]
    inputs: BudgetInputs
    parts: BudgetParts
    kind: str

    def measured(self, name: str) -> float | None:
        value = self.row["measured"].get(name)
        return None if value is None else float(value)

    @property
    def source(self) -> str:
        """Who published it: files of one repository are one source."""
        return ":".join(str(self.row["source"]).split(":")[:2])

    @property
    def scored(self) -> bool:
        return bool(
            self.row["version_stated"] and self.measured("available_kv_gib") and self.inputs.total.bytes is not None
        )


def read_startups(path: Path = STARTUPS) -> list[Startup]:
    """The start-ups whose model and arguments the package understands."""
    found = []
    for line in path.read_text(encoding="utf-8").splitlines():
        startup = _read(json.loads(line))
        if startup is not None:
            found.append(startup)
    return found


def _read(row: Mapping[str, Any]) -> Startup | None:
    card = find_card(row["model"])
    version = row["version"] or "0.11.0"
    gpu = find_gpu(row["gpu"]) if row["gpu"] else None
    total = int(row["memory_gib"] * GIB) if row["memory_gib"] else gpu.memory_bytes if gpu else None
    if card is None:
        return None
    release = release_of(version)
    arguments, env = row["arguments"], row.get("environment", {})
    model = Model(None, card.config, "mapping", files=card.files)
    try:
        geometry = read_geometry(model)
        settings = resolve_settings(geometry, arguments, release=release, gpu=gpu, gpu_memory_bytes=total, env=env)
    except (UnknownModelError, RefusedError):
        return None
    resolved = {**arguments, **{name: getattr(settings, name) for name in settings.__dataclass_fields__}}
    memory = Quantity.exact(total) if total is not None else Quantity.unknown()
    inputs = BudgetInputs(geometry, model, resolved, version, gpu, memory, None, env)
    parts = describe_budget(inputs)
    if parts is None or parts.loaded.parameters_bytes is None:
        return None
    kind = {"unified": "unified memory", "amd": "AMD"}.get(parts.platform, f"discrete, {release.engine}")
    return Startup(row, inputs, parts, kind)


# --- fitting


Values = dict[str, dict[str, list[float]]]


def mixed(values: Mapping[str, Sequence[float]], prior: float) -> float:
    """The median over sources, each with its own median, drawn to the prior where there are few sources."""
    if not values:
        return prior
    weight = PRIOR["weight"]
    middle = median(median(found) for found in values.values())
    return float((middle * len(values) + prior * weight) / (len(values) + weight))


def flat(values: Mapping[str, Sequence[float]]) -> list[float]:
    return [value for found in values.values() for value in found]


def collected() -> Values:
    """Values by what they are of, then by source."""
    return defaultdict(lambda: defaultdict(list))


def quantile(values: Iterable[float], share: float) -> float:
    """The smallest value that at least ``share`` of the values do not exceed; 0 for none."""
    ordered = sorted(values)
    if not ordered:
        return 0.0
    return ordered[min(len(ordered), math.ceil(share * len(ordered))) - 1]


def fit(startups: Sequence[Startup]) -> dict[str, Any]:
    """The calibration table, without the scales of the interval."""
    table: dict[str, Any] = {
        "sampler": dict(PRIOR["sampler"]),
        "forward": dict(PRIOR["forward"]),
        "weights": {},
        "activation": {},
        "non_torch": {},
        "graphs": {},
        "available": {
            name: {"other": other, "loading": PRIOR["loading"][name], "gib": 0.02, "share": 0.0}
            for name, other in PRIOR["other"].items()
        },
    }
    _fit_activation(table, startups)
    _fit_weights(table, startups)
    _fit_places(table, startups)
    _fit_graphs(table, startups)
    _fit_others(table, startups)
    rounded: dict[str, Any] = _rounded(table)
    return rounded


def _peaks(startup: Startup, table: Mapping[str, Any]) -> tuple[str, float]:
    """Which part of the profile run is the largest, and its GiB."""
    sampler, forward, encoder = peak_bytes(startup.parts.run, table)
    peak = max(sampler, forward, encoder)
    if peak == sampler:
        return f"sampler, {startup.parts.run.sampler}", peak / GIB
    return ("forward" if peak == forward else "encoder"), peak / GIB


def _activation_of(startup: Startup) -> float | None:
    """The activation peak as printed, without the graphs that later releases count into it."""
    value = startup.measured("peak_activation_gib")
    release = release_of(startup.inputs.version)
    if value is None:
        return None
    if release.at_least("0.27.0"):
        estimated = startup.measured("cudagraph_estimated_gib")
        return None if estimated is None else value - estimated
    return value


def _fit_activation(table: dict[str, Any], startups: Sequence[Startup]) -> None:
    ratios = collected()
    for startup in startups:
        value = _activation_of(startup)
        if value is None:
            continue
        kind, peak = _peaks(startup, table)
        run = startup.parts.run
        if kind == "sampler, sort" and run.encoder is None:
            ratios["sort"][startup.source].append((value * GIB - run.hidden_bytes) / run.logits)
        elif kind == "forward" and not run.experts and run.mlp_bytes:
            ratios["dense"][startup.source].append((value * GIB - (peak * GIB - run.mlp_bytes)) / run.mlp_bytes)
    table["sampler"]["sort"] = mixed(ratios["sort"], PRIOR["sampler"]["sort"])
    table["forward"]["dense"] = mixed(ratios["dense"], PRIOR["forward"]["dense"])
    misses: dict[str, list[float]] = defaultdict(list)
    for startup in startups:
        value = _activation_of(startup)
        if value is not None:
            kind, peak = _peaks(startup, table)
            misses[kind].append(abs(value - peak) / max(peak, 0.2))
    for kind, least in (
        ("sampler, sort", 0.03),
        ("sampler, flashinfer", 0.2),
        ("sampler, kernel", 0.2),
        ("sampler, fused", 0.5),
        ("sampler, none", 0.5),
        ("forward", 0.2),
        ("encoder", 0.3),
        ("unknown encoder", 0.8),
    ):
        share = max(least, min(quantile(misses[kind], 0.75), 3 * least))
        table["activation"][kind] = {"share": share, "gib": 0.05 if kind == "sampler, sort" else 0.1}


def _fit_weights(table: dict[str, Any], startups: Sequence[Startup]) -> None:
    shares: dict[str, list[float]] = defaultdict(list)
    drafts = collected()["separate draft"]
    for startup in startups:
        value = startup.measured("weights_gib")
        if value is not None:
            loaded = startup.parts.loaded
            excess = (value * GIB - loaded.bytes) / loaded.bytes
            shares[loaded.storage].append(abs(excess))
            if loaded.storage == "separate draft":
                drafts[startup.source].append(excess)
    for storage, most in STORAGES.items():
        share = min(quantile(shares[storage], 0.75), most) if shares[storage] else most
        table["weights"][storage] = {"share": share, "gib": 0.02}
    table["weights"]["separate draft"] |= {"draft": mixed(drafts, PRIOR["draft"]), "share": STORAGES["separate draft"]}


def _fit_places(table: dict[str, Any], startups: Sequence[Startup]) -> None:
    values = collected()
    for startup in startups:
        if startup.parts.platform != "discrete":
            continue
        printed = startup.measured("non_torch_gib")
        if printed is None:
            printed = _rest(startup, table)
        if printed is not None:
            values[startup.parts.place][startup.source].append(printed)
    for place, prior in PRIOR["non_torch"].items():
        middle = mixed(values[place], prior)
        misses = [abs(value - middle) / middle for value in flat(values[place])]
        share = min(0.6, max(0.2, quantile(misses, 0.75))) if len(misses) > 2 else 0.4
        table["non_torch"][place] = {"middle": middle, "share": share, "gib": 0.02}


def _rest(startup: Startup, table: Mapping[str, Any]) -> float | None:
    """What the other terms leave of the memory asked for, where several ranks make it worth knowing."""
    available = startup.measured("available_kv_gib")
    weights = startup.measured("weights_gib")
    if available is None or weights is None or "one rank" in startup.parts.place or startup.parts.graphs:
        return None
    memory = budget_of(startup.inputs, startup.parts, {**table, **_placeholder(startup)})
    if memory.requested.bytes is None or memory.activation_peak.bytes is None:
        return None
    rest = (memory.requested.bytes - memory.activation_peak.bytes) / GIB - weights - available
    return rest if rest > 0.05 else None


def _placeholder(startup: Startup) -> dict[str, Any]:
    nothing = {"middle": 0.0, "first": 0.0, "layer": 0.0, "share": 0.0, "gib": 0.0}
    storages = {name: {"share": 0.0, "gib": 0.0} for name in STORAGES}
    return {
        "non_torch": {startup.parts.place: nothing},
        "graphs": {"first runner": nothing, "second runner": nothing},
        "weights": storages,
    }


def _fit_graphs(table: dict[str, Any], startups: Sequence[Startup]) -> None:
    first = PRIOR["first graph"]
    values = collected()
    for startup in startups:
        estimated = startup.measured("cudagraph_estimated_gib")
        # Where the host shares the memory, its page cache moves the estimate by gigabytes.
        if estimated is not None and startup.parts.platform != "unified":
            runner = startup.parts.graphs or "first runner"
            values[runner][startup.source].append((estimated - first) / startup.parts.graph_layers)
    for runner, prior in PRIOR["graphs"].items():
        share = 1.0 if runner == "second runner" else 0.5
        layer = round(mixed(values[runner], prior), 6)
        table["graphs"][runner] = {"first": first, "layer": layer, "share": share, "gib": 0.05}


def _fit_others(table: dict[str, Any], startups: Sequence[Startup]) -> None:
    shares, misses = collected()["unified"], collected()["amd"]
    for startup in startups:
        platform, weights = startup.parts.platform, startup.parts.loaded.bytes / GIB
        if platform == "discrete" or not startup.scored:
            continue
        miss = _miss(startup, {**table, "available": _without_others(table)})
        if miss is None:
            continue
        if platform == "unified":
            shares[startup.source].append(max(0.0, miss - PRIOR["other"][platform]) / weights)
        elif platform == "amd":
            misses[startup.source].append(miss)
    table["available"]["unified"] |= {"loading": mixed(shares, PRIOR["loading"]["unified"]), "gib": 1.0}
    table["available"]["amd"] |= {"other": max(0.0, mixed(misses, PRIOR["other"]["amd"])), "gib": 1.0}


def _without_others(table: Mapping[str, Any]) -> dict[str, Any]:
    return {name: {**row, "other": 0.0, "loading": 0.0} for name, row in table["available"].items()}


def _miss(startup: Startup, table: Mapping[str, Any]) -> float | None:
    """Predicted less measured memory for the cache, GiB, with the weights as measured where they were."""
    memory = budget_of(startup.inputs, startup.parts, table)
    predicted, measured = memory.kv_cache_available.bytes, startup.measured("available_kv_gib")
    if predicted is None or measured is None:
        return None
    weights = startup.measured("weights_gib")
    correction = 0.0 if weights is None else (memory.weights.bytes or 0) / GIB - weights
    return predicted / GIB + correction - measured


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(entry) for key, entry in value.items()}
    return round(value, 4 if abs(value) > 0.001 else 6) if isinstance(value, float) else value


# --- judging


@dataclass(frozen=True, slots=True)
class Outcome:
    """One start-up as predicted from all other sources."""

    startup: Startup
    memory: Memory
    table: Mapping[str, Any]

    @property
    def measured(self) -> float:
        return self.startup.measured("available_kv_gib") or 0.0

    @property
    def error(self) -> float:
        return (self.memory.kv_cache_available.bytes or 0) / GIB / self.measured - 1

    @property
    def inside(self) -> bool:
        available = self.memory.kv_cache_available
        return (available.low or 0) <= self.measured * GIB <= (available.high or 0)

    @property
    def width(self) -> float:
        available = self.memory.kv_cache_available
        return ((available.high or 0) - (available.low or 0)) / GIB / self.measured

    @property
    def gap(self) -> float:
        """Measured less predicted, as a share of the predicted memory."""
        available = (self.memory.kv_cache_available.bytes or 0) / GIB
        return (self.measured - available) / abs(available) if available else 0.0


def leave_one_out(startups: Sequence[Startup], refit: Callable[[Sequence[Startup]], dict[str, Any]]) -> list[Outcome]:
    """Every scored start-up, predicted by a table that knows nothing of its source."""
    outcomes = []
    for source in dict.fromkeys(startup.source for startup in startups if startup.scored):
        table = refit([startup for startup in startups if startup.source != source])
        outcomes += [
            Outcome(startup, budget_of(startup.inputs, startup.parts, table), table)
            for startup in startups
            if startup.scored and startup.source == source
        ]
    return outcomes


def widen(table: dict[str, Any], outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """The table with bounds that make the interval hold ``COVERAGE`` of the outcomes.

    Two figures are chosen: a factor on the bounds of the terms (for discrete GPUs), and for each platform a share of
    the pool for what the terms do not explain, as far as the median width stays within ``WIDEST``. Of the pairs it is
    the one that holds most, and of several the one with the widest terms and the smallest share. Start-ups farther out
    depend on what their source does not state.
    """
    reaches = {
        factor: [_reach(outcome, factor) for outcome in outcomes if outcome.startup.parts.platform == "discrete"]
        for factor in FACTORS
    }
    best: tuple[float, float, float, float] | None = None
    for factor in FACTORS:
        for step in range(40):
            share = round(step * STEP, 4)
            inside, width = _coverage(reaches[factor], share)
            if width > WIDEST["discrete"]:
                break
            rank = (-min(inside, COVERAGE), -factor, share, width)
            best = rank if best is None else min(best, rank)
    factor, share = (-best[1], best[2]) if best else (1.0, 0.0)
    table = _scaled(table, factor)
    table["available"]["discrete"]["share"] = share
    for platform in ("unified", "amd"):
        found = [_reach(outcome, factor) for outcome in outcomes if outcome.startup.parts.platform == platform]
        for step in range(200):
            share = round(step * STEP, 4)
            inside, width = _coverage(found, share)
            if width > WIDEST[platform] or inside >= COVERAGE:
                break
        table["available"][platform]["share"] = share
    return table


@dataclass(frozen=True, slots=True)
class Reach:
    """A prediction's bounds (GiB) without the share of the pool that the terms do not explain."""

    middle: float
    below: float
    above: float
    measured: float

    def bounds(self, share: float) -> tuple[float, float]:
        """With that share: independent errors add up as squares, as ``budget._difference`` adds them."""
        rest = share * self.middle
        return self.middle - math.hypot(self.below, rest), self.middle + math.hypot(self.above, rest)


def _reach(outcome: Outcome, factor: float) -> Reach:
    """The outcome with its terms' bounds multiplied."""
    table = _scaled(outcome.table, factor)
    table["available"] = {name: {**row, "share": 0.0} for name, row in table["available"].items()}
    available = budget_of(outcome.startup.inputs, outcome.startup.parts, table).kv_cache_available
    middle, low, high = ((value or 0) / GIB for value in (available.bytes, available.low, available.high))
    return Reach(middle, middle - low, high - middle, outcome.measured)


def _coverage(reaches: Sequence[Reach], share: float) -> tuple[float, float]:
    """Share of the start-ups inside the bounds, and the bounds' median width as a share of the pool."""
    if not reaches:
        return 1.0, 0.0
    bounds = [reach.bounds(share) for reach in reaches]
    inside = sum(low <= reach.measured <= high for reach, (low, high) in zip(reaches, bounds, strict=True))
    width = median((high - low) / reach.measured for reach, (low, high) in zip(reaches, bounds, strict=True))
    return inside / len(reaches), width


def _scaled(table: Mapping[str, Any], factor: float) -> dict[str, Any]:
    """The table with its terms' bounds multiplied."""

    def scaled(row: Mapping[str, float]) -> dict[str, float]:
        return {name: round(value * factor, 4) if name in ("share", "gib") else value for name, value in row.items()}

    terms = ("weights", "activation", "non_torch", "graphs")
    return {**table, **{term: {name: scaled(row) for name, row in table[term].items()} for term in terms}}


def calibrate(startups: Sequence[Startup]) -> dict[str, Any]:
    """The table with its interval, from these start-ups alone."""
    return widen(fit(startups), leave_one_out(startups, fit))


def print_errors(outcomes: Sequence[Outcome]) -> None:
    """A table per class, then every start-up, worst first."""
    print("| class | start-ups | median error | 90th percentile | inside the interval | median width |")
    print("|---|---|---|---|---|---|")
    for kind in CLASSES:
        found = [outcome for outcome in outcomes if outcome.startup.kind == kind]
        if found:
            print(_row(kind, found))
    print(_row("discrete", [o for o in outcomes if o.startup.parts.platform == "discrete"]))
    print()
    for outcome in sorted(outcomes, key=lambda outcome: -abs(outcome.error)):
        available = outcome.memory.kv_cache_available
        print(
            f"{100 * outcome.error:+6.1f}%  {'in ' if outcome.inside else 'OUT'}  measured {outcome.measured:7.2f}"
            f"  predicted {(available.bytes or 0) / GIB:7.2f}"
            f"  [{(available.low or 0) / GIB:.2f}, {(available.high or 0) / GIB:.2f}]"
            f"  {outcome.startup.row['id']} ({outcome.startup.row['version']})"
        )


def _row(kind: str, found: Sequence[Outcome]) -> str:
    errors = [abs(outcome.error) for outcome in found]
    inside = sum(outcome.inside for outcome in found) / len(found)
    width = median(outcome.width for outcome in found)
    return (
        f"| {kind} | {len(found)} | {100 * median(errors):.1f}% | {100 * quantile(errors, 0.9):.1f}%"
        f" | {100 * inside:.0f}% | {100 * width:.1f}% |"
    )


def main(arguments: Sequence[str]) -> int:
    startups = read_startups()
    print_errors(leave_one_out(startups, calibrate))
    if "--write" in arguments:
        CALIBRATION.parent.mkdir(exist_ok=True)
        CALIBRATION.write_text(json.dumps(calibrate(startups), indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
