"""What changed between two releases for the numbers, in words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any, Final

from kvgate.capacity.release import Release, release_of

#: Field of :class:`Release` -> what its change means; ``{old}`` and ``{new}`` where the values say it.
_WORDS: Final[dict[str, str]] = {
    "engine": "the engine is {new} by default (was {old}): another scheduler, admission check and profile run",
    "utilization": "gpu_memory_utilization defaults to {new} (was {old})",
    "size_figure": 'the printed "GPU KV cache size" of models with several KV-cache groups means something else: '
    "compare blocks or concurrency, not tokens",
    "fit_check": "the check that one request of max_model_len fits adds up otherwise for models with several groups",
    "concurrency": 'the printed "maximum concurrency" is computed otherwise for models with several groups',
    "null_block": "one block is set aside before the check that a request of max_model_len fits",
    "in_flight_batches": "sliding-window layers keep the blocks of every batch in flight",
    "reserve_full_prompt": "a request is admitted only when its whole prompt fits (before: its first chunk)",
    "async_by_default": "scheduling overlaps with execution by default",
    "widest_factor": "layers of different kinds are grouped otherwise",
    "unify": "layers whose pages differ in size are brought together otherwise",
    "uniform_types": "layers of one kind and different sizes share one group",
    "tuples": "packed caches are laid out otherwise",
    "packing": "packed caches are laid out otherwise",
    "merge_buckets": "layers of different kinds are grouped otherwise",
    "hybrid_allocator": "layers of different kinds keep their own block tables: windows cost no whole length",
    "window_specs": "sliding windows are told apart from full attention",
    "chunked_hybrid": "chunked attention keeps its own block tables",
    "block_rule": "the default block size follows another rule",
    "alignment": "blocks of hybrid models are aligned otherwise",
    "hybrid_caching": "prefix caching is on by default for models with recurrent layers",
    "state_pages": "recurrent states take other numbers of pages for each request",
    "extra_states_in_all": "speculative tokens cost recurrent states in cache mode all",
    "all_mode": "the Mamba cache mode all is gone",
    "checkpoint_formulas": "more recurrent layers keep a state beside the running one",
    "balanced_stages": "pipeline stages divide the layers otherwise",
    "item_floor": "the token budget is raised to the largest image that cannot be split",
    "large_gpu_batches": "GPUs of 160 GB and more default to max_num_batched_tokens 16,384",
}

#: What no switch of :class:`Release` says: release, and what it brought.
_FURTHER: Final[tuple[tuple[str, str], ...]] = (
    ("0.9.1", "the log prints the available KV cache memory"),
    ("0.10.2", "--kv-cache-memory-bytes sets the pool directly"),
    ("0.11.0", "the V0 engine is gone"),
    ("0.14.0", "--max-model-len auto (or -1) takes the longest that fits"),
    ("0.17.0", "the profile run samples without sorting the vocabulary: a smaller activation peak"),
    ("0.18.0", "the memory of CUDA graphs can be counted in the budget (off by default)"),
    ("0.20.0", "the memory of CUDA graphs is estimated and taken from the pool"),
)


def release_changes(old: str, new: str) -> tuple[str, ...]:
    """Sentences about what differs for the numbers from ``old`` to ``new`` (the other way round when it is older)."""
    return tuple(dict.fromkeys((*_switches(release_of(old), release_of(new)), *_between(old, new))))


def _switches(old: Release, new: Release) -> Iterator[str]:
    for entry in fields(Release):
        before, after = getattr(old, entry.name), getattr(new, entry.name)
        if before == after or entry.name not in _WORDS:
            continue
        words = _WORDS[entry.name].format(old=_shown(before), new=_shown(after))
        backwards = isinstance(before, bool) and before
        yield f"no longer: {words}" if backwards and new.key < old.key else words


def _between(old: str, new: str) -> Iterator[str]:
    low, high = release_of(old), release_of(new)
    for since, words in _FURTHER:
        if high.at_least(since) and not low.at_least(since):
            yield words
        elif low.at_least(since) and not high.at_least(since):
            yield f"not yet: {words}"


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
