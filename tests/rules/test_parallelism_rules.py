"""Which tensor parallel sizes a model can be sharded by, and what a comment beside a flag claims."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kvgate.app import CheckOptions, check_paths
from kvgate.models.geometry import read_geometry
from kvgate.models.model import Model
from kvgate.ruleset.checks.parallelism import undivided
from kvgate.ruleset.comments import claims_capacity, claims_memory, comments_beside
from kvgate.source.text import SourceFile, Span

QWEN_7B = {
    "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": 3584, "num_hidden_layers": 28,
    "num_attention_heads": 28, "num_key_value_heads": 4, "intermediate_size": 18944, "vocab_size": 152064,
    "max_position_embeddings": 32768, "torch_dtype": "bfloat16",
}  # fmt: skip
LLAMA_70B = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 8192, "num_hidden_layers": 80,
    "num_attention_heads": 64, "num_key_value_heads": 8, "intermediate_size": 28672, "vocab_size": 128256,
    "max_position_embeddings": 131072, "torch_dtype": "bfloat16",
}  # fmt: skip
QWEN_MOE_FP8 = {
    "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_size": 4096, "num_hidden_layers": 94,
    "num_attention_heads": 64, "num_key_value_heads": 4, "head_dim": 128, "intermediate_size": 12288,
    "moe_intermediate_size": 1536, "num_experts": 128, "num_experts_per_tok": 8, "vocab_size": 151936,
    "max_position_embeddings": 40960, "torch_dtype": "bfloat16",
    "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
}  # fmt: skip


@pytest.mark.parametrize(
    ("config", "legal"),
    [
        # 28 heads: 1, 2, 4, 7, 14, 28; with 4 KV heads 7 and 14 fall; 18,944 = 2^9 x 37 is not divided by 28
        (QWEN_7B, [1, 2, 4]),
        # 64 heads, 8 KV heads replicated from 16 on, 28,672 = 2^12 x 7
        (LLAMA_70B, [1, 2, 4, 8, 16, 32, 64]),
        # 1,536 / 8 = 192 is no multiple of the block of 128; 16 (96), 32 and 64 neither
        (QWEN_MOE_FP8, [1, 2, 4]),
        ({**QWEN_7B, "quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128}}, [1, 2, 4]),
        # 18,944 / 4 = 4,736 = 37 x 128, but no multiple of 256; 18,944 / 2 = 9,472 = 37 x 256
        ({**QWEN_7B, "quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 256}}, [1, 2]),
    ],
)
def test_legal_sizes(config: dict[str, Any], legal: list[int]) -> None:
    geometry = read_geometry(Model("m", config, "mapping"))
    assert [size for size in range(1, 65) if undivided(geometry, size) is None] == legal


def test_expert_parallel_layers_are_not_sharded_by_width() -> None:
    geometry = read_geometry(Model("m", QWEN_MOE_FP8, "mapping"))
    assert undivided(geometry, 8) == "the experts' feed-forward width 1,536 in quantization groups of 128"
    assert undivided(geometry, 8, expert_parallel=True) is None


def pod(folder: Path, *args: str, gpus: str = "1", extra: str = "") -> dict[str, str]:
    listed = ", ".join(["--model=Qwen/Qwen2.5-7B-Instruct", "--max-model-len=8192", *args])
    (folder / "pod.yaml").write_text(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: chat}\nspec:\n  containers:\n    - name: vllm\n"
        f"      image: vllm/vllm-openai:v0.19.1\n      args: [{listed}]\n"
        f"      resources: {{limits: {{{gpus}}}}}\n{extra}",
        encoding="utf-8",
    )
    (folder / "kvgate.yaml").write_text("version: 1\n", encoding="utf-8")
    report = check_paths([folder], CheckOptions(config=folder / "kvgate.yaml"))
    assert not report.errors, report.errors[0].traceback
    return {one.rule: f"{one.severity.value}: {one.message}" for one in report.findings}


@pytest.mark.parametrize(
    ("args", "gpus", "starts"),
    [
        (("-tp=2", "-pp=2", "-dp=2"), "nvidia.com/gpu: 4", "error: the server needs 8 GPUs (tensor parallel 2 x pip"),
        (("-tp=2", "-pp=2", "-dp=2"), "nvidia.com/gpu: 8", None),
        (("-dp=4", "--data-parallel-size-local=2"), "nvidia.com/gpu: 2", None),
        (("-tp=2",), "nvidia.com/gpu: 4", "warning: the server uses 2 GPUs (tensor parallel 2), 4 requested"),
        ((), "nvidia.com/gpu: 2", "warning: the server uses 1 GPU, 2 requested"),
        (("-tp=4",), "amd.com/gpu: 2", "error: the server needs 4 GPUs"),
        (("-tp=4",), "nvidia.com/mig-3g.40gb: 1", None),
        (("-tp=4",), "google.com/tpu: 1", None),
        (("-tp=4", "--distributed-executor-backend=ray"), "nvidia.com/gpu: 1", None),
        (("-tp=4", "--nnodes=2"), "nvidia.com/gpu: 2", None),
        (("-tp=$(TP)",), "nvidia.com/gpu: 1", None),
        (("-tp=4",), "memory: 1Gi", None),
    ],
)  # fmt: skip
def test_gpus_used_and_requested(tmp_path: Path, args: tuple[str, ...], gpus: str, starts: str | None) -> None:
    found = pod(tmp_path, *args, gpus=gpus).get("gpu-count-mismatch")
    assert (found or "").startswith(starts or "")
    assert (found is None) is (starts is None)


@pytest.mark.parametrize(
    ("args", "extra", "fires"),
    [
        (("-tp=2",), "", True),
        (("-pp=2",), "", True),
        (("-dp=2",), "", True),
        ((), "", False),
        (("-tp=2",), "  hostIPC: true\n", False),
        (("-tp=2",), "      volumeMounts: [{name: s, mountPath: /dev/shm}]\n"
                     "  volumes: [{name: s, emptyDir: {medium: Memory}}]\n", False),
        (("-tp=2",), "      volumeMounts: [{name: s, mountPath: /dev/shm}]\n"
                     "  volumes: [{name: s, emptyDir: {medium: Memory, sizeLimit: 64Mi}}]\n", True),
    ],
)  # fmt: skip
def test_shared_memory(tmp_path: Path, args: tuple[str, ...], extra: str, fires: bool) -> None:
    assert ("shm-missing-with-parallelism" in pod(tmp_path, *args, gpus="nvidia.com/gpu: 2", extra=extra)) is fires


# -- comments ------------------------------------------------------------------------------------------------------

COMMENTED = """\
args:
  # first line above
  # second line above
  - --a=1  # behind
  - --b=2
  # above c, not behind b

  - --c=3
  - "--d=4 # no comment"
