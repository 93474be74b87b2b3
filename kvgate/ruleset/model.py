"""A rule, as its file says it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal

from kvgate.errors import KvgateError
from kvgate.findings.finding import Confidence, Fix, Severity
from kvgate.findings.report import RuleSummary
from kvgate.records import record
from kvgate.ruleset.certainty import Bound, Input
from kvgate.ruleset.words import Template
from kvgate.source.text import Span

if TYPE_CHECKING:
    from packaging.specifiers import SpecifierSet

    from kvgate.ruleset.case import Case
    from kvgate.ruleset.cel import Condition
    from kvgate.ruleset.fixes import FixChoice


class RuleError(KvgateError):
    """A rule file, or a name of a rule, is wrong; ``str()`` is one line with file, line and column."""


class Status(Enum):
    """Where a rule is in its life: ``preview`` rules run only with ``--preview``, ``deprecated`` ones never alone."""

    PREVIEW = "preview"
    STABLE = "stable"
    DEPRECATED = "deprecated"


class Profile(Enum):
    """``recommended`` rules are certain and specific to vLLM; the others run with ``--profile all``."""

    RECOMMENDED = "recommended"
    ALL = "all"


#: What a rule looks at: a serve unit, the tree as a whole (objects that belong to several units or none), a place that
#: could not be read, or a suppression comment.
Scope = Literal["unit", "tree", "file", "prompt", "suppression"]


@record
class Variant:
    """Another form of the same defect, with its own words and perhaps its own severity and way of mending."""

    message: Template
    severity: Severity | None = None
    remediation: Template | None = None
    fix: FixChoice | None = None


@record
class Example:
    """Files that show a rule firing (bad) or staying silent (good); the test suite runs them.

    Attributes:
        title: what it shows.
        files: path -> text; a kvgate.yaml among them is used.
        severity: for a bad one, the severity the finding must have; None for any.
        at: for a bad one, a text that the primary place must hold; None for any.
        says: for a bad one, a text that the message must hold; None for any.
    """

    title: str
    files: Mapping[str, str]
    severity: Severity | None = None
    at: str | None = None
    says: str | None = None


@record
class Draft:
    """What a typed check found, before it becomes a finding.

    Attributes:
        at: symbolic place (:mod:`kvgate.ruleset.locate`) or a span; None for the rule's own ``at``.
        values: what the message's placeholders stand for.
        variant: which of the rule's variants it is; None for the rule's own message.
        holds: whether the claim holds at a bound of the intervals; None when it does not depend on any.
        rests_on: the inputs that the claim uses.
        ceiling: a milder severity than the rule's, where the check knows that it is no more than that.
        related: further places, each with what it has to do with the finding.
        fix: how to mend it by editing.
        case: for a check over the whole tree, the unit that the finding is about; None for one about no unit.
    """

    at: str | Span | None = None
    values: Mapping[str, Any] = field(default_factory=dict)
    variant: str | None = None
    holds: Callable[[Bound], bool] | None = None
    rests_on: tuple[Input, ...] = ()
    ceiling: Severity | None = None
    related: tuple[tuple[str | Span, str | None], ...] = ()
    fix: Fix | None = None
    case: Case | None = None


@record
class Rule:
    """One rule.

    Attributes:
        id: kebab-case, named after the defect; the file's name.
        severity: the ceiling; what a finding gets follows its certainty.
        since: the kvgate version that brought it.
        vllm: the vLLM releases it speaks about, None for all.
        condition: the CEL condition, or None where a typed check is named.
        check, params: the typed check and its parameters.
        at: symbolic place of the finding.
        fix: how its own form (not its variants) is mended by editing.
        aliases: ids it had before.
        source: where the rule file begins.
        builtin: it came with kvgate.
    """

    id: str
    title: str
    family: str
    severity: Severity
    confidence: Confidence
    status: Status
    since: str
    vllm: SpecifierSet | None
    scope: Scope
    profile: Profile
    condition: Condition | None
    check: str | None
    params: Any
    at: str
    message: Template
    variants: Mapping[str, Variant]
    remediation: Template
    why: str
    not_for: tuple[str, ...]
    references: tuple[str, ...]
    bad: tuple[Example, ...]
    good: tuple[Example, ...]
    aliases: tuple[str, ...]
    source: Span
    builtin: bool
    fix: FixChoice | None = None

    @property
    def url(self) -> str | None:
        """Where to read more: the first reference."""
        return self.references[0] if self.references else None

    def summary(self, severity: Severity | None = None) -> RuleSummary:
        """What reports, ``kvgate rules`` and ``kvgate explain`` print; ``severity`` where one is configured."""

        def shown(examples: tuple[Example, ...]) -> tuple[tuple[str, str], ...]:
            return tuple(
                (example.title, "\n".join(f"# {path}\n{text}" for path, text in example.files.items()))
                for example in examples
            )

        return RuleSummary(
            id=self.id,
            title=self.title,
            family=self.family,
            severity=severity or self.severity,
            confidence=self.confidence,
            why=self.why,
            remediation=self.remediation.text,
            url=self.url,
            references=self.references,
            status=self.status.value,
            since=self.since,
            profile=self.profile.value,
            vllm=str(self.vllm) if self.vllm is not None else None,
            scope=self.scope,
            message=self.message.text,
            condition=self.condition.text if self.condition is not None else None,
            check=self.check,
            not_for=self.not_for,
            bad=shown(self.bad),
            good=shown(self.good),
            aliases=self.aliases,
            builtin=self.builtin,
        )
