"""Words of a vLLM command line -> typed engine arguments, as that release's own parser reads them.

The order of things follows ``FlexibleArgumentParser.parse_args`` (vLLM 0.6.0 to 0.33.0, ``utils/__init__.py`` and from
0.11.1 ``utils/argparse_utils.py``) and Python's ``argparse``: underscores for dashes in names, ``-O3``, dotted JSON
folded into one object and read last, the exact name before abbreviations, ``--flag=value``, the last of repeated flags.
Where vLLM would refuse, the argument is still read as it was plainly meant, and a problem says what vLLM does.
"""

from __future__ import annotations

import json
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, Final, Literal

from kvgate.engine.flags import (
    Flag,
    ReleaseFlags,
    flag_presence,
    flags_of_release,
    history_of,
    lifetime_around,
    nearest_definition,
    parser_since,
)
from kvgate.engine.releases import VersionInfo, resolve_version
from kvgate.engine.replacements import replacement_of
from kvgate.engine.secrets import MASK, is_secret, mask_secrets
from kvgate.engine.values import (
    ValueRefusedError,
    read_boolean,
    read_dotted_value,
    read_float,
    read_human_int,
    read_human_int_or_auto,
    read_int,
    read_json,
    read_json_object,
    read_json_object_or_text,
    read_pairs,
)
from kvgate.patterns import regex
from kvgate.records import record
from kvgate.source.text import Span, Text, Unresolved, Word
from kvgate.spelling import nearest

ProblemKind = Literal[
    "unknown-flag",  # that release has no such flag
    "ambiguous-flag",  # an abbreviation of several flags
    "deprecated-flag",  # that release still takes it
    "missing-value",  # a flag without the value it needs
    "unexpected-value",  # a value after a flag that takes none
    "invalid-value",  # a value that the release refuses
    "repeated-flag",  # the last one wins
    "extra-positional",  # a word that belongs to nothing
    "unsplit-words",  # flag and value in one word, with a blank between them
    "model-as-flag",  # `vllm serve --model`: refused or deprecated
    "model-not-first",  # `vllm serve --served-model-name ...` with the model elsewhere: refused from 0.17.0
    "duplicate-model",  # positional and --model
    "ignored-model",  # a free word for the API server module, which serves its default model instead
    "unresolved-words",  # words that the files do not determine, perhaps several flags
]


@record
class Argument:
    """One engine argument.

    Attributes:
        dest: its name in vLLM (``max_model_len``).
        value: typed and JSON-able, or :class:`Unresolved`; the text as written where vLLM would refuse it.
        flag: the spelling as written; None for the positional model.
        text: the value as written (of several words, the first to the last); None where there is none.
        span: from the flag to the end of the value.
        known: some release has such a flag.
        repeated: an earlier word gave the same argument, and lost.
        definition: the definition of the flag that was used, None for unknown flags and the positional model.
    """

    dest: str
    value: Any
    flag: Text | None
    text: Text | None
    span: Span
    known: bool
    repeated: bool = False
    definition: Flag | None = None

    @property
    def resolved(self) -> bool:
        return not isinstance(self.value, Unresolved)


@record
class ArgumentProblem:
    """What vLLM would refuse, warn of or misread.

    Attributes:
        kind: what is wrong.
        message: one sentence without a period.
        span: where.
        flag: the flag concerned with dashes, as that release spells it where it knows it, else as written.
        suggestion: what to write instead, if that is known.
        added_in: for unknown flags, the first read release with the flag, where that is newer.
        removed_after: the last read release with the flag, where that is older.
        removed_in: the first read release without it.
        certain: the version's own release was read, or its read neighbours on both sides agree.
        refused: vLLM does not start with it.
    """

    kind: ProblemKind
    message: str
    span: Span
    flag: str
    suggestion: str | None = None
    added_in: str | None = None
    removed_after: str | None = None
    removed_in: str | None = None
    certain: bool = True
    refused: bool = True


