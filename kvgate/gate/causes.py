"""Why the capacity changed: the inputs that differ, changed one at a time, each with what the arithmetic then says.

The steps are taken in a fixed order, release first: each starts from the base with all earlier steps taken, so that
their effects add up to the whole. What an input does alone can differ from its step; ``reverted`` says what the head
would hold with that input alone put back.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from kvgate.capacity.prediction import Prediction
from kvgate.engine.arguments import as_json
from kvgate.engine.secrets import MASK, is_secret, mask_secrets
from kvgate.gate.capacity import measure
from kvgate.gate.difference import Capacity, Cause, Effect, Yardstick
from kvgate.records import record
from kvgate.source.text import Span, Unresolved

if TYPE_CHECKING:
    from kvgate.plan import ServingPlan

GIB: Final = 2**30
MAX_STEPS: Final = 60
# Changes of a memory term below this are rounding.
LEAST_BYTES: Final = GIB // 200

#: Arguments that are changed first; the others follow by name.
_ORDER: Final = (
    "tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "dtype", "quantization", "kv_cache_dtype",
    "gpu_memory_utilization", "kv_cache_memory_bytes", "max_model_len", "max_num_batched_tokens", "max_num_seqs",
)  # fmt: skip

_TERMS: Final = (
    ("weights", "weights", -1),
    ("activation_peak", "activation peak", -1),
    ("non_torch", "non-torch memory", -1),
    ("cuda_graphs", "CUDA graphs", -1),
)

#: Effective arguments that a release, a GPU or a model sets where nobody else does.
_RESOLVED: Final = {
    "dtype": "dtype",
    "cache_dtype": "KV-cache dtype",
    "block_size": "block size",
    "max_model_len": "max_model_len",
    "max_num_seqs": "max_num_seqs",
    "max_num_batched_tokens": "max_num_batched_tokens",
    "prefix_caching": "prefix caching",
    "chunked_prefill": "chunked prefill",
}


@record
class _Step:
    """One input: its values as text, how to give one plan another's, and where the head says it."""

    input: str
    before: str | None
    after: str | None
    take: Callable[[ServingPlan, ServingPlan], ServingPlan]
    span: Span | None


@record
class _State:
    plan: ServingPlan
    prediction: Prediction | None
    capacity: Capacity


def find_causes(
    base: ServingPlan, head: ServingPlan, yardstick: Yardstick | None, accepted: Mapping[str, str]
) -> tuple[Cause, ...]:
    """The changed inputs of a unit, in the order in which they were changed.

    Args:
        accepted: unresolved inputs that both sides have (:func:`kvgate.gate.capacity.measure`).
    """

    def state(plan: ServingPlan) -> _State:
        prediction = plan.predict()
        return _State(plan, prediction, measure(plan, prediction, yardstick, accepted=accepted))

    steps = list(_steps(base, head))
    causes: list[Cause] = []
    now = state(base) if steps else _State(base, None, Capacity(None))
    for step in steps:
        then = state(step.take(now.plan, head))
        reverted = state(step.take(head, base)).capacity.requests
        causes.append(_cause(step, now, then, reverted))
        now = then
    return tuple(causes)


def _cause(step: _Step, before: _State, after: _State, reverted: int | None) -> Cause:
    return Cause(
        input=step.input,
        before=step.before,
        after=step.after,
        requests=(before.capacity.requests, after.capacity.requests),
        pool_bytes=(_pool(before.prediction), _pool(after.prediction)),
        starts=(_starts(before.prediction), _starts(after.prediction)),
        effects=tuple(_effects(step.input, before.prediction, after.prediction)),
        reverted=reverted,
        span=step.span,
    )


def _pool(prediction: Prediction | None) -> int | None:
    return prediction.memory.kv_cache_available.bytes if prediction is not None else None


def _starts(prediction: Prediction | None) -> str:
    return prediction.starts if prediction is not None else "unknown"


# -- steps ---------------------------------------------------------------------------------------------------------


