"""The argument parser against Python's argparse, and against whatever may stand in a command line."""

from __future__ import annotations

import argparse
import json
import math
from typing import Any, NoReturn

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvgate.engine.arguments import ParsedArguments, parse_arguments
from kvgate.engine.flags import Flag, flags_of_release
from kvgate.engine.releases import releases
from kvgate.source.text import SourceFile, Text, Unresolved, Word, words_of_command_line

VERSIONS = ("0.33.0", "0.12.0", "0.10.2", "0.8.5", "0.6.3.post1")
STRUCTURAL = {
    "unknown-flag",
    "ambiguous-flag",
    "missing-value",
    "unexpected-value",
    "extra-positional",
    "unsplit-words",
}


class RefusedError(Exception):
    pass


class Reference(argparse.ArgumentParser):
    """argparse with a release's flags, all values as text."""

    def error(self, message: str) -> NoReturn:
        raise RefusedError(message)


class Switch(argparse.Action):
    def __init__(self, option_strings: list[str], dest: str, on: tuple[str, ...] = (), **_: Any) -> None:
        super().__init__(option_strings, dest, nargs=0, default=argparse.SUPPRESS)
        self.on = on

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: Any = None) -> None:
        setattr(namespace, self.dest, option_string in self.on)


def reference(version: str) -> Reference:
    parser = Reference(argument_default=argparse.SUPPRESS)
    parser.add_argument("model_tag")
    release = flags_of_release(version)
    taken: set[str] = set(release.flags)
    for flag in release.flags.values():
        if not flag.takes_value:
            negations = [negation for negation in flag.negations if negation not in taken]
            parser.add_argument(*flag.names, *negations, dest=flag.dest, action=Switch, on=flag.names)
        elif flag.append:
            parser.add_argument(*flag.names, dest=flag.dest, action="append")
        else:
            nargs = "+" if flag.many else "?" if flag.bare else None
            parser.add_argument(*flag.names, dest=flag.dest, nargs=nargs)
    return parser


REFERENCES = {version: reference(version) for version in VERSIONS}


def words_of(version: str) -> st.SearchStrategy[str]:
    """Words that may mean something to a release: names, their beginnings, their misspellings, and values."""
    names = sorted(flags_of_release(version).spellings)
    name = st.sampled_from(names)
    beginning = st.tuples(name, st.integers(3, 12)).map(lambda pair: pair[0][: pair[1]])
    value = st.sampled_from(
        ["4", "-1", "-0.5", "true", "a b", '{"a": 1}', "x", "", "-x", "a=b", "-", "--no-such", "0.5"]
    )
    with_value = st.tuples(st.one_of(name, beginning), value).map("=".join)
    underscored = name.map(lambda text: text[:2] + text[2:].replace("-", "_"))
    return st.one_of(name, beginning, value, with_value, underscored)


def normal(word: str) -> str:
    """What vLLM does before argparse sees the word."""
    if not word.startswith("--"):
        return word
    name, equals, value = word.partition("=")
    return name.replace("_", "-") + equals + value


def accepted(version: str, words: list[str]) -> dict[str, Any] | None:
    """What argparse makes of the words, None if it refuses them."""
    try:
        return vars(REFERENCES[version].parse_args(["m", *map(normal, words)]))
    except RefusedError:
        return None


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_structure_as_argparse_reads_it(version: str, data: st.DataObject) -> None:
    words = data.draw(st.lists(words_of(version), max_size=6))
    # -O is rewritten by vLLM, dotted words are folded, and -h prints help: none of them is argparse's.
    words = [word for word in words if not word.startswith(("-O", "-h", "--h")) and "." not in word.partition("=")[0]]
    # Whether -sp=4 abbreviates -spec-draft-tp=4 depends on the Python below vLLM.
    names = flags_of_release(version).spellings
    words = [word for word in words if word.startswith("--") or "=" not in word or word.partition("=")[0] in names]
    parsed = parse_arguments(words_of_command_line(["m", *words]), version, positional_model=True)
    refused = [problem for problem in parsed.problems if problem.kind in STRUCTURAL]
    expected = accepted(version, words)
    assert bool(refused) is (expected is None), f"{words}: {refused}"
    if expected is None:
        return
    expected.pop("model_tag")
    model = expected.pop("model", None)
    assert set(parsed.arguments) == set(expected)
    assert parsed.model is not None
    assert parsed.model.value == "m" or parsed.model.value == model
    for dest, value in expected.items():
        argument = parsed.arguments[dest]
        if isinstance(value, bool):
            assert argument.value is value
        elif argument.value not in (["***"], "***") and not isinstance(value, list):
            assert str(argument.text or "") == (value or "")


