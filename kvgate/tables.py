"""The tables of facts that come with the package, each loaded once and on first use."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, Final

_PACKAGE: Final = Path(__file__).parent


@cache
def load_table(name: str) -> Any:
    """A JSON table by its room and name: ``engine/flags`` is ``kvgate/engine/data/flags.json``.

    Callers must not change it.
    """
    room, _, table = name.partition("/")
    return json.loads((_PACKAGE / room / "data" / f"{table}.json").read_text(encoding="utf-8"))
