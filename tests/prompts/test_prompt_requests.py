"""Request logs: formats, shares, and the stretch in which prompts part."""

from __future__ import annotations

import json
import sys

import pytest

from kvgate.prompts.analysis import read_prompts
from kvgate.prompts.link import shared_by_log
from kvgate.prompts.requests import MAX_TEXT, MAX_WRITTEN, LogProblem, LogSettings, RequestLog, read_log, summarise
from kvgate.prompts.tokens import Counting
from kvgate.source.text import SourceFile

RULES = "You answer questions about trains. " * 40  # 35 x 40 = 1,400 bytes


def log(*records: object, path: str = "requests.jsonl") -> SourceFile:
    return SourceFile(path, "".join(json.dumps(record) + "\n" for record in records))


def chat(system: str, question: str) -> dict[str, object]:
    return {"model": "m", "messages": [{"role": "system", "content": system}, {"role": "user", "content": question}]}


STAMPED = [chat(f"Now: 2026-11-29T12:{minute:02}:07\n{RULES}", f"Question {minute}?") for minute in range(20)]
CLEAN = [chat(RULES, f"Question {minute}?") for minute in range(20)]


@pytest.mark.parametrize(
    "record",
    [
        {"messages": [{"role": "user", "content": "hello"}]},
        {"custom_id": "1", "method": "POST", "body": {"messages": [{"role": "user", "content": "hello"}]}},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "hello"}]}]},
        {"conversations": [{"from": "human", "value": "hello"}, {"from": "gpt", "value": "hi"}]},
    ],
)
def test_formats_of_chats(record: object) -> None:
    requests = read_log(log(record))
    assert not isinstance(requests, LogProblem)
    assert [request.text for request in requests.requests] == ["<user>\nhello\n"]


def test_prompts_lists_and_lines() -> None:
    for file in (
        log({"prompt": "hello"}, {"prompt": "hello you"}),
        SourceFile("a.json", json.dumps([{"prompt": "hello"}, {"prompt": "hello you"}])),
        SourceFile("a.txt", "hello\n\nhello you\n"),
        log({"prompt": ["hello", "hello you"]}),
    ):
        requests = read_log(file)
        assert not isinstance(requests, LogProblem)
        assert [request.text for request in requests.requests] == ["hello", "hello you"]


def test_each_answer_of_a_conversation_was_a_request() -> None:
    turns = [("human", "a"), ("gpt", "b"), ("human", "c"), ("gpt", "d")]
    requests = read_log(log({"conversations": [{"from": who, "value": text} for who, text in turns]}))
    assert not isinstance(requests, LogProblem)
    assert [(request.text, request.output) for request in requests.requests] == [
        ("<user>\na\n", "b"),
        ("<user>\na\n<assistant>\nb\n<user>\nc\n", "d"),
    ]


@pytest.mark.parametrize("text", ["", "{not json\n", '{"other": 1}\n', "[1, 2]"])
def test_what_is_no_log(text: str) -> None:
    assert isinstance(read_log(SourceFile("a.jsonl", text)), LogProblem)


def test_shares_by_the_block_rule() -> None:
    requests = read_log(log(*CLEAN))
    assert not isinstance(requests, LogProblem)
    summary = summarise(log(*CLEAN), requests)
    # "<system>\n" 9 + 1,400 + "\n" + "<user>\n" 7 + "Question " 9 = 1,426 bytes in common; 356 tokens
    assert summary.shared_prefix_tokens == 356
    # 22 whole blocks of 16 tokens (64 bytes) for 19 of 20 requests
    assert summary.hits.hit_tokens == 19 * 22 * 16
    assert summary.parting is None
    assert summary.basis == "4 bytes a token"


def test_the_stretch_in_which_prompts_part() -> None:
    file = log(*STAMPED)
    (found,) = read_prompts([file]).defects
    assert (found.kind, found.variant) == ("volatile", "log")
    assert found.span.text.startswith("2026-11-29T12:")
    assert found.span.line == 2
    requests = read_log(file)
    assert not isinstance(requests, LogProblem)
    summary = summarise(file, requests)
    assert summary.parting is not None
    # "<system>\nNow: " is 14 bytes
    assert summary.parting.offset_bytes == 14
    assert summary.hits.hit_tokens == 0
    # with the time at its end a prompt begins with 14 + 1 + 1,400 + 1 + 7 + 9 = 1,432 common bytes: 22 blocks
    assert summary.parting.moved.hit_tokens == 19 * 22 * 16


