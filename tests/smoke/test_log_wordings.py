# ruff: noqa: E501 - log lines are as long as they are
"""Every figure of the public logs is read back from lines in the wording of its release.

The writer below follows the releases' own format strings, not the patterns of the reader. ``data/log_figures.jsonl``
holds the figures of 169 public start-ups (GiB, tokens, blocks).
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

from kvgate.engine.logs import GIB, ServerLog, read_log
from kvgate.engine.releases import releases
from kvgate.engine.wordings import WORDINGS

FIGURES = Path(__file__).parent / "data" / "log_figures.jsonl"
ROWS = [json.loads(line) for line in FIGURES.read_text(encoding="utf-8").splitlines()]
ENGINES = [
    (release, engine)
    for release in releases()
    for engine, first, last in (("V0", "0.4.2", "0.10.2"), ("V1", "0.7.0", "0.33.0"))
    if Version(first) <= Version(release) <= Version(last)
]


def line_writer(release: str) -> Callable[[str, str], list[str]]:
    """Lines as that release's logger formats them: every line of a message gets the header."""
    version = Version(release)

    def write(process: str, message: str) -> list[str]:
        if version < Version("0.11.1"):
            header = (
                "INFO 11-05 10:11:12 worker.py:1] " if version < Version("0.8") else "INFO 11-05 10:11:12 [x.py:1] "
            )
        else:
            header = "INFO 11-05 10:11:12 [x.py:1] "
        prefix = f"({process} pid=77) " if process else ""
        return [prefix + header + line for line in message.split("\n")]

    return write