def texts_of(flag: Flag) -> st.SearchStrategy[tuple[str, Any]]:
    """Texts that a flag takes, each with the value that they stand for."""
    if flag.choices is not None:
        return st.sampled_from(flag.choices).map(lambda choice: (str(choice), choice))
    whole = st.integers(2, 1_000_000).map(lambda number: (str(number), number))
    thousands = st.integers(2, 10_000).map(lambda number: (f"{number}k", number * 1000))
    obj = st.dictionaries(st.sampled_from(["a", "b.c", "d"]), st.integers(), max_size=3).map(
        lambda value: (json.dumps(value), value)
    )
    text = st.text("abcxyz/.:_", min_size=1, max_size=8).map(lambda value: (value, value))
    match flag.kind:
        case "int":
            return whole
        case "float":
            return st.sampled_from([("0.25", 0.25), ("1", 1.0), ("0.5", 0.5)])
        case "human-int" | "human-int-or-auto":
            return st.one_of(whole, thousands)
        case "json" | "json-or-str":
            return obj
        case "pairs":
            return st.just(("image=2,video=1", {"image": 2, "video": 1}))
        case "boolean":
            return st.booleans().map(lambda value: (str(value).lower(), value))
    return text


def within(flag: Flag, value: Any) -> bool:
    bounds = flag.bounds or {}
    return not isinstance(value, int | float) or all(
        {"gt": value > limit, "ge": value >= limit, "lt": value < limit, "le": value <= limit}[name]
        for name, limit in bounds.items()
    )


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_round_trip_of_flags_from_the_table(version: str, data: st.DataObject) -> None:
    release = flags_of_release(version)
    secret = {"api_key", "hf_token"}
    pool = sorted(name for name, flag in release.flags.items() if flag.dest not in {"model", *secret})
    chosen = data.draw(st.lists(st.sampled_from(pool), max_size=8, unique_by=lambda name: release.flags[name].dest))
    words, expected = ["m"], {}
    for name in chosen:
        flag = release.flags[name]
        spelling = data.draw(st.sampled_from(flag.names))
        if spelling.startswith("--") and data.draw(st.booleans()):
            spelling = "--" + spelling[2:].replace("-", "_")
        if not flag.takes_value:
            negation = data.draw(st.sampled_from([None, *flag.negations]))
            if negation is not None and not release.spellings[negation][1]:
                words.append(negation)
                expected[flag.dest] = False
            else:
                words.append(spelling)
                expected[flag.dest] = True
            continue
        pairs = data.draw(st.lists(texts_of(flag), min_size=1, max_size=3 if flag.many else 1))
        pairs = [pair for pair in pairs if within(flag, pair[1])]
        if not pairs:
            continue
        glued = not flag.many and data.draw(st.booleans())
        words += [f"{spelling}={pairs[0][0]}"] if glued else [spelling, *(text for text, _ in pairs)]
        values = [value for _, value in pairs]
        expected[flag.dest] = values if flag.many or flag.append else values[0]
    parsed = parse_arguments(words_of_command_line(words), version, positional_model=True)
    assert [problem for problem in parsed.problems if problem.refused] == []
    assert parsed.as_args() == expected
    assert parsed.model is not None
    assert parsed.model.value == "m"
    assert json.loads(json.dumps(parsed.as_args(), allow_nan=False)) == expected


CHARACTERS = st.text("ab-_=.,+${}[]\"' 019OkKtp\n", max_size=14)
NAMES = st.sampled_from(sorted({name for version in VERSIONS for name in flags_of_release(version).spellings}))


@st.composite
def anything(draw: st.DrawFn) -> list[Word]:
    texts = draw(
        st.lists(
            st.one_of(CHARACTERS, NAMES, st.tuples(NAMES, CHARACTERS).map("".join), st.text(max_size=6)), max_size=8
        )
    )
    words = []
    file = SourceFile("f", "\n".join(texts))
    at = 0
    for text in texts:
        missing = ()
        if text and draw(st.integers(0, 5)) == 0:
            start = draw(st.integers(0, len(text) - 1))
            missing = (Unresolved(text[start:], "not set"),)
        words.append(Word(Text.of_span(file.span(at, at + len(text))), missing, draw(st.booleans()) and bool(missing)))
        at += len(text) + 1
    return words


def finite(value: Any) -> bool:
    if isinstance(value, dict):
        return all(finite(item) for item in value.values())
    if isinstance(value, list):
        return all(finite(item) for item in value)
    return not isinstance(value, float) or math.isfinite(value)


def check(parsed: ParsedArguments, words: list[Word]) -> None:
    json.dumps(parsed.as_args(), allow_nan=False)
    assert all(finite(value) for value in parsed.as_args().values())
    for argument in parsed.arguments.values():
        assert argument.flag is not None
        # The span begins where a word begins, and the flag is what is written there.
        assert argument.span.start in {word.span.start for word in words}
        assert argument.span.text.startswith(argument.flag.value)
        assert argument.known is (argument.definition is not None)
    for problem in parsed.problems:
        assert problem.message


@settings(max_examples=400, deadline=None)
@given(words=anything(), version=st.sampled_from([*releases(), "0.34.1", "nightly", None]), positional=st.booleans())
def test_never_raises_on_any_words(words: list[Word], version: str | None, positional: bool) -> None:
    check(parse_arguments(words, version, positional_model=positional), words)
