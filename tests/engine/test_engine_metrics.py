"""Names of vLLM's metrics: found as queries write them, and judged by the release."""

from __future__ import annotations

import pytest

from kvgate.engine.metrics import find_metric
from kvgate.engine.releases import newest_release
from kvgate.tables import load_table


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("vllm:kv_cache_usage_perc", "kv_cache_usage_perc"),
        ("kv_cache_usage_perc", "kv_cache_usage_perc"),
        ("vllm:num_preemptions_total", "num_preemptions"),
        ("vllm:time_per_output_token_seconds_bucket", "time_per_output_token_seconds"),
        ("vllm:inter_token_latency_seconds_sum", "inter_token_latency_seconds"),
    ],
)
def test_a_metric_is_found_with_prefix_and_suffix(written: str, name: str) -> None:
    metric = find_metric(written)
    assert metric is not None
    assert metric.name == name


def test_what_vllm_does_not_have_is_none() -> None:
    assert find_metric("vllm:my_own_requests") is None
    assert find_metric("") is None


@pytest.mark.parametrize(
    ("name", "version", "standing"),
    [
        # deprecated in 0.9.2, hidden in 0.11.0, gone in 0.12.0
        ("gpu_cache_usage_perc", "0.8.5", "current"),
        ("gpu_cache_usage_perc", "0.10.2", "current"),
        ("gpu_cache_usage_perc", "0.11.0", "hidden"),
        ("gpu_cache_usage_perc", "0.12.0", "removed"),
        ("kv_cache_usage_perc", "0.9.1", "later"),
        ("kv_cache_usage_perc", "0.9.2", "current"),
        # V1 swaps nothing
        ("num_requests_swapped", "0.7.3", "current"),
        ("num_requests_swapped", "0.8.0", "hidden"),
        ("num_requests_swapped", "0.10.0", "removed"),
        ("num_requests_waiting", "0.4.2", "current"),
    ],
)
def test_standing(name: str, version: str, standing: str) -> None:
    metric = find_metric(name)
    assert metric is not None
    assert metric.standing(version) == standing


def test_gauges_between_0_and_1_are_marked() -> None:
    usage, waiting = find_metric("kv_cache_usage_perc"), find_metric("num_requests_waiting")
    assert usage is not None
    assert waiting is not None
    assert usage.share
    assert not waiting.share


def test_no_release_and_releases_to_come_have_what_the_newest_has() -> None:
    metric = find_metric("kv_cache_usage_perc")
    assert metric is not None
    assert metric.last == newest_release()
    assert metric.standing(None) == "current"
    assert metric.standing("1.99.0") == "current"


def test_what_the_table_advises_is_there_when_the_old_name_goes() -> None:
    advised = 0
    for name in load_table("engine/metrics")["metrics"]:
        metric = find_metric(name)
        assert metric is not None
        if metric.instead is None:
            continue
        other = find_metric(metric.instead.split()[0])  # "(rate)" and the like may follow
        assert other is not None, f"{name}: {metric.instead}"
        assert other.standing(newest_release()) == "current", name
        advised += 1
    assert advised > 3
