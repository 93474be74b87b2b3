"""Which attention kernels an engine picks, as far as it matters for the cache: block sizes, formats, refusals.

The table restates vLLM 0.32.0's backends (``v1/attention/backends``) and ``platforms/cuda.py``'s priorities; earlier
releases differ in the lists below. A kernel block size is an exact size or a multiple.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from kvgate.records import record

Capability = tuple[int, int]


@record
class KernelBlock:
    size: int
    multiple: bool = False


def exact(*sizes: int) -> tuple[KernelBlock, ...]:
    return tuple(KernelBlock(size) for size in sizes)


def multiple(size: int) -> tuple[KernelBlock, ...]:
    return (KernelBlock(size, True),)


@record
class Choice:
    """What a layer asks of its kernels."""

    head_size: int
    dtype: str
    cache_dtype: str
    heads: int = 0
    kv_heads: int = 0
    head_size_v: int | None = None
    block_size: int | None = None
    latent: bool = False
    sparse: bool = False
    sink: bool = False
    references: bool = False
    mm_prefix: bool = False
    encoder: str = "decoder"
    window: bool = False
    qk_nope: int = 1
    qk_rope: int = 64
    kv_rank: int = 0
    v_head: int = 0
    index_topk: int | None = None
    dcp: bool = False
    per_head_scales: bool = False
    non_causal: bool = False


Test = Callable[[Choice, Capability], bool]


def _any(choice: Choice, capability: Capability) -> bool:
    return True


@record
class Backend:
    """A row: what a backend accepts. ``blocks`` are its kernel block sizes, which may depend on the layer."""

    name: str
    blocks: Callable[[Choice, Capability], tuple[KernelBlock, ...]]
    cache_dtypes: tuple[str, ...]
    capability: Callable[[Capability], bool] = lambda capability: True
    head_sizes: Callable[[int], bool] = lambda size: True
    dtypes: tuple[str, ...] = ("float16", "bfloat16")
    latent: bool = False
    sparse: bool = False
    sink: Test = lambda choice, capability: False
    mm_prefix: Test = lambda choice, capability: False
    encoders: tuple[str, ...] = ("decoder",)
    windows: bool = False
    references: bool = False
    shards: bool = False
    non_causal: bool = False
    combination: Test = _any
    aligned_rows: int = 0
    block_outermost: bool = False
    preferred: int | None = None


def _always(blocks: tuple[KernelBlock, ...]) -> Callable[[Choice, Capability], tuple[KernelBlock, ...]]:
    return lambda choice, capability: blocks


PLAIN: Final = ("auto", "float16", "bfloat16")
FP8: Final = ("fp8", "fp8_e4m3")
_ALL_ENCODERS: Final = ("decoder", "encoder", "encoder_only", "encoder_decoder")


def _flash_version(choice: Choice, capability: Capability, *, head: bool = True) -> int:
    """FlashAttention's generation for a layer (``fa_utils.get_flash_attn_version``)."""
    size = choice.head_size if head else 0
    if capability[0] == 9:
        return 4 if size > 256 else 3
    if capability[0] == 10:
        if size == 256:
            return 2 if choice.sink or choice.cache_dtype not in PLAIN or choice.mm_prefix or choice.dcp else 4
        return 2 if size > 128 else 4
    return 2


def _flash_blocks(choice: Choice, capability: Capability) -> tuple[KernelBlock, ...]:
    if capability[0] == 9 and choice.cache_dtype in FP8 and choice.head_size == 512:
        return exact(64)
    if capability[0] in (10, 11) and choice.head_size == 256 and _flash_version(choice, capability) == 4:
        return exact(128)
    return multiple(16)


def _flash_combination(choice: Choice, capability: Capability) -> bool:
    if choice.sink and capability < (9, 0):
        return False
    quantized = choice.cache_dtype not in PLAIN
    version = _flash_version(choice, capability)
    if quantized:
        if choice.mm_prefix and capability == (9, 0):
            return False
        ninety = capability[0] == 9 and (version == 3 or (version == 4 and choice.head_size == 512))
        if not (ninety or (version == 4 and capability[0] == 10)):
            return False
    return not (choice.mm_prefix and version != 4)


