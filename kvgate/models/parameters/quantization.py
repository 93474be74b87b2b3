"""Storage formats of quantized checkpoints and which layer has which.

Sizes follow the ``create_weights`` of vLLM 0.32.0's quantization methods (``layers/quantization/fp8.py``,
``auto_awq.py``, ``auto_gptq.py``, ``modelopt.py``, ``mxfp4.py``, ``compressed_tensors/``); the layers a checkpoint
leaves alone are matched as ``utils/quant_utils.py`` (``is_layer_skipped``) and ``compressed_tensors/utils.py`` do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import gcd
from typing import Any, Final, Literal

from kvgate.patterns import regex
from kvgate.records import record

Layout = Literal["none", "tensor", "channel", "group", "block"]

FLOAT32: Final = 4


@record
class Format:
    """How a matrix is stored.

    Attributes:
        bits: of one element.
        layout: what one scale covers: the whole matrix, an output channel, ``group`` inputs of one channel, or a
            ``block`` of outputs by inputs.
        group: inputs per scale; -1 for all of them.
        block: outputs and inputs per scale.
        scale_bytes: of one scale; 0 means the model's own dtype.
        zero_points: a zero point of ``bits`` bits beside each scale.
        matrix_floats: further float32 scalars for each fused matrix (global and static input scales).
        layer_bytes: what each layer carries besides (int64 shape of compressed-tensors' packed weights).
        expert_floats: further float32 scalars for each matrix of each expert.
        expert_pair_floats: further float32 scalars for each of an expert's two fused weights.
        expert_layer_bytes: what each expert carries besides, as elements of the model's dtype.
        expert_biases: the method creates biases whether or not the model has any.
        index_bytes: bytes per input of an act-order index.
        inner_multiple, width_multiple: experts are padded to multiples of these.
    """

    bits: int = 16
    layout: Layout = "none"
    group: int = -1
    block: tuple[int, int] = (128, 128)
    scale_bytes: int = FLOAT32
    zero_points: bool = False
    matrix_floats: int = 0
    layer_bytes: int = 0
    expert_floats: int = 0
    expert_pair_floats: int = 0
    expert_elements: int = 0
    expert_biases: bool = False
    index_bytes: int = 0
    inner_multiple: int = 1
    width_multiple: int = 1

    def linear(self, inputs: int, outputs: Sequence[int], element: int, full_inputs: int) -> int:
        """Bytes of one (fused) linear layer of a rank; ``full_inputs`` is its width before sharding."""
        total = sum(outputs)
        size = -(-total * inputs * self.bits // 8)
        size += self._scales(inputs, total, len(outputs), element, full_inputs)
        size += len(outputs) * self.matrix_floats * FLOAT32
        return size + self.layer_bytes + inputs * self.index_bytes

    def _scales(self, inputs: int, total: int, matrices: int, element: int, full_inputs: int) -> int:
        scale = self.scale_bytes or element
        if self.layout == "tensor":
            return matrices * scale
        if self.layout == "channel":
            count = total
        elif self.layout == "group":
            groups = 1 if self.group == -1 else max(1, inputs // self.group)
            count = total * groups
        elif self.layout == "block":
            return -(-total // self.block[0]) * -(-inputs // self.block[1]) * scale
        else:
            return 0
        size = count * scale
        if self.zero_points:
            size += -(-count * self.bits // 8)
        return size

    def experts(self, count: int, width: int, inner: int, matrices: int, element: int, bias: bool) -> int:
        """Bytes of the routed experts of one layer: ``matrices`` x inner x width up, width x inner down."""
        inner = -(-inner // self.inner_multiple) * self.inner_multiple
        width = -(-width // self.width_multiple) * self.width_multiple
        up = matrices * inner
        size = -(-count * (up * width + width * inner) * self.bits // 8)
        scale = self.scale_bytes or element
        if self.layout == "tensor":
            size += count * (matrices + 1) * scale
        elif self.layout in ("channel", "group"):
            if self.layout == "channel" or self.group == -1:
                scales = count * (up + width)
            else:
                scales = count * (up * (width // self.group) + width * (inner // self.group))
            size += scales * scale
            if self.zero_points:
                size += -(-scales * self.bits // 8)
        elif self.layout == "block":
            rows, columns = self.block
            if inner % rows or inner % columns:
                # Scales are refined so that a rank's slice ends between two of them (``fused_moe/oracle/fp8.py``).
                finer = gcd(rows, columns, inner, width)
                if finer >= 32:
                    rows = columns = finer
            up_blocks = matrices * -(-inner // rows) * -(-width // columns)
            size += count * (up_blocks + -(-width // rows) * -(-inner // columns)) * scale
        size += count * (matrices + 1) * self.expert_floats * FLOAT32
        size += count * 2 * self.expert_pair_floats * FLOAT32
        size += count * self.expert_elements * element
        if bias or self.expert_biases:
            size += count * (up + width) * element
        return size


#: What each of vLLM's fused layers is made of (``packed_modules_mapping`` of the model classes).
FUSED: Final[Mapping[str, tuple[str, ...]]] = {
    "qkv_proj": ("q_proj", "k_proj", "v_proj"),
    "gate_up_proj": ("gate_proj", "up_proj"),
    "fused_qkv_a_proj": ("q_a_proj", "kv_a_proj_with_mqa"),
    "wk_weights_proj": ("wk", "weights_proj"),
    "in_proj_qkvz": ("in_proj_qkv", "in_proj_z"),
    "in_proj_ba": ("in_proj_b", "in_proj_a"),
    "query_key_value": ("query_key_value",),
    "w13": ("w1", "w3"),
    "kv_proj": ("k_proj", "v_proj"),
}

#: Prefixes under which checkpoints and vLLM name the language model's modules.
TEXT_PREFIXES: Final = ("model.", "", "language_model.model.", "model.language_model.", "language_model.")

Matcher = Callable[[str], bool]


class Quantization:
    """The formats of one checkpoint, asked by module name (``layers.0.self_attn.qkv_proj``)."""

    __slots__ = ("_cache", "_find", "_fingerprints", "_scales", "method")

    def __init__(
        self,
        method: str | None,
        find: Callable[[str, str], Format | None],
        *,
        entries: Sequence[str] = (),
        cache_scales: tuple[int, int] = (0, 0),
    ) -> None:
        """``find`` takes a kind of layer and a name; ``entries`` are the lists it looks in.

        ``cache_scales`` are the float32 scalars and the elements of the model's dtype that each attention layer
        carries for its KV cache.
        """
        self.method = method
        self._find = find
        self._cache: dict[tuple[str, str], Format | None] = {}
        self._fingerprints = fingerprints(entries)
        self._scales = cache_scales

    def fingerprint(self, layer: int) -> object:
        """Equal for layers whose modules have equal formats; the layer itself where that cannot be told."""
        if self._fingerprints is None:
            return layer
        return self._fingerprints.get(layer)

    def _format(self, kind: str, name: str) -> Format | None:
        key = (kind, name)
        try:
            return self._cache[key]
        except KeyError:
            found = self._cache[key] = self._find(kind, name)
            return found

    def linear(self, name: str) -> Format | None:
        """Format of a linear layer; None where it keeps the model's dtype."""
        return self._format("linear", name)

    def experts(self, name: str) -> Format | None:
        return self._format("experts", name)

    def head(self, name: str) -> Format | None:
        return self._format("head", name)

    def cache_scale_bytes(self, element: int) -> int:
        """Bytes of the KV-cache scales that each attention layer carries."""
        floats, elements = self._scales
        return floats * FLOAT32 + elements * element


_LAYER = regex(r"(?:^|\.)(?:layers|h|blocks|layer)(?:\.|\\\.)(\d+)(?=\.|\\\.|\*|$)")


def fingerprints(entries: Sequence[str]) -> dict[int, object] | None:
    """Per layer, what the entries say of it; None where an entry picks layers by a pattern.

    A layer that no entry names is not in the result.
    """
    named: dict[int, list[str]] = {}
    for entry in entries:
        found = _LAYER.search(entry)
        if found is None:
            if re.search(r"\d", entry) and ("re:" in entry or any(sign in entry for sign in "([|*?")):
                return None
            continue
        rest = entry[: found.start(1)] + entry[found.end(1) :]
        if any(sign in rest for sign in "([|"):
            return None
        named.setdefault(int(found.group(1)), []).append(rest)
    return {layer: frozenset(rests) for layer, rests in named.items()}


UNQUANTIZED: Final = Quantization(None, lambda kind, name: None)


def full_names(name: str) -> tuple[str, ...]:
    """The names under which a checkpoint may list a module: prefixes, and the parts of a fused layer."""
    names = [prefix + name for prefix in TEXT_PREFIXES]
    return tuple(names)


def parts(name: str) -> tuple[str, ...]:
    """The checkpoint's modules that a layer is fused from; the name itself where it is not."""
    head, _, last = name.rpartition(".")
    fused = FUSED.get(last)
    if fused is None:
        return (name,)
    return tuple(f"{head}.{part}" if head else part for part in fused)


def _exact(entries: Sequence[str]) -> Matcher:
    known = set(entries)
    return lambda name: name in known


def _substring(entries: Sequence[str]) -> Matcher:
    listed = tuple(entry for entry in entries if entry)
    return lambda name: any(entry in name for entry in listed)


def _wildcard(entries: Sequence[str]) -> Matcher:
    """ModelOpt's exclusions: exact names, parts of names, and shell patterns."""
    listed = tuple(entry for entry in entries if entry)
    plain = tuple(entry for entry in listed if "*" not in entry)
    globs = tuple(entry for entry in listed if "*" in entry)
    patterns = [re.compile(_glob(entry)) for entry in globs]
    return lambda name: any(entry in name for entry in plain) or any(p.fullmatch(name) for p in patterns)


def _glob(pattern: str) -> str:
    return "".join(".*" if c == "*" else "." if c == "?" else re.escape(c) for c in pattern)


def _compressed(entries: Sequence[str]) -> Matcher:
    """compressed-tensors: exact names and ``re:`` patterns (matched from the start)."""
    exact = {entry for entry in entries if not entry.startswith("re:")}
    patterns = [re.compile(entry[3:]) for entry in entries if entry.startswith("re:")]
    return lambda name: name in exact or any(p.match(name) for p in patterns)


def skips(matcher: Matcher, name: str) -> bool:
    """True when every part of a layer is matched under one of its names."""
    return all(any(matcher(full) for full in full_names(part)) for part in parts(name))


def _listed(config: Mapping[str, Any], *keys: str) -> list[str]:
    for key in keys:
        value = config.get(key)
        if value:
            return [str(entry) for entry in value]
    return []


# --------------------------------------------------------------------------------------------------------------------
# One function per quantization method: configuration -> Quantization


def _fp8(config: Mapping[str, Any]) -> Quantization:
    block = config.get("weight_block_size")
    static = config.get("activation_scheme") == "static"
    floats = 1 if static else 0
    if block:
        form = Format(8, "block", block=(int(block[0]), int(block[1])))
    else:
        form = Format(8, "tensor", matrix_floats=floats, expert_pair_floats=floats)
    ignored = _listed(config, "ignored_layers", "modules_to_not_convert")
    matcher = _exact(ignored)

    def find(kind: str, name: str) -> Format | None:
        if kind == "head" or skips(matcher, name):
            return None
        return form

    return Quantization("fp8", find, entries=ignored, cache_scales=(0, 4))


#: Group size where a configuration does not say it.
_GROUP: Final = 128


def _weight_format(weights: Mapping[str, Any], inputs: Mapping[str, Any] | None, layout_name: str) -> Format | None:
    """A compressed-tensors scheme as a format (``compressed_tensors.py``: ``_get_scheme_from_parts``)."""
    bits = int(weights.get("num_bits") or 8)
    kind = str(weights.get("type") or "int")
    strategy = str(weights.get("strategy") or "tensor")
    group = int(weights.get("group_size") or (_GROUP if strategy == "group" else -1))
    symmetric = weights.get("symmetric", True) is not False
    static = bool(inputs) and not (inputs or {}).get("dynamic")
    if kind == "float" and bits == 4:
        if strategy == "group" and group == 32:
            return Format(4, "group", 32, scale_bytes=1)
        return Format(
            4, "group", 16, scale_bytes=1, matrix_floats=2 if inputs else 1, expert_floats=2
        )  # nvfp4: a global weight scale, and one of the inputs
    if kind == "float" and bits == 8:
        if strategy == "group" and group == 32:
            return Format(8, "group", 32, scale_bytes=1)
        floats = 1 if static else 0
        if strategy == "block":
            block = weights.get("block_structure") or (128, 128)
            if isinstance(block, str):
                block = block.split("x")
            return Format(8, "block", block=(int(block[0]), int(block[1])))
        layout: Layout = "channel" if strategy == "channel" else "tensor"
        return Format(8, layout, matrix_floats=floats, expert_pair_floats=floats)
    if layout_name == "int-quantized" and inputs:
        return Format(8, "channel" if strategy == "channel" else "tensor", layer_bytes=4 if static else 0)
    return Format(
        bits,
        "group",
        group if strategy == "group" else -1,
        scale_bytes=0,
        zero_points=not symmetric,
        layer_bytes=16,
        expert_elements=4,
    )


#: Schemes of configurations that name a storage format and nothing else, and what is then left as it is.
_ASSUMED_SCHEMES: Final[Mapping[str, Mapping[str, Any]]] = {
    "float-quantized": {"num_bits": 8, "type": "float", "strategy": "channel"},
    "int-quantized": {"num_bits": 8, "type": "int", "strategy": "channel"},
    "nvfp4-pack-quantized": {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16},
    "pack-quantized": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128},
}
_ASSUMED_IGNORED: Final = (
    "lm_head", "re:.*visual.*", "re:.*vision.*", "re:.*mlp.gate$", "re:.*shared_expert_gate$", "re:.*linear_attn.*"
)  # fmt: skip


