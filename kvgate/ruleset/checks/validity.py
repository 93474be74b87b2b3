"""What vLLM's own checks refuse, and what several parts of a deployment must agree on."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from kvgate.findings.finding import Severity
from kvgate.patterns import regex
from kvgate.records import record
from kvgate.ruleset.case import Case, sustained_at
from kvgate.ruleset.certainty import Bound
from kvgate.ruleset.checks import NoParams, check
from kvgate.ruleset.checks.memory import available
from kvgate.ruleset.model import Draft
from kvgate.ruleset.scene import Scene
from kvgate.ruleset.words import amount
from kvgate.source.text import SourceFile, Span

if TYPE_CHECKING:
    from kvgate.hardware.gpu import Gpu


@check("budget-below-length", values=("budget", "length", "set_by", "release"))
def budget_below_length(case: Case, params: NoParams) -> Iterator[Draft]:
    """Without chunked prefill the token budget is less than the longest prompt.

    ``config/scheduler.py``, ``verify_max_model_len``: refused where chunked prefill is off.
    """
    budget = case.argument("max_num_batched_tokens")
    chunked = case.effective("enable_chunked_prefill")
    if not isinstance(budget, int) or chunked is not False or case.is_unresolved("enable_chunked_prefill"):
        return
    length = case.integer("max_model_len")
    if length is None or length <= 0 or budget >= length:
        return
    off = case.argument("enable_chunked_prefill") is False
    yield Draft(
        at="arg:max_num_batched_tokens",
        values={
            "budget": budget,
            "length": length,
            "set_by": "--no-enable-chunked-prefill" if off else f"{case.release_words} does not chunk this model",
            "release": case.release_words,
        },
        rests_on=() if off and case.argument("max_model_len") is not None else ("model", "vllm_version", "words"),
    )


@check("length-of-model", values=("length", "longest", "release"))
def length_of_model(case: Case, params: NoParams) -> Iterator[Draft]:
    """max_model_len is more than the model's configuration allows, or would be without a variable that hides it."""
    from kvgate.ruleset.facts import longest_max_model_len

    length, longest = case.argument("max_model_len"), longest_max_model_len(case)
    allowed = case.plan.environment.get("VLLM_ALLOW_LONG_MAX_MODEL_LEN", "").lower() in ("1", "true")
    hidden = any(
        variable.name == "VLLM_ALLOW_LONG_MAX_MODEL_LEN" and variable.value is None
        for variable in case.unit.environment
    )
    if not isinstance(length, int) or hidden:
        return
    if longest is None:
        # the variable is only needed for a length beyond the model's own
        if not allowed or case.plan.values.get("hf_overrides") is not None or case.plan.model is not None:
            return
    elif length <= longest:
        return
    yield Draft(
        variant="allowed-unknown" if longest is None else "allowed" if allowed else None,
        values={"length": length, "longest": longest, "release": case.release_words},
        rests_on=("model",) if longest is not None else (),
        related=(("env:VLLM_ALLOW_LONG_MAX_MODEL_LEN", "which lets it through"),) if allowed else (),
    )


# -- hybrid models and connectors --------------------------------------------------------------------------------------


#: The first release in which a connector keeps the hybrid KV cache manager on (``SupportsHMA`` in its source, and from
#: 0.23.0 ``KVConnectorFactory.supports_hma_config``, which asks it).
_ASKED_SINCE: Final = "0.23.0"
_SUPPORTS: Final = {
    "NixlConnector": "0.23.0",
    "MooncakeConnector": "0.23.0",
    "MooncakeStoreConnector": "0.28.0",
    "SimpleCPUOffloadConnector": "0.23.0",
    "OffloadingConnector": "0.23.0",
    "MultiConnector": "0.23.0",
    "DecodeBenchConnector": "0.23.0",
    "ExampleHiddenStatesConnector": "0.23.0",
    "MoRIIOConnector": "0.33.0",
    "HiSparseConnector": "0.33.0",
    "UMBPConnector": "0.33.0",
}