def _large_pages(choice: Choice, capability: Capability) -> bool:
    return capability[0] == 10 and choice.kv_heads > 0 and choice.heads // choice.kv_heads > 1


def _flashinfer_combination(choice: Choice, capability: Capability) -> bool:
    if choice.cache_dtype.startswith("nvfp4"):
        if capability[0] == 10:
            return True
        return (
            choice.cache_dtype == "nvfp4" and capability[0] in (8, 9, 12) and choice.head_size != 64 and not choice.sink
        )
    return True


FLASH_ATTN: Final = Backend(
    "FLASH_ATTN",
    _flash_blocks,
    (*PLAIN, *FP8),
    capability=lambda capability: capability >= (8, 0),
    head_sizes=lambda size: size % 8 == 0 and size <= 512,
    sink=lambda choice, capability: _flash_version(choice, capability, head=False) in (3, 4),
    mm_prefix=lambda choice, capability: capability[0] in (9, 10),
    encoders=_ALL_ENCODERS,
    combination=lambda choice, capability: (
        (choice.head_size <= 256 or capability[0] in (9, 10, 11)) and _flash_combination(choice, capability)
    ),
    windows=True,
    references=True,
    shards=True,
    non_causal=True,
)
FLASHINFER: Final = Backend(
    "FLASHINFER",
    lambda choice, capability: (
        exact(16, 32, 64, 128, 256, 512, 1024) if _large_pages(choice, capability) else exact(16, 32, 64)
    ),
    (*PLAIN, *FP8, "fp8_e5m2", "nvfp4", "nvfp4_4over6"),
    capability=lambda capability: (8, 0) <= capability <= (12, 1),
    head_sizes=lambda size: size in (64, 128, 256, 512),
    sink=lambda choice, capability: capability[0] == 10,
    combination=_flashinfer_combination,
    windows=True,
    shards=True,
    non_causal=True,
)
TRITON_ATTN: Final = Backend(
    "TRITON_ATTN",
    _always(multiple(16)),
    (*PLAIN, *FP8, "fp8_e5m2", "int4_per_token_head", "int8_per_token_head", "fp8_per_token_head"),
    dtypes=("float16", "bfloat16", "float32"),
    head_sizes=lambda size: size >= 32,
    sink=lambda choice, capability: True,
    mm_prefix=lambda choice, capability: True,
    encoders=_ALL_ENCODERS,
    windows=True,
    references=True,
    non_causal=True,
)
FLEX_ATTENTION: Final = Backend(
    "FLEX_ATTENTION",
    _always(multiple(16)),
    PLAIN,
    dtypes=("float16", "bfloat16", "float32"),
    mm_prefix=lambda choice, capability: True,
    encoders=("decoder", "encoder_only"),
    windows=True,
    references=True,
    non_causal=True,
)
# Image masks go to Triton, causal queries to the other kernel; both must take the cache.
TRITON_FLASH_ATTN: Final = Backend(
    "TRITON_FLASH_ATTN",
    _flash_blocks,
    (*PLAIN, *FP8),
    capability=lambda capability: capability[0] == 9,
    head_sizes=lambda size: size in (256, 512),
    mm_prefix=_any,
    combination=lambda choice, capability: _flash_combination(replace(choice, mm_prefix=False), capability),
    windows=True,
    references=True,
)
TRITON_FLASHINFER: Final = Backend(
    "TRITON_FLASHINFER",
    _always(exact(64)),
    (*PLAIN, *FP8, "fp8_e5m2"),
    capability=lambda capability: capability[0] == 10,
    head_sizes=lambda size: size in (256, 512),
    mm_prefix=_any,
    combination=_flashinfer_combination,
    windows=True,
)
TURBOQUANT: Final = Backend(
    "TURBOQUANT",
    _always(exact(16, 32, 64, 128)),
    ("turboquant_k8v4", "turboquant_4bit_nc", "turboquant_k3v4_nc", "turboquant_3bit_nc"),
)
_MLA_HEADS: Final = frozenset({320, 512, 576})


