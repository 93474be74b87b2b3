"""Scripts that are templates of another program: Jinja's ``{% if %}`` and Go's ``{{ if }}`` around parts of them.

Nothing is evaluated. A branch around whole statements becomes one of the shell's own, whose condition is not known; a
branch inside a command becomes a stretch that is there only if its condition holds.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from kvgate.records import record
from kvgate.shell.value import Hole, Value
from kvgate.source.text import Text, Unresolved

MAX_TAGS: Final = 500
MAX_TAG: Final = 2_000

_JINJA_WORDS: Final = (
    r"(?:if|elif|else|endif|for|endfor|set|endset|macro|endmacro|block|endblock|include|import|from|raw|endraw|filter"
    r"|endfilter|with|endwith|call|endcall|do)\b"
)
_JINJA: Final = re.compile(
    rf"\{{%[-+]?\s*(?P<word>{_JINJA_WORDS})(?P<rest>.*?)[-+]?%\}}|\{{#(?P<comment>.*?)#\}}", re.DOTALL
)
_GO: Final = re.compile(
    r"\{\{-?\s*(?:(?P<word>if|else|end|range|with|define|block)\b(?P<rest>(?:[^`}]|`[^`]*`|\}(?!\}))*?)"
    r"|(?P<comment>/\*.*?\*/))\s*-?\}\}",
    re.DOTALL,
)  # fmt: skip
# What Python's `str.format` fills in (`{model}`), where no shell and no other template means something by it.
FORMAT_FIELD: Final = re.compile(r"\{(?<![$@\\{%\w]\{)[A-Za-z_]\w*\}(?!\})")
_OPENS: Final = frozenset({"if", "for", "range", "with", "define", "block", "macro", "filter", "call"})
_CLOSES: Final = frozenset(
    {"end", "endif", "endfor", "endwith", "endmacro", "endblock", "endfilter", "endcall"}
)  # fmt: skip
_ELSE: Final = frozenset({"else", "elif"})


def has_control(text: str) -> bool:
    """Whether a text may hold control tags of a template; cheap."""
    if "{%" in text and re.search(r"\{%[-+]?\s*" + _JINJA_WORDS, text):
        return True
    return "{{" in text and re.search(r"\{\{-?\s*(?:if|range|with|end)\b", text) is not None


def without_tags(text: str) -> str:
    """A text with Jinja's control tags and comments replaced by blanks; every other character keeps its place."""
    return _JINJA.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), text)


@record
class _Tag:
    """A control tag with the whitespace that goes with it: its whole line, where it stands alone on one."""

    start: int
    end: int
    word: str
    rest: str
    alone: bool


@record
class _Region:
    """Tags that belong together: the opening one, those of its alternatives, the closing one."""

    tags: tuple[_Tag, ...]


def with_branches(value: Value, *, statements: bool) -> Value:
    """A script without the control tags of the template that it is.

    Args:
        statements: whether the text is a script, in which a branch can stand around whole statements.
    """
    source = value.text.value
    if not has_control(source):
        return value
    tags = _tags(source)
    if not tags or len(tags) > MAX_TAGS:
        return value
    regions = _regions(tags)
    cuts: dict[int, tuple[_Tag, str]] = {tag.start: (tag, "") for tag in tags}
    holes: list[Hole] = []
    inside_command = {id(region): _inside_command(source, region, tags) for region in regions}
    for region in regions:
        if statements and not inside_command[id(region)]:
            for tag, text in zip(region.tags, _as_shell(region), strict=True):
                cuts[tag.start] = (tag, text)
            continue
        holes += _conditional(source, region, cuts)
    return _assembled(value, cuts, holes)


def _tags(source: str) -> list[_Tag]:
    found: list[_Tag] = []
    for pattern in (_JINJA, _GO):
        for match in pattern.finditer(source):
            if match.end() - match.start() > MAX_TAG:
                continue
            start, end = match.span()
            line_start = source.rfind("\n", 0, start) + 1
            line_end = source.find("\n", end)
            line_end = len(source) if line_end < 0 else line_end + 1
            alone = not source[line_start:start].strip() and not source[end:line_end].strip()
            word = match["word"] or ""
            # an `end` of Go's may close what the pattern does not know, a comment closes nothing
            found.append(_Tag(line_start if alone else start, line_end if alone else end, word,
                              " ".join((match["rest"] or "").split()), alone))  # fmt: skip
    found.sort(key=lambda tag: tag.start)
    return found