def assumed_scheme(config: Mapping[str, Any] | None) -> bool:
    """Whether a checkpoint's quantization is told by its storage format alone."""
    return bool(config) and not (config or {}).get("config_groups") and (config or {}).get("format") in _ASSUMED_SCHEMES


def _compressed_tensors(config: Mapping[str, Any]) -> Quantization:
    ignored = _listed(config, "ignore")
    ignore = _compressed(ignored)
    targets: list[tuple[str, Format | None]] = []
    outer = str(config.get("format") or "")
    groups = config.get("config_groups")
    if not groups and outer in _ASSUMED_SCHEMES:
        groups = {"assumed": {"targets": ["Linear"], "weights": _ASSUMED_SCHEMES[outer]}}
        ignore = _compressed(_ASSUMED_IGNORED)
    for group in (groups or {}).values():
        weights = group.get("weights")
        if not weights:
            continue
        form = _weight_format(weights, group.get("input_activations"), str(group.get("format") or outer))
        targets += [(str(target), form) for target in group.get("targets") or ()]
    named = [(_compressed([target]), form) for target, form in targets if "." in target or target.startswith("re:")]
    classes = {target: form for target, form in targets if not ("." in target or target.startswith("re:"))}
    exact_head = {target: form for target, form in targets if target in ("lm_head",)}

    def find(kind: str, name: str) -> Format | None:
        if kind == "experts":
            probe = f"{name}.0.gate_proj"
            probe_down = f"{name}.0.down_proj"
            if skips(ignore, name) or skips(ignore, probe):
                return None
            for matcher, form in named:
                if skips(matcher, probe) or skips(matcher, probe_down) or skips(matcher, name):
                    return form
            return classes.get("Linear") or classes.get("RoutedExperts")
        if skips(ignore, name):
            return None
        for matcher, form in named:
            if skips(matcher, name):
                return form
        if kind == "head":
            return exact_head.get("lm_head") or classes.get("ParallelLMHead")
        return classes.get("Linear")

    entries = [*ignored, *(target for target, _ in targets)]
    return Quantization("compressed-tensors", find, entries=entries, cache_scales=(3, 3))


