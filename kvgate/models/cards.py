"""Bundled model cards: configuration and checkpoint bytes of models that people serve.

``data/cards.tsv`` has one line per model, ``hub id in lower case TAB json``, so that one card is found without parsing
the others. ``.github/scripts/update_model_cards.py`` writes it.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any, Final

from kvgate.models.model import Model
from kvgate.tables import load_table

_DATA: Final = Path(__file__).parent / "data"


@cache
def _table() -> bytes:
    return b"\n" + (_DATA / "cards.tsv").read_bytes()


def card_ids() -> tuple[str, ...]:
    """The Hub ids of all cards, as the Hub spells them."""
    lines = _table().decode("utf-8").splitlines()[1:]
    return tuple(json.loads(line.partition("\t")[2])["id"] for line in lines)


def find_card(hub_id: str) -> Model | None:
    """The card of a Hub id, without regard to case, or of the same repository's other name; None when there is none."""
    card = _card(hub_id)
    if card is None:
        for other in _other_names(hub_id):
            if card := _card(other):
                break
    if card is None:
        return None
    return Model(
        id=hub_id,
        config=card["config"],
        source="bundled",
        files=card.get("files", {}),
        checkpoint_bytes=card.get("checkpoint_bytes"),
        checkpoint_source=card.get("checkpoint_source"),
    )


def card_provenance(hub_id: str) -> str | None:
    """How a card's configuration is known, for people."""
    for name in (hub_id, *_other_names(hub_id)):
        if card := _card(name):
            return str(card["provenance"])
    return None


def _card(hub_id: str) -> dict[str, Any] | None:
    if "\t" in hub_id or "\n" in hub_id:
        return None
    key = b"\n" + hub_id.lower().encode("utf-8", "replace") + b"\t"
    table = _table()
    at = table.find(key)
    if at < 0:
        return None
    start = at + len(key)
    card: dict[str, Any] = json.loads(table[start : table.index(b"\n", start)])
    return card


def suggest_card(path: str) -> str | None:
    """The Hub id of the one card whose name ends a path (``/models/Qwen3-8B``); None for none or several.

    A directory can have any name, so this is a suggestion to people, never a resolution.
    """
    name = path.replace("\\", "/").rstrip("/").rpartition("/")[2].lower()
    if not re.fullmatch(r"[a-z0-9._-]{4,96}", name):
        return None
    lines = re.findall(rb"\n([^\t\n]*/" + re.escape(name.encode()) + rb")\t", _table())
    if len(lines) != 1:
        return None
    card = _card(lines[0].decode())
    return str(card["id"]) if card else None


def _other_names(hub_id: str) -> tuple[str, ...]:
    """Names under which the same repository is known: renamed organisations, renamed repositories, identical copies."""
    aliases = load_table("models/cards_aliases")
    names = []
    lowered = hub_id.lower()
    if other := aliases["models"].get(lowered):
        names.append(other)
    organisation, slash, name = lowered.partition("/")
    if slash:
        names += [f"{other}/{name}" for other in aliases["organisations"].get(organisation, ())]
    return tuple(names)
