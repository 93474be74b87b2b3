"""Scripts inside SkyPilot, dstack and pipeline files."""

from __future__ import annotations

from textwrap import dedent

import pytest

from kvgate.hardware.hints import GpuHint, gpu_from_hints
from kvgate.manifests.read import read_tree
from kvgate.manifests.unit import ServeUnit
from kvgate.source.text import SourceFile


def units(text: str, path: str = "f.yaml") -> list[ServeUnit]:
    return list(read_tree([SourceFile(path, dedent(text))]).units)


def words(unit: ServeUnit) -> str:
    return " ".join(("?" if word.unresolved else "") + word.value for word in unit.words)


SKYPILOT = """\
name: llm
envs: {MODEL: org/m, HF_TOKEN: }
resources:
  image_id: docker:vllm/vllm-openai:v0.10.0
  accelerators: H100:8
num_nodes: 2
service: {replica_policy: {min_replicas: 3}}
setup: |
  pip install "vllm==0.10.1"
run: |
  source .venv/bin/activate
  vllm serve $MODEL -tp $SKYPILOT_NUM_GPUS_PER_NODE \\
    -pp $SKYPILOT_NUM_NODES | tee log
"""


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("L4:1", "NVIDIA L4"),
        ("{A100-80GB: 8}", "NVIDIA A100 80GB"),
        ("A100:8", "NVIDIA A100 40GB"),
        ("V100:4", "NVIDIA V100 16GB"),
        ("{L4: 1, A10G: 1}", None),
    ],
)
def test_the_gpu_that_skypilot_is_asked_for(asked: str, expected: str | None) -> None:
    (found,) = units(f"resources: {{accelerators: {asked}}}\nrun: vllm serve org/m\n")
    finding = gpu_from_hints([GpuHint(hint.key, hint.values) for hint in found.node_hints])
    assert (finding.gpu and finding.gpu.name) == expected


def test_skypilot() -> None:
    (found,) = units(SKYPILOT)
    assert (found.id, found.kind, found.span.line) == ("f.yaml/llm", "skypilot", 12)
    assert words(found) == "org/m -tp 8 -pp 2"
    assert found.image is not None
    assert found.image.value == "vllm/vllm-openai:v0.10.0"
    assert found.replicas == 3
    assert [(request.count, request.reason) for request in found.gpu_requests] == [(8, None)]
    assert [(hint.key, hint.values) for hint in found.node_hints] == [("gpu", ("H100",))]
    assert found.requirement is not None
    assert (found.requirement.value, found.requirement.span.line) == ("vllm==0.10.1", 9)


@pytest.mark.parametrize(
    ("written", "count", "names"),
    [
        ("{L4: 8, A100: 4}", None, ("L4", "A100-40GB")),
        ("{L4:1, A10G:1}", 1, ("L4", "A10G")),
        ("[A100:8, H100:8]", 8, ("A100-40GB", "H100")),
        ("T4", 1, ("T4",)),
    ],
)
def test_skypilot_choices(written: str, count: int | None, names: tuple[str, ...]) -> None:
    (found,) = units(SKYPILOT.replace("H100:8", written))
    assert [request.count for request in found.gpu_requests] == [count]
    assert found.node_hints[0].values == names
    assert words(found).startswith("org/m -tp " + (str(count) if count else "?$SKYPILOT"))


@pytest.mark.parametrize(
    ("choices", "count", "names"),
    [
        ("any_of: [{accelerators: 'H100:2'}, {accelerators: {A100: 2}, cloud: gcp}]", 2, ("H100", "A100-40GB")),
        ("ordered: [{accelerators: ['H100:2', 'H200:2']}, {cloud: gcp}]", 2, ("H100", "H200")),
        ("any_of: [{accelerators: 'H100:2'}, {accelerators: 'L4:8'}]", None, ("H100", "L4")),
        ("any_of: [{cloud: gcp}, {cloud: aws}], accelerators: 'T4:4'", 4, ("T4",)),
    ],
)
def test_alternatives_of_skypilot(choices: str, count: int | None, names: tuple[str, ...]) -> None:
    run = "vllm serve org/m -tp $SKYPILOT_NUM_GPUS_PER_NODE"
    (found,) = units(f"resources: {{{choices}}}\nrun: {run}\n")
    assert [request.count for request in found.gpu_requests] == [count]
    assert found.node_hints[0].values == names
    assert words(found) == f"org/m -tp {count or '?$SKYPILOT_NUM_GPUS_PER_NODE'}"


