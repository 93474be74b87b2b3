"""What the GPU, or vLLM itself, refuses: formats without a kernel, dtypes, checkpoints quantized otherwise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from kvgate.findings.finding import Severity
from kvgate.ruleset.case import Case
from kvgate.ruleset.certainty import Input
from kvgate.ruleset.checks import NoParams, check
from kvgate.ruleset.model import Draft

#: Arguments whose refusal a rule of its own reports.
_TOLD_ELSEWHERE: Final = frozenset({"tensor_parallel_size", "max_model_len", "kv_cache_dtype"})


def refusal(case: Case) -> str | None:
    """Why vLLM refuses to start whatever the pool: arguments, no attention kernel, layers that cannot be grouped."""
    prediction = case.prediction
    if prediction is None or prediction.starts != "no" or prediction.kv_cache.bytes_per_block is not None:
        return None
    # what nobody knows refuses nothing: words that the release has not are the reason then, and told elsewhere
    unknown = {f"--{dest.replace('_', '-')} is not known" for dest in case.plan.values if case.is_unresolved(dest)}
    reason = prediction.reasons[-1] if prediction.reasons else None
    return None if reason is not None and reason.partition(":")[0] in unknown else reason


def culprit(case: Case) -> str | None:
    """The argument without which vLLM would not refuse, None where no single one is to blame."""
    for dest in case.plan.values:
        if case.is_unresolved(dest):
            continue
        other = case.predict(without=(dest,))
        if other is not None and other.kv_cache.bytes_per_block is not None:
            return dest
    return None


@check("server-refuses", values=("reason", "machine", "release"))
def server_refuses(case: Case, params: NoParams) -> Iterator[Draft]:
    """vLLM refuses the model, its arguments or the GPU before it looks at memory."""
    reason = refusal(case)
    if reason is None:
        return
    dest = culprit(case)
    if dest in _TOLD_ELSEWHERE:
        return
    everywhere = all(
        (other := case.predict(gpu=gpu)) is not None and other.starts == "no" and other.kv_cache.bytes_per_block is None
        for gpu in case.common_gpus()
    )
    rests_on: tuple[Input, ...] = ("model", "vllm_version") if everywhere else ("model", "vllm_version", "gpu")
    yield Draft(
        at=f"arg:{dest}" if dest is not None else "model",
        values={"reason": reason, "machine": case.gpu_words, "release": case.release_words},
        rests_on=rests_on,
    )


@check("kv-cache-dtype", values=("dtype", "gpu", "capability", "why", "instead", "release"))
def kv_cache_dtype(case: Case, params: NoParams) -> Iterator[Draft]:
    """The KV cache's format has no kernel on the GPU, or the release does not honour it."""
    dtype = case.argument("kv_cache_dtype")
    if not isinstance(dtype, str) or dtype == "auto" or case.backend in ("cpu", "tpu", "hpu", "xpu"):
        return
    capability = case.capability
    found = _format_problem(case, dtype, capability)
    if found is None:
        return
    variant, why, rests_on, ceiling = found
    plain = "auto" if capability is None or capability >= (8, 0) else "auto (16 bits)"
    yield Draft(
        at="arg:kv_cache_dtype",
        variant=variant,
        values={
            "dtype": dtype,
            "gpu": case.gpu_words,
            "capability": f"{capability[0]}.{capability[1]}" if capability is not None else "unknown",
            "why": why,
            "instead": plain,
            "release": case.release_words,
        },
        rests_on=rests_on,
        ceiling=ceiling,
    )


#: Methods of checkpoints whose attention layers get scales for an e4m3 cache, and refuse e5m2 -> the release that asks
#: the checkpoint first (``attention/layer.py``, since 0.16.0 ``model_executor/layers/attention/attention.py``).
_BRINGS_SCALES: Final[dict[str | None, str | None]] = {
    "fp8": None, "modelopt": None, "ptpc_fp8": None, "quark": None, "compressed-tensors": "0.24.0",
}  # fmt: skip

_Problem = tuple[str | None, str, tuple[Input, ...], Severity | None]