def _steps(base: ServingPlan, head: ServingPlan) -> Iterator[_Step]:
    yield from _version_step(base, head)
    if (base.model_reference, base.model) != (head.model_reference, head.model):
        before, after = base.model_reference, head.model_reference
        if before == after:
            before, after = _revision(base), _revision(head)
        yield _Step("model", before, after, _take_model, _place(head, "model"))
    if (base.gpu, base.gpu_memory_bytes) != (head.gpu, head.gpu_memory_bytes):
        yield _Step("gpu", _gpu(base), _gpu(head), _take_gpu, _place(head, "gpu"))
    stepped = _take_version(base, head)
    dests = {dest for dest in stepped.values.keys() | head.values.keys() if _differs(stepped, head, dest)}
    ordered = [dest for dest in _ORDER if dest in dests] + sorted(dests.difference(_ORDER))
    for dest in ordered[:MAX_STEPS]:
        before, after = (_text(dest, plan.values.get(dest)) for plan in (stepped, head))
        yield _Step(dest, before, after, _taker(dest), _place(head, dest))
    for name in sorted(base.environment.keys() | head.environment.keys()):
        before, after = base.environment.get(name), head.environment.get(name)
        if before != after and name.startswith("VLLM_"):
            shown = [MASK if value and is_secret(name) else value for value in (before, after)]
            yield _Step(f"env:{name}", shown[0], shown[1], _environment_taker(name), _variable(head, name))
    if base.replicas != head.replicas:
        yield _Step("replicas", str(base.replicas), str(head.replicas), _take_replicas, _place(head, "replicas"))


def _version_step(base: ServingPlan, head: ServingPlan) -> Iterator[_Step]:
    images = [plan.unit.image.value if plan.unit.image else None for plan in (base, head)]
    versions = [base.version, head.version]
    if base.version != head.version:
        if images[0] != images[1]:
            versions = [
                f"{version} ({image})" if image else version for version, image in zip(versions, images, strict=True)
            ]
        yield _Step("vllm_version", versions[0], versions[1], _take_version, _place(head, "vllm_version"))
    elif images[0] != images[1]:
        span = head.unit.image.span if head.unit.image else None
        yield _Step("image", images[0], images[1], lambda plan, _: plan, span)


def _take_version(plan: ServingPlan, other: ServingPlan) -> ServingPlan:
    """The plan under another's release: its own words, as that release reads them."""
    if plan.version == other.version:
        return plan
    from kvgate.plan import at_release

    moved = at_release(replace(plan, image=other.image), other.version)
    return replace(moved, version_basis=other.version_basis, data_parallel_size=_data_parallel(moved.values))


def _take_model(plan: ServingPlan, other: ServingPlan) -> ServingPlan:
    return replace(plan, model=other.model, model_reference=other.model_reference, model_reason=other.model_reason)


def _take_gpu(plan: ServingPlan, other: ServingPlan) -> ServingPlan:
    return replace(
        plan,
        gpu=other.gpu,
        gpu_memory_bytes=other.gpu_memory_bytes,
        gpu_basis=other.gpu_basis,
        gpu_reason=other.gpu_reason,
    )


def _take_replicas(plan: ServingPlan, other: ServingPlan) -> ServingPlan:
    return replace(plan, replicas=other.replicas)


def _taker(dest: str) -> Callable[[ServingPlan, ServingPlan], ServingPlan]:
    def take(plan: ServingPlan, other: ServingPlan) -> ServingPlan:
        values = {name: value for name, value in plan.values.items() if name != dest}
        if dest in other.values:
            values[dest] = other.values[dest]
        return replace(plan, values=values, data_parallel_size=_data_parallel(values))

    return take


def _environment_taker(name: str) -> Callable[[ServingPlan, ServingPlan], ServingPlan]:
    def take(plan: ServingPlan, other: ServingPlan) -> ServingPlan:
        environment = {key: value for key, value in plan.environment.items() if key != name}
        if name in other.environment:
            environment[name] = other.environment[name]
        return replace(plan, environment=environment)

    return take


