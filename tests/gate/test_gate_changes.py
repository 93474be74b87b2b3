"""Real kinds of change in a real repository: what each does to the capacity, and why.

The arithmetic of Llama 3.1 8B: 32 layers x 2 (K and V) x 8 heads x 128 x 2 bytes = 131,072 bytes a token; a request of
8,500 tokens takes 532 blocks of 16 tokens.
"""

from __future__ import annotations

from itertools import pairwise
from math import floor

import pytest

from kvgate.capacity.prediction import Prediction
from kvgate.gate.difference import Cause, UnitDifference

REQUEST_BLOCKS = 532  # ceil(8500 / 16)
CHAT = "Deployment/default/chat/vllm"


def sides(unit: UnitDifference) -> tuple[int | None, int | None]:
    assert unit.base is not None
    assert unit.head is not None
    return unit.base.capacity.requests, unit.head.capacity.requests


def prediction(unit: UnitDifference, side: str = "head") -> Prediction:
    found = getattr(unit, side).prediction
    assert found is not None
    return found


def held_by_hand(one: Prediction, ranks: int, request_blocks: int = REQUEST_BLOCKS) -> int:
    """sustained = (blocks - the null block) // blocks of a request, over all ranks."""
    blocks = one.kv_cache.num_gpu_blocks
    assert blocks is not None
    return floor((blocks - 1) / request_blocks) * ranks


def causes(unit: UnitDifference) -> dict[str, Cause]:
    return {cause.input: cause for cause in unit.causes}


def assert_steps_add_up(unit: UnitDifference) -> None:
    """Each step starts where the one before ended, from the base's capacity to the head's."""
    before, after = sides(unit)
    chain = [cause.requests for cause in unit.causes]
    assert chain[0][0] == before
    assert chain[-1][1] == after
    assert all(one[1] == other[0] for one, other in pairwise(chain))
    first, last = unit.causes[0].pool_bytes[0], unit.causes[-1].pool_bytes[1]
    terms = sum(effect.pool_bytes or 0 for cause in unit.causes for effect in cause.effects)
    if first is not None and last is not None:
        assert terms == pytest.approx(last - first, abs=64 * 2**20)


@pytest.fixture
def base(repo):
    repo.commit({"deploy/chat.yaml": repo.server()}, "base")
    return repo


def test_a_model_without_a_cache_is_not_unknown(repo):
    from kvgate.report.difference.words import pool_cell

    repo.commit({"embed.yaml": repo.server(model="BAAI/bge-m3", args=(), load={})}, "base")
    repo.commit({"embed.yaml": repo.server(model="BAAI/bge-m3", args=("--max-num-seqs=64",), load={})}, "head")
    (unit,) = repo.diff().units
    assert unit.base.capacity.reason == "the model keeps no KV cache, and max_num_seqs alone is its limit"
    assert pool_cell(unit) == "none"


def test_nothing_changed(base):
    base.commit({"README.md": "words"})
    difference = base.diff()
    assert [unit.verdict for unit in difference.units] == ["equal"]
    assert (difference.gate.verdict, difference.new, difference.fixed) == ("pass", (), ())
    assert not difference.units[0].is_changed


@pytest.mark.parametrize("images", [("v0.12.0", "v0.11.0"), ("v0.9.2", "v0.19.1"), ("v0.19.1", "v0.6.6")])
def test_another_release_and_more_replicas(repo, images):
    """The image's entry point takes --model in every release, so that each step starts and the steps add up."""
    base, head = (f"vllm/vllm-openai:{tag}" for tag in images)
    repo.commit({"deploy/chat.yaml": repo.server(image=base, replicas=1)}, "base")
    repo.commit({"deploy/chat.yaml": repo.server(image=head, replicas=3)})
    unit = repo.unit()
    assert [cause.input for cause in unit.causes] == ["vllm_version", "replicas"]
    assert [cause.starts for cause in unit.causes] == [("yes", "yes")] * 2
    assert_steps_add_up(unit)


