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


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        # a command puts one file over the other: the server has what both say, once
        ("docker compose -f compose.yaml -f compose.gpu.yaml up -d vllm", [("compose.gpu.yaml", [2])]),
        ("docker compose up -d vllm", [("compose.yaml", [])]),
    ],
)
def test_a_compose_file_that_only_adds_gpus(command: str, expected: list[tuple[str, list[int]]]) -> None:
    files = {
        "compose.yaml": "services:\n  llm:\n    image: vllm/vllm-openai:v0.10.2\n    command: --model org/m\n",
        "compose.gpu.yaml": "services:\n  llm:\n    gpus: [{count: 2}]\n",
        "up.sh": f"#!/bin/bash\n{command}\n",
    }
    found = units(files)
    assert [(unit.path, [request.count for request in unit.gpu_requests]) for unit in found] == expected
    assert words(found[0]) == "--model org/m"


def test_a_dockerfile_in_small_letters_is_what_compose_builds() -> None:
    files = {
        "compose.yaml": "services:\n  llm:\n    build: .\n",
        "dockerfile": 'FROM vllm/vllm-openai:v0.10.2\nCOPY start.sh /s.sh\nENTRYPOINT ["bash", "/s.sh"]\n',
        "start.sh": SCRIPT,
    }
    (found,) = units(files)
    assert (found.path, words(found)) == ("compose.yaml", "org/m --max-model-len 4096")


def test_a_role_that_leaves_the_script_starts_no_server() -> None:
    script = """\
        #!/bin/bash
        if [ "$ROLE" = worker ]; then
          exec ray start --address "$HEAD" --block
        fi
        exec vllm serve org/m --tensor-parallel-size 2
        """
    service = "  {0}:\n    image: vllm/vllm-openai:v0.10.2\n    volumes: [./start.sh:/s.sh]\n"
    service += "    entrypoint: [bash, /s.sh]\n    environment: [ROLE={0}]\n"
    compose = "services:\n" + service.format("head") + service.format("worker")
    (found,) = units({"compose.yaml": compose, "start.sh": script})
    assert (found.id, words(found)) == ("compose.yaml/head", "org/m --tensor-parallel-size 2")


def test_a_program_that_hands_on_a_file_beside_it_is_no_second_server() -> None:
    program = """\
        import json
        from vllm.engine.arg_utils import AsyncEngineArgs

        class Model:
            def initialize(self, folder):
                with open(folder + "/model.json") as file:
                    config = json.load(file)
                self.arguments = AsyncEngineArgs(**config)
        """
    config = '{"model": "org/m", "gpu_memory_utilization": 0.8, "max_model_len": 4096}'
    (found,) = units({"repo/m/1/model.json": config, "repo/m/1/model.py": program})
    assert (found.path, words(found)) == (
        "repo/m/1/model.json",
        "--model org/m --gpu-memory-utilization 0.8 --max-model-len 4096",
    )
    # without the file it stays what it is
    (found,) = units({"repo/m/1/model.py": program})
    assert words(found) == "?config"


def test_the_runtime_of_a_service_that_an_overlay_moves() -> None:
    runtime = """\
        apiVersion: serving.kserve.io/v1alpha1
        kind: ServingRuntime
        metadata: {name: cuda, namespace: base}
        spec:
          containers:
            - name: kserve-container
              image: vllm/vllm-openai:v0.10.2
              command: [python, -m, vllm.entrypoints.openai.api_server]
              args: [--max-num-seqs=8, "--served-model-name={{.Name}}", "{{.Other}}"]
        """
    service = """\
        apiVersion: serving.kserve.io/v1beta1
        kind: InferenceService
        metadata: {name: chat, namespace: base}
        spec: {predictor: {model: {modelFormat: {name: vLLM}, runtime: cuda, storageUri: "hf://org/m"}}}
        """
    overlay = """\
        kind: Kustomization
        namespace: prod
        resources: [../base]
        patches:
          - target: {kind: InferenceService, name: chat}
            patch: "[{op: add, path: /spec/predictor/minReplicas, value: 2}]"
        """
    files = {
        "base/kustomization.yaml": "kind: Kustomization\nresources: [r.yaml, s.yaml]\n",
        "base/r.yaml": runtime,
        "base/s.yaml": service,
        "prod/kustomization.yaml": overlay,
    }
    (found,) = units(files)
    assert (found.path, found.namespace, found.replicas) == ("prod/kustomization.yaml", "prod", 2)
    # KServe puts the name of the service into what its runtime says
    assert words(found) == "--max-num-seqs=8 --served-model-name=chat ?{{.Other}}"
    assert found.image is not None
    assert found.image.value == "vllm/vllm-openai:v0.10.2"


@pytest.mark.parametrize("name", ["serve.yaml.tpl", "serve.template.yaml"])
def test_a_template_that_is_no_yaml_is_said_to_be_one(name: str) -> None:
    text = "resources:\n  ports: {port}\n{region_block}\n\nrun: |\n  vllm serve org/m\n"
    reading = read_tree([SourceFile(name, text)])
    assert [(found.rule, found.serves) for found in reading.unread] == [(None, True)]


