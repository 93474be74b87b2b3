"""The commands that a shell script runs, with every word expanded as far as the files allow.

tree-sitter-bash finds the structure (lists, pipes, ``if``, functions, here documents), ``kvgate.shell.words`` reads
the words inside it. Nothing is run. A value that only a running shell knows is a hole with its reason.

A script is read optimistically about things outside the files: ``&&`` goes on, a variable that is set nowhere counts as
unset where the script says what happens then (``${X:-d}``, ``${X:+..}``), and a script without known arguments has
none. Branches that cannot be decided are all read; of what they set differently, the one that a script without any
settings takes decides, and where that is not known either, it is a hole afterwards.
"""

from __future__ import annotations

import operator
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final

from kvgate.records import record
from kvgate.shell.command import (
    HANDS_ON,
    SHELLS,
    Assignment,
    Command,
    basename,
    names_program,
    path_of,
    unwrap,
)
from kvgate.shell.expand import argument, asked, is_unset, set_only_if, unset
from kvgate.shell.inert import SILENT, is_inert
from kvgate.shell.parameters import (
    RUN_TIME_NAMES,
    apply_operator,
    evaluate_arithmetic,
    matches_expression,
    matches_pattern,
    split_operator,
)
from kvgate.shell.template import FORMAT_FIELD, has_control, with_branches
from kvgate.shell.value import Hole, Value, value_of_word
from kvgate.shell.words import BLANKS, Fields, closing_bracket, lex
from kvgate.source.text import Span, Text, TooLargeError, Unresolved, Word, character

MAX_CHARACTERS: Final = 100_000
# How many of what a script may have: tree-sitter-bash takes quadratic time for them, a second for so many.
MAX_OPENINGS: Final = {"<<": 1_000, "|": 5_000, "=(": 4_000}
MAX_STEPS: Final = 20_000
STEP: Final = 1_000  # characters that cost as much to read as a command
COPY: Final = 50  # variables that cost as much to copy for a branch
MAX_UNROLLED: Final = 8_000  # steps after which one round stands for a loop
MAX_COMMANDS: Final = 3_000
MAX_DEPTH: Final = 24
MAX_ITEMS: Final = 16
MAX_ITERATIONS: Final = 64

_SHELL_OPTIONS_WITH_VALUE: Final = frozenset({"-o", "+o", "-O", "+O", "--rcfile", "--init-file"})

# What may start a server within $(...); most of what stands there asks for a path or a date.
_RUNS: Final = re.compile(r"(?:\$\(|`)[^()`]*\b(?:run|serve|vllm\w*|\w+\.sh)\b")

# A substitution of a program that only prints what its words say, and what makes it more than a plain pipeline.
_PRINTS: Final = re.compile(r"\s*(?:basename|dirname|echo|printf|seq)\s")
_RUNS_MORE: Final = re.compile(r"[;&<>\n]|\|\|")
# One of a function; and in functions what is printed elsewhere, and what prints nothing and changes no variable.
_CALLS: Final = re.compile(r"\s*([A-Za-z_][\w-]*)(?=\s|\Z)")
_ASIDE: Final = re.compile(r"\A(?:echo|printf)\b[^|;&\n]*>\s*(?:&\s*2|/dev/stderr)\s*\Z")
_WORDLESS: Final = frozenset({":", "chmod", "mkdir", "rm", "sleep", "touch", "true"})
MAX_PRINTING: Final = 400
MAX_WRITTEN: Final = 400  # of a condition, before it is made short
_ESCAPES: Final = {"\\n": "\n", "\\t": "\t"}
# A substitution of a here document: its text.
_DOCUMENT: Final = re.compile(
    r"\s*cat\s*<<-?\s*(?P<quote>['\"\\]?)(?P<end>\w+)['\"]?[ \t]*\n(?P<text>(?:.*\n)?)[ \t]*(?P=end)\s*", re.DOTALL
)
# A substitution that yields where a program is installed.
_LOOKS_UP: Final = re.compile(
    r"\s*(?:command\s+-v|type\s+-[pP]|which)\s+(?P<name>[\w.-]{1,80})\s*(?:2>\s*/dev/null\s*)?(?:\|\|\s*(?:true|:)\s*)?"
)
# Where programs are, of the paths that a variable may hold.
_INSTALLED: Final = re.compile(r"(?:^|/)bin/[\w.-]+$")
# A variable that is set by its use (`${NAME:=value}`).
_DEFAULTS: Final = re.compile(r"\$\{\w+(?:\[[^]]*\])?:?=")

_SCRIPT_ENDINGS: Final = (".sh", ".bash", ".sbatch", ".slurm")
_SETTINGS_ENDINGS: Final = (".yaml", ".yml")
_SHEBANG: Final = re.compile(r"\s*#!.*\b(?:sh|bash|ash|dash|zsh|ksh)\b")

Stored = Value | list[Word] | dict[str, Value]
"""What a variable holds: a text, an array, or an associative array (also one whose elements are set one by one)."""

Found = Callable[[str], "Value | None"]
"""Text of a file by the path that a script uses for it; None when it is not at hand."""


def commands(
    text: Text | Value,
    environment: Mapping[str, Value] | None = None,
    *,
    arguments: Sequence[Word] | None = None,
    find: Found | None = None,
) -> list[Command]:
    """Commands of a shell script in the order in which they stand.

    Args:
        environment: variables that the script starts with.
        arguments: ``$1``, ``$2``, ...; None when nobody knows them.
        find: looks up files that the script sources or runs.

    Raises:
        TooLargeError: the script, or what its variables grow to, is beyond all measure.
    """
    reader = _Reader(find)
    reader.told = arguments is not None
    scope = _Scope.of_environment(environment or {}, arguments)
    reader.script(Value(text) if isinstance(text, Text) else text, scope, ())
    return reader.result()


def variables(
    text: Text | Value,
    environment: Mapping[str, Value] | None = None,
    *,
    find: Found | None = None,
) -> dict[str, Value]:
    """The variables that a script leaves behind, for scripts that others source.

    Raises:
        TooLargeError: see :func:`commands`.
    """
    reader = _Reader(find)
    scope = _Scope.of_environment(environment or {}, None)
    reader.script(Value(text) if isinstance(text, Text) else text, scope, ())
    return {name: value for name, value in scope.variables.items() if isinstance(value, Value)}


def files(text: Text | Value, environment: Mapping[str, Value], before: Mapping[str, Value]) -> dict[str, Value]:
    """The scripts that a script writes, by the path that it gives them.

    Args:
        before: those that are there already.

    Raises:
        TooLargeError: see :func:`commands`.
    """
    reader = _Reader(None)
    reader.told = True
    reader.written |= before
    reader.ran |= before.keys()
    reader.script(Value(text) if isinstance(text, Text) else text, _Scope.of_environment(environment, None), ())
    return reader.written


def commands_of_words(
    words: Sequence[Word],
    environment: Mapping[str, Value] | None = None,
    *,
    find: Found | None = None,
) -> list[Command]:
    """Commands behind an argv that no shell has read: itself, or what the script in ``sh -c SCRIPT`` runs.

    Raises:
        TooLargeError: see :func:`commands`.
    """
    if not words:
        return []
    reader = _Reader(find)
    reader.told = True
    scope = _Scope.of_environment(environment or {}, None)
    reader.words(tuple(words), scope, (), (), words[0].span, builtins=False)
    return reader.result()


class _Scope:
    """Variables, functions and arguments as they stand at one point of a script."""

    __slots__ = ("arguments", "ended", "exported", "exports_all", "functions", "touched", "variables")

    def __init__(
        self,
        variables: dict[str, Stored],
        exported: set[str],
        touched: dict[str, Span],
        functions: dict[str, tuple[_Source, Any]],
        arguments: list[Word] | None,
    ) -> None:
        self.variables = variables
        self.exported = exported
        self.touched = touched
        self.functions = functions
        self.arguments = arguments
        # by which builtin nothing after it in the same branch is reached: `exit` that tells of a failure is "fail"
        self.ended = ""
        self.exports_all = False  # set -a

    @classmethod
    def of_environment(cls, environment: Mapping[str, Value], arguments: Sequence[Word] | None) -> _Scope:
        known = None if arguments is None else list(arguments)
        return cls(dict(environment), set(environment), {}, {}, known)

    def copy(self) -> _Scope:
        copied = _Scope(
            dict(self.variables),
            set(self.exported),
            dict(self.touched),
            dict(self.functions),
            None if self.arguments is None else list(self.arguments),
        )
        copied.exports_all = self.exports_all
        return copied

    def assign(self, name: str, value: Stored, span: Span) -> None:
        self.variables[name] = value
        self.touched[name] = span
        if self.exports_all:
            self.exported.add(name)

    def scalar(self, name: str) -> Value | None:
        value = self.variables.get(name)
        if isinstance(value, list):
            return value_of_word(value[0]) if value else None
        return value.get("0") if isinstance(value, dict) else value

    def environment(self) -> list[Assignment]:
        result: list[Assignment] = []
        for name, span in self.touched.items():
            value = self.variables.get(name)
            if name in self.exported and isinstance(value, Value):
                result.append(Assignment(name, value, span))
        return result


@record
class _Source:
    """A script's text, the same text with everything that is not bash made inert, and its tree."""

    value: Value
    masked: str
    root: Any = field(compare=False)

    def text(self, node: Any) -> str:
        return self.masked[node.start_byte : node.end_byte]

    def slice(self, node: Any) -> Value:
        return self.value.slice(node.start_byte, node.end_byte)

    def span(self, node: Any) -> Span:
        return self.value.text.span_of(node.start_byte, node.end_byte)


@lru_cache(maxsize=1)
def _parser() -> Any:
    import tree_sitter
    import tree_sitter_bash

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))


# The patterns begin with what is rare, and look back from there: a search that begins with a look-behind is slow.
_TEMPLATE = re.compile(r"\$?\{\{.{0,400}?\}\}|\{%.{0,400}?%\}|\$\[\[.{0,400}?\]\]")
_BLANKED = re.compile(r"<(?<=[\s=\"']<)[A-Za-z][A-Za-z0-9_ ./\-]*>(?=[\s\"'\\]|$)")


# The dollar of a variable in the middle of a word, where the parser ends the word behind it (`$A/$B-x`).
_WITHIN_WORD = re.compile(r"\$(?<=[\w}\-/.:@%+,~]\$)(?=[A-Za-z_]\w*[\-/.:@%+,~])")

# What else it takes for the end of all that follows: a bracket that is cut off a value, a pattern on the next line.
_CUT = re.compile(r"\$\{\w+[#%]{1,2}[^{}\n]*(?=\})")
_WRAPPED = re.compile(r"=~\s*\\\n\s*")
# A comment within a command (`vllm serve m \\`, and "`# why` \\" in the next line), which the parser never ends.
_REMARK = re.compile(r"`[ \t]*#[^`\n]*`")


def _source(value: Value) -> _Source:
    if has_control(value.text.value):
        value = with_branches(value, statements=True)
    text = value.text.value
    for pattern in (_TEMPLATE, _BLANKED, FORMAT_FIELD):
        holes: list[Hole] = []
        if pattern is _TEMPLATE and "{{" not in text and "{%" not in text and "$[[" not in text:
            continue
        for match in pattern.finditer(text):
            before = text[max(match.start() - 20, 0) : match.start()]
            if pattern is _BLANKED and before.rstrip("\\\"' ").endswith((":", ",", "[")):
                continue  # a tag of a chat template inside JSON
            unresolved = Unresolved(match.group(), "a placeholder to be filled in")
            holes.append(Hole(match.start(), match.end(), unresolved, pattern is not _BLANKED))
        value = value.with_holes(holes)
    masked = value.masked()
    # one byte per character, so that tree-sitter's offsets are ours; a carriage return is a blank at a line's end
    masked = masked.replace("\\\r\n", " \\\n").replace("\r", " ")
    if not masked.isascii():
        masked = re.sub(r"[^\x00-\x7f]", "x", masked)
    masked = _WITHIN_WORD.sub("x", masked)
    if "`" in masked:
        masked = _REMARK.sub(lambda match: "x" * len(match.group()), masked)
    masked = _CUT.sub(lambda match: re.sub(r"[][()]", "x", match.group()), masked)
    masked = _WRAPPED.sub(lambda match: "=~".ljust(len(match.group())), masked)
    return _Source(value, masked, _parser().parse(masked.encode("ascii")).root_node)