def start_up(release: str, engine: str, figures: dict[str, Any]) -> tuple[list[str], set[str]]:
    """What a release prints of these figures, and the names of those that it prints."""
    at = Version(release)
    write = line_writer(release)
    lines: list[str] = []
    told: set[str] = set()
    v0 = engine == "V0" or at < Version("0.7")
    worker = "" if at < Version("0.10.2") else "Worker_TP0" if at >= Version("0.11") else "EngineCore_0"

    def since(first: str, before: str = "99") -> bool:
        return Version(first) <= at < Version(before)

    def has(*names: str) -> bool:
        return all(name in figures for name in names)

    def tell(message: str, *names: str) -> None:
        lines.extend(write(worker, message))
        told.update(names)

    gib = {name: value for name, value in figures.items() if name.endswith("_gib")}
    if has("weights_gib"):
        weights = gib["weights_gib"]
        if since("0.4", "0.8"):
            tell(f"Loading model weights took {weights:.4f} GB", "weights_gib")
        elif since("0.8", "0.8.3"):
            tell(f"Model loading took {weights:.4f} GB and {9.87:.6f} seconds", "weights_gib")
        elif since("0.8.3", "0.11.1"):
            tell(f"Model loading took {weights:.4f} GiB and {9.87:.6f} seconds", "weights_gib")
        elif since("0.11.1", "0.14"):
            tell(f"Model loading took {weights:.4f} GiB memory and {9.87:.6f} seconds", "weights_gib")
        else:
            tell(f"Model loading took {weights:.2f} GiB memory and {9.87:.6f} seconds", "weights_gib")
    profile = ("total_gpu_memory_gib", "weights_gib", "peak_activation_gib", "non_torch_gib", "available_kv_gib")
    if v0 and since("0.6.4", "0.6.5") and has(*profile):
        total, weights, activation, other, kept = (gib[name] for name in profile)
        tell(
            f"Memory profiling results: total_gpu_memory={total:.2f}GiB initial_memory_usage={0.5:.2f}GiB "
            f"peak_torch_memory={weights + activation:.2f}GiB memory_usage_post_profile={weights:.2f}GiB "
            f"non_torch_memory={other:.2f}GiB kv_cache_size={kept:.2f}GiB gpu_memory_utilization={0.9:.2f}",
            *profile,
        )
    elif v0 and since("0.6.5", "0.11") and has(*profile):
        total, weights, activation, other, kept = (gib[name] for name in profile)
        tell(
            f"Memory profiling takes {3.21:.2f} seconds\n"
            f"the current vLLM instance can use total_gpu_memory ({total:.2f}GiB) x gpu_memory_utilization (0.90) = "
            f"{0.9 * total:.2f}GiB\nmodel weights take {weights:.2f}GiB; non_torch_memory takes {other:.2f}GiB; "
            f"PyTorch activation peak memory takes {activation:.2f}GiB; the rest of the memory reserved for KV Cache is "
            f"{kept:.2f}GiB.",
            *profile,
        )
    elif not v0 and since("0.9.1") and has("available_kv_gib"):
        tell(f"Available KV cache memory: {gib['available_kv_gib']:.2f} GiB", "available_kv_gib")
    usage = ("total_gpu_memory_gib", "weights_gib", "peak_activation_gib", "cudagraph_gib")
    if not v0 and since("0.10.2") and has(*usage):
        total, weights, activation, graphs = (gib[name] for name in usage)
        # round(x, 2) before 0.14, "%.2f" from there on
        show = (lambda value: f"{round(value, 2)}") if at < Version("0.14") else (lambda value: f"{value:.2f}")
        free = gib.get("free_gpu_memory_at_start_gib", total - 0.5)
        head = (
            f"Free memory on device ({show(free)}/{show(total)} GiB) on startup. Desired GPU memory utilization is "
            f"(0.9, {show(0.9 * total)} GiB). Actual usage is "
        )
        other_name = "non_torch_gib" if since("0.10.2", "0.27") else "consumed_weights_plus_non_torch_gib"
        if other_name in gib:
            other = gib[other_name]
            if since("0.10.2", "0.27"):
                body = (
                    f"{show(weights)} GiB for weight, {show(activation)} GiB for peak activation, {show(other)} GiB for "
                    f"non-torch memory, and {show(graphs)} GiB for CUDAGraph memory."
                )
            else:
                body = (
                    f"{show(other)} GiB for consumed memory (weights + non-torch), {show(activation)} GiB for peak "
                    f"activation, and {show(graphs)} GiB for CUDAGraph memory."
                )
            tell(
                head + body + " Replace gpu_memory_utilization config with `--kv-cache-memory=1073741824` (1.0 GiB) to "
                "fit into requested memory, or `--kv-cache-memory=2147483648` (2.0 GiB) to fully utilize gpu memory. "
                "Current kv cache memory in use is 3.0 GiB.",
                *usage,
                other_name,
                *(["free_gpu_memory_at_start_gib"] if "free_gpu_memory_at_start_gib" in gib else []),
            )
    if since("0.18") and has("cudagraph_estimated_gib"):
        tell(f"Estimated CUDA graph memory: {gib['cudagraph_estimated_gib']:.2f} GiB total", "cudagraph_estimated_gib")
    if since("0.6.4") and has("cudagraph_gib"):
        tell(f"Graph capturing finished in {21.4:.0f} secs, took {gib['cudagraph_gib']:.2f} GiB", "cudagraph_gib")
    if has("num_gpu_blocks"):
        blocks = figures["num_gpu_blocks"]
        if v0:
            label = "GPU" if since("0.4", "0.7") else "CUDA" if since("0.7", "0.7.3") else "cuda"
            tell(f"# {label} blocks: {blocks}, # CPU blocks: 512", "num_gpu_blocks")
        elif since("0.7", "0.8"):
            tell(f"# GPU blocks: {blocks}", "num_gpu_blocks")
        elif since("0.9"):
            engine_words = (
                "" if since("0.9", "0.9.1") else "Engine 000: " if since("0.9.1", "0.11.1") else "1 Engines: "
            )
            tell(
                f"{engine_words}vllm cache_config_info with initialization after num_gpu_blocks is: {blocks}",
                "num_gpu_blocks",
            )
    length = figures.get("max_concurrency_at_len")
    concurrency = ("max_concurrency", "max_concurrency_at_len")
    if not v0 and since("0.28") and has("kv_cache_tokens", *concurrency):
        tell(
            f"GPU KV cache size: {figures['kv_cache_tokens']:,} tokens, Maximum concurrency for {length:,} tokens per "
            f"request: {figures['max_concurrency']:.2f}x",
            "kv_cache_tokens",
            *concurrency,
        )
    else:
        if not v0 and since("0.8", "0.28") and has("kv_cache_tokens"):
            tell(f"GPU KV cache size: {figures['kv_cache_tokens']:,} tokens", "kv_cache_tokens")
        if since("0.6.3", "0.28") and has(*concurrency):
            shown = f"{length:,}" if not v0 and since("0.8") else f"{length}"
            tell(f"Maximum concurrency for {shown} tokens per request: {figures['max_concurrency']:.2f}x", *concurrency)
    if not v0 and figures.get("startup_failed") and has("needed_kv_gib", "available_kv_gib"):
        refuse(at, gib, figures, tell)
    return lines, told


