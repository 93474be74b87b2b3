"""Whatever stands in a file: no reader raises, every span lies in its file, and the time is bounded.

Each reader gets small files of its own format, cut, doubled and stirred by Hypothesis.
"""

from __future__ import annotations

import time
from pathlib import Path
from textwrap import dedent

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvgate.manifests.collect import collect
from kvgate.manifests.read import read_tree
from kvgate.source.text import SourceFile, Span, Text

MAX_SECONDS = 20.0  # of processor time; a stirred file takes milliseconds

COMPOSE = """\
    include: [other.yaml, {path: [a.yaml, b.yaml], env_file: .env}]
    x-base: &base {ipc: host, environment: {A: "${A:-${B:-c}}"}}
    services:
      vllm:
        <<: *base
        extends: {file: base.yml, service: engine}
        build: {context: ./srv, dockerfile: Dockerfile, target: run}
        image: vllm/vllm-openai:${TAG:-v0.10.0}
        command: --model org/m --max-model-len 8k
        configs: [{source: c, target: /c.yaml}]
        deploy: {resources: {reservations: {devices: [{capabilities: [gpu], device_ids: ["0", "1"]}]}}}
    configs: {c: {content: "max-model-len: 1"}}
    """
DOCKERFILE = """\
    ARG V=v0.10.0
    FROM vllm/vllm-openai:${V} AS run
    ENV MODEL=org/m LEN=10
    COPY start.sh /start.sh
    ENTRYPOINT ["/bin/sh", "-c", "exec vllm serve $MODEL --max-model-len $LEN"]
    CMD ["--seed", "1"]
    """
SHELL = """\
    HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
    source "${HERE}/a.env"
    ARGS=(--model org/m); ARGS+=(--seed=1)
    while [[ $# -gt 0 ]]; do case "$1" in -m) MODEL="$2"; shift 2;; *) break;; esac; done
    ID=$(docker run -d --gpus '"device=0,1"' -v $PWD:/w -e A=b vllm/vllm-openai:v0.10.0 "${ARGS[@]}")
    f() { cd /x && ./y.sh "$@"; }
    cat <<EOF | kubectl apply -f -
    apiVersion: v1 # vllm
    kind: Pod
    EOF
    for n in {1..3}; do vllm serve "${MODEL:-m}" --port $((8000 + n)) & done
    """
WORKLOAD = """\
    apiVersion: apps/v1
    kind: Deployment
    metadata: {name: d, annotations: {kvgate.dev/gpu: L4}}
    spec:
      replicas: 2
      template:
        spec:
          nodeSelector: {gpu: l4}
          containers:
            - name: vllm
              image: vllm/vllm-openai:v0.10.0
              command: [bash, -c, "cd /w && ./run.sh; vllm serve $(MODEL) --max-model-len=${LEN:-1}"]
              env: [{name: MODEL, value: org/m}]
              resources: {limits: {nvidia.com/gpu: 2}}
    """
CUSTOM = """\
    apiVersion: llm.example.dev/v1
    kind: ServedModel
    metadata: {name: m}
    spec:
      model: {name: org/m}
      resources: {gpu: {count: 2}}
      serving: {tensorParallelism: 2, vllmArgs: [--max-model-len, "8192"]}
    ---
    apiVersion: kaito.sh/v1alpha1
    kind: MultiRoleInference
    metadata: {name: k}
    spec: {model: {name: phi}, roles: [{type: decode, replicas: 2, instanceType: X}]}
    ---
    apiVersion: kubeai.org/v1
    kind: Model
    spec: {url: "hf://org/m", engine: VLLM, resourceProfile: "nvidia-gpu-l4:2", args: [--seed=1]}
    ---
    apiVersion: ray.io/v1
    kind: RayService
    spec:
      serveConfigV2: |
        applications:
          - args: {llm_configs: [{model_loading_config: {model_id: m}, engine_kwargs: {max_model_len: 1}}]}
    ---
    apiVersion: v1
    kind: ConfigMap
    data:
      vllm.yaml: |
        engine_config: {model_id: m, engine_kwargs: {max_num_seqs: 1}}
    """
KUSTOMIZATION = """\
    kind: Kustomization
    resources: [d.yaml]
    patches:
      - target: {kind: Deployment}
        patch: |
          - {op: replace, path: /spec/template/spec/containers/0/args/1, value: --max-model-len=2}
      - patch: |
          kind: Deployment
          metadata: {name: d}
          spec: {replicas: 3}
    """
