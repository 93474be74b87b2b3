"""Values carried over from another release, averages in place of peaks, and numbers that a template changes."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from kvgate.patterns import regex
from kvgate.records import record
from kvgate.ruleset.case import Case, sustained_at
from kvgate.ruleset.certainty import Bound
from kvgate.ruleset.checks import NoParams, check
from kvgate.ruleset.checks.memory import available
from kvgate.ruleset.model import Draft
from kvgate.ruleset.scene import Scene
from kvgate.ruleset.words import amount, gib
from kvgate.source.text import SourceFile, Span
from kvgate.source.yaml_tree import Mapping as YamlMapping
from kvgate.source.yaml_tree import Node, Scalar, scalar_int

#: What changed for the numbers: the first release with it, words, and the argument that makes it irrelevant when set.
CHANGES: Final = (
    ("0.8.0", "V1 is the default engine", None),
    ("0.11.0", "full and piecewise CUDA graphs are the default", "enforce_eager"),
    ("0.14.0", "asynchronous scheduling is the default", "async_scheduling"),
    ("0.20.0", "the utilization default is 0.92 instead of 0.9", "gpu_memory_utilization"),
    ("0.20.0", "CUDA graphs are counted in the budget", "enforce_eager"),
    ("0.28.0", "GPUs from 160 GiB get a token budget of 16,384 instead of 8,192", "max_num_batched_tokens"),
    ("0.28.0", "hybrid models cache prefixes by default", "enable_prefix_caching"),
)
#: Changes that only some servers see.
_ONLY: Final[Mapping[str, Callable[[Case], bool]]] = {
    "GPUs from 160 GiB get a token budget of 16,384 instead of 8,192": lambda case: (
        case.plan.gpu is None or (case.plan.gpu.memory_bytes or 0) >= 160 * 2**30
    ),
    "hybrid models cache prefixes by default": lambda case: case.geometry is None or case.geometry.is_hybrid,
}

_TUNED: Final = regex(
    r"(?:tuned|tested|measured|benchmarked|validated|sized|calibrated|verified|worked|works|fits|fine|ok|good|safe|set|from|since)\b"
    r"[^\n]{0,40}?\b(?:vllm[\s:=-]*)?v?(?P<version>0\.\d{1,2}\.\d{1,2}(?:\.post\d)?)\b",
    re.IGNORECASE,
)
#: A comment about both: values, and the release that they come from.
_VALUES: Final = regex(
    r"tuned|tested|measured|benchmarked|validated|sized|calibrated|verified|utili[sz]ation|kv.?cache"
    r"|max[-_ ]model[-_ ]len",
    re.IGNORECASE,
)
_BEFORE: Final = regex(
    r"(?:\bfrom|\bon|\bfor|\bwith|\bin|\bwas|\bat|\bold|\bprevious(?:ly)?|\bbefore)\s+(?:vllm[\s:=-]*)?v?"
    r"(?P<version>0\.\d{1,2}\.\d{1,2}(?:\.post\d)?)\b",
    re.IGNORECASE,
)


@record
class Drift:
    """``share`` of the pool that counts as a change."""

    share: float = 0.005


@check(
    "default-drift",
    params=Drift,
    values=("tuned_on", "release", "before", "after", "change", "share", "changes", "held", "said"),
)
def default_drift(case: Case, params: Drift) -> Iterator[Draft]:
    """Values that were tuned on an older release, and a pool that is another one on this."""
    from kvgate.engine.releases import compare_versions

    found = _tuned_on(case)
    if found is None:
        return
    tuned, place, said = found
    version = case.plan.version
    try:
        order = compare_versions(tuned, version)
    except ValueError:
        return
    if order == 0 or (order > 0 and said == "a comment"):
        return
    older, newer = (tuned, version) if order < 0 else (version, tuned)
    changes = [
        words
        for release, words, unless in CHANGES
        if compare_versions(older, release) < 0 <= compare_versions(newer, release)
        and (unless is None or case.argument(unless) in (None, False))
        and _ONLY.get(words, _always)(case)
    ]
    before, after = case.at_release(tuned).prediction, case.prediction
    pool_before, pool_after = available(before), available(after)
    values: dict[str, Any] = {
        "tuned_on": tuned,
        "release": case.release_words,
        "before": pool_before,
        "after": pool_after,
        "change": "",
        "share": "",
        "changes": f" ({'; '.join(changes)})" if changes else "",
        "held": "",
        "said": said,
    }
    if pool_before is not None and pool_after is not None and pool_before > 0:
        difference = pool_after - pool_before
        if abs(difference) < params.share * pool_before:
            return
        values["change"] = f"{gib(abs(difference))} {'smaller' if difference < 0 else 'larger'}"
        values["share"] = f"{abs(difference) / pool_before:.0%}"
        held, now = sustained_at(before, Bound.ESTIMATE), sustained_at(after, Bound.ESTIMATE)
        if held is not None and now is not None and held != now:
            values["held"] = f", {amount(now)} requests instead of {amount(held)}"
        yield Draft(at=place, values=values, rests_on=("gpu", "model", "vllm_version"))
        return
    if changes and any(dest in case.plan.values for dest in _TUNABLE):
        yield Draft(at=place, variant="unknown-pool", values=values, rests_on=("vllm_version",))


def _always(case: Case) -> bool:
    return True


_TUNABLE: Final = (
    "gpu_memory_utilization", "max_model_len", "max_num_seqs", "max_num_batched_tokens", "kv_cache_memory_bytes",
)  # fmt: skip


def _tuned_on(case: Case) -> tuple[str, str | Span, str] | None:
    """The release that values were tuned on: kvgate.yaml's ``tuned_on``, or a comment beside one of them."""
    from kvgate.ruleset.comments import comments_beside

    unit, config = case.unit, case.scene.config
    entry = None
    if config is not None:
        entry = config.unit(path=unit.path, container=unit.container, name=unit.name, kind=unit.kind, id=unit.id)
    at: str | Span = next((f"arg:{dest}" for dest in _TUNABLE if dest in case.plan.parsed.arguments), "image")
    if entry is not None and entry.tuned_on:
        return entry.tuned_on, "image" if unit.image is not None else at, "kvgate.yaml"
    for dest in _TUNABLE:
        argument = case.plan.parsed.arguments.get(dest)
        for comment in comments_beside(argument.span) if argument is not None else ():
            match = _TUNED.search(comment)
            if match is not None:
                return match["version"], f"arg:{dest}", "a comment"
    if unit.image is not None and isinstance(at, str) and at != "image":
        words = " ".join(comments_beside(unit.image.span))
        match = _BEFORE.search(words)
        if match is not None and _VALUES.search(words):
            return match["version"], at, "a comment"
    return None


