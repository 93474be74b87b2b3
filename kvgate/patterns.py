"""Regular expressions that are compiled when they are first used.

Most runs use few of the expressions that the modules they load define, and compiling one takes 0.1 to 1 ms.
"""

from __future__ import annotations

import re
from typing import Any, AnyStr, Final, cast

_METHODS: Final = ("match", "search", "fullmatch", "finditer", "findall", "split", "sub", "subn")


def regex(text: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """What ``re.compile`` gives, for a constant of a module; a wrong expression is found when it is first used."""
    return cast("re.Pattern[AnyStr]", LatePattern(text, flags))


class LatePattern:
    """Stands for a compiled expression, and compiles it when something is asked of it."""

    def __init__(self, text: Any, flags: int) -> None:
        self._source = text, flags

    def __getattr__(self, name: str) -> Any:
        compiled = re.compile(*self._source)
        # from now on the methods are found without coming here
        self.__dict__.update((method, getattr(compiled, method)) for method in _METHODS)
        return getattr(compiled, name)