def _format_problem(case: Case, dtype: str, capability: tuple[int, int] | None) -> _Problem | None:
    version: tuple[Input, ...] = ("vllm_version",)
    machine = (*version, *case.gpu_doubt)
    stored = case.geometry.quantization_method if case.geometry is not None else None
    if dtype == "fp8_e5m2" and stored in _BRINGS_SCALES:
        until = _BRINGS_SCALES[stored]
        if until is None or not case.since(until):
            return "fp8-checkpoint", "", (*version, "model"), None
    if dtype.startswith("fp8") and not case.since("0.8.2"):
        # V1 of these releases: vllm-project/vllm pull request 14221
        chosen = case.plan.environment.get("VLLM_USE_V1")
        return ("ignored", "", version, Severity.WARNING) if chosen == "1" and not case.since("0.8.0") else None
    if dtype.startswith("fp8") and capability is not None:
        why = _fp8_problem(case, capability)
        if why is not None:
            return None, why[0], machine, why[1]
    if _has_drafter_without_causality(case) and dtype.startswith(("fp8", "nvfp4", "int8", "int4")):
        return "drafter", "", version, Severity.WARNING
    reason = refusal(case)
    if reason is not None and culprit(case) == "kv_cache_dtype":
        return None, reason, ("model", *machine), None
    return None


def _fp8_problem(case: Case, capability: tuple[int, int]) -> tuple[str, Severity | None] | None:
    """Why an fp8 cache does not work below compute capability 8.9.

    FlashAttention needs Hopper for it; FlashInfer converts in its kernels; Triton's kernels need native fp8 (vLLM
    0.24.0 ``v1/attention/backends/triton_attn.py`` refuses, earlier releases fail in the kernel's compiler). 0.11.0
    takes FlashInfer only when asked (``platforms/cuda.py``, ``is_kv_cache_dtype_supported``), later releases where its
    head sizes allow. V0, up to 0.10.2, converts on every GPU, and V1 falls back to it.
    """
    if capability >= (8, 9) or not case.since("0.11.0"):
        return None
    asked = case.argument("attention_backend")
    if not isinstance(asked, str) and not case.since("0.15.0"):
        asked = case.plan.environment.get("VLLM_ATTENTION_BACKEND")
    name = str(asked or "").upper()
    milder = Severity.INFO if case.argument("kv_cache_dtype") == "fp8_e5m2" and not case.since("0.12.0") else None
    if "FLASHINFER" in name and capability >= (7, 5):
        return None
    if "TRITON" in name:
        return "Triton's attention kernel needs native fp8, compute capability 8.9", milder
    if case.geometry is not None and case.geometry.uses_mla:
        return None
    if not case.since("0.11.1"):
        return "no kernel that this release picks by itself converts fp8 below compute capability 8.9", milder
    if capability < (7, 5):
        return "only Triton's attention kernel runs on it, which needs native fp8, compute capability 8.9", milder
    if capability < (8, 0):
        severity = None if case.since("0.24.0") else Severity.WARNING
        return "FlashInfer's kernel does not work on it, and Triton's needs native fp8", severity
    backends = case.prediction.resolved.get("attention_backends") if case.prediction is not None else None
    if backends and "TRITON_ATTN" in backends:
        return "the model's layers fall to Triton's attention kernel, which needs native fp8", milder
    return None


def _has_drafter_without_causality(case: Case) -> bool:
    """Whether a drafter attends in both directions and gets the global format of the cache."""
    speculative = case.argument("speculative_config")
    if not isinstance(speculative, Mapping) or speculative.get("kv_cache_dtype"):
        return False
    model = str(speculative.get("model") or "").lower()
    return speculative.get("method") == "dflash" or "dflash" in model


_HALF: Final = frozenset({"half", "float16"})
#: Model types that vLLM refuses in float16 since 0.9.1 (``config/model.py``, ``_FLOAT16_NOT_SUPPORTED_MODELS``).
_NO_HALF: Final = frozenset({"gemma2", "gemma3", "gemma3_text", "plamo2", "glm4"})