class _Reader:
    def __init__(self, find: Found | None) -> None:
        self.find = find
        self.found: list[Command] = []
        self.called: set[str] = set()
        self.calling: list[str] = []
        self.uncalled = False  # whether a function is read that nothing calls: its arguments are anybody's
        self.assuming = False  # whether what nobody sets counts as empty
        self.input: Value | None = None  # of the command at hand (`<<< "$X"`)
        self.inert: dict[int, bool] = {}  # by the node of a function's body
        self.told = False  # whether it is known what the script is started with
        self.steps = 0
        self.depth = 0
        self.folder = ""  # where an absolute `cd` went
        self.written: dict[str, Value] = {}  # scripts that here documents write, by the path that they are given
        self.ran: set[str] = set()  # those of them that the script runs itself
        self.settings: dict[str, Value] = {}  # files of settings that it writes, by their path
        self.copied: dict[str, Value] = {}  # files at hand, by the path that the script copies them to
        self.caller: Span | None = None  # the script's own command, within which another script is read

    def result(self) -> list[Command]:
        """Commands without the repetitions that a loop over the same start makes, nor those of branches of which one
        is taken at most."""
        seen: dict[tuple[object, ...], dict[tuple[str, int], Command]] = {}
        result: list[Command] = []
        for command in self.found:
            key = (
                *(word.value for word in command.words),
                *((item.name, item.value.value) for item in command.environment),
            )
            others, place = seen.setdefault(key, {}), (command.span.path, command.span.start)
            if place in others or (len(others) < MAX_ITEMS and any(_instead(command, it) for it in others.values())):
                continue
            others[place] = command
            result.append(command)
        return result

    # -- structure ---------------------------------------------------------------------------------------------

    def script(self, value: Value, scope: _Scope, conditions: tuple[str, ...]) -> None:
        if len(value.text) > MAX_CHARACTERS:
            raise TooLargeError(f"a script of {len(value.text):,} characters")
        for opening, most in MAX_OPENINGS.items():
            if (count := value.text.value.count(opening)) > most:
                raise TooLargeError(f'a script with {count:,} times "{opening}"')
        self.steps += len(value.text) // STEP  # what runs itself is read again and again
        if self.depth >= MAX_DEPTH:
            return
        self.depth += 1
        try:
            source = _source(value)
            self.nodes(source, source.root.children, scope, conditions)
            # what a library offers besides is not called: whoever sources it calls what it needs
            # nor is what a script does not call that is told what to do
            uncalled = list(scope.functions.items()) if self.depth == 1 and not self.told else []
            for name, (where, node) in uncalled:
                if where is source and name not in self.called:
                    inner = self.branch(scope)
                    inner.arguments = None
                    self.uncalled = True
                    self.node(where, node, inner, (*conditions, f"{name}() is called"))
                    self.uncalled = False
            if self.depth == 1:
                for path in [path for path in self.written if path not in self.ran]:
                    self.script(self.written[path], _Scope.of_environment({}, None), conditions)
        finally:
            self.depth -= 1

    def nodes(self, source: _Source, nodes: Iterable[Any], scope: _Scope, conditions: tuple[str, ...]) -> None:
        for node in nodes:
            if scope.ended in ("break", "continue") or (self.told and scope.ended == "exit"):
                return  # of what fails, it is taken that it does not
            self.node(source, node, scope, conditions)

    def node(self, source: _Source, node: Any, scope: _Scope, conditions: tuple[str, ...]) -> None:
        self.steps += 1
        if self.steps > MAX_STEPS or len(self.found) > MAX_COMMANDS:
            raise TooLargeError("a script of too many steps")
        if not node.is_named or self.depth >= MAX_DEPTH:
            return
        handler = _HANDLERS.get(node.type)
        self.depth += 1
        try:
            if handler is not None:
                handler(self, source, node, scope, conditions)
        finally:
            self.depth -= 1

    def branch(self, scope: _Scope) -> _Scope:
        """What a branch begins with."""
        self.steps += len(scope.variables) // COPY
        return scope.copy()

    def _children(self, source: _Source, node: Any, scope: _Scope, conditions: tuple[str, ...]) -> None:
        self.nodes(source, node.children, scope, conditions)

    def _subshell(self, source: _Source, node: Any, scope: _Scope, conditions: tuple[str, ...]) -> None:
        self.nodes(source, node.children, self.branch(scope), conditions)

    def _list(self, source: _Source, node: Any, scope: _Scope, conditions: tuple[str, ...]) -> None:
        inner = conditions
        status: bool | None = True  # of all that is before, and what it is taken to be
        assumed: bool | None = True
        tests = True  # whether that is nothing but tests and what they set
        leaves = ""
        chain = _chain(node)
        setting = max((number for number, (_, part) in enumerate(chain) if _sets(part)), default=0)
        for number, (joint, part) in enumerate(chain):
            either = joint is not None and joint.type == "||"
            runs, likely = (status, assumed) if not either else (_negated(status), _negated(assumed))
            end = min(joint.start_byte, node.start_byte + MAX_WRITTEN) if joint is not None else node.start_byte
            written = _short(source.value.text.value[node.start_byte : end])
            if either:
                inner = (*conditions, f"not: {written}")
            if runs is False:
                continue
            # a test is one of what is there before it runs, for what follows it
            verdict = self._decide(source, [part], scope) if number + 1 < len(chain) else None
            guess = verdict
            if verdict is None and number < setting:
                guess = self._assume(source, [part], scope)
            if runs is None and tests and _sets(part):
                self._set_if(source, part, f"not: {written}" if either else written, likely, scope, inner)
            else:
                self.node(source, part, scope, inner)
                leaves = scope.ended if runs and scope.ended in ("break", "continue") else leaves
            status = verdict if runs else either if verdict is either else None
            assumed = guess if likely else either if likely is False or guess is either else None
            tests = tests and (_sets(part) or _tests([part]))
        scope.ended = leaves  # what else ends here does so on a condition

    def _set_if(
        self,
        source: _Source,
        node: Any,
        why: str,
        likely: bool | None,
        scope: _Scope,
        conditions: tuple[str, ...],
    ) -> None:
        """``[ CONDITION ] && NAME=value``, ``[ CONDITION ] || NAME=value``."""
        inner, rest = self.branch(scope), self.branch(scope)
        self.node(source, node, inner, conditions)
        taken = None if likely is None else inner if likely else rest
        _merge(scope, [(inner, why), (rest, "")], source.span(node), taken)

    def _redirected(self, source: _Source, node: Any, scope: _Scope, conditions: tuple[str, ...]) -> None:
        body = node.child_by_field_name("body")
        extra: list[Any] = []
        for child in node.children:
            if child.type == "file_redirect":
                extra += _destinations(child)[1:]
            elif child.type == "heredoc_redirect":
                extra += [inner for inner in child.children if inner.type in _ARGUMENTS]
        if body is None:
            return
        if body.type == "command":
            self._command(source, body, scope, conditions, extra, self._document(source, node, scope))
            self._copy(source, body, scope, node.children)
        elif body.type != "while_statement" or not self._line_by_line(source, node, body, scope, conditions):
            self.node(source, body, scope, conditions)
        last = body  # the parser takes it for the whole list's
        while last.type == "list":
            last = last.named_children[-1]
        if last.type == "command":
            self._print(source, last, scope, node.children, conditions)
        for child in node.children:
            if child.type == "heredoc_redirect":
                self._here_document(source, node, child, scope, conditions)

    def _copy(self, source: _Source, command: Any, scope: _Scope, redirects: Sequence[Any] = ()) -> None:
        """Keep a file that a command copies, changed in nothing that matters: ``cp a b``, ``tr -d '\\r' < a > b``."""
        name = command.child_by_field_name("name")
        head = source.text(name).rpartition("/")[2] if name is not None else ""
        files = self._words(source, command.children_by_field_name("argument"), scope) if head in _COPIERS else []
        files = [word for word in files if not word.value.startswith("-")]
        if head == "sed" and files and not _LINE_ENDS.search(files.pop(0).value):
            return  # another text
        if head in _FILTERS:
            files = files if head != "tr" else []
            ends = {"<": files[:], ">": []}
            for child in redirects:
                if child.type == "file_redirect" and child.children[0].type in ends:
                    ends[child.children[0].type] = self._words(source, _destinations(child)[:1], scope)
            files = [*ends["<"], *ends[">"]] if ends[">"] else []
        if len(files) != 2 or not all(word.resolved for word in files):
            return
        text = self._file(files[0])
        if text is not None:
            target = posixpath.normpath(files[1].value)
            self.copied[target] = self.copied[posixpath.join(target, posixpath.basename(files[0].value))] = text

    def _line_by_line(
        self, source: _Source, statement: Any, loop: Any, scope: _Scope, conditions: tuple[str, ...]
    ) -> bool:
        """``while IFS=, read -r a b; do ...; done <<EOF``, over lines that are known and few; whether it is one."""
        text = self._document(source, statement, scope)
        for child in statement.children:
            if child.type == "herestring_redirect":
                text = self._single(source, child.children[-1], scope)
        condition, *_ = (child for child in loop.children if child.is_named)
        reads = condition.child_by_field_name("name") if condition.type == "command" else None
        if text is None or not text.resolved or reads is None or source.text(reads) != "read":
            return False
        ends = [match.end() for match in re.finditer(r"[^\n]*\n|[^\n]+\Z", text.value)]
        if len(ends) > MAX_ITEMS or self.steps > MAX_UNROLLED:
            return False
        for start, end in pairwise([0, *ends]):
            self._command(source, condition, scope, conditions, [], text.slice(start, end))
            if self._ends_with(
                source, [child for child in loop.children if child.type == "do_group"], scope, conditions
            ):
                break
        return True

    def _ends_with(self, source: _Source, body: Sequence[Any], scope: _Scope, conditions: tuple[str, ...]) -> bool:
        """Run one round of a loop; whether it is the last one."""
        self.nodes(source, body, scope, conditions)
        ended, scope.ended = scope.ended, _after_loop(scope.ended)
        return ended == "break"

    def _document(self, source: _Source, statement: Any, scope: _Scope) -> Value | None:
        """What a statement reads from a here document."""
        redirect = next((child for child in statement.children if child.type == "heredoc_redirect"), None)
        parts = {child.type: child for child in (*statement.children, *(redirect.children if redirect else ()))}
        text, start = parts.get("heredoc_body"), parts.get("heredoc_start")
        if text is None or start is None:
            return None
        return source.slice(text) if source.text(start)[:1] in "'\"\\" else self._quoted(source, text, scope)

    def _here_document(
        self, source: _Source, statement: Any, redirect: Any, scope: _Scope, conditions: tuple[str, ...]
    ) -> None:
        """A script in a here document: run by the shell that reads it, or kept as the file that it is written to."""
        parts = {child.type: child for child in (*statement.children, *redirect.children)}
        value = self._document(source, statement, scope)
        if value is None:
            return
        readers = [child for child in statement.children if child.type == "command"]
        if "pipeline" in parts:
            readers += [child for child in parts["pipeline"].children if child.type == "command"]
        targets: list[Word] = []
        for reader in readers:
            words, _ = unwrap(tuple(self._words(source, [child for child in reader.children if child.is_named], scope)))
            name = basename(words[0]) if words else ""
            if name in HANDS_ON or (name in SHELLS and not _names_script(words)):
                self.script(value, self._inner(scope, [], []), conditions)
                return
            if name == "tee":
                targets += [word for word in words[1:] if not word.value.startswith("-")]
        grows = any(word.value in ("-a", "--append") for word in words[1:]) if readers else False
        if "file_redirect" in parts:
            targets += self._words(source, _destinations(parts["file_redirect"])[:1], scope)
            grows = any(child.type == ">>" for child in parts["file_redirect"].children)
        for target in targets:
            self._write(target, value, conditions, grows=grows)

    def _print(
        self, source: _Source, command: Any, scope: _Scope, redirects: Sequence[Any], conditions: tuple[str, ...]
    ) -> None:
        """Keep a script that is printed into a file: ``echo 'exec vllm serve m' >> start.sh``."""
        name = command.child_by_field_name("name")
        head = source.text(name) if name is not None else ""
        redirect = next((child for child in redirects if child.type == "file_redirect"), None)
        if head not in ("echo", "printf") or redirect is None or redirect.children[0].type not in (">", ">>"):
            return
        target = self._words(source, _destinations(redirect)[:1], scope)
        words = self._words(source, command.children_by_field_name("argument"), scope)
        while head == "echo" and words and re.fullmatch(r"-[neE]+", words[0].value):
            del words[0]
        if head == "printf" and words[0:1] and words[0].value in ("%s", "%s\\n"):
            del words[0]
        if not target or not words or (head == "printf" and len(words) > 1):
            return
        value = _joined(words)
        escapes = re.finditer(r"\\[nt\\\"]", value.masked())
        value = value.replaced(escapes, lambda match, it: Value(Text.at(_ESCAPES.get(match[0], match[0][1]), it.span)))
        end = Value(Text.at("\n", source.span(command)))
        self._write(target[0], Value.join([value, end]), conditions, grows=redirect.children[0].type == ">>")

    def _write(self, target: Word, value: Value, conditions: tuple[str, ...], *, grows: bool) -> None:
        """Keep a script, or settings, that are written into a file."""
        path = posixpath.normpath(target.value)
        files = self.settings if target.value.endswith(_SETTINGS_ENDINGS) else self.written
        if conditions and files is self.settings and path in self.settings:
            self.settings[path] = Value(Text.at("", target.span))  # one of several
            return
        before = files.get(path) if grows else None
        scripts = target.value.endswith(_SCRIPT_ENDINGS) or _SHEBANG.match(value.value)
        if before is not None or scripts or files is self.settings:
            files[path] = value if before is None else Value.join([before, value])
            self.steps += len(files[path].text) // STEP
            if len(files[path].text) > MAX_CHARACTERS:
                raise TooLargeError(f"{path} grows beyond {MAX_CHARACTERS:,} characters")

    def _settings_of(self, words: Sequence[Word]) -> dict[str, Value]:
        """The files of settings written before that words name (``--config /tmp/x.yaml``, ``--config=/tmp/x.yaml``)."""
        if not self.settings:
            return {}
        paths = {posixpath.normpath(word.value.rpartition("=")[2]) for word in words}
        return {path: value for path in paths if (value := self.settings.get(path)) is not None and value.value}

    def _if(self, source: _Source, node: Any, scope: _Scope, conditions: tuple[str, ...]) -> None:
        branches: list[tuple[list[Any], list[Any]]] = []
        otherwise: list[Any] | None = None
        condition, body = _until_then(node.children)
        branches.append((condition, [child for child in body if child.type not in ("elif_clause", "else_clause")]))
        for child in body:
            if child.type == "elif_clause":
                branches.append(_until_then(child.children))
            elif child.type == "else_clause":
                otherwise = list(child.children)
        outcomes: list[tuple[_Scope, str]] = []
        negated: list[str] = []
        likely: _Scope | None = None
        decided = True  # whether every condition is, where what nobody sets is empty
        for condition, body in branches:
            verdict = self._decide(source, condition, scope)
            written = _short(_written(source, condition))
            if verdict is False:
                continue
            if verdict is True and not outcomes:
                self.nodes(source, body, scope, conditions)
                return
            inner = self.branch(scope)
            self.nodes(source, condition, inner, conditions)
            assumed = verdict or self._assume(source, condition, scope)
            if likely is None and assumed:
                likely = inner
            decided = decided and assumed is not None
            self.nodes(source, body, inner, (*conditions, *negated, written))
            outcomes.append((inner, written))
            negated.append(f"not: {written}")
            if verdict is True:
                break
        else:
            if not outcomes:
                self.nodes(source, otherwise or [], scope, conditions)
                return
            inner = self.branch(scope)
            if otherwise:
                self.nodes(source, otherwise, inner, (*conditions, *negated))
            outcomes.append((inner, negated[0]))
            likely = likely or inner
        _merge(scope, outcomes, source.span(node), likely if decided else None)

    def _case(self, source: _Source, node: Any, scope: _Scope, conditions: tuple[str, ...]) -> None:
        subject_node = node.child_by_field_name("value")
        subject = self._single(source, subject_node, scope) if subject_node is not None else None
        without = None if subject is None or self.uncalled else _emptied(subject)
        likely: _Scope | None = None
        outcomes: list[tuple[_Scope, str]] = []
        exhaustive = False
        for item in node.children:
            if item.type != "case_item":
                continue
            patterns, body = _case_item(item)
            written = [source.text(pattern) for pattern in patterns]
            plain = [re.sub(r"['\"]|\\(.)", _literal, pattern) for pattern in written]
            if subject is not None and subject.resolved and not any("$" in pattern for pattern in plain):
                if any(matches_pattern(subject.value, pattern) for pattern in plain):
                    self.nodes(source, body, scope, conditions)
                    return
                continue
            inner = self.branch(scope)
            name = source.text(subject_node) if subject_node is not None else ""
            condition = f"{name} is {' or '.join(written)}"
            self.nodes(source, body, inner, (*conditions, condition))
            outcomes.append((inner, condition))
            exhaustive = exhaustive or "*" in plain
            if without is None or not without.resolved or likely is not None:
                continue
            if any("$" in pattern for pattern in plain):
                without = None
            elif any(matches_pattern(without.value, pattern) for pattern in plain):
                likely = inner
        if outcomes:
            if not exhaustive:
                outcomes.append((self.branch(scope), "no case applies"))
            _merge(scope, outcomes, source.span(node), likely)

    def _for(self, source: _Source, node: Any, scope: _Scope, conditions: tuple[str, ...]) -> None:
        variable = node.child_by_field_name("variable")
        body = node.child_by_field_name("body")
        if body is None:
            return
        name = source.text(variable) if variable is not None else ""
        if source.text(node).startswith("select"):
            span = source.span(node)
            scope.assign(name, Value.unknown(Text.at(f"${name}", span), asked(name)), span)
            self.node(source, body, scope, conditions)
            scope.ended = _after_loop(scope.ended)
            return
        values = [child for child in node.children if child.type in _ARGUMENTS and child.start_byte > _end(variable)]
        items: list[Word] = []
        for word in self._words(source, [child for child in values if child.end_byte <= body.start_byte], scope):
            items += _range(word)
        if not values and scope.arguments is not None:
            items = list(scope.arguments)
        if items and len(items) <= MAX_ITEMS and all(item.resolved for item in items) and self.steps < MAX_UNROLLED:
            for item in items:
                scope.assign(name, Value(item.text), item.span)
                if self._ends_with(source, [body], scope, conditions):
                    return
            return
        span = source.span(node)
        inner = self.branch(scope)
        inner.assign(name, Value.unknown(Text.at(f"${name}", span), f"{name} runs through a list in a loop"), span)
        self.node(source, body, inner, conditions)
        inner.ended = _after_loop(inner.ended)
        _merge(scope, [(inner, "the loop runs"), (self.branch(scope), "")], span)

    def _c_for(self, source: _Source, node: Any, scope: _Scope, conditions: tuple[str, ...]) -> None:
        body = node.child_by_field_name("body")
        span = source.span(node)
        counts = _counts(source, node, scope)
        if body is not None and counts is not None and self.steps < MAX_UNROLLED:
            for number in counts[1]:
                scope.assign(counts[0], Value(Text.at(str(number), span)), span)
                if self._ends_with(source, [body], scope, conditions):
                    return
            return
        inner = self.branch(scope)
        head = source.masked[node.start_byte : body.start_byte] if body is not None else ""
        for name in dict.fromkeys(re.findall(r"([A-Za-z_]\w*)\s*=[^=]", head)):
            unknown = Value.unknown(Text.at(f"${name}", span), f"{name} counts in a loop", splits=False)
            inner.assign(name, unknown, span)
        if body is not None:
            self.node(source, body, inner, conditions)
        inner.ended = _after_loop(inner.ended)
        _merge(scope, [(inner, "the loop runs"), (self.branch(scope), "")], span)

    def _while(self, source: _Source, node: Any, scope: _Scope, conditions: tuple[str, ...]) -> None:
        condition = [child for child in node.children if child.type != "do_group"]
        body = [child for child in node.children if child.type == "do_group"]
        if not scope.arguments and any(source.text(child).startswith("getopts ") for child in condition):
            return  # without known arguments there are no options
        until = node.children[0].type == "until"
        written = _short(_written(source, condition))
        # one round of an endless loop, and of one that sleeps until something is there, shows all that it starts
        once = written in ("true", ":") or any(_sleeps(source, child) for child in body)
        for _ in range(MAX_ITERATIONS):
            verdict = self._decide(source, condition, scope)
            verdict = (not verdict) if until and verdict is not None else verdict
            if verdict is False:
                return
            if verdict is None:
                break
            before = (dict(scope.variables), None if scope.arguments is None else list(scope.arguments))
            if self._ends_with(source, body, scope, conditions) or once or before == (scope.variables, scope.arguments):
                return
        inner = self.branch(scope)
        self.nodes(source, condition, inner, conditions)
        self.nodes(source, body, inner, (*conditions, written))
        inner.ended = _after_loop(inner.ended)
        _merge(scope, [(inner, written), (self.branch(scope), "")], source.span(node))

    def _function(self, source: _Source, node: Any, scope: _Scope, conditions: tuple[str, ...]) -> None:
        name = node.child_by_field_name("name")
        body = node.child_by_field_name("body")
        if name is not None and body is not None:
            scope.functions[source.text(name)] = (source, body)

    # -- assignments -------------------------------------------------------------------------------------------

    def _assignment(
        self, source: _Source, node: Any, scope: _Scope, conditions: tuple[str, ...], *, into: _Scope | None = None
    ) -> str | None:
        target = into or scope
        name_node = node.child_by_field_name("name")
        value_node = node.child_by_field_name("value")
        if name_node is None:
            return None
        span = source.span(node)
        if name_node.type != "variable_name":  # an element of an array
            self._element(source, node, scope, target)
            return source.text(name_node).partition("[")[0]
        name = source.text(name_node)
        appends = any(child.type == "+=" for child in node.children)
        if value_node is not None and value_node.type == "array":
            items = self._words(source, [child for child in value_node.children if child.is_named], scope)
            previous = scope.variables.get(name)
            if isinstance(previous, dict):
                keyed = _keyed(name, items, span)
                target.assign(name, {**previous, **keyed} if appends and isinstance(keyed, dict) else keyed, span)
                return name
            if appends:
                head = previous if isinstance(previous, list) else [previous.word(quoted=False)] if previous else []
                items = [*head, *items]
            target.assign(name, items, span)
            return name
        anchor = source.value.text.slice(node.end_byte, node.end_byte)
        fields = Fields(split=False)
        if value_node is not None:
            lex(source.value, value_node.start_byte, node.end_byte, fields, expander=self._expander(scope))
        value = fields.value(anchor)
        if appends:
            previous = scope.variables.get(name)
            if isinstance(previous, list):
                target.assign(name, [*previous, value.word()] if value.value else previous, span)
                return name
            value = Value.join([previous, value]) if isinstance(previous, Value) else value
        if len(value.text) > MAX_CHARACTERS:
            raise TooLargeError(f"{name} grows beyond {MAX_CHARACTERS:,} characters")
        target.assign(name, value, span)
        return name

    def _element(self, source: _Source, node: Any, scope: _Scope, target: _Scope) -> None:
        """``NAME[KEY]=value``."""
        name_node, value_node = node.child_by_field_name("name"), node.child_by_field_name("value")
        name, span = source.text(name_node).partition("[")[0], source.span(node)
        index = name_node.child_by_field_name("index")
        key = self._single(source, index, scope) if index is not None else None
        stored = scope.variables.get(name)
        elements = _elements_of(stored)
        if key is None or not key.resolved or elements is None:
            reason = "an array whose elements are set one by one"
            target.assign(name, Value.unknown(Text.at(f"${name}", span), reason), span)
            return
        fields = Fields(split=False)
        if value_node is not None:
            lex(source.value, value_node.start_byte, node.end_byte, fields, expander=self._expander(scope))
        value = fields.value(source.value.text.slice(node.end_byte, node.end_byte))
        if key.value in elements and any(child.type == "+=" for child in node.children):
            value = Value.join([elements[key.value], value])
        target.assign(name, {**elements, key.value: value}, span)

    def _assignments(self, source: _Source, node: Any, scope: _Scope, conditions: tuple[str, ...]) -> None:
        self._substituted(source, node, scope, conditions)
        self._assignment(source, node, scope, conditions)

    def _declaration(self, source: _Source, node: Any, scope: _Scope, conditions: tuple[str, ...]) -> None:
        keyword = node.children[0].type if node.children else ""
        options = "".join(source.text(child) for child in node.children if source.text(child).startswith("-"))
        for child in node.children:
            name: str | None = None
            if child.type == "variable_assignment":
                self._substituted(source, child, scope, conditions)
                name = self._assignment(source, child, scope, conditions)
                stored = scope.variables.get(name or "")
                if name and "A" in options and isinstance(stored, list):
                    scope.assign(name, _keyed(name, stored, source.span(child)), source.span(child))
            elif child.type == "variable_name":
                name = source.text(child)
                if "A" in options and not isinstance(scope.variables.get(name), dict):
                    scope.assign(name, {}, source.span(child))
            if name and (keyword == "export" or "x" in options) and "n" not in options:
                scope.exported.add(name)
                scope.touched.setdefault(name, source.span(child))

    def _unset(self, source: _Source, node: Any, scope: _Scope, conditions: tuple[str, ...]) -> None:
        for child in node.children:
            if child.type == "variable_name":
                scope.variables.pop(source.text(child), None)
                scope.touched.pop(source.text(child), None)

    # -- simple commands ---------------------------------------------------------------------------------------

    def _substituted(self, source: _Source, node: Any, scope: _Scope, conditions: tuple[str, ...]) -> None:
        """The commands whose output a word takes (``ID=$(docker run ...)``): they run too."""
        text, start, end = source.masked, node.start_byte, node.end_byte
        if text.find("$(", start, end) < 0 and text.find("`", start, end) < 0:
            return
        if not _RUNS.search(text, start, end):
            return
        stack = [node]
        while stack:
            inner = stack.pop()
            if inner.type == "command_substitution":
                self.nodes(source, inner.children, self.branch(scope), conditions)
            else:
                stack += reversed(inner.children)

    def _simple(self, source: _Source, node: Any, scope: _Scope, conditions: tuple[str, ...]) -> None:
        self._command(source, node, scope, conditions, [])

    def _command(
        self,
        source: _Source,
        node: Any,
        scope: _Scope,
        conditions: tuple[str, ...],
        extra: Sequence[Any],
        document: Value | None = None,
    ) -> None:
        self._substituted(source, node, scope, conditions)
        if self._only_prints(source, node, scope, conditions):
            return
        own = _Scope({}, set(), {}, {}, None)
        arguments: list[Any] = []
        self.input = document
        for child in node.children:
            if child.type == "herestring_redirect":
                self.input = self._single(source, child.children[-1], scope)
            if child.type == "variable_assignment":
                self._assignment(source, child, scope, conditions, into=own)
            elif child.type in ("file_redirect", "herestring_redirect", "heredoc_redirect"):
                arguments += _destinations(child)[1:] if child.type == "file_redirect" else []
            elif child.is_named or child.type not in ("$", "&", ";"):
                arguments.append(child)
        words = tuple(self._words(source, [*arguments, *extra], scope))
        prefix = [
            Assignment(name, value, own.touched[name])
            for name, value in own.variables.items()
            if isinstance(value, Value)
        ]
        if not words:
            for item in prefix:
                scope.assign(item.name, item.value, item.span)
            return
        self.words(words, scope, prefix, conditions, source.span(node))

    def _only_prints(self, source: _Source, node: Any, scope: _Scope, conditions: tuple[str, ...]) -> bool:
        """Whether a command starts and sets nothing, whatever its words are; it is found by its name alone."""
        name = node.child_by_field_name("name")
        head = source.text(name) if name is not None else ""
        if head not in SILENT or head in scope.functions:
            return False
        if head in _COPIERS and self.find is not None:
            self._copy(source, node, scope)
        if source.masked.find("=", name.end_byte, node.end_byte) >= 0 and _DEFAULTS.search(source.text(node)):
            return False
        self.found.append(Command((Word(source.slice(name).text),), (), conditions, source.span(node)))
        return True

    def words(
        self,
        words: tuple[Word, ...],
        scope: _Scope,
        prefix: Sequence[Assignment],
        conditions: tuple[str, ...],
        span: Span,
        *,
        builtins: bool = True,
    ) -> None:
        """A simple command whose words are known: a builtin, a function, a nested shell, or a program."""
        prefix = list(prefix)
        replaces = builtins and len(words) > 1 and words[0].value == "exec"
        words, added = unwrap(words)
        prefix += added
        if not words:
            return
        self._run_words(words, scope, prefix, conditions, span, builtins=builtins)
        if replaces and self.told:
            scope.ended = "exit"  # the script is no more

    def _run_words(
        self,
        words: tuple[Word, ...],
        scope: _Scope,
        prefix: Sequence[Assignment],
        conditions: tuple[str, ...],
        span: Span,
        *,
        builtins: bool,
    ) -> None:
        head = words[0].value if words[0].resolved else ""
        if builtins and self._builtin(head, words, scope, conditions, span, prefix):
            return
        outermost = self.caller
        self.caller = outermost or span
        inside = self._call(head, words[1:], scope, prefix, conditions)
        inside = inside or self._nested(words, scope, prefix, conditions)
        self.caller = outermost
        if not inside:
            names = {item.name for item in prefix}
            environment = (*(item for item in scope.environment() if item.name not in names), *prefix)
            settings = self._settings_of(words)
            self.found.append(Command(words, environment, conditions, span, self.caller, settings))

    def _call(
        self,
        name: str,
        arguments: tuple[Word, ...],
        scope: _Scope,
        prefix: Sequence[Assignment],
        conditions: tuple[str, ...],
    ) -> bool:
        """A function of the script; whether there is one of that name."""
        if name not in scope.functions or self.depth >= MAX_DEPTH:
            return False
        if name in self.calling:
            return True  # the first round of a function that calls itself shows all that it starts
        if self._inert(name, scope):
            scope.ended = _exit_of(*scope.functions[name])
            return True
        self.called.add(name)
        self.calling.append(name)
        source, body = scope.functions[name]
        outer, scope.arguments = scope.arguments, list(arguments)
        for item in prefix:
            scope.assign(item.name, item.value, item.span)
            scope.exported.add(item.name)
        self.node(source, body, scope, conditions)
        scope.arguments = outer
        if scope.ended not in ("exit", "fail"):
            scope.ended = ""
        self.calling.pop()
        return True

    def _inert(self, name: str, scope: _Scope) -> bool:
        """Whether a function starts nothing and leaves nothing behind."""
        if name not in scope.functions:
            return False
        source, body = scope.functions[name]
        known = self.inert.get(body.id)
        if known is None:
            self.inert[body.id] = False  # of those that call each other
            known = self.inert[body.id] = is_inert(body, source.text, lambda other: self._inert(other, scope))
        if known:
            self.called.add(name)
        return known

    def _builtin(
        self,
        head: str,
        words: tuple[Word, ...],
        scope: _Scope,
        conditions: tuple[str, ...],
        span: Span,
        prefix: Sequence[Assignment],
    ) -> bool:
        if head == "eval":
            self.script(_joined(words[1:], splits=True), scope, conditions)
        elif head in ("source", ".") and len(words) > 1:
            text = self._file(words[1])
            if text is not None:
                outermost = self.caller
                self.caller = outermost or span
                self.script(text, scope, conditions)
                self.caller = outermost
                scope.ended = "" if scope.ended == "return" else scope.ended
        elif head == "set":
            rest = [word.value for word in words]
            if "--" in rest:
                scope.arguments = list(words[rest.index("--") + 1 :])
            for before, option in pairwise(rest):
                if option == "--":
                    break
                if option == "allexport" or re.fullmatch(r"[-+][A-Za-z]*a[A-Za-z]*", option):
                    scope.exports_all = (before if option == "allexport" else option).startswith("-")
        elif head == "shift":
            count = int(words[1].value) if len(words) > 1 and re.fullmatch(r"[0-9]{1,6}", words[1].value) else 1
            if scope.arguments is not None:
                scope.arguments = scope.arguments[count:]
        elif head == "read" and self.input is not None:
            self._read(words, self.input, scope, span, prefix)
        elif head in ("read", "mapfile", "readarray", "getopts"):
            prompts = any(re.fullmatch(r"-[a-z]*p", word.value) for word in words[1:])
            for word in words[1:]:
                if re.fullmatch(r"[A-Za-z_]\w*", word.value):
                    reason = asked(word.value) if prompts else f"{word.value} is read at run time"
                    scope.assign(word.value, Value.unknown(Text.at(f"${word.value}", span), reason), span)
        elif head == "cd":
            if len(words) > 1 and words[1].resolved and words[1].value.startswith("/"):
                self.folder = words[1].value.rstrip("/")
        elif head == "let":
            for word in words[1:]:
                name = re.match(r"[A-Za-z_]\w*", word.value)
                if name:
                    reason = f"{name.group()} is computed at run time"
                    scope.assign(name.group(), Value.unknown(Text.at(f"${name.group()}", span), reason), span)
        elif head in ("exit", "return", "break", "continue"):
            failed = head == "exit" and len(words) > 1 and words[1].value != "0"
            scope.ended = "fail" if failed else head
        else:
            return head in ("trap", "alias", "wait", "true", "false", ":")
        return True

    def _read(
        self, words: tuple[Word, ...], text: Value, scope: _Scope, span: Span, prefix: Sequence[Assignment]
    ) -> None:
        """``IFS=: read -r a b c <<< "$X"``, ``read -ra LIST <<< "$X"``."""
        marks = next((item.value.value for item in prefix if item.name == "IFS"), BLANKS)
        options = "".join(word.value for word in words[1:] if word.value.startswith("-"))
        names = [word.value for word in words[1:] if re.fullmatch(r"[A-Za-z_]\w*", word.value)]
        parts = _divided(text, marks, MAX_CHARACTERS if "a" in options else max(len(names), 1))
        if re.fullmatch(r"(?:-r?)*d", options) and any(not word.value for word in words[1:]) and len(names) == 1:
            scope.assign(names[0], text, span)  # up to a character that is not there: all of it
            return
        plain = re.fullmatch(r"[-ra]*", options) and "\n" not in text.value.strip() and bool(marks)
        # what is not known may hold marks of its own
        known = text.resolved or ("a" not in options and len(parts) == len(names) and not marks.isspace())
        if not plain or not known:
            for name in names:
                unknown = Value.unknown(Text.at(f"${name}", span), f"{name} is read at run time")
                scope.assign(name, unknown, span)
        elif "a" in options:
            scope.assign(names[0] if names else "", [part.word() for part in parts], span)
        else:
            for number, name in enumerate(names):
                scope.assign(name, parts[number] if number < len(parts) else text.slice(0, 0), span)

    def _nested(
        self,
        words: tuple[Word, ...],
        scope: _Scope,
        prefix: Sequence[Assignment],
        conditions: tuple[str, ...],
    ) -> bool:
        """``sh -c SCRIPT [NAME [ARGUMENT...]]`` or ``sh FILE [ARGUMENT...]``, behind whatever wrapper."""
        script, rest, text = self._shell_text(words, scope)
        if text is None or script is None:
            if basename(words[0]) in HANDS_ON:
                for value in _handed_on(words):
                    self.script(value, self._inner(scope, prefix, []), conditions)
            return False
        inner = self._inner(scope, prefix, rest)
        at = next(index for index, word in enumerate(words) if word is script)
        if len(words) == at + 2 + len(rest):  # sh -c 'exec "$0" "$@"' PROGRAM ARGUMENT...
            inner.assign("0", value_of_word(words[at + 1]), words[at + 1].span)
        self.script(text, inner, conditions)
        return True

    def _inner(self, scope: _Scope, prefix: Sequence[Assignment], arguments: Sequence[Word]) -> _Scope:
        """What a script that is started from here begins with."""
        inner = _Scope.of_environment(
            {
                name: value
                for name, value in scope.variables.items()
                if name in scope.exported and isinstance(value, Value)
            },
            arguments,
        )
        inner.touched = {name: span for name, span in scope.touched.items() if name in scope.exported}
        for item in prefix:
            inner.assign(item.name, item.value, item.span)
            inner.exported.add(item.name)
        return inner

    def _shell_text(self, words: tuple[Word, ...], scope: _Scope) -> tuple[Word | None, Sequence[Word], Value | None]:
        for index, word in enumerate(words):
            if not names_program(word, SHELLS) or (index and _is_told(words, index)):
                continue
            at, is_script = index + 1, False
            if basename(word) == "busybox":
                at += 1
            while at < len(words) and words[at].value[:1] in ("-", "+") and words[at].value not in ("-", "--"):
                option = words[at].value
                is_script = is_script or bool(re.fullmatch(r"-[a-zA-Z]*c[a-zA-Z]*", option))
                at += 2 if option in _SHELL_OPTIONS_WITH_VALUE or re.fullmatch(r"-[a-z]*o", option) else 1
            if at < len(words) and words[at].value == "--":
                at += 1
            if at >= len(words):
                return None, (), None
            if is_script:
                return words[at], words[at + 2 :], value_of_word(words[at], splits=True)
            return words[at], words[at + 1 :], self._file(words[at])
        head = words[0]
        if (self.find or self.written) and ("/" in head.value or head.value.endswith(".sh")):
            text = self._file(head)
            if text is not None and (head.value.endswith((".sh", ".bash")) or _SHEBANG.match(text.value)):
                return head, words[1:], text
        return None, (), None

    def _file(self, word: Word) -> Value | None:
        """The text of a file that a word names."""
        own = posixpath.normpath(word.value) if self.written or self.copied else ""
        if own in self.written:
            self.ran.add(own)
            return self.written[own]
        if own in self.copied:
            return self.copied[own]
        path = path_of(word)
        if not self.find or not path:
            return None
        found = self.find(path)
        if found is None and self.folder and not path.startswith(("/", "~")):
            found = self.find(f"{self.folder}/{path.removeprefix('./')}")
        return found

    # -- conditions --------------------------------------------------------------------------------------------

    def _decide(self, source: _Source, condition: Sequence[Any], scope: _Scope) -> bool | None:
        nodes = [node for node in condition if node.is_named and node.type != "comment"]
        if len(nodes) != 1:
            return None
        return self._holds(source, nodes[0], scope)

    def _assume(self, source: _Source, condition: Sequence[Any], scope: _Scope) -> bool | None:
        """The verdict for a script that is started without any settings: what nobody sets is empty."""
        if self.uncalled:
            return None
        self.assuming = True
        verdict = self._decide(source, condition, scope)
        self.assuming = False
        return verdict

    def _holds(self, source: _Source, node: Any, scope: _Scope) -> bool | None:
        if node.type == "negated_command":
            inner = [child for child in node.children if child.is_named]
            verdict = self._holds(source, inner[0], scope) if len(inner) == 1 else None
            return None if verdict is None else not verdict
        if node.type == "command":
            return {"true": True, ":": True, "false": False}.get(source.text(node).strip())
        if _sets(node):  # as the last command whose output it takes
            return True if "$(" not in source.text(node) and "`" not in source.text(node) else None
        if node.type == "list":
            return self._both(source, node, scope)
        if node.type == "compound_statement":
            return self._holds_arithmetic(source, node, scope)
        if node.type == "redirected_statement":
            body = node.child_by_field_name("body")
            return self._holds(source, body, scope) if body is not None else None
        if node.type in ("test_command", "parenthesized_expression"):
            inner = [child for child in node.children if child.is_named]
            if node.type == "test_command" and source.text(node).startswith("(("):
                return None
            return self._holds(source, inner[0], scope) if len(inner) == 1 else None
        if node.type == "unary_expression":
            return self._holds_unary(source, node, scope)
        if node.type == "binary_expression":
            operator = node.child_by_field_name("operator")
            if operator is None:
                operator = next((child for child in node.children if not child.is_named), None)
            written = source.text(operator) if operator is not None else ""
            if written in ("&&", "||", "-a", "-o"):
                return self._both(source, node, scope)
            left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
            if left is None or right is None:
                return None
            if written == "=~":
                subject = self._single(source, left, scope)
                known = subject is not None and subject.resolved
                return matches_expression(subject.value, source.text(right)) if subject and known else None
            first, second = self._single(source, left, scope), self._pattern(source, node, scope)
            if first is None or second is None or not first.resolved:
                return None
            return _compare(first.value, written, second)
        return None

    def _pattern(self, source: _Source, node: Any, scope: _Scope) -> str | None:
        """What stands on the right of a comparison, as a pattern in which nothing that is quoted is a wildcard."""
        parts = node.children_by_field_name("right")
        if len(parts) == 1 and parts[0].type == "concatenation":
            parts = parts[0].children
        values = [(part, self._single(source, part, scope)) for part in parts]
        if any(value is None or not value.resolved for _, value in values):
            return None
        return "".join(
            re.sub(r"([*?[])", r"[\1]", value.value) if part.type.endswith("string") else value.value
            for part, value in values
            if value is not None
        )

    def _both(self, source: _Source, node: Any, scope: _Scope) -> bool | None:
        parts = [child for child in node.children if child.is_named and child.type != "test_operator"]
        either = any(source.text(child) in ("||", "-o") for child in node.children)
        verdicts = [self._holds(source, part, scope) for part in parts]
        if either:
            return True if True in verdicts else None if None in verdicts else False
        return False if False in verdicts else None if None in verdicts else True

    def _holds_unary(self, source: _Source, node: Any, scope: _Scope) -> bool | None:
        operator, operand = node.children[0], node.children[-1]
        written = source.text(operator)
        if written == "!":
            verdict = self._holds(source, operand, scope)
            return None if verdict is None else not verdict
        if written == "-t" and self.assuming:
            return False  # what is started by itself has no terminal
        if written not in ("-n", "-z"):
            return None
        value = self._single(source, operand, scope)
        if value is None or (not value.resolved and not value.masked(" ").strip()):
            return None  # see _assume for what is set nowhere
        return bool(value.value) is (written == "-n")

    def _holds_arithmetic(self, source: _Source, node: Any, scope: _Scope) -> bool | None:
        """``(( A > B ))``, ``(( A ))``."""
        match = _COMPARISON.fullmatch(source.slice(node).value)
        if match is None:
            return None
        left = evaluate_arithmetic(match["left"], scope.scalar)
        right = evaluate_arithmetic(match["right"], scope.scalar) if match["right"] else 0
        if not isinstance(left, int) or not isinstance(right, int):
            return None
        return _ORDERED[match["operator"] or "!="](left, right)

    def _quoted(self, source: _Source, node: Any, scope: _Scope) -> Value:
        """A here document with its variables, as within double quotes."""
        fields = Fields(split=False)
        lex(source.value, node.start_byte, node.end_byte, fields, quoted=True, expander=self._expander(scope))
        return fields.value(source.value.text.slice(node.start_byte, node.start_byte))

    def _single(self, source: _Source, node: Any, scope: _Scope) -> Value | None:
        fields = Fields(split=False)
        lex(source.value, node.start_byte, node.end_byte, fields, expander=self._expander(scope))
        value = fields.value(source.value.text.slice(node.start_byte, node.start_byte))
        return _emptied(value) if self.assuming else value

    # -- words -------------------------------------------------------------------------------------------------

    def _words(self, source: _Source, nodes: Sequence[Any], scope: _Scope) -> list[Word]:
        # the parser ends a word inside of some (`$A-$B-x`); what touches is one
        runs: list[tuple[int, int]] = []
        for node in nodes:
            if node.type == "comment":
                continue
            start, end = node.start_byte, node.end_byte
            if runs and start <= runs[-1][1]:
                start, _ = runs.pop()
            runs.append((start, end))
        fields = Fields()
        for index, (start, end) in enumerate(runs):
            if index:
                fields.end_word()
            lex(source.value, start, end, fields, expander=self._expander(scope))
        self.steps += fields.size // STEP
        return fields.words()

    def _expander(self, scope: _Scope, depth: int = 0) -> Callable[[Value, int, bool, Fields], int]:
        def expand(value: Value, at: int, quoted: bool, fields: Fields) -> int:
            return self._dollar(value, at, quoted, fields, scope, depth)

        return expand

    def _dollar(self, value: Value, at: int, quoted: bool, fields: Fields, scope: _Scope, depth: int) -> int:
        text = value.masked()
        size = len(text)
        if text[at] == "`":
            close = text.find("`", at + 1)
            return self._substitution(value, at, size if close < 0 else close + 1, quoted, fields, scope, depth)
        follower = text[at + 1 : at + 2]
        if follower == "(":
            close = closing_bracket(text, at + 1, size)
            if text.startswith("$((", at) and text[close - 1 : close + 1] == "))":
                self._arithmetic(value, at, close + 1, quoted, fields, scope)
                return close + 1
            return self._substitution(value, at, min(close + 1, size), quoted, fields, scope, depth)
        if follower == "{":
            close = closing_bracket(text, at + 1, size)
            if close >= size or depth > MAX_DEPTH:
                fields.add(Value.unknown(value.text.slice(at, size), "no closing brace"), quoted=quoted)
                return size
            self._parameter(value, at, close, quoted, fields, scope, depth)
            return close + 1
        if not quoted and follower == "'":
            close = at + 2
            while close < size and text[close] != "'":
                close += 2 if text[close] == "\\" else 1
            fields.add(Value(_unescaped(value.text, at + 2, min(close, size))), quoted=True)
            return min(close + 1, size)
        if not quoted and follower == '"':
            return at + 1 if depth > MAX_DEPTH else self._skip_dollar(value, at, fields)
        name = re.compile(r"[A-Za-z_]\w*|[0-9@*#?$!\-]").match(text, at + 1)
        if not name:
            return at
        self._variable(value.slice(at, name.end()), name.group(), quoted, fields, scope)
        return name.end()

    def _skip_dollar(self, value: Value, at: int, fields: Fields) -> int:
        fields.add(value.slice(at, at), quoted=True)  # $"..." is a string for translators
        return at + 1

    def _substitution(
        self, value: Value, at: int, end: int, quoted: bool, fields: Fields, scope: _Scope, depth: int
    ) -> int:
        whole = value.text.slice(at, end)
        if _REMARK.fullmatch(whole.value):
            return end
        document = _DOCUMENT.fullmatch(value.masked(), at + 2, end - 1) if whole.value.startswith("$(") else None
        if document is not None and depth <= MAX_DEPTH:
            text = Fields(split=False)
            start = document.start("text")
            stop = start + len(document["text"].rstrip("\n"))
            if document["quote"]:
                text.add(value.slice(start, stop), quoted=True)
            else:
                lex(value, start, stop, text, quoted=True, expander=self._expander(scope, depth + 1))
            fields.add_expanded(text.value(value.text.slice(start, start)), whole.span, quoted=quoted)
            return end
        first = at + (2 if whole.value.startswith("$(") else 1)
        known = self._printed(value, first, end - 1, scope, depth)
        said = Value(Text.at(known, whole.span)) if known is not None else None
        if said is None and scope.functions:
            said = self._told_by_function(value, first, end - 1, scope, depth)
        if said is not None:
            fields.add_expanded(said, whole.span, quoted=quoted)
            return end
        unknown = Value.unknown(whole, f"{_short(whole.value)} is known at run time only")
        program = _LOOKS_UP.fullmatch(value.masked(), at + (2 if whole.value.startswith("$(") else 1), end - 1)
        if program is not None:  # it is there, in a folder that is not known
            unknown = Value.join([unknown, Value(Text.at(f"/{program['name']}", whole.span))])
        fields.add(unknown, quoted=quoted)
        return end

    def _printed(self, value: Value, start: int, end: int, scope: _Scope, depth: int) -> str | None:
        """What a command substitution yields where that depends on its words alone."""
        inside = value.value[start:end]
        if depth > MAX_DEPTH or len(inside) > MAX_PRINTING or not _PRINTS.match(inside) or _RUNS_MORE.search(inside):
            return None
        from kvgate.shell.printed import printed

        words = Fields()
        lex(value, start, end, words, expander=self._expander(scope, depth + 1))
        found = words.words()
        return printed([word.value for word in found]) if all(word.resolved for word in found) else None

    # -- what functions print ----------------------------------------------------------------------------------

    def _told_by_function(self, value: Value, start: int, end: int, scope: _Scope, depth: int) -> Value | None:
        """What a substitution yields that calls a function of the script (``$(model_of "$1")``)."""
        inside = value.value[start:end]
        match = _CALLS.match(inside) if len(inside) <= MAX_PRINTING else None
        if match is None or match[1] not in scope.functions or _RUNS_MORE.search(inside) or "|" in inside:
            return None
        if depth > MAX_DEPTH or self.steps > MAX_UNROLLED:
            return None
        words = Fields()
        lex(value, start, end, words, expander=self._expander(scope, depth + 1))
        return self._output(match[1], words.words()[1:], scope)

    def _output(self, name: str, arguments: Sequence[Word], scope: _Scope) -> Value | None:
        """What a function prints, its last line ends taken off; None where it takes more than `echo` to know."""
        if name in self.calling or self.depth >= MAX_DEPTH:
            return None
        source, body = scope.functions[name]
        inner = self.branch(scope)
        inner.arguments = list(arguments)
        lines: list[Value] = []
        self.calling.append(name)
        self.depth += 1
        ended = self._says(source, body.children, inner, lines)
        self.depth -= 1
        self.calling.pop()
        if ended is None:
            return None
        parts = [part for line in lines for part in (Value(Text.at("\n", line.span)), line)][1:]
        return Value.join(parts) if parts else Value(source.value.text.slice(body.start_byte, body.start_byte))

    def _says(self, source: _Source, nodes: Iterable[Any], scope: _Scope, lines: list[Value]) -> bool | None:
        """Gather what statements print; whether they leave the function. None where one is not followed here."""
        for node in nodes:
            self.steps += 1
            if not node.is_named or node.type == "comment":
                continue
            if self.steps > MAX_UNROLLED:
                return None
            if node.type in ("variable_assignment", "variable_assignments", "declaration_command"):
                self.node(source, node, scope, ())
                continue
            leaves: bool | None = None
            if node.type == "compound_statement":
                leaves = self._says(source, node.children, scope, lines)
            elif node.type in ("if_statement", "case_statement"):
                taken = self._taken(source, node, scope)
                leaves = None if taken is None else self._says(source, taken, scope, lines)
            elif node.type == "list":
                leaves = self._says_of_list(source, node, scope, lines)
            elif node.type == "command":
                leaves = self._says_of_command(source, node, scope, lines)
            elif node.type == "test_command" or _ASIDE.search(source.text(node)):
                leaves = False
            if leaves is not False:
                return leaves
        return False

    def _says_of_list(self, source: _Source, node: Any, scope: _Scope, lines: list[Value]) -> bool | None:
        """``[ CONDITION ] && echo TEXT && return``."""
        status = True
        for joint, part in _chain(node):
            if joint is not None and (joint.type == "||") is status:
                continue
            if _tests([part]):
                verdict = self._verdict(source, [part], scope)
                if verdict is None:
                    return None
                status = verdict
                continue
            leaves = self._says(source, [part], scope, lines)
            if leaves is not False:
                return leaves
            status = True
        return False

    def _says_of_command(self, source: _Source, node: Any, scope: _Scope, lines: list[Value]) -> bool | None:
        name = node.child_by_field_name("name")
        head = source.text(name) if name is not None else ""
        if head in _WORDLESS:
            return False
        words = self._words(source, node.children_by_field_name("argument"), scope)
        if head in ("return", "exit"):
            return True if not words or words[0].value == "0" else None
        if head == "echo" and words and words[0].value == "-n":
            del words[0]
        if head == "printf" and len(words) == 2 and words[0].value in ("%s", "%s\\n"):
            del words[0]
        elif head in scope.functions:
            said = self._output(head, words, scope)
            lines += [] if said is None else [said]
            return None if said is None else False
        elif head != "echo" or any(child.type == "herestring_redirect" for child in node.children):
            return None
        if any(word.value.startswith("-") or "\\" in word.value for word in words):
            return None
        lines.append(_joined(words) if words else source.slice(name).slice(0, 0))
        return False

    def _taken(self, source: _Source, node: Any, scope: _Scope) -> list[Any] | None:
        """The statements of an `if` or a `case` that run; None where nobody knows which do."""
        if node.type == "case_statement":
            subject_node = node.child_by_field_name("value")
            subject = self._single(source, subject_node, scope) if subject_node is not None else None
            subject = subject if subject is None or subject.resolved or self.uncalled else _emptied(subject)
            if subject is None or not subject.resolved:
                return None
            for item in node.children:
                patterns, body = _case_item(item) if item.type == "case_item" else ([], [])
                plain = [re.sub(r"['\"]|\\(.)", _literal, source.text(pattern)) for pattern in patterns]
                if any("$" in pattern for pattern in plain):
                    return None
                if any(matches_pattern(subject.value, pattern) for pattern in plain):
                    return body
            return []
        otherwise: list[Any] = []
        condition, body = _until_then(node.children)
        branches = [(condition, [child for child in body if child.type not in ("elif_clause", "else_clause")])]
        for child in body:
            if child.type == "elif_clause":
                branches.append(_until_then(child.children))
            elif child.type == "else_clause":
                otherwise = list(child.children)
        for condition, body in branches:
            verdict = self._verdict(source, condition, scope)
            if verdict is not False:
                return body if verdict else None
        return otherwise

    def _verdict(self, source: _Source, condition: Sequence[Any], scope: _Scope) -> bool | None:
        """Whether a condition holds, for a script without any settings where it takes one to know."""
        verdict = self._decide(source, condition, scope)
        return verdict if verdict is not None else self._assume(source, condition, scope)

    def _arithmetic(self, value: Value, at: int, end: int, quoted: bool, fields: Fields, scope: _Scope) -> None:
        whole = value.text.slice(at, end)
        result = evaluate_arithmetic(value.value[at + 3 : end - 2], scope.scalar)
        if isinstance(result, int):
            fields.add(Value(Text.at(str(result), whole.span)), quoted=True)
        else:
            fields.add(Value.unknown(whole, result, splits=False), quoted=quoted)

    def _variable(self, use: Value, name: str, quoted: bool, fields: Fields, scope: _Scope) -> None:
        if name in ("@", "*"):
            self._arguments(use, name, quoted, fields, scope)
            return
        known = self._lookup(name, use, scope)
        if known is not None:
            fields.add_expanded(known, use.span, quoted=quoted)
            return
        fields.add(Value.unknown(use.text, _why_unknown(name)), quoted=quoted)

    def _lookup(self, name: str, use: Value, scope: _Scope) -> Value | None:
        if name == "#":
            return Value(Text.at(str(len(scope.arguments or ())), use.span))
        if name.isdigit():
            if name == "0":
                return scope.scalar(name)
            if scope.arguments is None:
                return None
            index = int(name) - 1
            return (
                value_of_word(scope.arguments[index]) if index < len(scope.arguments) else Value(Text.at("", use.span))
            )
        return scope.scalar(name)

    def _arguments(self, use: Value, name: str, quoted: bool, fields: Fields, scope: _Scope) -> None:
        if scope.arguments is None:
            reason = "arguments that the script is given when it is started"
            fields.add(Value.unknown(use.text, reason), quoted=False)
            return
        self._elements(scope.arguments, joined=quoted and name == "*", quoted=quoted, fields=fields, use=use.span)

    def _elements(self, words: Sequence[Word], *, joined: bool, quoted: bool, fields: Fields, use: Span) -> None:
        if joined:
            fields.add_expanded(_joined(words), use, quoted=True)
            return
        if not words:
            fields.vanish()
        for number, word in enumerate(words):
            if number:
                fields.end_word()
            value = value_of_word(word)
            if quoted or not word.resolved:
                fields.add(value, quoted=not word.splits)
            else:
                fields.add_expanded(value, word.span, quoted=False)

    def _parameter(
        self, value: Value, start: int, close: int, quoted: bool, fields: Fields, scope: _Scope, depth: int
    ) -> None:
        use = value.slice(start, close + 1)
        inside = value.masked()[start + 2 : close]
        if inside[:1] == "!":
            inside = self._indirect(inside, fields, scope, use, quoted) or ""
            if not inside:
                return
        parts = split_operator(inside)
        if parts is None:
            fields.add(Value.unknown(use.text, f"{use.value} is not understood"), quoted=quoted)
            return
        name, subscript, operator, rest_at = parts
        rest = value.slice(start + 2 + rest_at, close)
        if operator == "length":
            self._length(use, name, subscript, fields, scope)
            return
        stored = scope.variables.get(name)
        if name in ("@", "*") or (subscript in ("@", "*") and isinstance(stored, (list, dict))):
            words = scope.arguments if name in ("@", "*") else stored
            words = [element.word() for element in words.values()] if isinstance(words, dict) else words
            if operator in ("-", ":-", "+", ":+") and words is not None and not isinstance(words, Value):
                present = bool(words)
                if present != operator.endswith("+"):
                    self._elements(words if present else [], joined=False, quoted=quoted, fields=fields, use=use.span)
                else:
                    self._alternative(rest if present or operator.endswith("-") else None, quoted, fields, scope, depth)
                return
            if isinstance(words, list) and not operator:
                joined = quoted and "*" in (name, subscript)
                self._elements(words, joined=joined, quoted=quoted, fields=fields, use=use.span)
                return
            if name in ("@", "*"):
                reason = "arguments that the script is given when it is started"
            else:
                reason = f"{use.value} is not followed"
            fields.add(Value.unknown(use.text, reason), quoted=False)
            return
        known = self._lookup(name, use, scope)
        if known is not None and not known.resolved and subscript in ("@", "*"):
            quoted = quoted and subscript == "*"  # as many words as it has elements
        key = self._key(subscript, isinstance(stored, dict), use, scope, depth)
        elements = _elements_of(stored)
        if subscript not in ("", "@", "*") and isinstance(stored, (list, dict)) and key is not None:
            known = (elements or {}).get(key)
        elif subscript and subscript not in ("@", "*", "0"):
            known = None
        if operator and operator[-1] in "-=+?" and operator in _CONDITIONAL:
            given = known if known is None or self.uncalled else _emptied(known)
            present = given is not None and (operator[0] != ":" or given.value != "")
            if operator[-1] == "+":
                self._alternative(rest if present else None, quoted, fields, scope, depth)
            elif present and known is not None:
                fields.add_expanded(known, use.span, quoted=quoted)
            elif operator[-1] == "?":
                fields.add(Value.unknown(use.text, _why_unknown(name)), quoted=quoted)
            else:
                if operator[-1] == "=":
                    inner = Fields(split=False)
                    lex(rest, 0, len(rest.text), inner, quoted=quoted, expander=self._expander(scope, depth + 1))
                    scope.assign(name, inner.value(rest.text), use.span)
                self._alternative(rest, quoted, fields, scope, depth)
            return
        if known is None:
            element = bool(subscript) and isinstance(stored, (list, dict))
            reason = f"which element of {name} is taken is known at run time only" if element else _why_unknown(name)
            fields.add(Value.unknown(use.text, reason), quoted=quoted)
            return
        if not operator:
            fields.add_expanded(known, use.span, quoted=quoted)
            return
        operand = Fields(split=False)
        lex(rest, 0, len(rest.text), operand, quoted=False, expander=self._expander(scope, depth + 1))
        argument = operand.value(rest.text)
        changed = (
            apply_operator(known.value, operator, argument.value) if known.resolved and argument.resolved else None
        )
        if changed is None:
            fields.add(Value.unknown(use.text, f"{use.value} is not computed here"), quoted=quoted)
        else:
            fields.add_expanded(Value(Text.at(changed, use.span)), use.span, quoted=quoted)

    def _key(self, subscript: str, keyed: bool, use: Value, scope: _Scope, depth: int) -> str | None:
        """The key that a subscript names; None where it is not known."""
        if depth > MAX_DEPTH:
            return None
        text = Text.at(subscript, use.span)
        fields = Fields(split=False)
        lex(Value(text), 0, len(text), fields, expander=self._expander(scope, depth + 1))
        key = fields.value(text)
        if not key.resolved or keyed or not key.value:
            return key.value if key.resolved else None
        index = evaluate_arithmetic(key.value, scope.scalar)
        return str(index) if isinstance(index, int) else None

    def _indirect(self, inside: str, fields: Fields, scope: _Scope, use: Value, quoted: bool) -> str | None:
        """``${!NAME[@]}`` yields the keys of an array; ``${!NAME...}`` is about the variable that NAME names."""
        keys = re.fullmatch(r"!([A-Za-z_]\w*)\[[@*]\]", inside)
        elements = _elements_of(scope.variables.get(keys[1])) if keys else None
        if elements is not None:
            found = [Value(Text.at(key, use.span)).word() for key in elements]
            self._elements(found, joined=False, quoted=quoted, fields=fields, use=use.span)
            return None
        named = re.match(r"!([A-Za-z_]\w*)", inside)
        name = scope.scalar(named[1]) if named and not keys else None
        if named is None or name is None or not name.resolved or not re.fullmatch(r"[A-Za-z_]\w*", name.value):
            fields.add(Value.unknown(use.text, f"{use.value} is not followed"), quoted=quoted)
            return None
        return name.value + inside[named.end() :]

    def _alternative(self, rest: Value | None, quoted: bool, fields: Fields, scope: _Scope, depth: int) -> None:
        if rest is not None:
            inside = self._expander(scope, depth + 1)
            lex(rest, 0, len(rest.text), fields, quoted=quoted, within=True, expander=inside)

    def _length(self, use: Value, name: str, subscript: str, fields: Fields, scope: _Scope) -> None:
        stored = scope.variables.get(name)
        if name in ("@", "*"):
            count: int | None = len(scope.arguments or ())
        elif subscript in ("@", "*") and isinstance(stored, dict):
            count = len(stored)
        elif subscript in ("@", "*") and isinstance(stored, list):
            # arguments that nobody gives are none
            words = [word for word in stored if not (self.assuming and word.value in ("$@", "${@}"))]
            count = len(words) if all(not word.splits for word in words) else None
        else:
            scalar = scope.scalar(name)
            count = len(scalar.value) if scalar is not None and scalar.resolved else None
        if count is None:
            fields.add(Value.unknown(use.text, _why_unknown(name)), quoted=True)
        else:
            fields.add(Value(Text.at(str(count), use.span)), quoted=True)


