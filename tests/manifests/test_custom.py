"""Custom resources, read by their shape and a few tables."""

from __future__ import annotations

from textwrap import dedent, indent

import pytest

from kvgate.manifests.read import read_tree
from kvgate.manifests.unit import ServeUnit
from kvgate.source.text import SourceFile


def units(text: str) -> list[ServeUnit]:
    return list(read_tree([SourceFile("f.yaml", dedent(text))]).units)


def words(unit: ServeUnit) -> str:
    return " ".join(("?" if word.unresolved else "") + word.value for word in unit.words)


def counts(unit: ServeUnit) -> list[tuple[str, int | None]]:
    return [(request.resource, request.count) for request in unit.gpu_requests]


def test_any_kind_with_containers_in_it() -> None:
    text = """\
        apiVersion: example.com/v1
        kind: ModelThing
        metadata: {name: m, namespace: ai}
        spec:
          pools:
            - name: decode
              replicas: 3
              podTemplate:
                metadata: {annotations: {kvgate.dev/gpu: L4}}
                spec:
                  nodeSelector: {gpu: l4}
                  containers:
                    - name: engine
                      image: vllm/vllm-openai:v0.10.0
                      args: [org/m, --max-model-len, "4096"]
                      resources: {limits: {nvidia.com/gpu: 1}}
        """
    (found,) = units(text)
    assert found.id == "ModelThing/ai/m/pools/decode/engine"
    assert (found.kind, found.replicas, found.span.line) == ("ModelThing", 3, 13)
    assert words(found) == "org/m --max-model-len 4096"
    assert [(hint.key, hint.values) for hint in found.node_hints] == [("gpu", ("l4",))]
    assert found.annotations["kvgate.dev/gpu"].value == "L4"


def test_replicas_of_nested_roles() -> None:
    text = """\
        kind: {kind}
        apiVersion: x/v1
        metadata: {{name: s}}
        spec:
          replicas: 2
          template:
            spec:
              roles:
                - name: prefill
                  replicas: 3
                  template: {{spec: {{containers: [{{name: c, command: [vllm, serve, m]}}]}}}}
        """
    assert [(found.id, found.replicas) for found in units(text.format(kind="StormService"))] == [
        ("StormService/default/s/prefill/c", 6)
    ]
    assert units(text.format(kind="Other"))[0].replicas == 3


def test_leader_worker_set_counts_its_group() -> None:
    text = """\
        apiVersion: leaderworkerset.x-k8s.io/v1
        kind: LeaderWorkerSet
        metadata: {name: l}
        spec:
          replicas: 2
          leaderWorkerTemplate:
            size: 3
            leaderTemplate:
              spec:
                containers:
                  - name: leader
                    command: [sh, -c, "bash multi-node-serving.sh leader; vllm serve m --tensor-parallel-size 8"]
                    resources: {limits: {nvidia.com/gpu: 8}}
            workerTemplate:
              spec:
                containers:
                  - name: worker
                    image: vllm/vllm-openai
                    command: [sh, -c, "bash multi-node-serving.sh worker"]
                    resources: {limits: {nvidia.com/gpu: 4}}
        """
    (found,) = units(text)
    # 8 on the leader and 4 on each of the two workers
    assert counts(found) == [("nvidia.com/gpu", 16)]
    assert found.replicas == 2
    assert found.id == "LeaderWorkerSet/default/l/leader"


@pytest.mark.parametrize(
    ("size", "worker", "entries"),
    [
        (1, "[]", ["leader"]),  # it has no workers
        (1, '[--model, org/other, --max-model-len, "8"]', ["leader"]),
        (3, "[]", ["leader"]),  # what is told nothing is one of the leader's
        (3, '[--model, org/other, --max-model-len, "8"]', ["leader", "workerTemplate/worker"]),
    ],
)
def test_a_worker_that_is_no_server_beside_its_leader(size: int, worker: str, entries: list[str]) -> None:
    text = f"""\
        apiVersion: leaderworkerset.x-k8s.io/v1
        kind: LeaderWorkerSet
        metadata: {{name: l}}
        spec:
          leaderWorkerTemplate:
            size: {size}
            leaderTemplate:
              spec:
                containers:
                  - name: leader
                    image: vllm/vllm-openai:v0.9.0
                    command: [sh, -c, vllm serve org/m --max-model-len 4096]
                    resources: {{limits: {{nvidia.com/gpu: 2}}}}
            workerTemplate:
              spec:
                containers:
                  - name: worker
                    image: vllm/vllm-openai:v0.9.0
                    resources: {{limits: {{nvidia.com/gpu: 2}}}}
                    args: {worker}
        """
    assert [found.id.removeprefix("LeaderWorkerSet/default/l/") for found in units(text)] == entries
    assert counts(units(text)[0]) == [("nvidia.com/gpu", 2 * size)]


