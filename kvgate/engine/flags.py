"""Command-line flags of ``vllm serve`` and ``vllm.entrypoints.openai.api_server``, release by release."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final, Literal

from kvgate.engine.releases import Presence, VersionInfo, index_of, releases, resolve_version
from kvgate.records import record
from kvgate.tables import load_table

Kind = Literal[
    "flag", "boolean", "str", "int", "float", "human-int", "human-int-or-auto", "json", "json-or-str", "pairs"
]


class _Dynamic:
    """The one value of :data:`DYNAMIC`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "DYNAMIC"


#: A default that vLLM computes when it starts (from the model, the GPU, the platform or another flag).
DYNAMIC: Final = _Dynamic()


@record
class Flag:
    """A flag as one span of consecutive read releases defines it.

    Attributes:
        name: the spelling with dashes that vLLM's own documentation uses.
        dest: the name of the engine argument.
        first, last: the first and last read release with this definition.
        kind: how the text of a value is read. ``flag`` takes none; ``boolean`` an optional ``true`` or ``false``;
            ``pairs`` is ``a=1,b=2``.
        names: all spellings, without the negations.
        negations: spellings that switch it off (``--no-x``; from 0.33.0 also ``--disable-x`` for ``--enable-x``).
        many: takes one value or more (``nargs="+"``).
        append: repeating it adds to the list.
        bare: the value may be left out.
        optional: ``None`` and the empty string mean None.
        any_json: a ``json`` value need not be an object.
        fold: case and ``-`` for ``_`` do not matter in the value.
        default: the static default, or :data:`DYNAMIC`.
        choices: the allowed values, where the source lists them and allows no others.
        known: the values that vLLM itself knows, where plug-ins may add others.
        bounds: limits of a number that vLLM checks when it starts, by ``gt``, ``ge``, ``lt``, ``le``.
        deprecated: that release still takes it, and says that it will go.
    """

    name: str
    dest: str
    first: str
    last: str
    kind: Kind
    names: tuple[str, ...]
    negations: tuple[str, ...]
    many: bool
    append: bool
    bare: bool
    optional: bool
    any_json: bool
    fold: bool
    default: Any
    choices: tuple[Any, ...] | None
    known: tuple[Any, ...] | None
    bounds: Mapping[str, float] | None
    deprecated: bool

    @property
    def takes_value(self) -> bool:
        return self.kind != "flag"


_INVERSES: Final = (("--enable-", "--disable-"), ("--disable-", "--enable-"))


def _flag(name: str, dest: str, run: dict[str, Any], inverses: bool) -> Flag:
    names = tuple(run.get("names", (name,)))
    negations: list[str] = []
    if run.get("negatable"):
        negations = [f"--no-{spelling[2:]}" for spelling in names if spelling.startswith("--")]
        if inverses:
            negations += [
                inverse + spelling.removeprefix(prefix)
                for spelling in names
                for prefix, inverse in _INVERSES
                if spelling.startswith(prefix)
            ]
    choices, known = run.get("choices"), run.get("known")
    return Flag(
        name=name,
        dest=dest,
        first=run["first"],
        last=run["last"],
        kind=run["kind"],
        names=names,
        negations=tuple(negations),
        many=run.get("many", False),
        append=run.get("append", False),
        bare=run.get("bare", False),
        optional=run.get("optional", False),
        any_json=run.get("any", False),
        fold=run.get("fold", False),
        default=DYNAMIC if run.get("dynamic") else run.get("default"),
        choices=None if choices is None else tuple(choices),
        known=None if known is None else tuple(known),
        bounds=_SENSE.get(dest) or run.get("bounds"),
        deprecated=run.get("deprecated", False),
    )


# Where a release declares no bounds for a number, its configuration checks (``config.py``, ``_verify_args`` and
# ``_verify_parallel_config`` up to 0.11.0) or its own arithmetic refuse the same.
_SENSE: Final[Mapping[str, Mapping[str, float]]] = {
    "gpu_memory_utilization": {"gt": 0, "le": 1},
    "cpu_offload_gb": {"ge": 0},
    "swap_space": {"ge": 0},
    **{
        dest: {"ge": 1}
        for dest in (
            "block_size",
            "data_parallel_size",
            "kv_cache_memory_bytes",
            "max_lora_rank",
            "max_loras",
            "max_model_len",
            "max_num_batched_tokens",
            "max_num_seqs",
            "pipeline_parallel_size",
            "tensor_parallel_size",
        )
    },
}


@record
class ReleaseFlags:
    """All flags of one read release.

    ``spellings`` maps every accepted spelling, negations included, to its flag and whether it switches it on.
    ``parser`` names what the release's parser does beyond argparse (``dotted-keys``, ``json-pairs``...; the script that
    makes the table lists them).
    """

    release: str
    flags: dict[str, Flag]
    spellings: dict[str, tuple[Flag, bool]]
    parser: frozenset[str]

    def of_dest(self, dest: str) -> Flag | None:
        name = _names_of_dest().get(dest)
        found = [self.flags[candidate] for candidate in name or () if candidate in self.flags]
        return found[0] if found else None


@lru_cache(maxsize=1)
def _names_of_dest() -> dict[str, tuple[str, ...]]:
    result: dict[str, tuple[str, ...]] = {}
    for name, entry in load_table("engine/flags")["flags"].items():
        result[entry["dest"]] = (*result.get(entry["dest"], ()), name)
    return result