_CONDITIONAL: Final = frozenset({"-", ":-", "=", ":=", "+", ":+", "?", ":?"})


def _why_unknown(name: str) -> str:
    if name.isdigit():
        return argument(name)
    if name in RUN_TIME_NAMES or not (name[0].isalpha() or name[0] == "_"):
        return f"${name} is known at run time only"
    return unset(name)


def _elements_of(stored: Stored | None) -> dict[str, Value] | None:
    """The elements of an array by their keys; None where they are not known apart."""
    if isinstance(stored, dict):
        return stored
    if isinstance(stored, list):
        if any(word.splits for word in stored):
            return None
        return {str(number): value_of_word(word) for number, word in enumerate(stored)}
    return {} if stored is None else None


def _keyed(name: str, words: Sequence[Word], span: Span) -> Stored:
    """The elements of ``declare -A NAME=([a]=b [c]=d)``."""
    result: dict[str, Value] = {}
    for word in words:
        value = value_of_word(word)
        match = re.match(r"\[([^\]]*)\]=", value.masked())
        key = value.slice(1, match.end() - 2) if match else None
        if match is None or key is None or not key.resolved:
            return Value.unknown(Text.at(f"${name}", span), "an array whose keys are not followed")
        result[key.value] = value.slice(match.end(), len(value.text))
    return result