def refuse(at: Version, gib: dict[str, float], figures: dict[str, Any], tell: Callable[..., None]) -> None:
    unit = "GB" if at < Version("0.8.3") else "GiB"
    whose = "models's" if at < Version("0.22") else "model's"
    estimate = ""
    names = ["needed_kv_gib", "available_kv_gib"]
    if at >= Version("0.8.4") and "estimated_max_len" in figures:
        estimate = (
            f" Based on the available memory, the estimated maximum model length is {figures['estimated_max_len']}."
        )
        names.append("estimated_max_len")
    tell(
        f"ValueError: To serve at least one request with the {whose} max seq len (131072), "
        f"({gib['needed_kv_gib']:.2f} {unit} KV cache is needed, which is larger than the available KV cache memory "
        f"({gib['available_kv_gib']:.2f} {unit}).{estimate} Try increasing `gpu_memory_utilization` or decreasing "
        "`max_model_len` when initializing the engine.",
        *names,
    )


NAMES = {
    "total_gpu_memory_gib": "total",
    "weights_gib": "weights",
    "peak_activation_gib": "activation_peak",
    "non_torch_gib": "non_torch",
    "consumed_weights_plus_non_torch_gib": "consumed",
    "cudagraph_gib": "cuda_graphs",
    "cudagraph_estimated_gib": "cuda_graphs_estimated",
    "available_kv_gib": "kv_cache_available",
    "free_gpu_memory_at_start_gib": "free_at_start",
    "kv_cache_tokens": "size_tokens",
    "num_gpu_blocks": "num_gpu_blocks",
    "max_concurrency": "max_concurrency",
    "max_concurrency_at_len": "max_model_len",
}


def read_back(log: ServerLog, name: str, failed: bool) -> float:
    if name in ("needed_kv_gib", "available_kv_gib", "estimated_max_len") and failed and log.cause is not None:
        cause = log.cause
        value = {
            "needed_kv_gib": cause.needed,
            "available_kv_gib": cause.available,
            "estimated_max_len": cause.estimated_max_model_len,
        }[name]
        assert value is not None
        return value / GIB if name.endswith("_gib") else value
    reading = log.figure(NAMES[name])
    assert reading is not None, name
    return reading.value / GIB if name.endswith("_gib") else reading.value