@pytest.mark.parametrize(
    ("gpu", "count", "names"),
    [
        ("80GB:2", 2, ()),
        ("A100:4", 4, ("A100",)),
        ("A100,H100:80GB:2", 2, ("A100", "H100")),
        ("24GB", 1, ()),
        ("24GB:1..2", None, ()),
        ("{name: [A100], count: 2}", 2, ("A100",)),
    ],
)
def test_dstack(gpu: str, count: int | None, names: tuple[str, ...]) -> None:
    text = f"""\
        type: service
        env: [MODEL=org/m]
        commands:
          - pip install vllm
          - vllm serve $MODEL -tp $DSTACK_GPUS_PER_NODE
            --port 8000 # the port
        resources: {{gpu: '{gpu}'}}
        """
    (found,) = units(text if not gpu.startswith("{") else text.replace(f"'{gpu}'", gpu))
    told = count or "?$DSTACK_GPUS_PER_NODE"
    assert (found.kind, found.span.line, words(found)) == ("dstack", 5, f"org/m -tp {told} --port 8000")
    assert [request.count for request in found.gpu_requests] == [count]
    assert tuple(name for hint in found.node_hints for name in hint.values) == names


def test_what_dstack_tells_a_task_about_its_machines() -> None:
    text = """\
        type: task
        nodes: 2
        env: [DSTACK_RUN_NAME=r]
        commands:
          - vllm serve org/m -tp $DSTACK_GPUS_PER_NODE -pp $DSTACK_NODES_NUM --max-num-seqs $DSTACK_GPUS_NUM
        resources: {gpu: H100:8}
        """
    assert words(units(text)[0]) == "org/m -tp 8 -pp 2 --max-num-seqs 16"
    # what the task says itself counts
    text = text.replace("DSTACK_RUN_NAME=r", "DSTACK_GPUS_NUM=4")
    assert words(units(text)[0]) == "org/m -tp 8 -pp 2 --max-num-seqs 4"


def test_github_workflow() -> None:
    text = """\
        on: push
        env: {MODEL: org/m, LEN: "1024"}
        jobs:
          test:
            runs-on: ubuntu-latest
            steps:
              - uses: actions/checkout@v4
              - name: serve
                env: {LEN: "2048"}
                run: |
                  nohup hatch run -- vllm serve ${{ env.MODEL }} \\
                    --max-model-len $LEN --seed ${{ matrix.seed }} &
              - run: vllm bench serve --model m
        """
    (found,) = units(text)
    assert (found.id, found.kind, found.span.line) == ("f.yaml/test/serve", "github-workflow", 11)
    assert words(found) == "org/m --max-model-len 2048 --seed ?${{ matrix.seed }}"
    assert found.words[0].span.text == "${{ env.MODEL }}"


@pytest.mark.parametrize(
    ("written", "word"),
    [
        ("${{ inputs.model }}", "org/given"),
        ("${{ github.event.inputs.model }}", "org/given"),
        ("${{ inputs.none || 'org/m' }}", "org/m"),
        ("${{ inputs.none || vars.NONE || env.MODEL }}", "org/env"),
        ("org/${{ matrix.one }}", "org/7b"),
        ("${{ vars.SEED || 3 }}", "3"),
        ("${{ env.FROM_INPUT }}", "org/given-7b"),
        ("${{ inputs.none }}", "?${{ inputs.none }}"),
        ("${{ matrix.two || 'x' }}", "?${{ matrix.two || 'x' }}"),
        ("${{ inputs.model && 'x' || 'y' }}", "?${{ inputs.model && 'x' || 'y' }}"),
        ("${{ secrets.M || 'x' }}", "?${{ secrets.M || 'x' }}"),
    ],
)
def test_expressions_of_a_workflow(written: str, word: str) -> None:
    text = f"""\
        on:
          workflow_call:
            inputs:
              model: {{type: string, default: org/given}}
              none: {{type: string}}
        env: {{MODEL: org/env}}
        jobs:
          test:
            strategy: {{matrix: {{one: [7b], two: [a, b]}}}}
            env: {{FROM_INPUT: "${{{{ inputs.model }}}}-${{{{ matrix.one }}}}"}}
            steps:
              - run: vllm serve {written} --port 1 &
        """
    (found,) = units(text)
    assert words(found) == f"{word} --port 1"


def test_a_launcher_that_a_step_writes_out() -> None:
    text = """\
        jobs:
          build:
            steps:
              - run: |
                  cat > bin/run-server << 'EOF'
                  #!/bin/bash
                  exec python3 -m vllm.entrypoints.openai.api_server "$@"
                  EOF
                  chmod +x bin/run-server
        """
    assert units(text) == []
    (found,) = units(text.replace("chmod +x", "./bin/run-server --model org/m &\n                  chmod +x"))
    assert words(found) == "--model org/m"