TEMPLATE = """\
    {{- $x := .Values.a | default "b" }}
    kind: Deployment
    metadata: {name: {{ include "n" . | quote }}}
    spec:
      template:
        spec:
          containers:
            - image: "vllm/vllm-openai:{{ .Values.tag }}"
              args:
                {{- range $k, $v := .Values.extra }}
                - --{{ $k }}={{ $v }}
                {{- end }}
                {{- if and .Values.m (gt (int .Values.n) 1) }}- --model={{ .Values.m }}{{ end }}
    """
VALUES = """\
    tag: v0.10.0
    extra: {max-model-len: 1}
    vllm: {model: org/m, maxModelLen: 8192, gpuMemoryUtilization: 0.9, args: [--seed, 1]}
    servingEngineSpec: {modelSpec: [{modelURL: org/m, vllmConfig: {extraArgs: ["--x", '{"a": "${B}"}']}}]}
    """
PYTHON = """\
    import os, subprocess
    from vllm import LLM, AsyncEngineArgs
    from ray.serve.llm import LLMConfig
    options = dict(model_loading_config=dict(model_id="m"), engine_kwargs={"max_model_len": 1})
    if os.environ.get("X", "y"):
        options["a"] = f"{options}"
    LLMConfig(**options)
    def make(model="org/m", *rest, **more):
        return AsyncEngineArgs(model=model, max_model_len=8 * 1024, **more)
    LLM(make, tensor_parallel_size=int(os.getenv("TP", "2")))
    args = ["vllm", "serve", "m"] + ["--seed"]
    args.append(str(1))
    subprocess.run(" ".join(args), shell=True)
    client.V1Container(image="vllm/vllm-openai", args=args)
    """
SYSTEMD = """\
    [Unit]
    Description=vllm %i
    [Service]
    Environment="MODEL=org/m" LEN=1
    EnvironmentFile=-/etc/vllm.env
    ExecStart=/usr/bin/docker run --gpus all vllm/vllm-openai --model ${MODEL} \\
      --max-model-len=$LEN
    [Container]
    Image=vllm/vllm-openai
    Exec=--model m
    """
MAKE = """\
    MODEL ?= org/m
    serve: ## vllm
    \tvllm serve $(MODEL) --max-model-len $${LEN} \\
    \t  --seed 1
    \tdocker compose -f a.yaml -f b.yaml up
    """
BATCH = """\
    @echo off
    set MODEL=org/m
    vllm serve %MODEL% ^
      --max-model-len 1
    """
PIPELINE = """\
    on: push
    env: {MODEL: org/m}
    jobs:
      a:
        runs-on: gpu
        steps:
          - run: |
              vllm serve $MODEL --max-model-len ${{ inputs.x }} &
          - run: docker run vllm/vllm-openai --model m
    """
SKY = """\
    type: service
    name: x
    resources: {accelerators: H100:2, gpu: H100:8}
    envs: {MODEL: org/m}
    service: {replicas: 2}
    commands: [vllm serve $MODEL --tensor-parallel-size $DSTACK_GPUS_NUM]
    run: vllm serve $MODEL --tensor-parallel-size $SKYPILOT_NUM_GPUS_PER_NODE
    """
CONFIG = "model: org/m\nmax-model-len: 8192\nserved-model-name: [a, b]\ncompilation-config: {level: 3}\n"

FORMATS = {
    "compose.yaml": COMPOSE,
    "Dockerfile": DOCKERFILE,
    "run.sh": SHELL,
    "d.yaml": WORKLOAD,
    "custom.yaml": CUSTOM,
    "kustomization.yaml": KUSTOMIZATION,
    "c/templates/t.yaml": TEMPLATE,
    "c/values-prod.yaml": VALUES,
    "serve.py": PYTHON,
    "vllm.service": SYSTEMD,
    "Makefile": MAKE,
    "run.bat": BATCH,
    ".github/workflows/a.yml": PIPELINE,
    "task.yaml": SKY,
    "vllm-config.yaml": CONFIG,
    "compose.yml.j2": COMPOSE.replace("command:", "{% if x %}command:").replace("configs: [", "{% endif %}configs: ["),
}
PIECES = [
    "\t", "\n", "\r\n", "'", '"', "`", "\\", "\\\n", "$", "${", "}", "$((", "$(", ")", "{{", "}}", "{%", "%}", "[",
    "]", "{", "- ", ": ", "|", ">", "&a ", "*a", "<<: *a", "#", "---\n", "...", "!!binary ", "!reset ", "null", "~",
    "--model", "--", "<<EOF\n", "EOF\n", "if true; then\n", "fi\n", "done", "case x in\n", "esac\n", "é", "\ufeff",
    "\x00", "\u2028", "𝛑", " " * 40, "9" * 40, "vllm serve m", "lambda: ", "def f(:\n", "f'{x}'", "@", ",", "=", "\x85",
]  # fmt: skip


