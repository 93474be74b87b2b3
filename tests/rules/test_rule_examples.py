"""Every example of every rule file, run through the whole pipeline: bad ones fire as they say, good ones are silent."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvgate.app import CheckOptions, check_paths, prompt_paths
from kvgate.findings.finding import Finding, Severity
from kvgate.ruleset.load import load_rules
from kvgate.ruleset.model import Example

RULES = load_rules().rules.values()
SCOPES = {rule.id: rule.scope for rule in RULES}


def found(example: Example, folder: Path, rule: str) -> list[Finding]:
    for name, text in example.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n", encoding="utf-8")
    config = folder / "kvgate.yaml"
    if not config.exists():
        config.write_text("version: 1\n", encoding="utf-8")
    pipeline = prompt_paths if SCOPES[rule] == "prompt" else check_paths
    report = pipeline([folder], CheckOptions(config=config, preview=True, profile="all"))
    assert not report.errors, report.errors[0].traceback
    return [finding for finding in report.findings if finding.rule == rule]


@pytest.mark.parametrize(
    ("rule", "example"),
    [pytest.param(rule.id, example, id=f"{rule.id}-{example.title}") for rule in RULES for example in rule.bad],
)
def test_a_bad_example_fires(rule: str, example: Example, tmp_path: Path) -> None:
    (finding,) = found(example, tmp_path, rule)
    if example.severity is not None:
        assert finding.severity is example.severity, finding.message
    if example.at is not None:
        assert example.at in finding.primary.text
    if example.says is not None:
        assert example.says in finding.message
    assert not finding.message.endswith(".")
    assert finding.remediation.endswith(".")


@pytest.mark.parametrize(
    ("rule", "example"),
    [pytest.param(rule.id, example, id=f"{rule.id}-{example.title}") for rule in RULES for example in rule.good],
)
def test_a_good_example_is_silent(rule: str, example: Example, tmp_path: Path) -> None:
    above_info = [one for one in found(example, tmp_path, rule) if one.severity is not Severity.INFO]
    assert [one.message for one in above_info] == []
    assert [one.message for one in found(example, tmp_path, rule)] == []