@record
class ParsedArguments:
    """A command line as read: ``arguments`` by dest (the last one wins), without the model."""

    arguments: Mapping[str, Argument]
    model: Argument | None
    problems: tuple[ArgumentProblem, ...]
    version: VersionInfo

    def as_args(self) -> dict[str, Any]:
        """dest -> JSON value; what is not resolved as ``{"unresolved": text, "reason": reason}``."""
        return {dest: as_json(argument.value) for dest, argument in self.arguments.items()}


def as_json(value: Any) -> Any:
    """A value of an argument as it stands in JSON output."""
    if isinstance(value, Unresolved):
        return {"unresolved": value.text, "reason": value.reason}
    return value


def parse_arguments(
    words: Sequence[Word], version: str | None, *, positional_model: bool, assumed: bool = False
) -> ParsedArguments:
    """Read the words after ``vllm serve`` (or the entrypoint module) as a release's parser would.

    Args:
        words: the words, without the command itself.
        version: the vLLM version; None stands for the newest known release.
        positional_model: the first free word is the model (``vllm serve``); the API server module takes none.
        assumed: nobody says that it is this release.

    Never raises for whatever stands in the words.
    """
    return _Parser(words, resolve_version(version), positional_model, assumed).parse()


_NEGATIVE: Final = regex(r"-\d+|-\d*\.\d+")
# What a template writes under a condition, where that begins with a flag, or in a loop.
_CONDITIONAL_FLAGS: Final = regex(r"\{\{ ?(?:if )?range\b|\{\{[^{}]{1,300}\}\}\s*-")
_HELP: Final = frozenset(("-h", "--help", "--version"))
_MODEL_DESTS: Final = frozenset(("model", "model_tag"))


@record
class _Use:
    """A word that names a flag.

    ``key`` is the name as the release spells it and ``path`` the dotted keys after it. ``cut`` is where the value
    starts in the word, None where the word holds no value.
    """

    key: str
    flag: Flag | None
    on: bool
    path: tuple[str, ...]
    cut: int | None
    end: int  # of the name as written
    problem: ProblemKind | None = None
    candidates: tuple[str, ...] = ()
    hint: str | None = None  # the message, where the plain one would not do


# A flag within a word, and what is split at blanks there.
_FLAG_INSIDE: Final = regex(r"\s(--[A-Za-z][\w-]*)")
_PART: Final = regex(r"\S+")
_MAX_INSIDE: Final = 50


