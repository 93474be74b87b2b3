"""Which command lines and images start vLLM, and which only look like it."""

from __future__ import annotations

import pytest

from kvgate.manifests.entrypoint import (
    find_entry,
    is_other_program,
    is_vllm_image,
    repository_of,
    speaks_vllm,
    stands_for_vllm_image,
    takes_engine_arguments,
)
from kvgate.source.text import words_of_command_line

API_SERVER = "vllm.entrypoints.openai.api_server"


@pytest.mark.parametrize(
    ("line", "name", "rest"),
    [
        ("vllm serve m --a", "vllm serve", "m --a"),
        ("/opt/venv/bin/vllm serve m", "vllm serve", "m"),
        ("/launch.sh --x vllm serve m", "vllm serve", "m"),
        ("python -m vllm.entrypoints.openai.api_server --model m", API_SERVER, "--model m"),
        ("python3 -u -m vllm.entrypoints.openai.api_server --model m", API_SERVER, "--model m"),
        ("/usr/bin/python3.12 -m vllm.entrypoints.api_server -tp 2", "vllm.entrypoints.api_server", "-tp 2"),
        ("python3 -m vllm.entrypoints.grpc_server --model m", "vllm.entrypoints.grpc_server", "--model m"),
        ("python3 -m vllm.entrypoints.cli.main serve m", "vllm serve", "m"),
        ("python3 -m vllm serve m", "vllm serve", "m"),
        ("python /opt/vllm/vllm/entrypoints/openai/api_server.py --model m", API_SERVER, "--model m"),
        ("python3 -m lmc.vllm.entrypoints.openai.api_server --model m", API_SERVER, "--model m"),
        ("uv run --with vllm -- vllm serve m", "vllm serve", "m"),
        ("python3 -m dynamo.vllm --model m", "dynamo.vllm", "--model m"),
        ("paddleocr genai_server --model_name m", "genai_server", "--model_name m"),
        ("paddlex_genai_server --model_name m", "genai_server", "--model_name m"),
        ("./bin/vllm-server --model m --max-model-len 1", "vllm-server", "--model m --max-model-len 1"),
        ("vllm_openai_server --model=m --swap-space 1", "vllm-server", "--model=m --swap-space 1"),
        ("mineru-vllm-server --port 1", "mineru-vllm-server", "--port 1"),
        ("mineru-openai-server --engine vllm", "mineru-openai-server", "--engine vllm"),
        ("mineru-kit vlm-server --engine vllm", "vlm-server", "--engine vllm"),
        ("qwen-asr-serve m --a", "qwen-asr-serve", "m --a"),
        ("trl vllm-serve --model m", "trl vllm-serve", "--model m"),
    ],
)  # fmt: skip
def test_entry_points(line: str, name: str, rest: str) -> None:
    words = words_of_command_line(line.split())
    entry = find_entry(words)
    assert entry is not None
    assert entry.point.name == name
    assert [word.value for word in words[entry.after :]] == rest.split()


@pytest.mark.parametrize(
    "line",
    [
        "systemctl restart vllm-server --model m --max-model-len 1",
        "vllm-server --model m --port 1",
        "vllm-server restart --max-model-len 1",
        "vllm-server.sh --model m --max-model-len 1",
        "vllm bench serve --model m",
        "vllm chat --url x",
        "vllm",
        "pip install vllm serve",
        "echo vllm serve m",
        "pkill -f vllm serve",
        "python -m sglang.launch_server --model-path m",
        "python -m vllm.entrypoints.cli.main bench",
        "python -m vllm_router.app --port 8001",
        "python -m fastchat.serve.vllm_worker --model-path m",
        "python serve.py vllm",
        "text-generation-launcher --model-id m",
        "llama-server -m model.gguf",
        "ray start --head",
        "",
    ],
)
def test_other_programs(line: str) -> None:
    assert find_entry(words_of_command_line(line.split())) is None


@pytest.mark.parametrize(
    ("image", "vllm", "engine", "other"),
    [
        ("vllm/vllm-openai:v0.10.0", True, True, False),
        ("docker.io/vllm/vllm-openai@sha256:abc", True, True, False),
        ("registry:5000/team/vllm-openai-ubi9:0.4.2", True, True, False),
        ("vllm-openai", True, True, False),
        ("vllm/vllm-tpu:nightly", True, True, False),
        ("registry.redhat.io/rhaiis/vllm-cuda-rhel9:3.2", True, True, False),
        ("rocm/vllm:latest", True, False, False),
        ("local/my-vllm:1", True, False, False),
        ("team/llm:vllm-arm64", True, False, False),
        ("ghcr.io/vllm-project/semantic-router/extproc:latest", False, False, False),
        ("lmcache/lmstack-router:latest", False, False, True),
        ("vllm/vllm-router:1", False, False, True),
        ("team/vllm-swap:local", False, False, True),
        ("team/vllm-manager:1", False, False, True),
        ("registry.example/vllm-studio", False, False, True),
        ("ghcr.io/llm-d/llm-d-inference-sim:v0.5", False, False, True),
        ("lmsysorg/sglang:v0.4", False, False, True),
        ("ghcr.io/ggml-org/llama.cpp:server-cuda", False, False, True),
        ("ghcr.io/huggingface/text-generation-inference:3", False, False, True),
        ("nginx:alpine", False, False, False),
    ],
)
def test_images(image: str, vllm: bool, engine: bool, other: bool) -> None:
    assert (is_vllm_image(image), takes_engine_arguments(image), is_other_program(image)) == (vllm, engine, other)


@pytest.mark.parametrize(
    ("image", "vllm"),
    [
        ("${VLLM_IMAGE}", True),
        ("$VLLM_IMAGE", True),
        ("${VLLM_IMAGE:?set it}", True),
        ("${VLLM_ROUTER_IMAGE}", False),
        ("${VLLM_REGISTRY}/nginx", False),
        ("${IMAGE}", False),
        ("vllm", False),
    ],
)
def test_images_that_are_variables(image: str, vllm: bool) -> None:
    assert stands_for_vllm_image(image) is vllm


def test_repository() -> None:
    assert repository_of("localhost:5000/a/b:1.2@sha256:00") == "localhost:5000/a/b"
    assert repository_of("a") == "a"


@pytest.mark.parametrize(
    ("line", "named", "expected"),
    [
        ("--model m", True, True),
        ("--model m", False, False),
        ("--model m --tensor-parallel-size 2 --max_model_len=8", False, True),
        ("--port=8000 --vllm-port=8200 --data-parallel-size=2 --kv-connector=x", True, False),
        ("--max-model-len=1200", True, True),
        ("--max-model-len=1200", False, False),
        ("--config.file=/etc/x", True, False),
    ],
)
def test_arguments_alone(line: str, named: bool, expected: bool) -> None:
    assert speaks_vllm(words_of_command_line(line.split()), named=named) is expected
