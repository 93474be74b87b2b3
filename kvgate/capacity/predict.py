"""One server's KV-cache pool, predicted from its model, its arguments and its GPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any, Final

from kvgate.capacity.backends import AMX_MLA, NoBackendError
from kvgate.capacity.engine import effective_release
from kvgate.capacity.groups import Grouping, GroupingError, group_layers
from kvgate.capacity.layout import CacheLayout, UnknownFormatError, lay_out
from kvgate.capacity.load import concurrency
from kvgate.capacity.measured import MeasuredTerms, with_measured
from kvgate.capacity.pool import PoolShape
from kvgate.capacity.prediction import (
    Basis,
    CacheGroup,
    KVCache,
    Memory,
    Prediction,
    Quantity,
    Starts,
    Workload,
)
from kvgate.capacity.release import Release, release_of
from kvgate.capacity.settings import (
    ASSUMED_CAPABILITY,
    GIB,
    RefusedError,
    Settings,
    pipeline_stages,
    resolve_settings,
)
from kvgate.capacity.spec import CacheSpec, RequestShape
from kvgate.hardware.gpu import Gpu
from kvgate.models.architectures import served_releases
from kvgate.models.drafts import draft_layers, is_own_head
from kvgate.models.geometry import Layer, ModelGeometry, UnknownModelError, read_geometry, without_latent
from kvgate.models.model import Model
from kvgate.source.text import Unresolved


def predict_capacity(
    model: Model,
    arguments: Mapping[str, Any],
    *,
    version: str,
    version_basis: Basis = "declared",
    gpu: Gpu | None = None,
    gpu_count: int | None = None,
    gpu_memory_bytes: int | None = None,
    gpu_basis: Basis = "unknown",
    env: Mapping[str, str] | None = None,
    workload: Workload | None = None,
    weight_bytes: int | None = None,
    kv_cache_tokens: int | None = None,
    measured: MeasuredTerms | None = None,
    draft: Model | None = None,
    official_image: bool = False,
) -> Prediction:
    """The prediction for one server start.

    Args:
        model: its configuration and what is known beside it.
        arguments: typed engine arguments by dest, only those that were set; a value may be ``Unresolved``.
        version: vLLM release.
        gpu: catalogue entry; None when not known.
        gpu_memory_bytes: total memory of one GPU where it is known better than the catalogue.
        env: the server's environment (only ``VLLM_*`` names are read).
        weight_bytes: measured bytes of the weights per rank.
        kv_cache_tokens: the pool in tokens where it is known (a start-up log): skips the budget.
        measured: terms of the budget that a server of this configuration measured.
        draft: the model that ``--speculative-config`` names, where it is one of its own.
        official_image: the server runs an image of the vLLM project, which decides how some releases sample.
    """
    env = env or {}
    release = release_of(version)
    total = gpu_memory_bytes or (gpu.memory_bytes if gpu else None)
    run = _Run(
        model,
        arguments,
        release,
        gpu,
        total,
        env,
        workload,
        weight_bytes,
        kv_cache_tokens,
        measured,
        draft,
        official_image,
    )
    memory, cache, starts, reasons, load, resolved, architecture = run.predict()
    return Prediction(
        model_id=model.id,
        architecture=architecture,
        model_source=model.source,
        vllm_version=version,
        vllm_basis=version_basis,
        gpu_name=gpu.name if gpu else None,
        gpu_count=gpu_count,
        gpu_memory_bytes=total,
        gpu_basis=gpu_basis,
        memory=memory,
        kv_cache=cache,
        starts=starts,
        reasons=tuple(reasons),
        workload=workload,
        concurrency=load,
        resolved=resolved,
    )


# Arguments that decide over the bytes of a block; the rest is about the budget or the length of a request.
_BLOCK_ARGUMENTS: Final = frozenset(
    {
        "attention_backend", "block_size", "decode_context_parallel_size", "disable_hybrid_kv_cache_manager",
        "disable_sliding_window", "dtype", "hf_overrides", "kv_cache_dtype", "kv_cache_dtype_skip_layers",
        "pipeline_parallel_size", "speculative_config", "tensor_parallel_size",
    }
)  # fmt: skip
_STATE_ARGUMENTS: Final = frozenset(
    {
        "enable_prefix_caching", "mamba_block_size", "mamba_cache_dtype", "mamba_cache_mode", "mamba_ssm_cache_dtype",
        "max_model_len",
    }
)  # fmt: skip
_OTHER_CAPABILITIES: Final = ((8, 0), (8, 9), (10, 0))


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


_UNKNOWN_CACHE = KVCache(None, None, None, None, None, None, None, None, None, "unknown")


class _Run:
    def __init__(self, model: Model, arguments: Mapping[str, Any], release: Release, gpu: Gpu | None, total: int | None,
                 env: Mapping[str, str], workload: Workload | None, weight_bytes: int | None,
                 kv_cache_tokens: int | None, measured: MeasuredTerms | None, draft: Model | None,
                 official_image: bool) -> None:  # fmt: skip
        self.model = model
        self.arguments = arguments
        self.release = release
        self.gpu = gpu
        self.total = total
        self.env = env
        self.workload = workload
        self.weight_bytes = weight_bytes
        self.kv_cache_tokens = kv_cache_tokens
        self.measured = measured
        self.draft = draft
        self.official_image = official_image
        self.assumed = False
        self.reasons: list[str] = []

    def predict(self) -> tuple[Memory, KVCache, Starts, list[str], Any, Mapping[str, Any], str | None]:
        overrides = self.arguments.get("hf_overrides")
        names = self.model.config.get("architectures") or [None]
        try:
            geometry = read_geometry(
                self.model,
                hf_overrides=overrides if isinstance(overrides, Mapping) else None,
                windows=self.arguments.get("disable_sliding_window") is not True,
            )
        except UnknownModelError as error:
            self.reasons.append(str(error))
            return self._memory(None, None, None), _UNKNOWN_CACHE, "unknown", self.reasons, None, {}, names[0]
        if self.env.get("VLLM_MLA_DISABLE") in ("1", "true", "True"):
            geometry = without_latent(geometry)
        self._choose_engine(geometry)
        try:
            settings = resolve_settings(
                geometry, self.arguments, release=self.release, gpu=self.gpu, gpu_memory_bytes=self.total, env=self.env
            )
            drafts = self._drafts(geometry, settings)
            layout = lay_out(geometry, settings, self.release, drafts)
            groups = group_layers(
                layout.specs, grouping_of(settings, self.release, block_outermost=layout.block_outermost)
            )
            stages = pipeline_stages(geometry.num_layers, settings.pipeline_parallel_size, self.release, self.env)
        except (RefusedError, NoBackendError, GroupingError) as error:
            self.reasons.append(str(error))
            memory = self._memory(geometry, None, None)
            starts: Starts = "unknown" if self._blocked(geometry) else "no"
            return memory, _UNKNOWN_CACHE, starts, self.reasons, None, {}, geometry.architecture
        except UnknownFormatError as error:
            self.reasons.append(str(error))
            memory = self._memory(geometry, None, None)
            return memory, _UNKNOWN_CACHE, "unknown", self.reasons, None, {}, geometry.architecture
        pool = PoolShape.of(
            groups,
            self.release,
            layers=layout.specs,
            cache_block=layout.block_size,
            block_outermost=layout.block_outermost,
            stages=stages,
        )
        shape = request_shape(settings, layout.mamba_mode, self.release)
        resolved = {
            **{dest: value for dest, value in self.arguments.items() if not isinstance(value, Unresolved)},
            **asdict(settings),
            "engine": self.release.engine,
            "gpu_memory_utilization": settings.utilization,
            "enable_prefix_caching": settings.prefix_caching,
            "enable_chunked_prefill": settings.chunked_prefill,
            "mamba_cache_mode": layout.mamba_mode,
            "block_size": layout.block_size,
            "cache_dtype": layout.cache_dtype,
            "attention_backends": layout.backends,
            "official_image": self.official_image,
            "pipeline_stages": stages,
        }
        resolved["unresolved"] = dict(settings.unresolved)
        memory = self._memory(geometry, settings, resolved)
        blocked = self._blocked(geometry)
        if blocked:
            self.reasons.extend(f"{_flag(name)} is not known: {settings.unresolved[name]}" for name in blocked)
            return memory, _UNKNOWN_CACHE, "unknown", self.reasons, None, resolved, geometry.architecture
        if settings.assumed_gpu:
            self._check_assumption(geometry, settings, drafts, layout)
        if AMX_MLA.name in layout.backends:
            self.reasons.append(
                f"blocks of {layout.block_size} tokens assume a processor with AMX: without it latent attention takes "
                "blocks of 16"
            )
            self.assumed = True
        cache, starts, settings = self._cache(geometry, settings, layout, pool, shape, memory)
        starts = self._served(geometry, starts)
        if settings.refusal is not None:
            self.reasons.append(settings.refusal)
            starts = "no"
        resolved["max_model_len"] = settings.max_model_len
        load = None
        if self.workload is not None and pool.groups:
            bounds = cache.interval.get("num_gpu_blocks", (None, None))
            low, high = (None if b is None else int(b) for b in bounds)
            load = concurrency(pool, cache.num_gpu_blocks, (low, high), self.workload, settings, shape)
            tokens = self.workload.request_tokens
            if tokens is not None and tokens > settings.max_model_len:
                self.reasons.append(
                    f"a request of {tokens:,} tokens is longer than max_model_len "
                    f"{settings.max_model_len:,}: vLLM refuses it"
                )
        return memory, cache, starts, self.reasons, load, resolved, geometry.architecture

    def _given(self, name: str) -> Any:
        value = self.arguments.get(name)
        return None if isinstance(value, Unresolved) else value

    def _served(self, geometry: ModelGeometry, starts: Starts) -> Starts:
        """Whether the release has the architecture at all."""
        name, version = geometry.architecture, self.release.version
        first, last = served_releases(name)
        if last is not None and not self.release.at_most(last):
            self.reasons.append(f"vLLM {version} has no {name} any more: {last} was the last release with it")
            return "no"
        if first is not None and not self.release.at_least(first):
            self.reasons.append(f"vLLM {version} has no {name} yet: {first} was the first release with it")
            return "unlikely" if starts == "yes" else starts
        return starts

    def _choose_engine(self, geometry: ModelGeometry) -> None:
        cpu = self.gpu is not None and self.gpu.vendor == "cpu"
        capability = (self.gpu.compute_capability if self.gpu else None) or ASSUMED_CAPABILITY
        self.release, reason = effective_release(self.release, geometry, self._given, self.env, capability, cpu=cpu)
        if reason is not None:
            self.reasons.append(reason)

    def _drafts(self, geometry: ModelGeometry, settings: Settings) -> tuple[Layer, ...]:
        if not settings.speculative or self.release.engine == "V0":
            return ()
        draft = None
        try:
            if self.draft is not None:
                try:
                    draft = read_geometry(self.draft)
                except UnknownModelError:
                    if not is_own_head(settings.speculative):
                        raise
            return draft_layers(geometry, settings.speculative, draft)
        except UnknownModelError as error:
            self.reasons.append(f"{error}: it is not counted, the pool is smaller")
            self.assumed = True
            return ()

    def _blocked(self, geometry: ModelGeometry) -> list[str]:
        """Arguments without a value that decide over the bytes of a block."""
        names = [name for name, value in self.arguments.items() if isinstance(value, Unresolved)]
        states = any(layer.kind == "recurrent" for layer in geometry.layers)
        decisive = _BLOCK_ARGUMENTS | (_STATE_ARGUMENTS if states else frozenset())
        return [name for name in names if name in decisive]

    def _check_assumption(
        self, geometry: ModelGeometry, settings: Settings, drafts: tuple[Layer, ...], layout: CacheLayout
    ) -> None:
        """Whether the blocks would differ on other GPUs than the assumed one."""
        for capability in _OTHER_CAPABILITIES:
            try:
                other = lay_out(geometry, replace(settings, capability=capability), self.release, drafts)
            except (RefusedError, NoBackendError):
                other = None
            if other is None or other.specs != layout.specs:
                major, minor = ASSUMED_CAPABILITY
                self.reasons.append(
                    f"blocks of {layout.block_size} tokens assume a GPU of compute capability {major}.{minor}: "
                    "the GPU is not known"
                )
                self.assumed = True
                return

    # --- memory

    def _memory(self, geometry: ModelGeometry | None, settings: Settings | None, resolved: Any) -> Memory:
        total = _total(self.gpu, self.total)
        unknown = Quantity.unknown()
        if settings is not None and settings.cpu:
            available = self._cpu_space()
        elif settings is not None and settings.cache_memory_bytes is not None:
            available = Quantity.exact(int(settings.cache_memory_bytes), "--kv-cache-memory-bytes")
        else:
            available = None
        if settings is not None and geometry is not None and (available is None or not settings.cpu):
            budget = _budget(geometry, self.model, resolved, self.release, self.gpu, total, self.weight_bytes, self.env)
            budget = with_measured(budget, self.measured) if self.measured else budget
            return replace(budget, kv_cache_available=available) if available is not None else budget
        return Memory(total, unknown, unknown, None, unknown, unknown, unknown, available or unknown)

    def _cpu_space(self) -> Quantity:
        space = self.env.get("VLLM_CPU_KVCACHE_SPACE")
        if space is None:
            return Quantity.unknown("VLLM_CPU_KVCACHE_SPACE is not set")
        try:
            return Quantity.exact(int(float(space) * GIB), f"VLLM_CPU_KVCACHE_SPACE={space} GiB")
        except ValueError:
            return Quantity.unknown(f"VLLM_CPU_KVCACHE_SPACE={space!r} is not a number")

    # --- cache

    def _cache(self, geometry: ModelGeometry, settings: Settings, layout: CacheLayout, pool: PoolShape,
               shape: RequestShape, memory: Memory) -> tuple[KVCache, Starts, Settings]:  # fmt: skip
        dtype = settings.dtype if layout.cache_dtype == "auto" else layout.cache_dtype
        if not pool.groups:
            length = settings.max_model_len
            return (
                KVCache(dtype, layout.block_size, None, None, 1, None, length, None, None, "exact"),
                "yes",
                settings,
            )
        available = memory.kv_cache_available
        blocks, low, high, basis = self._blocks(settings, pool, shape, available)
        most = settings.max_model_len
        estimate = None
        starts: Starts = "unknown"
        if blocks is not None:
            usable = blocks * pool.block_bytes if settings.blocks_override is not None else available.bytes
            usable = blocks * pool.block_bytes if usable is None else usable
            # What the memory could hold, whatever --num-gpu-blocks-override makes of it.
            budget = usable if available.bytes is None else available.bytes
            estimate = pool.longest(most, budget - pool.reserved_bytes(), shape)
            if settings.auto_fit and 0 < estimate < most:  # the engine shrinks the length to what fits
                settings = replace(settings, max_model_len=estimate)
            # a pool that a server printed is the pool of one that runs
            measured = self.kv_cache_tokens is not None
            starts = "yes" if measured else self._starts(pool, shape, settings, usable, available)
        length = settings.max_model_len
        known = "max_model_len" not in settings.unresolved
        if not known:
            self.reasons.append(f"--max-model-len is not known: {settings.unresolved['max_model_len']}")
            starts = "unknown"

        def tokens(count: int | None) -> int | None:
            if count is None or (not known and self.release.size_figure == "concurrency"):
                return None
            return pool.size_tokens(count, length, shape)

        def times(count: int | None) -> float | None:
            return None if count is None or not known else pool.max_concurrency(count, length, shape)

        interval = {
            "num_gpu_blocks": (low, high),
            "size_tokens": (tokens(low), tokens(high)),
            "max_concurrency": (times(low), times(high)),
        }
        cache = KVCache(
            dtype=dtype,
            block_size=layout.block_size,
            bytes_per_block=pool.block_bytes,
            bytes_per_token=pool.marginal_bytes(),
            num_gpu_blocks=blocks,
            size_tokens=tokens(blocks),
            max_model_len=length if known else None,
            max_concurrency=times(blocks),
            estimated_max_model_len=estimate if known else None,
            basis="assumed" if self.assumed and basis != "unknown" else basis,
            interval=interval,
            groups=_described(pool),
        )
        return cache, starts, settings

    def _blocks(
        self, settings: Settings, pool: PoolShape, shape: RequestShape, available: Quantity
    ) -> tuple[int | None, int | None, int | None, Basis]:
        if self.kv_cache_tokens is not None:
            blocks = _blocks_of_tokens(pool, settings, shape, self.kv_cache_tokens)
            return blocks, blocks, blocks, "measured"
        if settings.blocks_override is not None:
            count = int(settings.blocks_override)
            return count, count, count, "exact"
        if available.bytes is None:
            return None, None, None, "unknown"
        low = pool.blocks_of(available.bytes if available.low is None else available.low)
        high = pool.blocks_of(available.bytes if available.high is None else available.high)
        return pool.blocks_of(available.bytes), low, high, available.basis

    def _starts(
        self, pool: PoolShape, shape: RequestShape, settings: Settings, usable: int, available: Quantity
    ) -> Starts:
        need = pool.request_bytes(settings.max_model_len, shape)
        reserved = pool.reserved_bytes()

        def fits(amount: int | None) -> bool:
            return amount is not None and amount > 0 and need <= amount - reserved

        if fits(usable):
            if available.low is not None and settings.blocks_override is None and not fits(available.low):
                self.reasons.append("one request of max_model_len fits, but not over the whole interval of the budget")
            return "yes"
        self.reasons.append(
            f"one request of {settings.max_model_len} tokens needs {need / GIB:.2f} GiB of KV cache, "
            f"{max(0, usable) / GIB:.2f} GiB are available"
        )
        if available.high is not None and settings.blocks_override is None and fits(available.high):
            return "unlikely"
        return "no"


def grouping_of(settings: Settings, release: Release, *, block_outermost: bool) -> Grouping:
    """How a release groups a server's layers."""
    return Grouping(
        hybrid=settings.hybrid_manager and release.hybrid_allocator,
        windows=release.window_specs,
        widest_factor=release.widest_factor,
        unify=release.unify,
        uniform_types=release.uniform_types,
        block_outermost=block_outermost,
        tuples=release.tuples,
        merge_buckets=release.merge_buckets,
        one_window=release.at_least("0.9.0"),
    )