def _awq(config: Mapping[str, Any]) -> Quantization:
    bits = int(config.get("bits") or config.get("w_bit") or 4)
    group = int(config.get("group_size") or config.get("q_group_size") or 128)
    form = Format(bits, "group", group, scale_bytes=0, zero_points=True)
    ignored = _listed(config, "modules_to_not_convert")
    matcher = _substring(ignored)
    head = bool(config.get("lm_head"))

    def find(kind: str, name: str) -> Format | None:
        if kind == "head" and not head:
            return None
        if ignored and any(matcher(part) for part in (name, *parts(name), *full_names(name))):
            return None
        return form

    return Quantization("awq", find, entries=ignored)


def _gptq(config: Mapping[str, Any]) -> Quantization:
    bits = int(config.get("bits") or 4)
    group = int(config.get("group_size") or 128)
    form = Format(bits, "group", group, scale_bytes=0, zero_points=True, expert_biases=True)
    if config.get("desc_act"):
        form = replace(form, index_bytes=4)
    head = bool(config.get("lm_head"))
    dynamic: Mapping[str, Any] = config.get("dynamic") or {}
    rules = [
        (pattern.startswith("-:"), re.compile(pattern.removeprefix("-:").removeprefix("+:")), override or {})
        for pattern, override in dynamic.items()
    ]
    quantized = [str(name) for group_names in config.get("modules_in_block_to_quantize") or () for name in group_names]
    ignored = _listed(config, "modules_to_not_convert")
    skip = _substring(ignored)

    def find(kind: str, name: str) -> Format | None:
        if kind == "head" and not head:
            return None
        candidates = [full for part in parts(name) for full in full_names(part)] + list(full_names(name))
        if ignored and any(skip(candidate) for candidate in candidates):
            return None
        if quantized and kind == "linear" and not any(entry in part for entry in quantized for part in parts(name)):
            return None
        for negative, pattern, override in rules:
            if any(pattern.match(candidate) for candidate in candidates):
                if negative:
                    return None
                return replace(
                    form,
                    bits=int(override.get("bits", form.bits)),
                    group=int(override.get("group_size", form.group)),
                )
        return form

    return Quantization("gptq", find, entries=[*dynamic, *ignored])


