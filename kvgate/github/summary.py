"""The summary of a job: Markdown in a file that the runner names."""

from __future__ import annotations

from pathlib import Path
from typing import Final

#: GitHub drops the summary of a step beyond 1 MiB.
LIMIT_BYTES: Final = 1_000_000


def room_bytes(file: Path) -> int:
    """Bytes that a step's summary still takes."""
    try:
        return max(0, LIMIT_BYTES - file.stat().st_size)
    except OSError:
        return LIMIT_BYTES


def append_summary(file: Path, text: str) -> None:
    """Add to the summary of this step; what does not fit is left out whole.

    Raises:
        OSError: it cannot be written.
    """
    data = text.encode()
    if len(data) <= room_bytes(file):
        with file.open("ab") as stream:
            stream.write(data)