@check("mean-workload", values=("what", "mean"))
def mean_workload(case: Case, params: NoParams) -> Iterator[Draft]:
    """A workload of averages."""
    declared = case.plan.workload_config
    if declared is None:
        return
    for name in ("prompt_tokens", "output_tokens"):
        count = getattr(declared, name)
        if count is not None and count.p95 is None and count.mean is not None:
            yield Draft(at=count.span, values={"what": name, "mean": count.mean})


# -- Helm --------------------------------------------------------------------------------------------------------------

_FLOAT: Final = regex(r"\d+(?:\.\d+)?[eE]\+\d+")
_LARGE: Final = 1_000_000
_USE: Final = regex(r"\{\{-?(?P<code>[^{}]*?\.Values\.(?P<path>[A-Za-z_][\w.]*)[^{}]*?)-?\}\}")
# Kubernetes reads 1e+12 as an amount of bytes.
_AMOUNT: Final = regex(r"(?m)^[ \t]*(?:storage|memory|sizeLimit|ephemeral-storage):[^\n]*\Z")
_WHOLE: Final = regex(r"\bint(?:64)?\b|\bprintf\s+\"%d\"|\btoYaml\b|\btoJson\b|\btoRawJson\b")


@check("helm-numbers", values=("value", "flag", "path", "file", "rendered"), scope="tree")
def helm_numbers(scene: Scene, params: NoParams) -> Iterator[Draft]:
    """Large numbers that Helm prints as floats."""
    told: set[tuple[str, int]] = set()
    for case in scene.cases:
        for argument in case.plan.parsed.arguments.values():
            text = argument.text.value if argument.text is not None else ""
            if _FLOAT.fullmatch(text.strip()) and argument.definition is not None and "int" in argument.definition.kind:
                told.add((argument.span.path, argument.span.line))
                yield Draft(
                    at=argument.span,
                    case=case,
                    values={
                        "value": text, "flag": f"--{argument.dest.replace('_', '-')}", "path": "", "file": "",
                        "rendered": f"{float(text):.0f}",
                    },
                )  # fmt: skip
    for file in scene.files.values():
        if posixpath.basename(file.path).startswith("values") and file.path.endswith((".yaml", ".yml")):
            drafts = _in_chart(scene, file)
            yield from (draft for draft in drafts if _line_of(draft) not in told)


def _line_of(draft: Draft) -> tuple[str, int] | None:
    return (draft.at.path, draft.at.line) if isinstance(draft.at, Span) else None


def _in_chart(scene: Scene, values: SourceFile) -> Iterator[Draft]:
    folder = posixpath.dirname(values.path)
    prefix = posixpath.join(folder, "templates") + "/"
    templates = [
        file
        for path, file in scene.files.items()
        if path.startswith(prefix) and "{{" in file.text and "vllm" in file.text.lower()
    ]
    if not templates:
        return
    for document in scene.tree.stream(values).documents:
        for path, node in _large_numbers(document, ""):
            for template in templates:
                match = next(
                    (
                        use
                        for use in _USE.finditer(template.text)
                        if use["path"] == path
                        and not _WHOLE.search(use["code"])
                        and not _AMOUNT.search(
                            template.text, template.text.rfind("\n", 0, use.start()) + 1, use.start()
                        )
                    ),
                    None,
                )
                if match is None:
                    continue
                yield Draft(
                    at=Span(template, match.start(), match.end()),
                    variant="values",
                    values={
                        "value": node.value,
                        "flag": "",
                        "path": path,
                        "file": f"{values.path}:{node.span.line}",
                        "rendered": _rendered(int(node.value)),
                    },
                    related=((node.span, "the number"),),
                )
                break


def _rendered(value: int) -> str:
    """A float64 as Go's ``%v`` prints it: 1000000 as ``1e+06``."""
    text = f"{float(value):e}"
    mantissa, _, exponent = text.partition("e")
    digits = repr(float(value)).rstrip("0").rstrip(".").replace(".", "").rstrip("0")
    mantissa = digits[0] + (f".{digits[1:]}" if len(digits) > 1 else "")
    return f"{mantissa}e{exponent}"


def _large_numbers(node: Node, path: str) -> Iterator[tuple[str, Scalar]]:
    if isinstance(node, YamlMapping):
        for entry in node.items():
            yield from _large_numbers(entry.value, f"{path}.{entry.key.value}" if path else entry.key.value)
    elif isinstance(node, Scalar) and node.plain and re.fullmatch(r"\d+", node.value):
        number = scalar_int(node)
        if number is not None and number >= _LARGE:
            yield path, node