def _data_parallel(values: Mapping[str, Any]) -> int:
    size = values.get("data_parallel_size")
    return size if isinstance(size, int) and size > 0 else 1


def _differs(one: ServingPlan, other: ServingPlan, dest: str) -> bool:
    return bool(one.values.get(dest, _MISSING) != other.values.get(dest, _MISSING))


_MISSING: Final = object()


def _place(plan: ServingPlan, name: str) -> Span | None:
    origin = plan.origins.get(name)
    return origin.span if origin is not None else None


def _variable(plan: ServingPlan, name: str) -> Span | None:
    return next((variable.span for variable in plan.unit.environment if variable.name == name), None)


def _gpu(plan: ServingPlan) -> str | None:
    return plan.gpu.name if plan.gpu is not None else None


def _revision(plan: ServingPlan) -> str:
    """What a name stands for, where the name is the same on both sides."""
    if plan.model is None:
        return f"{plan.model_reference} (unknown)"
    parts = [plan.model.id or "", plan.model.source, (plan.model.revision or "")[:12]]
    return f"{plan.model_reference} ({', '.join(part for part in parts if part and part != plan.model_reference)})"


def _text(dest: str, value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, Unresolved):
        return value.text
    if is_secret(dest):
        return MASK
    shown = mask_secrets(as_json(value))
    return shown if isinstance(shown, str) else json.dumps(shown, ensure_ascii=False, sort_keys=True, default=str)


# -- effects -------------------------------------------------------------------------------------------------------


def _effects(changed: str, before: Prediction | None, after: Prediction | None) -> Iterator[Effect]:
    if before is None or after is None:
        return
    yield from _memory_effects(changed, before, after)
    cost = before.kv_cache.bytes_per_token, after.kv_cache.bytes_per_token
    if cost[0] != cost[1] and None not in cost:
        words = f"bytes of KV cache per token {cost[0]:,} -> {cost[1]:,}"
        yield Effect("bytes_per_token", cost[0], cost[1], None, words)
    for name, words in _RESOLVED.items():
        was, now = before.resolved.get(name), after.resolved.get(name)
        aliases = {"cache_dtype": "kv_cache_dtype", "prefix_caching": "enable_prefix_caching",
                   "chunked_prefill": "enable_chunked_prefill"}  # fmt: skip
        if was == now or was is None or now is None or changed in (name, aliases.get(name)):
            continue
        yield Effect(name, was, now, None, f"{words} {_shown(was)} -> {_shown(now)}")


def _memory_effects(changed: str, before: Prediction, after: Prediction) -> Iterator[Effect]:
    was, now = before.memory.requested.bytes, after.memory.requested.bytes
    if was is not None and now is not None and abs(now - was) >= LEAST_BYTES:
        share = before.resolved.get("utilization"), after.resolved.get("utilization")
        if share[0] != share[1] and changed != "gpu_memory_utilization":
            words = f"utilization default {share[0]:.2f} -> {share[1]:.2f}"
            yield Effect("gpu_memory_utilization", share[0], share[1], now - was, f"{words} {_signed(now - was)}")
        else:
            yield Effect("requested", was, now, now - was, f"requested memory {_signed(now - was)}")
    for name, term, sign in _TERMS:
        was, now = getattr(before.memory, name).bytes, getattr(after.memory, name).bytes
        if was is None or now is None or abs(now - was) < LEAST_BYTES:
            continue
        change = sign * (now - was)
        if was and now:
            words = f"{'smaller' if now < was else 'larger'} {term}"
        else:
            words = f"{term} {'now' if now else 'no longer'} counted"
        yield Effect(name, was, now, change, f"{words} {_signed(change)}")


def _signed(value: int) -> str:
    return f"{value / GIB:+.2f} GiB"


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:,}" if isinstance(value, int) else str(value)