@check(
    "hybrid-connector",
    values=("connector", "model", "without", "with_manager", "held", "held_with", "effect", "release"),
)
def hybrid_connector(case: Case, params: NoParams) -> Iterator[Draft]:
    """A KV connector switches the hybrid KV cache manager off for a model that needs it."""
    transfer = case.argument("kv_transfer_config")
    geometry = case.geometry
    if not isinstance(transfer, Mapping) or geometry is None or not case.since("0.9.0"):
        return
    by_hand = case.argument("disable_hybrid_kv_cache_manager")
    if by_hand is False or case.is_unresolved("disable_hybrid_kv_cache_manager"):
        return
    connectors = list(_connectors(transfer))
    unable = [name for name in connectors if not (name in _SUPPORTS and case.since(_SUPPORTS[name]))]
    if not connectors or (case.since(_ASKED_SINCE) and not unable and not by_hand):
        return
    # what the manager saves is a ratio, so that any GPU with room shows it where no file names one
    gpu = None if case.plan.gpu is not None else _roomiest(case)
    on = case.predict(changes={"disable_hybrid_kv_cache_manager": False}, gpu=gpu)
    off = case.predict(changes={"disable_hybrid_kv_cache_manager": True}, gpu=gpu)
    if on is None or off is None:
        return
    with_manager, without = on.kv_cache, off.kv_cache
    if without.bytes_per_block is None and with_manager.bytes_per_block is not None:
        effect = "vLLM does not start"
    elif len(with_manager.groups) < 2 or with_manager.max_concurrency == without.max_concurrency:
        return
    else:
        effect = "every layer's cache is sized as full attention"
    held, held_with = without.max_concurrency, with_manager.max_concurrency
    fails = off.starts == "no" and on.starts != "no"
    figures = ""
    if gpu is not None and held and held_with:
        figures = f": a request of max_model_len takes {held_with / held:.1f} times as much"
    elif held is not None and held_with is not None and held_with > 0:
        figures = f": {held:.2f} requests of max_model_len instead of {held_with:.2f}"
    yield Draft(
        at="arg:disable_hybrid_kv_cache_manager" if by_hand else "arg:kv_transfer_config",
        values={
            "connector": "--disable-hybrid-kv-cache-manager" if by_hand else unable[0] if unable else connectors[0],
            "model": case.plan.model_reference,
            "without": available(off),
            "with_manager": available(on),
            "held": held,
            "held_with": held_with,
            "effect": effect + figures,
            "release": case.release_words,
        },
        rests_on=("model", "vllm_version"),
        ceiling=None if fails or without.bytes_per_block is None else Severity.WARNING,
    )


def _roomiest(case: Case) -> Gpu | None:
    return max(case.common_gpus(), key=lambda gpu: gpu.memory_bytes or 0, default=None)


def _connectors(transfer: Mapping[str, Any]) -> Iterator[str]:
    name = transfer.get("kv_connector")
    if isinstance(name, str):
        yield name
    extra = transfer.get("kv_connector_extra_config")
    for inner in extra.get("connectors", ()) if isinstance(extra, Mapping) else ():
        if isinstance(inner, Mapping):
            yield from _connectors(inner)


# -- tools -------------------------------------------------------------------------------------------------------------


@check("tool-parser", values=("flag", "missing", "client"))
def tool_parser(case: Case, params: NoParams) -> Iterator[Draft]:
    """Automatic tool choice without a parser, or a parser that nothing switches on."""
    automatic = case.argument("enable_auto_tool_choice")
    parser = case.plan.values.get("tool_call_parser")
    if case.has_hidden_words:
        return
    values = {"flag": "", "missing": "", "client": ""}
    if automatic is True and parser is None:
        yield Draft(at="arg:enable_auto_tool_choice", values=values)
    elif parser is not None and automatic is not True:
        yield Draft(at="arg:tool_call_parser", variant="not-enabled", values=values)
    elif automatic is not True and parser is None and case.unit.kind not in _OF_PROGRAMS:
        place = next(_automatic_clients(case), None)
        if place is not None:
            yield Draft(
                variant="client",
                values={**values, "client": f"{place.path}:{place.line}"},
                related=((place, "the client asks for it here"),),
            )


#: Kinds of servers that a program starts, which may hand them more than stands where it does.
_OF_PROGRAMS: Final = ("python", "offline-engine")
_AUTOMATIC: Final = regex(r"""["']?tool_choice["']?\s*[:=]\s*["']auto["']""")


