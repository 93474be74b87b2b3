"""Static defaults of engine arguments, and environment variables, per release."""

from __future__ import annotations

import ast
from typing import Any

from kvgate.engine.flags import DYNAMIC, Lifetime, flags_of_version
from kvgate.engine.releases import Presence, VersionInfo, index_of, releases, resolve_version
from kvgate.records import record
from kvgate.tables import load_table

__all__ = ["DYNAMIC", "EnvironmentVariable", "default_of", "env_known", "env_presence"]


def default_of(dest: str, version: str | None) -> Any:
    """The default that a release's parser declares for an engine argument (``max_num_seqs``).

    :data:`DYNAMIC` where it is computed when vLLM starts. None is a default too: many arguments are None until vLLM
    decides (``max_model_len`` from the model, ``max_num_seqs`` from the GPU and the way it is used).

    Raises:
        KeyError: that release has no such argument.
    """
    flag = flags_of_version(version).of_dest(dest)
    if flag is None:
        raise KeyError(dest)
    return flag.default


@record
class EnvironmentVariable:
    """A variable that ``vllm/envs.py`` declares.

    Attributes:
        name: the variable.
        first, last: first and last read release that declares it, and the first after it that does not.
        default: its default in the release asked for, as Python value; None where it is unset or that release lacks it;
            :data:`DYNAMIC` where it is an expression.
        present: whether the version asked for declares it.
    """

    name: str
    lifetime: Lifetime
    default: Any
    present: Presence


def env_presence(name: str, version: str | VersionInfo | None) -> Presence:
    """Whether a version reads a variable; certain where it was read, or both its neighbours agree."""
    info = version if isinstance(version, VersionInfo) else resolve_version(version)
    runs = load_table("engine/env")["env"].get(name, ())
    answers = {
        any(index_of(run["first"]) <= index_of(release) <= index_of(run["last"]) for run in runs)
        for release in info.neighbours
    }
    if len(answers) > 1:
        return "uncertain"
    if answers == {True}:
        return "present"
    return "absent" if info.bounded else "uncertain"


def env_known(name: str, version: str | None) -> EnvironmentVariable | None:
    """A variable that some read release declares, None if none does."""
    runs = load_table("engine/env")["env"].get(name)
    if not runs:
        return None
    info = resolve_version(version)
    at = index_of(info.table)
    default: Any = None
    for run in runs:
        if index_of(run["first"]) <= at <= index_of(run["last"]):
            default = _literal(run.get("default"))
    first = min((run["first"] for run in runs), key=index_of)
    last = max((run["last"] for run in runs), key=index_of)
    after = index_of(last) + 1
    gone = releases()[after] if after < len(releases()) else None
    return EnvironmentVariable(name, Lifetime(first, last, gone), default, env_presence(name, info))


def _literal(text: str | None) -> Any:
    if text is None:
        return None
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return DYNAMIC
