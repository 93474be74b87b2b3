"""Shell loops around a load generator whose random prompts are the same each time.

``vllm bench serve --dataset-name random`` draws its prompts from ``--seed``, 0 by default. A sweep that calls it again
and again against one server sends the same prompts, and from its second step on measures the prefix cache
(vllm-project/vllm#52884, #54227).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from kvgate.prompts.defect import Defect
from kvgate.source.text import SourceFile, Span

_BENCH: Final = re.compile(r"(?<![\w#-])(?:vllm\s+bench\s+serve|\S*benchmark_serving\.py|-m\s+\S*bench_serving)\b")
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
_TARGET: Final = re.compile(r"--(?:base-url|host|port|model|endpoint)(?:[ \t=]|\\\r?\n)+[\"']?[^\s\"']*\$")


def repeated_sweeps(file: SourceFile) -> Iterator[Defect]:
    """Load generators in loops that draw the same random prompts in each step."""
    text = file.text
    if not _BENCH.search(text) or "no-enable-prefix-caching" in text:
        return
    for start, end in _loops(text):
        body = text[start:end]
        if _FORGETS.search(body):
            continue
        for match in _BENCH.finditer(body):
            line = body[body.rfind("\n", 0, match.start()) + 1 : match.start()]
            command = match.group() + (_CONTINUED.match(body, match.end()) or match).group()
            if line.lstrip().startswith("#") or _TARGET.search(command):
                continue
            data = re.search(_OPTION.format("dataset-name"), command)
            if data is None or data["value"] != "random":
                continue
            seed = re.search(_OPTION.format("seed"), command)
            if seed is not None and not seed["value"].isdecimal():
                continue
            said = f"--seed {seed['value']}" if seed is not None else "the default seed, 0,"
            at = start + match.start()
            what = f"each step of the loop draws the same random prompts, from {said}"
            yield Defect("benchmark", Span(file, at, at + len(match.group())), {"what": what})


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
