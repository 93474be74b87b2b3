"""The parts of a smoke run by themselves: scaling, phases, prompts, thresholds, timelines."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvgate.app import predict
from kvgate.capacity.prediction import Concurrency, Memory, Prediction, Quantity, Workload
from kvgate.engine.logs import RunningSample, read_log
from kvgate.smoke.compare import compare_load, compare_terms, gather
from kvgate.smoke.load import LoadPlan, PhasePlan, plan_load, prompt_tokens, scaled_workload
from kvgate.smoke.running import MOST_MOMENTS, explain_running, thin_out
from kvgate.smoke.verdict import Load, Moment, Phase

LLAMA = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 128, "intermediate_size": 256,
    "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "vocab_size": 512,
    "max_position_embeddings": 16384, "torch_dtype": "float32",
}  # fmt: skip


def predicted(workload: Workload | None) -> Prediction:
    """A pool of 40,960 tokens in blocks of 32; 7,500 + 1,000 tokens need 266 of 1,279 blocks, the prompt alone 235."""
    return predict(
        LLAMA, ["--dtype", "float32", "--block-size", "32", "--num-gpu-blocks-override", "1280"], gpu="cpu",
        vllm_version="0.32.0", env={"VLLM_CPU_KVCACHE_SPACE": "1"}, workload=workload,
    )  # fmt: skip


ARTICLE = Workload(7500, 1000, 0, 20)


def test_the_declared_workload_goes_as_it_is() -> None:
    assert scaled_workload(ARTICLE, predicted(None)) == (ARTICLE, ())


def test_rules_of_scaling() -> None:
    base = predicted(None)
    workload, rules = scaled_workload(Workload(7500, 1000, 1500, 40), base, replicas=2, token_cap=850)
    # a tenth of everything, half of the clients
    assert workload == Workload(750, 100, 150, 20)
    assert rules == (
        "requests are scaled to 850 tokens, each part by 0.10",
        "40 at once over 2 replicas are 20 for one server",
    )
    workload, rules = scaled_workload(Workload(20000, 1000, 18000, 3), base)
    assert workload == Workload(15384, 1000, 15384, 3)
    assert rules == ("a request is cut to max_model_len, 16,384 tokens",)
    workload, rules = scaled_workload(None, base)
    assert workload == Workload(16128, 256, 0, None)
    assert rules == ("no workload is declared: requests of max_model_len, 16,384 tokens",)
    assert scaled_workload(Workload(0, 0, 0, None), base)[0] == Workload(1, 1, 0, None)


@given(
    st.integers(0, 100_000), st.integers(0, 100_000), st.integers(0, 100_000), st.integers(2, 50_000), st.integers(1, 9)
)
def test_a_scaled_request_always_fits(prompt: int, output: int, shared: int, cap: int, replicas: int) -> None:
    base = predicted(None)
    workload, _ = scaled_workload(Workload(prompt, output, shared, 7), base, replicas=replicas, token_cap=cap)
    assert workload.prompt_tokens is not None
    assert workload.output_tokens is not None
    assert workload.prompt_tokens >= 1
    assert workload.output_tokens >= 1
    assert workload.prompt_tokens + workload.output_tokens <= min(16384, cap)
    assert 0 <= workload.shared_prefix_tokens <= workload.prompt_tokens


def load_plan(workload: Workload, **more: Any) -> LoadPlan:
    return plan_load(workload, (), predicted(workload), vocabulary=512, seconds=60, **more)


def test_phases_of_the_article() -> None:
    plan = load_plan(ARTICLE)
    # four are sustained; four times the five that are admitted are twenty, so that nobody is left out
    assert plan.phases == (PhasePlan("sustained", 4, 4), PhasePlan("declared", 20, 40))
    assert plan.scaling == ()
    assert plan.full_usage == pytest.approx(0.8)
    assert load_plan(ARTICLE, requests=7).phases[1].requests == 7


def test_more_clients_than_matter_are_left_out() -> None:
    plan = load_plan(Workload(7500, 1000, 0, 500))
    assert plan.phases[-1].clients == 20
    assert plan.scaling == ("20 clients stand for 500: the others would only wait",)
    # 1,279 blocks hold hundreds of short requests
    plan = load_plan(Workload(40, 10, 0, 5000))
    assert plan.phases[-1].clients == 256
    assert plan.scaling[-1] == "at most 256 clients are run"


def test_a_load_that_fits_has_one_phase() -> None:
    assert load_plan(Workload(1000, 100, 0, 3)).phases == (PhasePlan("declared", 3, 6),)


def test_prompts_share_their_prefix_and_nothing_else() -> None:
    plan = load_plan(Workload(100, 10, 60, 4))
    first, second = prompt_tokens(plan, 1), prompt_tokens(plan, 2)
    assert len(first) == len(second) == 100
    assert first[:60] == second[:60]
    assert first[60:] != second[60:]
    assert prompt_tokens(plan, 1) == first  # the seed is fixed
    assert all(10 <= token <= 511 for token in first)


def phase(**fields: Any) -> Phase:
    values: dict[str, Any] = {
        "name": "declared", "clients": 20, "requests": 40, "completed": 40, "failed": 0, "seconds": 1.0,
        "peak_running": 5, "peak_waiting": 15, "peak_usage": 1.0, "preemptions": 3, "hit_rate": 0.0,
        "running_when_full": 5,
    }  # fmt: skip
    return Phase(**{**values, **fields})


def results(*phases: Phase, ranks: int = 1) -> list[tuple[str, bool | None]]:
    checks = compare_load(Load(ARTICLE, (), phases), predicted(ARTICLE), ranks)
    return [(check.name, check.holds) for check in checks]


def test_what_a_load_must_show() -> None:
    assert results(phase()) == [("running", True), ("running_when_full", True)]
    # six at once are more than are admitted, three in a full pool fewer than are sustained
    assert results(phase(peak_running=6, running_when_full=6)) == [("running", False), ("running_when_full", False)]
    assert results(phase(running_when_full=3)) == [("running", True), ("running_when_full", False)]
    # a pool that was never full says nothing about how many it holds
    assert results(phase(peak_running=2, running_when_full=None)) == [("running", True)]
    # preemptions are expected of twenty clients, and must not happen to four
    assert results(phase(clients=4, peak_running=4, preemptions=0, running_when_full=None)) == [
        ("running", True),
        ("preemptions", True),
    ]
    assert results(phase(clients=4, peak_running=4, preemptions=1, running_when_full=None)) == [
        ("running", True),
        ("preemptions", False),
    ]
    # a phase in which nothing was answered, or nothing could be seen, says nothing
    assert results(phase(completed=0)) == []
    assert results(phase(peak_running=None)) == []
    # two data-parallel engines hold twice as many
    assert results(phase(peak_running=10, running_when_full=10), ranks=2) == [
        ("running", True),
        ("running_when_full", True),
    ]


def sample(running: int, waiting: int, usage: float | None = 0.98, engine: int | None = 0) -> RunningSample:
    return RunningSample(1, "11-05 10:00:00", engine, running, waiting, usage, None, None)


def test_data_parallel_engines_that_are_added_up() -> None:
    expected = predicted(ARTICLE)
    explained = explain_running([sample(9, 20, engine=None)], None, expected, data_parallel_size=2)
    assert explained is not None
    assert explained.explained
    explained = explain_running([sample(9, 20, engine=1)], None, expected, data_parallel_size=2)
    assert explained is not None
    assert not explained.explained


def test_a_log_without_running_lines_explains_nothing() -> None:
    assert explain_running([], None, predicted(ARTICLE)) is None


@given(st.lists(st.integers(0, 50), min_size=1, max_size=300))
def test_a_timeline_stays_short_and_keeps_its_peak(numbers: list[int]) -> None:
    moments = [Moment(float(at), None, number, 0, None, None) for at, number in enumerate(numbers)]
    thin = thin_out(moments)
    assert len(thin) <= MOST_MOMENTS
    assert max(one.running for one in thin) == max(numbers)
    assert thin[0] == moments[0]
    assert thin[-1] == moments[-1]
    assert sorted(one.seconds or 0 for one in thin) == [one.seconds for one in thin]


def test_releases_that_count_cuda_graphs_into_the_activation_peak() -> None:
    """From 0.27 weights and non-torch are one figure, and the peak carries the estimate of CUDA graphs."""
    head = "INFO 11-05 10:00:00 [x.py:1] "
    text = "\n".join(
        head + line
        for line in (
            "Model loading took 14.99 GiB memory and 9.870000 seconds",
            "Estimated CUDA graph memory: 0.40 GiB total",
            "Free memory on device (23.20/23.64 GiB) on startup. Desired GPU memory utilization is (0.92, 21.75 GiB). "
            "Actual usage is 15.09 GiB for consumed memory (weights + non-torch), 1.59 GiB for peak activation, and 0.52 "  # noqa: E501
            "GiB for CUDAGraph memory.",
        )
    )
    gib = 1 << 30

    def about(value: float) -> Quantity:
        return Quantity(round(value * gib), round((value - 0.1) * gib), round((value + 0.1) * gib), "calibrated")

    memory = Memory(about(23.64), about(21.75), about(14.99), None, about(1.19), about(0.1), about(0.4), about(5.07))
    terms = {term.name: term for term in compare_terms(memory, gather(read_log(text), None))}
    assert [term.holds for name, term in terms.items() if name != "kv_cache_available"] == [True] * 6
    assert terms["activation_peak"].measured is not None
    assert terms["activation_peak"].measured.value == pytest.approx(1.19 * gib)
    assert terms["cuda_graphs"].measured is not None
    assert terms["cuda_graphs"].measured.value == pytest.approx(0.4 * gib)  # the estimate is what is subtracted
    assert terms["non_torch"].measured is not None
    assert terms["non_torch"].measured.value == pytest.approx(0.1 * gib)
    assert terms["kv_cache_available"].measured is None


def test_an_unknown_prediction_checks_no_load() -> None:
    assert compare_load(Load(ARTICLE, (), (phase(),)), None) == ()
    unknown = Concurrency(None, (None, None), None, None, None, None)
    assert unknown.as_dict()["sustained"] is None
