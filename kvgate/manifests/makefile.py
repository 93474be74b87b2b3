"""Makefiles and justfiles: the recipes, each line a command, with the file's own variables."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Final

from kvgate.manifests.container import Start, beside
from kvgate.manifests.launch import starts_of_script
from kvgate.manifests.started import Surroundings, unit_of
from kvgate.manifests.tree import Tree
from kvgate.manifests.unit import ServeUnit, Unread
from kvgate.records import record
from kvgate.shell.expand import unset
from kvgate.shell.script import MAX_CHARACTERS
from kvgate.shell.value import Value
from kvgate.source.text import SourceFile, Span, Text, TooLargeError

MAX_LINES: Final = 10_000
MAX_DEPTH: Final = 8
MAX_HEAD: Final = 2_000
MAX_CALLS: Final = 24
MAX_NEAR: Final = 400  # how far back a line may begin

_VARIABLE: Final = re.compile(
    r"(?:export[ \t]+)?(?P<name>[A-Za-z_][\w.-]*+)[ \t]*+(?P<how>[:?+]{0,2}=)[ \t]*(?P<value>[^\n#]*)"
)
_DEFINE: Final = re.compile(r"(?:override[ \t]+)?define[ \t]+(?P<name>[A-Za-z_][\w.-]*)[ \t]*(?:[:?+]{0,2}=)?[ \t]*$")
_TARGET: Final = re.compile(r"@?(?P<name>[A-Za-z_][\w./-]*+)[^:=\n]*:(?![=])")
_JUST_TARGET: Final = re.compile(r"@?(?P<name>[A-Za-z_][\w-]*+)(?:[ \t]+[^:\n]*)?:(?!=)")
_REFERENCE: Final = re.compile(
    r"\$(?:\((?P<round>[^()]*)\)|\{(?P<curly>[A-Za-z_][\w.-]*)\}|(?P<dollar>\$)|(?P<other>[@<^?*+%|]))"
    r"|\{\{\s*(?P<just>[A-Za-z_][\w-]*)\s*\}\}"
)

# Recipes that run others.
_WORDS: Final = r"(?P<words>(?:(?:[ \t]|\\\n)+(?!\\\n)[^\s;&|#]+)+)"
_RUNS: Final = re.compile(r"(?m)(?:^|[;&|])[ \t]*[@+-]*(?:\$[({]MAKE[)}]|make)" + _WORDS)
_JUST_RUNS: Final = re.compile(r"(?m)^[ \t]*@?just" + _WORDS)
_WORD: Final = re.compile(r"(?:'[^'\n]*'|\"[^\"\n]*\"|[^\s'\"])+")


@record
class _Rules:
    """What a file says: variables, the recipe of each target, and what a target says of variables and of others."""

    variables: dict[str, Value]
    recipes: list[tuple[str, Value]]
    first: dict[str, int]  # where the recipe of a name is among them
    parameters: dict[str, dict[str, Value | None]]  # of a recipe of just
    settings: dict[str, dict[str, Value]]  # variables of a target: `small: MODEL = m`
    needs: dict[str, list[str]]


@record
class _Call:
    """A recipe that a target runs: its own, or another one with settings, which stand at ``span``."""

    by: str
    of: int
    settings: Mapping[str, Value]
    span: Span | None = None


def read_makefile(tree: Tree, file: SourceFile) -> Iterator[ServeUnit | Unread]:
    """The serve units of the recipes of one file: each by itself, and as others run it with settings of their own."""
    just = file.path.rpartition("/")[2].lower().endswith(("justfile", ".just"))
    rules = _rules(file, just)
    seen: set[tuple[object, ...]] = set()
    found: list[tuple[_Call, Start]] = []
    own = (_Call(name, number, rules.settings.get(name, {})) for number, (name, _) in enumerate(rules.recipes))
    for call in (*own, *islice(_calls(rules, just), MAX_CALLS)):
        target, recipe = rules.recipes[call.of]
        if "vllm" not in recipe.value.lower() and "docker" not in recipe.value.lower():
            continue
        known = dict(rules.variables)
        for name, value in rules.parameters.get(target, {}).items():
            if value is None:
                known.pop(name, None)
            else:  # it may be called as the variable that it stands for (`serve model=model:`)
                known[name] = _expanded(value, known, 0, just=just)
        for name, value in call.settings.items():
            known[name] = _expanded(value, known, 0, just=just)
        try:
            starts = starts_of_script(_expanded(recipe, known, 0, just=just), {}, beside(tree, file))
        except TooLargeError as error:
            yield Unread(f"{error} is not read", recipe.span, serves=True)
            continue
        for start in starts:
            key = (call.of, *(word.value for word in start.words))
            if call.span is None or key not in seen:
                seen.add(key)
                found.append((call, start if call.span is None else replace(start, span=call.span)))
    told: dict[int, int] = {}
    for call, start in found:
        if call.span is not None:
            told[call.of] = max(_holes(start), told.get(call.of, 0))
    numbers: dict[str, int] = {}
    for call, start in found:
        if call.span is None and _holes(start) > told.get(call.of, _holes(start)):
            continue  # whoever runs it tells it more than this
        number = numbers.get(call.by, 0)
        numbers[call.by] = number + 1
        yield unit_of(start, Surroundings(file=file, kind="script", names=(call.by,)), number)


def _holes(start: Start) -> int:
    return sum(len(word.unresolved) for word in start.words)


def _calls(rules: _Rules, just: bool) -> Iterator[_Call]:
    """The recipes that others run with settings: ``$(MAKE) serve MODEL=m``, ``just serve m``, ``small: serve``."""
    for name, settings in rules.settings.items():
        for other in rules.needs.get(name, ()):
            if other in rules.first and other != name:
                yield _Call(name, rules.first[other], settings, next(iter(settings.values())).span)
    for name, recipe in rules.recipes:
        read = recipe.value if len(recipe.text) <= MAX_CHARACTERS else ""
        for match in (_JUST_RUNS if just else _RUNS).finditer(read):
            near = recipe.value[max(match.start() - MAX_NEAR, 0) : match.start() + 1].rpartition("\n")[2]
            if near.lstrip("@ \t").startswith(("echo", "printf", "#")):
                continue  # it tells how to
            words = [recipe.slice(*word.span()) for word in _WORD.finditer(recipe.value, *match.span("words"))]
            words = [word for word in words if word.value != "\\"]
            plain = [word for word in words if just or "=" not in word.value]
            targets = [word.value for word in (plain[:1] if just else plain)]
            if any(target.startswith("-") for target in targets):
                continue  # of another file, or with options that change more
            if just:
                names = rules.parameters.get(targets[0] if targets else "", {})
                settings = dict(zip(names, map(_unquoted, words[1:]), strict=False))
            else:
                settings = {}
                for word in words:
                    key, equals, value = word.value.partition("=")
                    if equals:
                        settings[key.rstrip(":?")] = _unquoted(word.slice(len(word.value) - len(value), len(word.text)))
            for target in targets if settings else ():
                if target in rules.first and target != name:
                    yield _Call(name, rules.first[target], settings, recipe.slice(*match.span("words")).span)


def _unquoted(value: Value) -> Value:
    quoted = len(value.text) > 1 and value.value[0] in "'\"" and value.value[-1] == value.value[0]
    return value.slice(1, len(value.text) - 1) if quoted else value


def _rules(file: SourceFile, just: bool) -> _Rules:
    variables: dict[str, Value] = {}
    rules = _Rules(variables, [], {}, {}, {}, {})
    found: list[tuple[str, list[Value]]] = []
    lines: list[Value] | None = None
    starts = file.line_starts
    number = 0
    while number < min(len(starts), MAX_LINES):
        start, line = starts[number], file.line_text(number + 1)
        number += 1
        defined = None if just or "define" not in line else _DEFINE.match(line)
        if defined is not None:
            begin = number
            while number < len(starts) and file.line_text(number + 1).strip() != "endef":
                number += 1
            end = starts[number] - 1 if number < len(starts) else len(file.text)
            if begin < len(starts):
                variables[defined["name"]] = Value(Text.of_span(Span(file, starts[begin], max(end, starts[begin]))))
            number, lines = number + 1, None
            continue
        if line[:1] in ("\t", " ") and line.strip() and lines is not None:
            body = line.lstrip()
            begin = start + len(line) - len(body)
            if not lines or not lines[-1].value.rstrip().endswith("\\"):
                begin += len(body) - len(body.lstrip("@+-"))  # what make does about echo and errors
            lines.append(Value(Text.of_span(Span(file, begin, start + len(line)))))
            continue
        while line.endswith("\\") and number < len(starts):
            line += "\n" + file.line_text(number + 1)
            number += 1
        text = Text.of_span(Span(file, start, start + len(line)))
        match = _VARIABLE.match(line)
        target = (_JUST_TARGET if just else _TARGET).match(line)
        if match and (not just or match["how"] == ":="):
            lines = None
            _assign(match, text, variables, just=just)
        elif target:
            lines = []
            found.append((target["name"], lines))
            rest = target.end() + len(line[target.end() :]) - len(line[target.end() :].lstrip())
            setting = None if just else _VARIABLE.match(line, rest)
            if setting is not None:
                _assign(setting, text, rules.settings.setdefault(target["name"], {}), just=False)
            else:
                rules.needs.setdefault(target["name"], []).extend(line[rest:MAX_HEAD].partition("#")[0].split())
            if just:
                rules.parameters[target["name"]] = _parameters(text)
        elif line.strip() and not line.startswith("#"):
            lines = None
    for name, recipe in found:
        parts: list[Value] = []
        for value in recipe:
            parts += [value, Value(Text.at("\n", value.span))]
        if parts:
            rules.first.setdefault(name, len(rules.recipes))
            rules.recipes.append((name, Value.join(parts)))
    return rules


# A string of just's, or what its functions take for a variable that is not set.
_JUST_VALUE: Final = re.compile(
    r"(?:(?:env|env_var_or_default)\([ \t]*(?P<first>['\"])\w{1,100}(?P=first)[ \t]*,[ \t]*)?"
    r"(?P<quote>['\"])(?P<text>[^'\"\n]*)(?P=quote)[ \t]*\)?"
)
_HEAD: Final = re.compile(r"(?:[^:'\"]|'[^']*'|\"[^\"]*\")*+")  # up to what the recipe depends on
_PARAMETER: Final = re.compile(
    r"(?<=[ \t])[+*$]{0,2}(?P<name>[A-Za-z_][\w-]*)(?:=(?P<value>\"[^\"\n]*\"|'[^'\n]*'|[^\s:]+))?"
)


def _parameters(text: Text) -> dict[str, Value | None]:
    """What a recipe of just is called with where its caller says nothing; None for what the caller must say."""
    found: dict[str, Value | None] = {}
    head = _HEAD.match(text.value, 0, MAX_HEAD)
    for match in _PARAMETER.finditer(text.value, 0, head.end() if head else 0):
        stated = Value(text.slice(*match.span("value"))) if match["value"] else None
        found[match["name"]] = _of_just(stated) if stated is not None else None
    return found


def _of_just(value: Value) -> Value:
    """The text that an expression of just comes to; unknown where it is more than a string."""
    match = _JUST_VALUE.fullmatch(value.value)
    if match is not None:
        return value.slice(*match.span("text"))
    if re.fullmatch(r"[A-Za-z_][\w-]*", value.value):  # another variable
        return Value(Text.at("{{" + value.value + "}}", value.span))
    return Value.unknown(value.text, "an expression of just, not worked out", splits=False)


def _assign(match: re.Match[str], text: Text, variables: dict[str, Value], *, just: bool) -> None:
    name, how = match["name"], match["how"]
    start, end = match.span("value")
    end = start + len(text.value[start:end].rstrip())
    value = Value(text.slice(start, end))
    if just:
        variables[name] = _of_just(value)
        return
    if value.value[:1] in ("'", '"') and value.value[-1:] == value.value[:1] and len(value.value) > 1 and how == ":=":
        quoted = value.slice(1, len(value.text) - 1)
        value = quoted if value.value[0] not in quoted.value else value
    if how == "?=" and name in variables:
        return
    if how == "+=" and name in variables:
        value = Value.join([variables[name], Value(Text.at(" ", value.span)), value])
    variables[name] = value


def _expanded(value: Value, variables: dict[str, Value], depth: int, *, just: bool) -> Value:
    def known(match: re.Match[str], whole: Value) -> Value | None:
        name = match["just"] if just else match["round"] or match["curly"]
        if just and match["just"] is None:
            return None
        if match["dollar"]:
            return whole.slice(1, len(whole.text))
        if name is not None and name in variables and depth < MAX_DEPTH:
            return _expanded(variables[name], variables, depth + 1, just=just)
        if match["just"] is not None and not just:
            return None
        reason = unset(name) if name and re.fullmatch(r"[\w.-]+", name) else "known when make runs only"
        return Value.unknown(whole.text, reason)

    return value.replaced(_REFERENCE.finditer(value.value), known)
