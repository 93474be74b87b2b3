"""Rules over units: what fires, how severe it is, where, and in which words.

A crash in one rule is an :class:`InternalError` with the place of the unit it was looking at; the other rules and
units go on.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, Final

from kvgate.config import RuleConfig
from kvgate.findings.finding import Finding, InternalError, Location, Severity
from kvgate.findings.identity import finalise
from kvgate.findings.report import RuleSummary
from kvgate.findings.suppress import SuppressionProblem, apply_suppressions
from kvgate.records import record
from kvgate.ruleset.case import Case
from kvgate.ruleset.certainty import Bound, Certainty, Input, certainty_of, severity_of
from kvgate.ruleset.checks import checks
from kvgate.ruleset.checks.hardware import refusal
from kvgate.ruleset.facts import UnitFacts, find_fact
from kvgate.ruleset.load import RuleSet, with_options
from kvgate.ruleset.locate import locate, unit_line
from kvgate.ruleset.model import Draft, Profile, Rule, RuleError, Scope, Status
from kvgate.ruleset.scene import Scene
from kvgate.source.text import SourceFile, Span
from kvgate.spelling import nearest

if TYPE_CHECKING:
    from kvgate.capacity.prediction import Prediction
    from kvgate.config import Config
    from kvgate.manifests.tree import Tree
    from kvgate.manifests.unit import Unread
    from kvgate.plan import ServingPlan
    from kvgate.prompts.defect import Defect


@record
class Selection:
    """Which rules run, and how severe they are at most.

    Attributes:
        select: ids or families; empty for all of the profile. A rule that is named by its id runs whatever the profile.
        ignore: ids or families.
        preview: rules in preview too.
        profile: ``recommended`` or ``all``.
        config: kvgate.yaml's ``rules``.
    """

    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    preview: bool = False
    profile: str = "recommended"
    config: Mapping[str, RuleConfig] = field(default_factory=dict)


@record
class Judgement:
    """What the rules said.

    Attributes:
        findings: in their stable order, without the suppressed ones.
        suppressed: how many findings inline comments took away.
        rules: the rules that ran, with their configured severity.
        hidden: the findings that inline comments took away.
    """

    findings: tuple[Finding, ...]
    errors: tuple[InternalError, ...]
    suppressed: int
    rules: Mapping[str, RuleSummary]
    hidden: tuple[Finding, ...] = ()


def select_rules(rules: RuleSet, selection: Selection) -> dict[str, tuple[Rule, Severity]]:
    """The rules that run, each with its configured severity.

    Raises:
        RuleError: a name in select, ignore or kvgate.yaml is no rule and no family, or asks for a preview rule
            without ``--preview``.
    """
    chosen = _names(rules, selection.select, "--select")
    ignored = _names(rules, selection.ignore, "--ignore")
    configured: dict[str, RuleConfig] = {}
    for name, config in selection.config.items():
        rule = rules.find(name)
        if rule is None and name in rules.unread:
            continue
        if rule is None:
            raise RuleError(f'there is no rule "{name}"{_hint(name, rules)}', config.span)
        configured[rule.id] = config
    for name in chosen[0]:
        if rules.rules[name].status is Status.PREVIEW and not selection.preview:
            raise RuleError(f'the rule "{name}" is in preview: add --preview')
    found: dict[str, tuple[Rule, Severity]] = {}
    for rule in rules.rules.values():
        named = rule.id in chosen[0]
        if selection.select and not named and rule.family not in chosen[1]:
            continue
        if rule.id in ignored[0] or rule.family in ignored[1]:
            continue
        config_of_rule = configured.get(rule.id)
        if config_of_rule is not None and config_of_rule.off:
            continue
        if rule.status is Status.PREVIEW and not selection.preview:
            continue
        if rule.status is Status.DEPRECATED and not named:
            continue
        asked = named or (config_of_rule is not None and config_of_rule.severity is not None)
        if rule.profile is Profile.ALL and selection.profile != "all" and not asked:
            continue
        severity = rule.severity
        if config_of_rule is not None and config_of_rule.severity is not None:
            severity = Severity(config_of_rule.severity)
        if config_of_rule is not None and config_of_rule.params:
            rule = with_options(rule, config_of_rule.params, config_of_rule.span)  # noqa: PLW2901
        found[rule.id] = rule, severity
    return found


def _names(rules: RuleSet, names: Iterable[str], option: str) -> tuple[set[str], set[str]]:
    """Rule ids and families among names."""
    ids: set[str] = set()
    families: set[str] = set()
    for name in names:
        rule = rules.find(name)
        if rule is not None:
            ids.add(rule.id)
        elif name in rules.families:
            families.add(name)
        elif name in rules.unread:
            if option == "--select":
                raise RuleError(f'the rule "{name}" is in preview: add --preview')
        else:
            raise RuleError(f'{option}: there is no rule or family "{name}"{_hint(name, rules)}')
    return ids, families


def _hint(name: str, rules: RuleSet) -> str:
    close = nearest(name, [*rules.rules, *rules.unread, *rules.families])
    return f', did you mean "{close}"?' if close else "; `kvgate rules` lists them"


def judge(
    rules: RuleSet,
    selection: Selection,
    units: Sequence[tuple[ServingPlan, Prediction | None]],
    unread: Sequence[Unread] = (),
    files: Iterable[SourceFile] = (),
    *,
    tree: Tree | None = None,
    config: Config | None = None,
    prompts: Sequence[Defect] = (),
    beside: Callable[[], Iterable[SourceFile]] | None = None,
    only: Collection[Scope] | None = None,
) -> Judgement:
    """Run the selected rules.

    Args:
        units: each plan with ``plan.predict()``.
        unread: places that could not be read.
        files: every file that was read, for the suppressions in them and the objects around the units.
        tree: the same files as a tree, where there is one; checks look beside the files through it.
        config: kvgate.yaml, for checks that compare with what it declares.
        prompts: what is wrong with prompts.
        beside: reads what stands beside the manifests (:data:`kvgate.ruleset.scene.BESIDE_SUFFIXES`).
        only: what rules may look at; None for everything.

    Raises:
        RuleError: the selection names a rule that there is not.
    """
    selected = select_rules(rules, selection)
    if only is not None:
        selected = {name: (rule, severity) for name, (rule, severity) in selected.items() if rule.scope in only}
    findings: list[Finding] = []
    errors: list[InternalError] = []
    files = tuple(files)
    scene = Scene(files, tree, config, beside)
    cases = [Case(plan, prediction, scene) for plan, prediction in units]
    scene.cases = tuple(cases)
    for rule, severity in selected.values():
        if rule.scope == "unit":
            for case in cases:
                _guarded(rule, case.unit.id, unit_line(case), errors, findings, _unit_findings(rule, severity, case))
        elif rule.scope == "tree":
            _guarded(rule, None, scene.first_line(), errors, findings, _tree_findings(rule, severity, scene))
        elif rule.scope == "file":
            for place in unread:
                _guarded(rule, None, place.span, errors, findings, _other_findings(rule, severity, place))
        elif rule.scope == "prompt":
            for defect in prompts:
                _guarded(rule, None, defect.span, errors, findings, _other_findings(rule, severity, defect))
    ran = set(selected)
    suppressed = apply_suppressions(
        findings, scene.looked_at, known={*rules.rules, *rules.unread}, ran=ran, aliases=rules.aliases
    )
    late: list[Finding] = []
    for rule, severity in selected.values():
        if rule.scope == "suppression":
            for problem in suppressed.problems:
                _guarded(rule, None, problem.span, errors, late, _other_findings(rule, severity, problem))
    return Judgement(
        findings=finalise([*suppressed.findings, *late]),
        errors=tuple(errors),
        suppressed=suppressed.count,
        rules={rule.id: rule.summary(severity) for rule, severity in selected.values()},
        hidden=finalise(suppressed.hidden),
    )


def _guarded(
    rule: Rule,
    unit: str | None,
    where: Span | None,
    errors: list[InternalError],
    findings: list[Finding],
    found: Iterator[Finding],
) -> None:
    try:
        findings += list(found)
    except Exception:
        from traceback import format_exc

        errors.append(InternalError(rule.id, unit, where, format_exc()))


def _unit_findings(rule: Rule, severity: Severity, case: Case) -> Iterator[Finding]:
    if not _speaks_of_release(rule, case):
        return
    for draft in _drafts(rule, case):
        certainty = _certainty(draft, case)
        if certainty is Certainty.POSSIBLE and _holds_for_every_release(rule, draft, case):
            certainty = Certainty.LIKELY
        if certainty is not None:
            yield _finding(rule, severity, draft, certainty, case)


def _drafts(rule: Rule, case: Case) -> Iterable[Draft]:
    if rule.condition is not None:
        return _condition_drafts(rule, case)
    assert rule.check is not None
    found: Iterable[Draft] = checks()[rule.check].run(case, rule.params)
    return found


#: Releases that stand for all that people run: where a claim holds with each, it does not rest on the release.
EVERY_RELEASE: Final = ("0.6.6", "0.8.5", "0.10.2", "0.13.0", "0.17.1", "0.21.0", "0.27.1")


def _holds_for_every_release(rule: Rule, draft: Draft, case: Case) -> bool:
    """Whether a claim that is in doubt for the release alone holds with any release that starts the model at all."""
    if case.doubtful.intersection(draft.rests_on) != {"vllm_version"}:
        return False
    asked = 0
    for version in EVERY_RELEASE:
        other = case.at_release(version)
        if refusal(other) is not None or any(problem.refused for problem in other.plan.parsed.problems):
            continue  # a release that does not know the model, or its arguments, is not the one that runs
        asked += 1
        if not _speaks_of_release(rule, other) or not any(
            (found.variant, found.at) == (draft.variant, draft.at)
            and _certainty(found, other) in (Certainty.LIKELY, Certainty.CERTAIN)
            for found in _drafts(rule, other)
        ):
            return False
    return asked > 0


def _certainty(draft: Draft, case: Case) -> Certainty | None:
    if draft.holds is None and not draft.rests_on:
        return Certainty.CERTAIN
    return certainty_of(draft.holds or _always, draft.rests_on, case.doubtful)


def _tree_findings(rule: Rule, severity: Severity, scene: Scene) -> Iterator[Finding]:
    assert rule.check is not None
    for draft in checks()[rule.check].run(scene, rule.params):
        case = draft.case
        if case is not None:
            if not _speaks_of_release(rule, case):
                continue
            certainty = _certainty(draft, case)
            if certainty is not None:
                yield _finding(rule, severity, draft, certainty, case)
            continue
        assert isinstance(draft.at, Span), "a finding about no unit has a place of its own"
        related = tuple(Location(where, words) for where, words in draft.related if isinstance(where, Span))
        yield _worded(rule, severity, draft, draft.values, draft.at, None, related, ())


def _always(bound: Bound) -> bool:
    return True


def _speaks_of_release(rule: Rule, case: Case) -> bool:
    from packaging.version import InvalidVersion, Version

    if rule.vllm is None:
        return True
    try:
        return rule.vllm.contains(Version(Version(case.plan.version).public))
    except InvalidVersion:
        return True  # nightly and the like: judged as the newest release


def _condition_drafts(rule: Rule, case: Case) -> Iterator[Draft]:
    condition = rule.condition
    assert condition is not None
    # a flag whose value the files do not determine says nothing
    if any(name.startswith("args.") and case.is_unresolved(name[5:]) for name in condition.names):
        return
    inputs: dict[Input, None] = {}
    for name in condition.names:
        fact = find_fact(name)
        inputs.update(dict.fromkeys(fact.inputs if fact is not None else ()))
    # that a flag is set is certain whatever the other words hide
    if all(case.argument(name[5:]) is not None for name in condition.names if name.startswith("args.")):
        inputs.pop("words", None)
    yield Draft(holds=lambda bound: condition.holds(UnitFacts(case, bound)), rests_on=tuple(inputs))


def _finding(rule: Rule, severity: Severity, draft: Draft, certainty: Certainty, case: Case) -> Finding:
    values: Mapping[str, Any] = ChainMap(dict(draft.values), UnitFacts(case))  # type: ignore[arg-type]
    place = draft.at if draft.at is not None else rule.at
    primary = place if isinstance(place, Span) else locate(case, place)
    related = tuple(
        Location(where if isinstance(where, Span) else locate(case, where), words) for where, words in draft.related
    )
    fix = draft.fix
    choice = rule.fix if draft.variant is None else rule.variants[draft.variant].fix
    if fix is None and choice is not None:
        from kvgate.ruleset.fixes import make_fix

        fix = make_fix(choice, case, draft, primary, values)
    found = _worded(
        rule, severity_of(severity, certainty), draft, values, primary, case.unit.id, related, (unit_line(case),)
    )
    return replace(found, fix=fix) if fix is not None else found


def _other_findings(rule: Rule, severity: Severity, subject: Unread | SuppressionProblem | Defect) -> Iterator[Finding]:
    assert rule.check is not None
    for draft in checks()[rule.check].run(subject, rule.params):
        primary = draft.at if isinstance(draft.at, Span) else subject.span
        related = tuple(Location(where, words) for where, words in draft.related if isinstance(where, Span))
        yield _worded(rule, severity, draft, draft.values, primary, None, related, ())


def _worded(
    rule: Rule,
    severity: Severity,
    draft: Draft,
    values: Mapping[str, Any],
    primary: Span,
    unit: str | None,
    related: tuple[Location, ...],
    hidden: tuple[Span, ...],
) -> Finding:
    variant = rule.variants[draft.variant] if draft.variant is not None else None
    message = variant.message if variant is not None else rule.message
    remediation = variant.remediation if variant is not None and variant.remediation is not None else rule.remediation
    if variant is not None and variant.severity is not None and severity.rank <= rule.severity.rank:
        severity = severity.capped(variant.severity)  # unless kvgate.yaml raised the rule
    if draft.ceiling is not None:
        severity = severity.capped(draft.ceiling)
    return Finding(
        rule=rule.id,
        severity=severity,
        confidence=rule.confidence,
        message=" ".join(message.fill(values).split()),
        primary=primary,
        related=related,
        unit=unit,
        fix=draft.fix,
        remediation=" ".join(remediation.fill(values).split()),
        url=rule.url,
        hidden=hidden,
    )
