"""``/metrics`` under old and new names."""

import pytest

from kvgate.engine.exposition import MetricsError, read_metrics

NEW = """# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 4.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="m"} 15.0
# TYPE vllm:num_requests_waiting_by_reason gauge
vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="capacity"} 15.0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.9375
# TYPE vllm:prefix_cache_queries counter
vllm:prefix_cache_queries_total{engine="0",model_name="m"} 1000.0
vllm:prefix_cache_queries_created{engine="0",model_name="m"} 1.79e+09
# TYPE vllm:prefix_cache_hits counter
vllm:prefix_cache_hits_total{engine="0",model_name="m"} 250.0
# TYPE vllm:external_prefix_cache_hits counter
vllm:external_prefix_cache_hits_total{engine="0",model_name="m"} 7.0
# TYPE vllm:num_preemptions counter
vllm:num_preemptions_total{engine="0",model_name="m"} 3.0
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{block_size="32",engine="0",num_gpu_blocks="1280",num_cpu_blocks="None"} 1.0
"""

OLD = """# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{model_name="m"} 4.0
# TYPE vllm:num_requests_swapped gauge
vllm:num_requests_swapped{model_name="m"} 1.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{model_name="m"} 15.0
# TYPE vllm:gpu_cache_usage_perc gauge
vllm:gpu_cache_usage_perc{model_name="m"} 0.5
# TYPE vllm:cpu_cache_usage_perc gauge
vllm:cpu_cache_usage_perc{model_name="m"} 0.0
# TYPE vllm:gpu_prefix_cache_hit_rate gauge
vllm:gpu_prefix_cache_hit_rate{model_name="m"} 0.25
# TYPE vllm:num_preemptions_total counter
vllm:num_preemptions_total{model_name="m"} 3.0
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{block_size="16",num_gpu_blocks="2060"} 1.0
"""


def test_new_names() -> None:
    seen = read_metrics(NEW)
    assert (seen.running, seen.waiting, seen.queued, seen.usage, seen.preemptions) == (4, 15, 15, 0.9375, 3)
    assert (seen.prefix_queries, seen.prefix_hits, seen.hit_rate, seen.swapped) == (1000, 250, None, None)
    assert (seen.model, seen.engines, seen.cache_number("num_gpu_blocks")) == ("m", 1, 1280)
    assert seen.cache_number("num_cpu_blocks", "block_size") == 32


def test_old_names() -> None:
    seen = read_metrics(OLD)
    assert (seen.running, seen.swapped, seen.queued, seen.usage, seen.preemptions) == (4, 1, 16, 0.5, 3)
    assert (seen.prefix_queries, seen.hit_rate) == (None, 0.25)
    assert seen.cache_number("num_gpu_blocks") == 2060


def test_names_between_old_and_new() -> None:
    seen = read_metrics(
        "# TYPE vllm:gpu_prefix_cache_hits counter\nvllm:gpu_prefix_cache_hits 5.0\n"
        "# TYPE vllm:gpu_prefix_cache_queries counter\nvllm:gpu_prefix_cache_queries 20.0\n"
    )
    assert (seen.prefix_hits, seen.prefix_queries) == (5, 20)


def test_data_parallel_engines_are_summed_and_shares_averaged() -> None:
    second = NEW.replace('engine="0"', 'engine="1"').replace("1280", "1200").replace("0.9375", "0.0625")
    seen = read_metrics(NEW + second)
    assert (seen.engines, seen.running, seen.waiting, seen.preemptions, seen.usage) == (2, 8, 30, 6, 0.5)
    assert seen.cache_number("num_gpu_blocks") == 1200


def test_what_is_not_there_is_none() -> None:
    seen = read_metrics("# TYPE other gauge\nother 1\n")
    assert seen.running is None
    assert seen.queued is None
    assert seen.cache_number("num_gpu_blocks") is None


def test_no_exposition() -> None:
    with pytest.raises(MetricsError):
        read_metrics('<html lang="en">404 {')