def _automatic_clients(case: Case) -> Iterator[Span]:
    for file, match in case.scene.matches(_AUTOMATIC, "tool_choice"):
        if case in servers_of(case.scene, file):
            yield Span(file, match.start(), match.end())


#: Directories between a client and the server that it is for, and how many where the client names the server.
_NEAR: Final = 1
_NAMED: Final = 3
_TEST: Final = regex(r"(?:^|/)(?:tests?|__tests__)/|(?:^|/)(?:test_[^/]*|conftest)\.py$")


def servers_of(scene: Scene, file: SourceFile) -> list[Case]:
    """The servers that a client's file is for: the nearest ones, unless they stand too far away to be meant."""
    from kvgate.manifests.objects import nearest
    from kvgate.manifests.tree import distance

    if _TEST.search(file.path):
        return []
    near = nearest(scene.cases, file.path, lambda case: case.unit.path)
    near = [case for case in near if _names_model(file.text, case)] or near
    if len({case.plan.model_reference for case in near}) > 1:
        return []  # which of several models it asks nobody knows
    steps = distance(near[0].unit.path, file.path) if near else 0
    if steps > _NAMED or (steps > _NEAR and not any(_names(file.text, case) for case in near)):
        return []
    return near


def _names(text: str, case: Case) -> bool:
    """Whether a text names a server by its model or as vLLM."""
    return "vllm" in text.lower() or _names_model(text, case)


def _names_model(text: str, case: Case) -> bool:
    """Whether a text names a server's model, as it is loaded or as it is served."""
    served = case.argument("served_model_name")
    names = [case.plan.model_reference, *(served if isinstance(served, list) else [served])]
    return any(name in text for name in names if isinstance(name, str) and len(name) > 3)


# -- clients -----------------------------------------------------------------------------------------------------------


_MAX_TOKENS: Final = regex(
    r"""(?<![\w.-])["']?(?P<name>(?:[A-Za-z]+_)*(?:max_(?:completion_|new_|output_|gen_)?tokens|MAX_(?:COMPLETION_|NEW_|OUTPUT_)?TOKENS|maxTokens|num_predict))["']?"""
    r"""\s*(?:\]\s*)?(?:[:=]|:\s*int\s*=)\s*["']?(?P<value>\d[\d_]{0,18})\b(?!\s*[.*/+x-]\s*\w)""",
)
_NOT_OUTPUT: Final = regex(r"batched|chunk|embed|context|model_len|input|prompt|overlap|history|memory", re.IGNORECASE)
_CHUNKS: Final = regex(r"""["']?(?:chunk_size|chunk_tokens|tokens_per_chunk)["']?\s*[:=]\s*["']?(\d[\d_]{0,18})\b""")
_TOP: Final = regex(r"""["']?(?:top_k|similarity_top_k|max_chunks|n_results)["']?\s*[:=]\s*["']?(\d[\d_]{0,18})\b""")
#: A request needs some prompt: an answer that leaves less than this share of the context has none worth the name.
_SHARE: Final = 0.5
#: More than any answer: a budget of many requests.
_QUOTA: Final = 2_000_000


@check("client-tokens", values=("name", "asked", "length", "rest", "needed", "sum", "server"), scope="tree")
def client_tokens(scene: Scene, params: NoParams) -> Iterator[Draft]:
    """Clients ask for more tokens than the server's context leaves."""
    for file in scene.everything.values():
        found = [match for match in _MAX_TOKENS.finditer(file.text) if _is_answer(scene, file, match)]
        if not found:
            continue
        # an engine in the program itself refuses no request: it stops where its context ends
        asked = [case for case in servers_of(scene, file) if case.unit.kind != "offline-engine"]
        lengths = [(_context(case) or 0, case) for case in asked]
        length, case = max(lengths, key=lambda pair: pair[0], default=(0, None))
        if case is None or length <= 0:
            continue
        for match in found:
            draft = _asked(case, length, file, match)
            if draft is not None:
                yield draft


def _context(case: Case) -> int | None:
    length = case.argument("max_model_len")
    return length if isinstance(length, int) and length > 0 else case.integer("max_model_len")


