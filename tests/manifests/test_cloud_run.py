"""Containers that a command of a cloud or cluster starts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvgate.manifests.cloud_run import PROGRAMS
from kvgate.manifests.container import CLOUD_PROGRAMS
from kvgate.manifests.read import read_tree
from kvgate.manifests.unit import ServeUnit
from kvgate.source.text import SourceFile


def units(text: str) -> list[ServeUnit]:
    return list(read_tree([SourceFile("deploy.sh", text)], None).units)


@pytest.mark.parametrize(
    ("line", "arguments", "gpus", "hints", "environment"),
    [
        (
            'M=org/m; gcloud beta run deploy chat --image vllm/vllm-openai:v0.8.5 --gpu 1 --gpu-type=nvidia-l4 '
            '--set-env-vars HF_HOME=/c,A=b --args="--model=$M","--max-model-len=8192"',
            "--model=org/m --max-model-len=8192", [1], [("nvidia-l4",)], {"HF_HOME": "/c", "A": "b"},
        ),
        (
            "gcloud run deploy chat --image=x/vllm-serve:1 --gpu-type=nvidia-l4 --command=vllm,serve "
            """'--args=^~^org/m~--limit-mm-per-prompt={"image":1,"video":0}'""",
            'org/m --limit-mm-per-prompt={"image":1,"video":0}', [1], [("nvidia-l4",)], {},
        ),
        (
            "gcloud ai models upload --region=r --container-image-uri=vllm/vllm-openai:v0.8.5 "
            "--container-command=python3,-m,vllm.entrypoints.openai.api_server --container-args=--model=org/m,-tp=2",
            "--model=org/m -tp=2", [], [], {},
        ),
        (
            "kubectl run v --image=vllm/vllm-openai:v0.8.5 --env=HF_HOME=/c -n llm -- --model org/m --port 80",
            "--model org/m --port 80", [], [], {"HF_HOME": "/c"},
        ),
        ("kubectl run v --image=x --command -- vllm serve org/m", "org/m", [], [], {}),
        (
            "az container create -g r --name v --image vllm/vllm-openai:v0.8.5 --gpu-count 2 "
            '--command-line "python3 -m vllm.entrypoints.openai.api_server --model org/m"',
            "--model org/m", [2], [], {},
        ),
        (
            "runpodctl create pod --gpuType 'NVIDIA L4' --gpuCount 1 --imageName vllm/vllm-openai:v0.8.5 "
            "--args '--model org/m --max-model-len 4096'",
            "--model org/m --max-model-len 4096", [1], [("NVIDIA L4",)], {},
        ),
        (
            "docker service create --name v --generic-resource NVIDIA-GPU=2 vllm/vllm-openai:v0.8.5 --model org/m",
            "--model org/m", [2], [], {},
        ),
        (
            "docker service create --generic-resource gpu=GPU-1 vllm/vllm-openai:v0.8.5 --model org/m",
            "--model org/m", [1], [], {},
        ),
    ],
)  # fmt: skip
def test_a_container_that_a_command_starts(
    line: str, arguments: str, gpus: list[int], hints: list[tuple[str, ...]], environment: dict[str, str]
) -> None:
    (found,) = units(line + "\n")
    assert [word.value for word in found.words] == arguments.split(" ")
    assert [request.count for request in found.gpu_requests] == gpus
    assert [hint.values for hint in found.node_hints] == hints
    assert {item.name: item.value.value for item in found.environment if item.value} == environment


@pytest.mark.parametrize(
    "line",
    [
        "gcloud run services describe vllm",
        "gcloud run deploy chat --source .",
        "gcloud run deploy router --image x/vllm-router:1 --args=--model=m",
        "kubectl run curl --image=curlimages/curl -- curl http://vllm/v1/models",
        "kubectl logs vllm",
        "az container create --image ollama/ollama --command-line 'ollama serve'",
    ],
)
def test_commands_that_serve_nothing(line: str) -> None:
    assert units(line + "\n") == []


@given(
    st.lists(
        st.sampled_from(["gcloud", "run", "deploy", "--image", "vllm/vllm-openai", "--args", "^", "^^", "--", "="])
    )
)
def test_any_command_line_is_read(words: list[str]) -> None:
    units("vllm " + " ".join(words) + "\n")


def test_every_program_of_the_table_is_looked_for() -> None:
    assert {program.words[0] for program in PROGRAMS} == CLOUD_PROGRAMS
