"""Reading rule files: hygiene of the ones that kvgate brings, and what is said of a wrong one."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from pathlib import Path

import jsonschema
import pytest
import yaml

from kvgate.errors import KvgateError
from kvgate.exits import ExitCode
from kvgate.ruleset.checks import checks
from kvgate.ruleset.load import FAMILIES, builtin_folder, collect, load_rules, read_rule, rule_files
from kvgate.ruleset.model import Rule, RuleError
from kvgate.source.text import SourceFile

RULES = tuple(load_rules().rules.values())
SCHEMA = json.loads(files("kvgate.report").joinpath("schemas/kvgate.rule-1.json").read_text(encoding="utf-8"))

GOOD = """\
id: pool-too-small
title: The pool is small
family: capacity
severity: warning
confidence: high
status: stable
since: 0.1.0
when: prediction.size_tokens != null && prediction.size_tokens < 1000
at: arg:max_model_len
message: "the pool holds {prediction.size_tokens:tokens}"
remediation: Make it larger.
why: It is small.
"""


def read(text: str, path: str = ".kvgate/rules/pool-too-small.yaml") -> Rule:
    return read_rule(SourceFile(path, text))


def changed(field: str, text: str) -> str:
    """GOOD with one field (a line) replaced."""
    return re.sub(rf"(?m)^{field}:.*\n", text, GOOD)


# -- hygiene -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_a_rule_is_named_after_the_defect_and_says_all_that_a_reader_needs(rule: Rule) -> None:
    assert re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)+", rule.id)
    assert not re.match(r"(avoid|use|prefer|do-not|check|no)-", rule.id)
    assert not rule.id.endswith("-used")
    assert rule.title[0].isupper() or rule.title.startswith("max_")
    assert not rule.title.endswith(".")
    assert rule.family in FAMILIES
    assert not rule.message.text.endswith(".")
    assert rule.why.endswith(".")
    assert all(words.endswith(".") for words in rule.not_for)
    assert rule.not_for, "what must not make it fire"
    assert rule.bad, "a bad example"
    assert rule.good, "a good example"
    assert all(example.title for example in (*rule.bad, *rule.good))
    assert all(example.severity for example in rule.bad)
    assert {example.severity for example in rule.bad} & {rule.severity, *()}, "an example of its own severity"


@pytest.mark.parametrize("path", rule_files(builtin_folder()), ids=lambda path: path.stem)
def test_the_schema_for_editors_takes_every_rule_file(path: Path) -> None:
    jsonschema.Draft202012Validator(SCHEMA).validate(yaml.safe_load(path.read_text(encoding="utf-8")))


def test_every_check_is_used_by_a_rule_and_documented() -> None:
    used = {rule.check for rule in RULES if rule.check}
    assert set(checks()) == used
    assert all(one.text.endswith(".") for one in checks().values())


def test_rules_are_found_by_their_old_ids() -> None:
    rule = read(GOOD + "aliases: [small-pool]\n")
    rules = collect([rule])
    assert rules.find("small-pool") is rules.find("pool-too-small") is rule


# -- wrong ones ----------------------------------------------------------------------------------------------------


def test_the_good_one_is_good() -> None:
    rule = read(GOOD)
    assert rule.condition is not None
    assert rule.condition.names == ("prediction.size_tokens",)
    jsonschema.Draft202012Validator(SCHEMA).validate(yaml.safe_load(GOOD))


@pytest.mark.parametrize(
    ("text", "where", "words"),
    [
        (changed("severity", "severity: fatal\n"), "4:11", 'one of info, warning, error expected, got "fatal"'),
        (
            changed("severity", "severty: warning\n"),
            "4:1",
            'unknown field "severty" in a rule, did you mean "severity"?',
        ),
        (changed("severity", ""), "1:1", 'the field "severity" is missing'),
        (changed("severity", "severity:\n"), "4:1", 'the field "severity" is empty'),
        (changed("id", "id: Pool Too Small\n"), "1:5", "lower case words with dashes"),
        (changed("id", "id: another\n"), "1:5", 'the id "another" is not the file\'s name "pool-too-small"'),
        (changed("since", "since: 1\n"), "7:8", "a version such as 0.1.0"),
        (changed("when", ""), "1:1", 'either a condition, "when", or a typed check, "check"'),
        (changed("when", "when: prediction.size_tokens <\n"), "8:31", "Syntax error"),
        (changed("when", "when: prediction.size < 3\n"), "8:17", 'there is no fact "prediction.size"'),
        (changed("when", "when: image.pinned && unit.replicas == 'a'\n"), "8:37", "no matching overload"),
        (changed("when", "when: unit.replicas\n"), "8:7", "a condition is true or false, this is of type int"),
        (changed("when", "when: |\n  image.pinned &&\n    unit.gpu > 1\n"), "10:9", 'there is no fact "unit.gpu"'),
        (changed("when", "when: unit.gpus > 1\n"), "8:7", '"unit.gpus" can be unknown: ask "unit.gpus != null" first'),
        (changed("when", "check: nonsense\n"), "8:8", 'there is no check "nonsense"'),
        (changed("when", "check: unread-file\n"), "8:8", 'the check "unread-file" looks at a file, the rule at a unit'),
        (changed("when", "check: argument-problems\n"), "8:8", 'the parameter "kinds" is missing'),
        (changed("when", "check: argument-problems\nparams: {kinds: unknown-flag}\n"), "9:17", "a list expected"),
        (changed("when", "check: argument-problems\nparams: {kind: []}\n"), "9:10", 'unknown field "kind" in params'),
        (changed("at", "at: 'arg:'\n"), "9:5", "is no place"),
        (changed("at", "at: somewhere\n"), "9:5", '"somewhere" is no place'),
        (changed("message", 'message: "{prediction.size}"\n'), "10:12", 'nothing gives a value to "prediction.size"'),
        (changed("message", 'message: "{unit.id:gigs}"\n'), "10:11", 'unknown format "gigs"'),
        (changed("message", 'message: "a { b"\n'), "10:13", "a brace itself is doubled"),
        (changed("remediation", "remediation: make it larger\n"), "11:14", "ends with a period"),
        (GOOD + "references: [http://example.org]\n", "13:14", "an https address expected"),
        (GOOD + "vllm: newest\n", "13:7", 'vLLM releases such as ">=0.8,<0.12" expected'),
        (GOOD + "id: pool-too-small\n", "13:1", 'key "id" stands already in line 1'),
        (GOOD + "examples: {bad: [{files: {../x: a}}]}\n", "13:27", "a path inside the example expected"),
        (GOOD + "examples: {bad: [{title: x}]}\n", "13:18", 'an example has a "manifest", or "files"'),
        ("- a\n", "1:1", "a rule: a mapping expected"),
        ("a: [\n", "1:5", "did not find expected node content"),
        ("", "1:1", "one rule to a file, 0 found"),
        ("a: 1\n---\nb: 1\n", "1:1", "one rule to a file, 2 found"),
    ],
)
def test_a_wrong_rule_file_is_refused_at_its_place(text: str, where: str, words: str) -> None:
    with pytest.raises(RuleError) as caught:
        read(text)
    message = str(caught.value)
    assert message.startswith(f".kvgate/rules/pool-too-small.yaml:{where}: "), message
    assert words in message
    assert isinstance(caught.value, KvgateError)
    assert caught.value.exit_code is ExitCode.USAGE


def test_two_rules_of_one_id_are_refused() -> None:
    with pytest.raises(RuleError, match="stands already in"):
        collect([read(GOOD), read(GOOD)])
    with pytest.raises(RuleError, match="names another rule"):
        collect([read(GOOD + "aliases: [pool-too-small]\n")])


@pytest.mark.parametrize(
    ("data", "words"),
    [(b"\xff\xfe\x00", "no UTF-8 text"), (b"a" * 1_000_001, "are too many"), (b"id: \x07\n", "x.yaml:1:5: ")],
)
def test_a_file_that_is_no_text_is_refused(tmp_path: Path, data: bytes, words: str) -> None:
    folder = tmp_path / ".kvgate" / "rules"
    folder.mkdir(parents=True)
    (folder / "x.yaml").write_bytes(data)
    with pytest.raises(RuleError, match=re.escape(words)):
        load_rules(tmp_path)


def test_users_rules_join_the_built_in_ones(tmp_path: Path) -> None:
    folder = tmp_path / ".kvgate" / "rules"
    folder.mkdir(parents=True)
    (folder / "pool-too-small.yaml").write_text(GOOD)
    (folder / "README.md").write_text("no rule")
    rules = load_rules(tmp_path)
    assert not rules.rules["pool-too-small"].builtin
    assert rules.rules["pool-too-small"].source.path == ".kvgate/rules/pool-too-small.yaml"
    assert len(rules.rules) == len(RULES) + 1