def _is_answer(scene: Scene, file: SourceFile, match: re.Match[str]) -> bool:
    """Whether a number is what a client asks for: no other limit, no comment, none of a server's own arguments."""
    if _NOT_OUTPUT.search(match["name"]) or _in_comment(file.text, match.start()):
        return False
    span = Span(file, match.start(), match.end())
    return not any(_inside(case, span) for case in scene.cases if case.unit.span.file is file)


def _asked(case: Case, length: int, file: SourceFile, match: re.Match[str]) -> Draft | None:
    asked = int(match["value"].replace("_", ""))
    if asked > _QUOTA:
        return None
    prompt = case.plan.workload.prompt_tokens if case.plan.workload is not None else None
    chunks = _retrieved(file.text)
    values: dict[str, Any] = {
        "name": match["name"],
        "asked": asked,
        "length": length,
        "rest": length - asked,
        "needed": prompt,
        "sum": "",
        "server": f"{case.unit.path}:{case.unit.span.line}",
    }
    if asked >= length:
        variant = None
    elif prompt is not None and prompt + asked > length:
        variant = "prompt"
    elif chunks is not None and chunks[0] * chunks[1] + asked > length:
        variant = "retrieval"
        values |= {"needed": chunks[0] * chunks[1], "sum": f"{chunks[0]} chunks of {amount(chunks[1])} tokens"}
    elif asked > _SHARE * length:
        variant = "little-left"
    else:
        return None
    return Draft(
        at=Span(file, match.start(), match.end()),
        case=case,
        variant=variant,
        values=values,
        related=(("arg:max_model_len", "the server's context"),),
    )


def _inside(case: Case, span: Span) -> bool:
    """Whether a place is one of the unit's own arguments."""
    return any(
        argument.span.file is span.file and argument.span.start <= span.start < argument.span.end
        for argument in case.plan.parsed.arguments.values()
    )


def _in_comment(text: str, at: int) -> bool:
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return re.search(r"(?:^|\s)(?:#|//)", line) is not None


def _retrieved(text: str) -> tuple[int, int] | None:
    top, chunk = _TOP.search(text), _CHUNKS.search(text)
    if top is None or chunk is None:
        return None
    return int(top[1].replace("_", "")), int(chunk[1].replace("_", ""))


# -- prefill and decode ------------------------------------------------------------------------------------------------


@check("prefill-decode", values=("what", "prefill", "decode", "prefill_value", "decode_value"), scope="tree")
def prefill_decode(scene: Scene, params: NoParams) -> Iterator[Draft]:
    """Prefill and decode servers of one deployment that do not agree."""
    from kvgate.manifests.tree import distance

    decoders = [case for case in scene.cases if role(case) == "decode"]
    for prefill in scene.cases:
        if role(prefill) != "prefill":
            continue
        same = [case for case in decoders if case.unit.path == prefill.unit.path]
        beside = [
            case
            for case in decoders
            if distance(case.unit.path, prefill.unit.path) == 0 and _deployment(case) == _deployment(prefill)
        ]
        partners = [case for case in same if _deployment(case) == _deployment(prefill)] or same or beside
        if len(partners) != 1:
            continue
        (decode,) = partners
        for what, at, left, right in _differences(prefill, decode):
            yield Draft(
                at=at,
                case=decode,
                variant="tensor-parallel" if at == "arg:tensor_parallel_size" else None,
                values={
                    "what": what,
                    "prefill": prefill.unit.id,
                    "decode": decode.unit.id,
                    "prefill_value": left,
                    "decode_value": right,
                },
                related=((_place(prefill, at), "the prefill server"),),
            )


def _place(case: Case, at: str) -> Span:
    from kvgate.ruleset.locate import locate

    return locate(case, at)


def role(case: Case) -> str | None:
    """``prefill`` or ``decode`` of a disaggregated server: by its connector's role, else by its name."""
    transfer = case.argument("kv_transfer_config")
    if not isinstance(transfer, Mapping):
        if case.argument("disaggregation_mode") in ("prefill", "decode"):
            return str(case.argument("disaggregation_mode"))
        return _named_role(case) if case.argument("is_prefill_worker") is not None else None
    told = {"kv_producer": "prefill", "kv_consumer": "decode"}.get(str(transfer.get("kv_role")))
    return told or _named_role(case)


