"""The command line of a smoke run, made from the parsed arguments of a unit.

A manifest may come from anyone who can open a pull request, and the run executes what it says on the runner's hardware.
So nothing of its text is executed: arguments pass by an allow-list and in canonical form, and whatever could load code,
files or models of someone's choice stays outside unless kvgate.yaml (or the person at the command line) lets it in.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kvgate.engine.flags import Flag, ReleaseFlags, flags_of_version
from kvgate.engine.secrets import is_secret
from kvgate.engine.shaping import SHAPES
from kvgate.records import record
from kvgate.smoke.verify import SmokeError
from kvgate.source.text import Unresolved

if TYPE_CHECKING:
    from kvgate.config import Config
    from kvgate.plan import ServingPlan

MODULE: Final = "vllm.entrypoints.openai.api_server"

#: Arguments that pass as long as their values are plain: those that shape what is measured, and a few harmless ones.
PASSED: Final = frozenset(
    (*SHAPES, "seed", "served_model_name", "disable_log_stats", "tokenizer_mode", "language_model_only")
)
# Parts of JSON arguments that are known to name no code, file or model.
_JSON_KEYS: Final[Mapping[str, frozenset[str]]] = {
    "compilation_config": frozenset(
        (
            "level", "mode", "cudagraph_mode", "cudagraph_capture_sizes", "max_cudagraph_capture_size", "use_cudagraph",
            "full_cuda_graph", "use_inductor", "cudagraph_num_of_warmups",
        )
    ),
    "speculative_config": frozenset(
        (
            "method", "num_speculative_tokens", "prompt_lookup_max", "prompt_lookup_min", "draft_tensor_parallel_size",
            "max_model_len", "model",
        )
    ),
    "attention_config": frozenset(("backend", "flash_attn_version", "use_prefill_decode_attention")),
}  # fmt: skip
_WORD: Final = re.compile(r"[A-Za-z0-9][\w.+-]*")
_NAME: Final = re.compile(r"[A-Za-z0-9][\w./:@+-]*")
_HUB_ID: Final = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_LOAD_FORMATS: Final = frozenset(("auto", "safetensors", "dummy"))
#: Variables that change arithmetic or kernels, and nothing else.
ENVIRONMENT: Final = frozenset(
    (
        "VLLM_CPU_KVCACHE_SPACE", "VLLM_CPU_OMP_THREADS_BIND", "VLLM_ATTENTION_BACKEND", "VLLM_USE_V1",
        "VLLM_ALLOW_LONG_MAX_MODEL_LEN", "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS", "VLLM_MLA_DISABLE",
        "VLLM_FLASH_ATTN_VERSION", "VLLM_USE_TRITON_FLASH_ATTN", "VLLM_WORKER_MULTIPROC_METHOD",
        "VLLM_PP_LAYER_PARTITION", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "VLLM_LOGGING_LEVEL",
    )
)  # fmt: skip
_PLAIN_VALUE: Final = re.compile(r"[\w.,:=|+-]*")


@record
class Command:
    """What will be started.

    Attributes:
        argv: the words.
        environment: what the unit adds to the environment.
        model: as the server is told to load it.
        left_out: what of the unit does not take part, with the reason, a sentence each.
    """

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    model: str
    left_out: tuple[str, ...]


def build_command(
    plan: ServingPlan,
    config: Config,
    *,
    python: str,
    host: str,
    port: int,
    model: str | None = None,
    dummy_weights: bool = False,
) -> Command:
    """The command for a unit.

    Args:
        python: the interpreter that has vLLM.
        model: a directory or Hub id chosen by the person who runs it; wins over the manifest.
        dummy_weights: random weights; only config and tokenizer are loaded.

    Raises:
        SmokeError: the model is not known or not allowed, or a value that matters is not resolved.
    """
    left_out: list[str] = []
    served = _model(plan, config, model)
    flags = flags_of_version(plan.version)
    words: list[str] = [f"--model={served}"]
    for dest, value in plan.values.items():
        if dest in ("model", "host", "port", "load_format"):
            continue
        words += _argument(dest, value, plan, config, flags, left_out)
    load_format = plan.values.get("load_format")
    if dummy_weights:
        words.append("--load-format=dummy")
    elif isinstance(load_format, str) and load_format != "auto":
        if load_format in _LOAD_FORMATS:
            words.append(f"--load-format={load_format}")
        else:
            left_out.append(f"--load-format {load_format}: the model is loaded as it is")
    environment = dict(_environment(plan, config, left_out))
    argv = (python, "-m", MODULE, *words, f"--host={host}", f"--port={port}")
    return Command(argv, environment, served, tuple(left_out))


def _model(plan: ServingPlan, config: Config, asked: str | None) -> str:
    if asked is not None:
        folder = Path(asked)
        return str(folder.resolve()) if folder.exists() else asked
    reference = plan.model_reference
    if reference is None:
        raise SmokeError(f"the unit's model is not known: {plan.model_reason or 'no file names it'}")
    target = config.models.get(reference, reference).removeprefix("hf://")
    folder = (config.root / target).resolve()
    local = folder.is_dir() and folder.is_relative_to(config.root.resolve())
    if not local and _HUB_ID.fullmatch(target):
        return target
    if not allowed((reference, target), config.smoke.allow_models):
        raise SmokeError(
            f'the model "{target}" is a path: allow it in kvgate.yaml (smoke: {{allow: {{models: [...]}}}}), or name '
            "one with --model"
        )
    return str(folder) if local else target


def allowed(names: Iterable[str], patterns: Sequence[str]) -> bool:
    """Whether a name stands on an allow-list of globs."""
    return any(fnmatchcase(name, pattern) for name in names for pattern in patterns)


def _argument(
    dest: str, value: Any, plan: ServingPlan, config: Config, flags: ReleaseFlags, left_out: list[str]
) -> list[str]:
    flag = flags.of_dest(dest)
    shown = flag.name if flag is not None else f"--{dest.replace('_', '-')}"
    if dest == "trust_remote_code":
        names = [name for name in (plan.model_reference, config.models.get(plan.model_reference or "")) if name]
        if value is True and allowed(names, config.smoke.allow_trust_remote_code):
            return [shown]
        left_out.append(f"{shown}: not allowed for this model (smoke: {{allow: {{trust_remote_code: [...]}}}})")
        return []
    if dest not in PASSED or is_secret(dest):
        left_out.append(f"{shown}: does not change what is measured, or loads something")
        return []
    if isinstance(value, Unresolved):
        raise SmokeError(f"{shown} is not resolved in the files: {value.reason}")
    if flag is None:
        left_out.append(f"{shown}: vLLM {plan.version} has no such flag")
        return []
    harmless = _harmless(dest, value, config, left_out, shown)
    if harmless is None:
        left_out.append(f"{shown}: its value is not plain")
        return []
    return _spelled(flag, harmless)


def _harmless(dest: str, value: Any, config: Config, left_out: list[str], shown: str) -> Any:
    """A value with whatever could name code, a file or a model taken out; None where nothing is left."""
    if isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        pattern = _NAME if dest in ("served_model_name", "revision") else _WORD
        return value if pattern.fullmatch(value) else None
    if isinstance(value, list):
        items = [_harmless(dest, item, config, left_out, shown) for item in value]
        return None if None in items else items
    if isinstance(value, dict):
        keys = _JSON_KEYS.get(dest)
        kept: dict[str, Any] = {}
        for key, item in value.items():
            if keys is not None and key not in keys:
                left_out.append(f"{shown}: its part {key!r} does not take part")
                continue
            if key == "model":
                if not (isinstance(item, str) and allowed((item,), config.smoke.allow_models)):
                    left_out.append(f"{shown}: its model is not allowed (smoke: {{allow: {{models: [...]}}}})")
                    return None
                kept[key] = item
                continue
            plain = _plain_json(item)
            if plain is None and item is not None:
                left_out.append(f"{shown}: its part {key!r} is not plain")
                continue
            kept[str(key)] = plain
        return kept or None
    return None


def _plain_json(value: Any) -> Any:
    """Numbers, and words without dots and slashes, at any depth; None for anything else."""
    if isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return value if re.fullmatch(r"\w[\w-]*", value) else None
    if isinstance(value, list):
        items = [_plain_json(item) for item in value]
        return None if None in items else items
    if isinstance(value, dict):
        inner = {str(key): _plain_json(item) for key, item in value.items() if re.fullmatch(r"\w[\w-]*", str(key))}
        return None if len(inner) < len(value) or None in inner.values() else inner
    return None


def _spelled(flag: Flag, value: Any) -> list[str]:
    if isinstance(value, bool):
        if value:
            return [flag.name]
        if flag.negations:
            return [flag.negations[0]]
        return [] if flag.kind == "flag" else [f"{flag.name}=false"]
    if isinstance(value, list) and (flag.many or flag.append):
        return [flag.name, *map(str, value)] if flag.many else [f"{flag.name}={item}" for item in value]
    text = json.dumps(value, sort_keys=True) if isinstance(value, dict | list) else str(value)
    return [f"{flag.name}={text}"]


def _environment(plan: ServingPlan, config: Config, left_out: list[str]) -> Iterator[tuple[str, str]]:
    for name, value in plan.environment.items():
        known = name in ENVIRONMENT and _PLAIN_VALUE.fullmatch(value) is not None
        if known or allowed((name,), config.smoke.allow_env):
            yield name, value
        elif not is_secret(name):
            left_out.append(f"the variable {name}: not allowed (smoke: {{allow: {{env: [...]}}}})")
