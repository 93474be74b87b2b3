"""One entry for every format."""

from __future__ import annotations

from typing import Final, Literal

from kvgate.findings.report import Report

Format = Literal["text", "json", "sarif", "github", "gitlab", "junit", "markdown"]
FORMATS: Final[tuple[Format, ...]] = ("text", "json", "sarif", "github", "gitlab", "junit", "markdown")


def render_report(
    report: Report,
    form: str,
    *,
    color: bool = False,
    verbose: bool = False,
    quiet: bool = False,
    width: int | None = None,
) -> str:
    """The report in a format; the last four arguments count for text only.

    Raises:
        ValueError: there is no such format.
    """
    match form:
        case "text":
            from kvgate.report.text import render_text

            return render_text(report, color=color, verbose=verbose, quiet=quiet, width=width)
        case "json":
            from kvgate.report.json_v1 import render_json

            return render_json(report)
        case "sarif":
            from kvgate.report.sarif import render_sarif

            return render_sarif(report)
        case "github":
            from kvgate.report.github import render_github

            return render_github(report)
        case "gitlab":
            from kvgate.report.gitlab import render_gitlab

            return render_gitlab(report)
        case "junit":
            from kvgate.report.junit import render_junit

            return render_junit(report)
        case "markdown":
            from kvgate.report.markdown import render_markdown

            return render_markdown(report)
    raise ValueError(f'there is no format "{form}"')
