"""What a few programs print that depend on their words alone: ``$(basename "$MODEL")``, ``$(echo "$X" | cut -d: -f2)``.

POSIX.1-2017, Shell & Utilities: basename, cut, dirname, echo, printf, tr; GNU's seq and the plain substitutions of sed.
"""

from __future__ import annotations

import posixpath
import re
import string
from collections.abc import Callable, Mapping, Sequence
from typing import Final

MAX_NUMBERS: Final = 16
MAX_STAGES: Final = 6


def printed(words: Sequence[str]) -> str | None:
    """What a pipeline prints, its last line ends taken off; None for all that is not followed here.

    Args:
        words: of the whole pipeline, its bars among them.
    """
    stages: list[list[str]] = [[]]
    for word in words:
        if word == "|" and stages[-1][-1:] not in (["-d"], ["-F"]):
            stages.append([])
        else:
            stages[-1].append(word)
    if len(stages) > MAX_STAGES or not all(stages):
        return None
    first, *rest = stages
    if any(re.search(r"[*?]|^~", word) for word in first):
        return None  # may stand for names of files
    source = _SOURCES.get(first[0])
    text = source(first[1:]) if source is not None else None
    for stage in rest:
        change = _FILTERS.get(stage[0])
        if text is None or change is None:
            return None
        text = change(text, stage[1:])
    return None if text is None else text.rstrip("\n")


def _basename(words: Sequence[str]) -> str | None:
    if not 1 <= len(words) <= 2 or words[0].startswith("-"):
        return None
    name = posixpath.basename(words[0].rstrip("/") or "/")
    suffix = words[1] if len(words) == 2 else ""
    return name[: -len(suffix)] if suffix and name.endswith(suffix) and name != suffix else name


def _dirname(words: Sequence[str]) -> str | None:
    if len(words) != 1 or words[0].startswith("-"):
        return None
    return posixpath.dirname(words[0].rstrip("/")) or "."


def _echo(words: Sequence[str]) -> str | None:
    words = words[1:] if words[:1] == ["-n"] else words
    text = " ".join(words)
    return None if text.startswith("-") or "\\" in text else text


def _printf(words: Sequence[str]) -> str | None:
    if len(words) == 2 and words[0] in ("%s", "%s\\n"):
        return words[1]
    return words[0] if len(words) == 1 and not re.search(r"[%\\]", words[0]) else None


def _seq(words: Sequence[str]) -> str | None:
    if not 1 <= len(words) <= 3 or not all(re.fullmatch(r"-?[0-9]{1,6}", word) for word in words):
        return None
    numbers = [int(word) for word in words]
    first = numbers[0] if len(numbers) > 1 else 1
    step = numbers[1] if len(numbers) == 3 else 1
    if step == 0:
        return None
    found = range(first, numbers[-1] + (1 if step > 0 else -1), step)
    return "\n".join(map(str, found)) if len(found) <= MAX_NUMBERS else None


def _cut(text: str, words: Sequence[str]) -> str | None:
    options = re.fullmatch(r"-d ?(.) -f ?([1-9][0-9]?)(-?)|-f ?([1-9][0-9]?)(-?) -d ?(.)", " ".join(words))
    if not options or "\n" in text:
        return None
    mark, number, more = options[1] or options[6], int(options[2] or options[4]), options[3] or options[5]
    parts = text.split(mark)
    if len(parts) == 1:
        return text
    return mark.join(parts[number - 1 :] if more else parts[number - 1 : number])


_CLASSES: Final = {
    "[:upper:]": string.ascii_uppercase, "A-Z": string.ascii_uppercase, "[A-Z]": string.ascii_uppercase,
    "[:lower:]": string.ascii_lowercase, "a-z": string.ascii_lowercase, "[a-z]": string.ascii_lowercase,
}  # fmt: skip


def _tr(text: str, words: Sequence[str]) -> str | None:
    sets = [_CLASSES.get(word, word) for word in words if word != "-d"]
    if any(word not in _CLASSES and re.search(r"[\\\[\]]|.-.", word) for word in words if word != "-d"):
        return None
    if words[:1] == ["-d"]:
        return "".join(char for char in text if char not in sets[0]) if len(sets) == 1 else None
    if len(words) != 2 or not all(sets):
        return None
    old, new = sets
    return text.translate(str.maketrans(old, (new + new[-1] * len(old))[: len(old)]))


def _sed(text: str, words: Sequence[str]) -> str | None:
    # a full stop would match anything
    match = re.fullmatch(r"s([/|#,:@])([\w :@/-]+)\1([\w .:@/-]*)\1(g?)", words[-1]) if words else None
    if not match or match[1] in match[2] + match[3] or words[:-1] not in ([], ["-e"]) or "\n" in text:
        return None
    return text.replace(match[2], match[3], -1 if match[4] else 1)


_SOURCES: Final[Mapping[str, Callable[[Sequence[str]], str | None]]] = {
    "basename": _basename,
    "dirname": _dirname,
    "echo": _echo,
    "printf": _printf,
    "seq": _seq,
}
_FILTERS: Final[Mapping[str, Callable[[str, Sequence[str]], str | None]]] = {"cut": _cut, "sed": _sed, "tr": _tr}