def request_shape(settings: Settings, mamba_mode: str, release: Release) -> RequestShape:
    """What bounds a request's blocks in a release."""
    by_mode = release.state_pages == "mode"
    return RequestShape(
        in_flight_tokens=settings.in_flight_tokens,
        encoder_tokens=settings.max_num_batched_tokens,
        aligned_states=by_mode and mamba_mode == "align",
        every_state=mamba_mode == "all" if by_mode else release.state_pages == "length",
        extra_states=by_mode and (mamba_mode != "all" or release.extra_states_in_all),
        shards=settings.decode_context_parallel_size,
    )


def _blocks_of_tokens(pool: PoolShape, settings: Settings, shape: RequestShape, tokens: int) -> int:
    """The fewest blocks whose printed token figure reaches ``tokens``."""
    low, high = 1, max(1, tokens)
    while low < high:
        middle = (low + high) // 2
        if pool.size_tokens(middle, settings.max_model_len, shape) >= tokens:
            high = middle
        else:
            low = middle + 1
    return low


def _described(pool: PoolShape) -> tuple[CacheGroup, ...]:
    described = []
    for group in pool.groups:
        first: CacheSpec = group.every[0]
        described.append(CacheGroup(first.kind, len(group.specs), first.block_size, first.page_bytes))
    return tuple(described)


def _total(gpu: Gpu | None, total: int | None) -> Quantity:
    if total is None:
        return Quantity.unknown("the GPU's memory is not known")
    low = gpu.memory_low if gpu and gpu.memory_low is not None else total
    high = gpu.memory_high if gpu and gpu.memory_high is not None else total
    if gpu is None or gpu.memory_bytes != total:
        return Quantity(total, total, total, "declared")
    return Quantity(total, low, high, gpu.basis)


def _budget(geometry: ModelGeometry, model: Model, resolved: Mapping[str, Any], release: Release, gpu: Gpu | None,
            total: Quantity, weight_bytes: int | None, env: Mapping[str, str]) -> Memory:  # fmt: skip
    from kvgate.capacity.budget import BudgetInputs, estimate_budget

    inputs = BudgetInputs(
        geometry=geometry,
        model=model,
        resolved=resolved,
        version=release.version,
        gpu=gpu,
        total=total,
        weight_bytes=weight_bytes,
        env=env,
    )
    return estimate_budget(inputs)
