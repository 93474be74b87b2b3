"""A model's layers as cache specs of one rank: block sizes, packing, alignment of recurrent states.

Ported from vLLM 0.32.0: ``model_executor/layers/attention/*.py`` and ``layers/mamba/*`` (``get_kv_cache_spec``),
``platforms/interface.py`` (``update_block_size_for_backend``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields, replace
from operator import attrgetter
from typing import Any, Final

from kvgate.capacity import backends as kernels
from kvgate.capacity.backends import Backend, Choice, KernelBlock
from kvgate.capacity.release import Release
from kvgate.capacity.settings import ELEMENT_BYTES, RefusedError, Settings, caches_every_state
from kvgate.capacity.spec import CacheSpec, SpecKind, ceil_div
from kvgate.models.geometry import Layer, ModelGeometry, State
from kvgate.records import record

DEFAULT_BLOCK: Final = 16
_ROW_BYTES: Final = {"fp8_ds_mla": 656, "nvfp4_ds_mla": 352}
_PLAIN: Final = frozenset({"auto", "float16", "bfloat16", "float32", "half", "float"})


@record
class CacheLayout:
    """The specs of one rank's layers, in order.

    ``cache_dtype`` is the resolved name, ``mamba_mode`` the cache mode of recurrent layers, ``aligned`` whether a
    request keeps states at block boundaries.
    """

    specs: tuple[CacheSpec, ...]
    block_size: int
    cache_dtype: str
    mamba_mode: str
    block_outermost: bool
    backends: tuple[str, ...]


_FORMATS: Final = frozenset({"auto", *ELEMENT_BYTES})


class UnknownFormatError(ValueError):
    """A cache format whose bytes are not known; the message names it."""


def element_bytes(cache_dtype: str, dtype: str) -> int:
    """Bytes of one element.

    Raises:
        UnknownFormatError: the format is not in the table.
    """
    name = dtype if cache_dtype == "auto" else cache_dtype
    try:
        return ELEMENT_BYTES[name]
    except KeyError:
        raise UnknownFormatError(f"the KV-cache format {name} is not known") from None


def packed_content_bytes(
    cache_dtype: str, head_size: int, head_size_v: int, *, latent: bool = False, rotary: float = 1.0
) -> int | None:
    """Bytes of one head slot where a format packs more than plain elements (backends' ``customize_spec``).

    ``rotary`` is the share of a head that is rotated, which Octave keeps finer.
    """
    if cache_dtype.endswith("_per_token_head"):
        size_k, size_v = head_size, 0 if latent else head_size_v
        if cache_dtype.startswith("int4"):
            size_k, size_v = size_k // 2, size_v // 2
        return size_k + size_v + 2 * 4
    if cache_dtype.startswith("nvfp4") and not latent:
        return 2 * (head_size // 2 + head_size // 16)
    if cache_dtype.startswith("turboquant_"):
        return _turboquant_bytes(cache_dtype, head_size)
    if cache_dtype.startswith("octave_"):
        return _octave_bytes(cache_dtype, head_size, int(head_size * rotary))
    if cache_dtype == "ultraquant_4bit":  # four bits, and a scale for each group of 32
        return 2 * (head_size // 2 + head_size // 32)
    return None


def _octave_bytes(cache_dtype: str, head_size: int, rotated: int) -> int:
    """``ops/rocm_octave.py:OctaveFormat`` (0.33.0): keys of 3 bits, 4 where rotated; scales of 2 bytes."""
    compact = cache_dtype.endswith("_compact")
    wide = 0 if compact else rotated
    scales = (1 if compact else head_size // 64) + 1
    values = head_size * (4 if "v4" in cache_dtype else 3) // 8
    raw = wide * 4 // 8 + (head_size - wide) * 3 // 8 + values + 2 * scales
    unit = 4 if compact else 8
    return ceil_div(raw, unit) * unit


def _turboquant_bytes(cache_dtype: str, head_size: int) -> int:
    """``quantization/turboquant/config.py``: keys and values of a slot, even."""
    key_bits, value_bits = {
        "turboquant_k8v4": (8, 4), "turboquant_4bit_nc": (4, 4),
        "turboquant_k3v4_nc": (3, 4), "turboquant_3bit_nc": (3, 3),
    }[cache_dtype]  # fmt: skip
    key = head_size if key_bits == 8 else ceil_div(head_size * key_bits, 8) + 2
    value = ceil_div(head_size * value_bits, 8) + 4
    return (key + value + 1) // 2 * 2


def rank_heads(total: int, shards: int) -> int:
    """KV heads of one rank: sharded, or replicated where there are fewer than ranks.

    Raises:
        RefusedError: neither divides the other.
    """
    if (total >= shards and total % shards) or (total < shards and total and shards % total):
        raise RefusedError(f"{total} KV heads cannot be shared by {shards} tensor-parallel ranks")
    return max(1, total // shards)


def state_shapes(state: State, shards: int, speculative_tokens: int) -> tuple[int, int]:
    """Elements of the convolution's and of the recurrent state of one rank (``layers/mamba/mamba_utils.py``).

    Raises:
        RefusedError: a dimension does not divide by the ranks.
    """
    rows = state.conv_kernel - 1
    if state.formula == "mamba1":
        width = _divide(state.inner, shards)
        return rows * width, width * state.state_size
    if state.formula == "mamba2":
        groups = state.groups if state.groups % shards == 0 else state.groups + shards - state.groups
        width = _divide(state.inner + 2 * groups * state.state_size, shards)
        return (rows + speculative_tokens) * width, _divide(state.heads, shards) * state.head_dim * state.state_size
    if state.formula == "gated_delta":
        width = _divide(2 * state.groups * state.state_size + state.heads * state.head_dim, shards)
        return (rows + speculative_tokens) * width, _divide(state.heads, shards) * state.head_dim * state.state_size
    if state.formula == "kimi_delta":
        width = _divide(state.heads * state.head_dim + 2 * state.groups * state.state_size, shards)
        return (rows + speculative_tokens) * width, _divide(state.heads, shards) * state.head_dim * state.head_dim
    if state.formula == "short_conv":
        return (rows + speculative_tokens) * _divide(state.inner, shards), 0
    if state.formula == "linear":
        return 0, state.heads // shards * state.head_dim * state.head_dim
    raise RefusedError(f"recurrent state {state.formula} is not known")


def _divide(value: int, shards: int) -> int:
    if value % shards:
        raise RefusedError(f"a recurrent layer of width {value} does not divide by {shards} tensor-parallel ranks")
    return value // shards


def state_bytes(state: State, settings: Settings) -> int:
    """One request's state of one layer, per rank."""
    shards = 1 if state.replicated else settings.tensor_parallel_size
    conv, recurrent = state_shapes(state, shards, settings.speculative_tokens)
    conv_dtype = settings.dtype if settings.mamba_dtype == "auto" else settings.mamba_dtype
    recurrent_dtype = settings.mamba_ssm_dtype if settings.mamba_ssm_dtype != "auto" else state.dtype or conv_dtype
    kept = conv * ELEMENT_BYTES[conv_dtype] + recurrent * ELEMENT_BYTES[recurrent_dtype]
    return kept + settings.replay_window * _replayed_bytes(state, shards, settings)


def _replayed_bytes(state: State, shards: int, settings: Settings) -> int:
    """One kept input of a Mamba 2 layer: values, a float32 step per head, and B of every group.

    Raises:
        UnknownFormatError: Kimi's delta attention, whose rings are not described.
    """
    if not settings.replay_window:
        return 0
    if state.formula != "mamba2":
        raise UnknownFormatError("--use-replayssm with Kimi's delta attention: its rings are not described")
    heads, width = _divide(state.heads, shards), ELEMENT_BYTES[settings.dtype]
    groups = state.groups if state.groups % shards == 0 else shards
    return heads * (state.head_dim * width + ELEMENT_BYTES["float32"]) + groups // shards * state.state_size * width


def lay_out(geometry: ModelGeometry, settings: Settings, release: Release, drafts: Sequence[Layer] = ()) -> CacheLayout:
    """The specs of every cache-owning layer of one rank.

    Args:
        drafts: the layers that speculative decoding adds.

    Raises:
        RefusedError: the engine does not start.
        NoBackendError: no attention kernel serves a layer.
    """
    if release.engine == "V0":
        return _lay_out_v0(geometry, settings, release)
    return _Layout(geometry, settings, release, drafts).build()


def _lay_out_v0(geometry: ModelGeometry, settings: Settings, release: Release) -> CacheLayout:
    """V0 gives every attention layer the same cache (``worker/cache_engine.py:CacheEngine.get_cache_block_size``)."""
    dtype = settings.cache_dtype
    width = element_bytes(dtype, settings.dtype)
    owners = [layer for layer in geometry.layers if layer.kind in ("attention", "mla", "encoder")]
    if not geometry.is_hybrid and not geometry.is_attention_free:
        owners = [Layer(index) for index in range(geometry.num_layers)]
    size, heads = geometry.head_size, max(1, geometry.num_kv_heads // settings.tensor_parallel_size)
    block = settings.block_size or DEFAULT_BLOCK
    if geometry.uses_mla and release.at_least("0.7.1"):
        row = size * width
        if release.at_least("0.7.2") and not release.at_least("0.8.0"):
            row = ceil_div(row, 256) * 256
        block = _Layout(geometry, settings, release).platform_block(block)
        specs = [CacheSpec("mla_attention", block, 1, row, layer=layer.index) for layer in owners]
    else:
        if geometry.uses_mla:
            text = geometry.text
            heads = geometry.num_heads // settings.tensor_parallel_size
            size = int(text.get("qk_nope_head_dim") or 0) + int(text.get("qk_rope_head_dim") or 0)
            size = size if release.at_least("0.7.0") else 256
        specs = [CacheSpec("full_attention", block, heads, 2 * size * width, layer=layer.index) for layer in owners]
    return CacheLayout(tuple(specs), block, dtype, "none", block_outermost=False, backends=())


_FORM: Final = attrgetter(*(entry.name for entry in fields(Layer) if entry.name != "index"))


class _Layout:
    def __init__(
        self, geometry: ModelGeometry, settings: Settings, release: Release, drafts: Sequence[Layer] = ()
    ) -> None:
        self.geometry = geometry
        self.layers = (*geometry.layers, *drafts)
        self.settings = settings
        self.release = release
        self.cache_dtype = _model_cache_dtype(geometry, settings)
        self.block_size = DEFAULT_BLOCK
        self.mamba_block_size: int | None = None
        self.mamba_padded: int | None = None
        self.skip_padded: int | None = None
        self.skip_layers = frozenset(settings.skip_layers)
        self.chosen: dict[Choice, Backend] = {}

    # --- kernels

    def choice(self, layer: Layer, cache_dtype: str) -> Choice:
        text, settings = self.geometry.text, self.settings
        shards = settings.tensor_parallel_size
        latent = layer.kind == "mla"
        return Choice(
            head_size=layer.head_size,
            dtype=settings.dtype,
            cache_dtype=cache_dtype,
            heads=layer.heads // shards,
            kv_heads=1 if latent else max(1, layer.kv_heads // shards),
            head_size_v=None if latent else layer.head_size_v,
            block_size=settings.block_size,
            latent=latent,
            sparse=layer.sparse,
            sink=layer.sink,
            references=layer.role == "references",
            mm_prefix=settings.image_masks and not latent,
            encoder={"encoder": "encoder_only", "cross": "encoder_decoder"}.get(layer.kind, "decoder"),
            window=self.window_of(layer) is not None,
            qk_nope=int(text.get("qk_nope_head_dim") or 0) or 1,
            qk_rope=int(text.get("qk_rope_head_dim") or 0),
            kv_rank=int(text.get("kv_lora_rank") or 0),
            v_head=int(text.get("v_head_dim") or 0),
            index_topk=text.get("index_topk"),
            dcp=settings.decode_context_parallel_size > 1,
            non_causal=self.geometry.family.non_causal,
        )

    def backend(self, choice: Choice) -> Backend:
        found = self.chosen.get(choice)
        if found is None:
            if self.settings.rocm:
                found = kernels.choose_rocm(choice)
            elif self.settings.cpu:
                found = kernels.CPU_ATTN
                if choice.latent:
                    wish = (self.settings.attention_backend or "").upper()
                    found = kernels.CPU_MLA if wish == "CPU_MLA" else kernels.AMX_MLA
            else:
                found = kernels.choose(choice, self.settings.capability, self.settings.attention_backend)
            self.chosen[choice] = found
        return found

    def layer_dtype(self, layer: Layer) -> str:
        if layer.dtype == "model":
            return "auto"
        if layer.kind == "encoder":  # it keeps no cache, but its backend has to know the format
            return self.cache_dtype
        if str(layer.index) in self.skip_layers or (
            layer.kind == "attention" and self.window_of(layer) is not None and "sliding_window" in self.skip_layers
        ):
            return "auto"
        return self.cache_dtype

    def window_of(self, layer: Layer) -> int | None:
        return (
            layer.window
            if layer.window is not None
            else (self.geometry.sliding_window if layer.kind == "attention" and layer.chunk is None else None)
        )

    def blocks_of(self, layer: Layer, *, head_size: int | None = None) -> tuple[KernelBlock, ...] | None:
        """The blocks that a layer's backend takes: for its heads, or for heads of ``head_size``."""
        if layer.kind == "recurrent":
            return None
        own = kernels.BY_ROLE.get(layer.role)
        if own is not None:
            return own.blocks(Choice(layer.head_size, "", ""), self.settings.capability)
        choice = self.choice(layer, self.layer_dtype(layer))
        asked = choice if head_size is None else replace(choice, head_size=head_size)
        return self.backend(choice).blocks(asked, self.settings.capability)

    # --- the steps

    def build(self) -> CacheLayout:
        geometry = self.geometry
        if self.settings.host_resident:
            raise UnknownFormatError("HiSparse keeps the cache in host memory: what stays on the GPU is not described")
        if self.cache_dtype not in _FORMATS:
            raise RefusedError(f"--kv-cache-dtype {self.cache_dtype} is no format of vLLM")
        if self.settings.mamba_mode == "all" and not self.release.all_mode:
            raise RefusedError(f"vLLM {self.release.version} has no --mamba-cache-mode all")
        self._canonical_cache_dtype()
        self._choose_block_size()
        mode = "none"
        if any(layer.kind == "recurrent" for layer in self.layers):
            mode = self._mamba_mode()
        if geometry.is_hybrid:
            self._align_states(mode)
        if self.skip_layers and self.cache_dtype not in _PLAIN:
            self._align_skipped()
        specs = self._specs(mode)
        names = tuple(dict.fromkeys(backend.name for backend in self.chosen.values()))
        return CacheLayout(
            tuple(specs),
            self.block_size,
            self.cache_dtype,
            mode,
            any(kernels.BY_ROLE[layer.role].block_outermost for layer in self.layers if layer.role in kernels.BY_ROLE),
            names,
        )

    def _specs(self, mode: str) -> list[CacheSpec]:
        """Every owner's spec; layers of one form share theirs, unless pipeline stages must tell them apart."""
        made: dict[Any, CacheSpec] = {}
        specs = []
        for layer in self.layers:
            if layer.shared or layer.kind == "encoder":
                continue
            form = (_FORM(layer), str(layer.index) in self.skip_layers)
            spec = made.get(form)
            if spec is None:
                spec = made[form] = self.spec_of(layer, mode)
            if self.settings.pipeline_parallel_size > 1:
                spec = replace(spec, layer=layer.index)
            specs.append(spec)
        return specs

    def _canonical_cache_dtype(self) -> None:
        """Sparse latent caches have their own packed formats (``_canonicalize_sparse_mla_kv_cache_dtype``)."""
        for layer in self.layers:
            if layer.kind == "mla" and layer.sparse:
                name = self.backend(self.choice(layer, self.cache_dtype)).name
                if (
                    name == "FLASHMLA_SPARSE" and self.cache_dtype not in _PLAIN and self.cache_dtype != "nvfp4_ds_mla"
                ) or (name == "FLASHINFER_MLA_SPARSE_SM120" and self.cache_dtype in ("auto", *kernels.FP8)):
                    self.cache_dtype = "fp8_ds_mla"
                return

    def _choose_block_size(self) -> None:
        settings = self.settings
        if settings.cpu:
            reference = self.geometry.uses_mla and (settings.attention_backend or "").upper() == "CPU_MLA"
            self.block_size = DEFAULT_BLOCK if reference else settings.block_size or 128
            return
        if self.release.block_rule == "platform":
            self.block_size = self.platform_block(settings.block_size or DEFAULT_BLOCK)
            return
        every: list[tuple[KernelBlock, ...]] = []
        # The engine asks each backend for the model's heads, the largest of the layers'.
        largest = max((layer.head_size for layer in self.layers if layer.kind == "attention"), default=None)
        for layer in self.layers:
            blocks = self.blocks_of(layer, head_size=largest)
            if blocks is not None and blocks not in every:
                every.append(blocks)
        if self.release.block_rule == "first":
            every = every[:1]
            own = kernels.BY_ROLE.get(next(iter(self.layers)).role) if self.layers else None
            if own is not None and own.preferred is not None and settings.block_size is None:
                self.block_size = own.preferred
                return
        if settings.block_size is not None:
            self.block_size = int(settings.block_size)
        elif every:
            self.block_size = kernels.preferred_block(every, DEFAULT_BLOCK)

    def platform_block(self, size: int) -> int:
        """What the CUDA platform made of the block size (``platforms/cuda.py:check_and_update_config``, to 0.17)."""
        settings, release, major = self.settings, self.release, self.settings.capability[0]
        if not self.geometry.uses_mla or not release.at_least("0.8.0"):
            return size
        if settings.rocm:
            return 1 if settings.aiter else size
        if any(layer.sparse for layer in self.layers):
            return 64
        name = (settings.attention_backend or "").upper()
        if not name:
            nope = self.geometry.text.get("qk_nope_head_dim", 1)
            if major == 9:
                name = "FLASHMLA"
            elif major == 10 and release.at_least("0.15.0") and nope == 128:
                name = "FLASHINFER_MLA"
            elif major == 10 and release.at_least("0.10.1"):
                name = "CUTLASS_MLA"
        if name == "FLASHMLA" and size % 64:
            return 64
        if name == "CUTLASS_MLA" and size % 128:
            return 128
        if name == "FLASHINFER_MLA" and size != 32 and size % 64:
            return 64
        return size

    def _mamba_mode(self) -> str:
        """How recurrent states are cached (``models/config.py:MambaModelConfig``)."""
        settings, release = self.settings, self.release
        if not settings.prefix_caching:
            self.mamba_block_size = settings.mamba_block_size or settings.max_model_len
            return "none"
        self.mamba_block_size = settings.mamba_block_size or self.block_size
        if release.state_pages == "length":
            return "all"
        mode = settings.mamba_mode
        every = caches_every_state(self.geometry)
        if mode == "none":
            drafted = bool(settings.speculative) and release.at_least("0.20.0") and not release.at_least("0.24.0")
            mode = "all" if every and not drafted and not release.hybrid_caching else "align"
        mode = mode if every or mode != "all" else "align"
        if mode == "align" and not settings.chunked_prefill and release.at_least("0.15.0"):
            raise RefusedError("prefix caching of recurrent states needs chunked prefill")
        return mode

    def _align_states(self, mode: str) -> None:
        """Attention blocks grow until a page holds a state; states are padded to it (``_align_hybrid_block_size``)."""
        settings = self.settings
        states = [state_bytes(layer.state, settings) for layer in self.layers if layer.state is not None]
        if not states or not max(states):
            return
        state = max(states)
        attention = [layer for layer in self.layers if layer.kind in ("attention", "mla")]
        if not attention:
            return
        per_token = self._token_bytes(attention[0])
        if self.cache_dtype.startswith(("turboquant_", "ultraquant_")):
            per_token = self._packed_token_bytes()
        size = self._aligned_block(state, per_token, mode)
        self.block_size = max(self.block_size, size)
        if mode == "all":
            self.mamba_block_size = size
        if mode == "align":
            self.mamba_block_size = self.block_size
        page = self.block_size * per_token
        if page != state:
            self.mamba_padded = page

    def _aligned_block(self, state: int, per_token: int, mode: str) -> int:
        """The fewest tokens, in the release's units, whose page holds a state."""
        release, settings, geometry = self.release, self.settings, self.geometry
        sets = [blocks for layer in self.layers if (blocks := self.blocks_of(layer)) is not None]
        if release.alignment == "fixed":
            unit = 16
            if release.at_least("0.11.1"):
                if geometry.uses_mla:
                    unit = 128 if (settings.attention_backend or "").upper() == "CUTLASS_MLA" else 64
                elif (
                    settings.capability[0] == 10
                    and geometry.head_size == 256
                    and (settings.attention_backend or "FLASHINFER").upper() == "FLASHINFER"
                ):
                    unit = 32
        else:
            unit = max(min(block.size for block in sets[0]), self.block_size)
            if geometry.uses_mla and release.alignment != "kernel":
                unit = max(unit, 128)
        if mode == "all":
            chunk = settings.mamba_block_size or geometry.text.get("mamba_chunk_size")
            chunk = math.lcm(int(chunk or geometry.text.get("chunk_size") or 2048), unit)
            return chunk * ceil_div(ceil_div(state, per_token), chunk)
        size = unit * ceil_div(state, unit * per_token)
        if release.alignment == "kernels":
            common = math.lcm(*(min(block.size for block in blocks) for blocks in sets))
            size = common * ceil_div(size, common)
        return size

    def _token_bytes(self, layer: Layer) -> int:
        """Bytes of one token in one attention layer, as the whole model's figures give them."""
        geometry, settings = self.geometry, self.settings
        width = element_bytes(self.cache_dtype, settings.dtype)
        if geometry.uses_mla:
            return geometry.head_size * width
        heads = max(1, geometry.num_kv_heads // settings.tensor_parallel_size)
        size = geometry.head_size
        packed = (
            packed_content_bytes(self.cache_dtype, size, size, rotary=self._rotary()) if self._packs(layer) else None
        )
        return heads * (packed if packed is not None else 2 * size * width)

    def _rotary(self) -> float:
        text = self.geometry.text
        factor = text.get("partial_rotary_factor")
        if factor is None:
            factor = (text.get("rope_parameters") or {}).get("partial_rotary_factor")
        return 1.0 if factor is None else float(factor)

    def _packed_token_bytes(self) -> int:
        geometry = self.geometry
        heads, size = max(1, geometry.num_kv_heads // self.settings.tensor_parallel_size), geometry.head_size
        packed = heads * (packed_content_bytes(self.cache_dtype, size, size) or 0)
        if not self.skip_layers:
            return packed
        return math.lcm(packed, heads * 2 * size * ELEMENT_BYTES[self.settings.dtype])

    def _packs(self, layer: Layer) -> bool:
        choice = self.choice(layer, self.layer_dtype(layer))
        return kernels.packs(self.backend(choice), self.cache_dtype)

    def _align_skipped(self) -> None:
        """Layers kept at full precision share the pool of quantized ones (``_align_heterogeneous_kv_block_size``)."""
        geometry, settings = self.geometry, self.settings
        attention = [layer for layer in self.layers if layer.kind in ("attention", "mla")]
        if not attention:
            return
        primary = self._token_bytes(attention[0])
        heads = max(1, geometry.num_kv_heads // settings.tensor_parallel_size)
        plain = heads * 2 * geometry.head_size * ELEMENT_BYTES[settings.dtype]
        if plain == primary:
            return
        blocks = self.blocks_of(attention[0]) or ()
        smallest = min(block.size for block in blocks)
        unit = max(smallest, self.block_size)
        required = max(plain * smallest, self.mamba_padded or 0)
        self.block_size = max(self.block_size, unit * ceil_div(required, unit * primary))
        self.skip_padded = self.block_size * primary
        if self.mamba_padded is not None:
            self.mamba_padded = self.skip_padded

    def checkpoints_of(self, state: State) -> int:
        """States kept while prefilling, where the kernel stores them."""
        if state.formula not in self.release.checkpoint_formulas:
            return 0
        if state.formula == "kimi_delta":
            served = self.settings.capability[0] in (9, 10, 12) and not (self.settings.cpu or self.settings.rocm)
            return state.checkpoints if served and self.settings.dtype == "bfloat16" else 0
        return state.checkpoints

    # --- one layer

    def spec_of(self, layer: Layer, mode: str) -> CacheSpec:
        settings = self.settings
        if layer.kind == "recurrent":
            assert layer.state is not None
            return CacheSpec(
                "mamba",
                self.mamba_block_size or self.block_size,
                padded_bytes=self.mamba_padded,
                state_bytes=state_bytes(layer.state, settings),
                extra_states=0 if settings.replay_window else settings.speculative_tokens,
                checkpoints=self.checkpoints_of(layer.state),
                sharded=False,
                format=(layer.state.formula,),
            )
        own = kernels.BY_ROLE.get(layer.role)
        if own is not None:
            return self._own_spec(layer, own)
        cache_dtype = self.layer_dtype(layer)
        width = element_bytes(cache_dtype, settings.dtype)
        choice = self.choice(layer, cache_dtype)
        backend = self.backend(choice)
        if layer.kind == "mla":
            content = (
                _ROW_BYTES.get(cache_dtype)
                or packed_content_bytes(cache_dtype, layer.head_size, 0, latent=True)
                or layer.head_size * width
            )
            spec = CacheSpec(
                "sliding_window_mla" if layer.window is not None else "mla_attention",
                self.block_size,
                content_bytes=content,
                window=layer.window,
                format=(cache_dtype, str(layer.role)),
            )
            return self._strided(spec, backend, choice)
        heads = rank_heads(layer.kv_heads, settings.tensor_parallel_size)
        packed = packed_content_bytes(cache_dtype, layer.head_size, layer.head_size_v, rotary=self._rotary())
        content = packed if packed is not None else (layer.head_size + layer.head_size_v) * width
        form = (cache_dtype if cache_dtype != "auto" else settings.dtype, layer.head_size, layer.head_size_v)
        if layer.kind == "cross":
            return CacheSpec("cross_attention", self.block_size, heads, content, format=form)
        window = self.window_of(layer)
        if layer.chunk is not None:
            spec = CacheSpec(
                "chunked_local_attention", self.block_size, heads, content, window=layer.chunk, format=form
            )
        elif window is not None:
            per_token = heads * content
            shared = self.skip_padded if cache_dtype == "auto" and self.skip_padded else None
            size = kernels.largest_block(
                backend.blocks(choice, settings.capability), per_token, self.skip_padded or per_token * self.block_size
            )
            spec = CacheSpec(
                "sliding_window", size, heads, content, window=window, padded_bytes=self.skip_padded, format=form
            )
            del shared
        else:
            spec = CacheSpec(
                "sink_full_attention" if layer.role == "static_sink" else "full_attention",
                self.block_size, heads, content, format=form,
            )  # fmt: skip
        return self._strided(spec, backend, choice)

    def _own_spec(self, layer: Layer, own: Backend) -> CacheSpec:
        """A cache with its own format and kernels."""
        settings = self.settings
        width = ELEMENT_BYTES[settings.dtype] if layer.dtype == "model" else ELEMENT_BYTES.get(layer.dtype or "", 0)
        width = width or element_bytes(self.cache_dtype, settings.dtype)
        content = layer.bytes_per_state or (layer.head_size + layer.head_size_v) * width
        heads, size = 1, layer.block_size or self.block_size
        kind: SpecKind
        if layer.kind == "ring":
            kind = "ring"
            heads = layer.kv_heads
            rings = ceil_div(size + settings.speculative_tokens, size)
            size *= rings if layer.role == "qsa_ring" else 1 << (rings - 1).bit_length()
        elif layer.kind == "attention":
            heads = rank_heads(layer.kv_heads, settings.tensor_parallel_size)
            kind = "sliding_window" if layer.window is not None else "full_attention"
        else:
            kind = "sliding_window_mla" if layer.window is not None else "mla_attention"
        spec = CacheSpec(
            kind,
            size,
            heads,
            content,
            tokens_per_state=layer.tokens_per_state,
            window=layer.window,
            alignment=layer.alignment,
            sharded=layer.kind != "ring",
            format=(layer.role,),
        )
        return self._strided(spec, own, Choice(layer.head_size, "", "auto"))

    def _strided(self, spec: CacheSpec, backend: Backend, choice: Choice) -> CacheSpec:
        """Blocks must be whole kernel blocks apart (``v1/worker/utils.py:customize_attention_spec``)."""
        if backend.aligned_rows:
            if (
                backend.name == "FLASHMLA_SPARSE"
                and choice.cache_dtype not in _PLAIN
                and self.settings.capability[0] != 10
            ):
                return replace(spec, kernel_block=64)
            return replace(spec, stride_bytes=backend.aligned_rows * spec.content_bytes)
        blocks = backend.blocks(choice, self.settings.capability)
        if blocks and not any(block.multiple for block in blocks):
            return replace(spec, kernel_block=max(block.size for block in blocks))
        return spec


def _model_cache_dtype(geometry: ModelGeometry, settings: Settings) -> str:
    """What a model's own hook makes of the cache dtype (``models/config.py``)."""
    name = settings.cache_dtype
    if geometry.architecture == "DeepseekV32ForCausalLM" and name == "bfloat16":
        return "auto"
    if geometry.architecture == "GlmMoeDsaForCausalLM" and name == "auto" and settings.capability[0] == 10:
        return "fp8_e4m3"
    return name
