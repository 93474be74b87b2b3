"""What to write instead of a removed or deprecated flag or variable."""

from __future__ import annotations

from kvgate.engine.releases import VersionInfo, compare_versions, resolve_version
from kvgate.records import record
from kvgate.tables import load_table


@record
class Replacement:
    """What took the place of a name.

    Attributes:
        name: the old flag (``--rope-scaling``) or variable (``VLLM_USE_V1``).
        new: the flag to use, None where the old name is simply to be deleted.
        text: what to write or do, for people.
        since: the first read release in which that holds; None where it holds in all.
        delete: the old name can be deleted without loss: its effect is the default, or gone.
    """

    name: str
    new: str | None
    text: str
    since: str | None
    delete: bool


def replacement_of(name: str, version: str | VersionInfo | None = None) -> Replacement | None:
    """The replacement of a flag (with dashes) or variable that a version can use, None if none is known.

    None and versions that are none stand for the newest release.
    """
    info = version if isinstance(version, VersionInfo) else resolve_version(version)
    release = info.version or info.table
    for entry in load_table("engine/replacements")["replacements"].get(name, ()):
        since, until = entry.get("since"), entry.get("until")
        if since is not None and compare_versions(release, since) < 0:
            continue
        if until is not None and compare_versions(release, until) > 0:
            continue
        return Replacement(name, entry.get("new"), entry["text"], since, entry.get("delete", False))
    return None
