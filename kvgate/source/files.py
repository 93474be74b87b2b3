"""Writing files."""

from __future__ import annotations

from pathlib import Path


def write_whole(file: Path, data: bytes, *, mode: int | None = None) -> None:
    """Write a file in one go: a reader sees the old or the new content, never a part.

    A device or a pipe (``/dev/stdout``) is written to as it is.

    Args:
        mode: its permissions; None leaves them to the system.

    Raises:
        OSError: it cannot be written.
    """
    if file.exists() and not file.is_file():
        file.write_bytes(data)
        return
    partial = file.with_name(file.name + ".partial")
    partial.unlink(missing_ok=True)  # a link of that name, which a tree may bring along, must not be followed
    try:
        with partial.open("xb") as opened:
            opened.write(data)
        if mode is not None:
            partial.chmod(mode)
        partial.replace(file)
    finally:
        partial.unlink(missing_ok=True)
