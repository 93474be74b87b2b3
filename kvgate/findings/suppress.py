"""Inline suppressions: ``# kvgate: ignore[rule-id, other-id] reason``.

The comment is looked for in the raw text, so it works in every kind of file, in scripts inside YAML block scalars
too. It may be opened as ``#``, as Jinja's ``{#`` or as a Go template's ``{{/*``. At the end of a line it speaks of
that line; alone on its line it speaks of the next line that is no comment. It takes away findings of the named rules
whose primary place touches that line (or whose unit begins there).

The reason is free text after the bracket. A suppression without one works, and is reported by
``suppression-without-reason`` (profile ``all``), since a reader cannot tell it from a mistake. What looks like a
suppression and is none (no bracket, an empty one, ids that are no kebab-case) suppresses nothing and is reported.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Final, Literal

from kvgate.findings.finding import Finding
from kvgate.patterns import regex
from kvgate.records import record
from kvgate.source.text import SourceFile, Span
from kvgate.spelling import nearest

_OPENER: Final = r"(?:(?<![^\s])(?:\#|\{\#-?|\{\{-?\s?/\*))"
_DIRECTIVE: Final = regex(_OPENER + r"[ \t]*kvgate:(?P<rest>[^\r\n]*)")
_IGNORE: Final = regex(
    r"[ \t]*ignore\[(?P<ids>[ \t]*[a-z0-9]+(?:-[a-z0-9]+)*(?:[ \t]*,[ \t]*[a-z0-9]+(?:-[a-z0-9]+)*)*[ \t]*)\]"
    r"(?:[ \t]+(?P<reason>\S.*))?[ \t]*"
)
_CLOSER: Final = regex(r"[ \t]*(?:-?\#\}|\*/[ \t]?-?\}\})[ \t]*$")
_COMMENT_LINE: Final = regex(r"[ \t]*(?:\#|\{\#|\{\{-?\s?/\*)")


@record
class Suppression:
    """One comment: the rules it names with their places, its reason, and the lines it speaks of."""

    span: Span
    rules: tuple[tuple[str, Span], ...]
    reason: str | None
    lines: tuple[int, ...]


@record
class MalformedSuppression:
    """A comment that begins as a suppression and is none."""

    span: Span
    problem: str


@record
class SuppressionProblem:
    """What is to be said of a suppression itself.

    ``unused``: the rule ran and found nothing there; ``unknown``: there is no such rule; ``malformed``: it is no
    suppression; ``renamed``: an old id that still works; ``no-reason``.
    """

    kind: Literal["unused", "unknown", "malformed", "renamed", "no-reason"]
    span: Span
    rule: str | None
    detail: str


@record
class Suppressed:
    """Findings that are left, those taken away and how many, and what is wrong with the suppressions."""

    findings: tuple[Finding, ...]
    count: int
    problems: tuple[SuppressionProblem, ...]
    hidden: tuple[Finding, ...] = ()


def read_suppressions(file: SourceFile) -> tuple[tuple[Suppression, ...], tuple[MalformedSuppression, ...]]:
    """Every suppression of a file, and the comments that only look like one."""
    text = file.text
    found: list[Suppression] = []
    broken: list[MalformedSuppression] = []
    if "kvgate:" not in text:
        return (), ()
    for match in _DIRECTIVE.finditer(text):
        rest = _CLOSER.sub("", match["rest"])
        if not re.match(r"[ \t]*(?i:ignore)", rest):
            continue  # other words to kvgate, or prose about it
        start, base = match.start(), match.start("rest")
        span = Span(file, start, base + len(rest.rstrip()))
        ignore = _IGNORE.fullmatch(rest)
        if ignore is None:
            broken.append(MalformedSuppression(span, _problem_of(rest)))
            continue
        rules = []
        at = base + ignore.start("ids")
        for part in ignore["ids"].split(","):
            name = part.strip()
            begin = at + part.index(name)
            rules.append((name, Span(file, begin, begin + len(name))))
            at += len(part) + 1
        reason = (ignore["reason"] or "").strip() or None
        found.append(Suppression(span, tuple(rules), reason, _lines_of(file, start)))
    return tuple(found), tuple(broken)


def _problem_of(rest: str) -> str:
    if "[" not in rest:
        return "the rule ids in brackets are missing"
    if "]" not in rest:
        return "the closing bracket is missing"
    inner, _, after = rest.partition("[")[2].partition("]")
    if not inner.strip():
        return "no rule id stands in the brackets"
    if after and not after[0].isspace():
        return "a blank is missing between the bracket and the reason"
    if rest.strip().partition("[")[0] != "ignore":
        return 'the word before the bracket is not "ignore"'
    return "rule ids are lower case with dashes, separated by commas"


def _lines_of(file: SourceFile, offset: int) -> tuple[int, ...]:
    """The line of the comment; where it stands alone, also the next line that is no comment."""
    line, column = file.position(offset)
    if file.line_text(line)[: column - 1].strip():
        return (line,)
    following = line + 1
    while following <= len(file.line_starts) and _COMMENT_LINE.match(file.line_text(following)):
        following += 1
    return line, following


def apply_suppressions(
    findings: Iterable[Finding],
    files: Iterable[SourceFile],
    *,
    known: Collection[str],
    ran: Collection[str],
    aliases: Mapping[str, str] | None = None,
) -> Suppressed:
    """Take suppressed findings away and judge the suppressions.

    Args:
        findings: all findings.
        files: every file that was read, each once.
        known: ids of all rules; another id in a suppression is reported.
        ran: ids of the rules that ran; only their suppressions can be called unused.
        aliases: old id -> present id; an old id works, and is reported.
    """
    aliases = aliases or {}
    comments: list[Suppression] = []
    problems: list[SuppressionProblem] = []
    for file in files:
        found, broken = read_suppressions(file)
        comments += found
        problems += [SuppressionProblem("malformed", bad.span, None, bad.problem) for bad in broken]
    by_line: dict[tuple[str, int], list[tuple[Suppression, int]]] = {}
    for comment in comments:
        for index in range(len(comment.rules)):
            for line in comment.lines:
                by_line.setdefault((comment.span.path, line), []).append((comment, index))
    used: set[tuple[Span, int]] = set()
    kept: list[Finding] = []
    hidden: list[Finding] = []
    for finding in findings:
        hits = {
            (comment.span, index)
            for path, line in _touched(finding)
            for comment, index in by_line.get((path, line), ())
            if aliases.get(comment.rules[index][0], comment.rules[index][0]) == finding.rule
        }
        used |= hits
        (hidden if hits else kept).append(finding)
    for comment in comments:
        for index, (name, span) in enumerate(comment.rules):
            present = aliases.get(name, name)
            if present not in known:
                problems.append(SuppressionProblem("unknown", span, name, nearest(name, sorted(known)) or ""))
            elif name != present:
                problems.append(SuppressionProblem("renamed", span, name, present))
            elif (comment.span, index) not in used and present in ran:
                problems.append(SuppressionProblem("unused", span, name, ""))
        if comment.reason is None:
            problems.append(SuppressionProblem("no-reason", comment.span, None, ""))
    return Suppressed(tuple(kept), len(hidden), tuple(problems), tuple(hidden))


def _touched(finding: Finding) -> set[tuple[str, int]]:
    """The lines on which a suppression counts for a finding."""
    lines: set[tuple[str, int]] = set()
    span = finding.primary
    last = span.end_line
    if last > span.line and span.end_column == 1:
        last -= 1  # ends just behind a line end
    lines.update((span.path, line) for line in range(span.line, last + 1))
    lines.update((place.path, place.line) for place in finding.hidden)
    return lines