@check("dtype-on-gpu", values=("gpu", "capability", "set_by", "release", "model_type"))
def dtype_on_gpu(case: Case, params: NoParams) -> Iterator[Draft]:
    """bfloat16 on a GPU without it, or float16 for a model that overflows in it."""
    dtype, capability = case.argument("dtype"), case.capability
    if case.is_unresolved("dtype") or case.backend in ("cpu", "tpu", "hpu", "xpu"):
        return
    geometry = case.geometry
    if capability is not None and capability < (8, 0):
        declared = geometry.declared_dtype if geometry is not None else None
        values: dict[str, Any] = {
            "gpu": case.gpu_words,
            "capability": f"{capability[0]}.{capability[1]}",
            "release": case.release_words,
            "model_type": "",
        }
        if dtype == "bfloat16":
            yield Draft(
                at="arg:dtype", values={**values, "set_by": "--dtype bfloat16 asks for it"}, rests_on=case.gpu_doubt
            )
        elif dtype in (None, "auto") and declared == "bfloat16" and not case.since("0.9.0"):
            # since 0.9.0 auto falls back to float16 (config.py, _get_and_verify_dtype)
            yield Draft(
                at="arg:dtype" if dtype else "model",
                values={**values, "set_by": "the model's config.json asks for it, and no --dtype says otherwise"},
                rests_on=("model", "vllm_version", *case.gpu_doubt),
            )
    if dtype in _HALF and geometry is not None and geometry.model_type in _NO_HALF and case.since("0.9.1"):
        yield Draft(
            at="arg:dtype",
            variant="half",
            values={
                "gpu": case.gpu_words,
                "capability": "",
                "set_by": "",
                "release": case.release_words,
                "model_type": geometry.model_type,
            },
            rests_on=("model", "vllm_version"),
        )


#: Methods that read the same checkpoints: asking for one where the checkpoint names another is no mismatch.
_KIN: Final = (
    frozenset({"gptq", "gptq_marlin", "gptq_marlin_24", "gptq_bitblas", "marlin", "auto_gptq"}),
    frozenset({"awq", "awq_marlin", "awq_triton", "ipex", "cpu_awq", "auto_awq"}),
    frozenset({"inc", "auto-round", "auto_round", "intel/auto-round"}),
    frozenset({"fp8", "fbgemm_fp8", "deepseek_v4_fp8"}),
    frozenset({"mxfp4", "gpt_oss_mxfp4", "quark"}),
    frozenset({"compressed-tensors", "compressed_tensors", "sparseml"}),
    frozenset({"bitsandbytes", "bnb"}),
)
#: A checkpoint of these decides whatever is asked for: `override_quantization_method` in modelopt.py of vLLM does not
#: look at it, and `ModelConfig._verify_quantization` takes what it says (0.11.2 to 0.24.0 read).
_DECIDES: Final = "modelopt"
#: Methods that need a checkpoint of their own; the others quantize while loading.
_NEED_CHECKPOINT: Final = frozenset(
    {"awq", "awq_marlin", "gptq", "gptq_marlin", "marlin", "compressed-tensors", "modelopt", "modelopt_fp4", "mxfp4",
     "squeezellm", "aqlm", "hqq", "quark", "fbgemm_fp8"}
)  # fmt: skip
#: Methods that take any other method's checkpoint of these kinds (experts in 4 bits).
_TAKES_OTHERS: Final = frozenset({"moe_wna16", "ipex", "inc"})


@check("quantization", values=("asked", "checkpoint", "model"))
def quantization(case: Case, params: NoParams) -> Iterator[Draft]:
    """--quantization names another method than the checkpoint's."""
    asked = case.argument("quantization")
    if not isinstance(asked, str) or asked.lower() in _TAKES_OTHERS:
        return
    asked = asked.lower()
    geometry = case.geometry
    name = case.plan.model_reference or ""
    if geometry is not None:
        stored = geometry.quantization_method
    else:
        stored = next((word for word in ("awq", "gptq", "gguf") if word in name.lower().replace("_", "-")), None)
        if stored is None:
            return
    values = {"asked": asked, "checkpoint": stored, "model": name}
    rests_on: tuple[Input, ...] = ("model",) if geometry is not None else ()
    if stored is None:
        if asked in _NEED_CHECKPOINT and not name.lower().endswith(".gguf"):
            yield Draft(variant="plain", values=values, rests_on=rests_on)
        elif asked == "gguf" and ".gguf" not in name.lower() and "gguf" not in name.lower():
            yield Draft(variant="plain", values=values, rests_on=rests_on, ceiling=Severity.WARNING)
        return
    stored = stored.lower()
    if stored == asked or stored.startswith(_DECIDES) or any({stored, asked} <= kin for kin in _KIN):
        return
    yield Draft(values=values, rests_on=rests_on, ceiling=None if geometry is not None else Severity.WARNING)
