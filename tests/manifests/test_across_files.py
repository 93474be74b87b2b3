"""Servers that several files of a tree describe together: each is found once, with what each file says."""

from __future__ import annotations

from textwrap import dedent

import pytest

from kvgate.manifests.read import read_tree
from kvgate.manifests.unit import ServeUnit
from kvgate.source.text import SourceFile

SCRIPT = "#!/bin/bash\nexec vllm serve org/m --max-model-len 4096\n"
COMPOSE = """\
    services:
      llm:
        image: vllm/vllm-openai:v0.10.2
        volumes: [{mount}]
        entrypoint: [bash, {path}]
        deploy: {{resources: {{reservations: {{devices: [{{driver: nvidia, count: 2, capabilities: [gpu]}}]}}}}}}
    """
DEPLOYMENT = """\
    apiVersion: apps/v1
    kind: Deployment
    metadata: {name: llm}
    spec:
      template:
        spec:
          volumes: [{name: s, configMap: {name: scripts}}]
          containers:
            - name: vllm
              image: vllm/vllm-openai:v0.10.2
              command: [bash, /scripts/start.sh]
              volumeMounts: [{name: s, mountPath: /scripts}]
              resources: {limits: {nvidia.com/gpu: 2}}
    """
GENERATOR = "kind: Kustomization\nresources: [d.yaml]\nconfigMapGenerator: [{name: scripts, files: [start.sh]}]\n"


def units(files: dict[str, str]) -> list[ServeUnit]:
    return list(read_tree([SourceFile(path, dedent(text)) for path, text in files.items()]).units)


def words(unit: ServeUnit) -> str:
    return " ".join(("?" if word.unresolved else "") + word.value for word in unit.words)


@pytest.mark.parametrize(
    ("path", "files"),
    [
        ("compose.yaml", {"compose.yaml": COMPOSE.format(mount="./start.sh:/start.sh:ro", path="/start.sh")}),
        ("compose.yaml", {"compose.yaml": COMPOSE.format(mount="./:/opt/llm", path="/opt/llm/start.sh")}),
        ("d.yaml", {"d.yaml": DEPLOYMENT, "kustomization.yaml": GENERATOR}),
        ("run.sh", {"run.sh": "docker run --gpus 2 -v ./start.sh:/s.sh vllm/vllm-openai:v0.10.2 bash /s.sh # vllm\n"}),
    ],
)
def test_a_script_that_a_container_runs_is_that_containers_server(path: str, files: dict[str, str]) -> None:
    (found,) = units({**files, "start.sh": SCRIPT})
    assert (found.path, words(found)) == (path, "org/m --max-model-len 4096")
    assert found.words[0].span.path == "start.sh"
    assert found.image is not None
    assert found.image.value == "vllm/vllm-openai:v0.10.2"
    assert [request.count for request in found.gpu_requests] == [2]


@pytest.mark.parametrize(
    ("runner", "gpus"),
    [
        ("export CUDA_VISIBLE_DEVICES=0,1\nbash start.sh  # vllm\n", 2),
        ("#SBATCH --gres=gpu:4\nsrun bash start.sh  # vllm\n", 4),
    ],
)
def test_a_script_that_gives_another_one_its_gpus_is_where_the_server_is(runner: str, gpus: int) -> None:
    (found,) = units({"run.sh": "#!/bin/bash\n" + runner, "start.sh": SCRIPT})
    assert (found.path, words(found)) == ("run.sh", "org/m --max-model-len 4096")
    assert [request.count for request in found.gpu_requests] == [gpus]


def test_a_script_that_only_runs_another_one_has_no_server_of_its_own() -> None:
    (found,) = units({"run.sh": "#!/bin/bash\n# vllm\nexport LOG=x\nbash start.sh\n", "start.sh": SCRIPT})
    assert found.path == "start.sh"