def _divided(text: Value, marks: str, most: int) -> list[Value]:
    """The fields of a line, the last of ``most`` with all that is left."""
    masked = text.masked()
    end = len(masked.rstrip("\n"))
    blank = "".join(mark for mark in marks if mark in BLANKS)
    rule = "|".join([*(re.escape(mark) for mark in marks if mark not in BLANKS), *([f"[{blank}]+"] if blank else [])])
    at = len(masked) - len(masked.lstrip(blank)) if blank else 0
    parts: list[Value] = []
    while len(parts) < most - 1:
        match = re.compile(rule).search(masked, at, end)
        if match is None:
            break
        parts.append(text.slice(at, match.start()))
        at = match.end()
    rest = text.slice(at, end)
    stripped = len(rest.value.rstrip(blank)) if blank else len(rest.text)
    return [*parts, rest.slice(0, stripped)] if at < end else parts


def _emptied(value: Value) -> Value:
    """A value in which variables that nobody sets, and arguments that nobody gives, are empty."""
    parts: list[Value] = []
    at = 0
    for hole in value.holes:
        if is_unset(hole.unresolved):
            parts.append(value.slice(at, hole.start))
            at = hole.end
    return Value.join([*parts, value.slice(at, len(value.text))]) if parts else value


def _exit_of(source: _Source, body: Any) -> str:
    """How a function ends the script in its last command; nothing where it does not."""
    last = [child for child in body.children if child.is_named and child.type != "comment"][-1:]
    words = source.text(last[0]).split() if last and last[0].type == "command" else [""]
    return "" if words[0] != "exit" else "exit" if words[1:] in ([], ["0"]) else "fail"


