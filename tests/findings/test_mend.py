"""Which fixes are made: those after which a second check finds what was meant, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kvgate.findings.finding import Confidence, Edit, Finding, Fix, InternalError, Severity
from kvgate.findings.mend import mend
from kvgate.findings.report import Report
from kvgate.source.text import SourceFile, Span

TEXT = "one bad\ntwo bad\nthree\n"
FILE = SourceFile("f", TEXT)


def finding(word: str, *, rule: str = "r", safe: bool = True, replacement: str = "good") -> Finding:
    """``bad`` behind a word of the text, and a fix of it."""
    at = TEXT.index(word) + len(word) + 1
    span = Span(FILE, at, at + 3)
    fix = Fix(edits=(Edit(span, replacement),), safe=safe, title="mend")
    return Finding(rule, Severity.WARNING, Confidence.HIGH, f"{word} is bad", span, fix=fix)


def report(*findings: Finding, errors: tuple[InternalError, ...] = ()) -> Report:
    return Report(units=(), findings=findings, errors=errors)


ONE, TWO = finding("one"), finding("two")


def by_text(*, other: Callable[[str], tuple[Finding, ...]] = lambda text: ()) -> Callable[[Mapping[str, str]], Report]:
    """A check that finds what is still bad, and what else a text brings."""

    def check(texts: Mapping[str, str]) -> Report:
        text = texts.get("f", TEXT)
        left = [one for one, word in ((ONE, "one"), (TWO, "two")) if f"{word} bad" in text]
        return report(*left, *other(text))

    return check


def always(path: str) -> bool:
    return True


def test_all_at_once() -> None:
    found = mend(report(ONE, TWO), by_text(), always)
    assert found.after == {"f": "one good\ntwo good\nthree\n"}
    assert (found.fixed, found.refused) == ((ONE, TWO), ())
    assert found.before == {"f": TEXT}
    assert "-one bad\n-two bad\n+one good\n+two good\n" in found.diff


def test_one_that_brings_another_finding_is_refused_and_the_other_made() -> None:
    new = finding("one", rule="other")
    found = mend(report(ONE, TWO), by_text(other=lambda text: (new,) if "two good" in text else ()), always)
    assert found.after == {"f": "one good\ntwo bad\nthree\n"}
    assert (found.fixed, found.refused) == ((ONE,), (TWO,))


def test_a_fix_that_does_not_mend_is_refused() -> None:
    useless = finding("one", replacement="bad")
    found = mend(report(useless), by_text(), always)
    assert (found.after, found.fixed, found.refused) == ({}, (), (useless,))


def test_a_crash_that_a_fix_brings_refuses_it() -> None:
    crash = InternalError("r", None, None, "Traceback")
    found = mend(report(ONE), lambda texts: report(errors=(crash,)), always)
    assert (found.after, found.refused) == ({}, (ONE,))


def test_unsafe_fixes_and_files_that_may_not_change_are_left() -> None:
    asked: list[str] = []

    def never(path: str) -> bool:
        asked.append(path)
        return False

    unsafe = finding("two", safe=False)
    found = mend(report(ONE, unsafe), by_text(), never)
    assert (found.after, found.fixed, found.refused) == ({}, (), ())
    assert asked == ["f"]
