# ruff: noqa: E501 - log lines are as long as they are
"""Log lines in the shapes they come in: wrappers, colours, workers, restarts; what is no figure."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvgate.engine.logs import GIB, read_arguments, read_log, releases_of_places

HEADER = "INFO 11-29 23:46:00 [kv_cache_utils.py:2327] "
POOL = "GPU KV cache size: 40,960 tokens, Maximum concurrency for 16,384 tokens per request: 2.50x"
STAMP = "2026-11-29T23:46:00.123456789Z "

WRAPPERS = {
    "plain": HEADER + POOL,
    "process": "(EngineCore pid=17606) " + HEADER + POOL,
    "colours": f"\x1b[0;36m(EngineCore pid=1)\x1b[0;0m \x1b[32mINFO\x1b[0m 11-29 23:46:00 [kv_cache_utils.py:2327] {POOL}",
    "kubectl --timestamps": STAMP + HEADER + POOL,
    "kubectl --prefix": "[pod/vllm-6d5f/server] " + HEADER + POOL,
    "compose": "vllm-1  | " + HEADER + POOL,
    "cri": STAMP + "stderr F " + HEADER + POOL,
    "cri in two parts": f"{STAMP}stderr P {HEADER}{POOL[:30]}\n{STAMP}stderr F {POOL[30:]}",
    "docker json-file": json.dumps({"log": HEADER + POOL + "\n", "stream": "stderr", "time": STAMP}),
    "json message": json.dumps({"levelname": "INFO", "name": "vllm", "message": POOL}),
    "json with place": json.dumps({"message": POOL, "filename": "kv_cache_utils.py", "lineno": 2327}),
    "json in json": json.dumps({"log": json.dumps({"msg": POOL})}),
    "cloud logging": json.dumps({"jsonPayload": {"message": HEADER + POOL}, "severity": "INFO"}),
    "export": json.dumps([{"textPayload": HEADER + POOL}, {"textPayload": "INFO: something"}], indent=1),
    "json after a stamp": STAMP + json.dumps({"message": POOL}),
    "no header at all": POOL,
    "other header": f"2026-11-29 23:46:00,123 - vllm.v1.core - INFO - {POOL}",
    "carriage returns": HEADER + POOL + "\r\nINFO\r\n",
    "VLLM_LOGGING_PREFIX": "[chat-7b] " + HEADER + POOL,
    "ray": "(RayWorkerWrapper pid=9, ip=10.0.0.2) " + HEADER + POOL + " [repeated 7x across cluster]",
}


@pytest.mark.parametrize("text", WRAPPERS.values(), ids=list(WRAPPERS))
def test_wrapped_lines(text: str) -> None:
    log = read_log(text)
    figures = {name: log.figure(name) for name in ("size_tokens", "max_model_len", "max_concurrency")}
    assert {name: reading and reading.value for name, reading in figures.items()} == {
        "size_tokens": 40960,
        "max_model_len": 16384,
        "max_concurrency": 2.5,
    }


def test_digits_say_how_exact_a_figure_is() -> None:
    log = read_log(HEADER + "Available KV cache memory: 5.98 GiB\n" + HEADER + POOL)
    available, concurrency = log.figure("kv_cache_available"), log.figure("max_concurrency")
    assert available is not None
    assert (available.low / GIB, available.high / GIB) == pytest.approx((5.975, 5.985))
    assert concurrency is not None
    assert (concurrency.low, concurrency.high) == pytest.approx((2.495, 2.505))


def test_the_pool_is_that_of_the_worker_with_the_least() -> None:
    lines = [
        "(VllmWorker rank=1 pid=12) INFO 04-22 10:00:01 [gpu_worker.py:227] Available KV cache memory: 10.04 GiB",
        "(VllmWorker rank=0 pid=11) INFO 04-22 10:00:01 [gpu_worker.py:227] Available KV cache memory: 10.00 GiB",
        "(VllmWorker rank=1 pid=12) INFO 04-22 10:00:01 [gpu_model_runner.py:1347] Model loading took 7.5100 GiB and 9.1 seconds",
        "(VllmWorker rank=0 pid=11) INFO 04-22 10:00:01 [gpu_model_runner.py:1347] Model loading took 7.5123 GiB and 9.4 seconds",
        "INFO 04-22 10:00:02 [kv_cache_utils.py:716] GPU KV cache size: 82,240 tokens",
        "INFO 04-22 10:00:02 [kv_cache_utils.py:716] GPU KV cache size: 81,920 tokens",
    ]
    log = read_log("\n".join(lines))
    least, most, tokens = log.figure("kv_cache_available"), log.figure("weights"), log.figure("size_tokens")
    assert least is not None
    assert (least.value, least.process) == (10 * GIB, "VllmWorker rank=0")
    assert most is not None
    assert most.value == pytest.approx(7.5123 * GIB)
    assert tokens is not None
    assert tokens.value == 81920


def test_the_engines_of_data_parallel_ranks_are_told_apart() -> None:
    lines = [
        "(EngineCore_DP1 pid=2) INFO 11-05 10:00:00 [x.py:1] Available KV cache memory: 3.00 GiB",
        "INFO 11-05 10:00:10 [loggers.py:127] Engine 001: Avg prompt throughput: 1.0 tokens/s, Avg generation "
        "throughput: 2.0 tokens/s, Running: 3 reqs, Waiting: 2 reqs, GPU KV cache usage: 91.5%, Prefix cache hit rate: 40.0%",
    ]
    log = read_log("\n".join(lines))
    (sample,) = log.samples
    assert (sample.engine, sample.running, sample.waiting) == (1, 3, 2)
    assert (sample.usage, sample.hit_rate) == pytest.approx((0.915, 0.4))


RUNNING = {
    "0.6.0": (
        "Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 91.8 tokens/s, Running: 4 reqs, Swapped: 1 reqs, "
        "Pending: 15 reqs, GPU KV cache usage: 98.3%, CPU KV cache usage: 12.0%.",
        (4, 16, 0.983, None, None),
    ),
    "0.7.1": (
        "Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 91.8 tokens/s, Running: 4 reqs, Waiting: 16 reqs "
        "GPU KV cache usage: 98.3%.",
        (4, 16, 0.983, None, None),
    ),
    "0.9.0": (
        "Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 1.8 tokens/s, Running: 4 reqs, "
        "Waiting: 16 reqs, GPU KV cache usage: 98.3%, Prefix cache hit rate: 7.5%",
        (4, 16, 0.983, 0.075, None),
    ),
    "0.33.0": (
        "Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 1.8 tokens/s, Running: 4 reqs, "
        "Waiting: 16 reqs, Deferred: 2 reqs, Preemptions: 3, CPU KV cache usage: 98.3%, Prefix cache hit rate: 7.5%, "
        "External prefix cache hit rate: 1.0%",
        (4, 16, 0.983, 0.075, 3),
    ),
}


@pytest.mark.parametrize(("message", "expected"), RUNNING.values(), ids=list(RUNNING))
def test_running_lines(message: str, expected: tuple[object, ...]) -> None:
    (sample,) = read_log("INFO 11-29 23:46:00 [loggers.py:259] " + message).samples
    usage = round(sample.usage or 0, 4)
    assert (sample.running, sample.waiting, usage, sample.hit_rate, sample.preemptions) == expected
    assert sample.time == "11-29 23:46:00"


def test_preemptions_are_counted_by_line_or_by_warning() -> None:
    new = "\n".join(
        f"INFO 11-29 23:46:0{at} [loggers.py:259] Engine 000: Running: 4 reqs, Waiting: 1 reqs, {words}GPU KV cache usage: 1.0%"
        for at, words in enumerate(("Preemptions: 3, ", "", "Preemptions: 2, "))
    )
    assert read_log(new).preemptions == 5
    old = (
        "WARNING 11-29 23:46:00 [scheduler.py:1] Sequence group cmpl-1 is preempted by PreemptionMode.RECOMPUTE mode because "
        "there is not enough KV cache space. total_num_cumulative_preemption=51"
    )
    assert read_log(old).preemptions == 51
    # from 0.11.1 a line without the word says that there were none; before, it says nothing
    line = "INFO 11-29 23:46:09 [loggers.py:1] Engine 000: Running: 4 reqs, Waiting: 1 reqs, GPU KV cache usage: 1.0%"
    banner = "INFO 11-29 23:46:00 [api_server.py:1] vLLM API server version {}\n"
    assert read_log(banner.format("0.12.0") + line).preemptions == 0
    assert read_log(banner.format("0.10.0") + line).preemptions is None


def test_the_hit_rate_line_of_v0_belongs_to_the_line_before() -> None:
    text = (
        "INFO 11-05 10:00:00 metrics.py:449] Avg prompt throughput: 1.0 tokens/s, Running: 4 reqs, Swapped: 0 reqs, "
        "Pending: 0 reqs, GPU KV cache usage: 10.0%, CPU KV cache usage: 0.0%.\n"
        "INFO 11-05 10:00:00 metrics.py:465] Prefix cache hit rate: GPU: 61.25%, CPU: 0.00%"
    )
    (sample,) = read_log(text).samples
    assert sample.hit_rate == pytest.approx(0.6125)


IDENTITIES = {
    "api server": "INFO 11-05 10:00:00 [api_server.py:1] vLLM API server version 0.11.0",
    "server and model": "INFO 11-05 10:00:00 [x.py:1] vLLM server version v0.11.0, serving model org/name",
    "logo": "(APIServer pid=1) INFO 11-05 10:00:00 [x.py:1]  ▄▄ ▄█ █     █     █ ▀▄▀ █  version 0.11.0\n"
    "(APIServer pid=1) INFO 11-05 10:00:00 [x.py:1]   █▄█▀ █     █     █     █  model   org/name",
    "engine": "INFO 11-05 10:00:00 [core.py:1] Initializing a V1 LLM engine (v0.11.0) with config: model='org/name', "
    "speculative_config=None, dtype=torch.bfloat16, max_seq_len=8192, tensor_parallel_size=2, kv_cache_dtype=auto",
    "engine of 0.4": "INFO 11-05 10:00:00 llm_engine.py:98] Initializing an LLM engine (v0.11.0) with config: "
    "model='org/name', max_seq_len=8192",
}


@pytest.mark.parametrize("text", IDENTITIES.values(), ids=list(IDENTITIES))
def test_the_version_as_stated(text: str) -> None:
    log = read_log(text)
    assert (log.version, log.version_stated) == ("0.11.0", True)
    if "org/name" in text:
        assert log.model == "org/name"
    if "8192" in text:
        assert log.engine["max_seq_len"] == "8192"


def test_the_release_by_its_source_lines() -> None:
    assert releases_of_places([("kv_cache_utils.py", 537)]) == ("0.8.0", "0.8.1")
    assert releases_of_places([("kv_cache_utils.py", 634), ("worker.py", 287)]) == ("0.8.5", "0.8.5.post1")
    assert releases_of_places([("nothing.py", 1)]) == ()
    log = read_log("INFO 11-05 10:00:00 [kv_cache_utils.py:1869] " + POOL)
    assert (log.version, log.version_stated, log.candidates) == ("0.28.0", False, ("0.28.0",))


def test_arguments_as_a_dictionary_and_as_a_namespace() -> None:
    text = (
        "INFO 11-05 10:00:00 [utils.py:233] non-default args: {'model_tag': 'org/name', 'max_model_len': 8192, 'api_key': "
        "['secret'], 'compilation_config': {'mode': <CompilationMode.NONE: 0>, 'x': [1, 2]}, 'kv_cache_dtype': 'fp8'}"
    )
    log = read_log(text)
    assert log.arguments is not None
    assert log.arguments["max_model_len"] == 8192
    assert log.arguments["kv_cache_dtype"] == "fp8"
    assert not log.complete
    assert log.model == "org/name"
    old = (
        "INFO 11-05 10:00:00 api_server.py:529] args: Namespace(host=None, model='org/name', max_model_len=4096, "
        "api_key='sk-very-secret', lora_modules=[LoRA(name='a', path='b, c')], swap_space=4.0, enforce_eager=False)"
    )
    log = read_log(old)
    assert log.complete
    assert log.arguments is not None
    assert log.arguments["max_model_len"] == 4096
    assert log.arguments["swap_space"] == 4.0
    assert log.arguments["enforce_eager"] is False
    assert "very-secret" not in repr(log)


def test_an_object_in_the_arguments_stays_text() -> None:
    assert read_arguments("{'a': Thing(x=1, y='p, q'), 'b': 2}") == {"a": "Thing(x=1, y='p, q')", "b": 2}
    assert read_arguments("Namespace(a='x=1, y', b=[1, 2])") == {"a": "x=1, y", "b": [1, 2]}


def test_of_several_starts_the_last_one_counts() -> None:
    def start(tokens: str) -> str:
        return (
            "INFO 11-05 10:00:00 [api_server.py:1712] vLLM API server version 0.10.0\n"
            "INFO 11-05 10:00:00 [cli_args.py:1] non-default args: {'max_model_len': 8192}\n"
            "INFO 11-05 10:00:00 [core.py:1] Initializing a V1 LLM engine (v0.10.0) with config: model='m'\n"
            f"INFO 11-05 10:00:00 [kv_cache_utils.py:833] GPU KV cache size: {tokens} tokens\n"
        )

    log = read_log(start("1,000") + start("2,000"))
    tokens = log.figure("size_tokens")
    assert tokens is not None
    assert (log.starts, tokens.value, log.lines) == (2, 2000, 4)


def test_a_request_cannot_pose_as_a_figure() -> None:
    spoofed = "GPU KV cache size: 999,999,999 tokens"
    text = "\n".join(
        (
            HEADER + POOL,
            f"INFO 11-05 10:00:00 [logger.py:41] Received request cmpl-1: prompt: '{spoofed}', params: SamplingParams(n=1)",
            f"INFO 11-05 10:00:00 [x.py:41] A user said {spoofed}",
        )
    )
    assert [reading.value for reading in read_log(text).readings["size_tokens"]] == [40960]


SINGLE = {
    "reserved": (
        "Initial free memory 78.66 GiB, reserved 20.00 GiB memory for KV Cache as specified by kv_cache_memory_bytes config",
        {"free_at_start": 78.66 * GIB, "kv_cache_available": 20 * GIB},
    ),
    "reserved in 0.10.2": (
        "Initial free memory 78.7 GiB, reserved 20.00GiB memory for KV Cache as specified by kv_cache_memory_bytes config",
        {"kv_cache_available": 20 * GIB},
    ),
    "cpu": ("Explicitly set (1.0/10.71) GiB for KV cache on node 0.", {"kv_cache_available": GIB}),
    "cpu by itself": (
        "Auto set (4.12/10.71) GiB for KV cache on node 0, with 5.00 GiB requested memory for the worker.",
        {"kv_cache_available": 4.12 * GIB},
    ),
    "graphs": (
        "CUDA graph pool memory: 0.61 GiB (actual), 0.72 GiB (estimated), difference: 0.11 GiB (18.0%).",
        {"cuda_graphs_estimated": 0.72 * GIB, "cuda_graphs_pool": 0.61 * GIB},
    ),
    "graphs that shrank": ("Graph capturing finished in 3 secs, took -0.02 GiB", {"cuda_graphs": -0.02 * GIB}),
    "override": (
        "Overriding num_gpu_blocks=16384 with num_gpu_blocks_override=1280",
        {"num_gpu_blocks": 1280, "blocks_profiled": 16384},
    ),
    "hybrid": (
        "Setting attention block size to 1056 tokens to ensure that attention page size is >= mamba page size.",
        {"block_size": 1056},
    ),
    "mla": ("Forcing kv cache block size to 64 for FlashMLA backend.", {"block_size": 64}),
    "budget": ("Chunked prefill is enabled with max_num_batched_tokens=16384.", {"max_num_batched_tokens": 16384}),
    "fit": (
        "Auto-fit max_model_len: reduced from 131072 to 32560 to fit in available GPU memory (4.47 GiB available for KV cache)",
        {"max_model_len": 32560},
    ),
    "context parallel": ("Multiplying the GPU KV cache size by the dcp_world_size 4.", {"context_parallel": 4}),
    "context parallel of 0.12": (
        "Multiplying the GPU KV cache size by the cp_world_size 8 (pcp_world_size 2 * dcp_world_size 4).",
        {"context_parallel": 8},
    ),
}


@pytest.mark.parametrize(("message", "figures"), SINGLE.values(), ids=list(SINGLE))
def test_single_lines(message: str, figures: dict[str, float]) -> None:
    log = read_log("INFO 11-05 10:00:00 [x.py:1] " + message)
    for name, value in figures.items():
        reading = log.figure(name)
        assert reading is not None, name
        assert reading.value == pytest.approx(value)


REFUSALS = {
    "ValueError: The model's max seq len (29000) is larger than the maximum number of tokens that can be stored in KV cache "
    "(23648). Try increasing `gpu_memory_utilization`": ("kv-cache-too-small", 29000, 23648),
    "ValueError: No available memory for the cache blocks. Try increasing": ("no-kv-cache-memory", None, None),
    "ValueError: Free memory on device (10.52/79.15 GiB) on startup is less than desired GPU memory utilization (0.9, 71.24 "
    "GiB). Decrease": ("memory-in-use", round(71.24 * GIB), round(10.52 * GIB)),
    "ValueError: Free memory on device cuda:0 (10.52/79.15 GiB) on startup is less than desired GPU memory utilization (0.92, "
    "72.82 GiB).": ("memory-in-use", round(72.82 * GIB), round(10.52 * GIB)),
    "ValueError: Available memory on node 0 (5.1/10.7 GiB) on kv cache allocation is less than requested memory for kv (8.0 "
    "GiB). Decrease": ("memory-in-use", 8 * GIB, round(5.1 * GIB)),
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 448.00 MiB. GPU 0 has a total capacity of 23.64 GiB": (
        "out-of-memory", 448 << 20, None,
    ),
    "RuntimeError: CUDA out of memory occurred when warming up sampler with 1024 dummy requests.": (
        "out-of-memory", None, None,
    ),
    "ValueError: User-specified max_model_len (65536) is greater than the derived max_model_len (max_position_embeddings=8192)": (
        "length-exceeds-model", None, None,
    ),
    "ValueError: Total number of attention heads (14) must be divisible by tensor parallel size (4).": (
        "not-divisible", None, None,
    ),
    "api_server.py: error: unrecognized arguments: --enable-thing": ("invalid-arguments", None, None),
    "OSError: org/nmae is not a local folder and is not a valid model identifier listed on": ("model-not-found", None, None),
    "OSError: You are trying to access a gated repo.": ("not-authorised", None, None),
    "OSError: [Errno 98] Address already in use": ("address-in-use", None, None),
    "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}": (
        "process-died", None, None,
    ),
    "[shutdown] MPClient: engine core exited unexpectedly; starting cleanup": ("process-died", None, None),
    "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root "
    "cause.": ("process-died", None, None),
    "KeyError: 'layers.0.self_attn.qkv_proj.bias'": ("error", None, None),
}  # fmt: skip


@pytest.mark.parametrize(("message", "expected"), REFUSALS.items(), ids=[kind[0] for kind in REFUSALS.values()])
@pytest.mark.parametrize("prefix", ["", "(EngineCore pid=3) ERROR 11-05 10:00:00 [core.py:1] ", "[rank0]: "])
def test_refusals(message: str, expected: tuple[object, ...], prefix: str) -> None:
    cause = read_log(prefix + message).cause
    assert cause is not None
    assert (cause.kind, cause.needed, cause.available) == expected


DEATH = "(EngineCore pid=3) ERROR 11-05 10:00:00 [multiproc_executor.py:1] Worker proc VllmWorker-0 died unexpectedly"


@pytest.mark.parametrize(
    "ordered",
    [
        "INFO:     Shutting down",
        "INFO 11-05 10:00:00 [launcher.py:79] Shutting down FastAPI HTTP server.",
        "(APIServer pid=1) INFO 11-05 10:00:00 [launcher.py:254] [shutdown] API server: shutdown triggered",
        "(EngineCore pid=3) INFO 11-05 10:00:00 [core.py:9] [shutdown] EngineCore: trigger received signal=SIGTERM",
    ],
)
def test_processes_of_a_server_that_was_told_to_end_may_die(ordered: str) -> None:
    ready = "INFO:     Application startup complete."
    assert read_log("\n".join((ready, ordered, DEATH))).refusals == ()
    died = read_log("\n".join((ready, DEATH, ordered))).cause
    assert died is not None
    assert died.kind == "process-died"


def test_the_particular_cause_comes_before_its_consequences() -> None:
    text = "\n".join(
        (
            "ERROR 11-05 10:00:00 [core.py:1] Traceback (most recent call last):",
            "ERROR 11-05 10:00:00 [core.py:1] ValueError: No available memory for the cache blocks. Try increasing",
            "Traceback (most recent call last):",
            "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}",
        )
    )
    log = read_log("RuntimeError: something earlier\n" + text)
    assert log.cause is not None
    assert (log.cause.kind, log.cause.line) == ("no-kv-cache-memory", 3)


def test_a_secret_in_a_refused_command_line_is_masked() -> None:
    cause = read_log("vllm serve: error: unrecognized arguments: --foo --api-key sk-1234 --hf-token=hf_abc").cause
    assert cause is not None
    assert "sk-1234" not in cause.message
    assert "hf_abc" not in cause.message


def test_a_half_written_log() -> None:
    text = "(Worker pid=3) INFO 11-29 23:46:00 [gpu_worker.py:1] Available KV cache memory: 5.98 GiB\n(EngineCore pid=1) INFO 11-2"
    log = read_log(text)
    assert not log.ready
    assert log.figure("kv_cache_available") is not None
    assert log.figure("size_tokens") is None


def test_nothing_of_vllm() -> None:
    assert read_log("").empty
    assert read_log("hello\nworld: 12 blocks of wood took 3 days").empty


@given(st.text())
def test_no_text_raises(text: str) -> None:
    read_log(text)


@given(
    st.lists(
        st.sampled_from(
            [*WRAPPERS.values(), *REFUSALS, *IDENTITIES.values(), *[words for words, _ in SINGLE.values()], "{", "["]
        )
    ),
    st.integers(0, 4000),
    st.integers(0, 4000),
)
def test_no_torn_log_raises(parts: list[str], begin: int, end: int) -> None:
    read_log("\n".join(parts)[begin:end])
