"""Finds the rule files, reads them, and refuses what is wrong with file, line and column.

Built-in rules stand in ``kvgate/_rules`` (a wheel) or ``rules`` beside the package (an editable install or a
checkout); users' own in ``.kvgate/rules`` of their tree. The JSON Schema for editors is
``kvgate/report/schemas/kvgate.rule-1.json``; a test holds it and this reader together.
"""

from __future__ import annotations

import dataclasses
import re
import types
import typing
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, TypeVar

from kvgate.findings.finding import Confidence, Severity
from kvgate.patterns import regex
from kvgate.records import record
from kvgate.ruleset.cel import CelError, Condition
from kvgate.ruleset.checks import NoParams, checks
from kvgate.ruleset.facts import environment, facts, find_variable
from kvgate.ruleset.fixes import EDITS, FixChoice
from kvgate.ruleset.locate import PlaceError, read_place
from kvgate.ruleset.model import Example, Profile, Rule, RuleError, Scope, Status, Variant
from kvgate.ruleset.words import Template, TemplateError, read_template
from kvgate.source.text import SourceFile, Span
from kvgate.source.yaml_tree import Mapping as YamlMapping
from kvgate.source.yaml_tree import Node, Scalar, Sequence, is_null, parse_yaml, scalar_bool, scalar_int
from kvgate.spelling import nearest

FAMILIES: Final = ("capacity", "prefix", "memory", "validity", "version", "runtime", "autoscale", "security", "kvgate")
USER_RULES: Final = ".kvgate/rules"
MAX_RULE_BYTES: Final = 1_000_000

_KEBAB: Final = regex(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*")
_VERSION: Final = regex(r"\d+\.\d+\.\d+")
_LAST_PLACEHOLDER: Final = regex(r"\{[^{}]*\}$")  # brings its own sentence
_EXAMPLES: Final = regex(r"^examples:[ \t]*\n(?=(?:[ \t].*\n|\n)*\Z)", re.MULTILINE)  # where they come last
_STATUS: Final = regex(rb"(?m)^status: (?:stable|deprecated)\b")
_SCOPES: Final[tuple[Scope, ...]] = ("unit", "tree", "file", "prompt", "suppression")
_FIELDS: Final = (
    "id", "title", "family", "severity", "confidence", "status", "since", "vllm", "scope", "profile", "when", "check",
    "params", "at", "message", "variants", "remediation", "why", "not_for", "references", "fix", "examples", "aliases",
)  # fmt: skip
_REQUIRED: Final = ("id", "title", "family", "severity", "confidence", "since", "message", "remediation", "why")

E = TypeVar("E", Severity, Confidence, Status, Profile)


@record
class RuleSet:
    """All rules by id, and the old ids that still work; ``unread`` are ids of preview rules that were not needed."""

    rules: Mapping[str, Rule]
    aliases: Mapping[str, str]
    unread: frozenset[str] = frozenset()

    def find(self, name: str) -> Rule | None:
        """A rule by its id or an id it had before."""
        return self.rules.get(self.aliases.get(name, name))

    @property
    def families(self) -> tuple[str, ...]:
        return tuple(sorted({*FAMILIES, *(rule.family for rule in self.rules.values())}))


def builtin_folder() -> Path:
    """The folder of the rules that come with kvgate.

    Raises:
        RuleError: it is missing: the installation is broken.
    """
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "_rules", package.parent / "rules"):
        if folder.is_dir():
            return folder
    raise RuleError("kvgate's own rules are missing from the installation; install it again")


def load_rules(root: Path | None = None, *, thorough: bool = True, preview: bool = True) -> RuleSet:
    """The built-in rules and, with a root, the users' own of its ``.kvgate/rules``.

    Without ``thorough`` the built-in rules are taken as the test suite left them: their names and types are not
    checked again and their examples not read. Without ``preview`` too, those in preview are not read at all. The users'
    own are always read and checked.

    Raises:
        RuleError: a file cannot be read or is wrong, or an id stands twice.
    """
    builtin, unread = _builtin_rules(thorough, preview or thorough)
    rules = list(builtin)
    if root is not None:
        folder = root / USER_RULES
        rules += [read_rule_file(path, path.relative_to(root).as_posix()) for path in rule_files(folder)]
    return dataclasses.replace(collect(rules), unread=unread)


