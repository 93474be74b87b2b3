"""GPUs by name: what the driver reports as total memory, and the compute capability.

The marketing figure is never the engine's: an "80 GB" H100 has 79.2 GiB. Totals come from start-up logs where one was
seen (basis ``exact``: the interval is the spread over drivers, ECC and firmware); otherwise they are estimated from the
board's figure (basis ``declared``) by the reservation rule in ``data/gpus.json``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, Final, Literal

from kvgate.hardware.gpu import Gpu
from kvgate.patterns import regex
from kvgate.records import record
from kvgate.tables import load_table

GIB: Final = 1 << 30

CPU: Final = Gpu(
    name="cpu",
    vendor="cpu",
    memory_bytes=None,
    memory_low=None,
    memory_high=None,
    basis="unknown",
    compute_capability=None,
)
"""vLLM's CPU backend: its pool is ``VLLM_CPU_KVCACHE_SPACE``, not a share of a device's memory."""

_WHAT_IF: Final = ("NVIDIA L4", "NVIDIA A100 80GB", "NVIDIA H100 80GB")

# Words that say who made a GPU, or how its memory is built, but not which GPU it is.
_VENDOR_WORDS: Final = ("nvidia", "corporation", "geforce", "tesla", "quadro", "amd", "ati", "instinct", "radeon")
_NOISE_WORDS: Final = frozenset(
    (
        *_VENDOR_WORDS,
        "gpu",
        "gpus",
        "graphics",
        "hbm2",
        "hbm2e",
        "hbm3",
        "hbm3e",
        "gddr6",
        "gddr6x",
        "gddr7",
        "each",
        "nvlink",
    )
)
_CPU_NAMES: Final = frozenset(("cpu", "cpus", "cpuonly", "none"))
_MIG: Final = regex(r"(?<![a-z0-9])(?:\d+c\.)?(\d)g\.(\d+)gb(?:[+.](?:me|gfx)(?:\.all)?)?(?![a-z0-9])")
_COUNT: Final = regex(r"^(?:(\d{1,3})\s*[x×*]\s*(?=\D)|(.+?)\s*[:×]\s*(\d{1,3})$)", re.IGNORECASE)
_RUNS: Final = regex(r"[a-z0-9]+")
_MARKS: Final = regex(r"\((?:r|tm)\)|[®™]")
_GIGABYTES: Final = regex(r"\d+g(?:i?b)?")
_SEVERAL: Final = regex(r"\s*(?:[/|,;+]|\bor\b|\band\b)\s*", re.IGNORECASE)


@record
class GpuMatch:
    """What a name stands for.

    Attributes:
        gpu: the one GPU it names, None when there is none or more than one.
        candidates: the GPUs it could name, in the catalogue's order; one when ``gpu`` is set.
        reason: why ``gpu`` is None, or how its memory is known.
    """

    gpu: Gpu | None
    candidates: tuple[Gpu, ...]
    reason: str


@record
class Entry:
    """A catalogue entry with what lookups need beside the :class:`Gpu`.

    ``name_gb`` is the figure in the product's name, ``family`` NVIDIA's architecture name in lower case as GPU feature
    discovery labels it, ``board_mib`` what nvidia-smi prints.
    """

    gpu: Gpu
    name_gb: int | None
    board_mib: int | None
    family: str | None
    note: str | None


def _gib(value: float) -> int:
    return round(value * GIB)


@cache
def entries() -> Mapping[str, Entry]:
    """The catalogue by name, in its order."""
    data = load_table("hardware/gpus")
    return {raw["name"]: _entry(raw, data["reservation"]) for raw in data["gpus"]}


def _entry(raw: Mapping[str, Any], reservation: Mapping[str, Any]) -> Entry:
    vendor = raw.get("vendor", "nvidia")
    capability = raw.get("compute_capability")
    basis: Literal["exact", "declared"] = "declared"
    if seen := raw.get("seen_gib"):
        low, high = min(seen), max(seen)
        middle, basis = raw.get("typical_gib", _median(seen)), "exact"
    elif declared := raw.get("memory_gib"):
        low, high = declared
        middle = (low + high) / 2
    else:
        rule = reservation["geforce" if raw.get("geforce") else vendor]
        total = raw["board_mib"] / 1024
        middle = total - rule["typical_gib"] - rule["typical_per_gib"] * total
        high = total - rule["low_gib"]
        with_ecc = raw.get("ecc_mib", raw["board_mib"]) / 1024
        low = with_ecc - rule["high_gib"] - rule["high_per_gib"] * with_ecc
    gpu = Gpu(
        name=raw["name"],
        vendor=vendor,
        memory_bytes=_gib(middle),
        memory_low=_gib(low),
        memory_high=_gib(high),
        basis=basis,
        compute_capability=_capability(capability),
        unified_memory=bool(raw.get("unified")),
    )
    return Entry(gpu, raw.get("gb"), raw.get("board_mib"), raw.get("family"), raw.get("note"))


def _median(values: Sequence[float]) -> float:
    # The statistics module costs several milliseconds to import.
    ordered = sorted(values)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2


def _capability(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    major, minor = text.split(".")
    return int(major), int(minor)


def common_gpus() -> tuple[Gpu, ...]:
    """Three that stand for many: what a server would hold on them is said where its own GPU is not known."""
    return tuple(entries()[name].gpu for name in ("NVIDIA L4", "NVIDIA A100 80GB", "NVIDIA H100 80GB"))


@cache
def _index() -> Mapping[str, tuple[str, ...]]:
    """Joined name -> the entries that carry it, by name, with and without the memory figure."""
    index: dict[str, dict[str, None]] = {}
    for raw in load_table("hardware/gpus")["gpus"]:
        for alias in (raw["name"], *raw.get("aliases", ())):
            words = _words(alias)
            stem = _strip_vendor("".join(words))
            index.setdefault(stem, {})[raw["name"]] = None
            index.setdefault(_strip_vendor(_letters(alias)), {})[raw["name"]] = None
            if (gb := raw.get("gb")) and not any(map(_is_gigabytes, words)):
                for suffix in (f"{gb}gb", f"{gb}g", f"{gb}gib"):
                    index.setdefault(stem + suffix, {})[raw["name"]] = None
    return {key: tuple(names) for key, names in index.items()}


@cache
def _exact_index() -> Mapping[str, tuple[str, ...]]:
    """Names that mean one entry only as a whole, vendor words included (``nvidia-tesla-a100``)."""
    return {
        _letters(alias): (raw["name"],)
        for raw in load_table("hardware/gpus")["gpus"]
        for alias in raw.get("exact_aliases", ())
    }


def _words(name: str) -> list[str]:
    return [word for word in _RUNS.findall(_MARKS.sub(" ", name.lower())) if word not in _NOISE_WORDS]


def _letters(name: str) -> str:
    return "".join(_RUNS.findall(name.lower()))


def _is_gigabytes(word: str) -> bool:
    return word[0].isdigit() and _GIGABYTES.fullmatch(word) is not None


def _strip_vendor(joined: str) -> str:
    while True:
        for word in _VENDOR_WORDS:
            if joined.startswith(word) and len(joined) > len(word):
                joined = joined[len(word) :]
                break
        else:
            return joined


def _names(name: str) -> tuple[str, ...]:
    """Entries that a single product name stands for."""
    if found := _exact_index().get(_letters(name)):
        return found
    index = _index()
    words = _words(name)
    for joined in ("".join(words), _letters(name)):
        if found := index.get(_strip_vendor(joined)):
            return found
    # "A100 80GB PCIe", "H100 PCIe 80GB": the figure may stand anywhere, and must agree with the product's.
    figures = [word for word in words if _is_gigabytes(word)]
    if not figures and words and words[-1].isdigit():  # "A100-80"
        figures = words[-1:]
    if not figures:
        return ()
    stem = _strip_vendor("".join(word for word in words if word not in figures))
    wanted = {int(word.rstrip("gib")) for word in figures}
    table = entries()
    return tuple(found for found in index.get(stem, ()) if wanted == {table[found].name_gb})


def split_count(name: str) -> tuple[str, int | None]:
    """``8xH100`` and ``H100:8`` as a name and a number of GPUs (None when none is written)."""
    text = name.strip()
    if match := _COUNT.match(text):
        if match[1]:
            return text[match.end() :].strip(), int(match[1])
        return match[2].strip(), int(match[3])
    return text, None


def match_gpu(name: str) -> GpuMatch:
    """The GPU that a name stands for, without regard to case, blanks, dashes, underscores and vendor words.

    A memory figure in the name selects between variants (``A100 40GB``). A name that several products share (``A100``,
    ``H200/H20``) is ambiguous: no GPU, and the candidates.
    """
    shown = name.strip()
    text = re.sub(r"-shared$", "", shown, flags=re.IGNORECASE)
    if "".join(_words(text)) in _CPU_NAMES:
        return GpuMatch(CPU, (CPU,), "vLLM's CPU backend")
    text, _ = split_count(text)
    if mig := _MIG.search(text.lower()):
        return _match_mig(text, shown, mig)
    found = _names(text)
    if not found and "(" in text:
        found = _names(re.sub(r"\([^)]*\)", " ", text))
    if not found:
        parts = [part for part in _SEVERAL.split(text) if part]
        if len(parts) > 1 and all(_names(part) for part in parts):
            found = tuple(dict.fromkeys(match for part in parts for match in _names(part)))
    return match_names(found, shown)


def match_names(found: Iterable[str], shown: str) -> GpuMatch:
    """A match from catalogue names; ``shown`` is the name as written, for the reason."""
    table = entries()
    gpus = tuple(table[name].gpu for name in found)
    if len(gpus) == 1:
        return GpuMatch(gpus[0], gpus, _how_known(table[gpus[0].name]))
    if not gpus:
        return GpuMatch(None, (), f'"{shown}" is no GPU that the catalogue knows')
    options = ", ".join(gpu.name for gpu in gpus)
    return GpuMatch(None, gpus, f'"{shown}" is ambiguous: it could be {options}')


def _how_known(entry: Entry) -> str:
    gpu = entry.gpu
    assert gpu.memory_low is not None
    assert gpu.memory_high is not None
    low, high = f"{gpu.memory_low / GIB:.2f}", f"{gpu.memory_high / GIB:.2f}"
    span = low if low == high else f"{low} to {high}"
    if gpu.basis == "exact":
        text = f"{span} GiB as the driver reports it in start-up logs"
    else:
        text = f"{span} GiB: the board's memory less what the driver keeps on like boards"
    return f"{text}; {entry.note}" if entry.note else text


def _match_mig(text: str, shown: str, mig: re.Match[str]) -> GpuMatch:
    profile = f"{mig[1]}g.{mig[2]}gb"
    parents = load_table("hardware/mig")["parents"]
    holders = [name for name, profiles in parents.items() if profile in profiles]
    if not holders:
        return GpuMatch(None, (), f'"{shown}" names no MIG profile that the catalogue knows')
    rest = re.sub(r"(?:nvidia\.com/)?\bmig\b", " ", (text[: mig.start()] + " " + text[mig.end() :]).lower())
    if _words(rest):
        named = _names(rest)
        if not named:
            return GpuMatch(None, (), f'"{shown}" is no GPU that the catalogue knows')
        holders = [name for name in named if name in holders]
        if not holders:
            return GpuMatch(None, (), f'"{shown}": {", ".join(named)} has no MIG profile {profile}')
    slices = tuple(_slice(entries()[name].gpu, profile, parents[name][profile]) for name in holders)
    if len(slices) == 1:
        return GpuMatch(slices[0], slices, f"a MIG slice of {holders[0]}")
    return _union_of_slices(slices, holders, profile, shown)


def _slice(parent: Gpu, profile: str, printed: tuple[float, float] | None) -> Gpu:
    if printed:
        low, high = (_gib(value) for value in printed)
        middle = (low + high) // 2
    else:
        # The prints at hand lie 0 to 0.75 GiB below the slice's share of the parent's total, eighths relatively most.
        eighths = mig_eighths(parent.name, profile)
        assert parent.memory_low is not None
        assert parent.memory_high is not None
        high = parent.memory_high * eighths // 8
        low = parent.memory_low * eighths // 8 - _gib(0.75)
        middle = (low + high) // 2
    return replace(
        parent,
        name=f"{parent.name} MIG {profile}",
        memory_bytes=middle,
        memory_low=low,
        memory_high=high,
        basis="declared",
    )


def mig_eighths(parent: str, profile: str) -> int:
    """The share of its parent's memory that a slice has, in eighths: by the figures of the profiles' names."""
    whole = max(_profile_gb(name) for name in load_table("hardware/mig")["parents"][parent])
    return round(8 * _profile_gb(profile) / whole)


def _profile_gb(profile: str) -> int:
    return int(profile.partition(".")[2].removesuffix("gb"))


def _union_of_slices(slices: tuple[Gpu, ...], holders: list[str], profile: str, shown: str) -> GpuMatch:
    """A profile whose parent is not said: usable where the parents' slices agree to within a GiB."""
    lows = [gpu.memory_low for gpu in slices if gpu.memory_low is not None]
    highs = [gpu.memory_high for gpu in slices if gpu.memory_high is not None]
    if max(highs) - min(lows) > GIB:
        options = ", ".join(holders)
        return GpuMatch(None, slices, f'"{shown}" is ambiguous: a {profile} slice could be of {options}')
    capabilities = {gpu.compute_capability for gpu in slices}
    gpu = Gpu(
        name=f"NVIDIA MIG {profile}",
        vendor="nvidia",
        memory_bytes=(min(lows) + max(highs)) // 2,
        memory_low=min(lows),
        memory_high=max(highs),
        basis="declared",
        compute_capability=capabilities.pop() if len(capabilities) == 1 else None,
    )
    return GpuMatch(gpu, slices, f"a MIG slice of {' or '.join(holders)}")


def find_gpu(name: str) -> Gpu | None:
    """The one GPU of that name, None when unknown or ambiguous (:func:`explain_gpu` says which)."""
    return match_gpu(name).gpu


def explain_gpu(name: str) -> str:
    """Why :func:`find_gpu` gives nothing for a name, or how the memory of what it gives is known."""
    return match_gpu(name).reason


def all_gpus() -> tuple[Gpu, ...]:
    """Every whole GPU of the catalogue, in its order."""
    return tuple(entry.gpu for entry in entries().values())


def common_what_if() -> tuple[Gpu, ...]:
    """Three common GPUs to show capacity on where a manifest names none."""
    return tuple(entries()[name].gpu for name in _WHAT_IF)


def __getattr__(name: str) -> Any:
    # COMMON_WHAT_IF reads the data file only when asked for.
    if name == "COMMON_WHAT_IF":
        return common_what_if()
    raise AttributeError(name)