@pytest.mark.parametrize(
    ("kind", "leader", "count"),
    [("LeaderWorkerSet", "leaderTemplate", "size: 3"), ("ModelServing", "entryTemplate", "workerReplicas: 2")],
)
@pytest.mark.parametrize("worker_first", [False, True])
def test_ranks_without_an_api_belong_to_the_leader_of_their_group(
    kind: str, leader: str, count: str, worker_first: bool
) -> None:
    pod = """\
            {key}:
              spec:
                containers:
                  - name: {name}
                    image: vllm/vllm-openai:v0.11.0
                    command: [sh, -c, "{command}"]
                    resources: {{limits: {{nvidia.com/gpu: 4}}}}
"""
    rank = "vllm serve org/m --headless -dp 3 --data-parallel-address $(ADDRESS)"
    parts = [
        pod.format(key=leader, name="lead", command="vllm serve org/m -dp 3"),
        pod.format(key="workerTemplate", name="rank", command=rank),
    ]

    def text(parts: list[str]) -> str:
        head = f"apiVersion: v1\nkind: {kind}\nmetadata: {{name: g}}\nspec:\n  template:\n    roles:\n"
        return f"{head}          - name: all\n            {count}\n" + "".join(parts[::-1] if worker_first else parts)

    (found,) = units(text(parts))
    assert found.id.endswith("/lead")
    assert words(found) == "org/m -dp 3"
    assert counts(found) == [("nvidia.com/gpu", 12)]
    # where the leader is no server, or the worker has an API of its own, the worker is one
    (found,) = units(text([parts[0].replace("vllm serve org/m -dp 3", "./lead.sh"), parts[1]]))
    assert found.id.endswith("/rank")
    assert len(units(text([parts[0], parts[1].replace("--headless", "--data-parallel-hybrid-lb")]))) == 2
    assert len(units(text([parts[0], parts[1].replace("--headless", "--node-rank $(INDEX)")]))) == 1


@pytest.mark.parametrize(
    ("template", "told"),
    [
        ("leaderTemplate", "8 --nnodes 4 --node-rank 0"),
        ("workerTemplate", "8 --nnodes 4 --node-rank ?${LWS_WORKER_INDEX}"),
    ],
)
def test_what_a_group_tells_its_pods(template: str, told: str) -> None:
    text = f"""\
        apiVersion: leaderworkerset.x-k8s.io/v1
        kind: LeaderWorkerSet
        metadata: {{name: l}}
        spec:
          leaderWorkerTemplate:
            size: 4
            {template}:
              spec:
                containers:
                  - name: vllm
                    command: [sh, -c]
                    args:
                      - vllm serve m --data-parallel-size $((LWS_GROUP_SIZE * LOCAL))
                        --nnodes $(LWS_GROUP_SIZE) --node-rank ${{LWS_WORKER_INDEX}}
                    env: [{{name: LOCAL, value: "2"}}]
            {{}}
        """
    other = "workerTemplate: {spec: {containers: [{name: w, command: [sleep]}]}}"
    (found,) = units(text.replace("{}", other if template == "leaderTemplate" else ""))
    assert words(found) == f"m --data-parallel-size {told}"


def test_ray_cluster_counts_head_and_workers_and_its_nodes_serve_nothing_themselves() -> None:
    text = """\
        apiVersion: ray.io/v1
        kind: RayCluster
        metadata: {name: r}
        spec:
          headGroupSpec:
            template:
              spec:
                containers:
                  - name: head
                    image: vllm/vllm-openai:v0.7.1
                    command: [bash, -c, "ray start --head && vllm serve m -tp 4"]
                    resources: {limits: {nvidia.com/gpu: 1}}
          workerGroupSpecs:
            - groupName: g
              replicas: 3
              numOfHosts: 1
              template:
                spec:
                  containers:
                    - name: worker
                      image: vllm/vllm-openai:v0.7.1
                      resources: {limits: {nvidia.com/gpu: 1}}
        """
    (found,) = units(text)
    assert (words(found), counts(found)) == ("m -tp 4", [("nvidia.com/gpu", 4)])
    unknown = units(text.replace("replicas: 3", "replicas: ${N}"))[0].gpu_requests[0]
    assert unknown.count is None
    assert unknown.reason == "the number of pods is not stated as a number"