def test_tag_bump_over_0_20(base):
    """0.20 raises the default utilization from 0.90 to 0.92 and counts CUDA graphs into the budget."""
    base.commit({"deploy/chat.yaml": base.server(image="vllm/vllm-openai:v0.21.0")})
    unit = base.unit()
    (cause,) = unit.causes
    assert cause.input == "vllm_version"
    assert (cause.before, cause.after) == (
        "0.19.1 (vllm/vllm-openai:v0.19.1)", "0.21.0 (vllm/vllm-openai:v0.21.0)",
    )  # fmt: skip
    effects = {effect.name: effect for effect in cause.effects}
    total = prediction(unit).gpu_memory_bytes
    assert total is not None
    assert (effects["gpu_memory_utilization"].before, effects["gpu_memory_utilization"].after) == (0.9, 0.92)
    assert effects["gpu_memory_utilization"].pool_bytes == pytest.approx(0.02 * total, rel=0.01)
    graphs = effects["cuda_graphs"]
    assert graphs.before == 0
    assert graphs.pool_bytes is not None
    assert graphs.pool_bytes < 0
    assert "CUDA graphs now counted -" in cause.words
    assert "utilization default 0.90 -> 0.92 +0.47 GiB" in cause.words
    assert_steps_add_up(unit)
    assert sides(unit)[1] == held_by_hand(prediction(unit), 2)


def test_gpu_type(base):
    """From 24 GB to an L4's 22 GiB: the pool shrinks by the difference times the utilization."""
    base.commit({"deploy/chat.yaml": base.server(gpu="NVIDIA-L4")})
    unit = base.unit()
    (cause,) = unit.causes
    assert (cause.input, cause.before, cause.after) == ("gpu", "NVIDIA GeForce RTX 4090", "NVIDIA L4")
    before, after = prediction(unit, "base"), prediction(unit)
    assert before.gpu_memory_bytes is not None
    assert after.gpu_memory_bytes is not None
    requested = next(effect for effect in cause.effects if effect.name == "requested")
    assert requested.pool_bytes == pytest.approx(0.9 * (after.gpu_memory_bytes - before.gpu_memory_bytes), rel=0.01)
    assert unit.verdict == "drop"
    assert sides(unit) == (held_by_hand(before, 2), held_by_hand(after, 2))
    difference = base.diff()
    (finding,) = difference.gate.findings
    assert (finding.rule, finding.primary.text.strip()) == ("capacity-drop", "nvidia.com/gpu.product: NVIDIA-L4")
    assert difference.gate.verdict == "fail"


def test_tensor_parallel_with_its_gpus(base):
    """Two GPUs hold half the weights and half of each token's KV cache each: more than twice the requests."""
    text = base.server(args=("--max-model-len=16384", "--max-num-seqs=256", "--tensor-parallel-size=2"), gpus=2)
    base.commit({"deploy/chat.yaml": text})
    unit = base.unit()
    assert [cause.input for cause in unit.causes] == ["tensor_parallel_size"]
    cost = next(effect for effect in unit.causes[0].effects if effect.name == "bytes_per_token")
    assert (cost.before, cost.after) == (131072, 65536)
    before, after = sides(unit)
    assert before is not None
    assert after is not None
    assert after > 2 * before
    assert unit.verdict == "higher"
    assert_steps_add_up(unit)
    base.commit({"deploy/chat.yaml": base.server()}, "and back")
    assert (base.unit().verdict, base.diff().gate.verdict) == ("drop", "fail")


def test_model(base):
    """Qwen2.5 7B: 28 layers x 2 x 4 heads x 128 x 2 bytes = 57,344 bytes a token."""
    base.commit({"deploy/chat.yaml": base.server(model="Qwen/Qwen2.5-7B-Instruct")})
    unit = base.unit()
    cause = causes(unit)["model"]
    assert (cause.before, cause.after) == ("meta-llama/Llama-3.1-8B-Instruct", "Qwen/Qwen2.5-7B-Instruct")
    cost = next(effect for effect in cause.effects if effect.name == "bytes_per_token")
    assert (cost.before, cost.after) == (2 * 32 * 8 * 128 * 2, 2 * 28 * 4 * 128 * 2)
    assert_steps_add_up(unit)
    assert unit.verdict == "higher"
    base.commit({"deploy/chat.yaml": base.server(model="Qwen/Qwen2.5-14B-Instruct")}, "too large for 24 GB")
    unit = base.unit()
    assert (unit.verdict, sides(unit)[1]) == ("drop", 0)
    assert "does not start" in unit.reason
    assert prediction(unit).starts == "no"