def _modelopt_format(algorithm: str, group: int | None) -> Format | None:
    name = algorithm.upper()
    if name in ("NVFP4", "W4A4_NVFP4"):
        return Format(4, "group", group or 16, scale_bytes=1, matrix_floats=2, expert_floats=2)
    if name in ("W4A16_NVFP4", "NVFP4_AWQ"):
        return Format(4, "group", group or 16, scale_bytes=1, matrix_floats=1, expert_floats=2)
    if name == "FP8":
        return Format(8, "tensor", matrix_floats=1, expert_pair_floats=1)
    if name == "FP8_PER_CHANNEL_PER_TOKEN":
        return Format(8, "channel")
    if name in ("FP8_PB_WO", "FP8_PB", "FP8_BLOCK"):
        return Format(8, "block")
    if name == "MXFP8":
        return Format(8, "group", 32, scale_bytes=1)
    if name in ("MXFP4", "W4A8_MXFP4"):
        return Format(4, "group", 32, scale_bytes=1)
    return None


def _modelopt(config: Mapping[str, Any]) -> Quantization:
    inner = config.get("quantization")
    body: Mapping[str, Any] = inner if isinstance(inner, Mapping) else config
    algorithm = str(body.get("quant_algo") or config.get("quant_algo") or "")
    group = body.get("group_size")
    for entry in (body.get("config_groups") or {}).values():
        weights = entry.get("weights") or {}
        group = group or weights.get("group_size")
        if not algorithm:
            algorithm = "NVFP4" if weights.get("num_bits") == 4 else "FP8"
    if not algorithm and "fp4" in str(config.get("quant_method")):
        algorithm = "NVFP4"
    # Only a nested configuration names its exclusions so (``modelopt.py``: ``from_config``).
    ignored = _listed(body, "exclude_modules" if body is not config else "ignore")
    matcher = _wildcard(ignored)
    layers: Mapping[str, Any] = body.get("quantized_layers") or {}
    form = _modelopt_format(algorithm or "FP8", int(group) if group else None)
    kv = body.get("kv_cache_quant_algo") or body.get("kv_cache_scheme")

    def excluded(name: str) -> bool:
        if skips(matcher, name):
            return True
        return any(matcher(full) for full in full_names(name))

    def listed(name: str) -> Format | None:
        for part in parts(name):
            for full in full_names(part):
                entry = layers.get(full)
                if entry is None:
                    prefix = f"{full}."
                    entry = next((value for key, value in layers.items() if key.startswith(prefix)), None)
                if entry is not None:
                    size = entry.get("group_size")
                    return _modelopt_format(str(entry.get("quant_algo")), int(size) if size else None)
        return None

    def find(kind: str, name: str) -> Format | None:
        if layers:
            return None if excluded(name) else listed(name)
        return None if excluded(name) else form

    return Quantization("modelopt", find, entries=[*ignored, *layers], cache_scales=(0, 4 if kv or not layers else 0))


