"""The documentation that rules and facts carry: lists, one rule explained, the README's table."""

from __future__ import annotations

import dataclasses
import json
import textwrap
from collections.abc import Iterable, Iterator
from typing import Any, Final

from kvgate.findings.report import RuleSummary
from kvgate.ruleset.facts import Fact, facts
from kvgate.ruleset.load import RuleSet
from kvgate.ruleset.model import Example, Rule

WIDTH: Final = 100


def render_rules(rules: RuleSet, form: str = "text", beside: Iterable[RuleSummary] = ()) -> str:
    """All rules as ``text``, ``json`` or a ``markdown`` table.

    Args:
        beside: rules that no file says, such as those of ``kvgate diff``.

    Raises:
        ValueError: there is no such form.
    """
    known = (*(rule.summary() for rule in rules.rules.values()), *beside)
    ordered = sorted(known, key=lambda rule: (rule.family, rule.id))
    match form:
        case "text":
            return _text_list(ordered)
        case "json":
            listed = [rule_as_dict(rule) for rule in ordered]
            return json.dumps({"schema": "kvgate.rules/1", "rules": listed}, indent=2, ensure_ascii=False) + "\n"
        case "markdown":
            return _markdown_table(ordered)
    raise ValueError(f'there is no form "{form}"')


def rule_as_dict(rule: RuleSummary) -> dict[str, Any]:
    """A rule as JSON, without its examples."""
    return {
        "id": rule.id,
        "title": rule.title,
        "family": rule.family,
        "severity": rule.severity.value,
        "confidence": rule.confidence.value,
        "status": rule.status,
        "profile": rule.profile,
        "since": rule.since,
        "vllm": rule.vllm,
        "scope": rule.scope,
        "aliases": list(rule.aliases),
        "builtin": rule.builtin,
        "message": rule.message,
        "remediation": rule.remediation,
        "why": rule.why,
        "not_for": list(rule.not_for),
        "references": list(rule.references),
    }


def _notes(rule: RuleSummary) -> str:
    """What is unusual about when a rule runs."""
    notes = []
    if rule.status != "stable":
        notes.append(rule.status)
    if rule.profile == "all":
        notes.append("profile all")
    if rule.scope == "difference":
        notes.append("kvgate diff")
    if not rule.builtin:
        notes.append("your own")
    return ", ".join(notes)


def _text_list(rules: list[RuleSummary]) -> str:
    size = max((len(rule.id) for rule in rules), default=0)
    lines: list[str] = []
    family = None
    for rule in rules:
        if rule.family != family:
            family = rule.family
            lines += [""] * bool(lines) + [family]
        notes = _notes(rule)
        shown = f"  {rule.id:<{size}}  {rule.severity.value:<7}  {rule.title}"
        lines.append(shown + (f" ({notes})" if notes else ""))
    return "\n".join(lines) + "\n"


def _markdown_table(rules: list[RuleSummary]) -> str:
    lines = ["| rule | family | at most | what it finds |", "|---|---|---|---|"]
    for rule in rules:
        notes = _notes(rule)
        title = rule.title.replace("|", "\\|") + (f" ({notes})" if notes else "")
        lines.append(f"| `{rule.id}` | {rule.family} | {rule.severity.value} | {title} |")
    return "\n".join(lines) + "\n"


def render_explain(rule: Rule) -> str:
    """One rule: why, what does not fire, how to mend it, and its examples."""
    return "\n".join(_explained(rule)) + "\n"


