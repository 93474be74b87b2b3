"""Whatever stands in a file, it is read or told, and in bounded time."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvgate.prompts.analysis import is_test, read_prompts
from kvgate.source.text import SourceFile

EXAMPLES = [path.read_text(encoding="utf-8") for path in sorted((Path(__file__).parent / "bad").glob("*.py"))]


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_mutated_code_does_not_crash(seed: int) -> None:
    draw = random.Random(seed)
    lines = draw.choice(EXAMPLES).splitlines()
    other = draw.choice(EXAMPLES).splitlines()
    for _ in range(draw.randint(1, 6)):
        at = draw.randrange(len(lines))
        match draw.randrange(4):
            case 0:
                del lines[at]
            case 1:
                lines.insert(at, draw.choice(other))
            case 2:
                lines[at] = lines[at].replace("(", "").replace("[", "[*")
            case _:
                lines[at] = lines[at][: draw.randrange(len(lines[at]) + 1)]
        if not lines:
            return
    read_prompts([SourceFile("app.py", "\n".join(lines))])


DEEP = {
    "nested calls": "prompt = " + "f(" * 80 + "x" + ")" * 80 + "\n",
    "nested brackets": "messages = " + "[" * 150 + "]" * 150 + "\n",
    "too deep": "messages = " + "(" * 20_000 + "\n",
    "long sum": "prompt = " + " + ".join(["x"] * 3_000) + "\n",
    "recursion": "def prompt(messages):\n    return prompt(messages + [{'role': 'user', 'content': 'x'}])\n",
    "mutual": "def prompt(m):\n    return b(m)\n\ndef b(m):\n    return prompt(m) + b(m)\n",
    "branches": "def prompt(x):\n    s = 'a'\n"
    + "".join(f"    if x == {n}:\n        s += 'text {n}'\n    else:\n        s = s + 'other'\n" for n in range(200))
    + "    return s\n",
    # each branch holds all that the branches before it decide over, twice
    "branches that double": "def prompt(llm, name, prompt):\n"
    + "".join(
        f"    if name[{n}]:\n        prompt = prompt + 'a' + name\n    else:\n        prompt = name + prompt + 'b'\n"
        for n in range(40)
    )
    + "    return llm.invoke(prompt)\n",
    "calls": "".join(f"def prompt{n}(x):\n    return prompt{n + 1}(x) + prompt{n + 1}(x)\n" for n in range(60)),
    "cyclic classes": "class A(B):\n    prompt = 1\nclass B(A):\n    def prompt(self):\n        return self.system\n",
    "arguments in a row": "def prompt(x):\n    pairs = [('{a}', x), ('{b}', '')]\n    text = 'Say {a} {b}.'\n"
    + "    for pair in pairs:\n        text = text.replace(*pair)\n    return text\n"
    + "def prompt2(x):\n    return 'Say {a}.'.replace(*('{a}', x))\n",
    "self list": "messages = [{'role': 'user', 'content': 'x'}]\nmessages.append(messages)\nprompt = f'{messages}'\n",
    "big literal": "messages = [" + ",".join(["{'role': 'user', 'content': 'x'}"] * 4_000) + "]\n",
}


@pytest.mark.parametrize("text", DEEP.values(), ids=DEEP.keys())
def test_deep_and_wide_code_ends(text: str) -> None:
    begin = time.process_time()
    read_prompts([SourceFile("app.py", text)])
    assert time.process_time() - begin < 10


def test_tests_are_left_out_unless_they_are_named() -> None:
    text = EXAMPLES[0]
    file = SourceFile("tests/test_app.py", text)
    assert is_test(file.path)
    assert not is_test("app/contest.py")
    assert not is_test("load_test.py")
    assert not is_test("tests/cases/app.py", ["tests/cases"])
    assert is_test("tests/cases/tests/app.py", ["tests/cases"])
    assert read_prompts([file]).prompts == 0
    assert read_prompts([file], named=[file.path]).prompts > 0


def test_a_tree_that_is_too_large_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvgate.prompts.python.evaluator.MAX_STEPS", 200)
    text = "".join(f"def prompt{n}(x):\n    return 'You are ' + x\n\n" for n in range(200))
    (place,) = read_prompts([SourceFile("app.py", text)]).unread
    assert place.reason.endswith(" other functions take too many steps to follow to their end")
