"""The block rule, by hand and against a slow statement of it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvgate.prompts.blocks import Checkpoints, Hit, HitTotal, PrefixCache, common_prefix, predict_hits, total


def test_whole_blocks_of_an_identical_prefix_are_served() -> None:
    shared = list(range(100))
    first, second = [*shared, 1], [*shared, 2]
    # 100 shared tokens are 6 whole blocks of 16: 96 tokens
    assert predict_hits([first, second], 16) == [Hit(101, 0), Hit(101, 96)]


def test_one_token_is_always_computed() -> None:
    prompt = list(range(64))
    # a full hit of 4 blocks computes its last block anew: at most 63 tokens may be served, so 3 blocks
    assert predict_hits([prompt, prompt], 16)[1] == Hit(64, 48)
    # with one token more all 4 blocks are served
    assert predict_hits([[*prompt, 7], [*prompt, 7]], 16)[1] == Hit(65, 64)


def test_a_change_at_the_top_voids_everything_behind_it() -> None:
    rules = list(range(1000, 2000))
    first = [[stamp, *rules, 5] for stamp in range(40)]
    last = [[*rules, 5, stamp] for stamp in range(40)]
    assert total(predict_hits(first, 32)).hit_tokens == 0
    # 1,001 tokens are 31 whole blocks of 32, 992 tokens, for 39 of 40 requests
    assert total(predict_hits(last, 32)) == HitTotal(40 * 1002, 39 * 992)


def test_a_block_in_the_middle_counts_only_behind_the_same_beginning() -> None:
    assert predict_hits([[1] * 16 + [2] * 17, [3] * 16 + [2] * 17], 16)[1].hit_tokens == 0


def test_outputs_are_cached_but_for_their_last_token() -> None:
    prompt, output = list(range(40)), list(range(100, 125))
    following = [*prompt, *output, 9]
    # 40 + 24 computed tokens are 4 blocks of 16
    assert predict_hits([prompt, following], 16, outputs=[output, []])[1] == Hit(66, 64)
    # without the output the prompt's 2 whole blocks are served
    assert predict_hits([prompt, following], 16)[1] == Hit(66, 32)


def test_salts_keep_requests_apart_and_drafts_drop_a_block() -> None:
    cache = PrefixCache(16)
    cache.serve(list(range(64)), salt="a")
    assert cache.serve(list(range(64)), salt="a").hit_tokens == 48
    assert cache.serve(list(range(64)), salt="b").hit_tokens == 0
    assert predict_hits([list(range(65))] * 2, 16, drafts=True)[1] == Hit(65, 48)


def test_bytes_are_counted_like_tokens() -> None:
    assert predict_hits([b"abcdefgh1", b"abcdefgh2"], 4) == [Hit(9, 0), Hit(9, 8)]


def test_a_block_holds_at_least_one_token() -> None:
    with pytest.raises(ValueError, match="at least one token"):
        PrefixCache(0)


def _slow(prompts: Sequence[Sequence[int]], size: int) -> list[int]:
    """The longest whole-block prefix that any earlier prompt begins with, of at most all tokens but one."""
    hits = []
    for index, prompt in enumerate(prompts):
        best = 0
        for blocks in range(1, (len(prompt) - 1) // size + 1):
            head = list(prompt[: blocks * size])
            if any(list(other[: blocks * size]) == head for other in prompts[:index]):
                best = blocks * size
        hits.append(best)
    return hits


@given(st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=12), max_size=8), st.integers(1, 4))
def test_hits_are_those_of_the_slow_rule(prompts: list[list[int]], size: int) -> None:
    assert [hit.hit_tokens for hit in predict_hits(prompts, size)] == _slow(prompts, size)


@given(st.lists(st.binary(max_size=8), max_size=6))
def test_the_common_prefix_is_common_and_longest(rows: list[bytes]) -> None:
    size = common_prefix(rows)
    assert len({row[:size] for row in rows}) <= 1
    if rows and all(len(row) > size for row in rows):
        assert len({row[: size + 1] for row in rows}) > 1


def _row(first: bool) -> list[list[int]]:
    """Twelve prompts of 3,077 tokens, 30 of them another time in each; the last again; and 2,048 tokens twice."""
    rules = list(range(3000))
    rows = []
    for index in range(12):
        time, question = [10_000 + index] * 30, [20_000 + index // 2] * 47
        rows.append([*time, *rules, *question] if first else [*rules, *question, *time])
    return [*rows, rows[-1], rules[:2048], rules[:2048]]


def test_windows_keep_what_stands_before_the_end_and_where_prompts_part() -> None:
    # what vLLM 0.32.0 counted for a model with windows of 512 tokens in blocks of 128: the second prompt that shares
    # a beginning computes it again, and so does a shorter one
    kept = Checkpoints(4)
    first = [hit.hit_tokens for hit in predict_hits(_row(True), 128, checkpoints=kept)]
    assert first == [0] * 12 + [3072, 0, 1920]
    last = [hit.hit_tokens for hit in predict_hits(_row(False), 128, checkpoints=kept)]
    assert last == [0, 0, *[2944] * 10, 3072, 0, 1920]
    # without windows
    assert [hit.hit_tokens for hit in predict_hits(_row(False), 128)] == [0, *[2944] * 11, 3072, 1920, 1920]


def test_an_interval_keeps_more() -> None:
    # a window of one block; kept are what stands before 64, 128 and 160 (of 163): a prompt that leaves after 70 goes on
    # at 64 where there is an interval of 64, and computes all of it where there is none
    first, second = [*range(163)], [*range(70), *range(500, 600)]
    assert predict_hits([first, second], 16, checkpoints=Checkpoints(1, 64))[1] == Hit(170, 64)
    assert predict_hits([first, second], 16, checkpoints=Checkpoints(1))[1] == Hit(170, 0)
    # the third that leaves there is served: 4 whole blocks of 16 in 70
    assert predict_hits([first, second, [*range(70), 7]], 16, checkpoints=Checkpoints(1))[2] == Hit(71, 64)


def test_salts_of_a_row() -> None:
    prompts = [list(range(65))] * 3
    assert [hit.hit_tokens for hit in predict_hits(prompts, 16, salts=["a", "b", "a"])] == [0, 0, 64]
    assert [hit.hit_tokens for hit in predict_hits(prompts, 16, salts=[None, None, "a"])] == [0, 64, 0]


@given(
    st.lists(st.lists(st.integers(0, 1), max_size=40), max_size=8),
    st.integers(1, 5),
    st.integers(1, 4),
)
def test_checkpoints_serve_no_more_and_dense_ones_as_much(prompts: list[list[int]], size: int, blocks: int) -> None:
    every = [hit.hit_tokens for hit in predict_hits(prompts, size)]
    some = [hit.hit_tokens for hit in predict_hits(prompts, size, checkpoints=Checkpoints(blocks))]
    assert all(less <= more for less, more in zip(some, every, strict=True))
    # kept at each block, nothing is lost
    assert [hit.hit_tokens for hit in predict_hits(prompts, size, checkpoints=Checkpoints(blocks, size))] == every