@lru_cache(maxsize=4)
def _builtin_rules(thorough: bool, preview: bool) -> tuple[tuple[Rule, ...], frozenset[str]]:
    rules: list[Rule] = []
    unread: set[str] = set()
    for path in rule_files(builtin_folder()):
        data = path.read_bytes()
        if not preview and not _STATUS.search(data):
            unread.add(path.stem)
        else:
            rules.append(_read_rule(data, f"rules/{path.name}", builtin=True, thorough=thorough))
    return tuple(rules), frozenset(unread)


def rule_files(folder: Path) -> list[Path]:
    """The rule files of a folder, by name."""
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if path.suffix in (".yaml", ".yml") and path.is_file())


def read_rule_file(path: Path, shown: str) -> Rule:
    """Read and check a user's rule file.

    Raises:
        RuleError: it cannot be read or is wrong.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise RuleError(f"{shown}: {error.strerror or error}") from None
    return _read_rule(data, shown, builtin=False)


def _read_rule(data: bytes, shown: str, *, builtin: bool, thorough: bool = True) -> Rule:
    if len(data) > MAX_RULE_BYTES:
        raise RuleError(f"{shown}: {len(data):,} bytes are too many for a rule file")
    try:
        file = SourceFile.from_bytes(shown, data)
    except UnicodeDecodeError as error:
        raise RuleError(f"{shown}: no UTF-8 text ({error.reason} at byte {error.start})") from None
    return read_rule(file, builtin=builtin, thorough=thorough)


def collect(rules: Iterable[Rule]) -> RuleSet:
    """Rules by id.

    Raises:
        RuleError: an id, or an old id, stands twice.
    """
    found: dict[str, Rule] = {}
    aliases: dict[str, str] = {}
    for rule in rules:
        if rule.id in found:
            raise RuleError(f'the rule id "{rule.id}" stands already in {found[rule.id].source.path}', rule.source)
        found[rule.id] = rule
    for rule in found.values():
        for alias in rule.aliases:
            if alias in found or alias in aliases:
                raise RuleError(f'the alias "{alias}" names another rule', rule.source)
            aliases[alias] = rule.id
    return RuleSet(dict(sorted(found.items())), aliases)


def read_rule(file: SourceFile, *, builtin: bool = False, thorough: bool = True) -> Rule:
    """Read the text of one rule file; without ``thorough`` its names and types are not checked, its examples not read.

    Raises:
        RuleError: it is wrong.
    """
    if not thorough:
        examples = _EXAMPLES.search(file.text)
        if examples is not None:
            file = SourceFile(file.path, file.text[: examples.start()])
    stream = parse_yaml(file)
    if stream.problems:
        problem = stream.problems[0]
        raise RuleError(problem.message, problem.span)
    if len(stream.documents) != 1:
        raise RuleError(f"one rule to a file, {len(stream.documents)} found", file.line_span(1))
    return _Reader(file, builtin, thorough).rule(stream.documents[0])


def with_options(rule: Rule, options: Mapping[str, Node], span: Span) -> Rule:
    """A rule with some of its check's parameters set by kvgate.yaml.

    Raises:
        RuleError: it has no such option, or the value is of another type.
    """
    if not options:
        return rule
    known = {field.name for field in dataclasses.fields(rule.params)} if rule.check is not None else set()
    hints = typing.get_type_hints(type(rule.params)) if known else {}
    reader = _Reader(span.file, builtin=False, thorough=True)
    values: dict[str, Any] = {}
    for name, node in options.items():
        if name not in known:
            listed = f"; known: severity, {', '.join(sorted(known))}" if known else "; it takes a severity only"
            raise RuleError(f'the rule "{rule.id}" has no option "{name}"{_near(name, known) or listed}', node.span)
        values[name] = reader.typed(node, hints[name], name)
    return dataclasses.replace(rule, params=dataclasses.replace(rule.params, **values))


class _Reader:
    def __init__(self, file: SourceFile, builtin: bool, thorough: bool) -> None:
        self.file = file
        self.builtin = builtin
        self.thorough = thorough

    def rule(self, node: Node) -> Rule:
        fields = self.fields(node, "a rule", _FIELDS)
        missing = next((name for name in _REQUIRED if name not in fields), None)
        if missing:
            raise RuleError(f'the field "{missing}" is missing', self.file.line_span(node.span.line))
        identity = self.kebab(fields["id"])
        stem = self.file.path.rpartition("/")[2].rpartition(".")[0]
        if identity != stem:
            raise RuleError(f'the id "{identity}" is not the file\'s name "{stem}"', fields["id"].span)
        scope: Scope = self.choice(fields["scope"], _SCOPES) if "scope" in fields else "unit"
        condition, check, params = self.judge(fields, scope, node)
        names = self.placeholders(check, scope)
        why = self.string(fields["why"])
        examples = self.fields(fields["examples"], "examples", ("bad", "good")) if "examples" in fields else {}
        return Rule(
            id=identity,
            title=self.string(fields["title"]),
            family=self.family(fields["family"]),
            severity=self.enum(fields["severity"], Severity),
            confidence=self.enum(fields["confidence"], Confidence),
            status=self.enum(fields["status"], Status) if "status" in fields else Status.PREVIEW,
            since=self.version(fields["since"]),
            vllm=self.specifier(fields["vllm"]) if "vllm" in fields else None,
            scope=scope,
            profile=self.enum(fields["profile"], Profile) if "profile" in fields else Profile.RECOMMENDED,
            condition=condition,
            check=check,
            params=params,
            at=self.place(fields["at"]) if "at" in fields else "unit",
            message=self.template(fields["message"], names),
            variants=self.variants(fields["variants"], names, scope) if "variants" in fields else {},
            remediation=self.sentence(fields["remediation"], names),
            why=why,
            not_for=self.strings(fields["not_for"]) if "not_for" in fields else (),
            references=tuple(self.url(item) for item in self.items(fields["references"]))
            if "references" in fields
            else (),
            bad=tuple(self.example(item) for item in self.items(examples["bad"])) if "bad" in examples else (),
            good=tuple(self.example(item) for item in self.items(examples["good"])) if "good" in examples else (),
            aliases=tuple(self.kebab(item) for item in self.items(fields["aliases"])) if "aliases" in fields else (),
            source=node.span,
            builtin=self.builtin,
            fix=self.fix(fields["fix"], names, scope) if "fix" in fields else None,
        )

    # -- condition or check ----------------------------------------------------------------------------------------

    def judge(self, fields: Mapping[str, Node], scope: Scope, node: Node) -> tuple[Condition | None, str | None, Any]:
        if ("when" in fields) == ("check" in fields):
            span = fields["check"].span if "check" in fields else self.file.line_span(node.span.line)
            raise RuleError('a rule has either a condition, "when", or a typed check, "check"', span)
        if "when" in fields:
            if "params" in fields:
                raise RuleError('"params" belongs to a typed check', fields["params"].span)
            if scope != "unit":
                raise RuleError(f"a condition looks at a unit, not at a {scope}", fields["when"].span)
            return self.condition(fields["when"]), None, None
        name = self.string(fields["check"])
        found = checks().get(name)
        if found is None:
            raise RuleError(f'there is no check "{name}"{_near(name, checks())}', fields["check"].span)
        if found.scope != scope:
            raise RuleError(f'the check "{name}" looks at a {found.scope}, the rule at a {scope}', fields["check"].span)
        return None, name, self.params(fields.get("params"), found.params, fields["check"].span)

    def condition(self, node: Node) -> Condition:
        text = self.string(node)
        assert isinstance(node, Scalar)
        if not self.thorough:
            return Condition(text, find_variable)
        try:
            condition = environment().compile(text)
        except CelError as error:
            lines = text.split("\n")
            offset = sum(len(line) + 1 for line in lines[: error.line - 1]) + error.column - 1
            raise RuleError(error.message, node.text.slice(offset, offset + 1).span) from None
        unguarded = condition.unguarded()
        if unguarded is not None:
            at = max(text.find(unguarded), 0)
            raise RuleError(
                f'"{unguarded}" can be unknown: ask "{unguarded} != null" first',
                node.text.slice(at, at + len(unguarded)).span,
            )
        return condition

    def params(self, node: Node | None, params: type[Any], span: Span) -> Any:
        known = {field.name: field for field in dataclasses.fields(params)}
        given = self.fields(node, "params", tuple(known)) if node is not None else {}
        hints = typing.get_type_hints(params)
        values = {name: self.typed(value, hints[name], name) for name, value in given.items()}
        for name, field in known.items():
            if name not in values and field.default is dataclasses.MISSING:
                raise RuleError(f'the parameter "{name}" is missing', node.span if node is not None else span)
        return params(**values) if params is not NoParams else NoParams()

    def typed(self, node: Node, wanted: Any, name: str) -> Any:
        if typing.get_origin(wanted) is types.UnionType:
            wanted = next(part for part in typing.get_args(wanted) if part is not type(None))
        if wanted is bool:
            value: Any = scalar_bool(node)
        elif wanted is int:
            value = scalar_int(node)
        elif wanted is float:
            number = node.value if isinstance(node, Scalar) else ""
            value = float(number) if re.fullmatch(r"-?\d+(?:\.\d+)?", number) else None
        elif wanted is str:
            return self.string(node)
        else:
            return self.strings(node)
        if value is None:
            raise RuleError(f'the parameter "{name}" is of type {wanted.__name__}', node.span)
        return value

    # -- words -----------------------------------------------------------------------------------------------------

    def placeholders(self, check: str | None, scope: Scope) -> frozenset[str]:
        if not self.thorough:
            return frozenset()
        names = set(checks()[check].values) if check else set()
        if scope == "unit":
            names.update(facts())
        return frozenset(names)

    def template(self, node: Node, names: frozenset[str]) -> Template:
        text = self.string(node)
        assert isinstance(node, Scalar)
        try:
            template = read_template(text)
        except TemplateError as error:
            raise RuleError(error.message, node.text.slice(error.offset, error.offset + 1).span) from None
        for name in template.names if self.thorough else ():
            if name not in names:
                at = text.find("{" + name) + 1
                span = node.text.slice(at, at + len(name)).span
                raise RuleError(f'nothing gives a value to "{name}"{_near(name, names)}', span)
        return template

    def sentence(self, node: Node, names: frozenset[str]) -> Template:
        template = self.template(node, names)
        if not _LAST_PLACEHOLDER.sub("", template.text).endswith("."):
            raise RuleError("what to do is a sentence and ends with a period", node.span)
        return template

    def variants(self, node: Node, names: frozenset[str], scope: Scope) -> dict[str, Variant]:
        variants: dict[str, Variant] = {}
        for entry in self.mapping(node, "variants").items():
            fields = self.fields(entry.value, "a variant", ("message", "severity", "remediation", "fix"))
            if "message" not in fields:
                raise RuleError('the field "message" is missing', entry.key.span)
            variants[self.kebab(entry.key)] = Variant(
                message=self.template(fields["message"], names),
                severity=self.enum(fields["severity"], Severity) if "severity" in fields else None,
                remediation=self.sentence(fields["remediation"], names) if "remediation" in fields else None,
                fix=self.fix(fields["fix"], names, scope) if "fix" in fields else None,
            )
        return variants

    def fix(self, node: Node, names: frozenset[str], scope: Scope) -> FixChoice:
        fields = self.fields(node, "a fix", ("edit", "safe", "argument", "value"))
        if "edit" not in fields:
            raise RuleError('the field "edit" is missing', node.span)
        edit = self.choice(fields["edit"], tuple(EDITS))
        if scope not in ("unit", "tree"):
            raise RuleError(f"a fix changes a unit, the rule looks at a {scope}", node.span)
        safe = scalar_bool(fields["safe"]) if "safe" in fields else False
        if safe is None:
            raise RuleError("true or false expected", fields["safe"].span)
        value = self.string(fields["value"]) if "value" in fields else None
        if value is not None and self.thorough and value not in names:
            raise RuleError(f'nothing gives a value to "{value}"{_near(value, names)}', fields["value"].span)
        argument = self.string(fields["argument"]) if "argument" in fields else None
        if argument is not None and self.thorough and f"args.{argument}" not in facts():
            raise RuleError(f'there is no engine argument "{argument}"', fields["argument"].span)
        return FixChoice(edit, safe, argument, value)

    def example(self, node: Node) -> Example:
        if isinstance(node, Scalar):
            return Example("", {"manifest.yaml": self.string(node)})
        fields = self.fields(node, "an example", ("title", "manifest", "config", "files", "severity", "at", "says"))
        files: dict[str, str] = {}
        if "manifest" in fields:
            files["manifest.yaml"] = self.string(fields["manifest"])
        if "files" in fields:
            for entry in self.mapping(fields["files"], "files").items():
                name = entry.key.value
                if name.startswith("/") or ".." in name.split("/"):
                    raise RuleError(f'"{name}": a path inside the example expected', entry.key.span)
                files[name] = self.string(entry.value)
        if not files:
            raise RuleError('an example has a "manifest", or "files"', node.span)
        if "config" in fields:
            files["kvgate.yaml"] = self.string(fields["config"])
        return Example(
            title=self.string(fields["title"]) if "title" in fields else "",
            files=files,
            severity=self.enum(fields["severity"], Severity) if "severity" in fields else None,
            at=self.string(fields["at"]) if "at" in fields else None,
            says=self.string(fields["says"]) if "says" in fields else None,
        )

    # -- values ----------------------------------------------------------------------------------------------------

    def mapping(self, node: Node, what: str) -> YamlMapping:
        if not isinstance(node, YamlMapping):
            raise RuleError(f"{what}: a mapping expected", node.span)
        return node

    def fields(self, node: Node, what: str, known: tuple[str, ...]) -> dict[str, Node]:
        fields: dict[str, Node] = {}
        for entry in self.mapping(node, what).items():
            name = entry.key.value
            if name not in known:
                raise RuleError(f'unknown field "{name}" in {what}{_near(name, known)}', entry.key.span)
            if is_null(entry.value):
                raise RuleError(f'the field "{name}" is empty', entry.key.span)
            fields[name] = entry.value
        return fields

    def items(self, node: Node) -> list[Node]:
        if not isinstance(node, Sequence):
            raise RuleError("a list expected", node.span)
        return node.items

    def string(self, node: Node) -> str:
        if not isinstance(node, Scalar) or not node.value.strip():
            raise RuleError("a text expected", node.span)
        return node.value.rstrip("\n")

    def strings(self, node: Node) -> tuple[str, ...]:
        return tuple(self.string(item) for item in self.items(node))

    def kebab(self, node: Node) -> str:
        text = self.string(node)
        if not _KEBAB.fullmatch(text):
            raise RuleError(f'"{text}": lower case words with dashes between them expected', node.span)
        return text

    def family(self, node: Node) -> str:
        name = self.kebab(node)
        if self.builtin and name not in FAMILIES:
            raise RuleError(f'there is no family "{name}"; known: {", ".join(FAMILIES)}', node.span)
        return name

    def version(self, node: Node) -> str:
        text = self.string(node)
        if not _VERSION.fullmatch(text):
            raise RuleError(f'"{text}": a version such as 0.1.0 expected', node.span)
        return text

    def specifier(self, node: Node) -> Any:
        from packaging.specifiers import InvalidSpecifier, SpecifierSet

        text = self.string(node)
        try:
            return SpecifierSet(text, prereleases=True)
        except InvalidSpecifier:
            raise RuleError(f'"{text}": vLLM releases such as ">=0.8,<0.12" expected', node.span) from None

    def place(self, node: Node) -> str:
        text = self.string(node)
        try:
            read_place(text)
        except PlaceError as error:
            raise RuleError(str(error), node.span) from None
        return text

    def url(self, node: Node) -> str:
        text = self.string(node)
        if not re.fullmatch(r"https://[^\s<>\"]+", text):
            raise RuleError(f'"{text}": an https address expected', node.span)
        return text

    def choice(self, node: Node, choices: tuple[Any, ...]) -> Any:
        text = self.string(node)
        if text not in choices:
            raise RuleError(f'one of {", ".join(choices)} expected, got "{text}"', node.span)
        return text

    def enum(self, node: Node, kind: type[E]) -> E:
        return kind(self.choice(node, tuple(member.value for member in kind)))


def _near(name: str, known: Iterable[str]) -> str:
    close = nearest(name, known)
    return f', did you mean "{close}"?' if close else ""