def test_dynamo_services() -> None:
    text = """\
        apiVersion: nvidia.com/v1alpha1
        kind: DynamoGraphDeployment
        metadata: {name: d}
        spec:
          envs: [{name: A, value: outer}, {name: B, value: outer}]
          env: [{name: C, value: also}]
          services:
            Frontend:
              extraPodSpec: {mainContainer: {image: x/vllm-runtime:1}}
            Decode:
              replicas: 2
              envs: [{name: A, value: inner}]
              resources: {limits: {gpu: "1"}}
              extraPodSpec:
                mainContainer:
                  image: x/vllm-runtime:1
                  command: [/bin/sh, -c]
                  args: ["python3 -m dynamo.vllm --model $A-$B-$C"]
        """
    (found,) = units(text)
    assert (found.id, found.span.line, found.replicas) == ("DynamoGraphDeployment/default/d/Decode", 15, 2)
    assert words(found) == "--model inner-outer-also"
    assert counts(found) == [("gpu", 1)]


@pytest.mark.parametrize(
    ("around", "count"),
    [("multinode: {nodeCount: 2}", 8), ("podGroupSize: 3", 12), ("leaderWorkerPattern: {size: 2}", 8), ("x: 2", 4)],
)
def test_pods_that_make_up_one_server(around: str, count: int) -> None:
    text = f"""\
        apiVersion: example.com/v1
        kind: Graph
        metadata: {{name: g}}
        spec:
          roles:
            - name: worker
              {around}
              resources: {{limits: {{gpu: "4"}}}}
              podSpec:
                mainContainer: {{image: vllm/vllm-openai:v0.20.0, args: [--model, m]}}
        """
    (found,) = units(text)
    assert counts(found) == [("gpu", count)]


def test_kserve_runtime_and_template_placeholders() -> None:
    text = """\
        apiVersion: serving.kserve.io/v1alpha1
        kind: ServingRuntime
        metadata: {name: r}
        spec:
          containers:
            - name: kserve-container
              image: $(image)
              command: [python, -m, vllm.entrypoints.openai.api_server]
              args: ["--model=/mnt/models", "--served-model-name={{.Name}}", "--max-model-len=$(LEN)"]
        """
    (found,) = units(text)
    assert words(found) == "--model=/mnt/models ?--served-model-name={{.Name}} ?--max-model-len=$(LEN)"


@pytest.mark.parametrize("form", ["vLLM", "huggingface"])
def test_kserve_inference_service_with_a_runtimes_model(form: str) -> None:
    text = f"""\
        apiVersion: serving.kserve.io/v1beta1
        kind: InferenceService
        metadata: {{name: i}}
        spec:
          predictor:
            minReplicas: 2
            model:
              modelFormat: {{name: {form}}}
              storageUri: hf://org/m
              args: [--max-model-len=4096]
              resources: {{limits: {{nvidia.com/gpu: 1}}}}
        """
    (found,) = units(text)
    assert (found.id, found.span.line, found.replicas) == ("InferenceService/default/i", 7, 2)
    assert words(found) == "--max-model-len=4096"
    assert found.storage_model is not None
    assert found.storage_model.value == "hf://org/m"
    assert units(text.replace(form, "sklearn") + "# vllm\n") == []


def test_flags_of_kserves_own_server() -> None:
    text = """\
        apiVersion: serving.kserve.io/v1beta1
        kind: InferenceService
        metadata: {name: i}
        spec:
          predictor:
            model:
              modelFormat: {name: huggingface}
              args: [--model_name=chat, --model_id=org/m, --backend=vllm, --http_port, "9000", --max-model-len=4096]
        """
    (found,) = units(text)
    assert words(found) == "--served-model-name=chat --model=org/m --max-model-len=4096"
    assert units(text.replace("backend=vllm", "backend=huggingface")) == []
    pod = """\
        apiVersion: v1
        kind: Pod
        metadata: {name: p}
        spec:
          containers:
            - name: server
              image: kserve/huggingfaceserver:v0.15.0-gpu
              args: [--model_dir=/mnt/models, --backend, vllm, --max-model-len=4096, --gpu-memory-utilization=0.9]
              resources: {limits: {nvidia.com/gpu: 1}}
        """
    (found,) = units(pod)
    assert words(found) == "--model=/mnt/models --max-model-len=4096 --gpu-memory-utilization=0.9"
    command = pod.replace("args: [", "command: [python, -m, huggingfaceserver]\n              args: [")
    assert words(units(command)[0]) == words(found)
    assert units(command.replace("--backend, vllm", "--backend, huggingface")) == []