def test_fp8_cache(base):
    """One byte an element instead of two: twice the blocks, twice the requests."""
    args = ("--max-model-len=16384", "--max-num-seqs=256")
    base.commit({"deploy/chat.yaml": base.server(args=(*args, "--kv-cache-dtype=fp8"))})
    unit = base.unit()
    cause = causes(unit)["kv_cache_dtype"]
    assert cause.requests == sides(unit)
    before, after = sides(unit)
    assert before is not None
    assert after is not None
    assert 2 * before <= after <= 2 * before + 2
    assert unit.verdict == "higher"
    base.commit({"deploy/chat.yaml": base.server(args=args)}, "back to two bytes")
    unit = base.unit()
    assert unit.verdict == "drop"
    assert any(lever.startswith(f"with --kv-cache-dtype back to fp8 it would hold {after}") for lever in unit.levers)


def test_halved_length_is_no_doubled_capacity(repo):
    """The trap: vLLM prints twice the maximum concurrency, and the pool holds what it held."""
    args = ("--max-model-len=16384", "--max-num-seqs=256")
    repo.commit({"chat.yaml": repo.server(args=args, load={})}, "no declared load")
    repo.commit({"chat.yaml": repo.server(args=("--max-model-len=8192", args[1]), load={})}, "half the length")
    difference = repo.diff()
    (unit,) = difference.units
    before, after = prediction(unit, "base"), prediction(unit)
    assert before.kv_cache.max_concurrency is not None
    assert after.kv_cache.max_concurrency == pytest.approx(2 * before.kv_cache.max_concurrency, rel=0.01)
    assert unit.yardstick is not None
    assert (unit.yardstick.source, unit.yardstick.tokens) == ("max_model_len", 16384)
    # 16,384 tokens take 1,024 blocks on either side
    assert sides(unit) == (held_by_hand(before, 2, 1024), held_by_hand(before, 2, 1024))
    assert unit.verdict == "equal"
    assert unit.change == 0
    (finding,) = difference.gate.findings
    assert (finding.rule, finding.severity.value) == ("longest-request-shortened", "warning")
    assert finding.primary.text == "--max-model-len=8192"
    assert "falls from 16,384 to 8,192" in finding.message


def test_halved_length_below_the_declared_request(base):
    """8,500 tokens do not fit into 8,192: the server refuses what it is there for."""
    base.commit({"deploy/chat.yaml": base.server(args=("--max-model-len=8192", "--max-num-seqs=256"))})
    difference = base.diff()
    (unit,) = difference.units
    assert sides(unit)[1] == 0
    assert unit.verdict == "drop"
    assert "requests of 8,500 tokens are refused: max_model_len is 8,192" in unit.reason
    assert difference.gate.verdict == "fail"
    assert causes(unit)["max_model_len"].reverted == sides(unit)[0]


def test_doubled_length_is_no_halved_capacity(repo):
    repo.commit({"chat.yaml": repo.server(args=("--max-model-len=8192", "--max-num-seqs=256"), load={})})
    repo.commit({"chat.yaml": repo.server(args=("--max-model-len=16384", "--max-num-seqs=256"), load={})})
    unit = repo.unit()
    assert sides(unit)[0] == sides(unit)[1] == held_by_hand(prediction(unit), 2, 512)
    assert unit.verdict == "equal"


