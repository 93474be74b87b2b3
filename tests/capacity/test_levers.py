"""What would hold more: the article's case, each lever by its arithmetic."""

import pytest

from kvgate.capacity.levers import Lever, find_levers, find_remedy
from kvgate.capacity.predict import predict_capacity
from kvgate.capacity.prediction import Workload
from kvgate.hardware.catalogue import find_gpu
from kvgate.models.cards import find_card
from kvgate.models.geometry import read_geometry

GIB = 2**30


def levers(arguments, gpu="RTX 4090", workload=None, model="meta-llama/Llama-3.1-8B-Instruct", version="0.12.0"):
    card, board = find_card(model), find_gpu(gpu)
    load = Workload(**(workload or {"prompt_tokens": 7500, "output_tokens": 1000, "peak_concurrency": 20}))

    def run(changes):
        return predict_capacity(
            card, {"max_model_len": 16384, **arguments, **changes}, version=version, gpu=board, workload=load
        )

    found = find_levers(run({}), run, gpu=board, geometry=read_geometry(card))
    return {lever.change: lever for lever in found}


def test_the_article() -> None:
    # a pool of 5 GiB: 2,560 blocks / 532 = 4.8
    found = levers({"kv_cache_memory_bytes": 5 * GIB})
    # one byte a value: 5,120 / 532 = 9.6
    assert found["an fp8 KV cache (--kv-cache-dtype fp8)"].sustained == 9
    # 16,060,522,496 bytes of parameters, 2 x 128,256 x 4,096 x 2 = 2,101,346,304 of them embeddings and output:
    # 13,959,176,192 x (1 - 4.25 / 16) = 10,251,270,016 bytes more: 15,619,979,136 / 2,097,152 = 7,448 blocks, one of
    # them the null block: 7,447 / 532 = 13.998
    int4 = found["a checkpoint with int4 weights"]
    assert (int4.sustained, int4.gained_bytes) == (13, 10_251_270_016)
    # a half of 13,959,176,192: 5,881 blocks / 532 = 11.05
    assert found["a checkpoint with fp8 weights"].sustained == 11
    assert [lever.sustained for lever in found.values()] == sorted(
        (lever.sustained for lever in found.values()), reverse=True
    )


def test_no_fp8_cache_where_it_is_there_or_the_gpu_is_older() -> None:
    assert not any("fp8 KV" in change for change in levers({"kv_cache_dtype": "fp8"}))
    assert not any("fp8 KV" in change for change in levers({}, gpu="RTX 3090"))


def test_prefix_caching_is_a_lever_only_where_it_is_off_and_shared() -> None:
    shared = {"prompt_tokens": 7500, "output_tokens": 1000, "shared_prefix_tokens": 3000, "peak_concurrency": 20}
    change = "prefix caching (--enable-prefix-caching)"
    assert change in levers({"enable_prefix_caching": False}, workload=shared)
    assert change not in levers({"enable_prefix_caching": False})
    assert change not in levers({}, workload=shared)


def test_fewer_sequences_are_no_more_than_freed_profile_memory() -> None:
    found = [lever for change, lever in levers({}).items() if change.startswith("--max-num-seqs")]
    assert all(lever.caution == "memory of the profile run, no more" and lever.gained_bytes > 0 for lever in found)


@pytest.mark.parametrize("workload", [{"peak_concurrency": 20}, {"prompt_tokens": 100, "output_tokens": 1}])
def test_none_where_nothing_is_short(workload) -> None:
    # no prompt is declared; or max_num_seqs is the limit
    assert levers({"max_num_seqs": 4}, workload=workload) == {}


def test_none_that_would_not_start() -> None:
    # 16 GiB for one request of the model's own length: of all changes only two GPUs start
    assert list(levers({"max_model_len": 131072})) == ["twice the GPUs (--tensor-parallel-size 2)"]


def test_its_words() -> None:
    assert str(Lever("x", 1200, GIB, "y")) == "x: 1,200 requests, the pool grows by 1.00 GiB (y)"


def remedy(arguments, gpu, model="meta-llama/Llama-3.1-8B-Instruct"):
    card, board = find_card(model), find_gpu(gpu)

    def run(changes):
        return predict_capacity(card, {**arguments, **changes}, version="0.12.0", gpu=board)

    return find_remedy(run({}), run, gpu=board)


def test_the_mildest_change_with_which_it_starts() -> None:
    # 131,072 tokens need 16 GiB, the 4090 has 5: a shorter length will do, and it holds over the whole interval
    words = remedy({}, "RTX 4090")
    assert words is not None
    assert words.startswith("--max-model-len ")
    assert 38_000 < int(words.split()[1]) < 41_000
    # 141 GB of weights on one H100: only more GPUs will do, 4 x 79 x 0.9 = 285 GiB
    assert remedy({"max_model_len": 8192}, "H100 80GB", "meta-llama/Llama-3.1-70B-Instruct") in (
        "--tensor-parallel-size 2 on 2 GPUs",
        "--tensor-parallel-size 4 on 4 GPUs",
    )
    assert remedy({"max_model_len": 8192}, "RTX 4090") is None, "it starts"