def test_a_patch_of_an_inference_service() -> None:
    text = """\
        apiVersion: serving.kserve.io/v1beta1
        kind: InferenceService
        metadata: {name: i}
        spec:
          predictor:
            model:
              storageUri: s3://bucket/m
              args: [--max-model-len=4096, --tensor-parallel-size=2]
        """
    (found,) = units(text)
    assert words(found) == "--max-model-len=4096 --tensor-parallel-size=2"
    assert found.storage_model is not None
    assert units(text.replace("--tensor-parallel-size=2", "--workers=2")) == []


def test_kserve_llm_inference_service() -> None:
    text = """\
        apiVersion: serving.kserve.io/v1alpha2
        kind: LLMInferenceService
        metadata: {name: l}
        spec:
          replicas: 1
          model: {uri: "hf://org/m", name: org/m}
          parallelism: {tensor: 2}
          template:
            containers:
              - name: main
                env:
                  - name: VLLM_ADDITIONAL_ARGS
                    value: "--kv-transfer-config '{\\"a\\": 1}' --max-model-len 8192"
                resources: {limits: {nvidia.com/gpu: 2}}
          prefill:
            replicas: 4
            template:
              containers: [{name: main, env: []}]
        """
    decode, prefill = units(text)
    assert words(decode) == (
        '--kv-transfer-config {"a": 1} --max-model-len 8192 --served-model-name org/m --tensor-parallel-size 2'
    )
    assert decode.storage_model is not None
    assert decode.storage_model.value == "hf://org/m"
    assert (decode.replicas, prefill.replicas) == (1, 4)
    assert prefill.id == "LLMInferenceService/default/l/prefill/main"
    # the value stands where it is written
    assert decode.words[-1].span.text == "2"


def test_a_kserve_llm_inference_service_that_leaves_its_pods_to_the_controller() -> None:
    text = """\
        apiVersion: serving.kserve.io/v1alpha1
        kind: LLMInferenceService
        metadata: {name: vllm}
        spec:
          model: {uri: "hf://org/m", name: org/m}
          replicas: 3
          parallelism: {tensor: 2, expert: true}
          router: {scheduler: {template: {containers: [{name: main}]}}}
          template: {nodeSelector: {gpu: l4}}
          prefill: {replicas: 4, parallelism: {tensor: 8, expert: false}}
        """
    decode, prefill = units(text)
    assert (decode.id, decode.span.line, decode.replicas) == ("LLMInferenceService/default/vllm", 5, 3)
    assert words(decode) == "--served-model-name org/m --tensor-parallel-size 2 --enable-expert-parallel"
    assert decode.storage_model is not None
    assert decode.storage_model.value == "hf://org/m"
    assert [hint.values for hint in decode.node_hints] == [("l4",)]
    # each workload has sizes of its own
    assert (prefill.id, prefill.replicas) == ("LLMInferenceService/default/vllm/prefill", 4)
    assert words(prefill) == "--served-model-name org/m --tensor-parallel-size 8"
    assert units(text.replace("replicas: 3", "replicas: 3\n          baseRefs: [{name: sglang-defaults}]")) == []
    assert units(text.replace('uri: "hf://org/m", ', "")) == []


def test_what_picks_endpoints_for_servers_is_none() -> None:
    scheduler = """\
          router:
            scheduler:
              template:
                containers:
                  - name: main
                    args: [--pool-name, p, --grpc-port, "9002", --served-model-name, m]
        """
    text = """\
        apiVersion: serving.kserve.io/v1alpha1
        kind: LLMInferenceService
        metadata: {name: l}
        spec:
          model: {uri: "hf://org/m"}
          template:
            containers: [{name: main, args: [--max-model-len=4096]}]
        """
    (found,) = units(dedent(text) + indent(dedent(scheduler), "  "))
    assert found.id == "LLMInferenceService/default/l/main"
    assert words(found) == "--max-model-len=4096"
    # its shell is handed the arguments, so a whole command may stand there
    whole = 'args: ["python3 -m vllm.entrypoints.openai.api_server \\\\\\n --model=/m \\\\\\n --dtype=half"]'
    (found,) = units(text.replace("args: [--max-model-len=4096]", whole))
    assert words(found) == "--model=/m --dtype=half"