class _Parser:
    def __init__(self, words: Sequence[Word], info: VersionInfo, positional_model: bool, assumed: bool) -> None:
        self.words = list(words)
        self.info = info
        self.assumed = assumed or info.standing == "unknown"
        self.release: ReleaseFlags = flags_of_release(info.table)
        self.positional_model = positional_model
        self.arguments: dict[str, Argument] = {}
        self.model: Argument | None = None
        self.fallback_model: Argument | None = None
        self.problems: list[ArgumentProblem] = []
        # dotted keys, folded; per spelling: the use, the object or Unresolved, the words' texts
        self.folded: dict[str, tuple[_Use, Any, Text, Text, Span]] = {}

    # -- words -----------------------------------------------------------------------------------------------------

    def parse(self) -> ParsedArguments:
        at, free_only = 0, False
        while at < len(self.words):
            word = self.words[at]
            if not free_only and word.value == "--" and word.resolved:
                free_only = True
                at += 1
                continue
            parts = () if free_only else self._parts_of(word)
            if parts:
                self.words[at : at + 1] = parts
                continue
            use = None if free_only else self.use_of(word)
            at = self.take_free(at) if use is None else self.take_flag(at, use)
        for use, value, flag, text, span in self.folded.values():
            self.store_folded(use, value, flag, text, span)
        if self.model is None:
            self.model = self.fallback_model
        self.check_model_first()
        return ParsedArguments(self.arguments, self.model, tuple(self.problems), self.info)

    def check_model_first(self) -> None:
        named = self.arguments.get("served_model_name")
        if (
            named is not None
            and self.positional_model
            and "model-first" in self.release.parser
            and "config" not in self.arguments
            and (self.model is None or self.model.flag is None)
            and self.words[0].value.startswith("-")
        ):
            self.problem(
                "model-not-first",
                "with --served-model-name, `vllm serve` takes the model as its first word only",
                self.model.span if self.model is not None else named.span,
                "--served-model-name",
                "the model right after `serve`",
                certain=self.info.bounded,
            )

    def is_free(self, at: int) -> bool:
        """Whether a word can be a value or positional, as argparse sees it."""
        return at < len(self.words) and self.words[at].value != "--" and self.use_of(self.words[at]) is None

    def use_of(self, word: Word) -> _Use | None:
        value = word.value
        if len(value) < 2 or value[0] != "-" or _name_unresolved(word):
            return None
        equals = value.find("=")
        end = equals if equals >= 0 else len(value)
        cut = equals + 1 if equals >= 0 else None
        name = value[:end]
        if name.startswith("--"):
            head, dot, tail = name[2:].partition(".")
            name = "--" + head.replace("_", "-") + dot + tail
        if name in self.release.spellings:
            known = self._known(name, cut, end)
            if "underscores" not in self.release.parser and "_" in value[:end]:
                hint = f"vLLM {self.info.version or self.info.table} reads no underscores in the names of flags"
                return replace(known, problem="unknown-flag", candidates=(name,), hint=hint)
            return known
        if name.startswith("-O") and not name.startswith("-O."):
            return self._optimization(value, equals, end)
        if _NEGATIVE.fullmatch(value):
            return None
        head, dot, tail = name.partition(".")
        if dot and head not in ("-", "--"):
            if head == "-O" and "level-for-o" in self.release.parser and "-cc" in self.release.spellings:
                return self._dotted_optimization(tuple(tail.split(".")), cut, end)
            found = self._resolve(head, None, len(head))
            if found is not None:
                return replace(found, path=tuple(tail.split(".")), cut=cut, end=end)
        if " " in name:
            return self._unsplit(value, name)
        if name.startswith("--no-") and "--no-" not in word.text.slice(0, end).span.text:
            # a key that is switched off (enforce_eager=False, disable-log-stats: false) where no flag says so:
            # vLLM leaves the flag away (_pull_args_from_config up to 0.33.0), or sets the field
            positive = "--" + name[5:]
            here = self.release.spellings.get(positive)
            flag, on = here or nearest_definition(positive, self.info.table) or (None, False)
            if flag is not None and on and not flag.takes_value:
                return _Use(positive, flag, False, (), cut, end, None if here else "unknown-flag")
        return self._resolve(name, cut, end) or _Use(name, None, True, (), cut, end, "unknown-flag")

    def _known(self, name: str, cut: int | None, end: int) -> _Use:
        flag, on = self.release.spellings[name]
        if not on and self.assumed:
            # Where no version is known, a flag of its own in other releases is the better guess than a negation that
            # only the newest one reads (``--disable-log-requests`` from 0.33.0).
            own = next((found for found, switches_on in reversed(history_of(name)) if switches_on), None)
            if own is not None:
                return _Use(name, replace(own, deprecated=False), True, (), cut, end)
        return _Use(name, flag, on, (), cut, end)

    def _resolve(self, name: str, cut: int | None, end: int) -> _Use | None:
        """A name by exact match, abbreviation, or what other releases know."""
        spellings = self.release.spellings
        if name in spellings:
            return self._known(name, cut, end)
        if name in _HELP:
            return _Use(name, None, True, (), cut, end)
        if name.startswith("--"):
            candidates = [spelling for spelling in spellings if spelling.startswith(name)] if len(name) > 2 else []
        else:
            candidates = [spelling for spelling in spellings if spelling == name[:2] or spelling.startswith(name)]
        meant = {(spellings[candidate][0].name, spellings[candidate][1]) for candidate in candidates}
        if len(meant) == 1:
            spelling = candidates[0]
            attached = name[:2] == spelling and len(name) > 2
            return self._known(spelling, 2 if attached else cut, 2 if attached else end)
        elsewhere = nearest_definition(name, self.info.table)
        if elsewhere is not None:
            flag, on = elsewhere
            return _Use(name, flag, on, (), cut, end, "unknown-flag")
        if candidates:
            return _Use(name, None, True, (), cut, end, "ambiguous-flag", tuple(sorted(candidates)))
        glued = re.fullmatch(r"(-[a-z-]+)(\d+)", name)
        if glued and glued[1] in spellings and cut is None:
            flag, on = spellings[glued[1]]
            end = len(glued[1])
            hint = f"vLLM does not read {name} as {glued[1]} {glued[2]}"
            return _Use(name, flag, on, (), end, end, "unknown-flag", (f"{glued[1]} {glued[2]}",), hint)
        return None

    def _optimization(self, value: str, equals: int, end: int) -> _Use | None:
        """``-O3``, ``-O=3`` and ``-O 3``: the optimization level from 0.12.0, the compilation level before."""
        name = "--optimization-level" if "--optimization-level" in self.release.spellings else "-O"
        if name not in self.release.spellings:
            return None
        if value == "-O":
            return self._known(name, None, 2)
        return self._known(name, 3 if equals == 2 else 2, min(end, 2))

    def _dotted_optimization(self, path: tuple[str, ...], cut: int | None, end: int) -> _Use:
        """``-O.level=3``: 0.12.0 took it as ``-cc.level=3``, later releases refuse it."""
        taken = "config-for-o-dotted" in self.release.parser
        spelling = ".".join(("-cc", *path))
        return replace(
            self._known("-cc", cut, end),
            path=path,
            problem="deprecated-flag" if taken else "unknown-flag",
            candidates=(spelling,),
            hint=f"-O.{'.'.join(path)} is spelled {spelling} from vLLM 0.12.0",
        )

    def _unsplit(self, value: str, name: str) -> _Use | None:
        head = name.split(" ", 1)[0]
        use = self._resolve(head, None, len(head))
        if use is None or use.problem is not None or use.flag is None:
            return None
        cut = len(head) + len(value[len(head) :]) - len(value[len(head) :].lstrip())
        return replace(use, cut=cut, problem="unsplit-words")

    def _parts_of(self, word: Word) -> tuple[Word, ...]:
        """The words of a whole command line that stands in one: flags behind the model or behind another flag."""
        value = word.value
        found = islice(_FLAG_INSIDE.finditer(value), _MAX_INSIDE)
        inside = next((match for match in found if self._takes(match[1])), None)
        # in an object or a text between quotes nothing is a flag
        if inside is None or not word.resolved or not {*"{[\"'"}.isdisjoint(value[: inside.start()]):
            return ()
        parts = tuple(Word(word.text.slice(*match.span())) for match in _PART.finditer(value))
        flag = parts[0].value if parts[0].value.startswith("-") else ""
        self.problem(
            "unsplit-words", f'"{_short(value)}" is one word with blanks in it', word.span, flag, "a word for each"
        )
        return parts

    def _takes(self, name: str) -> bool:
        found = self._resolve(name.replace("_", "-"), None, len(name))
        return found is not None and found.flag is not None and found.problem is None

    # -- positionals -----------------------------------------------------------------------------------------------

    def take_free(self, at: int) -> int:
        word = self.words[at]
        value = _value_of(word, word.text)
        flags = word.value.startswith("-") or _CONDITIONAL_FLAGS.match(word.value) is not None
        if not word.resolved and (word.splits or flags):
            self.problem("unresolved-words", "words that the files do not determine", word.span, word.value)
            if self.positional_model and at == 0 and not flags:
                self.fallback_model = Argument("model", value, None, word.text, word.span, True)
            return at + 1
        if self.positional_model and self.model is None:
            self.model = Argument("model", value, None, word.text, word.span, True)
        elif not word.resolved and word.unresolved[0].text == word.value:  # may be none, or several
            self.problem("unresolved-words", "a word that the files do not determine", word.span, word.value)
        elif self.positional_model and self.model is not None and self.model.flag is not None:
            self.problem("duplicate-model", "the model stands here and after --model", word.span, self.model.flag.value)
            self.model = Argument("model", value, None, word.text, word.span, True, repeated=True)
        elif not word.resolved:
            self.problem("unresolved-words", "a word that the files do not determine", word.span, word.value)
        elif (
            self.fallback_model is None and "module-ignores-model" in self.release.parser and not self.positional_model
        ):
            self.problem(
                "ignored-model",
                f'the API server module takes "{_short(word.value)}" and serves another model: only --model names one',
                word.span,
                "--model",
                "--model=" + word.value,
                certain=self.info.bounded,
                refused=False,
            )
            self.fallback_model = Argument("model", value, None, word.text, word.span, True)
        else:
            self.problem("extra-positional", f'"{_short(word.value)}" belongs to no flag', word.span, "")
        return at + 1

    # -- flags -----------------------------------------------------------------------------------------------------

    def take_flag(self, at: int, use: _Use) -> int:
        word = self.words[at]
        name = word.text.slice(0, use.end)
        given: list[tuple[Word, Text]] = []
        after = at + 1
        flag = use.flag
        if use.key in _HELP and flag is None:
            return after
        takes = flag is None or flag.takes_value or bool(use.path)
        if use.cut is not None:
            given.append((word, word.text.slice(use.cut, len(word.value))))
        elif flag is None and not use.path:
            if self.is_free(after) and not self.words[after].splits:
                given.append((self.words[after], self.words[after].text))
                after += 1
        elif not takes:
            if self.is_free(after) and self.words[after].value.lower() in ("true", "false"):
                given.append((self.words[after], self.words[after].text))
                after += 1
        else:
            if self.is_free(after) and self.words[after].value == "=" and self.is_free(after + 1):
                self.problem(
                    "unexpected-value", f'"=" is a word of its own after {use.key}', self.words[after].span, use.key
                )
                after += 1
            many = flag is not None and flag.many and not use.path
            while self.is_free(after) and (not given or (many and not self.words[after].splits)):
                given.append((self.words[after], self.words[after].text))
                after += 1
        span = _span_to(word.span if use.cut is None else name.span, [text.span for _, text in given])
        if use.cut is not None:
            span = word.span
        self.note_use(use, name, span)
        if use.path:
            self.fold(use, name, given, span)
        else:
            self.read(use, name, given, span)
        return after

    def note_use(self, use: _Use, name: Text, span: Span) -> None:
        """Problems of the flag itself, whatever its value."""
        if use.problem == "ambiguous-flag":
            listed = ", ".join(use.candidates[:4]) + (", ..." if len(use.candidates) > 4 else "")
            self.problem("ambiguous-flag", f'"{use.key}" could be {listed}', name.span, use.key, use.candidates[0])
        elif use.problem == "unsplit-words" and use.flag is not None:
            self.problem(
                "unsplit-words",
                f"{use.key} and its value are one word with a blank in it",
                span,
                use.key,
                f"{use.key}=value, or two words",
            )
        elif use.problem == "unknown-flag":
            self.unknown_flag(use, name)
        elif use.flag is not None and (use.flag.deprecated or use.problem == "deprecated-flag"):
            instead = replacement_of(use.flag.name, self.info)
            self.problem(
                "deprecated-flag",
                use.hint or f"{use.key} is deprecated in vLLM {self.info.version or self.info.table}",
                name.span,
                use.key,
                use.candidates[0] if use.candidates else instead.text if instead is not None else None,
                refused=False,
            )

    def unknown_flag(self, use: _Use, name: Text) -> None:
        spelling = use.flag.name if use.flag is not None and not use.candidates else use.key
        release = self.info.version or self.info.table
        life = lifetime_around(use.key, self.info.table) if use.hint is None else None
        instead = replacement_of(spelling, self.info)
        suggestion = instead.text if instead is not None else None
        if use.hint is not None:
            suggestion = use.candidates[0] if use.candidates else suggestion
            message = use.hint
        elif life is None:
            suggestion = suggestion or nearest(use.key, self.release.spellings, 0.75)
            message = f"vLLM {release} has no flag {use.key}"
        elif life.last is not None:
            message = f"vLLM {release} has no flag {use.key}: last seen in {life.last}, gone in {life.gone_in}"
        else:
            message = f"vLLM {release} has no flag {use.key} yet: first seen in {life.first}"
        self.problem(
            "unknown-flag",
            message,
            name.span,
            use.key,
            suggestion,
            added_in=life.first if life is not None else None,
            removed_after=life.last if life is not None else None,
            removed_in=life.gone_in if life is not None else None,
            certain=self.info.bounded if use.hint is not None else flag_presence(use.key, self.info) == "absent",
        )

    def read(self, use: _Use, name: Text, given: list[tuple[Word, Text]], span: Span) -> None:
        flag = use.flag
        dest = flag.dest if flag is not None else use.key.lstrip("-").replace("-", "_")
        text = Text.join(_spaced([text for _, text in given])) if given else None
        value: Any
        if flag is None:
            value = True if not given else _value_of(*given[0])
        elif not flag.takes_value:
            value = self.read_switch(use, flag, given, span)
        elif not given and not flag.bare:
            self.problem("missing-value", f"{use.key} needs a value", span, use.key)
            value = None
        else:
            value = self.read_value(use, flag, given, span)
        if flag is not None and flag.append and isinstance(value, list):
            earlier = self.arguments.get(dest)
            if earlier is not None and isinstance(earlier.value, list):
                value = [*earlier.value, *value]
        self.store(Argument(dest, value, name, text, span, flag is not None, definition=flag), use)

    def read_switch(self, use: _Use, flag: Flag, given: list[tuple[Word, Text]], span: Span) -> Any:
        if not given:
            return use.on
        word, text = given[0]
        value = _value_of(word, text)
        off = next((negation for negation in flag.negations if use.on), None)
        self.problem(
            "unexpected-value",
            f'{use.key} takes no value, "{_short(text.value)}" was given',
            span,
            use.key,
            off if isinstance(value, str) and value.lower() == "false" else use.key,
            certain=self.same_definition(flag),
        )
        if isinstance(value, Unresolved):
            return value
        try:
            return read_boolean(value) is use.on
        except ValueRefusedError:
            return use.on

    def read_value(self, use: _Use, flag: Flag, given: list[tuple[Word, Text]], span: Span) -> Any:
        missing = [_value_of(word, text) for word, text in given]
        unresolved = [value for value in missing if isinstance(value, Unresolved)]
        if unresolved:
            return Unresolved(" ".join(text.value for _, text in given), unresolved[0].reason)
        if not given:
            return True
        values = []
        for _, text in given:
            try:
                values.append(_read_one(flag, text.value, self.release.parser))
            except ValueRefusedError as error:
                self.refuse(use, flag, text.value, str(error), span)
                values.append(_read_leniently(flag, text.value, self.release.parser))
        if flag.many or flag.append:
            return values
        return values[0]

    def refuse(self, use: _Use, flag: Flag, text: str, expected: str, span: Span) -> None:
        shown = MASK if is_secret(flag.dest) else _short(text)
        close = nearest(text, map(str, flag.choices or ()), 0.75)
        self.problem(
            "invalid-value",
            f'{use.key} takes {expected}, "{shown}" was given',
            span,
            use.key,
            close,
            certain=self.same_definition(flag),
        )

    # -- dotted keys -----------------------------------------------------------------------------------------------

    def fold(self, use: _Use, name: Text, given: list[tuple[Word, Text]], span: Span) -> None:
        if not given:
            self.problem("missing-value", f"{name.value} needs a value", span, use.key)
            return
        word, text = given[0]
        value: Any = _value_of(word, text)
        path = use.path
        if isinstance(value, str):
            if path[-1].endswith("+"):
                path = (*path[:-1], path[-1][:-1])
                value = value.split(",")
            else:
                value = read_dotted_value(value, numbers="dotted-numbers" in self.release.parser)
        if use.flag is not None and use.problem is None and "dotted-keys" not in self.release.parser:
            self.problem(
                "unknown-flag",
                f"vLLM {self.info.version or self.info.table} reads no dotted keys such as {_short(name.value)}",
                name.span,
                use.key,
                f"{use.key} with a JSON object",
                added_in=parser_since("dotted-keys"),
                certain=self.info.bounded,
            )
        earlier = self.folded.get(use.key)
        if isinstance(value, Unresolved) or (earlier is not None and isinstance(earlier[1], Unresolved)):
            folded: Any = value if isinstance(value, Unresolved) else earlier[1] if earlier is not None else value
        else:
            folded = earlier[1] if earlier is not None else {}
            _merge(folded, _nest(path, value))
        if earlier is None:
            self.folded[use.key] = (use, folded, name, text, span)
        else:
            self.folded[use.key] = (earlier[0], folded, earlier[2], earlier[3], earlier[4])

    def store_folded(self, use: _Use, value: Any, name: Text, text: Text, span: Span) -> None:
        flag = use.flag
        dest = flag.dest if flag is not None else use.key.lstrip("-").replace("-", "_")
        takes_json = flag is None or use.problem is not None or flag.kind in ("json", "json-or-str")
        if flag is not None and not takes_json and not isinstance(value, Unresolved):
            self.refuse(use, flag, json.dumps(value), "no dotted keys", span)
        self.store(Argument(dest, value, name, text, span, flag is not None, definition=flag), use)

    # -- results ---------------------------------------------------------------------------------------------------

    def store(self, argument: Argument, use: _Use) -> None:
        argument = _masked(argument)
        if argument.dest in _MODEL_DESTS:
            self.store_model(argument)
            return
        earlier = self.arguments.pop(argument.dest, None)
        if earlier is not None:
            argument = replace(argument, repeated=True)
            appends = use.flag is not None and use.flag.append
            if not appends:
                self.problem(
                    "repeated-flag",
                    f"{use.key} was given before: the last one wins",
                    argument.span,
                    use.key,
                    refused=False,
                )
        self.arguments[argument.dest] = argument

    def store_model(self, argument: Argument) -> None:
        argument = replace(argument, dest="model")
        flag = argument.flag.value if argument.flag is not None else "--model"
        if self.positional_model and argument.definition is not None and argument.definition.dest == "model":
            refused = "model-flag-moves" not in self.release.parser
            self.problem(
                "model-as-flag",
                "`vllm serve` takes the model as its first word"
                + (
                    f", vLLM {self.info.version or self.info.table} refuses {flag}"
                    if refused
                    else f", {flag} is deprecated there"
                ),
                argument.span,
                "--model",
                "the model right after `serve`",
                refused=refused,
            )
        if self.model is not None and self.model.flag is None:
            self.problem("duplicate-model", "the model stands here and as a free word", argument.span, flag)
            return
        self.model = argument

    def same_definition(self, flag: Flag) -> bool:
        """Whether all releases that bound this version read the flag alike."""
        if not self.info.bounded:
            return False
        for release in self.info.neighbours:
            other = flags_of_release(release).flags.get(flag.name)
            if other is not None and (other.kind, other.choices, other.many) != (flag.kind, flag.choices, flag.many):
                return False
        return True

    def problem(
        self,
        kind: ProblemKind,
        message: str,
        span: Span,
        flag: str,
        suggestion: str | None = None,
        *,
        added_in: str | None = None,
        removed_after: str | None = None,
        removed_in: str | None = None,
        certain: bool = True,
        refused: bool = True,
    ) -> None:
        self.problems.append(
            ArgumentProblem(
                kind, message, span, flag, suggestion, added_in, removed_after, removed_in, certain, refused
            )
        )


