"""Amounts of memory as Kubernetes and Compose write them."""

from __future__ import annotations

import re
from typing import Final

_UNITS: Final = {
    "": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15,
    "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50,
}  # fmt: skip


def quantity_bytes(text: str) -> int | None:
    """A Kubernetes quantity (``16Gi``, ``0.5Gi``, ``1e9``) in bytes; None when it is none."""
    match = re.fullmatch(r"([0-9]{1,18}(?:\.[0-9]{1,9})?)(?:[eE]([0-9]{1,2}))?([kMGTP]|[KMGTP]i)?", text.strip())
    if not match:
        return None
    from decimal import Decimal

    return int(Decimal(match.group(1)) * 10 ** int(match.group(2) or 0) * _UNITS[match.group(3) or ""])


_SIZES: Final = {"": 1, "b": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


def size_bytes(text: str) -> int | None:
    """A Compose byte value (``16gb``, ``64m``, ``6.15g``): powers of 1024; None when it is none."""
    match = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{1,9})?) ?([bkmgt]?)(?:i?b)?", text.strip().lower())
    if not match:
        return None
    from decimal import Decimal

    return int(Decimal(match.group(1)) * _SIZES[match.group(2)])
