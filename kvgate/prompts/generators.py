"""Commands of load generators, in scripts, pipelines and manifests, whose requests share more than real ones do.

- HTTP load generators send one body again and again: from the second request on the prompt is cached.
- ``vllm bench serve --dataset-name random`` draws its prompts from ``--seed``, 0 by default. A sweep that calls it
  several times sends one server the same prompts, and from its second step on measures the prefix cache
  (vllm-project/vllm#52884, #54227).
- A random prefix that all requests share is measured as such, which a capacity must not be read from.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from kvgate.prompts.defect import Defect
from kvgate.records import record
from kvgate.source.text import SourceFile, Span, Text
from kvgate.source.yaml_tree import Mapping, Node, Scalar, Sequence, is_go_template, parse_yaml

_BENCH: Final = re.compile(
    r"(?:(?<!\S)\S*(?:\bvllm(?:_\w{1,40})?\"?\s+bench\s+serve|benchmark_serving\.py)|(?<![\w#-])-m\s+\S*bench_serving)\b",
    re.IGNORECASE,
)
_LOOP: Final = re.compile(
    r"(?m)(?:^|;|&&|\bdo\b|\bthen\b)[ \t]*(?P<open>for[ \t]+(?P<name>\w+)|while|until)\b|(?:^|;)[ \t]*(?P<done>done)\b"
)
_CONTINUED: Final = re.compile(r"(?:[^\n\\;&|#]|\\\r?\n|\\.|(?<=\S)#)*")
_OPTION: Final = r"--{}(?:[ \t=]|\\\r?\n)+[\"']?(?P<value>[^\s\"']+)"
#: What makes the server forget between two steps, or another server of each step.
_FORGETS: Final = re.compile(
    r"reset_prefix_cache|no-enable-prefix-caching|vllm\s+serve\b|api_server|docker\s+(?:run|restart)|kubectl\s+rollout"
    r"|systemctl\s+restart"
)
_TARGET: Final = re.compile(r"--(?:base-url|host|port|model|endpoint)(?:[ \t=]|\\\r?\n)+[\"']?[^\s\"']{0,200}\$")
#: HTTP load generators, with the options that give them one body; a script of theirs may write others.
_HTTP: Final = re.compile(
    r"(?<![\w./-])(?:(?P<ab>ab)|(?P<hey>hey|boom)|(?P<oha>oha)|(?P<bombardier>bombardier)|(?P<autocannon>autocannon)"
    r"|(?P<vegeta>vegeta\s+attack)|(?P<siege>siege))\s(?=[\s\S])"
)
_BODY: Final = re.compile(r"(?<!\S)(?:-p|-d|-D|-b|-f|-i|-body|--body|--data|--body-file)(?:[ \t=]|\\\r?\n)*|\sPOST\s+<")
_COMPLETIONS: Final = re.compile(r"/v1/(?:chat/)?completions\b")
_ANY: Final = re.compile(
    r"bench\s+serve|benchmark_serving|bench_serving|genai-perf|aiperf|guidellm|/v1/(?:chat/)?completions|\bbench\b"
)
_NUMBER: Final = re.compile(
    r"(?m)^[ \t]*(?:export[ \t]+|local[ \t]+|readonly[ \t]+)?(?P<name>\w+)=[\"']?(?:\$\{[^}\n]*:-)?(?P<value>\d{1,9})\b"
)
_COMMENTED: Final = re.compile(r"[^\S\n]*#")
#: Characters of a line in front of a command in which what is piped into it is looked for.
_PIPED: Final = 2000


@record
class _Shared:
    """How a generator is told that its requests share a prefix.

    Attributes:
        command: how it is called.
        needs: what else its command must say.
        prefix: the option with the tokens of the prefix, and its default.
        rest: the options with the tokens behind it, and their default.
    """

    command: re.Pattern[str]
    needs: str
    prefix: tuple[str, int]
    rest: tuple[str, int]


_GENAI: Final = re.compile(r"(?<![\w#./-])(?:genai-perf|aiperf)\s+profile\b")
_GUIDELLM: Final = re.compile(r"(?<![\w#./-])guidellm\s+(?:benchmark|run)\b")
#: Defaults as in vLLM 0.32.0 ``benchmarks/datasets``, sglang 0.5 ``bench_serving.py``, aiperf 0.3 and guidellm 0.3.
_SHARED: Final = (
    _Shared(_BENCH, "--dataset-name[ =]+prefix_repetition",
            ("prefix-repetition-prefix-len", 256), ("prefix-repetition-suffix-len", 256)),
    _Shared(_BENCH, "--dataset-name[ =]+generated-shared-prefix",
            ("gsp-system-prompt-len", 2048), ("gsp-question-len", 128)),
    _Shared(_BENCH, "--dataset-name[ =]+random", ("random-prefix-len", 0), ("random-input-len", 1024)),
    _Shared(_GENAI, "", ("(?:prompt-prefix-length|prefix-prompt-length|shared-system-prompt-length)", 0),
            ("(?:prompt-input-tokens-mean|synthetic-input-tokens-mean|isl)", 550)),
)  # fmt: skip
_GUIDED: Final = {
    name: re.compile(rf"\b{name}[\"']?\s*[=:]\s*(?P<value>\d{{1,9}})\b") for name in ("prefix_tokens", "prompt_tokens")
}
#: Levels of YAML below which nothing is looked for.
MAX_DEPTH: Final = 40
#: Share of a prompt from which on its shared prefix decides what is measured.
LEAST_SHARE: Final = 0.5


def load_generators(file: SourceFile) -> Iterator[Defect]:
    """What the commands of load generators in a script, or in the scalars of a YAML file, send."""
    if not _ANY.search(file.text):
        return
    for text in _scripts(file):
        if _ANY.search(text.value):
            yield from _repeated_bodies(text)
            yield from _repeated_sweeps(text)
            yield from _shared_prefixes(text)


def _scripts(file: SourceFile) -> Iterator[Text]:
    """The script of a file, or those in a YAML file: each text, and each list of words."""
    if not file.path.endswith((".yaml", ".yml")):
        yield Text.of_span(Span(file, 0, len(file.text)))
    elif not is_go_template(file.text):
        for document in parse_yaml(file).documents:
            yield from _scripts_below(document, 0)


def _scripts_below(node: Node, depth: int) -> Iterator[Text]:
    if depth > MAX_DEPTH:
        return
    match node:
        case Scalar():
            yield node.text
        case Mapping():
            for entry in node.entries:
                if entry.key.value in ("command", "args") and isinstance(entry.value, Sequence):
                    continue
                yield from _scripts_below(entry.value, depth + 1)
            words = [
                item.text
                for key in ("command", "args")
                if isinstance(listed := node.get(key), Sequence)
                for item in listed.items
                if isinstance(item, Scalar)
            ]
            if len(words) == 1 or any("\n" in word.value for word in words):
                yield from words
            elif words:
                blank = Text.at(" ", words[0].span)
                yield Text.join(part for word in words for part in (blank, word))
        case Sequence():
            for item in node.items:
                yield from _scripts_below(item, depth + 1)


def _commands(
    text: Text, pattern: re.Pattern[str], start: int = 0, end: int | None = None
) -> Iterator[tuple[int, int, str]]:
    """Begin, end of the name, and the whole of each command that a pattern finds, those in comments left out."""
    value = text.value
    end = len(value) if end is None else end
    line, commented, behind = -1, False, start
    for match in pattern.finditer(value, start, end):
        if match.start() < behind:
            continue  # a word of the command before
        opening = value.rfind("\n", max(line, 0), match.start()) + 1 or max(line, 0)
        if opening != line:
            line, commented = opening, _COMMENTED.match(value, opening, match.start()) is not None
        if commented:
            continue
        rest = _CONTINUED.match(value, match.end(), end)
        behind = rest.end() if rest is not None else match.end()
        yield match.start(), match.end(), value[match.start() : behind]


def _repeated_bodies(text: Text) -> Iterator[Defect]:
    for start, end, command in _commands(text, _HTTP):
        line = text.value[max(0, start - _PIPED) : start].rpartition("\n")[2] + command
        if not _COMPLETIONS.search(line) or not _BODY.search(command):
            continue
        name = text.value[start:end].split()[0]
        what = f"{name} sends one body with each request"
        yield Defect("benchmark", text.span_of(start, start + len(name)), {"what": what})


def _repeated_sweeps(text: Text) -> Iterator[Defect]:
    """Load generators in loops that draw the same random prompts in each step."""
    if "no-enable-prefix-caching" in text.value:
        return
    for begin, stop in _loops(text.value):
        if _FORGETS.search(text.value, begin, stop):
            continue
        for start, end, command in _commands(text, _BENCH, begin, stop):
            if _TARGET.search(command):
                continue
            data = re.search(_OPTION.format("dataset-name"), command)
            if data is None or data["value"] != "random":
                continue
            seed = re.search(_OPTION.format("seed"), command)
            if seed is not None and not seed["value"].isdecimal():
                continue
            said = f"--seed {seed['value']}" if seed is not None else "the default seed, 0,"
            what = f"each step of the loop draws the same random prompts, from {said}"
            yield Defect("benchmark", text.span_of(start, end), {"what": what})


def _shared_prefixes(text: Text) -> Iterator[Defect]:
    numbers: dict[str, set[str]] = {}
    for match in _NUMBER.finditer(text.value):
        numbers.setdefault(match["name"], set()).add(match["value"])
    for shared in _SHARED:
        for start, end, command in _commands(text, shared.command):
            if shared.needs and not re.search(shared.needs + r"\b(?!-)", command):
                continue
            prefix, rest = (_tokens(numbers, command, *option) for option in (shared.prefix, shared.rest))
            yield from _judged(text, start, end, prefix, rest)
    for start, end, command in _commands(text, _GUIDELLM):
        told = {name: pattern.search(command) for name, pattern in _GUIDED.items()}
        prefix, whole = (int(match["value"]) if match is not None else None for match in told.values())
        if prefix is not None and whole is not None:
            yield from _judged(text, start, end, prefix, whole)


def _judged(text: Text, start: int, end: int, prefix: int | None, rest: int | None) -> Iterator[Defect]:
    if not prefix or rest is None or prefix < LEAST_SHARE * (prefix + rest):
        return
    what = f"{prefix:,} of the {prefix + rest:,} tokens of each prompt are a prefix that requests share"
    yield Defect("benchmark", text.span_of(start, end), {"what": what}, variant="shared-prefix", mild=True)


def _tokens(numbers: dict[str, set[str]], command: str, option: str, default: int) -> int | None:
    """What an option says, through one variable at most; None where that cannot be said.

    Args:
        numbers: what the script sets its variables to.
    """
    match = re.search(_OPTION.format(option), command)
    if match is None:
        return default
    value = match["value"]
    if re.fullmatch(r"[0-9]{1,9}", value):
        return int(value)
    name = re.fullmatch(r"\$\{?(\w+)(?::-(\d{{1,9}}))?\}?", value)
    if name is None:
        return None
    found = numbers.get(name[1], set())
    if len(found) > 1:
        return None
    return int(*found) if found else int(name[2]) if name[2] else None


def _loops(text: str) -> Iterator[tuple[int, int]]:
    """Bodies of the outermost loops of a script."""
    depth, begin = 0, 0
    for match in _LOOP.finditer(text):
        if match["open"]:
            begin = match.start() if depth == 0 else begin
            depth += 1
        elif depth:
            depth -= 1
            if depth == 0:
                yield begin, match.end()