def _name_unresolved(word: Word) -> bool:
    """Whether the part of a word that would name a flag is unknown."""
    if word.resolved:
        return False
    equals = word.value.find("=")
    first = min((at for part in word.unresolved if (at := word.value.find(part.text)) >= 0), default=0)
    return equals < 0 or first < equals


def _value_of(word: Word, text: Text) -> str | Unresolved:
    """The text of a value; Unresolved where a part of it is not known."""
    parts = [part for part in word.unresolved if part.text in text.value] or list(word.unresolved)
    return Unresolved(text.value, parts[0].reason) if parts else text.value


def _span_to(start: Span, ends: Sequence[Span]) -> Span:
    end = start.end
    for span in ends:
        if span.file is start.file and span.start >= start.start:
            end = max(end, span.end)
    return Span(start.file, start.start, end)


def _spaced(texts: Sequence[Text]) -> list[Text]:
    result = list(texts[:1])
    for text in texts[1:]:
        result += [Text.at(" ", Span(text.span.file, text.span.start, text.span.start)), text]
    return result


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."


def _nest(path: Sequence[str], value: Any) -> dict[str, Any]:
    for key in reversed(path):
        value = {key: value}
    nested: dict[str, Any] = value
    return nested


def _merge(into: dict[str, Any], update: Mapping[str, Any]) -> None:
    for key, value in update.items():
        earlier = into.get(key)
        if isinstance(value, dict) and isinstance(earlier, dict):
            _merge(earlier, value)
        elif isinstance(value, list) and isinstance(earlier, list):
            earlier += value
        else:
            into[key] = value