def _regions(tags: list[_Tag]) -> list[_Region]:
    regions: list[_Region] = []
    stack: list[list[_Tag]] = []
    for tag in tags:
        if tag.word in _OPENS:
            stack.append([tag])
        elif tag.word in _ELSE and stack:
            stack[-1].append(tag)
        elif tag.word in _CLOSES and stack:
            stack[-1].append(tag)
            regions.append(_Region(tuple(stack.pop())))
    regions.sort(key=lambda region: region.tags[0].start)
    return regions


_GOES_ON: Final = ("\\", "&&", "||", "|", "(", '"')


def _inside_command(source: str, region: _Region, tags: list[_Tag]) -> bool:
    """Whether a branch stands inside a command: its tags share lines with words, or a line before one goes on."""
    if not all(tag.alone for tag in region.tags):
        return True
    return any(_before(source, tag, tags).endswith(_GOES_ON) for tag in region.tags)


def _before(source: str, tag: _Tag, tags: list[_Tag]) -> str:
    """The line of the script before a tag, other tags looked over."""
    end = tag.start
    for other in reversed([other for other in tags if other.start < tag.start]):
        if source[other.end : end].strip():
            break
        end = other.start
    text = source[:end].rstrip()
    return text[text.rfind("\n") + 1 :]


def _as_shell(region: _Region) -> list[str]:
    """What the tags of a branch are in the shell's language: a condition that nobody can decide."""
    first = region.tags[0]
    loop = first.word in ("for", "range")
    condition = re.sub(r"[^\w .=<>!$-]", "", f"{first.word} {first.rest}")[:80].strip().replace("$", "")
    words = [f"{'while' if loop else 'if'} template_says '{condition}'; {'do' if loop else 'then'}\n"]
    for tag in region.tags[1:-1]:
        if loop:
            words.append("\n")
            continue
        rest = tag.rest.removeprefix("if").strip()
        further = re.sub(r"[^\w .=<>!-]", "", rest)[:80]
        words.append(f"elif template_says '{further}'; then\n" if rest else "else\n")
    words.append("done\n" if loop else "fi\n")
    return words


_FIRST_FLAG: Final = re.compile(r"[ \t\r\n\\]+(?=--?[A-Za-z])")


def _conditional(source: str, region: _Region, cuts: dict[int, tuple[_Tag, str]]) -> list[Hole]:
    """Holes over what a branch inside a command holds; the tags themselves are cut out."""
    first = region.tags[0]
    what = f"{first.word} {first.rest}".strip()
    holes: list[Hole] = []
    for tag, following in zip(region.tags, region.tags[1:], strict=False):
        start, end = tag.end, following.start
        body = source[start:end]
        lead = len(body) - len(body.lstrip(" \t\r\n\\"))
        tail = len(body) - len(body.rstrip(" \t\r\n\\"))
        start, end = start + lead, max(end - tail, start + lead)
        reason = f"only if the template says so ({what})" if tag is first else f"only if not ({what})"
        # a model and the flags behind it are no one word
        flags = _FIRST_FLAG.search(source, start, end) if source[start : start + 1] != "-" else None
        stretches = [(start, flags.start()), (flags.end(), end)] if flags is not None else [(start, end)]
        holes += [
            Hole(left, right, Unresolved(source[left:right], reason)) for left, right in stretches if left < right
        ]
    return holes


def _assembled(value: Value, cuts: dict[int, tuple[_Tag, str]], holes: list[Hole]) -> Value:
    """The text with its tags replaced and the holes laid over it, the outermost winning."""
    text = value.text
    outer: list[Hole] = []
    for hole in sorted([*holes, *value.holes], key=lambda hole: (hole.start, -hole.end)):
        if not outer or hole.start >= outer[-1].end:
            outer.append(hole)
    marked = Value(text, tuple(outer))
    parts: list[Value] = []
    at = 0
    for tag, replacement in cuts.values():
        if tag.start < at:
            continue
        parts.append(_without_cuts(marked.slice(at, tag.start)))
        if replacement:
            parts.append(Value(Text.at(replacement, text.slice(tag.start, max(tag.end, tag.start + 1)).span)))
        at = tag.end
    parts.append(_without_cuts(marked.slice(at, len(text))))
    return Value.join(parts)


def _without_cuts(value: Value) -> Value:
    """A stretch whose holes say only what stands in it, since tags inside a hole are cut out."""
    return Value(
        value.text,
        tuple(
            replace(hole, unresolved=Unresolved(value.text.value[hole.start : hole.end], hole.unresolved.reason))
            for hole in value.holes
            if hole.end > hole.start
        ),
    )
