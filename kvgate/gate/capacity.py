"""What a unit holds, measured so that two states can be compared.

Neither ``size_tokens`` (its meaning changed at vLLM 0.20.1) nor ``max_concurrency`` at different lengths (halving
``max_model_len`` doubles it) can be compared. What can is the number of requests of one and the same size that each
side sustains: the base's declared workload, or requests of the base's ``max_model_len``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from kvgate.capacity.prediction import Concurrency, Prediction, Workload
from kvgate.gate.difference import Capacity, Yardstick
from kvgate.source.text import Unresolved

if TYPE_CHECKING:
    from kvgate.plan import ServingPlan

# vLLM refuses a max_model_len beyond the model's own; the yardstick asks what the pool would hold all the same.
_ALLOW_LONG: Final = "VLLM_ALLOW_LONG_MAX_MODEL_LEN"

#: Arguments of the HTTP front end, which no pool depends on.
FRONT_END: Final = frozenset({
    "allow_credentials", "allowed_headers", "allowed_local_media_path", "allowed_methods", "allowed_origins",
    "api_key", "api_server_count", "chat_template", "chat_template_content_format", "default_chat_template_kwargs",
    "disable_access_log_for_endpoints", "disable_fastapi_docs", "disable_frontend_multiprocessing",
    "disable_log_requests", "disable_log_stats", "disable_uvicorn_access_log", "download_dir",
    "enable_auto_tool_choice", "enable_force_include_usage", "enable_log_outputs", "enable_log_requests",
    "enable_prompt_tokens_details", "enable_request_id_headers", "enable_server_load_tracking", "enable_ssl_refresh",
    "enable_tokenizer_info_endpoint", "generation_config", "h11_max_header_count", "h11_max_incomplete_event_size",
    "headless", "hf_token", "host", "log_config_file", "lora_modules", "max_log_len", "middleware",
    "otlp_traces_endpoint", "override_generation_config", "port", "reasoning_parser", "response_role",
    "return_tokens_as_token_ids", "root_path", "seed", "served_model_name", "show_hidden_metrics_for_version",
    "ssl_ca_certs", "ssl_cert_reqs", "ssl_certfile", "ssl_ciphers", "ssl_keyfile", "tokens_only", "tokenizer",
    "tokenizer_mode", "tokenizer_revision", "tool_call_parser", "tool_parser_plugin", "trust_remote_code", "uds",
    "uvicorn_log_level",
})  # fmt: skip


def yardstick_of(plan: ServingPlan, prediction: Prediction | None, *, own: bool = False) -> Yardstick | None:
    """The request to measure with, from the base's plan; None where its length is unknown.

    A declared request that is longer than the base serves is cut to what it serves.

    Args:
        own: the plan is the head's, of a unit that the base does not have.
    """
    length = _length(prediction)
    declared = plan.workload
    if declared is not None and declared.prompt_tokens is not None:
        prompt, output = declared.prompt_tokens, declared.output_tokens or 0
        if length is not None and prompt + output > length:
            prompt = min(prompt, length)
            output = length - prompt
        shared = min(declared.shared_prefix_tokens, prompt)
        return Yardstick(Workload(prompt, output, shared), "head" if own else "workload")
    if length is None:
        return None
    return Yardstick(Workload(length, 0), "head" if own else "max_model_len")


def _length(prediction: Prediction | None) -> int | None:
    return prediction.kv_cache.max_model_len if prediction is not None else None


def hidden_inputs(plan: ServingPlan) -> dict[str, str]:
    """What the files do not determine and the pool may depend on: name -> text as written."""
    hidden = {
        dest: value.text
        for dest, value in plan.values.items()
        if isinstance(value, Unresolved) and dest not in FRONT_END
    }
    words = [problem.span.text for problem in plan.parsed.problems if problem.kind == "unresolved-words"]
    if words:
        hidden["words of the command line"] = " ".join(words)
    return hidden


def measure(
    plan: ServingPlan,
    prediction: Prediction | None,
    yardstick: Yardstick | None,
    *,
    accepted: Mapping[str, str] | None = None,
) -> Capacity:
    """Requests of the yardstick that all ranks and replicas of a plan sustain.

    Args:
        prediction: ``plan.predict()``.
        accepted: unresolved inputs that the other side has as well, so that they do not count.
    """
    refusals = _refusals(plan)
    if refusals:
        return _nothing(f"the server does not start: {'; '.join(refusals)}")
    if prediction is None:
        return Capacity(None, reason=plan.model_reason or "the model is unknown")
    hidden = hidden_inputs(plan)
    unknown = sorted(name for name, text in hidden.items() if (accepted or {}).get(name) != text)
    if unknown:
        return Capacity(None, reason=f"the files do not determine {', '.join(unknown)}")
    if prediction.starts == "no":
        return _nothing(f"the server does not start: {'; '.join(prediction.reasons)}")
    if yardstick is None:
        return Capacity(None, reason="; ".join(prediction.reasons) or "the length of a request is unknown")
    length = _length(prediction)
    measured, changes = plan, dict[str, Any]()
    if length is not None and length < yardstick.tokens:
        if yardstick.source != "max_model_len":
            return _nothing(f"requests of {yardstick.tokens:,} tokens are refused: max_model_len is {length:,}")
        changes = {"max_model_len": yardstick.tokens}
        measured = replace(plan, environment={**plan.environment, _ALLOW_LONG: "1"})
    found = measured.predict(changes=changes, workload=yardstick.workload)
    load = found.concurrency if found is not None else None
    if load is None or load.sustained is None:
        if prediction.kv_cache.absent:
            return Capacity(None, reason="the model keeps no KV cache, and max_num_seqs alone is its limit")
        reason = plan.gpu_reason if plan.gpu is None and plan.gpu_memory_bytes is None else None
        return Capacity(None, reason=reason or "; ".join(prediction.reasons) or "the size of the pool is unknown")
    return _capacity(plan, load, rests_on=_assumptions(plan, hidden))


def _refusals(plan: ServingPlan) -> list[str]:
    """Why the release refuses the command line for certain, whatever else is not known."""
    if plan.version_basis != "declared":
        return []
    return [problem.message for problem in plan.parsed.problems if problem.refused and problem.certain]


def _nothing(reason: str) -> Capacity:
    return Capacity(0, 0, 0, 0.0, 0, reason=reason)


def _capacity(plan: ServingPlan, load: Concurrency, *, rests_on: str | None) -> Capacity:
    times = max(1, plan.data_parallel_size) * plan.replicas

    def over_all(value: int | None) -> int | None:
        return None if value is None else value * times

    low, high = load.sustained_interval
    return Capacity(
        over_all(load.sustained),
        over_all(low),
        over_all(high),
        load.ratio,
        over_all(load.admitted),
        load.limited_by,
        rests_on,
    )


def _assumptions(plan: ServingPlan, hidden: Mapping[str, str]) -> str | None:
    parts = [f"vLLM {plan.version} is assumed"] if plan.version_basis == "assumed" else []
    parts += [f"{plan.gpu.name} is assumed"] if plan.gpu is not None and plan.gpu_basis == "assumed" else []
    parts += [f"the unresolved {name} is taken as unset on both sides" for name in sorted(hidden)]
    return "; ".join(parts) or None