def _read_one(flag: Flag, text: str, parser: frozenset[str]) -> Any:
    if flag.optional and text in ("", "None"):
        return None
    value = _read_kind(flag, text, parser)
    if flag.fold and isinstance(value, str):
        value = value.lower().replace("-", "_")
    if flag.choices is not None and value not in flag.choices:
        raise ValueRefusedError("one of " + ", ".join(str(choice) for choice in flag.choices))
    # -1 asks vLLM to choose max_model_len; no bound is meant for it.
    if flag.bounds and isinstance(value, int | float) and (flag.kind != "human-int-or-auto" or value != -1):
        for name, limit in flag.bounds.items():
            holds, words = _BOUNDS[name]
            if not holds(value, limit):
                raise ValueRefusedError(f"a number {words} {limit}")
    return value


_BOUNDS: Final[Mapping[str, tuple[Callable[[float, float], bool], str]]] = {
    "gt": (operator.gt, "above"),
    "ge": (operator.ge, "of at least"),
    "lt": (operator.lt, "below"),
    "le": (operator.le, "of at most"),
}


def _read_kind(flag: Flag, text: str, parser: frozenset[str]) -> Any:
    match flag.kind:
        case "str" | "flag":
            return text
        case "int":
            return read_int(text)
        case "float":
            number = read_float(text)
            if not math.isfinite(number):  # argparse takes it, and no arithmetic of the engine does
                raise ValueRefusedError("a finite number")
            return number
        case "human-int":
            return read_human_int(text)
        case "human-int-or-auto":
            return read_human_int_or_auto(text)
        case "json":
            if "-O" in flag.names and text in ("0", "1", "2", "3"):
                return {"level": int(text)}
            if "json-pairs" in parser and not re.fullmatch(r"\{.*\}", text):
                return read_pairs(text)
            return read_json(text) if flag.any_json else read_json_object(text, numbers="json-numbers" in parser)
        case "json-or-str":
            return read_json_object_or_text(text)
        case "pairs":
            return read_pairs(text)
        case "boolean":
            return read_boolean(text)


def _read_leniently(flag: Flag, text: str, parser: frozenset[str]) -> Any:
    """What was plainly meant by a value that this release refuses; else the text."""
    readers: tuple[Callable[[str], Any], ...] = (
        lambda value: _read_kind(flag, value, parser),
        *_MEANT.get(flag.kind, ()),
    )
    for reader in readers:
        try:
            return reader(text)
        except ValueRefusedError:
            continue
    return text


_MEANT: Final[Mapping[str, tuple[Callable[[str], Any], ...]]] = {
    "int": (read_human_int,),
    "human-int": (read_human_int_or_auto,),
    "json": (read_pairs,),
    "pairs": (read_json_object,),
}


def _masked(argument: Argument) -> Argument:
    """The argument with secrets replaced, in its value and in its text."""
    if argument.value is None or isinstance(argument.value, bool | Unresolved):
        return argument
    if is_secret(argument.dest) and (argument.definition is None or argument.definition.kind == "str"):
        value: Any = MASK
    else:
        value = mask_secrets(argument.value)
        if value == argument.value:
            return argument
    shown = value if isinstance(value, str) else json.dumps(value)
    text = None if argument.text is None else Text.at(shown, argument.text.span)
    return replace(argument, value=value, text=text)
