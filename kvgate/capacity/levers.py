"""What would let a server hold more, and by how much: each lever is predicted with the same arithmetic.

``max_num_seqs`` is among them only as what it is, memory of the profile run that fewer sequences free.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from kvgate.capacity.prediction import Prediction
from kvgate.hardware.gpu import Gpu
from kvgate.models.geometry import ModelGeometry
from kvgate.records import record

Predict = Callable[[Mapping[str, Any]], Prediction | None]

GIB: Final = 2**30
#: GPUs from this compute capability on take an fp8 cache with every backend.
FP8_CAPABILITY: Final = (8, 9)
_NARROW: Final = ("fp8", "int8", "int4", "nvfp4", "turbo", "ultra", "octave")
_MOST: Final = 0.95
_TOKENS: Final = 2048
#: Bits of a four-bit weight with a scale and a zero point for each group of 128, over 16.
_INT4_SHARE: Final = 4.25 / 16
_EVALUATE: Final = "run your own eval before and after"


@record
class Lever:
    """One change.

    Attributes:
        change: in words, with the flag where there is one.
        sustained: requests that one data-parallel rank then sustains.
        gained_bytes: by which the pool grows on each GPU; 0 where requests need less instead.
        caution: what to know first.
    """

    change: str
    sustained: int
    gained_bytes: int
    caution: str | None = None

    def __str__(self) -> str:
        gained = f", the pool grows by {self.gained_bytes / GIB:.2f} GiB" if self.gained_bytes > 0 else ""
        caution = f" ({self.caution})" if self.caution else ""
        return f"{self.change}: {self.sustained:,} requests{gained}{caution}"


@record
class Advice:
    """What people may want to know beside a prediction.

    Attributes:
        remedy: the mildest change with which a server starts that would not.
        levers: what would hold more.
        on_gpus: the predictions on common GPUs, by name, where the server's own is not known.
    """

    remedy: str | None = None
    levers: tuple[Lever, ...] = ()
    on_gpus: tuple[tuple[str, Prediction], ...] = ()


def find_levers(
    prediction: Prediction, predict: Predict, *, gpu: Gpu | None, geometry: ModelGeometry | None
) -> tuple[Lever, ...]:
    """Changes that let more requests of the declared workload run, the best first; none where nothing is declared.

    Args:
        prediction: of the server as it is.
        predict: of the server with some engine arguments changed.
    """
    load = prediction.concurrency
    if load is None or load.sustained is None or load.limited_by != "kv_cache":
        return ()
    found: dict[str, Lever] = {}
    for change, arguments, caution in _candidates(prediction, gpu, geometry):
        other = predict(arguments)
        if other is None or other.starts == "no" or other.concurrency is None:
            continue
        sustained = other.concurrency.sustained
        if sustained is None or sustained <= load.sustained:
            continue
        pools = (prediction.memory.kv_cache_available.bytes, other.memory.kv_cache_available.bytes)
        gained = pools[1] - pools[0] if pools[0] is not None and pools[1] is not None else 0
        found[change] = Lever(change, sustained, gained, caution)
    return tuple(sorted(found.values(), key=lambda lever: -lever.sustained))


def _candidates(
    prediction: Prediction, gpu: Gpu | None, geometry: ModelGeometry | None
) -> Iterator[tuple[str, Mapping[str, Any], str | None]]:
    resolved = prediction.resolved
    workload = prediction.workload
    cache = prediction.kv_cache.dtype or ""
    if gpu is not None and (gpu.compute_capability or (0, 0)) >= FP8_CAPABILITY and not cache.startswith(_NARROW):
        yield "an fp8 KV cache (--kv-cache-dtype fp8)", {"kv_cache_dtype": "fp8"}, _EVALUATE
    if workload is not None and workload.shared_prefix_tokens and not resolved.get("enable_prefix_caching"):
        yield "prefix caching (--enable-prefix-caching)", {"enable_prefix_caching": True}, None
    tensor = int(resolved.get("tensor_parallel_size") or 1)
    yield (
        f"twice the GPUs (--tensor-parallel-size {2 * tensor})",
        {"tensor_parallel_size": 2 * tensor},
        "a request then runs on all of them",
    )
    yield from _of_weights(prediction, geometry)
    if float(resolved.get("gpu_memory_utilization") or 1) < _MOST and not resolved.get("kv_cache_memory_bytes"):
        words = f"--gpu-memory-utilization {_MOST}"
        yield words, {"gpu_memory_utilization": _MOST}, "only where nothing else uses the GPU"
    if int(resolved.get("max_num_batched_tokens") or 0) > _TOKENS:
        words = f"--max-num-batched-tokens {_TOKENS}"
        yield words, {"max_num_batched_tokens": _TOKENS}, "prompts are read in smaller steps"
    load = prediction.concurrency
    if load is not None and load.sustained and int(resolved.get("max_num_seqs") or 0) > 2 * load.sustained:
        fewer = 2 * load.sustained
        yield f"--max-num-seqs {fewer}", {"max_num_seqs": fewer}, "memory of the profile run, no more"


def _of_weights(
    prediction: Prediction, geometry: ModelGeometry | None
) -> Iterator[tuple[str, Mapping[str, Any], str | None]]:
    """Quantized weights: the layers' shrink, embeddings and output projection stay as they are."""
    parameters, pool = prediction.memory.parameters_bytes, prediction.memory.kv_cache_available.bytes
    if geometry is None or geometry.quantization_method or parameters is None or pool is None:
        return
    if prediction.resolved.get("quantization"):
        return
    tensor = int(prediction.resolved.get("tensor_parallel_size") or 1)
    embeddings = (1 if geometry.tie_word_embeddings else 2) * geometry.vocab_size * geometry.hidden_size * 2 // tensor
    layers = max(0, parameters - embeddings)
    for name, share in (("fp8", 0.5), ("int4", _INT4_SHARE)):
        grown = pool + int(layers * (1 - share))
        yield f"a checkpoint with {name} weights", {"kv_cache_memory_bytes": grown}, f"about; {_EVALUATE}"


