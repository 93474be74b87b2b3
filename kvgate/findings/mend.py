"""Which fixes of a report to make: those after which a second check finds what was meant, and nothing else changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kvgate.findings.edits import apply_edits, edits_by_path, unified_diff
from kvgate.findings.finding import Finding, Severity
from kvgate.findings.report import Report
from kvgate.records import record
from kvgate.source.text import SourceFile

Check = Callable[[Mapping[str, str]], Report]
"""Checks the tree again with other texts for some of its files."""


@record
class Mended:
    """What fixes make of a tree.

    Attributes:
        before, after: texts of the changed files, by path.
        report: of the mended tree.
        fixed: the findings that are mended.
        refused: findings whose fix would not have done what it says.
    """

    before: Mapping[str, str]
    after: Mapping[str, str]
    report: Report
    fixed: tuple[Finding, ...]
    refused: tuple[Finding, ...]

    @property
    def diff(self) -> str:
        """The changes as a unified diff."""
        return unified_diff(self.before, self.after)


def mend(report: Report, check: Check, may_change: Callable[[str], bool]) -> Mended:
    """Make the safe fixes of a report, in memory.

    All of them are tried at once; where the second check is not content, one after the other.

    Args:
        report: of the tree as it is.
        check: checks the tree with changed texts.
        may_change: whether a file may be written.
    """
    wanted = [
        finding
        for finding in report.findings
        if finding.fix is not None
        and finding.fix.safe
        and all(may_change(edit.span.path) for edit in finding.fix.edits)
    ]
    files = {edit.span.path: edit.span.file for finding in wanted if finding.fix for edit in finding.fix.edits}
    together = _try(report, wanted, files, check)
    if together is not None:
        after, final = together
        return Mended({path: files[path].text for path in after}, after, final, tuple(wanted), ())
    fixed: list[Finding] = []
    refused: list[Finding] = []
    after, final = {}, report
    for finding in wanted:
        attempt = _try(report, [*fixed, finding], files, check)
        if attempt is None:
            refused.append(finding)
        else:
            fixed.append(finding)
            after, final = attempt
    return Mended({path: files[path].text for path in after}, after, final, tuple(fixed), tuple(refused))


def _try(
    report: Report, chosen: Sequence[Finding], files: Mapping[str, SourceFile], check: Check
) -> tuple[dict[str, str], Report] | None:
    """The changed texts and their report, None where the fixes do not do just what they say."""
    edits = edits_by_path(finding.fix for finding in chosen if finding.fix is not None)
    after = {path: apply_edits(files[path].text, found) for path, found in edits.items()}
    if not after:
        return (after, report) if not chosen else None
    again = check(after)
    return (after, again) if _is_content(report, again, chosen) else None


def _is_content(before: Report, after: Report, chosen: Sequence[Finding]) -> bool:
    """Whether the chosen findings are gone, no other came, and each unit is what it was but for them."""
    if after.errors and not before.errors:
        return False
    left, right = _counted(before), _counted(after)
    for key, count in Counter((finding.rule, finding.unit) for finding in chosen).items():
        if right[key] > left[key] - count:
            return False
    if any(count > left[key] for key, count in right.items()):
        return False
    units = [unit.id for unit in before.units]
    if units != [unit.id for unit in after.units]:
        return False
    changes = Counter(finding.unit for finding in chosen)
    return all(
        # a flag that is renamed is one argument less and one more
        _differences(one.as_dict(), other.as_dict()) <= 2 * changes[one.id]
        for one, other in zip(before.units, after.units, strict=True)
    )


def _counted(report: Report) -> Counter[tuple[str, str | None]]:
    """How often each rule speaks of each unit, above info."""
    return Counter((one.rule, one.unit) for one in report.findings if one.severity is not Severity.INFO) + Counter(
        (one.rule, one.unit) for one in report.findings if one.fix is not None and one.severity is Severity.INFO
    )


def _differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> int:
    """Arguments and variables that differ; a change of anything else of a unit is too much."""
    for key in ("path", "kind", "container", "image", "model", "vllm_version", "gpu", "replicas"):
        if before[key] != after[key]:
            return 1_000_000
    count = 0
    for key in ("args", "env"):
        names = {*before[key], *after[key]}
        count += sum(before[key].get(name) != after[key].get(name) for name in names)
    return count
