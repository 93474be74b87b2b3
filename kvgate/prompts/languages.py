"""Languages of prompt code that kvgate does not follow."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Final

_LANGUAGES: Final = {
    **dict.fromkeys((".js", ".jsx", ".mjs", ".cjs"), "JavaScript"),
    **dict.fromkeys((".ts", ".tsx", ".mts", ".cts"), "TypeScript"),
    ".go": "Go", ".java": "Java", ".kt": "Kotlin", ".cs": "C#", ".rs": "Rust", ".rb": "Ruby", ".php": "PHP",
}  # fmt: skip


def unfollowed(path: str) -> str:
    """Why the prompts of a file are not looked at, and what can be done."""
    suffix = PurePosixPath(path).suffix
    kind = _LANGUAGES.get(suffix.lower()) or f'a file in "{suffix}"'
    return f"{kind} is not followed, only Python is; name a log of its requests (JSON lines) instead"