def _mxfp4(config: Mapping[str, Any]) -> Quantization:
    del config
    form = Format(4, "group", 32, scale_bytes=1, inner_multiple=128, width_multiple=256)
    return Quantization("mxfp4", lambda kind, name: form if kind == "experts" else None)


def _gpt_oss(config: Mapping[str, Any], capability: tuple[int, int] | None) -> Quantization:
    """gpt-oss: Triton's kernels on Hopper pad less than the others (``fused_moe/oracle/mxfp4.py``)."""
    if capability is None or capability == (9, 0):
        form = Format(4, "group", 32, scale_bytes=1, inner_multiple=64)
        return Quantization("mxfp4", lambda kind, name: form if kind == "experts" else None)
    return _mxfp4(config)


def _bitsandbytes(config: Mapping[str, Any]) -> Quantization:
    eight = bool(config.get("load_in_8bit")) and not config.get("load_in_4bit")
    # A 4-bit block of 64 elements has a maximum, itself stored in one byte (nested quantization).
    form = Format(8, "channel") if eight else Format(4, "group", 64, scale_bytes=1)
    ignored = _listed(config, "llm_int8_skip_modules")
    matcher = _substring(ignored)

    def find(kind: str, name: str) -> Format | None:
        if kind == "head" or (ignored and any(matcher(part) for part in (name, *parts(name)))):
            return None
        return form

    return Quantization("bitsandbytes", find, entries=ignored)