_COUNTS: Final = re.compile(
    r"\(\(\s*(?P<name>[A-Za-z_]\w*)\s*=(?P<first>[^;=<>]+);\s*(?P=name)\s*(?P<less><=?)(?P<last>[^;=<>]+);"
    r"\s*(?:(?P=name)\+\+|\+\+(?P=name)|(?P=name)\s*(?:\+=|=\s*(?P=name)\s*\+)(?P<step>[^;=<>()]+))\s*\)\)"
)


def _counts(source: _Source, node: Any, scope: _Scope) -> tuple[str, range] | None:
    """The variable of ``for ((i = 0; i < 4; i++))`` and its values, where they are known and few."""
    match = _COUNTS.search(source.value.value, node.start_byte, node.end_byte)
    if match is None:
        return None
    parts = (match["first"], match["last"], match["step"] or "1")
    first, last, step = (evaluate_arithmetic(part.strip(), scope.scalar) for part in parts)
    if not isinstance(first, int) or not isinstance(last, int) or not isinstance(step, int) or step < 1:
        return None
    numbers = range(first, last + (match["less"] == "<="), step)
    return (match["name"], numbers) if 0 < len(numbers) <= MAX_ITEMS else None


def _joined(words: Sequence[Word], *, splits: bool | None = None) -> Value:
    parts: list[Value] = []
    for number, word in enumerate(words):
        if number:
            parts.append(Value(Text.at(" ", word.text.slice(0, 0).span)))
        parts.append(value_of_word(word, splits=splits))
    if not parts:
        return Value(Text("", ()))
    return Value.join(parts)


