"""kvgate: how many requests will this vLLM deployment really hold, and does this change make it worse?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kvgate.app import check, predict

__version__ = "0.1.0"
__all__ = ["__version__", "check", "predict"]


def __getattr__(name: str) -> Any:
    # The public functions are loaded on first use, so that `import kvgate` costs nothing.
    if name in ("check", "predict"):
        from kvgate import app

        return getattr(app, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