@pytest.mark.parametrize(
    "text",
    [
        "apiVersion: x/v1\nkind: CustomResourceDefinition\nspec: {containers: [{command: [vllm, serve]}]}\n",
        "apiVersion: v1\nkind: ConfigMap\ndata: {x: 'vllm serve m'}\n",
        "apiVersion: x/v1\nkind: Y\nspec: {containers: vllm, runner: [vllm], model: {a: vllm}}\n",
        "apiVersion: x/v1\nkind: Y\nspec: {leaderWorkerTemplate: {size: x, workerTemplate: vllm}}\n",
        "apiVersion: x/v1\nkind: Y\nspec: {containers: [vllm, {name: c, image: vllm/vllm-openai-router}]}\n",
    ],
)  # fmt: skip
def test_what_serves_nothing(text: str) -> None:
    assert units(text) == []


def test_the_parameters_of_a_template_of_openshift() -> None:
    text = """\
        apiVersion: template.openshift.io/v1
        kind: Template
        metadata: {name: t}
        objects:
          - apiVersion: apps/v1
            kind: Deployment
            metadata: {name: "${NAME}"}
            spec:
              replicas: ${{COUNT}}
              template:
                spec:
                  containers:
                    - name: vllm
                      image: ${IMAGE}:${TAG}
                      command: [sh, -c]
                      args: ["vllm serve ${MODEL} --max-model-len ${LENGTH} --seed $SEED"]
                      env: [{name: SEED, value: "${LENGTH}1"}]
                      resources: {limits: {nvidia.com/gpu: "${GPUS}"}}
        parameters:
          - {name: NAME, value: chat}
          - {name: MODEL, required: true}
          - {name: LENGTH, value: "4096"}
          - {name: GPUS, value: "2"}
          - {name: COUNT, value: "3"}
          - {name: IMAGE, value: vllm/vllm-openai}
          - {name: TAG, value: v0.9.1}
        """
    (found,) = units(text)
    assert (found.id, found.replicas, counts(found)) == ("Deployment/default/chat/vllm", 3, [("nvidia.com/gpu", 2)])
    assert words(found) == "?${MODEL} --max-model-len 4096 --seed 40961"
    assert found.image is not None
    assert found.image.value == "vllm/vllm-openai:v0.9.1"
    bare = text.replace("  parameters:", "  others:")
    assert words(units(bare)[0]) == "?${MODEL} --max-model-len ?${LENGTH} --seed ?${LENGTH}1"


def test_containers_at_a_wrong_indentation_are_still_found() -> None:
    text = """\
        apiVersion: apps/v1
        kind: Deployment
        metadata: {name: d}
        spec:
          template:
            spec:
              affinity:
                containers: [{name: c, command: [vllm, serve, m]}]
        """
    (found,) = units(text)
    assert (found.id, words(found)) == ("Deployment/default/d/affinity/c", "m")


def test_a_runtime_whose_command_only_waits_is_no_server() -> None:
    runtime = """\
        apiVersion: serving.kserve.io/v1alpha1
        kind: ServingRuntime
        metadata: {name: idle}
        spec:
          containers:
            - name: kserve-container
              image: vllm/vllm-openai
              command: ["sleep"]
              args: ["1d"]
              resources: {limits: {nvidia.com/gpu: 1}}
        """
    assert units(runtime) == []
    assert len(units(runtime.replace("sleep", "vllm").replace('"1d"', '"serve", "org/m"'))) == 1


@pytest.mark.parametrize(("workers", "expected"), [("3", 4 + 3 * 2), ("0", 4), ("{}", 4)])
def test_an_entry_and_its_workers_are_one_server(workers: str, expected: int) -> None:
    (unit,) = units(
        f"""\
        apiVersion: workload.serving.example/v1
        kind: ModelServing
        metadata: {{name: m}}
        spec:
          template:
            roles:
              - name: all
                replicas: 2
                entryTemplate:
                  spec:
                    containers:
                      - name: entry
                        image: vllm/vllm-openai:v0.10.0
                        args: [--model, org/m, -tp, "5", -pp, "2"]
                        resources: {{limits: {{nvidia.com/gpu: 4}}}}
                workerReplicas: {workers}
                workerTemplate:
                  spec:
                    containers:
                      - name: worker
                        image: vllm/vllm-openai:v0.10.0
                        command: [sh, -c, "bash /multi-node-serving.sh worker --ray_address=$(ENTRY_ADDRESS)"]
                        resources: {{limits: {{nvidia.com/gpu: 2}}}}
        """
    )
    assert counts(unit) == [("nvidia.com/gpu", expected)]
