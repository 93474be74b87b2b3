"""A comparison in Markdown: the comment on a pull request, and the job summary.

Whoever opens a pull request writes much of what stands here. What comes from the tree is inline code, or text in which
no markup, mention, reference or link is left (:mod:`kvgate.report.escape`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from kvgate.findings.finding import Finding
from kvgate.gate.difference import CLOSING, Cause, Difference, UnitDifference
from kvgate.report.difference.words import (
    admitted_cell,
    counts,
    headline,
    match_words,
    plural,
    policy_words,
    pool_cell,
    requests_cell,
    starts_cell,
    tokens_cell,
)
from kvgate.report.escape import markdown, markdown_code

#: GitHub refuses comments beyond 65,536 characters; characters are counted as bytes here, to be safe.
COMMENT_BYTES: Final = 65_000
ARROW: Final = " → "
MAX_CAUSES: Final = 20

# ``#1`` and ``GH-1`` become links even where a backslash stands before the sign: an invisible joiner keeps them apart.
_REFERENCE: Final = re.compile(r"(?i)(\\#|\bGH\\-)")
_JOINER: Final = "\N{WORD JOINER}"
_SIGNS: Final = {"fail": "🔴", "accepted": "🟡", "pass": "🟢"}
_VERDICTS: Final = {
    "equal": "same", "higher": "more", "lower": "less, as the policy allows", "drop": "**less**",
    "unknown": "**unknown**", "incomparable": "not comparable", "added": "new", "removed": "**removed**",
}  # fmt: skip


def render_difference_markdown(difference: Difference, *, limit_bytes: int = COMMENT_BYTES) -> str:
    """The comparison, cut to a size: what is left out is counted, and nothing is cut in its middle."""
    kept: list[str] = []
    used, dropped = 0, 0
    room = limit_bytes - 200
    for block in _blocks(difference):
        size = len(block.encode()) + 1
        if used + size > room:
            dropped += 1
            continue
        kept.append(block)
        used += size
    if dropped:
        kept.append(f"\n{plural(dropped, 'part')} left out, since GitHub limits the size; `kvgate diff` prints all.")
    return "\n".join(kept) + "\n"


def safe(text: str) -> str:
    """Text of the tree in prose."""
    return _REFERENCE.sub(rf"\1{_JOINER}", markdown(text.replace(" -> ", ARROW)))


def _blocks(difference: Difference) -> Iterator[str]:
    """Pieces that stay whole, the most important first."""
    yield f"### {_SIGNS[difference.gate.verdict]} kvgate: {safe(headline(difference))}"
    for reason in difference.gate.reasons:
        yield f"- {safe(reason)}"
    yield ""
    yield from _table(difference)
    for unit in difference.units:
        if unit.is_changed:
            yield from _details(unit)
    said = [finding for finding in difference.gate.findings if finding.rule not in CLOSING]
    yield from _findings("To be seen by a reviewer", said)
    yield from _findings("New findings", difference.new)
    if difference.fixed:
        yield ""
        yield f"<details><summary>{plural(len(difference.fixed), 'finding')} fixed</summary>\n"
        yield from (_finding(finding) for finding in difference.fixed)
        yield "\n</details>"
    yield ""
    yield f"{safe(counts(difference))}. Base: {safe(str(difference.base))}; head: {safe(str(difference.head))}."
    yield f"Policy: {safe(policy_words(difference))}."
    for error in difference.report.errors:
        yield f"- internal error: the rule {markdown_code(error.rule)} crashed; please report it"


def _table(difference: Difference) -> Iterator[str]:
    changed = [unit for unit in difference.units if unit.is_changed]
    if not changed:
        return
    rows = [_row(unit) for unit in changed]
    head = "| unit | requests held | | pool | tokens | admitted | starts |\n|---|---:|---|---:|---:|---:|---|"
    yield "\n".join([head, rows[0]])
    yield from rows[1:]
    left = len(difference.units) - len(changed)
    if left:
        yield f"\n{plural(left, 'server')} unchanged."


def _row(unit: UnitDifference) -> str:
    cells = (
        markdown_code(unit.id),
        requests_cell(unit, ARROW),
        _VERDICTS[unit.verdict],
        pool_cell(unit, ARROW),
        tokens_cell(unit, ARROW),
        admitted_cell(unit, ARROW),
        starts_cell(unit, ARROW),
    )
    return f"| {' | '.join(cells)} |"


def _details(unit: UnitDifference) -> Iterator[str]:
    measured = f", measured with {safe(str(unit.yardstick))}" if unit.yardstick is not None else ""
    lines = [f"\n**{markdown_code(unit.id)}**{measured}"]
    words = match_words(unit)
    if words:
        lines.append(f"- {safe(words)}")
    if unit.reason and unit.verdict in ("lower", "incomparable"):
        lines.append(f"- {_VERDICTS[unit.verdict]}: {safe(unit.reason)}")
    mattering = [cause for cause in unit.causes if cause.matters]
    lines += [_cause(cause) for cause in mattering[:MAX_CAUSES]]
    rest = len(unit.causes) - len(mattering[:MAX_CAUSES])
    if rest:
        lines.append(f"- {plural(rest, 'further change')}, without effect or not shown")
    if unit.levers:
        lines.append("- levers: " + "; ".join(safe(lever) for lever in unit.levers))
    yield "\n".join(lines)


def _cause(cause: Cause) -> str:
    before, after = (markdown_code(value) if value is not None else "unset" for value in (cause.before, cause.after))
    place = f" ({markdown_code(f'{cause.span.path}:{cause.span.line}')})" if cause.span is not None else ""
    return f"- {markdown_code(cause.name)} {before}{ARROW}{after}: {safe(cause.words)}{place}"


def _findings(title: str, findings: Sequence[Finding]) -> Iterator[str]:
    if findings:
        yield f"\n**{title}**\n"
        yield from (_finding(finding) for finding in sorted(findings, key=lambda one: -one.severity.rank))


def _finding(finding: Finding) -> str:
    span = finding.primary
    words = f"- **{finding.severity.value}** {markdown_code(finding.rule)} "
    words += f"{markdown_code(f'{span.path}:{span.line}')}: {safe(finding.message)}"
    return words + (f"\n  {safe(finding.remediation)}" if finding.remediation else "")