def _mla(name: str, blocks: tuple[KernelBlock, ...], majors: tuple[int, ...] | None, dtypes: tuple[str, ...],
         *, heads: Callable[[int], bool] = lambda size: size in _MLA_HEADS, combination: Test = _any,
         sparse: bool = False, rows: int = 0, shards: bool = True,
         model_dtypes: tuple[str, ...] = ("float16", "bfloat16")) -> Backend:  # fmt: skip
    return Backend(
        name,
        _always(blocks),
        dtypes,
        capability=lambda capability: majors is None or capability[0] in majors,
        head_sizes=heads,
        dtypes=model_dtypes,
        latent=True,
        sparse=sparse,
        combination=combination,
        aligned_rows=rows,
        shards=shards,
    )


def _sparse_trtllm(choice: Choice, capability: Capability) -> bool:
    if choice.cache_dtype == "fp8_ds_mla" or choice.index_topk is None:
        return False
    if choice.qk_rope == 0:
        return choice.qk_nope == 256 and choice.kv_rank == 512
    return choice.qk_nope in (128, 192)


def _flashmla_sparse(choice: Choice, capability: Capability) -> bool:
    if choice.head_size == 512:
        plain = choice.cache_dtype in (*PLAIN, "fp8_ds_mla")
        if not (plain and capability[0] == 9 and choice.qk_rope == 0):
            return False
    return choice.cache_dtype != "nvfp4_ds_mla" or capability[0] == 10


FLASH_ATTN_MLA: Final = _mla("FLASH_ATTN_MLA", multiple(16), (9,), PLAIN)
FLASHMLA: Final = _mla(
    "FLASHMLA", exact(64), (9, 10), (*PLAIN, *FP8), combination=lambda choice, capability: capability[0] == 9
)
FLASHINFER_MLA: Final = _mla(
    "FLASHINFER_MLA", exact(32, 64), (10,), (*PLAIN, *FP8),
    combination=lambda choice, capability: choice.qk_nope in (64, 128, 192),
)  # fmt: skip
TOKENSPEED_MLA: Final = _mla(
    "TOKENSPEED_MLA", exact(32, 64), (10,), FP8,
    combination=lambda choice, capability: (choice.qk_nope, choice.qk_rope, choice.v_head) == (128, 64, 128),
)  # fmt: skip
CUTLASS_MLA: Final = _mla("CUTLASS_MLA", exact(128), (10,), (*PLAIN, *FP8))
TRITON_MLA: Final = _mla("TRITON_MLA", multiple(16), None, (*PLAIN, *FP8), heads=lambda size: True)
FLASH_ATTN_MLA_SPARSE: Final = _mla(
    "FLASH_ATTN_MLA_SPARSE", multiple(64), (9,), PLAIN, heads=lambda size: True, sparse=True, rows=1,
    combination=lambda choice, capability: choice.index_topk is not None, shards=False,
)  # fmt: skip
FLASHMLA_SPARSE: Final = Backend(
    "FLASHMLA_SPARSE",
    lambda choice, capability: exact(64) if capability[0] == 10 and choice.cache_dtype not in PLAIN else multiple(64),
    ("auto", "bfloat16", "fp8_ds_mla", "fp8", "nvfp4_ds_mla"),
    capability=lambda capability: capability[0] in (9, 10),
    head_sizes=lambda size: size in (512, 576),
    dtypes=("bfloat16",),
    latent=True,
    sparse=True,
    combination=_flashmla_sparse,
    aligned_rows=1,
    shards=True,
)
FLASHINFER_MLA_SPARSE: Final = _mla(
    "FLASHINFER_MLA_SPARSE", multiple(32), (10,), (*PLAIN, *FP8), heads=lambda size: size in (512, 576), sparse=True,
    combination=_sparse_trtllm, rows=32,
)  # fmt: skip
FLASHINFER_MLA_SPARSE_SM90: Final = _mla(
    "FLASHINFER_MLA_SPARSE_SM90", multiple(64), (9,), ("auto", "bfloat16", *FP8),
    heads=lambda size: size in (512, 576), sparse=True, rows=1, model_dtypes=("bfloat16",),
    combination=lambda choice, capability: choice.kv_rank == 512 and choice.qk_rope in (0, 64), shards=False,
)  # fmt: skip
FLASHINFER_MLA_SPARSE_SM120: Final = _mla(
    "FLASHINFER_MLA_SPARSE_SM120", multiple(64), (12,), ("auto", *FP8, "fp8_ds_mla"),
    heads=lambda size: size in (512, 576), sparse=True, rows=64, model_dtypes=("bfloat16",),
    combination=lambda choice, capability: choice.index_topk == 2048, shards=False,
)  # fmt: skip

