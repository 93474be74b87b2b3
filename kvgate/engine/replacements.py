"""What to write instead of a removed or deprecated flag or variable."""

from __future__ import annotations

from dataclasses import dataclass

from kvgate.engine.releases import VersionInfo, at_least, resolve_version
from kvgate.engine.tables import load_table


@dataclass(frozen=True, slots=True)
class Replacement:
    """What took the place of a name.

    Attributes:
        name: the old flag (``--rope-scaling``) or variable.
        new: the flag or variable to use, None where the old one is simply to be deleted.
        text: what to write, for people.
        since: the first read release with the new name; None where there is no new name.
        delete: the old name can be deleted without loss (its effect is the default, or gone).
    """

    name: str
    new: str | None
    text: str
    since: str | None
    delete: bool


def replacement_of(name: str, version: str | VersionInfo | None = None) -> Replacement | None:
    """The replacement of a flag (any spelling with dashes) or variable that a version can use, None if none is known.

    A replacement that appeared only after ``version`` is no answer. None for ``version`` stands for the newest release.
    """
    entry = load_table("replacements")["replacements"].get(name)
    if entry is None:
        return None
    info = version if isinstance(version, VersionInfo) else resolve_version(version)
    since = entry.get("since")
    if since is not None and not at_least(info.version, since):
        return None
    return Replacement(name, entry.get("new"), entry["text"], since, entry.get("delete", False))
