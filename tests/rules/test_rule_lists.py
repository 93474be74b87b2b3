"""``kvgate rules``: every rule that can be found is listed and explained, those of the comparison too."""

from __future__ import annotations

import json

import pytest

from kvgate.app import explain_rule, list_rules
from kvgate.gate.rules import RULES as GATE_RULES
from kvgate.ruleset.load import load_rules


def test_the_rules_of_the_comparison_are_listed() -> None:
    listed = json.loads(list_rules("json"))["rules"]
    ids = [rule["id"] for rule in listed]
    assert len(ids) == len(set(ids))
    assert set(ids) == {*load_rules().rules, *GATE_RULES}
    drop = next(rule for rule in listed if rule["id"] == "capacity-drop")
    assert (drop["scope"], drop["severity"], drop["family"]) == ("difference", "error", "capacity")
    assert "A change that makes a server hold fewer requests than the base (kvgate diff)" in list_rules("text")
    assert "| `capacity-drop` | capacity | error |" in list_rules("markdown")


@pytest.mark.parametrize("rule", sorted(GATE_RULES))
def test_each_is_explained(rule: str) -> None:
    text = explain_rule(rule)
    assert text.startswith(f"{rule}: {GATE_RULES[rule].title}")
    assert GATE_RULES[rule].why.split()[0] in text