@lru_cache(maxsize=16)
def flags_of_release(release: str) -> ReleaseFlags:
    """The flags of a read release.

    Raises:
        KeyError: that release was not read.
    """
    table = load_table("engine/flags")
    at = index_of(release)
    parser = frozenset(name for name, runs in table["parser"].items() if any(_holds(run, at) for run in runs))
    flags: dict[str, Flag] = {}
    spellings: dict[str, tuple[Flag, bool]] = {}
    negations: dict[str, tuple[Flag, bool]] = {}
    for name, entry in table["flags"].items():
        for run in entry["runs"]:
            if _holds(run, at):
                flag = flags[name] = _flag(name, entry["dest"], run, "disable-for-enable" in parser)
                for spelling in flag.names:
                    spellings[spelling] = (flag, True)
                for spelling in flag.negations:
                    negations[spelling] = (flag, False)
                break
    # A flag of its own (``--disable-log-stats``) comes before the negation of another.
    return ReleaseFlags(release, flags, negations | spellings, parser)


def _holds(run: Mapping[str, Any], at: int) -> bool:
    return index_of(run["first"]) <= at <= index_of(run["last"])


def flags_of_version(version: str | None) -> ReleaseFlags:
    """The flags of the read release that describes a version best (the newest for None)."""
    return flags_of_release(resolve_version(version).table)


@record
class Lifetime:
    """The read releases with a flag or a variable: the first, the last, and the first after the last without it."""

    first: str
    last: str
    gone_in: str | None


@record
class Absence:
    """Where a flag that a release lacks is found: the last read release before it with the flag and the first one
    after that without it, and the first release after it with the flag (again); None where there is none.
    """

    last: str | None
    gone_in: str | None
    first: str | None


@lru_cache(maxsize=1)
def _histories() -> dict[str, tuple[tuple[Flag, bool], ...]]:
    """Every spelling of every release, with the definitions that it had."""
    table = load_table("engine/flags")
    since = parser_since("disable-for-enable")
    result: dict[str, list[tuple[Flag, bool]]] = {}
    for name, entry in table["flags"].items():
        for run in entry["runs"]:
            flag = _flag(name, entry["dest"], run, since is not None and index_of(since) <= index_of(run["last"]))
            for spelling in flag.names:
                result.setdefault(spelling, []).append((flag, True))
            for spelling in flag.negations:
                late = since is not None and not spelling.startswith("--no-") and index_of(flag.first) < index_of(since)
                found = replace(flag, first=since) if late and since is not None else flag
                result.setdefault(spelling, []).append((found, False))
    return {spelling: tuple(found) for spelling, found in result.items()}


def history_of(spelling: str) -> tuple[tuple[Flag, bool], ...]:
    """The definitions that a spelling had over all releases, and whether it switches on; empty if none had it."""
    return _histories().get(spelling, ())


def lifetime_of(spelling: str) -> Lifetime | None:
    """First and last read release that takes a spelling, None if none does."""
    found = history_of(spelling)
    if not found:
        return None
    first = min((flag.first for flag, _ in found), key=index_of)
    last = max((flag.last for flag, _ in found), key=index_of)
    after = index_of(last) + 1
    return Lifetime(first, last, releases()[after] if after < len(releases()) else None)


def lifetime_around(spelling: str, release: str) -> Absence | None:
    """Where a spelling that ``release`` lacks is found before and after it, None if nowhere."""
    found = history_of(spelling)
    if not found:
        return None
    at = index_of(release)
    before = max((index_of(flag.last) for flag, _ in found if index_of(flag.last) < at), default=None)
    after = min((index_of(flag.first) for flag, _ in found if index_of(flag.first) > at), default=None)
    return Absence(
        last=None if before is None else releases()[before],
        gone_in=None if before is None else releases()[before + 1],
        first=None if after is None else releases()[after],
    )


def nearest_definition(spelling: str, release: str) -> tuple[Flag, bool] | None:
    """The definition of a spelling in the read release nearest to ``release`` that has it, a flag of its own first."""
    at = index_of(release)

    def distance(found: tuple[Flag, bool]) -> tuple[bool, int]:
        flag, on = found
        return not on, max(index_of(flag.first) - at, at - index_of(flag.last), 0)

    return min(history_of(spelling), key=distance, default=None)


def flag_presence(spelling: str, version: str | VersionInfo | None) -> Presence:
    """Whether a version takes a spelling; certain where the version was read, or both its neighbours agree.

    Beyond the newest read release (and for forks and branches) only ``present`` in the nearest one is an answer.
    """
    info = version if isinstance(version, VersionInfo) else resolve_version(version)
    answers = {spelling in flags_of_release(release).spellings for release in info.neighbours}
    if len(answers) > 1:
        return "uncertain"
    if answers == {True}:
        return "present"
    return "absent" if info.bounded else "uncertain"


def parser_since(behaviour: str) -> str | None:
    """The first read release whose parser does something (a name in ``ReleaseFlags.parser``); None if none does."""
    runs = load_table("engine/flags")["parser"].get(behaviour, ())
    return min((run["first"] for run in runs), key=index_of, default=None)