# Models whose values are narrower than their keys name this one themselves: nothing is checked.
FLASH_ATTN_DIFFKV: Final = Backend("FLASH_ATTN_DIFFKV", _always(multiple(16)), ())

CPU_ATTN: Final = Backend(
    "CPU_ATTN",
    _always(multiple(32)),
    ("auto", *FP8, "fp8_e5m2"),
    dtypes=("float16", "bfloat16", "float32"),
    encoders=_ALL_ENCODERS,
    sink=lambda choice, capability: True,
    mm_prefix=lambda choice, capability: True,
    windows=True,
    non_causal=True,
)
CPU_MLA: Final = Backend(
    "CPU_MLA", _always(exact(16)), ("auto",), dtypes=("float16", "bfloat16", "float32"), latent=True,
    head_sizes=lambda size: size == 576,
)  # fmt: skip

# ROCm's kernels all take blocks of 16; which one it is depends on what AITER builds for the card. The format decides
# among the rest (``platforms/rocm.py``, 0.33.0; Octave and UltraQuant are ROCm's alone).
ROCM_ATTN: Final = Backend("ROCM_ATTN", _always(multiple(16)), (*PLAIN, *FP8, "fp8_e5m2"))
ROCM_OCTAVE: Final = Backend(
    "ROCM_OCTAVE", _always(multiple(16)), ("octave_k3v4", "octave_k3v3", "octave_k3v3_compact")
)
ULTRAQUANT: Final = Backend("ULTRAQUANT", _always(multiple(16)), ("ultraquant_4bit",))
ROCM_MLA: Final = Backend("ROCM_MLA", _always(multiple(1)), (*PLAIN, *FP8, "fp8_e5m2"), latent=True)
_ROCM: Final = (ROCM_ATTN, TRITON_ATTN, TURBOQUANT, ROCM_OCTAVE, ULTRAQUANT, ROCM_MLA)
AMX_MLA: Final = Backend("AMX_MLA", _always(multiple(32)), ("auto",), latent=True)

# Caches with kernels of their own, whatever the layer asks, by the role of the layer. ``outermost`` layouts put the
# blocks before the layers, so that pages of different sizes share a block.


def _own(
    name: str, blocks: tuple[KernelBlock, ...], *, outermost: bool = False, preferred: int | None = None
) -> Backend:
    return Backend(name, _always(blocks), (), block_outermost=outermost, preferred=preferred)