def _literal(match: re.Match[str]) -> str:
    """What a quotation mark, or a character behind a backslash, is in a pattern."""
    return f"[{match[1]}]" if match[1] and match[1] in "*?[" else match[1] or ""


def _is_told(words: Sequence[Word], index: int) -> bool:
    """Whether a word is the value of the option before it (``--shell bash``) rather than a program."""
    option = words[index - 1].value
    if not option.startswith("-") or "=" in option:
        return False
    return not re.fullmatch(r"-[a-zA-Z]*c", "".join(word.value for word in words[index + 1 : index + 2]))


def _names_script(words: Sequence[Word]) -> bool:
    """Whether a shell is told what to run, so that it reads none of it from its input."""
    if any(word.value == "-s" for word in words):
        return False
    return any(not word.value.startswith("-") or re.fullmatch(r"-[a-zA-Z]*c", word.value) for word in words[1:])


# Words behind which such a program starts nothing.
_QUIET: Final = frozenset({"delete", "echo", "grep", "has-session", "kill-session", "pgrep", "pkill", "printf", "stop"})


def _handed_on(words: Sequence[Word]) -> Iterator[Value]:
    """The words of a program that are command lines themselves (``ssh host "cd x && y"``, ``--command="x y"``)."""
    for word in words[1:]:
        if word.value in _QUIET:
            return  # `ssh host pkill -f "vllm serve"`
        value = value_of_word(word, splits=True)
        option = re.match(r"--[\w-]+=", word.value)
        if option:
            value = value.slice(option.end(), len(value.text))
        if re.search(r"\s", value.value.strip()):
            yield value


