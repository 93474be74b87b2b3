"""Rebuild or extend kvgate/models/data/cards.tsv from configurations.

    python .github/scripts/update_model_cards.py DIRECTORY [--bytes FILE] [--replace]

DIRECTORY holds configurations as ``<org>__<name>.json`` (a repository's ``config.json`` under its Hub id), or as
``<org>__<name>/config.json`` with the other JSON files of the repository beside it, as ``kvgate lock`` keeps them in
``.kvgate/models/``. Keys of a configuration that begin with ``_kvgate_`` say how it is known and become the card's
provenance. FILE is a JSON object ``{hub id: {"bytes": n, "source": words}}`` with the size of the weight files; a
``lock.json`` beside a configuration gives the same. Cards that are already there are kept unless a new one of the same
id comes, or ``--replace`` starts afresh.

Sources: the repositories themselves on the Hub (``config.json``, ``model.safetensors.index.json``), never a guess: a
configuration whose origin is not sure says so in ``_kvgate_note``.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

CARDS = Path(__file__).resolve().parents[2] / "kvgate" / "models" / "data" / "cards.tsv"
LIMIT_BYTES = 1 << 20

# Words of a configuration that no computation of vLLM's memory reads; dropping them keeps the table small.
UNUSED = {
    "_name_or_path",
    "transformers_version",
    "use_cache",
    "initializer_range",
    "attention_dropout",
    "pad_token_id",
}


def read_cards(directory: Path, sizes: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Cards by Hub id from a directory of configurations."""
    cards = {}
    for path in sorted(directory.iterdir()):
        config_path = path / "config.json" if path.is_dir() else path
        if config_path.suffix != ".json" or not config_path.is_file():
            continue
        hub_id = path.stem.replace("__", "/", 1) if path.is_file() else path.name.replace("__", "/", 1)
        config = json.loads(config_path.read_text(encoding="utf-8"))
        lock: dict[str, Any] = {}
        files: dict[str, Any] = {}
        if path.is_dir():
            for other in sorted(path.glob("*.json")):
                if other.name == "lock.json":
                    lock = json.loads(other.read_text(encoding="utf-8"))
                elif other.name != "config.json":
                    files[other.name] = json.loads(other.read_text(encoding="utf-8"))
        card: dict[str, Any] = {
            "id": lock.get("id", hub_id),
            "provenance": provenance(config, lock),
            "config": {
                key: value for key, value in config.items() if not key.startswith("_kvgate_") and key not in UNUSED
            },
        }
        if files:
            card["files"] = files
        if size := sizes.get(hub_id):
            card["checkpoint_bytes"], card["checkpoint_source"] = size["bytes"], size["source"]
        elif lock.get("checkpoint_bytes"):
            card["checkpoint_bytes"], card["checkpoint_source"] = lock["checkpoint_bytes"], lock["checkpoint_source"]
        cards[card["id"]] = card
    return cards


def provenance(config: dict[str, Any], lock: dict[str, Any]) -> str:
    """How a configuration is known, in one line."""
    if lock:
        return f"config.json of the repository at {lock.get('revision')}"
    words = [str(config[key]) for key in ("_kvgate_source", "_kvgate_note") if config.get(key)]
    return "; ".join(words) or "config.json of the repository"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--bytes", type=Path, help="JSON with the bytes of the weight files by Hub id")
    parser.add_argument("--replace", action="store_true", help="forget the cards that are there")
    options = parser.parse_args()
    sizes = json.loads(options.bytes.read_text(encoding="utf-8")) if options.bytes else {}
    cards: dict[str, dict[str, Any]] = {}
    if CARDS.exists() and not options.replace:
        for line in CARDS.read_text(encoding="utf-8").splitlines():
            card = json.loads(line.partition("\t")[2])
            cards[card["id"]] = card
    known = set(cards)
    cards.update(read_cards(options.directory, sizes))
    lines = [
        f"{hub_id.lower()}\t{json.dumps(cards[hub_id], separators=(',', ':'), ensure_ascii=False)}\n"
        for hub_id in sorted(cards, key=str.lower)
    ]
    text = "".join(lines)
    size = len(text.encode("utf-8"))
    if size > LIMIT_BYTES:
        print(f"the table would have {size:,} bytes, more than {LIMIT_BYTES:,}", file=sys.stderr)
        return 1
    CARDS.write_text(text, encoding="utf-8")
    weighed = sum("checkpoint_bytes" in card for card in cards.values())
    print(f"{len(cards)} cards ({len(set(cards) - known)} new), {weighed} with checkpoint bytes, {size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
