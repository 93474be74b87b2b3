"""The tables of facts that come with the package, each loaded once and on first use."""

from __future__ import annotations

import json
import os
from functools import cache
from typing import Any, Final

# the arithmetic needs no other path, and importing pathlib takes as long as importing half of it
_PACKAGE: Final = os.path.dirname(__file__)


@cache
def load_table(name: str) -> Any:
    """A JSON table by its room and name: ``engine/flags`` is ``kvgate/engine/data/flags.json``.

    Callers must not change it.
    """
    room, _, table = name.partition("/")
    with open(os.path.join(_PACKAGE, room, "data", f"{table}.json"), encoding="utf-8") as file:
        return json.load(file)
