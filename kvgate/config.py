"""kvgate.yaml: frozen types, and a reader that names file, line and column of what is wrong.

The JSON Schema that editors use (``kvgate/schemas/kvgate.config-1.json``) says the same; a test holds the two together.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Literal, TypedDict, TypeVar

from kvgate.errors import KvgateError
from kvgate.records import record
from kvgate.source.ignore import IgnorePatterns
from kvgate.source.text import SourceFile, Span
from kvgate.source.yaml_tree import Mapping as YamlMapping
from kvgate.source.yaml_tree import Node, Scalar, Sequence, is_null, parse_yaml, scalar_bool, scalar_int
from kvgate.spelling import nearest

NAMES: Final = ("kvgate.yaml", "kvgate.yml", ".kvgate.yaml", ".kvgate.yml")
MAX_CONFIG_BYTES: Final = 1_000_000
MAX_TOKENS: Final = 100_000_000


class UnitKey(TypedDict):
    """What an entry of ``units`` is matched against."""

    path: str
    container: str | None
    name: str
    kind: str
    id: str


SeverityName = Literal["error", "warning", "info"]
T = TypeVar("T")


class ConfigError(KvgateError):
    """kvgate.yaml is wrong; ``str()`` is one line with file, line and column."""


@record
class TokenCount:
    """Tokens of a request: the 95th percentile, or only a mean, which hides what fills the cache."""

    p95: int | None
    mean: int | None
    span: Span

    @property
    def tokens(self) -> int | None:
        return self.p95 if self.p95 is not None else self.mean


@record
class WorkloadConfig:
    """The load over all replicas of a unit, as declared."""

    span: Span
    peak_concurrency: int | None = None
    prompt_tokens: TokenCount | None = None
    output_tokens: TokenCount | None = None
    shared_prefix_tokens: int | None = None
    prompt: str | None = None


@record
class UnitMatch:
    """Which units an entry is for: every given field must match; globs in the way of .gitignore for paths."""

    path: str | None = None
    container: str | None = None
    name: str | None = None
    kind: str | None = None
    id: str | None = None

    def matches(self, *, path: str, container: str | None, name: str, kind: str, id: str) -> bool:
        if self.path is not None and not _glob(self.path).verdict(path):
            return False
        # a compose service has no container of its own name: the service's is meant
        given = ((self.container, container or name), (self.name, name), (self.kind, kind), (self.id, id))
        return all(pattern is None or fnmatchcase(value or "", pattern) for pattern, value in given)


@lru_cache(maxsize=256)
def _glob(pattern: str) -> IgnorePatterns:
    return IgnorePatterns(["/" + pattern.removeprefix("./").lstrip("/")])


@record
class UnitConfig:
    match: UnitMatch
    span: Span
    gpu: str | None = None
    gpu_count: int | None = None
    vllm_version: str | None = None
    workload: WorkloadConfig | None = None
    min_sustained: int | None = None
    tuned_on: str | None = None


@record
class ChartConfig:
    """One release of a Helm chart, rendered with values files over the chart's own.

    Attributes:
        path: the chart's folder, or a glob; relative to the root, as are the values files.
    """

    path: str
    values: tuple[str, ...] = ()
    release: str = "release-name"
    namespace: str = "default"


@record
class RuleConfig:
    """What kvgate.yaml says of a rule.

    ``severity`` None keeps the rule's own; ``off`` switches it off; ``params`` are the rule's own options, which it
    checks itself.
    """

    span: Span
    off: bool = False
    severity: SeverityName | None = None
    params: Mapping[str, Node] = field(default_factory=dict)


@record
class GateConfig:
    """``max_capacity_drop`` is a share (0.1 = 10%)."""

    max_capacity_drop: float = 0.0
    on_unknown: Literal["fail", "warn"] = "fail"


@record
class SmokeConfig:
    """``tolerance`` is a share; the lists name what a smoke run may take from a manifest."""

    tolerance: float = 0.05
    allow_trust_remote_code: tuple[str, ...] = ()
    allow_env: tuple[str, ...] = ()
    allow_models: tuple[str, ...] = ()


@record
class Config:
    """A whole kvgate.yaml; the defaults where there is none. ``root`` is the folder that its globs are relative to."""

    root: Path
    path: str | None = None
    vllm_version: str | None = None
    vllm_version_span: Span | None = None
    gpu: str | None = None
    gpu_span: Span | None = None
    models: Mapping[str, str] = field(default_factory=dict)
    units: tuple[UnitConfig, ...] = ()
    gate: GateConfig = GateConfig()
    smoke: SmokeConfig = SmokeConfig()
    render: tuple[Literal["helm", "kustomize"], ...] = ()
    charts: tuple[ChartConfig, ...] = ()
    baseline: str | None = None
    profile: Literal["recommended", "all"] = "recommended"
    rules: Mapping[str, RuleConfig] = field(default_factory=dict)
    exclude: tuple[str, ...] = ()
    online: bool = False

    def unmatched(self, paths: Iterable[str], units: Iterable[UnitKey], *, whole: bool) -> list[UnitConfig]:
        """Entries that match none of the units although their files were read (or, with ``whole``, everything was)."""
        read, known = list(paths), list(units)
        found: list[UnitConfig] = []
        for entry in self.units:
            match = entry.match
            seen = whole or (match.path is not None and any(_glob(match.path).verdict(path) for path in read))
            if seen and not any(match.matches(**unit) for unit in known):
                found.append(entry)
        return found

    def unit(self, *, path: str, container: str | None, name: str, kind: str, id: str) -> UnitConfig | None:
        """The first entry that matches a unit."""
        for unit in self.units:
            if unit.match.matches(path=path, container=container, name=name, kind=kind, id=id):
                return unit
        return None


def find_config(start: Path) -> Path | None:
    """kvgate.yaml in ``start`` or above it, up to the root of the git working tree (or of the file system)."""
    folder = start if start.is_dir() else start.parent
    for candidate in (folder, *folder.parents):
        for name in NAMES:
            if (candidate / name).exists():
                return candidate / name
        if (candidate / ".git").exists():
            return None
    return None


def load_config(path: Path) -> Config:
    """Read a kvgate.yaml.

    Raises:
        ConfigError: the file cannot be read, or says something that kvgate does not know.
    """
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_CONFIG_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from None
    if len(data) > MAX_CONFIG_BYTES:
        raise ConfigError(f"{path}: larger than {MAX_CONFIG_BYTES} bytes")
    return read_config(path.name, data, path.resolve().parent)


def read_config(shown_path: str, data: bytes, root: Path) -> Config:
    """Read the bytes of a kvgate.yaml; globs and paths in it are relative to ``root``.

    Raises:
        ConfigError: see :func:`load_config`.
    """
    try:
        file = SourceFile.from_bytes(shown_path, data)
    except UnicodeDecodeError as error:
        raise ConfigError(f"{shown_path}: not UTF-8: {error.reason} at byte {error.start}") from None
    stream = parse_yaml(file)
    for problem in stream.problems:
        raise ConfigError(problem.message, problem.span)
    if len(stream.documents) > 1:
        raise ConfigError("one document expected", stream.documents[1].span)
    if not stream.documents or is_null(stream.documents[0]):
        return Config(root=root, path=shown_path)
    return _Reader(root, shown_path).config(stream.documents[0])


class _Reader:
    def __init__(self, root: Path, shown_path: str) -> None:
        self.root = root
        self.shown_path = shown_path

    def config(self, node: Node) -> Config:
        top = _fields(
            node,
            "kvgate.yaml",
            {
                "version": _version_number,
                "vllm_version": _vllm_version,
                "gpu": _string,
                "models": _string_map,
                "units": lambda inner: tuple(self.unit(item) for item in _items(inner)),
                "gate": self.gate,
                "smoke": self.smoke,
                "render": lambda inner: tuple(_choice(item, ("helm", "kustomize")) for item in _items(inner)),
                "charts": lambda inner: tuple(self.chart(item) for item in _items(inner)),
                "baseline": _inside_tree,
                "profile": lambda inner: _choice(inner, ("recommended", "all")),
                "rules": self.rules,
                "exclude": _strings,
                "online": _boolean,
            },
        )
        if "version" not in top:
            raise ConfigError('"version: 1" is missing', node.span)
        top.pop("version")
        assert isinstance(node, YamlMapping)
        spans: dict[str, Any] = {
            f"{key}_span": value.span for key in ("vllm_version", "gpu") if (value := node.get(key)) is not None
        }
        return Config(root=self.root, path=self.shown_path, **top, **spans)

    def unit(self, node: Node) -> UnitConfig:
        fields = _fields(
            node,
            "units",
            {
                "match": self.match,
                "gpu": _string,
                "gpu_count": _positive,
                "vllm_version": _vllm_version,
                "workload": self.workload,
                "min_sustained": _positive,
                "tuned_on": _vllm_version,
            },
        )
        return UnitConfig(match=fields.pop("match", UnitMatch()), span=node.span, **fields)

    def chart(self, node: Node) -> ChartConfig:
        fields = _fields(
            node,
            "charts",
            {
                "path": _inside_tree,
                "values": lambda inner: tuple(_inside_tree(item) for item in _items(inner)),
                "release": _string,
                "namespace": _string,
            },
        )
        if "path" not in fields:
            raise ConfigError('"path" of a chart is missing', node.span)
        return ChartConfig(**fields)

    def match(self, node: Node) -> UnitMatch:
        names = ("path", "container", "name", "kind", "id")
        return UnitMatch(**_fields(node, "match", dict.fromkeys(names, _string)))

    def workload(self, node: Node) -> WorkloadConfig:
        fields = _fields(
            node,
            "workload",
            {
                "peak_concurrency": _positive,
                "prompt_tokens": _tokens,
                "output_tokens": _tokens,
                "shared_prefix_tokens": _count,
                "prompt": _string,
            },
        )
        prompt: TokenCount | None = fields.get("prompt_tokens")
        shared = fields.get("shared_prefix_tokens")
        if prompt and shared and prompt.p95 is not None and shared > prompt.p95:
            raise ConfigError(
                f"shared_prefix_tokens {shared} is more than prompt_tokens {prompt.p95}, of which it is a part",
                node.span,
            )
        return WorkloadConfig(span=node.span, **fields)

    def gate(self, node: Node) -> GateConfig:
        return GateConfig(
            **_fields(
                node,
                "gate",
                {"max_capacity_drop": _share, "on_unknown": lambda inner: _choice(inner, ("fail", "warn"))},
            )
        )

    def smoke(self, node: Node) -> SmokeConfig:
        fields = _fields(
            node,
            "smoke",
            {
                "tolerance": _share,
                "allow": lambda inner: _fields(
                    inner, "allow", {"trust_remote_code": _strings, "env": _strings, "models": _strings}
                ),
            },
        )
        allow = {f"allow_{key}": value for key, value in fields.pop("allow", {}).items()}
        return SmokeConfig(**fields, **allow)

    def rules(self, node: Node) -> dict[str, RuleConfig]:
        rules: dict[str, RuleConfig] = {}
        for entry in _mapping(node, "rules").items():
            value = entry.value
            if isinstance(value, Scalar):
                # YAML 1.1 readers take a plain off for false; it is what people write
                if scalar_bool(value) is False:
                    rules[entry.key.value] = RuleConfig(value.span, off=True)
                else:
                    severity = _choice(value, ("error", "warning", "info"), also=("off",))
                    rules[entry.key.value] = RuleConfig(value.span, severity=severity)
                continue
            if not isinstance(value, YamlMapping):
                raise ConfigError(f"{entry.key.value}: a severity or a mapping expected, got a list", value.span)
            severity = value.get("severity")
            rules[entry.key.value] = RuleConfig(
                value.span,
                severity=_choice(severity, ("error", "warning", "info")) if severity is not None else None,
                params={one.key.value: one.value for one in value.items() if one.key.value != "severity"},
            )
        return rules


def _mapping(node: Node, what: str) -> YamlMapping:
    if not isinstance(node, YamlMapping):
        raise ConfigError(f"{what}: a mapping expected, got {_kind(node)}", node.span)
    return node


def _fields(node: Node, what: str, known: Mapping[str, Callable[[Node], Any]]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for entry in _mapping(node, what).items():
        key = entry.key.value
        reader = known.get(key)
        if reader is None:
            near = nearest(key.replace("-", "_"), known)
            hint = f', did you mean "{near}"?' if near else f"; known: {', '.join(known)}"
            raise ConfigError(f'unknown key "{key}" in {what}{hint}', entry.key.span)
        if is_null(entry.value):
            continue
        fields[key] = reader(entry.value)
    return fields


def _kind(node: Node) -> str:
    if isinstance(node, Scalar):
        return f'"{node.value}"' if len(node.value) <= 40 else "a text"
    return "a mapping" if isinstance(node, YamlMapping) else "a list"


def _items(node: Node) -> list[Node]:
    if not isinstance(node, Sequence):
        raise ConfigError(f"a list expected, got {_kind(node)}", node.span)
    return node.items


def _string(node: Node) -> str:
    if not isinstance(node, Scalar) or not node.value:
        raise ConfigError(f"a text expected, got {_kind(node)}", node.span)
    return node.value


def _strings(node: Node) -> tuple[str, ...]:
    return tuple(_string(item) for item in _items(node))


def _string_map(node: Node) -> dict[str, str]:
    return {entry.key.value: _string(entry.value) for entry in _mapping(node, "models").items()}


def _inside_tree(node: Node) -> str:
    value = _string(node)
    parts = value.replace("\\", "/").split("/")
    if value.startswith("/") or ".." in parts or ":" in parts[0]:
        raise ConfigError(f'"{value}": a path inside the tree expected', node.span)
    return value


def _boolean(node: Node) -> bool:
    value = scalar_bool(node)
    if value is None:
        raise ConfigError(f"true or false expected, got {_kind(node)}", node.span)
    return value


def _count(node: Node) -> int:
    value = scalar_int(node)
    if value is None or not 0 <= value <= MAX_TOKENS:
        raise ConfigError(f"a whole number from 0 to {MAX_TOKENS:,} expected, got {_kind(node)}", node.span)
    return value


def _positive(node: Node) -> int:
    value = scalar_int(node)
    if value is None or not 1 <= value <= MAX_TOKENS:
        raise ConfigError(f"a whole number from 1 to {MAX_TOKENS:,} expected, got {_kind(node)}", node.span)
    return value


def _tokens(node: Node) -> TokenCount:
    if isinstance(node, YamlMapping):
        fields = _fields(node, "tokens", {"p95": _positive, "mean": _positive})
        if not fields:
            raise ConfigError("p95 expected, as in {p95: 7500}", node.span)
        return TokenCount(fields.get("p95"), fields.get("mean"), node.span)
    return TokenCount(_count(node), None, node.span)


def _share(node: Node) -> float:
    if isinstance(node, Scalar):
        match = re.fullmatch(r"(\d{1,3}(?:\.\d+)?)\s*(%?)", node.value.strip())
        if match:
            value = float(match[1]) / (100 if match[2] else 1)
            if 0 <= value <= 1:
                return value
    raise ConfigError(f"a share such as 10% expected, got {_kind(node)}", node.span)


def _choice(node: Node, choices: tuple[str, ...], also: tuple[str, ...] = ()) -> Any:
    value = node.value if isinstance(node, Scalar) else None
    if value not in choices:
        raise ConfigError(f"one of {', '.join((*choices, *also))} expected, got {_kind(node)}", node.span)
    return value


def _version_number(node: Node) -> int:
    if scalar_int(node) != 1:
        raise ConfigError(f"version 1 is the only one known, got {_kind(node)}", node.span)
    return 1


def _vllm_version(node: Node) -> str:
    value = _string(node)
    if isinstance(node, Scalar) and node.plain and re.fullmatch(r"\d+(?:\.\d*)?", value):
        raise ConfigError(f'{value} is a number in YAML: quote it, as in "{value}"', node.span)
    if not re.fullmatch(r"v?\d+\.\d+(?:\.\d+)?(?:[-.+]?\w+)*", value):
        raise ConfigError(f'a vLLM release such as "0.11.2" expected, got "{value}"', node.span)
    return value.removeprefix("v")
