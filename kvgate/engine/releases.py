"""vLLM releases: which were read, and where a version stands among them."""

from __future__ import annotations

import re
from bisect import bisect_left
from functools import lru_cache
from typing import Literal

from packaging.version import InvalidVersion, Version

from kvgate.patterns import regex
from kvgate.records import record
from kvgate.tables import load_table

Standing = Literal["read", "between", "newer", "older", "unknown"]
Presence = Literal["present", "absent", "uncertain"]

# Local version parts that name a build of the same source, not a fork: CUDA, ROCm, CPU and TPU builds, and
# Debian-like rebuild numbers.
_BUILD = regex(r"(?:cu\d+|rocm\d*|cpu|tpu|xpu|gpu|empty|precompiled|post\d+)(?:[._-].*)?", re.IGNORECASE)


@record
class VersionInfo:
    """Where a vLLM version stands among the releases whose wheels were read.

    Attributes:
        text: the version as given.
        version: its normal form (``0.8.5.post1``, without the build part), None where the text is no version.
        standing: ``read`` (this very release was read), ``between`` two read releases, ``newer`` than all,
            ``older`` than all, ``unknown`` (a branch, ``nightly``, a commit, no version at all).
        lower: the newest read release not newer than this one, if any.
        upper: the oldest read release not older than this one, if any; equal to ``lower`` when ``read``.
        fork: the build part says that the source was changed (``0.10.1+gptoss``).
    """

    text: str
    version: str | None
    standing: Standing
    lower: str | None
    upper: str | None
    fork: bool = False

    @property
    def read(self) -> bool:
        return self.standing == "read"

    @property
    def table(self) -> str:
        """The read release whose tables describe this version best."""
        if self.standing == "between" and self.version is not None and self.upper is not None:
            # A release candidate is nearer to its own release than to the one before.
            if Version(self.version).is_prerelease and Version(self.upper).release == Version(self.version).release:
                return self.upper
            return self.lower or self.upper
        return self.lower or self.upper or newest_release()

    @property
    def neighbours(self) -> tuple[str, ...]:
        """The read releases that bound what can be said: one for ``read``, else what lies on either side."""
        if self.standing == "unknown":
            return (newest_release(),)
        return tuple(dict.fromkeys(release for release in (self.lower, self.upper) if release is not None))

    @property
    def bounded(self) -> bool:
        """Whether read releases lie on both sides, so that what they agree on is certain."""
        return self.standing in ("read", "between") and not self.fork


@lru_cache(maxsize=1)
def releases() -> tuple[str, ...]:
    """All releases that were read, oldest first."""
    return tuple(load_table("engine/flags")["releases"])


@lru_cache(maxsize=1)
def _keys() -> tuple[Version, ...]:
    return tuple(Version(release) for release in releases())


@lru_cache(maxsize=1)
def _indices() -> dict[str, int]:
    return {release: index for index, release in enumerate(releases())}


def index_of(release: str) -> int:
    """Position of a read release, from 0.

    Raises:
        KeyError: that release was not read.
    """
    return _indices()[release]


def newest_release() -> str:
    return releases()[-1]


def oldest_release() -> str:
    return releases()[0]


@lru_cache(maxsize=256)
def resolve_version(text: str | None) -> VersionInfo:
    """Place a version (``v0.11.0``, ``0.8.5.post1``, ``0.11.0rc2``, ``0.9.1+cu128``, ``nightly``) among the releases.

    None and text that is no version are ``unknown``; their table is the newest one.
    """
    shown = (text or "").strip()
    try:
        given = Version(shown)
    except InvalidVersion:
        return VersionInfo(shown, None, "unknown", newest_release(), None)
    local = given.local
    fork = local is not None and _BUILD.fullmatch(local) is None and not given.is_devrelease
    public = Version(given.public)
    keys = _keys()
    at = bisect_left(keys, public)
    if at < len(keys) and keys[at] == public:
        release = releases()[at]
        return VersionInfo(shown, release, "read", release, release, fork)
    lower = releases()[at - 1] if at else None
    upper = releases()[at] if at < len(keys) else None
    standing: Standing = "between" if lower and upper else "older" if upper else "newer"
    return VersionInfo(shown, str(public), standing, lower, upper, fork)


def compare_versions(left: str, right: str) -> int:
    """-1, 0 or 1 as ``left`` is older than, equal to or newer than ``right``; build parts do not count.

    Raises:
        packaging.version.InvalidVersion: one of them is no version.
    """
    a, b = Version(Version(left).public), Version(Version(right).public)
    return (a > b) - (a < b)


def at_least(version: str | None, release: str) -> bool:
    """Whether ``version`` is ``release`` or newer. Unknown versions count as the newest release.

    A pre-release of ``release`` counts as that release: it carries its changes.
    """
    info = resolve_version(version)
    known = Version(info.version) if info.version is not None else Version(newest_release())
    return known.release >= Version(release).release and (
        known.release > Version(release).release or known.is_prerelease or known >= Version(release)
    )