def _fbgemm(config: Mapping[str, Any]) -> Quantization:
    ignored = _listed(config, "modules_to_not_convert")
    matcher = _exact(ignored)
    form = Format(8, "channel", layer_bytes=FLOAT32)

    def find(kind: str, name: str) -> Format | None:
        return None if kind == "head" or skips(matcher, name) else form

    return Quantization("fbgemm_fp8", find, entries=ignored)


def _online(form: Format, expert_form: Format | None = None) -> Callable[[Mapping[str, Any]], Quantization]:
    def build(config: Mapping[str, Any]) -> Quantization:
        del config

        def find(kind: str, name: str) -> Format | None:
            del name
            if kind == "head":
                return None
            return (expert_form or form) if kind == "experts" else form

        return Quantization("online", find)

    return build


def _experts_int8(config: Mapping[str, Any]) -> Quantization:
    del config
    form = Format(8, "channel")
    return Quantization("experts_int8", lambda kind, name: form if kind == "experts" else None)


#: Quantization methods by ``quant_method`` of the checkpoint, lower case.
METHODS: Final[Mapping[str, Callable[[Mapping[str, Any]], Quantization]]] = {
    "fp8": _fp8,
    "compressed-tensors": _compressed_tensors,
    "awq": _awq,
    "awq_marlin": _awq,
    "auto_awq": _awq,
    "gptq": _gptq,
    "gptq_marlin": _gptq,
    "auto_gptq": _gptq,
    "auto-round": _gptq,
    "modelopt": _modelopt,
    "modelopt_fp4": _modelopt,
    "modelopt_mixed": _modelopt,
    "nvfp4": _modelopt,
    "mxfp4": _mxfp4,
    "gpt_oss_mxfp4": _mxfp4,
    "bitsandbytes": _bitsandbytes,
    "fbgemm_fp8": _fbgemm,
    "experts_int8": _experts_int8,
}