def test_the_other_ranks_of_a_server_that_a_script_leads() -> None:
    text = """\
        resources: {accelerators: H100:8}
        num_nodes: 2
        run: |
          if [ "$SKYPILOT_NODE_RANK" == "0" ]; then
            vllm serve org/m --data-parallel-size 2
          else
            vllm serve org/m --data-parallel-size 2 --headless
          fi
        """
    (found,) = units(text)
    assert words(found) == "org/m --data-parallel-size 2"
    # alone, and beside another model, it is all that is known of its server
    (found,) = units(text.replace("vllm serve org/m --data-parallel-size 2\n", "true\n", 1))
    assert words(found).endswith("--headless")
    assert len(units(text.replace("org/m", "org/n", 1))) == 2
    # so is one that is told its number among the nodes, unless that may be the first
    assert len(units(text.replace("--headless", "--node-rank 1"))) == 1
    assert len(units(text.replace("--headless", "--node-rank 0"))) == 2
    assert len(units(text.replace("--headless", "--node-rank $SKYPILOT_NODE_RANK"))) == 2


def test_the_inputs_of_an_action() -> None:
    text = """\
        name: start
        inputs:
          length: {description: tokens, default: "2048"}
        runs:
          using: composite
          steps:
            - shell: bash
              run: docker run -d vllm/vllm-openai:v0.9.0 --model org/m --max-model-len ${{ inputs.length }}
        """
    (found,) = units(text, "action.yml")
    assert words(found) == "--model org/m --max-model-len 2048"


def test_services_beside_the_jobs_of_a_pipeline() -> None:
    text = """\
        e2e:
          services:
            - name: vllm/vllm-openai:v0.9.0
              alias: llm
              command: [--model, org/m, --max-model-len, "1024"]
            - postgres
          script: [pytest]
        """
    (found,) = units(text, ".gitlab-ci.yml")
    assert (found.id, found.span.line) == (".gitlab-ci.yml/e2e.services", 3)
    assert words(found) == "--model org/m --max-model-len 1024"
    text = """\
        jobs:
          e2e:
            services:
              llm: {image: "vllm/vllm-openai:v0.9.0", command: "--model org/m"}
              other: {image: "vllm/vllm-openai:v0.9.0", options: --gpus all}
            steps: [{run: pytest}]
        """
    assert [(found.id, words(found)) for found in units(text)] == [("f.yaml/e2e.services.llm", "--model org/m")]


def test_gitlab_pipeline() -> None:
    text = """\
        variables: {MODEL: org/m}
        serve:
          image: {name: "vllm/vllm-openai:v0.10.0"}
          before_script: [export SEED=3]
          script:
            - vllm serve $MODEL --seed $SEED
        """
    (found,) = units(text, ".gitlab-ci.yml")
    assert (found.id, found.kind, words(found)) == (".gitlab-ci.yml/serve", "gitlab-ci", "org/m --seed 3")
    assert found.image is not None
    assert found.image.value == "vllm/vllm-openai:v0.10.0"


def test_shapes_that_these_formats_refuse() -> None:
    for text in (
        "run: vllm serve m\n",
        "run: [vllm serve m]\nresources: x\n",
        "jobs: {a: {steps: [vllm, {run: [vllm]}, {run: 'echo vllm'}]}}\n",
        "type: service\ncommands: vllm serve m\n",
        "stages: [a]\nx: {script: {a: vllm}}\n",
        "jobs: vllm\n",
    ):
        assert [unit.kind for unit in units(text) if unit.kind != "command"] == []


def test_objects_in_the_here_documents_of_a_step() -> None:
    text = """\
        on: push
        jobs:
          e2e:
            runs-on: ubuntu-latest
            steps:
              - run: |
                  cat <<EOF | kubectl apply -f -
                  apiVersion: kaito.sh/v1beta1
                  kind: Workspace
                  metadata: {name: w}
                  resource: {instanceType: Standard_NC24ads_A100_v4}
                  inference: {preset: {name: mistral-7b-instruct}}
                  EOF
              - run: |
                  kubectl apply -f - <<'END'
                  apiVersion: v1
                  kind: Pod
                  metadata: {name: p}
                  spec:
                    containers:
                      - image: vllm/vllm-openai:v0.9.0
                        args: [--model, org/m]
                  END
                  vllm serve org/own --port 1 &
              - run: |
                  cat <<EOF
                  kind: Pod, as vllm says
                  EOF
        """
    found = list(read_tree([SourceFile(".github/workflows/e2e.yml", dedent(text))]).units)
    assert sorted((unit.kind, unit.span.line, unit.words[-1].value) for unit in found) == [
        ("Pod", 21, "org/m"),
        ("Workspace", 12, "mistral-7b-instruct"),
        ("github-workflow", 24, "1"),
    ]