def _instead(command: Command, other: Command) -> bool:
    """Whether a command runs only where another one does not."""
    pairs = zip(command.conditions, other.conditions, strict=False)
    first, second = next(((one, two) for one, two in pairs if one != two), ("", ""))
    return f"not: {second}" == first or f"not: {first}" == second


def _short(text: str, limit: int = 60) -> str:
    text = " ".join(text.split())
    return text if len(text) <= limit else text[: limit - 3] + "..."


def _after_loop(ended: str) -> str:
    """What a loop that was left, or went on to its next round, leaves of that for what follows it."""
    return "" if ended in ("break", "continue") else ended


_ASSIGNMENTS: Final = frozenset({"variable_assignment", "variable_assignments", "declaration_command"})


def _sets(node: Any) -> bool:
    """Whether a command does nothing but set variables."""
    inner = node.named_children if node.type == "compound_statement" else ()
    return node.type in _ASSIGNMENTS or (bool(inner) and all(child.type in _ASSIGNMENTS for child in inner))


def _chain(node: Any) -> list[tuple[Any, Any]]:
    """The commands of a list, each with the ``&&`` or ``||`` in front of it."""
    found: list[tuple[Any, Any]] = []
    while node is not None:
        operator, first, rest = None, None, []
        for child in node.children:
            if child.type in ("&&", "||"):
                operator = child
            elif child.is_named and operator is None:
                first = child
            elif child.is_named:
                rest.append((operator, child))
        found += reversed(rest)
        node = first if first is not None and first.type == "list" else None
        if node is None and first is not None:
            found.append((None, first))
    return found[::-1]


