"""Which tokens of a row of requests vLLM's prefix cache serves: the block rule, without a server.

A request reuses the longest run of whole blocks, from its beginning, that earlier requests have filled with the same
tokens. At least one token is always computed, so that a prompt which is wholly cached computes its last block anew
(vLLM 0.32.0 ``v1/core/kv_cache_manager.py``, ``get_computed_blocks``: at most ``num_tokens - 1`` tokens are served;
``v1/core/single_type_kv_cache_manager.py``, ``find_longest_cache_hit``: whole blocks of an unbroken chain).
``vllm:prefix_cache_queries`` counts the tokens of the prompts, ``vllm:prefix_cache_hits`` those that were served.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

from kvgate.records import record


@record
class Hit:
    """What the cache serves of one prompt. ``query_tokens``: its length; both in the unit of the given tokens."""

    query_tokens: int
    hit_tokens: int


@record
class HitTotal:
    """The sums over a row of requests, as vLLM's two counters have them."""

    query_tokens: int
    hit_tokens: int

    @property
    def rate(self) -> float:
        """Share of the prompts' tokens that the cache serves; 0 where there are none."""
        return self.hit_tokens / self.query_tokens if self.query_tokens else 0.0


class PrefixCache:
    """Blocks that earlier requests have filled; nothing is evicted.

    Args:
        block_size: tokens of a block.
        drafts: speculative decoding by EAGLE or MTP drops the last block of a hit, whose hidden states it needs.
    """

    def __init__(self, block_size: int, *, drafts: bool = False) -> None:
        if block_size < 1:
            raise ValueError(f"a block holds at least one token, not {block_size}")
        self.block_size = block_size
        self._drafts = drafts
        self._blocks: dict[tuple[int, Hashable], int] = {}

    def serve(self, prompt: Sequence[int] | bytes, *, salt: Hashable = None) -> Hit:
        """What is served of a prompt that comes now."""
        size = self.block_size
        parent, hit = self._root(salt), 0
        # one token is always computed
        while hit + size <= len(prompt) - 1:
            found = self._blocks.get((parent, _key(prompt[hit : hit + size])))
            if found is None:
                break
            parent, hit = found, hit + size
        if self._drafts and hit:
            hit -= size
        return Hit(len(prompt), hit)

    def fill(self, tokens: Sequence[int] | bytes, *, salt: Hashable = None) -> None:
        """Keep the whole blocks of what was computed: the prompt, and the output but its last token."""
        size = self.block_size
        parent = self._root(salt)
        for start in range(0, len(tokens) - size + 1, size):
            key = (parent, _key(tokens[start : start + size]))
            parent = self._blocks.setdefault(key, len(self._blocks) + 1)

    def _root(self, salt: Hashable) -> int:
        return 0 if salt is None else self._blocks.setdefault((0, ("salt", salt)), len(self._blocks) + 1)


def _key(tokens: Sequence[int] | bytes) -> Hashable:
    return tokens if isinstance(tokens, bytes) else tuple(tokens)


def predict_hits(
    prompts: Iterable[Sequence[int] | bytes],
    block_size: int,
    *,
    outputs: Iterable[Sequence[int] | bytes] | None = None,
    drafts: bool = False,
) -> list[Hit]:
    """What the cache serves of each prompt when they come one after the other.

    Args:
        prompts: token ids of each prompt as the server renders it.
        block_size: tokens of a block (of the largest, for a model whose layers have several).
        outputs: token ids that were generated for each; the last of each is never computed, and so never cached.
    """
    cache = PrefixCache(block_size, drafts=drafts)
    generated = iter(outputs) if outputs is not None else None
    hits: list[Hit] = []
    for prompt in prompts:
        hits.append(cache.serve(prompt))
        output = next(generated, ()) if generated is not None else ()
        if output:
            computed = bytes(prompt) + bytes(output) if isinstance(prompt, bytes) else (*prompt, *output)
            cache.fill(computed[:-1])
        else:
            cache.fill(prompt)
    return hits


def total(hits: Iterable[Hit]) -> HitTotal:
    """The sums of a row of hits."""
    several = list(hits)
    return HitTotal(sum(hit.query_tokens for hit in several), sum(hit.hit_tokens for hit in several))


def common_prefix(rows: Sequence[Sequence[int] | bytes]) -> int:
    """How many leading tokens all rows have in common."""
    if not rows:
        return 0
    low, high = min(rows), max(rows)  # type: ignore[type-var]
    for index in range(min(len(low), len(high))):
        if low[index] != high[index]:
            return index
    return min(len(low), len(high))
