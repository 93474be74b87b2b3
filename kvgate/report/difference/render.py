"""One entry for every format of a comparison."""

from __future__ import annotations

import json

from kvgate.gate.difference import Difference
from kvgate.report.render import render_report


def render_difference(
    difference: Difference,
    form: str,
    *,
    color: bool = False,
    verbose: bool = False,
    quiet: bool = False,
    width: int | None = None,
) -> str:
    """The comparison in a format; the last four arguments count for text only.

    SARIF, GitLab, JUnit and annotations know one state only: they show the new findings and the comparison's own.

    Raises:
        ValueError: there is no such format.
    """
    if form == "text":
        from kvgate.report.difference.text import render_difference_text

        return render_difference_text(difference, color=color, verbose=verbose, quiet=quiet, columns=width)
    if form == "json":
        from kvgate.report.json_v1 import finite

        return json.dumps(finite(difference.as_dict()), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    if form == "markdown":
        from kvgate.report.difference.markdown import render_difference_markdown

        return render_difference_markdown(difference)
    return render_report(difference.report, form)
