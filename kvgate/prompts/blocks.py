"""Which tokens of a row of requests vLLM's prefix cache serves: the block rule, without a server.

A request reuses the longest run of whole blocks, from its beginning, that earlier requests have filled with the same
tokens. At least one token is always computed, so that a prompt which is wholly cached computes its last block anew
(vLLM 0.32.0 ``v1/core/kv_cache_manager.py``, ``get_computed_blocks``: at most ``num_tokens - 1`` tokens are served;
``v1/core/single_type_kv_cache_manager.py``, ``find_longest_cache_hit``: whole blocks of an unbroken chain).
``vllm:prefix_cache_queries`` counts the tokens of the prompts, ``vllm:prefix_cache_hits`` those that were served.

Sliding windows and recurrent states keep checkpoints only, from 0.29.0 (``--prefix-cache-retention-interval``, 0 by
default): what stands before the end of a prompt, and before the place where a later prompt was seen to leave an earlier
one. So the second prompt that shares a beginning computes it again, and only the third is served
(``kv_cache_coordinator.py``, ``replay_boundaries``; ``SlidingWindowManager`` and ``MambaManager``,
``reachable_block_mask``).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from itertools import repeat

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


@record
class Checkpoints:
    """What layers keep that need not look at all that stands before a token.

    Attributes:
        blocks: how many blocks before a place must be kept for a prompt to go on there: those of the window,
            ``ceil((window - 1) / block_size)``, or 1 for a recurrent state.
        interval: further places, each so many tokens; 0 for none.
    """

    blocks: int
    interval: int = 0


class PrefixCache:
    """Blocks that earlier requests have filled; nothing is evicted.

    Args:
        block_size: tokens of a block.
        drafts: speculative decoding by EAGLE or MTP drops the last block of a hit, whose hidden states it needs.
        checkpoints: of the model's sliding windows and recurrent states; None where it has none, or keeps all of them.
    """

    def __init__(self, block_size: int, *, drafts: bool = False, checkpoints: Checkpoints | None = None) -> None:
        if block_size < 1:
            raise ValueError(f"a block holds at least one token, not {block_size}")
        self.block_size = block_size
        self._drafts = drafts
        self._checkpoints = checkpoints
        self._blocks: dict[tuple[int, Hashable], int] = {}
        self._kept: set[int] = set()

    def serve(self, prompt: Sequence[int] | bytes, output: Sequence[int] | bytes = (), *, salt: Hashable = None) -> Hit:
        """What is served of a prompt that comes now; what is computed is kept: the prompt, and the output but its last
        token.
        """
        size = self.block_size
        chain = self._chain(prompt, salt)
        # one token is always computed
        shared = chain[: max(0, len(prompt) - 1) // size]
        found = self._resumed(shared)
        hit = found * size
        computed = _joined(prompt, output)[:-1] if len(output) else prompt
        filled = self._fill(computed, salt)
        if self._checkpoints is not None:
            self._keep(filled, found, len(prompt), len(shared) * size if found < len(shared) else 0)
        if self._drafts and hit:
            hit -= size
        return Hit(len(prompt), hit)

    def _chain(self, tokens: Sequence[int] | bytes, salt: Hashable) -> list[int]:
        """The known blocks from the beginning of a text."""
        size = self.block_size
        parent = self._root(salt)
        found: list[int] = []
        for start in range(0, len(tokens) - size + 1, size):
            known = self._blocks.get((parent, _key(tokens[start : start + size])))
            if known is None:
                break
            found.append(known)
            parent = known
        return found

    def _resumed(self, shared: list[int]) -> int:
        """After how many of the shared blocks every layer can go on."""
        if self._checkpoints is None:
            return len(shared)
        for stop in range(len(shared), 0, -1):
            if self._kept.issuperset(shared[max(0, stop - self._checkpoints.blocks) : stop]):
                return stop
        return 0

    def _fill(self, tokens: Sequence[int] | bytes, salt: Hashable) -> list[int]:
        """Keep the whole blocks of what was computed."""
        size = self.block_size
        parent = self._root(salt)
        filled: list[int] = []
        for start in range(0, len(tokens) - size + 1, size):
            key = (parent, _key(tokens[start : start + size]))
            parent = self._blocks.setdefault(key, len(self._blocks) + 1)
            filled.append(parent)
        return filled

    def _keep(self, filled: list[int], resumed: int, prompt_tokens: int, parting: int) -> None:
        """Keep what stands before the end of the prompt, before where it parts from others, and at the interval."""
        kept = self._checkpoints
        if kept is None:
            return
        places = {prompt_tokens - 1, parting}
        if kept.interval:
            places |= set(range(kept.interval, len(filled) * self.block_size + 1, kept.interval))
        for place in places:
            stop = place // self.block_size
            self._kept.update(filled[max(resumed, stop - kept.blocks, 0) : stop])

    def _root(self, salt: Hashable) -> int:
        return 0 if salt is None else self._blocks.setdefault((0, ("salt", salt)), len(self._blocks) + 1)


def _key(tokens: Sequence[int] | bytes) -> Hashable:
    return tokens if isinstance(tokens, bytes) else tuple(tokens)


def _joined(prompt: Sequence[int] | bytes, output: Sequence[int] | bytes) -> Sequence[int] | bytes:
    return bytes(prompt) + bytes(output) if isinstance(prompt, bytes) else (*prompt, *output)


def predict_hits(
    prompts: Sequence[Sequence[int] | bytes],
    block_size: int,
    *,
    outputs: Sequence[Sequence[int] | bytes] | None = None,
    salts: Sequence[Hashable] | None = None,
    drafts: bool = False,
    checkpoints: Checkpoints | None = None,
) -> list[Hit]:
    """What the cache serves of each prompt when they come one after the other.

    Args:
        prompts: token ids of each prompt as the server renders it.
        block_size: tokens of a block (of the largest, for a model whose layers have several).
        outputs: token ids that were generated for each; the last of each is never computed, and so never cached.
        salts: the ``cache_salt`` of each request, None where it has none.
        drafts, checkpoints: see :class:`PrefixCache`.
    """
    cache = PrefixCache(block_size, drafts=drafts, checkpoints=checkpoints)
    empty: Sequence[int] = ()
    several = zip(prompts, outputs or repeat(empty), salts or repeat(None), strict=False)
    return [cache.serve(prompt, output, salt=salt) for prompt, output, salt in several]


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
