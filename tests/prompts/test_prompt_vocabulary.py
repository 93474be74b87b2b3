from __future__ import annotations

import pytest

from kvgate.prompts.part import Change, Kind
from kvgate.prompts.vocabulary import is_constant_name, is_prompt_name, meaning_of, meaning_of_call, words_of


@pytest.mark.parametrize(
    ("name", "kind", "change"),
    [
        ("now", Kind.CLOCK, Change.REQUEST),
        ("current_datetime", Kind.CLOCK, Change.REQUEST),
        ("currentTime", Kind.CLOCK, Change.MINUTE),
        ("today", Kind.CLOCK, Change.DAY),
        ("today_date", Kind.CLOCK, Change.DAY),
        ("request_id", Kind.IDENTIFIER, Change.REQUEST),
        ("conversation_id", Kind.SESSION, Change.SESSION),
        ("user_memories", Kind.USER, Change.USER),
        ("memory_block", Kind.RETRIEVAL, Change.REQUEST),
        ("retrieved_docs", Kind.RETRIEVAL, Change.REQUEST),
        ("context_text", Kind.RETRIEVAL, Change.REQUEST),
        ("chat_history", Kind.HISTORY, Change.SESSION),
        ("question", Kind.INPUT, Change.REQUEST),
        ("system_prompt", Kind.STATIC, Change.PROCESS),
        ("shared_rules", Kind.STATIC, Change.PROCESS),
        ("turn_count", Kind.COUNTER, Change.REQUEST),
        ("image_url", Kind.MEDIA, Change.REQUEST),
    ],
)
def test_what_names_stand_for(name: str, kind: Kind, change: Change) -> None:
    meaning = meaning_of(name)
    assert meaning is not None
    assert (meaning.kind, meaning.change) == (kind, change)


@pytest.mark.parametrize(
    "name", ["max_time", "timeout", "runtime", "updated", "model", "temperature", "x", "", "chunk"]
)
def test_what_names_do_not_say(name: str) -> None:
    assert meaning_of(name) is None


def test_calls_are_told_by_their_names_and_what_they_are_called_on() -> None:
    assert meaning_of_call("retrieve_chunks") == meaning_of("retrieved_docs")
    assert meaning_of_call("get_current_time") == meaning_of("current_time")
    query = meaning_of_call("query", "vector_store")
    assert query is not None
    assert query.kind is Kind.RETRIEVAL
    assert meaning_of_call("query", "session") is None or meaning_of_call("query", "session") == meaning_of("query")


def test_words_and_constants() -> None:
    assert words_of("HTTPRequestId") == ("http", "request", "id")
    assert is_constant_name("SHARED_RULES")
    assert not is_constant_name("Rules")
    assert is_prompt_name("build_system_prompt")
    assert is_prompt_name("INSTRUCTIONS")
    assert not is_prompt_name("operating_system")