"""


@pytest.mark.parametrize(
    ("text", "comments"),
    [
        ("--a=1", ("first line above", "second line above", "behind")),
        ("--b=2", ()),
        ("--c=3", ()),  # a blank line parts them
        ("--d=4 # no comment", ()),
    ],
)
def test_comments_beside_a_value(text: str, comments: tuple[str, ...]) -> None:
    at = COMMENTED.index(text)
    assert comments_beside(Span(SourceFile("a.yaml", COMMENTED), at, at + len(text))) == comments


@pytest.mark.parametrize(
    ("comment", "capacity", "memory"),
    [
        ("more users", True, False),
        ("shorter context, so that more users fit", True, False),
        ("increase concurrency", True, False),
        ("higher throughput", True, False),
        ("room for 20 requests in parallel", True, False),
        ("save VRAM", False, True),
        ("reduce the KV cache", False, True),
        ("limit memory usage", False, True),
        ("reduce kv-cache so more concurrent requests fit", True, True),
        ("does not add capacity", False, False),
        ("longest request we serve", False, False),
        ("kvgate: ignore[max-model-len-as-capacity] more users, measured", False, False),
        ("8k context", False, False),
        ("AWQ frees VRAM, so a 16k context fits", False, False),
        ("4-bit weights leave room for more users", False, False),
        ("the card has 24 GB", False, False),
    ],
)
def test_what_a_comment_claims(comment: str, capacity: bool, memory: bool) -> None:
    file = SourceFile("a.yaml", f"- --x=1  # {comment}\n")
    span = Span(file, 2, 7)
    assert (claims_capacity(span) is not None, claims_memory(span) is not None) == (capacity, memory)