def test_replicas(base):
    base.commit({"deploy/chat.yaml": base.server(replicas=3)})
    unit = base.unit()
    before, after = sides(unit)
    assert before is not None
    assert (unit.verdict, after) == ("higher", before // 2 * 3)
    base.commit({"deploy/chat.yaml": base.server(replicas=1)})
    unit = base.unit()
    assert [cause.input for cause in unit.causes] == ["replicas"]
    assert (unit.verdict, sides(unit), unit.change) == ("drop", (before // 2 * 3, before // 2), pytest.approx(-2 / 3))


def test_data_parallel_ranks_count(base):
    args = ("--max-model-len=16384", "--max-num-seqs=256")
    base.commit({"deploy/chat.yaml": base.server(args=(*args, "--data-parallel-size=2"), gpus=2, replicas=1)})
    unit = base.unit()
    before, after = sides(unit)
    assert before == after
    assert {cause.input for cause in unit.causes} == {"data_parallel_size", "replicas"}
    assert_steps_add_up(unit)


def test_utilization(base):
    args = ("--max-model-len=16384", "--max-num-seqs=256", "--gpu-memory-utilization=0.8")
    base.commit({"deploy/chat.yaml": base.server(args=args)})
    unit = base.unit()
    (cause,) = unit.causes
    total = prediction(unit).gpu_memory_bytes
    assert total is not None
    assert cause.pool_bytes[0] is not None
    assert cause.pool_bytes[1] is not None
    assert cause.pool_bytes[1] - cause.pool_bytes[0] == pytest.approx(-0.1 * total, rel=0.01)
    assert unit.verdict == "drop"


def test_file_moved(repo):
    text = repo.server(image="vllm/vllm-openai:latest")
    repo.commit({"deploy/chat.yaml": text})
    repo.commit({"deploy/chat.yaml": None, "serving/prod/chat.yaml": text})
    difference = repo.diff()
    (unit,) = difference.units
    assert (unit.match, unit.verdict) == ("moved", "equal")
    assert unit.how == "moved from deploy/chat.yaml to serving/prod/chat.yaml, the id is the same"
    assert (difference.new, difference.fixed) == ((), ()), "the same findings in a moved file"
    assert [(finding.rule, finding.primary.path) for finding in difference.unchanged] == [
        ("image-not-pinned", "serving/prod/chat.yaml")
    ]
    assert difference.gate.verdict == "pass"


def test_file_moved_and_made_worse(base):
    base.commit({"deploy/chat.yaml": None, "serving/chat.yaml": base.server(gpu="NVIDIA-L4")})
    difference = base.diff()
    assert (difference.units[0].match, difference.units[0].verdict) == ("moved", "drop")
    assert difference.gate.verdict == "fail"


def test_object_renamed(base):
    base.commit({"deploy/chat.yaml": base.server(name="chat-v2", args=("--max-model-len=16384", "--max-num-seqs=128"))})
    unit = base.unit()
    assert unit.match == "renamed"
    assert unit.how == f"renamed from {CHAT}: same kind and model, 1 of 2 arguments the same"
    assert unit.verdict == "equal"


def test_object_renamed_and_made_worse(base):
    base.commit({"deploy/chat.yaml": base.server(name="chat-v2", gpu="NVIDIA-L4")})
    difference = base.diff()
    assert (difference.units[0].match, difference.units[0].verdict) == ("renamed", "drop")
    assert difference.gate.verdict == "fail"


def test_another_server_is_no_rename(base):
    base.commit({"deploy/chat.yaml": base.server(name="code", model="Qwen/Qwen2.5-7B-Instruct")})
    assert [unit.match for unit in base.diff().units] == ["added", "removed"]


def test_compose_file_moved(repo):
    """The id of a service holds its path, so a moved file changes it."""
    text = """\
services:
  llm:
    image: vllm/vllm-openai:v0.19.1
    command: --model Qwen/Qwen2.5-7B-Instruct --max-model-len 8192 --max-num-seqs 64
"""
    repo.commit({"compose.yaml": text})
    repo.commit({"compose.yaml": None, "docker/compose.yaml": text})
    difference = repo.diff(gpu="NVIDIA L4")
    (unit,) = difference.units
    assert (unit.match, unit.verdict) == ("moved", "equal")
    assert unit.how.startswith("moved from compose.yaml to docker/compose.yaml: same kind and model, 2 of 2 arguments")
    assert difference.new == ()


def test_unit_removed(base):
    base.commit({"deploy/chat.yaml": None})
    difference = base.diff()
    (unit,) = difference.units
    assert (unit.match, unit.verdict, unit.head) == ("removed", "removed", None)
    assert difference.gate.verdict == "pass"
    (finding,) = difference.gate.findings
    assert (finding.rule, finding.severity.value, finding.primary.path) == (
        "unit-removed",
        "warning",
        "deploy/chat.yaml",
    )


def test_unit_added(base):
    base.commit({"deploy/code.yaml": base.server(name="code", model="Qwen/Qwen2.5-7B-Instruct")})
    difference = base.diff()
    unit = next(unit for unit in difference.units if unit.is_changed)
    assert (unit.match, unit.verdict, unit.base) == ("added", "added", None)
    assert unit.head is not None
    assert unit.head.capacity.requests is not None
    assert difference.gate.verdict == "pass"


def test_env_file_of_compose(repo):
    """A values file beside the manifest changes, the manifest does not."""
    text = """\
services:
  llm:
    image: vllm/vllm-openai:${TAG}
    command: --model meta-llama/Llama-3.1-8B-Instruct --max-model-len ${LENGTH} --gpu-memory-utilization ${SHARE}
"""
    repo.commit({"compose.yaml": text, ".env": "TAG=v0.19.1\nLENGTH=8192\nSHARE=0.95\n"})
    repo.commit({".env": "TAG=v0.19.1\nLENGTH=8192\nSHARE=0.85\n"})
    unit = repo.unit(gpu="RTX 4090")
    (cause,) = unit.causes
    assert (cause.input, cause.before, cause.after) == ("gpu_memory_utilization", "0.95", "0.85")
    assert unit.verdict == "drop"


def test_config_map_of_another_file(repo):
    manifest = repo.server(args=("--max-model-len=16384", "--gpu-memory-utilization=$(SHARE)")).replace(
        "          resources:",
        "          env:\n            - name: SHARE\n              valueFrom:\n"
        "                configMapKeyRef: {name: tuning, key: share}\n          resources:",
    )
    values = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: tuning}\ndata: {share: '%s'}\n"
    repo.commit({"chat.yaml": manifest, "tuning.yaml": values % "0.95"})
    repo.commit({"tuning.yaml": values % "0.85"})
    unit = repo.unit()
    assert [(cause.input, cause.before, cause.after) for cause in unit.causes] == [
        ("gpu_memory_utilization", "0.95", "0.85")
    ]
    assert unit.verdict == "drop"


def test_kvgate_yaml_describes_the_machine(repo):
    """vllm_version and gpu of kvgate.yaml describe the deployment: each side has its own."""
    text = repo.server(image="registry.example.com/vllm:prod", gpu="", args=("--max-model-len=16384",)).replace(
        "        nvidia.com/gpu.product: \n", "        pool: a\n"
    )
    config = 'version: 1\nvllm_version: "0.19.1"\ngpu: {}\n'
    repo.commit({"chat.yaml": text, "kvgate.yaml": config.format("RTX 4090")})
    repo.commit({"kvgate.yaml": config.format("NVIDIA L4")})
    difference = repo.diff()
    (unit,) = difference.units
    assert [(cause.input, cause.after) for cause in unit.causes] == [("gpu", "NVIDIA L4")]
    assert unit.causes[0].span is not None
    assert unit.causes[0].span.path == "kvgate.yaml"
    assert (unit.verdict, difference.gate.verdict) == ("drop", "fail")
    repo.commit({"kvgate.yaml": config.format("NVIDIA H100 80GB HBM3")}, "and now a better one, by word alone")
    difference = repo.diff()
    (finding,) = difference.gate.findings
    assert (difference.gate.verdict, finding.rule, finding.severity.value) == (
        "pass", "policy-changed-in-head", "warning",
    )  # fmt: skip
    assert "kvgate.yaml of the head says GPU NVIDIA L4 -> NVIDIA H100" in finding.message


def test_a_mapped_model_changes_by_word_alone(repo):
    config = "version: 1\nmodels: {/models/chat: %s}\n"
    text = repo.server(model="/models/chat")
    repo.commit({"chat.yaml": text, "kvgate.yaml": config % "meta-llama/Llama-3.1-8B-Instruct"})
    repo.commit({"kvgate.yaml": config % "Qwen/Qwen2.5-7B-Instruct"})
    difference = repo.diff()
    (cause,) = difference.units[0].causes
    assert (cause.before, cause.after) == (
        "/models/chat (meta-llama/Llama-3.1-8B-Instruct, bundled)", "/models/chat (Qwen/Qwen2.5-7B-Instruct, bundled)",
    )  # fmt: skip
    assert [finding.rule for finding in difference.gate.findings] == ["policy-changed-in-head"]


def test_an_unknown_gpu_on_both_sides_is_compared_on_common_ones(repo):
    text = repo.server().replace("nvidia.com/gpu.product: NVIDIA-GeForce-RTX-4090", "pool: a")
    repo.commit({"chat.yaml": text})
    repo.commit({"chat.yaml": text.replace("max-num-seqs=256", "max-num-seqs=1")})
    (unit,) = repo.diff().units
    assert unit.verdict == "incomparable"
    # two replicas of one request each; the GPUs are those that kvgate shows where none is named
    assert unit.reason.count("-> 2 requests") == 3


def test_several_changes_at_once_add_up(base):
    """A release, a GPU, an argument and the replicas: each step's effect on top of the ones before."""
    args = ("--max-model-len=16384", "--max-num-seqs=256", "--kv-cache-dtype=fp8", "--gpu-memory-utilization=0.85")
    text = base.server(image="vllm/vllm-openai:v0.21.0", gpu="NVIDIA-L4", args=args, replicas=1)
    base.commit({"deploy/chat.yaml": text})
    unit = base.unit()
    assert [cause.input for cause in unit.causes] == [
        "vllm_version", "gpu", "kv_cache_dtype", "gpu_memory_utilization", "replicas",
    ]  # fmt: skip
    assert_steps_add_up(unit)
    gpu = causes(unit)["gpu"]
    assert gpu.reverted is not None
    assert gpu.reverted > (sides(unit)[1] or 0), "with the old GPU alone it would hold more"


def test_environment_of_the_server(base):
    text = base.server().replace(
        "          resources:",
        "          env:\n            - {name: VLLM_ATTENTION_BACKEND, value: FLASHINFER}\n          resources:",
    )
    base.commit({"deploy/chat.yaml": text})
    unit = base.unit()
    assert [cause.input for cause in unit.causes] == ["env:VLLM_ATTENTION_BACKEND"]


def test_arguments_of_the_front_end_change_nothing(base):
    args = ("--max-model-len=16384", "--max-num-seqs=256", "--served-model-name=$(NAME)", "--port=9000")
    base.commit({"deploy/chat.yaml": base.server(args=args, secrets=("NAME",))})
    unit = base.unit()
    assert unit.verdict == "equal"
    assert not any(cause.matters for cause in unit.causes)


def test_secrets_are_not_printed(base):
    args = (
        "--max-model-len=16384", "--max-num-seqs=256", "--api-key=sk-very-secret-0123",
        "--otlp-traces-endpoint=https://me:very-secret-4567@traces.example.com",
        "--served-model-name=sk-very-secret-0123",
    )  # fmt: skip
    base.commit({"deploy/chat.yaml": base.server(args=args)})
    cause = causes(base.unit())["api_key"]
    assert (cause.before, cause.after) == (None, "***")
    for form in ("text", "json", "markdown", "github", "sarif", "junit", "gitlab"):
        result = base.cli("diff", "--base", "HEAD~1", "--head", "HEAD", "--format", form, "-v")
        assert "very-secret" not in result.stdout + result.stderr, form