def test_a_script_that_only_hands_on_what_the_container_says() -> None:
    files = {
        "compose.yaml": "services:\n  llm:\n    build: .\n    command: [org/m, --max-num-seqs=8]\n",
        "Dockerfile": 'FROM vllm/vllm-openai:v0.10.2\nCOPY entry.sh /entry.sh\nENTRYPOINT ["/entry.sh"]\n',
        "entry.sh": '#!/bin/sh\nexport TOKEN=$(cat /run/secrets/token)\nexec vllm serve "$@"\n',
    }
    (found,) = units(files)
    assert (found.path, words(found)) == ("compose.yaml", "org/m --max-num-seqs=8")
    # by itself it is all there is
    (found,) = units({"entry.sh": files["entry.sh"]})
    assert (found.path, words(found)) == ("entry.sh", "?$@")


@pytest.mark.parametrize(
    "text",
    [
        # a plan of measurements, the record of one, a report
        "config_id: a\nexperiment: {step: 1}\nmodel: {id: org/m}\nruntime: {image: vllm, max_model_len: 8192,"
        " gpu_memory_utilization: 0.2}\nworkload: {name: chat}\nsweep: {concurrency: [1]}\n",
        "run_id: r\ntimestamp_utc: t\nexperiment: {}\nconfiguration: {model: {id: org/m}, runtime: {image: vllm, "
        "max_model_len: 8192, gpu_memory_utilization: 0.2}}\n",
        "version: 1\nscenario: {platform: {engine: [{name: vllm, args: {--max-num-seqs: 1, --max-model-len: 8}}]},"
        " model: {name: org/m}}\nmetrics: {latency: {}}\n",
    ],
)
def test_what_plans_or_records_measurements_is_no_server(text: str) -> None:
    assert units({"benchmarks/vllm.yaml": text}) == []


@pytest.mark.parametrize(("kind", "count"), [("ModelServer", 1), ("ModelPromotionRequest", 0), ("ModelReports", 0)])
def test_objects_that_ask_for_a_model_serve_none(kind: str, count: int) -> None:
    text = f"apiVersion: models.example.com/v1\nkind: {kind}\nmetadata: {{name: chat}}\n"
    text += "spec: {modelId: org/m, runtime: vllm, vllm: {maxModelLen: 8192, gpuMemoryUtilization: 0.9}}\n"
    assert len(units({"m.yaml": text})) == count


def test_a_kind_of_the_engines_name_with_a_model_and_machines_serves_it() -> None:
    text = "apiVersion: models.example.com/v1\nkind: %s\nmetadata: {name: chat}\nspec: %s\n"
    spec = "{modelId: org/m, replicas: 2, resources: {limits: {nvidia.com/gpu: '2'}}}"
    (found,) = units({"m.yaml": text % ("VLLMModel", spec)})
    assert (found.id, words(found), found.replicas) == ("VLLMModel/default/chat", "--model org/m", 2)
    assert [request.count for request in found.gpu_requests] == [2]
    assert units({"m.yaml": text % ("VLLMRouter", "{replicas: 1, image: x/vllm-router}")}) == []
    assert units({"m.yaml": text % ("VLLMModelCache", spec)}) == []


def test_a_template_is_parsed_once_for_all_installations_of_its_chart(monkeypatch: pytest.MonkeyPatch) -> None:
    from kvgate.manifests.helm import chart

    parsed: list[str] = []
    parse = chart.parse_template
    monkeypatch.setattr(chart, "parse_template", lambda text: (parsed.append(text), parse(text))[1])
    template = DEPLOYMENT.replace("command: [bash, /scripts/start.sh]", 'args: ["--model={{ .Values.model }}"]')
    files = {
        "c/Chart.yaml": "name: c\nversion: 1\n",
        "c/values.yaml": "model: org/own\n",
        "c/templates/d.yaml": dedent(template),
        **{f"c/values-{number}.yaml": f"model: org/m{number}\n" for number in range(9)},
    }
    found = {unit.path: words(unit) for unit in units(files)}
    assert found["c/values-8.yaml"] == "--model=org/m8"
    assert len(found) == 10
    assert len(parsed) == 1


def test_values_that_do_not_speak_of_vllm_belong_to_a_chart_that_does() -> None:
    template = DEPLOYMENT.replace("command: [bash, /scripts/start.sh]", 'args: ["--model={{ .Values.model }}"]')
    template = dedent(template).replace("nvidia.com/gpu: 2", "nvidia.com/gpu: {{ .Values.gpus }}")
    files = {
        "c/Chart.yaml": "name: c\nversion: 1\n",
        "c/values.yaml": "model: org/own\ngpus: 1\n",
        "c/templates/d.yaml": template,
        "c/values-prod.yaml": "gpus: 4\n",
        "c/env/stage.yaml": "gpus: 3\n",
        "apps/big.yaml": "gpus: 8\n",
        "apps/install.sh": "helm upgrade --install big ../c -f big.yaml\n",
        "other/values-x.yaml": "gpus: 5\nsize: 1\n",
    }
    found = units(files)
    assert sorted((unit.path, unit.gpu_requests[0].count) for unit in found) == [
        ("apps/big.yaml", 8),
        ("c/env/stage.yaml", 3),
        ("c/templates/d.yaml", 1),
        ("c/values-prod.yaml", 4),
    ]
