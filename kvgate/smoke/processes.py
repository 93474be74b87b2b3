"""Ending a server and everything that it started, in bounded time. Only the standard library: the guard uses it too.

A server runs in a session of its own. What belongs to it is found by that session, by a mark in the environment, and by
descent; nothing is ever ended by its name.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

MARK: Final = "KVGATE_SMOKE_RUN"
_PROC: Final = Path("/proc")
_POLL_S: Final = 0.1


def belonging(pid: int | None, mark: str, seen: Iterable[tuple[int, int]] = ()) -> set[int]:
    """Living processes of a server, itself included.

    Args:
        pid: the server, the leader of its session; None where it is not known, and the mark alone tells.
        mark: the value of :data:`MARK` in its environment.
        seen: (pid, start time) of descendants that were seen before.
    """
    alive = _alive()
    if not alive:  # no /proc: only the group is known
        return {pid} if pid is not None and _group_alive(pid) else set()
    known = set(seen)
    found = {one for one, (_, session, _) in alive.items() if session == pid}
    found |= {one for one, (_, _, started) in alive.items() if (one, started) in known}
    wanted = f"{MARK}={mark}".encode()
    found |= {one for one in alive if one not in found and wanted in _environment(one)}
    found |= _descendants(found if pid is None else found | {pid}, alive)
    found.discard(os.getpid())
    return found


def descendants(pid: int) -> set[tuple[int, int]]:
    """(pid, start time) of everything below a process now."""
    alive = _alive()
    return {(one, alive[one][2]) for one in _descendants({pid}, alive) if one in alive}


def end_all(pid: int | None, mark: str, seen: Callable[[], Iterable[tuple[int, int]]], grace_s: float = 8.0) -> bool:
    """Ask a server to end, then end it; True when nothing of it is left."""
    for number, seconds in ((signal.SIGTERM, grace_s), (signal.SIGKILL, 5.0), (signal.SIGKILL, 5.0)):
        left = belonging(pid, mark, seen())
        if not left:
            return True
        if pid is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, number)
        if number == signal.SIGKILL or pid is None:
            for one in left:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(one, number)
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if not belonging(pid, mark, seen()):
                return True
            time.sleep(_POLL_S)
    return not belonging(pid, mark, seen())


def _group_alive(pid: int) -> bool:
    try:
        os.killpg(pid, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _alive() -> dict[int, tuple[int, int, int]]:
    """pid -> (parent, session, start time) of every living process; empty without /proc."""
    result: dict[int, tuple[int, int, int]] = {}
    if not _PROC.is_dir():
        return result
    for entry in os.listdir(_PROC):
        if not entry.isdecimal():
            continue
        try:
            text = (_PROC / entry / "stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        # the name in parentheses may hold anything
        fields = text[text.rfind(")") + 2 :].split()
        if fields and fields[0] not in ("Z", "X"):
            result[int(entry)] = (int(fields[1]), int(fields[3]), int(fields[19]))
    return result


def _environment(pid: int) -> bytes:
    try:
        return (_PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return b""


def _descendants(roots: set[int], alive: dict[int, tuple[int, int, int]]) -> set[int]:
    children: dict[int, list[int]] = {}
    for one, (parent, _, _) in alive.items():
        children.setdefault(parent, []).append(one)
    found: set[int] = set()
    waiting = list(roots)
    while waiting:
        for child in children.get(waiting.pop(), ()):
            if child not in found:
                found.add(child)
                waiting.append(child)
    return found
