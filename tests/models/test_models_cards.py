"""Bundled cards: how many, how they are found, and figures that can be checked by hand."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from kvgate.models import cards
from kvgate.models.cards import card_ids, card_provenance, find_card
from kvgate.tables import load_table

DATA = Path(cards.__file__).parent / "data"
SCRIPT = Path(__file__).parents[2] / ".github" / "scripts" / "update_model_cards.py"


def test_there_are_enough_cards_and_each_is_found() -> None:
    ids = card_ids()
    assert len(ids) >= 500
    assert len({name.lower() for name in ids}) == len(ids)
    for name in ids:
        model = find_card(name.upper())
        assert model is not None
        assert (model.source, model.id) == ("bundled", name.upper())
        assert model.config.get("architectures") or model.config.get("model_type")
        assert card_provenance(name)
        if model.checkpoint_bytes is not None:
            assert model.checkpoint_bytes > 0
            assert model.checkpoint_source


def test_at_least_150_cards_have_checkpoint_bytes() -> None:
    weighed = [model for name in card_ids() if (model := find_card(name)) and model.checkpoint_bytes]
    assert len(weighed) >= 300


def test_the_table_stays_small_and_carries_no_private_keys() -> None:
    data = (DATA / "cards.tsv").read_bytes()
    assert len(data) < 1 << 20
    assert b"_kvgate_" not in data
    lines = data.decode().splitlines()
    assert lines == sorted(lines, key=lambda line: line.partition("\t")[0])


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # 32 layers, hidden 4096, 8 KV heads of 128, MLP 14336, vocabulary 128256 untied:
        # 2 x 128256 x 4096 + 32 x (2 x 4096 x 4096 + 2 x 4096 x 1024 + 3 x 4096 x 14336 + 2 x 4096) + 4096
        # = 8,030,261,248 parameters of 2 bytes
        ("meta-llama/Llama-3.1-8B-Instruct", 16_060_522_496),
        ("openai/gpt-oss-20b", 13_761_264_768),  # total_size of its index
        ("facebook/opt-125m", 250_478_592),  # 125,239,296 x 2
    ],
)
def test_known_weights(name: str, expected: int) -> None:
    model = find_card(name)
    assert model is not None
    assert model.checkpoint_bytes == expected


def test_geometry_of_the_articles_model() -> None:
    model = find_card("meta-llama/Llama-3.1-8B-Instruct")
    assert model is not None
    wanted = ("num_hidden_layers", "num_key_value_heads", "hidden_size", "num_attention_heads")
    assert [model.config[key] for key in wanted] == [32, 8, 4096, 32]


def test_renamed_repositories() -> None:
    for old, new in [
        ("CohereForAI/c4ai-command-r-v01", "CohereLabs/c4ai-command-r-v01"),
        ("THUDM/GLM-4-9B-0414", "zai-org/GLM-4-9B-0414"),
        ("gpt2", "openai-community/gpt2"),
    ]:
        card, renamed = find_card(old), find_card(new)
        assert card is not None
        assert renamed is not None
        assert card.config == renamed.config
        assert card.id == old


@pytest.mark.parametrize("name", ["", "acme/none", "meta-llama", "llama-3.1-8b-instruct", "a\tb", "a\nb", "Llama-3.1"])
def test_what_has_no_card(name: str) -> None:
    assert find_card(name) is None


def test_quantisation_beside_the_configuration_is_kept() -> None:
    model = find_card("nvidia/Llama-3.1-70B-Instruct-FP8")
    assert model is not None
    assert model.files["hf_quant_config.json"]["quantization"]["kv_cache_quant_algo"] == "FP8"


def test_the_script_extends_the_table(tmp_path: Path) -> None:
    script = SCRIPT.read_text(encoding="utf-8")
    target = tmp_path / "cards.tsv"
    changed = re.sub(r"^CARDS = .*$", f"CARDS = Path({str(target)!r})", script, flags=re.MULTILINE)
    assert changed != script
    (tmp_path / "script.py").write_text(changed, encoding="utf-8")
    source = tmp_path / "configs"
    source.mkdir()
    (source / "acme__Tiny.json").write_text(
        '{"model_type": "llama", "_kvgate_source": "the repository", "use_cache": 1}'
    )

    def run(*words: str) -> str:
        command = [sys.executable, str(tmp_path / "script.py"), str(source), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert run().startswith("1 cards (1 new), 0 with checkpoint bytes")
    assert target.read_text() == (
        'acme/tiny\t{"id":"acme/Tiny","provenance":"the repository","config":{"model_type":"llama"}}\n'
    )
    (source / "acme__Tiny.json").rename(source / "acme__Other.json")
    (tmp_path / "bytes.json").write_text('{"acme/Other": {"bytes": 5, "source": "index"}}')
    assert run("--bytes", str(tmp_path / "bytes.json")).startswith("2 cards (1 new), 1 with checkpoint bytes")


def test_every_alias_leads_to_a_card() -> None:
    for name, target in load_table("models/cards_aliases")["models"].items():
        assert cards._card(target), (name, target)
        assert find_card(name) is not None