def _explained(rule: Rule) -> Iterator[str]:
    yield f"{rule.id}: {rule.title}"
    yield ""
    notes = _notes(rule.summary())
    facets = [f"family {rule.family}", f"at most {rule.severity.value}", f"confidence {rule.confidence.value}"]
    yield ", ".join([*facets, f"since kvgate {rule.since}", *([notes] if notes else [])])
    if rule.vllm is not None:
        yield f"for vLLM {rule.vllm}"
    if rule.aliases:
        yield f"formerly {', '.join(rule.aliases)}"
    yield ""
    yield from _paragraph(rule.why)
    yield ""
    yield "What to do"
    yield from _paragraph(_plain(rule.remediation.text), "  ")
    if rule.severity.value == "error" and rule.scope == "unit":
        yield ""
        yield "How severe"
        yield from _paragraph(
            "An error only where it holds over the whole interval of the prediction; a warning where it holds at the "
            "estimate; an info where something that it rests on (release, GPU, model) is assumed or unknown. A claim "
            "that holds with every release does not rest on it.",
            "  ",
        )
    if rule.not_for:
        yield ""
        yield "What it does not speak of"
        for words in rule.not_for:
            yield from _paragraph(words, "  - ", "    ")
    if rule.condition is not None:
        yield ""
        yield "Condition (CEL; kvgate rules --facts lists the facts)"
        yield from (f"  {line}" for line in textwrap.wrap(rule.condition.text, WIDTH - 2, break_long_words=False))
    options = dataclasses.fields(rule.params) if rule.check is not None else ()
    if options:
        yield ""
        yield f"Options (kvgate.yaml, rules: {{{rule.id}: {{...}}}})"
        for option in options:
            yield f"  {option.name}: {_option(getattr(rule.params, option.name))}"
    if rule.fix is not None:
        yield ""
        yield "Fix"
        words = "made by kvgate check --fix" if rule.fix.safe else "suggested only"
        yield f"  {rule.fix.edit.replace('-', ' ')} ({words})"
    for heading, examples in (("Before", rule.bad), ("After, or harmless", rule.good)):
        for example in examples:
            yield ""
            yield f"{heading}: {example.title}" if example.title else heading
            yield from _files(example)
    if rule.references:
        yield ""
        yield "References"
        yield from (f"  {reference}" for reference in rule.references)
    yield ""
    yield f"Suppress it with `# kvgate: ignore[{rule.id}] reason` on its line or the line above."


def _option(value: Any) -> str:
    return json.dumps(value) if not isinstance(value, tuple) else json.dumps(list(value))


def _plain(text: str) -> str:
    """A template for a reader: a placeholder that carries a whole sentence is left out."""
    import re

    text = re.sub(r"(?<=[.!])\{[^{}]*\}", "", text)
    return re.sub(r"\{([^{}:]*)(?::[^{}]*)?\}", lambda match: f"<{match[1].replace('_', ' ')}>", text)


def _paragraph(text: str, first: str = "", rest: str | None = None) -> list[str]:
    return textwrap.wrap(
        " ".join(text.split()),
        WIDTH,
        initial_indent=first,
        subsequent_indent=first if rest is None else rest,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _files(example: Example) -> Iterator[str]:
    for path, text in example.files.items():
        yield f"  # {path}"
        yield from (f"  {line}".rstrip() for line in text.split("\n"))


def render_facts(form: str = "text") -> str:
    """The facts with their types, as ``text``, ``json`` or a ``markdown`` table.

    Raises:
        ValueError: there is no such form.
    """
    known = list(facts().values())
    match form:
        case "text":
            name = max(len(fact.name) for fact in known)
            kind = max(len(fact.shown_type) for fact in known)
            return "".join(f"{fact.name:<{name}}  {fact.shown_type:<{kind}}  {fact.text}\n" for fact in known)
        case "json":
            listed = [_fact_as_dict(fact) for fact in known]
            return json.dumps({"schema": "kvgate.facts/1", "facts": listed}, indent=2, ensure_ascii=False) + "\n"
        case "markdown":
            rows = [
                f"| `{fact.name}` | {fact.shown_type} | {fact.text.replace('|', chr(92) + '|')} |" for fact in known
            ]
            return "\n".join(["| fact | type | meaning |", "|---|---|---|", *rows]) + "\n"
    raise ValueError(f'there is no form "{form}"')


def _fact_as_dict(fact: Fact) -> dict[str, Any]:
    return {
        "name": fact.name,
        "type": fact.type,
        "optional": fact.optional,
        "text": fact.text,
        "rests_on": list(fact.inputs),
    }
