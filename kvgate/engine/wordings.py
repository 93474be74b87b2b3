"""How each vLLM release words its memory figures and refusals (0.4.2 to 0.33.0, read from the released sources).

Messages stand here as patterns, without the prefix that a logger adds.
"""

from __future__ import annotations

import re
from typing import Final, Literal

from kvgate.records import record

RefusalKind = Literal[
    "kv-cache-too-small",  # one request of max_model_len does not fit
    "no-kv-cache-memory",  # nothing is left for the pool
    "memory-in-use",  # other processes hold what was asked for
    "out-of-memory",  # an allocation failed
    "length-exceeds-model",  # --max-model-len is more than the model's own length
    "not-divisible",  # heads or layers by the parallel size
    "unsupported-device",  # the device cannot do what was asked for
    "no-device",  # no accelerator was found
    "invalid-arguments",  # the command line was refused
    "model-not-found",
    "not-authorised",  # the Hub wants a token
    "address-in-use",
    "process-died",  # a process of the engine ended; a cause, if any, stands elsewhere
    "error",  # any other exception
]


_N: Final = r"-?[\d,]+(?:\.\d+)?"
_G: Final = r" ?Gi?B"


@record
class Wording:
    """How figures are worded; the names of the groups are those of the figures.

    ``first`` and ``last`` are the read releases with it; ``last`` None is the newest.
    """

    pattern: re.Pattern[str]
    first: str
    last: str | None = None


def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"(?<!\?P)<(\w+)>", lambda name: f"(?P<{name[1]}>{_N})", pattern))


def _worded(pattern: str, first: str, last: str | None = None) -> Wording:
    return Wording(_compiled(pattern), first, last)


#: Figures, with the releases that print them so; a line is read by the first that fits.
WORDINGS: Final[tuple[Wording, ...]] = (
    # weights
    _worded(rf"Loading model weights took <weights>{_G}", "0.4.2", "0.9.2"),
    _worded(rf"Model loading took <weights>{_G}(?: memory)? and {_N} seconds", "0.8.0"),
    # the memory profile of the V0 engine, a line each
    _worded(
        rf"Memory profiling results: total_gpu_memory=<total>{_G}.* peak_torch_memory=<peak_torch>{_G}"
        rf".* non_torch_memory=<non_torch>{_G} kv_cache_size=<kv_cache_available>{_G}"
        r" gpu_memory_utilization=<utilization>",
        "0.6.4",
        "0.6.4.post1",
    ),
    _worded(
        rf"the current vLLM instance can use total_gpu_memory \(<total>{_G}\)"
        rf" x gpu_memory_utilization \(<utilization>\) = <requested>{_G}",
        "0.6.5",
        "0.10.2",
    ),
    _worded(
        rf"model weights take <weights>{_G}; non_torch_memory takes <non_torch>{_G}; PyTorch activation peak memory"
        rf" takes <activation_peak>{_G}; the rest of the memory reserved for KV Cache is <kv_cache_available>{_G}",
        "0.6.5",
        "0.10.2",
    ),
    # the memory profile of the V1 engine
    _worded(rf"Available KV cache memory: <kv_cache_available>{_G}", "0.9.1"),
    _worded(
        rf"Free memory on device(?: \S+)? \(<free_at_start>/<total>{_G}\) on startup\. Desired GPU memory utilization"
        rf" is \(<utilization>, <requested>{_G}\)\. Actual usage is <weights>{_G} for weight, <activation_peak>{_G} for"
        rf" peak activation, <non_torch>{_G} for non-torch memory, and <cuda_graphs>{_G} for CUDAGraph memory",
        "0.10.2",
        "0.26.0",
    ),
    _worded(
        rf"Free memory on device(?: \S+)? \(<free_at_start>/<total>{_G}\) on startup\. Desired GPU memory utilization"
        rf" is \(<utilization>, <requested>{_G}\)\. Actual usage is <consumed>{_G} for consumed memory"
        rf" \(weights \+ non-torch\), <activation_peak>{_G} for peak activation, and <cuda_graphs>{_G} for CUDAGraph",
        "0.27.0",
    ),
    _worded(
        rf"Initial free memory <free_at_start>{_G},? reserved <kv_cache_available>{_G} memory for KV Cache", "0.10.2"
    ),
    _worded(rf"Explicitly set \(<kv_cache_available>/{_N}\){_G} for KV cache on node", "0.20.0"),
    _worded(rf"Auto set \(<kv_cache_available>/{_N}\){_G} for KV cache on node", "0.20.0"),
    # CUDA graphs
    _worded(rf"Graph capturing finished in {_N} secs, took <cuda_graphs>{_G}", "0.6.4"),
    _worded(rf"Estimated CUDA graph memory: <cuda_graphs_estimated>{_G} total", "0.18.0"),
    _worded(
        rf"CUDA graph pool memory: <cuda_graphs_pool>{_G} \(actual\), <cuda_graphs_estimated>{_G} \(estimated\)",
        "0.18.0",
    ),
    # the pool
    _worded(r"# GPU blocks: <num_gpu_blocks>, # CPU blocks: ", "0.4.2", "0.6.6.post1"),
    _worded(r"# GPU blocks: <num_gpu_blocks>$", "0.6.4", "0.7.3"),
    _worded(r"# \w+ blocks: <num_gpu_blocks>, # CPU blocks: ", "0.7.0", "0.11.0"),
    _worded(
        r"(?:Engine \d+: |\d+ Engines: )?vllm cache_config_info with initialization after num_gpu_blocks is:"
        r" <num_gpu_blocks>",
        "0.9.0",
    ),
    _worded(r"Overriding num_gpu_blocks=<blocks_profiled> with num_gpu_blocks_override=<num_gpu_blocks>", "0.4.2"),
    _worded(
        r"\w+ KV cache size: <size_tokens> tokens, Maximum concurrency for <max_model_len> tokens per request:"
        r" <max_concurrency>x",
        "0.28.0",
    ),
    _worded(r"Maximum concurrency for <max_model_len> tokens per request: <max_concurrency>x", "0.6.3", "0.27.1"),
    _worded(r"\w+ KV cache size: <size_tokens> tokens$", "0.8.0", "0.27.1"),
    _worded(r"Multiplying the GPU KV cache size by the (?:dcp|cp)_world_size <context_parallel>", "0.10.2", "0.20.0"),
    # what shapes it
    _worded(r"Setting attention block size to <block_size> tokens", "0.10.0"),
    _worded(r"(?:Forcing|Setting) kv cache block size to <block_size> for ", "0.8.0"),
    _worded(r"Chunked prefill is enabled with max_num_batched_tokens=<max_num_batched_tokens>", "0.5.3"),
    _worded(r"Auto-fit max_model_len: reduced from {n} to <max_model_len> to fit in".replace("{n}", _N), "0.14.0"),
)

