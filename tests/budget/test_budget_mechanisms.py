"""What public start-ups showed of the profile run and of the defaults it depends on."""

from __future__ import annotations

from typing import Any

import pytest

from kvgate import predict
from kvgate.capacity.encoder_profile import encoder_profile
from kvgate.capacity.load_time import describe_loading
from kvgate.capacity.profile_run import captured_graphs, engine_of
from kvgate.capacity.release import release_of
from kvgate.capacity.settings import batch_defaults
from kvgate.hardware.catalogue import find_gpu
from kvgate.models.cards import find_card
from kvgate.models.geometry import read_geometry
from kvgate.models.model import Model


@pytest.mark.parametrize(
    ("resolved", "graphs"),
    [
        # "Profiling CUDA graph memory: PIECEWISE=35 (largest=256), FULL=19 (largest=128)"
        ({"max_num_seqs": 128, "max_num_batched_tokens": 2048}, 35 + 19),
        # "PIECEWISE=3 (largest=4), FULL=2 (largest=2)"
        ({"max_num_seqs": 2, "max_num_batched_tokens": 16384}, 3 + 2),
        # "PIECEWISE=1 (largest=1), FULL=1 (largest=1)"
        ({"max_num_seqs": 8, "max_num_batched_tokens": 65536, "max_cudagraph_capture_size": 1}, 1 + 1),
        # "PIECEWISE=51", "FULL=35": 512 tokens and 256 sequences
        ({"max_num_seqs": 256, "max_num_batched_tokens": 2048}, 51 + 35),
    ],
)
def test_graphs_are_counted_as_the_engine_captures_them(resolved: dict[str, Any], graphs: int) -> None:
    assert captured_graphs(resolved) == graphs


def test_full_graphs_hold_whole_drafts() -> None:
    # Of 8 sequences with 3 drafted tokens, steps of 4 to 32 tokens decode uniformly.
    resolved = {"max_num_seqs": 8, "max_num_batched_tokens": 2048, "speculative_tokens": 3}
    pieces = [1, 2, 4, 8, 16, 24, 32, 40, 48, 56, 64]
    assert captured_graphs(resolved) == len(pieces) + len([size for size in pieces if 4 <= size <= 32])


@pytest.mark.parametrize("version", ["0.13.0", "0.20.0", "0.24.0", "0.33.0"])
def test_a_gb10_gets_the_batches_of_a_small_gpu(version: str) -> None:
    # Its start-ups print a token budget of 2048 although it has 120 GiB.
    spark, hopper = find_gpu("GB10"), find_gpu("H200")
    assert spark is not None
    assert hopper is not None
    assert batch_defaults(release_of(version), spark, None, 1) == (2048, 256)
    assert batch_defaults(release_of(version), hopper, None, 1) == (8192, 1024)


@pytest.mark.parametrize(
    ("build", "has", "lacks"),
    [
        ("0.19.2rc1.dev134+gfe9c3d6c5", "0.20.0", "0.20.1"),
        ("0.9.2.dev364+gb432b7a28", "0.9.2", "0.10.0"),
        ("0.29.1rc1.dev17+gd2d649e67", "0.29.0", "0.30.0"),
        ("0.20.1rc1.dev16+g7a1eb8ac2", "0.20.0", "0.20.1"),
        ("0.11.0rc2", "0.11.0", "0.11.1"),
        ("0.24.0+092c4842.dev", "0.24.0", "0.25.0"),
    ],
)
def test_a_build_between_releases_is_the_one_to_come_but_for_its_first_commits(
    build: str, has: str, lacks: str
) -> None:
    assert release_of(build).at_least(has)
    assert not release_of(build).at_least(lacks)


def test_rocm_runs_v0_before_its_v1_was_the_default() -> None:
    card = find_card("meta-llama/Llama-3.1-8B-Instruct")
    assert card is not None
    geometry = read_geometry(Model(None, card.config, "mapping", files=card.files))
    rocm, cuda = {"rocm": True}, {"rocm": False}
    assert engine_of(geometry, rocm, release_of("0.9.1"), {}) == "V0"
    assert engine_of(geometry, rocm, release_of("0.9.2"), {}) == "V1"
    assert engine_of(geometry, cuda, release_of("0.9.1"), {}) == "V1"


def test_a_draft_of_another_checkpoint_is_said_to_be_one() -> None:
    card = find_card("Qwen/Qwen3-8B")
    assert card is not None
    model = Model("Qwen/Qwen3-8B", card.config, "mapping", files=card.files)
    geometry = read_geometry(model)

    def storage(**speculative: Any) -> str:
        resolved = {"dtype": "bfloat16", "speculative_config": speculative, "speculative": speculative}
        return describe_loading(model, geometry, resolved, None, None, "0.25.0").storage

    assert storage(method="eagle3", model="someone/Qwen3-8B-eagle3") == "separate draft"
    assert storage(method="mtp", model="Qwen/Qwen3-8B") == "drafting"
    assert storage() == "plain"


def test_the_encoder_of_dots_ocr_reads_a_page_at_once() -> None:
    card = find_card("rednote-hilab/dots.ocr")
    assert card is not None
    geometry = read_geometry(Model(None, card.config, "mapping", files=card.files))
    profile = encoder_profile(geometry, {}, release_of("0.10.0"), 2048, False)
    assert profile is not None
    # 11,289,600 pixels in patches of 14 x 14, four to an embedding; gate, up, product and streams of 57,600 patches.
    assert profile.item_tokens == 11_289_600 // (28 * 28)
    assert profile.forward_bytes == int(4 * 14_400 * (3 * 4224 + 6.7 * 1536) * 2)


def test_embedding_checkpoints_are_known_to_pool() -> None:
    # "Resolved `--runner auto` to `--runner pooling`": nothing is sampled, so no vocabulary is either.
    prediction = predict("Qwen/Qwen3-Embedding-8B", ["--max-model-len", "8192"], gpu="H100", vllm_version="0.12.0")
    available = prediction.as_dict()["memory"]["kv_cache_available"]["bytes"] / 2**30
    assert available == pytest.approx(56.24, rel=0.01)
