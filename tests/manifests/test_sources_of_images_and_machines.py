"""What a server gets from other objects than its own: a runtime's image, the terms of a chart's node affinity."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from kvgate.config import Config
from kvgate.manifests.read import read_tree
from kvgate.manifests.unit import ServeUnit
from kvgate.plan import ModelContext, PlanOverrides, make_plan
from kvgate.source.text import SourceFile

SERVICE = """\
    apiVersion: serving.kserve.io/v1beta1
    kind: InferenceService
    metadata: {name: chat, namespace: ai}
    spec:
      predictor:
        model:
          modelFormat: {name: vLLM}
          runtime: cuda
          storageUri: hf://org/m
          args: [--max-model-len=4096]
    """


def runtime(namespace: str, image: str, kind: str = "ServingRuntime") -> str:
    return f"""\
    apiVersion: serving.kserve.io/v1alpha1
    kind: {kind}
    metadata: {{name: cuda{namespace}}}
    spec:
      containers:
        - name: kserve-container
          image: {image}
          command: [python, -m, vllm.entrypoints.openai.api_server]
    """


def service(**files: str) -> ServeUnit:
    sources = [SourceFile(f"{name}.yaml", dedent(text)) for name, text in {"service": SERVICE, **files}.items()]
    (found,) = (unit for unit in read_tree(sources).units if unit.kind == "InferenceService")
    return found


def test_the_runtime_that_a_service_names_gives_its_image() -> None:
    found = service(runtime=runtime(", namespace: ai", "vllm/vllm-openai:v0.15.1"))
    assert found.image is not None
    assert (found.image.value, found.image.span.path) == ("vllm/vllm-openai:v0.15.1", "runtime.yaml")
    cluster = service(runtime=runtime("", "vllm/vllm-openai:v0.12.0", "ClusterServingRuntime"))
    assert cluster.image is not None
    assert cluster.image.value == "vllm/vllm-openai:v0.12.0"


def test_a_runtime_of_another_namespace_or_two_that_differ_give_none() -> None:
    assert service(runtime=runtime(", namespace: other", "vllm/vllm-openai:v0.15.1")).image is None
    both = service(one=runtime("", "vllm/vllm-openai:v0.12.0"), two=runtime("", "vllm/vllm-openai:v0.15.1"))
    assert both.image is None


def test_an_image_of_its_own_wins() -> None:
    text = SERVICE.replace("runtime: cuda", "runtime: cuda\n          image: vllm/vllm-openai:v0.9.1")
    found = service(service=text, runtime=runtime("", "vllm/vllm-openai:v0.15.1"))
    assert found.image is not None
    assert found.image.value == "vllm/vllm-openai:v0.9.1"


RUNTIME = """\
    apiVersion: serving.kserve.io/v1alpha1
    kind: ClusterServingRuntime
    metadata: {name: cuda}
    spec:
      containers:
        - {name: logger, image: logger, command: [log]}
        - name: kserve-container
          image: vllm/vllm-openai:v0.15.1
          command: [vllm, serve, /mnt/models]
          args: [--tensor-parallel-size=2, --max-model-len=8192]
          env: [{name: A, value: "1"}, {name: B, value: "2"}]
          resources: {limits: {nvidia.com/gpu: 2}}
          volumeMounts: [{name: shm, mountPath: /dev/shm}]
      volumes: [{name: shm, emptyDir: {medium: Memory, sizeLimit: 8Gi}}]
    """


def test_a_service_is_its_runtime_with_what_it_says_itself_on_top() -> None:
    text = SERVICE.replace("runtime: cuda", "runtime: cuda\n          env: [{name: B, value: '3'}]")
    sources = [SourceFile("s.yaml", dedent(text)), SourceFile("r.yaml", dedent(RUNTIME))]
    (found,) = read_tree(sources).units  # the runtime is no server besides
    assert found.id == "InferenceService/ai/chat"
    assert [word.value for word in found.words] == [
        "/mnt/models", "--tensor-parallel-size=2", "--max-model-len=8192", "--max-model-len=4096",
    ]  # fmt: skip
    assert found.storage_model is not None
    assert found.storage_model.value == "hf://org/m"
    assert [request.count for request in found.gpu_requests] == [2]
    assert [(item.name, item.value.value) for item in found.environment if item.value] == [("A", "1"), ("B", "3")]
    assert found.shared_memory is not None
    assert found.shared_memory.bytes == 8 << 30
    # the runtime's command names the place where the controller puts the model, unless kvgate.yaml knows that place
    root = Path("/nowhere")
    plan = make_plan(found, Config(root=root), PlanOverrides(), ModelContext(root=root))
    assert plan.model_reference == "hf://org/m"
    mapped = Config(root=root, models={"/mnt/models": "org/other"})
    plan = make_plan(found, mapped, PlanOverrides(), ModelContext(root=root))
    assert plan.model_reference == "/mnt/models"


@pytest.mark.parametrize("place", ["/mnt/models", "/mnt/models/"])
def test_the_model_is_shown_as_the_objects_own_command_names_it(place: str) -> None:
    text = f"""\
        apiVersion: serving.kserve.io/v1alpha1
        kind: LLMInferenceService
        metadata: {{name: s}}
        spec:
          model: {{uri: oci://registry/model:1}}
          template:
            containers:
              - name: main
                command: [vllm, serve, {place}]
        """
    (found,) = read_tree([SourceFile("s.yaml", dedent(text))]).units
    root = Path("/nowhere")
    plan = make_plan(found, Config(root=root), PlanOverrides(), ModelContext(root=root))
    assert (plan.model_reference, plan.origins["model"].words) == (place, "mounted model")


def test_an_empty_name_is_that_of_no_model() -> None:
    (found,) = read_tree([SourceFile("s.yaml", dedent(SERVICE).replace("hf://org/m", '""'))]).units
    root = Path("/nowhere")
    plan = make_plan(found, Config(root=root), PlanOverrides(), ModelContext(root=root))
    assert (plan.model_reference, plan.model_reason) == (None, "no file names the model")


def test_a_runtime_that_nothing_uses_is_shown_for_itself() -> None:
    other = SERVICE.replace("runtime: cuda", "runtime: other")
    sources = [SourceFile("s.yaml", dedent(other)), SourceFile("r.yaml", dedent(RUNTIME))]
    assert {unit.kind for unit in read_tree(sources).units} == {"InferenceService", "ClusterServingRuntime"}


def test_the_terms_of_a_charts_node_affinity_name_the_machine() -> None:
    text = """\
        servingEngineSpec:
          modelSpec:
            - name: m
              repository: vllm/vllm-openai
              tag: v0.10.0
              modelURL: org/m
              requestGPU: 1
              nodeSelectorTerms:
                - matchExpressions:
                    - {key: nvidia.com/gpu.product, operator: In, values: [Tesla-T4]}
                    - {key: zone, operator: NotIn, values: [a]}
        """
    (found,) = read_tree([SourceFile("values.yaml", dedent(text))]).units
    assert [(hint.key, hint.values) for hint in found.node_hints] == [("nvidia.com/gpu.product", ("Tesla-T4",))]


def test_a_huggingface_runtime_serves_with_vllm_though_no_word_says_so() -> None:
    text = """\
        apiVersion: serving.kserve.io/v1beta1
        kind: InferenceService
        metadata: {name: chat}
        spec:
          predictor:
            model:
              modelFormat: {name: huggingface}
              args: [--model_id=org/m]
        """
    (found,) = read_tree([SourceFile("chat.yaml", dedent(text))]).units
    assert found.kind == "InferenceService"
