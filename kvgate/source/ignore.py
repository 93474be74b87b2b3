"""Patterns in the manner of ``.gitignore``: which files of a tree they leave out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pathspec


class IgnorePatterns:
    """The patterns of one ``.gitignore``, or of a list like it; the last one that speaks of a path decides.

    Paths are relative to the place of the patterns, POSIX, without a slash at their end.
    """

    def __init__(self, lines: Iterable[str]) -> None:
        kept = [line for line in lines if line.strip() and not line.startswith("#")]
        self._spec: pathspec.GitIgnoreSpec | None = None
        if kept:
            import pathspec  # costs more than reading a small tree

            self._spec = pathspec.GitIgnoreSpec.from_lines(kept)

    def verdict(self, path: str, *, is_directory: bool = False) -> bool | None:
        """Whether a path is left out; None where no pattern speaks of it."""
        if self._spec is None:
            return None
        return self._spec.check_file(path + "/" if is_directory else path).include