BY_ROLE: Final = {
    "indexer": _own("DEEPSEEK_V32_INDEXER", exact(64)),
    "dsv4_indexer": _own("DEEPSEEK_V4_INDEXER", exact(256), outermost=True),
    "dsv4_latent": _own("FLASHMLA_SPARSE_DSV4", exact(256)),
    "dsv4_window": _own("DEEPSEEK_SPARSE_SWA", multiple(32), preferred=256),
    "dsv4_state": _own("CompressorBackend", multiple(1)),
    "inkling_conv": _own("INKLING_SCONV_SWA", multiple(1)),
    "inkling_attention": _own("FLASH_ATTN", multiple(16)),
    "minimax_indexer": _own("MINIMAX_M3_SPARSE_INDEXER", exact(128)),
    "minimax_sparse": _own("MINIMAX_M3_SPARSE", exact(128)),
    "qsa_attention": _own("QWEN4_EXP_QSA_TRITON", multiple(16)),
    "qsa_keys": _own("QWEN4_EXP_EXP_QSA_STATE", multiple(1), outermost=True),
    "qsa_ring": _own("QWEN4_EXP_EXP_QSA_STATE", multiple(1), outermost=True),
    "kpool_indexer": _own("DEEPSEEK_V32_INDEXER", exact(64)),
    "kpool_tail": _own("KPOOL_TAIL", multiple(1), outermost=True),
}

# Backends that pack keys and values in their own way, and for which formats.
_PACKERS: Final = {
    "TRITON_ATTN": "_per_token_head",
    "TRITON_MLA": "_per_token_head",
    "FLASHINFER": "nvfp4",
    "TURBOQUANT": "turboquant_",
    "ROCM_OCTAVE": "octave_",
    "ULTRAQUANT": "ultraquant_",
}


def packs(backend: Backend, cache_dtype: str) -> bool:
    """Whether the backend rewrites a layer's format (``customize_spec``)."""
    return _PACKERS.get(backend.name, "-") in cache_dtype


_BY_NAME: Final = {
    backend.name: backend
    for backend in (
        FLASH_ATTN, FLASHINFER, TRITON_ATTN, FLEX_ATTENTION, TURBOQUANT, TRITON_FLASH_ATTN, TRITON_FLASHINFER,
        FLASH_ATTN_MLA, FLASHMLA, FLASHINFER_MLA,
        TOKENSPEED_MLA, CUTLASS_MLA, TRITON_MLA, FLASH_ATTN_MLA_SPARSE, FLASHMLA_SPARSE, FLASHINFER_MLA_SPARSE,
        FLASHINFER_MLA_SPARSE_SM90, FLASHINFER_MLA_SPARSE_SM120, CPU_ATTN, CPU_MLA,
    )
}  # fmt: skip


class NoBackendError(ValueError):
    """No kernel of the release serves the layer on this GPU: it refuses to start."""


def priorities(choice: Choice, capability: Capability) -> tuple[Backend, ...]:
    """The order in which CUDA's platform tries (``platforms/cuda.py:_get_backend_priorities``)."""
    major = capability[0]
    if choice.latent:
        if major == 10:
            quantized = choice.cache_dtype not in PLAIN
            few = quantized or choice.heads <= 16
            sparse = (FLASHINFER_MLA_SPARSE, FLASHMLA_SPARSE) if few else (FLASHMLA_SPARSE, FLASHINFER_MLA_SPARSE)
            return (FLASHINFER_MLA, TOKENSPEED_MLA, CUTLASS_MLA, FLASH_ATTN_MLA, FLASHMLA, TRITON_MLA, *sparse)
        if major == 12:
            return (TRITON_MLA, FLASHINFER_MLA_SPARSE_SM120)
        tail = [FLASH_ATTN_MLA_SPARSE, FLASHMLA_SPARSE]
        if choice.head_size == 512:
            tail.insert(0, FLASHINFER_MLA_SPARSE_SM90)
        else:
            tail.append(FLASHINFER_MLA_SPARSE_SM90)
        return (FLASH_ATTN_MLA, FLASHMLA, FLASHINFER_MLA, TRITON_MLA, *tail)
    if major == 10 and not choice.non_causal:
        plain = (FLASHINFER, FLASH_ATTN, TRITON_ATTN, FLEX_ATTENTION, TURBOQUANT)
        return (TRITON_FLASHINFER, *plain) if choice.mm_prefix else plain
    plain = (FLASH_ATTN, FLASHINFER, TRITON_ATTN, FLEX_ATTENTION, TURBOQUANT)
    return (TRITON_FLASH_ATTN, *plain) if major == 9 and choice.mm_prefix else plain