def releases_of(row: dict[str, Any]) -> list[str]:
    """The row's own release, or, where the log did not say, those of its engine that print the most of it."""
    if row["release"] is not None:
        own = [release for release in releases() if Version(release) <= Version(row["release"])]
        return [own[-1] if own else releases()[0]]
    last = {"V0": "0.10.2", "V1": "0.33.0"}[row["engine"]]
    first = {"V0": "0.4.2", "V1": "0.8.0"}[row["engine"]]
    spans = [release for release in releases() if Version(first) <= Version(release) <= Version(last)]
    most = max(len(start_up(release, row["engine"], row["measured"])[1]) for release in spans)
    fitting = [release for release in spans if len(start_up(release, row["engine"], row["measured"])[1]) == most]
    return sorted({fitting[0], fitting[len(fitting) // 2], fitting[-1]}, key=Version)


def check_row(row: dict[str, Any], release: str) -> set[str]:
    measured = row["measured"]
    lines, told = start_up(release, row["engine"], measured)
    log = read_log("\n".join(lines))
    for name in told:
        value = read_back(log, name, bool(measured.get("startup_failed")))
        # 0.6.4 prints weights and activations as one sum of two rounded figures
        near = 0.011 if name.endswith("_gib") else 0.006 if name == "max_concurrency" else 0.0
        assert value == pytest.approx(measured[name], abs=near), (release, name, lines)
    return told


@pytest.mark.parametrize("row", ROWS, ids=[row["id"] for row in ROWS])
def test_the_figures_of_a_public_log_are_read_back(row: dict[str, Any]) -> None:
    for release in releases_of(row):
        check_row(row, release)


def test_nearly_all_figures_are_printed_by_their_release() -> None:
    """The writer above leaves out what a release does not print; it must not leave out what it does."""
    told = sum(len(start_up(releases_of(row)[-1], row["engine"], row["measured"])[1]) for row in ROWS)
    known = sum(name in (*NAMES, "needed_kv_gib", "estimated_max_len") for row in ROWS for name in row["measured"])
    assert known == 912
    assert told >= 880


@pytest.mark.parametrize(("release", "engine"), ENGINES)
def test_every_release_and_engine(release: str, engine: str) -> None:
    figures = {
        "total_gpu_memory_gib": 79.15, "weights_gib": 14.99, "peak_activation_gib": 5.3, "non_torch_gib": 0.14,
        "consumed_weights_plus_non_torch_gib": 15.13, "cudagraph_gib": 0.6, "cudagraph_estimated_gib": 0.72,
        "available_kv_gib": 50.82, "free_gpu_memory_at_start_gib": 78.5, "kv_cache_tokens": 416304,
        "num_gpu_blocks": 26019, "max_concurrency": 3.18, "max_concurrency_at_len": 131072,
    }  # fmt: skip
    row = {"engine": engine, "measured": figures}
    told = check_row(row, release)
    assert {"weights_gib", "num_gpu_blocks"} & told
    if Version(release) >= Version("0.9.1"):
        assert {"available_kv_gib", "max_concurrency"} <= told


@pytest.mark.parametrize("release", [release for release in releases() if Version(release) >= Version("0.7.0")])
def test_refusals_of_every_release(release: str) -> None:
    figures = {"startup_failed": True, "needed_kv_gib": 16.0, "available_kv_gib": 3.97, "estimated_max_len": 32560}
    lines, told = start_up(release, "V1", figures)
    cause = read_log("\n".join(lines)).cause
    assert cause is not None
    assert cause.kind == "kv-cache-too-small"
    assert (cause.needed, cause.available) == (16 * GIB, round(3.97 * GIB))
    assert cause.max_model_len == 131072
    assert cause.estimated_max_model_len == (32560 if "estimated_max_len" in told else None)


def test_every_wording_is_read_by_some_release_above() -> None:
    """A wording that no test writes could be wrong without anyone noticing."""
    figures = {
        "total_gpu_memory_gib": 79.15, "weights_gib": 14.99, "peak_activation_gib": 5.3, "non_torch_gib": 0.14,
        "consumed_weights_plus_non_torch_gib": 15.13, "cudagraph_gib": 0.6, "cudagraph_estimated_gib": 0.72,
        "available_kv_gib": 50.82, "kv_cache_tokens": 416304, "num_gpu_blocks": 26019, "max_concurrency": 3.18,
        "max_concurrency_at_len": 131072,
    }  # fmt: skip
    text = "\n".join(line for release, engine in ENGINES for line in start_up(release, engine, figures)[0])
    unread = [w.pattern.pattern for w in WORDINGS if not any(w.pattern.search(line) for line in text.split("\n"))]
    # those have a test of their own in test_log_lines.py
    own = ("Initial free memory", "Explicitly set", "Auto set", "CUDA graph pool", "Overriding", "Multiplying", "Setting",
           "kv cache block size", "Chunked prefill", "Auto-fit")  # fmt: skip
    assert all(any(word in pattern for word in own) for pattern in unread), unread


@pytest.mark.parametrize("wording", WORDINGS, ids=[w.pattern.pattern[:40] for w in WORDINGS])
def test_releases_of_a_wording_are_read_releases(wording: Any) -> None:
    assert wording.first in releases()
    assert wording.last is None or wording.last in releases()
