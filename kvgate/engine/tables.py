"""The tables of what each vLLM release knows, loaded once and on first use.

``data/flags.json`` and ``data/env.json`` are made from the released wheels by
``.github/scripts/update_release_tables.py``; ``data/replacements.json`` is kept by hand.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

_DATA = Path(__file__).parent / "data"


@cache
def load_table(name: str) -> dict[str, Any]:
    """One table of ``kvgate/engine/data`` by its name without extension. Callers must not change it."""
    with (_DATA / f"{name}.json").open(encoding="utf-8") as file:
        table: dict[str, Any] = json.load(file)
    return table
