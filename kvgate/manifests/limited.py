"""Runs a program in its own place, within limits of memory, processor time and output: MEMORY SECONDS BYTES PROGRAM."""

from __future__ import annotations

import os
import sys


def main(words: list[str]) -> None:
    memory, seconds, size, program, *rest = words
    try:
        import resource

        limits = (resource.RLIMIT_AS, memory), (resource.RLIMIT_CPU, seconds), (resource.RLIMIT_FSIZE, size)
        for kind, value in ((kind, int(text)) for kind, text in limits):
            _, hard = resource.getrlimit(kind)
            limit = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.setrlimit(kind, (limit, limit))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    except (ImportError, ValueError, OSError):  # no such limits here: the parent's clock remains
        pass
    os.execv(program, [program, *rest])  # noqa: S606 - the caller looked the program up


if __name__ == "__main__":
    main(sys.argv[1:])
