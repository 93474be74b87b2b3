"""What somebody may have meant by a name that there is not."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(word: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The known word that is most like the given one; None where none is at least ``cutoff`` like it (0 to 1)."""
    from difflib import get_close_matches

    close = get_close_matches(word, list(known), 1, cutoff)
    return close[0] if close else None