def accepts_block(blocks: Sequence[KernelBlock], size: int) -> bool:
    """Whether a cache block can be split into a kernel's blocks."""
    return not blocks or any(size % block.size == 0 for block in blocks)


def accepts(backend: Backend, choice: Choice, capability: Capability) -> bool:
    """``AttentionBackend.validate_configuration``."""
    return (
        backend.latent == choice.latent
        and backend.sparse == choice.sparse
        and backend.capability(capability)
        and backend.head_sizes(choice.head_size)
        and choice.dtype in backend.dtypes
        and choice.cache_dtype in backend.cache_dtypes
        and (choice.block_size is None or accepts_block(backend.blocks(choice, capability), choice.block_size))
        and choice.encoder in backend.encoders
        and (not choice.sink or backend.sink(choice, capability))
        and (not choice.window or backend.windows or backend.latent)
        and (not choice.references or backend.references)
        and (not choice.non_causal or backend.non_causal)
        and (not choice.dcp or backend.shards)
        and (not choice.mm_prefix or backend.mm_prefix(choice, capability))
        and (not choice.per_head_scales or _flash_version(choice, capability, head=False) >= 3)
        and backend.combination(choice, capability)
    )


def choose(choice: Choice, capability: Capability, requested: str | None = None) -> Backend:
    """The backend a layer gets.

    Raises:
        NoBackendError: none accepts it, or the requested one does not.
    """
    if choice.head_size_v not in (None, choice.head_size):
        return FLASH_ATTN_DIFFKV
    if requested is not None and requested.upper() in _BY_NAME:
        backend = _BY_NAME[requested.upper()]
        if backend.latent == choice.latent:
            if accepts(backend, choice, capability):
                return backend
            raise NoBackendError(f"attention backend {requested} does not serve this model on this GPU")
    for backend in priorities(choice, capability):
        if accepts(backend, choice, capability):
            return backend
    raise NoBackendError(
        f"no attention backend serves head size {choice.head_size} with a {choice.cache_dtype} KV cache on compute "
        f"capability {capability[0]}.{capability[1]}"
    )


def choose_rocm(choice: Choice) -> Backend:
    """The backend a layer gets on an AMD GPU, by the cache's format alone.

    Raises:
        NoBackendError: none takes the format.
    """
    for backend in _ROCM:
        if backend.latent == choice.latent and choice.cache_dtype in backend.cache_dtypes:
            return backend
    kind = "latent" if choice.latent else "plain"
    raise NoBackendError(f"no attention backend of ROCm serves a {choice.cache_dtype} KV cache of {kind} attention")


def preferred_block(blocks: Sequence[tuple[KernelBlock, ...]], default: int) -> int:
    """The smallest block that every backend takes (``_preferred_block_size_for_backends``).

    Raises:
        NoBackendError: they share none.
    """
    if all(accepts_block(each, default) for each in blocks):
        return default
    if len(blocks) == 1:
        return min(block.size for block in blocks[0])
    sizes = [[block.size for block in each] or [1] for each in blocks]
    for size in sorted({math.lcm(*combination) for combination in itertools.product(*sizes)}):
        if all(accepts_block(each, size) for each in blocks):
            return size
    raise NoBackendError("the attention backends of the model share no block size")


def largest_block(blocks: Sequence[KernelBlock], per_token_bytes: int, budget_bytes: int) -> int:
    """The largest kernel block whose page fits (``_largest_kernel_block_within``)."""
    most = budget_bytes // per_token_bytes
    sizes = [max(b.size, most // b.size * b.size) if b.multiple else b.size for b in blocks]
    fitting = [size for size in sizes if size * per_token_bytes <= budget_bytes]
    return max(fitting) if fitting else min(sizes)