def find_remedy(prediction: Prediction, predict: Predict, *, gpu: Gpu | None) -> str | None:
    """The mildest change with which a server that would not start starts; None where there is none, or no need.

    A server that refuses its command line is not helped: its ``reasons`` say what is wrong with it.
    """
    if prediction.starts not in ("no", "unlikely") or prediction.kv_cache.num_gpu_blocks is None:
        return None
    for change, arguments in _remedies(prediction, gpu):
        other = predict(arguments)
        if other is not None and other.starts == "yes":
            return change
    return None


def _remedies(prediction: Prediction, gpu: Gpu | None) -> Iterator[tuple[str, Mapping[str, Any]]]:
    longest, resolved = prediction.kv_cache.estimated_max_model_len, prediction.resolved
    if longest and longest > 0:
        # a length that holds over the whole interval, not just at its middle
        bounds = prediction.kv_cache.interval.get("num_gpu_blocks", (None, None))
        blocks = prediction.kv_cache.num_gpu_blocks
        if bounds[0] is not None and blocks:
            longest = max(1, int(longest * min(1.0, bounds[0] / blocks)))
        yield f"--max-model-len {longest}", {"max_model_len": longest}
    if float(resolved.get("gpu_memory_utilization") or 1) < _MOST and not resolved.get("kv_cache_memory_bytes"):
        yield f"--gpu-memory-utilization {_MOST}", {"gpu_memory_utilization": _MOST}
    if gpu is not None and (gpu.compute_capability or (0, 0)) >= FP8_CAPABILITY:
        yield "--kv-cache-dtype fp8", {"kv_cache_dtype": "fp8"}
    tensor = int(resolved.get("tensor_parallel_size") or 1)
    for factor in (2, 4, 8):
        size = factor * tensor
        yield f"--tensor-parallel-size {size} on {size} GPUs", {"tensor_parallel_size": size}