def test_the_load_of_a_log() -> None:
    records = [{"prompt": "x" * 400 * (1 + index), "output": "y" * 40} for index in range(20)]
    found = shared_by_log(log(*records))
    assert not isinstance(found, LogProblem)
    # the 19th of 20 prompts in order: 19 x 400 bytes = 1,900 tokens
    assert (found.prompt_tokens_p95, found.output_tokens_p95) == (1900, 10)
    assert found.tokens == 100


def test_a_log_of_one_prompt_is_no_load() -> None:
    (found,) = read_prompts([log(*[chat(RULES, "Same?")] * 12)]).defects
    assert found.kind == "benchmark"


def test_salts_of_a_log() -> None:
    records = [{**record, "cache_salt": f"{index:08x}"} for index, record in enumerate(CLEAN)]
    assert [found.kind for found in read_prompts([log(*records)]).defects] == ["cache-salt"]
    assert read_prompts([log(*[{**record, "cache_salt": "tenant"} for record in CLEAN])]).defects == ()


def test_a_clean_log_is_silent() -> None:
    assert read_prompts([log(*CLEAN)]).defects == ()


def test_a_growing_conversation_is_silent() -> None:
    messages: list[dict[str, str]] = [{"role": "system", "content": RULES}]
    records = []
    for turn in range(12):
        messages.append({"role": "user", "content": f"Question {turn} about the next train to the sea?"})
        records.append({"messages": [dict(message) for message in messages]})
        messages.append({"role": "assistant", "content": f"Answer {turn}: it leaves at noon from platform {turn}."})
    assert read_prompts([log(*records)]).defects == ()


def test_a_tokenizer_takes_the_first_of_many_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    # a request is 1,427 characters or a few more: three of them are less than 5,000
    monkeypatch.setattr("kvgate.prompts.requests.MAX_TOKENIZED", 5_000)
    counting = Counting(lambda text: [len(word) for word in text.split()], 1, "words", exact=True)
    file = log(*CLEAN)
    requests = read_log(file)
    assert not isinstance(requests, LogProblem)
    summary = summarise(file, requests, LogSettings(counting=counting))
    assert summary.requests == 3
    assert summary.unread == "only the first 3 of 20 requests are read: a tokenizer takes its time"
    (place,) = read_prompts([file], log_settings={file.path: LogSettings(counting=counting)}).unread
    assert (place.reason, place.span.line) == (summary.unread, 3)


def test_requests_are_counted_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvgate.prompts.requests.MAX_REQUESTS", 12)
    found = read_log(log(*CLEAN))
    assert not isinstance(found, LogProblem)
    assert (len(found.requests), found.unread) == (12, "only the first 12 requests are read")


def test_a_list_that_breaks_off_is_read_up_to_there() -> None:
    text = json.dumps([{"prompt": "hello"}, {"prompt": "hello you"}, {"prompt": "gone"}])[:-8]
    found = read_log(SourceFile("a.json", text))
    assert not isinstance(found, LogProblem)
    assert [(one.text, one.span.text) for one in found.requests] == [
        ("hello", '{"prompt": "hello"}'),
        ("hello you", '{"prompt": "hello you"}'),
    ]


def test_salts_keep_requests_apart() -> None:
    records = [{**record, "cache_salt": f"tenant {index % 2}"} for index, record in enumerate(CLEAN)]
    found = read_log(log(*records))
    assert not isinstance(found, LogProblem)
    # 22 whole blocks of 16 tokens for all but the first of each tenant
    assert summarise(log(*records), found).hits.hit_tokens == 18 * 22 * 16


def test_a_long_conversation_is_read_up_to_a_bound() -> None:
    # each answer repeats those before it: a million turns would be 16 TB of prompts
    turns = [{"from": "gpt", "value": "x"}] * 50_000
    found = read_log(log({"conversations": turns}))
    assert isinstance(found, RequestLog)
    assert found.unread == f"only the first {len(found.requests):,} requests are read"
    assert sum(len(request.text) for request in found.requests) <= MAX_WRITTEN + MAX_TEXT
    assert found.requests[2].text == "<assistant>\nx\n" * 2


def test_no_depth_of_a_record_is_too_much() -> None:
    for depth in range(sys.getrecursionlimit() - 150, sys.getrecursionlimit()):
        tools = "[" * depth + "]" * depth
        text = f'{{"prompt": "a"}}\n{{"messages": [{{"role": "user", "content": "b"}}], "tools": {tools}}}\n'
        found = read_log(SourceFile("requests.jsonl", text))
        assert isinstance(found, RequestLog)
        assert found.requests[0].text == "a"
