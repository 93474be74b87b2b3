"""Every example of every rule file, run through the whole pipeline: bad ones fire as they say, good ones are silent.

What all rules together say of all examples is kept in ``data/counts.json``, so that a change of findings is always on
purpose. ``python tests/rules/test_rule_examples.py`` writes it anew.
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from kvgate.app import CheckOptions, check_paths, prompt_paths
from kvgate.findings.finding import Finding, Severity
from kvgate.findings.report import Report
from kvgate.ruleset.load import load_rules
from kvgate.ruleset.model import Example

RULES = load_rules().rules
COUNTS = Path(__file__).parent / "data" / "counts.json"
EXAMPLES = {
    f"{rule.id}: {kind}: {example.title}": (rule.id, example)
    for rule in RULES.values()
    for kind, examples in (("bad", rule.bad), ("good", rule.good))
    for example in examples
}


@cache
def report_of(name: str) -> Report:
    """What all rules say of an example; where the rule looks at prompts, what ``kvgate prompts`` says."""
    rule, example = EXAMPLES[name]
    pipeline = prompt_paths if RULES[rule].scope == "prompt" else check_paths
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for path, text in example.files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text + "\n", encoding="utf-8")
        config = folder / "kvgate.yaml"
        if not config.exists():
            config.write_text("version: 1\n", encoding="utf-8")
        return pipeline([folder], CheckOptions(config=config, preview=True, profile="all"))


def found(name: str) -> tuple[Example, list[Finding]]:
    rule, example = EXAMPLES[name]
    report = report_of(name)
    assert not report.errors, report.errors[0].traceback
    return example, [finding for finding in report.findings if finding.rule == rule]


@pytest.mark.parametrize("name", [name for name in EXAMPLES if ": bad: " in name])
def test_a_bad_example_fires(name: str) -> None:
    example, findings = found(name)
    (finding,) = findings
    if example.severity is not None:
        assert finding.severity is example.severity, finding.message
    if example.at is not None:
        assert example.at in finding.primary.text
    if example.says is not None:
        assert example.says in finding.message
    assert not finding.message.endswith(".")
    assert finding.remediation.endswith(".")


@pytest.mark.parametrize("name", [name for name in EXAMPLES if ": good: " in name])
def test_a_good_example_is_silent(name: str) -> None:
    _, findings = found(name)
    assert [one.message for one in findings if one.severity is not Severity.INFO] == []
    assert [one.message for one in findings] == []


def counts() -> dict[str, dict[str, int]]:
    """Findings of each rule by severity over all examples, its own and the others'."""
    seen = Counter((finding.rule, finding.severity.value) for name in EXAMPLES for finding in report_of(name).findings)
    rules = sorted({rule for rule, _ in seen})
    order = ("error", "warning", "info")
    return {rule: {level: seen[rule, level] for level in order if seen[rule, level]} for rule in rules}


def test_what_all_rules_say_of_all_examples_changes_only_on_purpose() -> None:
    assert counts() == json.loads(COUNTS.read_text(encoding="utf-8"))


if __name__ == "__main__":
    COUNTS.parent.mkdir(exist_ok=True)
    COUNTS.write_text(json.dumps(counts(), indent=1) + "\n", encoding="utf-8")
