"""What a server gets from other objects than its own: a runtime's image, the terms of a chart's node affinity."""

from __future__ import annotations

from textwrap import dedent

from kvgate.manifests.read import read_tree
from kvgate.manifests.unit import ServeUnit
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