@st.composite
def stirred(draw: st.DrawFn, text: str) -> str:
    """A text with some of it cut out, doubled, moved or replaced."""
    for _ in range(draw(st.integers(0, 6))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.integers(0, 60)))
        how = draw(st.sampled_from(("cut", "double", "insert", "replace", "indent")))
        if how == "cut":
            text = text[:start] + text[end:]
        elif how == "double":
            text = text[:end] + text[start:end] * draw(st.integers(1, 3)) + text[end:]
        elif how == "indent":
            text = text[:start] + text[start:end].replace("\n", "\n  ") + text[end:]
        else:
            text = text[:start] + draw(st.sampled_from(PIECES)) + text[end if how == "replace" else start :]
    return text


def inside(span: Span) -> bool:
    return 0 <= span.start <= span.end <= len(span.file.text)


def pieces_inside(text: Text) -> bool:
    return sum(piece.length for piece in text.pieces) == len(text) and all(inside(piece.span) for piece in text.pieces)


def hold(files: list[SourceFile]) -> None:
    start = time.process_time()
    found = read_tree(files, named=frozenset(file.path for file in files))
    assert time.process_time() - start < MAX_SECONDS
    for unit in found.units:
        assert unit.path in {file.path for file in files}
        assert inside(unit.span)
        words = [
            *unit.words,
            *(word for word in (unit.image, unit.storage_model, unit.requirement) if word is not None),
        ]
        assert all(pieces_inside(word.text) for word in words)
        assert all(inside(item.span) for item in (*unit.gpu_requests, *unit.node_hints, *unit.environment))
        assert unit.replicas is None or unit.replicas_span is None or inside(unit.replicas_span)
    assert all(inside(item.span) for item in found.unread)
    assert len({unit.id for unit in found.units}) == len(found.units)


@pytest.mark.parametrize("path", FORMATS)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data())
def test_a_stirred_file_is_read_to_some_end(path: str, data: st.DataObject) -> None:
    hold([SourceFile(path, data.draw(stirred(dedent(FORMATS[path]))))])


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data())
def test_a_tree_of_stirred_files_is_read_to_some_end(data: st.DataObject) -> None:
    paths = data.draw(st.lists(st.sampled_from(sorted(FORMATS)), min_size=2, max_size=6, unique=True))
    files = [SourceFile(path, data.draw(stirred(dedent(FORMATS[path])))) for path in sorted(paths)]
    chart = SourceFile("c/Chart.yaml", "name: c\n")
    hold([*files, *([chart] if any(path.startswith("c/") for path in paths) else [])])


@settings(max_examples=60, deadline=None)
@given(path=st.sampled_from(sorted(FORMATS)), text=st.text(max_size=300))
def test_any_text_is_read_to_some_end(path: str, text: str) -> None:
    hold([SourceFile(path, "vllm serve m\n" + text)])


def test_files_that_name_each_other_in_circles(tmp_path: Path) -> None:
    texts = {
        "a.yaml": "include: [b.yaml]\nservices: {v: {image: vllm/vllm-openai, extends: {file: b.yaml, service: v}}}\n",
        "b.yaml": "include: [a.yaml]\nservices: {v: {image: vllm/vllm-openai, extends: {file: a.yaml, service: v}}}\n",
        "run.sh": "source ./other.sh\nbash run.sh\nvllm serve m\n",
        "other.sh": "source ./run.sh\n. other.sh\n",
        "up.sh": "docker compose -f a.yaml -f b.yaml up\ndocker compose -f b.yaml -f a.yaml up\n",
        "k/kustomization.yaml": "resources: [../k, ../l]\npatches: [{path: p.yaml}]\n# vllm\n",
        "l/kustomization.yaml": "resources: [../k]\npatches: [{path: ../k/p.yaml}]\n# vllm\n",
        "k/p.yaml": "kind: Deployment\nmetadata: {name: d}\nspec: {replicas: 1}\n# vllm\n",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    hold(list(collect([tmp_path], tmp_path).files))


@pytest.mark.parametrize("path", sorted(FORMATS.keys() - {"kustomization.yaml"}))
def test_the_file_that_is_stirred_holds_a_server(path: str) -> None:
    assert read_tree([SourceFile(path, dedent(FORMATS[path]))], named=frozenset({path})).units
