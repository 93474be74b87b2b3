"""One GPU as the engine sees it."""

from __future__ import annotations

from typing import Literal

from kvgate.records import record


@record
class Gpu:
    """A catalogue entry.

    Attributes:
        name: the catalogue's name (``NVIDIA GeForce RTX 4090``); ``cpu`` for vLLM's CPU backend.
        vendor: ``nvidia``, ``amd`` or ``cpu``.
        memory_bytes: total memory as the driver reports it to the engine (torch's ``total_memory``), the middle of
            the figures seen; None when no figure is known.
        memory_low, memory_high: the smallest and largest figure seen for this product.
        basis: ``exact`` when figures were read in start-up logs, ``declared`` when only the board's figure is known.
        compute_capability: (major, minor), None for other vendors.
        unified_memory: the GPU shares the host's memory (GB10).
    """

    name: str
    vendor: Literal["nvidia", "amd", "cpu"]
    memory_bytes: int | None
    memory_low: int | None
    memory_high: int | None
    basis: Literal["exact", "declared", "unknown"]
    compute_capability: tuple[int, int] | None
    unified_memory: bool = False
