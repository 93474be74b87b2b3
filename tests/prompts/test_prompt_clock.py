from __future__ import annotations

import pytest

from kvgate.prompts.clock import moment_change, prefix_change, seconds_change, strftime_change
from kvgate.prompts.part import Change


@pytest.mark.parametrize(
    ("form", "change"),
    [
        ("%Y-%m-%d", Change.DAY),
        ("%A, %d %B %Y", Change.DAY),
        ("%-d.%-m.%y", Change.DAY),
        ("%x", Change.DAY),
        ("%H", Change.HOUR),
        ("%I %p", Change.HOUR),
        ("%Y-%m-%d %H:%M", Change.MINUTE),
        ("%R", Change.MINUTE),
        ("%H:%M:%S", Change.REQUEST),
        ("%X", Change.REQUEST),
        ("%c", Change.REQUEST),
        ("%s", Change.REQUEST),
        ("%f", Change.REQUEST),
        ("100 %%", Change.NEVER),
        ("no time", Change.NEVER),
    ],
)
def test_strftime(form: str, change: Change) -> None:
    assert strftime_change(form) is change


@pytest.mark.parametrize(
    ("form", "change"),
    [
        ("YYYY-MM-DD", Change.DAY),
        ("dddd, D MMMM", Change.DAY),
        ("YYYY-MM-DD HH", Change.HOUR),
        ("HH:mm", Change.MINUTE),
        ("YYYY-MM-DDTHH:mm:ss", Change.REQUEST),
        ("[seconds] YYYY", Change.DAY),
        ("X", Change.REQUEST),
    ],
)
def test_moment(form: str, change: Change) -> None:
    assert moment_change(form) is change


def test_rounded_seconds_and_cut_timestamps() -> None:
    assert [seconds_change(step) for step in (1, 59, 60, 3600, 86_400)] == [
        Change.REQUEST,
        Change.REQUEST,
        Change.MINUTE,
        Change.HOUR,
        Change.DAY,
    ]
    # 2026-11-29 is 10 characters, 2026-11-29T23 is 13, 2026-11-29T23:35 is 16
    assert [prefix_change(size) for size in (10, 13, 16, 19)] == [
        Change.DAY,
        Change.HOUR,
        Change.MINUTE,
        Change.REQUEST,
    ]