def _named_role(case: Case) -> str | None:
    name = f"{case.unit.id} {case.unit.container or ''}".lower()
    prefill, decode = "prefill" in name, "decode" in name
    return None if prefill == decode else "prefill" if prefill else "decode"


def _deployment(case: Case) -> str:
    return re.sub(r"prefill|decode|worker|leader|[-_/0-9]", "", case.unit.name.lower())


def _differences(prefill: Case, decode: Case) -> Iterator[tuple[str, str, Any, Any]]:
    names = {
        "block_size": "--block-size",
        "kv_cache_dtype": "--kv-cache-dtype",
        "dtype": "--dtype",
        "max_model_len": "--max-model-len",
    }
    for dest, flag in names.items():
        if prefill.is_unresolved(dest) or decode.is_unresolved(dest):
            continue
        left, right = prefill.argument(dest), decode.argument(dest)
        if left is None and right is None:
            continue
        left = left if left is not None else prefill.effective(dest)
        right = right if right is not None else decode.effective(dest)
        if left is None or right is None or left == right:
            continue
        if dest == "max_model_len":
            continue  # a decoder may take less than the prefiller gives
        yield flag, f"arg:{dest}", left, right
    if prefill.plan.model_reference and decode.plan.model_reference:
        left, right = prefill.plan.model_reference, decode.plan.model_reference
        if left != right:
            yield "the model", "model", left, right
    left, right = prefill.argument("kv_transfer_config"), decode.argument("kv_transfer_config")
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        one, other = left.get("kv_connector"), right.get("kv_connector")
        if one and other and one != other:
            yield "the connector", "arg:kv_transfer_config", one, other
        for key in ("kv_buffer_device", "enable_permute_local_kv"):
            if key in left and key in right and left[key] != right[key]:
                yield key, "arg:kv_transfer_config", json.dumps(left[key]), json.dumps(right[key])
    one_size, other_size = prefill.integer("tensor_parallel_size"), decode.integer("tensor_parallel_size")
    if prefill.is_unresolved("tensor_parallel_size") or decode.is_unresolved("tensor_parallel_size"):
        return
    if one_size and other_size and (one_size > other_size or other_size % one_size):
        yield "the tensor parallel size", "arg:tensor_parallel_size", one_size, other_size


# -- prefix caching ----------------------------------------------------------------------------------------------------


@record
class CachingOff:
    """``by_flag``: switched off by the command line, else by the release's default."""

    by_flag: bool


@check("caching-off", params=CachingOff, values=("model", "shared", "held", "held_with", "release", "gain"))
def caching_off(case: Case, params: CachingOff) -> Iterator[Draft]:
    """Prefix caching is off, by a flag or by a default for hybrid models."""
    asked = case.argument("enable_prefix_caching")
    if case.is_unresolved("enable_prefix_caching") or (asked is False) is not params.by_flag:
        return
    workload = case.plan.workload
    shared = workload.shared_prefix_tokens if workload is not None else 0
    prediction = case.prediction
    if asked is not False:
        # the default of a hybrid model: off from 0.10.2 on, on since 0.28.0
        effective = prediction.resolved.get("enable_prefix_caching") if prediction is not None else None
        if asked is True or effective is not False or case.geometry is None:
            return
        if not (case.geometry.is_hybrid or case.geometry.is_attention_free) or case.geometry.runner != "generate":
            return
    on = case.predict(changes={"enable_prefix_caching": True})
    held, held_with = sustained_at(prediction, Bound.ESTIMATE), sustained_at(on, Bound.ESTIMATE)
    gain = ""
    if held is not None and held_with is not None and held_with > held:
        gain = f", and {amount(held)} requests are held where {amount(held_with)} could be"
    yield Draft(
        at="arg:enable_prefix_caching" if asked is False else "model",
        variant=None if shared else "unknown",
        values={
            "model": case.plan.model_reference,
            "shared": shared,
            "held": held,
            "held_with": held_with,
            "release": case.release_words,
            "gain": gain,
        },
        rests_on=() if asked is False else ("model", "vllm_version", "words"),
        ceiling=None if shared else Severity.INFO,
    )