def _negated(verdict: bool | None) -> bool | None:
    return None if verdict is None else not verdict


def _tests(nodes: Sequence[Any]) -> bool:
    """Whether commands are tests that change nothing."""
    return all(
        node.type == "test_command" or (node.type in ("list", "negated_command") and _tests(node.named_children))
        for node in nodes
    )


def _end(node: Any) -> int:
    return node.end_byte if node is not None else -1


def _written(source: _Source, nodes: Sequence[Any]) -> str:
    named = [node for node in nodes if node.is_named]
    return source.value.value[named[0].start_byte : named[-1].end_byte] if named else ""


def _sleeps(source: _Source, body: Any) -> bool:
    """Whether a loop's body waits between its rounds."""
    return re.search(r"(?m)(?:^|[;&|{(])[ \t]*sleep[ \t]", source.text(body)) is not None


def _until_then(children: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    for index, child in enumerate(children):
        if child.type == "then":
            return list(children[1:index]), list(children[index + 1 :])
    return [], list(children)


# Programs that make a copy of a file, and those of them that write it to their output.
_COPIERS: Final = frozenset({"cat", "cp", "ln", "mv", "sed", "tr"})
_FILTERS: Final = frozenset({"cat", "sed", "tr"})
_LINE_ENDS: Final = re.compile(r"^s(.)\\r\$?\1\1g?$")


def _destinations(redirect: Any) -> list[Any]:
    return [child for child in redirect.children if child.is_named and child.type != "file_descriptor"]


def _case_item(item: Any) -> tuple[list[Any], list[Any]]:
    patterns: list[Any] = []
    for index, child in enumerate(item.children):
        if child.type == ")":
            return patterns, list(item.children[index + 1 :])
        if child.is_named:
            patterns.append(child)
    return patterns, []


def _range(word: Word) -> Iterator[Word]:
    match = re.fullmatch(r"\{(-?\d{1,6})\.\.(-?\d{1,6})\}", word.value)
    span = word.span
    if not match:
        match = re.fullmatch(r"\$\(seq (?:(\d{1,6}) )?(\d{1,6})\)", word.value)
    if not match:
        yield word
        return
    first, last = int(match.group(1) or 1), int(match.group(2))
    step = 1 if last >= first else -1
    if abs(last - first) >= MAX_ITEMS:
        yield Word(word.text, (Unresolved(word.value, "a long range"),))
        return
    for number in range(first, last + step, step):
        yield Word(Text.at(str(number), span))


def _compare(left: str, operator: str, right: str) -> bool | None:
    """Whether ``[ left operator right ]`` holds, the right side being a pattern."""
    if operator in ("=", "=="):
        return matches_pattern(left, right)
    if operator == "!=":
        return not matches_pattern(left, right)
    numeric = _NUMERIC.get(operator)
    if numeric and re.fullmatch(r"[+-]?\d{1,18}", left) and re.fullmatch(r"[+-]?\d{1,18}", right):
        return numeric(int(left), int(right))
    return None


_COMPARISON: Final = re.compile(
    r"\(\(\s*(?P<left>[^<>=!&|+-](?:[^<>=!&|]*[^<>=!&|+-])?)\s*"
    r"(?:(?P<operator>[<>]=?|[=!]=)\s*(?P<right>[^<>=!&|]+?)\s*)?\)\)"
)
_ORDERED: Final[Mapping[str, Callable[[int, int], bool]]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
_NUMERIC: Final[Mapping[str, Callable[[int, int], bool]]] = {
    "-eq": lambda left, right: left == right,
    "-ne": lambda left, right: left != right,
    "-gt": lambda left, right: left > right,
    "-ge": lambda left, right: left >= right,
    "-lt": lambda left, right: left < right,
    "-le": lambda left, right: left <= right,
}


def _merge(scope: _Scope, outcomes: Sequence[tuple[_Scope, str]], span: Span, likely: _Scope | None = None) -> None:
    """Bring branches together: what all of them agree on stays, what only some add becomes a hole.

    A branch that ends the script, or the round of a loop, is not followed by what comes after. Of what the others set
    to different texts, that of the ``likely`` one stays: the one which a script without any settings takes.
    """
    for other, _ in outcomes:
        scope.functions.update(other.functions)
        scope.exported |= other.exported
    alive = [(other, why) for other, why in outcomes if not other.ended]
    if not alive:
        scope.ended = next((other.ended for other, _ in outcomes if other.ended != "exit"), "exit")
    outcomes = alive or outcomes
    if likely is not None and likely.ended:
        likely = None
    for name in dict.fromkeys(name for other, _ in outcomes for name in other.touched):
        before = scope.variables.get(name)
        values = [(other.variables.get(name), why) for other, why in outcomes]
        first = values[0][0]
        if before is not None and all(value is before for value, _ in values):
            continue
        if all(_same(value, first) for value, _ in values):
            if first is not None:
                scope.assign(name, first, outcomes[0][0].touched.get(name, span))
            continue
        settled = likely.variables.get(name) if likely is not None else None
        known = settled.resolved if isinstance(settled, Value) else isinstance(settled, list) and _known(settled)
        if settled is not None and known and not _only_adds(before, [value for value, _ in values]):
            scope.assign(name, settled, span)
            continue
        why = next((why for value, why in values if not _same(value, before) and why), "a condition holds")
        if likely is not None and settled is None:
            scope.assign(name, Value.unknown(Text.at(f"${name}", span), set_only_if(name, why)), span)
            continue
        scope.assign(name, _either(name, before, [value for value, _ in values], why, span), span)


def _only_adds(before: Stored | None, values: Sequence[Stored | None]) -> bool:
    """Whether branches leave a text or an array as it is or add to its end."""
    if isinstance(before, list):
        return all(isinstance(value, list) and _same(value[: len(before)], before) for value in values)
    return (
        isinstance(before, Value)
        and all(isinstance(value, Value) and value.value.startswith(before.value) for value in values)
        and (bool(before.value) or any(_same(value, before) for value in values))
    )


def _known(words: Sequence[Word]) -> bool:
    return all(word.resolved for word in words)


def _same(left: Stored | None, right: Stored | None) -> bool:
    if isinstance(left, list) and isinstance(right, list):
        return [word.value for word in left] == [word.value for word in right]
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_same(left[key], right[key]) for key in left)
    if isinstance(left, Value) and isinstance(right, Value):
        return left.value == right.value and left.holes == right.holes
    return left is None and right is None


def _either(
    name: str,
    before: Stored | None,
    values: Sequence[Stored | None],
    why: str,
    span: Span,
) -> Stored:
    reason = f"only if {why}"
    if isinstance(before, list) and _only_adds(before, values):
        added: list[Word] = []
        for value in values:
            assert isinstance(value, list)
            if len(value) > len(before):
                extra = _joined(value[len(before) :])
                added.append(Word(extra.text, (Unresolved(extra.value, reason),), splits=True))
        return [*before, *added]
    if isinstance(before, Value) and _only_adds(before, values):
        parts = [before]
        for value in values:
            assert isinstance(value, Value)
            extra_value = value.slice(len(before.text), len(value.text))
            body = extra_value.value
            lead = len(body) - len(body.lstrip())
            if body.strip():
                parts.append(Value(extra_value.text.slice(0, lead)))
                parts.append(Value.unknown(extra_value.text.slice(lead, len(body)), reason))
        return Value.join(parts)
    unknown = Value.unknown(Text.at(f"${name}", span), f"{name} depends on a condition ({why})")
    programs = {basename(value.word(quoted=True)) if isinstance(value, Value) else "" for value in values}
    if len(programs) == 1 and any(isinstance(value, Value) and _INSTALLED.search(value.value) for value in values):
        # the same program in one folder or another
        return Value.join([unknown, Value(Text.at(f"/{programs.pop()}", span))])
    return unknown


def _unescaped(text: Text, start: int, end: int) -> Text:
    """The inside of ``$'...'``."""
    simple = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"', "a": "\a", "b": "\b", "e": "\x1b"}
    parts: list[Text] = [text.slice(start, start)]
    at = start
    raw = text.value
    while at < end:
        slash = raw.find("\\", at, end)
        if slash < 0 or slash + 1 >= end:
            parts.append(text.slice(at, end))
            break
        parts.append(text.slice(at, slash))
        code = re.compile(r"x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{1,4})|([0-7]{1,3})|(.)", re.DOTALL).match(
            raw, slash + 1, end
        )
        assert code is not None
        hexadecimal, octal, plain = code.group(1) or code.group(2), code.group(3), code.group(4)
        if plain:
            char = simple.get(plain, "\\" + plain)
        else:
            char = character(int(hexadecimal, 16) if hexadecimal else int(octal, 8) & 0xFF)
        parts.append(Text.at(char, text.slice(slash, code.end()).span))
        at = code.end()
    return Text.join(parts)


_ARGUMENTS: Final = frozenset(
    {
        "word",
        "string",
        "raw_string",
        "ansi_c_string",
        "translated_string",
        "number",
        "concatenation",
        "simple_expansion",
        "expansion",
        "arithmetic_expansion",
        "command_substitution",
        "process_substitution",
        "brace_expression",
        "command_name",
    }
)

_Handler = Callable[[_Reader, _Source, Any, _Scope, tuple[str, ...]], None]
_HANDLERS: Final[Mapping[str, _Handler]] = {
    "program": _Reader._children,
    "compound_statement": _Reader._children,
    "do_group": _Reader._children,
    "pipeline": _Reader._children,
    "negated_command": _Reader._children,
    "variable_assignments": _Reader._children,
    "ERROR": _Reader._children,
    "subshell": _Reader._subshell,
    "list": _Reader._list,
    "redirected_statement": _Reader._redirected,
    "if_statement": _Reader._if,
    "case_statement": _Reader._case,
    "for_statement": _Reader._for,
    "select_statement": _Reader._for,
    "c_style_for_statement": _Reader._c_for,
    "while_statement": _Reader._while,
    "function_definition": _Reader._function,
    "variable_assignment": _Reader._assignments,
    "declaration_command": _Reader._declaration,
    "unset_command": _Reader._unset,
    "command": _Reader._simple,
}