BYTES: Final = frozenset(
    (
        "total", "requested", "weights", "activation_peak", "non_torch", "consumed", "cuda_graphs", "cuda_graphs_pool",
        "cuda_graphs_estimated", "free_at_start", "kv_cache_available", "peak_torch",
    )
)  # fmt: skip
RATIOS: Final = frozenset(("max_concurrency", "utilization"))

_REFUSALS: Final[tuple[tuple[RefusalKind, str], ...]] = (
    (
        "kv-cache-too-small",
        rf"To serve at least one request with the models?'s max(?:imum)? seq len \(?<max_model_len>\)?, \(?<needed>{_G}"
        rf" KV cache is needed, which is larger than the available KV cache memory \(<available>{_G}\)"
        r"(?:.*?the estimated maximum model length is <estimated>)?",
    ),
    (
        "kv-cache-too-small",
        r"The model's max seq len \(<max_model_len>\) is larger than the maximum number of tokens that can be"
        r" stored in KV cache \(<tokens>\)",
    ),
    ("no-kv-cache-memory", r"No available memory for the cache blocks"),
    ("no-kv-cache-memory", r"Cannot auto-fit max_model_len: not enough"),
    ("no-kv-cache-memory", rf"The worker already uses {_N}{_G} .* leaving none for the KV cache"),
    (
        "memory-in-use",
        rf"Free memory on device(?: \S+)? \(<available>/{_N}{_G}\) on startup is less than"
        rf" .*?\({_N}, <needed>{_G}\)",
    ),
    (
        "memory-in-use",
        rf"Available memory on node \S+ \(<available>/{_N}{_G}\) on .*? is less than .*?\((?:{_N}, )?"
        rf"<needed>(?:/{_N})?{_G}\)",
    ),
    ("memory-in-use", r"Externally held weights on device "),
    ("out-of-memory", r"CUDA out of memory\. Tried to allocate <needed_any>(?: (?P<scale>[KMG])iB)?"),
    ("out-of-memory", r"(?:CUDA|HIP) out of memory"),
    ("out-of-memory", r"(?:DefaultCPUAllocator: (?:can't|not enough) |std::bad_alloc|MemoryError\b)"),
    ("length-exceeds-model", r"User-specified max_model_len \(<max_model_len>\) is greater than the derived"),
    ("not-divisible", r"Total number of (?:attention heads|hidden layers) \(\d+\) must be divisible by"),
    ("unsupported-device", r"Bfloat16 is only supported on GPUs with compute capability"),
    ("unsupported-device", r"The quantization method \S+ is not supported for the current GPU"),
    ("no-device", r"(?:No CUDA GPUs are available|Failed to infer device type|Found no NVIDIA driver)"),
    (
        "invalid-arguments",
        r"(?:\S+\.py|vllm|vllm serve)?:? ?error: (?:unrecognized arguments|argument |ambiguous option|the following)",
    ),
    (
        "not-authorised",
        r"(?:You are trying to access a gated repo|401 Client Error|Invalid user token|GatedRepoError)",
    ),
    (
        "model-not-found",
        r"(?:is not a local folder and is not a valid model identifier|Repository Not Found|404 Client Error"
        r"|Invalid repository ID or local directory|does not appear to have a file named config\.json"
        r"|Cannot find any model weights with)",
    ),
    ("address-in-use", r"(?:\[Errno 98\]|\[Errno 48\]|EADDRINUSE)"),
    (
        "process-died",
        r"(?:Worker proc \S+ died|RayWorkerProc rank=\S+ died|Engine core proc(?:ess)? \S+ died|died with exit code"
        r"|Engine core initialization failed|Frontend process failed|!!!!!!! Segfault|Fatal Python error"
        r"|engine core exited unexpectedly|EngineDeadError\b)",
    ),
)


#: Why a server does not start, the particular before the general.
REFUSALS: Final = tuple((kind, _compiled(pattern)) for kind, pattern in _REFUSALS)
# The last line of a traceback.
EXCEPTION: Final = re.compile(
    r"(?:[a-zA-Z_][\w.]*\.)?[A-Z]\w*(?:Error|Exception|Interrupt|Exit|NotFound|Violation)\b(?:: |$)"
)
CONSEQUENCES: Final = re.compile(
    r"(?:SystemExit|KeyboardInterrupt|asyncio\.exceptions\.CancelledError|CancelledError)\b"
)