#: Methods that quantize a checkpoint in the model's dtype while it is loaded (``--quantization``).
ONLINE: Final[Mapping[str, Callable[[Mapping[str, Any]], Quantization]]] = {
    "fp8": _online(Format(8, "tensor")),
    "fp8_per_tensor": _online(Format(8, "tensor")),
    "fp8_per_block": _online(Format(8, "block")),
    "int8_per_channel": _online(Format(8, "channel")),
    "mxfp8": _online(Format(8, "group", 32, scale_bytes=1)),
    "bitsandbytes": _bitsandbytes,
    "experts_int8": _experts_int8,
}


class UnknownQuantizationError(ValueError):
    """A quantization method whose storage is not described here."""


def _deepseek_v4(config: Mapping[str, Any], expert_dtype: str) -> Quantization:
    """FP8 blocks outside the experts; MXFP4 or NVFP4 experts unless the configuration says fp8.

    Source: ``models/deepseek_v4/quant_config.py``.
    """
    base = _fp8(config)
    if expert_dtype == "fp8":
        return base
    block = config.get("weight_block_size") or (128, 128)
    form = Format(8, "block", block=(int(block[0]), int(block[1])), scale_bytes=1)
    experts = _modelopt_format("NVFP4" if str(config.get("moe_quant_algo")).upper() == "NVFP4" else "MXFP4", None)
    ignored = _listed(config, "ignored_layers", "modules_to_not_convert")
    matcher = _exact(ignored)

    def find(kind: str, name: str) -> Format | None:
        if kind == "head" or skips(matcher, name):
            return None
        return experts if kind == "experts" else form

    return Quantization("deepseek_v4_fp8", find, entries=ignored)


def read_quantization(
    checkpoint: Mapping[str, Any] | None,
    requested: str | None,
    files: Mapping[str, Mapping[str, Any]] | None = None,
    config: Mapping[str, Any] | None = None,
    capability: tuple[int, int] | None = None,
) -> Quantization:
    """The formats of a checkpoint.

    Args:
        checkpoint: its ``quantization_config``, if any.
        requested: ``--quantization``.
        files: further files of the model directory (``hf_quant_config.json`` of ModelOpt).
        config: the model's configuration, whose type and ``expert_dtype`` decide some formats.

    Raises:
        UnknownQuantizationError: the method is not in the table.
    """
    if checkpoint:
        method = str(checkpoint.get("quant_method") or "").lower()
        producer = checkpoint.get("producer")
        if not method and isinstance(producer, Mapping) and producer.get("name") == "modelopt":
            method = "modelopt"
        if method in ("", "none"):
            method = (requested or "").lower()
        kind = config or {}
        if method in ("fp8", "deepseek_v4_fp8") and str(kind.get("model_type")).startswith("deepseek_v4"):
            return _deepseek_v4(checkpoint, str(kind.get("expert_dtype") or "fp4"))
        if str(kind.get("model_type")) == "kimi_k3" and checkpoint.get("format") == "mxfp4-pack-quantized":
            return _mxfp4(checkpoint)  # ``models/config.py``: only the experts, whatever the targets say
        if method in ("mxfp4", "gpt_oss_mxfp4") and str(kind.get("model_type")) == "gpt_oss":
            return _gpt_oss(checkpoint, capability)
        build = METHODS.get(method)
        if build is None:
            raise UnknownQuantizationError(method)
        return build(checkpoint)
    extra = (files or {}).get("hf_quant_config.json")
    producer = (extra or {}).get("producer")
    if extra and isinstance(producer, Mapping) and producer.get("name") == "modelopt":
        return _modelopt(extra)
    if not requested or requested.lower() in ("none", "auto"):
        return UNQUANTIZED
    build = ONLINE.get(requested.lower())
    if build is None:
        raise UnknownQuantizationError(requested)
    return build({})
