"""Windows batch files and PowerShell scripts, as far as variables and continued lines go."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from kvgate.manifests.container import find_requirement
from kvgate.manifests.formats import Format
from kvgate.manifests.launch import starts_of_commands
from kvgate.manifests.started import Surroundings, unit_of
from kvgate.manifests.tree import Tree
from kvgate.manifests.unit import ServeUnit, Unread
from kvgate.records import record
from kvgate.shell.command import SHELLS, Assignment, Command, basename
from kvgate.shell.expand import unset
from kvgate.shell.value import Value
from kvgate.source.text import SourceFile, Span, Text, TooLargeError, Unresolved, Word

MAX_LINES: Final = 5_000
MAX_VALUE: Final = 20_000


@record
class _Language:
    """What the two languages differ in."""

    continuation: str
    comment: re.Pattern[str]
    assignment: re.Pattern[str]
    reference: re.Pattern[str]
    exports_everything: bool


_BATCH: Final = _Language(
    "^",
    re.compile(r"\s*(?:@?rem\b|::|@?echo\b)", re.IGNORECASE),
    re.compile(
        r"\s*@?(?:if\s+(?:not\s+)?defined\s+(?P<unless>\w+)\s+|if\s+\"%(?P<empty>\w+)%\"\s*==\s*\"\"\s+)?\(?\s*"
        r"set\s+\"?(?P<name>[A-Za-z_]\w*)=(?P<value>[^\"\r\n]*)",
        re.IGNORECASE,
    ),
    re.compile(r"%(?:~?(?P<number>[0-9*])|(?P<name>[A-Za-z_]\w*)(?::[^%]*)?%)|!(?P<delayed>[A-Za-z_]\w*)!"),
    True,
)
_POWERSHELL: Final = _Language(
    "`",
    re.compile(r"\s*(?:#|write-(?:host|output)\b)", re.IGNORECASE),
    re.compile(
        r"\s*\$(?:(?P<environment>env):)?(?P<name>[A-Za-z_]\w*)\s*=\s*(?P<value>\"[^\"]*\"|'[^']*'|[^\s@({&\"']+)\s*$",
        re.IGNORECASE,
    ),
    re.compile(r"\$\{?(?:(?:env|script|global):)?(?P<name>[A-Za-z_]\w*)\}?|\$\((?:\$)?(?P<number>[^)]*)\)"),
    False,
)


# A list that begins, or grows.
_ARRAY: Final = re.compile(r"\s*\$(?P<name>[A-Za-z_]\w*)\s*(?P<how>\+?=)\s*(?P<opens>@\()?")
_ELEMENT: Final = re.compile(r"(?:\"[^\"]*\"|'[^']*'|[^\s\"',()])+|\)")


def read_batch(tree: Tree, file: SourceFile, form: Format) -> Iterator[ServeUnit | Unread]:
    """The serve units of one batch file or PowerShell script; shells of Linux that it starts are read on."""
    language = _BATCH if form == "batch" else _POWERSHELL
    variables: dict[str, Value] = {}
    lists: dict[str, list[Word]] = {}
    exported: dict[str, Assignment] = {}
    commands: list[Command] = []
    lines = _lines(file, language)
    depth = 0
    for text in lines:
        if language.comment.match(text.value):
            continue
        array = None if language.exports_everything else _ARRAY.match(text.value)
        if array and (array["opens"] or array["name"].lower() in lists):
            added = _elements(text, array, lines, variables, lists)
            if depth:  # what braces decide is not followed
                added = [Word(word.text, (Unresolved(word.value, "only in a block"),), splits=True) for word in added]
            name = array["name"].lower()
            lists[name] = [*lists.get(name, []), *added] if array["how"] == "+=" else added
            continue
        depth = max(0, depth + text.value.count("{") - text.value.count("}") - text.value.count("${"))
        texts = None if language.exports_everything else _SUM.match(text.value)
        if texts is not None:
            value = _joined(text.slice(*texts.span("value")), variables)
            if len(value.text) <= MAX_VALUE:
                variables[texts["name"].lower()] = value
            continue
        match = language.assignment.match(text.value)
        if match:
            name = match["name"].upper() if language.exports_everything else match["name"].lower()
            condition = match.groupdict()
            given = condition.get("unless") or condition.get("empty")
            if given is None or given.upper() not in variables:
                start, end = match.span("value")
                end = start + len(text.value[start:end].rstrip())
                value = _expanded(Value(text.slice(start, end)), variables, language)
                if value.value[:1] in ("'", '"') and value.value[-1:] == value.value[:1] and len(value.value) > 1:
                    value = value.slice(1, len(value.text) - 1)
                if len(value.text) <= MAX_VALUE:
                    variables[name] = value
                    if language.exports_everything or condition.get("environment"):
                        exported[match["name"]] = Assignment(match["name"], value, text.span)
            continue
        words = tuple(_words(text, variables, language, lists))
        if any(basename(word) in SHELLS for word in words):  # wsl bash -c "..."
            from kvgate.shell.script import commands_of_words

            try:
                commands += commands_of_words(words)
            except TooLargeError as error:
                yield Unread(f"{error} is not read", text.span, serves=True)
        elif words:
            commands.append(Command(words, tuple(exported.values()), (), text.span))
    whole = Text.of_span(file.span(0, len(file.text)))
    around = Surroundings(file=file, kind="script", requirement=find_requirement([whole]))
    for count, found in enumerate(starts_of_commands(commands)):
        yield unit_of(found, around, count)


def _lines(file: SourceFile, language: _Language) -> Iterator[Text]:
    """Lines without blanks around them, continued ones joined."""
    starts = file.line_starts
    number = 0
    while number < min(len(starts), MAX_LINES):
        parts: list[Text] = []
        while True:
            start, line = starts[number], file.line_text(number + 1)
            number += 1
            body = line.strip()
            begin = start + len(line) - len(line.lstrip())
            continued = body.endswith(language.continuation) and number < len(starts)
            if language is _POWERSHELL and _ADDS.search(body) and number < len(starts):  # "..." + on the next line
                parts.append(Text.of_span(Span(file, begin, begin + len(body))))
                continue
            parts.append(Text.of_span(Span(file, begin, begin + len(body) - continued)))
            if not continued:
                break
            parts.append(Text.at(" ", Span(file, begin + len(body), begin + len(body))))
        yield Text.join(parts)


_ADDS: Final = re.compile(r"[\"']\s*\+$")
# Texts of PowerShell, also put behind each other (`"a $b" + 'c'`), and what is quoted in them by a backtick.
_TEXT: Final = r"(?:\"(?:[^\"`]|`.)*\"|'[^']*'|\$\w+)"
_SUM: Final = re.compile(rf"\s*\$(?P<name>[A-Za-z_]\w*)\s*=\s*(?P<value>{_TEXT}(?:\s*\+\s*{_TEXT})*)\s*$")
_QUOTED: Final = re.compile(r"`(.)")
_WORD: Final = re.compile(r"(?:\"[^\"]*\"|'[^']*'|[^\s\"'])+|\"\S*")
_LEADS: Final = re.compile(r"@?(?:call|start(?:\s+\"[^\"]*\")?(?:\s+/\w+)*|cmd\s+/[ck]|&)\s+", re.IGNORECASE)


def _elements(
    text: Text, array: re.Match[str], lines: Iterator[Text], variables: dict[str, Value], lists: dict[str, list[Word]]
) -> list[Word]:
    """What ``$X = @("--a", "b"`` and the lines up to its closing bracket list, and what ``$X += "--c"`` adds."""
    parts = [text.slice(array.end(), len(text))]
    while array["opens"] and _unquoted(parts).count("(") >= _unquoted(parts).count(")"):
        line = next(lines, None)
        if line is None:
            break
        if not line.value.startswith("#"):
            parts += [Text.at(" ", line.slice(0, 0).span), line]
    inside = Text.join(parts)
    result: list[Word] = []
    for match in _ELEMENT.finditer(inside.value):
        if match.group() == ")" and array["opens"]:
            break
        result += _words(inside.slice(match.start(), match.end()), variables, _POWERSHELL, lists)
    return result


def _unquoted(parts: list[Text]) -> str:
    return re.sub(r"\"[^\"]*\"|'[^']*'", "", "".join(part.value for part in parts))


def _joined(text: Text, variables: dict[str, Value]) -> Value:
    """What texts that are put behind each other say."""
    parts: list[Value] = []
    for match in re.finditer(_TEXT, text.value):
        quotes = match.group()[0] in "\"'"
        inside = Value(text.slice(match.start() + quotes, match.end() - quotes))
        if match.group()[0] == "'":
            parts.append(inside)
            continue
        at = 0
        for escape in _QUOTED.finditer(inside.value):
            parts.append(_expanded(inside.slice(at, escape.start()), variables, _POWERSHELL))
            parts.append(inside.slice(*escape.span(1)))
            at = escape.end()
        parts.append(_expanded(inside.slice(at, len(inside.text)), variables, _POWERSHELL))
    return Value.join(parts)


def _words(
    text: Text, variables: dict[str, Value], language: _Language, lists: dict[str, list[Word]]
) -> Iterator[Word]:
    lead = _LEADS.match(text.value)
    begin = lead.end() if lead else 0
    for match in _WORD.finditer(text.value, begin):
        if match.group() in ("|", "&", "&&", "||", ";") or match.group().startswith((">", "2>")):
            break
        if match.group()[:1] in ("$", "@") and match.group()[1:].lower() in lists:  # a list, also splatted
            yield from lists[match.group()[1:].lower()]
            continue
        parts: list[Value] = []
        quoted = False
        for piece in re.finditer(r"\"([^\"]*)\"?|'([^']*)'?|[^\"']+", match.group()):
            group = 1 if piece.group(1) is not None else 2 if piece.group(2) is not None else 0
            start, end = (match.start() + at for at in piece.span(group))
            quoted = quoted or group > 0
            value = Value(text.slice(start, end))
            literal = group == 2 and not language.exports_everything
            parts.append(value if literal else _expanded(value, variables, language))
        whole = Value.join(parts)
        fields = re.findall(r"\S+", whole.masked())
        script = not language.exports_everything and text.value[: match.start()].rstrip().endswith(" -c")
        if quoted or script or len(fields) < 2:
            if whole.value or quoted:
                yield whole.word(quoted=quoted or script)
            continue
        at = 0
        for field in fields:  # a variable with several words
            at = whole.masked().index(field, at)
            yield whole.slice(at, at + len(field)).word(quoted=False)
            at += len(field)


def _expanded(value: Value, variables: dict[str, Value], language: _Language) -> Value:
    def known(match: re.Match[str], whole: Value) -> Value:
        groups = match.groupdict()
        name = groups.get("name") or groups.get("delayed")
        if name is None:
            return Value.unknown(whole.text, "an argument or a result that only a run knows")
        found = variables.get(name.upper() if language.exports_everything else name.lower())
        return found.at(whole.span) if found is not None else Value.unknown(whole.text, unset(name))

    return value.replaced(language.reference.finditer(value.value), known)
