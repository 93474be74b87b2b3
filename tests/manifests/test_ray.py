"""Ray Serve applications and Ray jobs."""

from __future__ import annotations

import json
from textwrap import dedent

import pytest

from kvgate.manifests.read import read_tree
from kvgate.manifests.unit import ServeUnit
from kvgate.source.text import SourceFile

SERVICE = """\
apiVersion: ray.io/v1
kind: RayService
metadata: {name: r, namespace: ai}
spec:
  serveConfigV2: |
    applications:
      - name: llms
        import_path: ray.serve.llm:build_openai_app
        args:
          llm_configs:
            - model_loading_config:
                model_id: served
                model_source: org/m
              accelerator_type: H100
              engine_kwargs:
                max_model_len: 4096
                enable_prefix_caching: true
                enable_chunked_prefill: false
                dtype: "auto"
                speculative_config: {method: mtp, num_speculative_tokens: 2}
              deployment_config: {autoscaling_config: {min_replicas: 2, max_replicas: 4}}
              runtime_env: {env_vars: {VLLM_USE_V1: "1"}, pip: ["vllm==0.9.2"]}
  rayClusterConfig:
    headGroupSpec: {template: {spec: {containers: [{name: head, image: "rayproject/ray-llm:2"}]}}}
    workerGroupSpecs:
      - groupName: gpu
        replicas: 1
        template:
          spec:
            nodeSelector: {cloud.google.com/gke-accelerator: nvidia-h100}
            containers:
              - name: worker
                image: rayproject/ray-llm:2
                env: [{name: OUTER, value: x}]
                resources: {limits: {nvidia.com/gpu: 8}}
"""


def units(text: str, **others: str) -> list[ServeUnit]:
    files = [SourceFile("f.yaml", dedent(text)), *(SourceFile(path, dedent(body)) for path, body in others.items())]
    return list(read_tree(files).units)


def test_models_of_a_ray_service() -> None:
    (found,) = units(SERVICE)
    assert found.id == "RayService/ai/r/llms/served"
    assert (found.entry, found.span.line, found.replicas) == ("ray.serve.llm", 11, 2)
    values = [word.value for word in found.words]
    assert values[:-1] == [
        *("--model", "org/m", "--served-model-name", "served", "--max-model-len", "4096", "--enable-prefix-caching"),
        *("--no-enable-chunked-prefill", "--dtype", "auto", "--speculative-config"),
    ]
    assert json.loads(values[-1]) == {"method": "mtp", "num_speculative_tokens": 2}
    at = {word.value: word.span for word in found.words}
    assert (at["4096"].line, at["4096"].text) == (16, "4096")
    assert (at["--max-model-len"].line, at["--max-model-len"].text) == (16, "max_model_len")
    assert found.image is not None
    assert found.image.value == "rayproject/ray-llm:2"
    assert {variable.name: variable.value.value for variable in found.environment if variable.value is not None} == {
        "OUTER": "x",
        "VLLM_USE_V1": "1",
    }
    assert [(hint.key, hint.values) for hint in found.node_hints] == [
        ("accelerator_type", ("H100",)),
        ("cloud.google.com/gke-accelerator", ("nvidia-h100",)),
    ]
    assert found.requirement is not None
    assert found.requirement.value == "vllm==0.9.2"


def test_devices_of_one_replica() -> None:
    # without parallel sizes its share of the cluster: 8 GPUs over 2 replicas
    assert [request.count for request in units(SERVICE)[0].gpu_requests] == [4]
    stated = SERVICE.replace(
        "dtype:", "tensor_parallel_size: 4\n                pipeline_parallel_size: 2\n                dtype:"
    )
    assert [request.count for request in units(stated)[0].gpu_requests] == [8]
    odd = SERVICE.replace("min_replicas: 2", "min_replicas: 3")
    assert [request.count for request in units(odd)[0].gpu_requests] == [8]


def test_an_application_of_ones_own() -> None:
    text = """\
        apiVersion: ray.io/v1
        kind: RayService
        metadata: {name: r}
        spec:
          serveConfigV2: |
            applications:
              - name: app
                import_path: serve:model
                deployments: [{name: VLLMDeployment, num_replicas: 2}]
                runtime_env: {env_vars: {MODEL_ID: org/m, TENSOR_PARALLELISM: "4", PIPELINE_PARALLELISM: "2"}}
        """
    (found,) = units(text)
    assert [word.value for word in found.words[1:]] == ["--tensor-parallel-size", "4", "--pipeline-parallel-size", "2"]
    assert found.storage_model is not None
    assert (found.storage_model.value, found.replicas, found.span.line) == ("org/m", 2, 7)
    assert found.words[0].splits
    assert units(text.replace("VLLMDeployment", "Other").replace("vllm", "x")) == []


def test_an_application_of_ones_own_that_is_given_arguments() -> None:
    text = """\
        apiVersion: ray.io/v1
        kind: RayService
        metadata: {name: r}
        spec:
          serveConfigV2: |
            applications:
              - name: app
                import_path: serve:build
                args: {model: org/m, max-model-len: 8, accelerator: HPU, tensor_parallel_size: 2}
          rayClusterConfig:
            headGroupSpec: {template: {spec: {containers: [{name: head, image: "example/ray-vllm:1"}]}}}
        """
    (found,) = units(text)
    assert [word.value for word in found.words] == [
        "serve:build", "--model", "org/m", "--max-model-len", "8", "--tensor-parallel-size", "2",
    ]  # fmt: skip
    assert units(text.replace("example/ray-vllm", "example/ray")) == []
    assert units(text.replace("model: org/m, ", "")) == []


PROGRAM = """\
import os
from vllm import AsyncEngineArgs
class Deployment:
    def __init__(self, model, length):
        self.args = AsyncEngineArgs(model=model, max_model_len=length, dtype="bfloat16", seed=int(os.environ["SEED"]))
app = Deployment.bind(model=os.environ.get("MODEL_ID", "org/default"), length=int(os.environ.get("MAX_MODEL_LEN", "8")))
"""
OWN_SERVICE = """\
apiVersion: ray.io/v1
kind: RayService
metadata: {name: r}
spec:
  serveConfigV2: |
    applications:
      - name: a
        import_path: programs.serve_it:app
        runtime_env: {env_vars: {MODEL_ID: org/m, GPU_MEMORY_UTILIZATION: "0.5"}}
  rayClusterConfig:
    workerGroupSpecs:
      - template: {spec: {containers: [{name: w, image: "x:1", env: [{name: SEED, value: "3"}]}]}}
"""


def test_an_application_whose_program_is_at_hand() -> None:
    """Its variables say what its program asks them for, and no more than that."""
    carried = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: p}\ndata:\n  serve_it.py: |\n"
    carried += "".join(f"    {line}\n" for line in PROGRAM.splitlines())
    places = (
        [SourceFile("r.yaml", f"{carried}---\n{OWN_SERVICE}")],
        [SourceFile("r.yaml", OWN_SERVICE), SourceFile("map.yaml", carried)],
        [SourceFile("k/r.yaml", OWN_SERVICE), SourceFile("k/programs/serve_it.py", PROGRAM)],
        [SourceFile("k/r.yaml", OWN_SERVICE), SourceFile("programs/serve_it.py", PROGRAM)],
    )
    for files in places:
        (found,) = read_tree(files).units
        assert found.kind == "RayService"
        assert [word.value for word in found.words] == [
            "--model", "org/m", "--max-model-len", "8", "--dtype", "bfloat16", "--seed", "3",
        ]  # fmt: skip


def test_a_program_that_is_configured_by_its_application() -> None:
    program = """\
        from vllm import AsyncEngineArgs
        class Deployment:
            def reconfigure(self, config):
                self.args = AsyncEngineArgs(**config["engine_args"])
        """
    text = """\
        applications:
          - name: a
            import_path: app.main:deployment
            deployments: [{name: D, user_config: {engine_args: {model: org/m, max_model_len: 8}, role: assistant}}]
        """
    (found,) = units(text, **{"app/main.py": program})
    assert found.kind == "ray-serve"
    assert [word.value for word in found.words if word.resolved] == ["--model", "org/m", "--max-model-len", "8"]


def test_an_application_of_ones_own_that_installs_vllm() -> None:
    text = """\
        applications:
          - {name: a, import_path: "serve:build", runtime_env: {pip: ["vllm==0.5.0", "ray==2.10"]}}
          - {name: b, import_path: "serve:route", runtime_env: {pip: ["ray==2.10"]}}
        """
    (found,) = units(text)
    assert (found.words[0].value, found.words[0].splits, found.storage_model) == ("serve:build", True, None)
    assert found.requirement is not None
    assert found.requirement.value == "vllm==0.5.0"


def test_an_application_of_ones_own_that_names_no_model() -> None:
    text = """\
        apiVersion: ray.io/v1
        kind: RayService
        metadata: {name: vllm-tpu}
        spec:
          serveConfigV2: |
            applications:
              - {name: a, import_path: "serve:app", runtime_env: {env_vars: {VLLM_XLA_CACHE_PATH: /tmp/x}}}
          rayClusterConfig:
            workerGroupSpecs:
              - template: {spec: {containers: [{name: w, image: "$IMAGE", resources: {limits: {google.com/tpu: 4}}}]}}
        """
    (found,) = units(text)
    assert (found.words[0].value, found.words[0].splits, found.storage_model) == ("serve:app", True, None)
    assert units(text.replace("vllm-tpu", "vllm-router")) == []
    assert units(text.replace("VLLM_XLA", "XLA")) == []
    assert units(text.replace("google.com/tpu: 4", "cpu: 4")) == []
    # or an image that is called after it as well
    named = text.replace("VLLM_XLA", "XLA").replace("$IMAGE", "registry.test/ray-vllm-app:1")
    assert [unit.words[0].value for unit in units(named)] == ["serve:app"]
    assert units(named.replace("vllm-tpu", "app")) == []
    assert units(named.replace("ray-vllm-app", "vllm-router")) == []


def test_devices_of_a_cluster_that_scales_up_from_none() -> None:
    text = """\
        apiVersion: ray.io/v1
        kind: RayService
        metadata: {name: vllm-small}
        spec:
          serveConfigV2: |
            applications:
              - {name: a, import_path: "serve:app", runtime_env: {env_vars: {MODEL_ID: org/m, MAX_NUM_SEQ: "4"}}}
          rayClusterConfig:
            headGroupSpec: {template: {spec: {containers: [{name: h, image: ray-vllm}]}}}
            workerGroupSpecs:
            - {replicas: 0, maxReplicas: 3, template: {spec: {containers: [{name: c}]}}}
            - {replicas: 0, maxReplicas: 3, numOfHosts: 2,
               template: {spec: {containers: [{name: w, image: ray-vllm, resources: {limits: {nvidia.com/gpu: 4}}}]}}}
            - {replicas: 0, maxReplicas: 3,
               template: {spec: {containers: [{name: x, image: ray-vllm, resources: {limits: {nvidia.com/gpu: 1}}}]}}}
        """
    (found,) = units(text)
    assert [request.count for request in found.gpu_requests] == [8]
    assert [word.value for word in found.words[1:]] == ["--max-num-seqs", "4"]
    (off,) = units(text.replace("maxReplicas: 3", "maxReplicas: 0"))
    assert [request.count for request in off.gpu_requests] == [0]
    # where a group of devices runs, the others wait for more
    (running,) = units(text.replace("{replicas: 0, maxReplicas: 3,\n", "{replicas: 2, maxReplicas: 3,\n"))
    assert [request.count for request in running.gpu_requests] == [2]


def test_a_configuration_file_of_ray_serve() -> None:
    text = """\
        applications:
          - name: a
            import_path: ray.serve.llm:build_openai_app
            args: {llm_configs: [models/one.yaml, {model_loading_config: {model_id: org/two}}]}
        """
    one, two = units(
        text, **{"models/one.yaml": "model_loading_config: {model_id: org/one}\nengine_kwargs: {seed: 1}\n"}
    )
    assert [word.value for word in one.words] == ["--model", "org/one", "--served-model-name", "org/one", "--seed", "1"]
    assert two.id == "f.yaml/a/org/two"


def test_a_model_file_is_looked_for_beside_its_configuration() -> None:
    text = """\
        applications:
          - {name: a, import_path: "rayllm:app", args: {llm_configs: [./m/one.yaml]}}
          - {name: b, import_path: "rayllm:app", args: {models: [m/two.yml, third]}}
        """
    model = "model_loading_config: {model_id: org/%s}\nengine_kwargs: {seed: 1}\n"
    files = [
        SourceFile("s/serve.yaml", dedent(text)),
        SourceFile("s/m/one.yaml", model % "one"),
        SourceFile("m/two.yml", model % "two"),
        SourceFile("m/unused.yaml", model % "three"),
    ]
    # each is one server: that of the application which names it, else its own
    assert sorted((unit.id, unit.kind, unit.span.path, unit.span.line) for unit in read_tree(files).units) == [
        ("m/unused.yaml/org/three", "ray-model", "m/unused.yaml", 1),
        ("s/serve.yaml/a/org/one", "ray-serve", "s/serve.yaml", 2),
        ("s/serve.yaml/b/org/two", "ray-serve", "s/serve.yaml", 3),
    ]
    reading = read_tree(files[:1])
    assert reading.units == ()
    assert [(place.reason, place.span.line) for place in reading.unread] == [
        ("m/one.yaml, a model of Ray Serve's, is not among the files read", 2),
        ("m/two.yml, a model of Ray Serve's, is not among the files read", 3),
    ]


def test_a_model_by_itself() -> None:
    text = """\
        accelerator_type: L4
        deployment_config: {autoscaling_config: {min_replicas: 3}}
        engine_kwargs: {max_num_seqs: 16}
        llm_engine: VLLMEngine
        model_loading_config: {model_id: small, model_source: {bucket_uri: "s3://b/org/m"}}
        tensor_parallelism: {degree: 2}
        """
    (found,) = units(text)
    assert (found.id, found.kind, found.span.line, found.replicas) == ("f.yaml/small", "ray-model", 1, 3)
    assert [word.value for word in found.words] == [
        "--model", "s3://b/org/m", "--served-model-name", "small", "--tensor-parallel-size", "2",
        "--max-num-seqs", "16",
    ]  # fmt: skip
    assert [(request.count, hint.values) for request in found.gpu_requests for hint in found.node_hints] == [
        (2, ("L4",))
    ]
    (again,) = units(text.replace("max_num_seqs: 16", "max_num_seqs: 16, tensor_parallel_size: 4"))
    assert [word.value for word in again.words[4:]] == ["--max-num-seqs", "16", "--tensor-parallel-size", "4"]
    assert units(text.replace("VLLMEngine", "TRTLLMEngine")) == []
    assert units("model_loading_config: {model_id: org/m}\nother: {max_model_len: 8}\n") == []


@pytest.mark.parametrize("head", ["", "llm_configs:\n"])
def test_models_in_a_list(head: str) -> None:
    models = "".join(
        f"- model_loading_config: {{model_id: {name}, model_source: org/{name}}}\n  engine_kwargs: {{seed: 1}}\n"
        for name in ("a", "b")
    )
    assert [(unit.id, unit.kind) for unit in units(head + models)] == [
        ("f.yaml/a", "ray-model"),
        ("f.yaml/b", "ray-model"),
    ]
    assert units(models.replace("model_loading_config", "config")) == []


def test_a_model_of_rayllm() -> None:
    text = """\
        deployment_config: {autoscaling_config: {min_replicas: 1}}
        engine_config:
          model_id: served
          hf_model_id: org/m
          type: VLLMEngine
          engine_kwargs: {gpu_memory_utilization: 0.8}
          max_total_tokens: 2048
        scaling_config: {num_workers: 4, num_gpus_per_worker: 1}
        """
    (found,) = units(text)
    assert [word.value for word in found.words] == [
        "--model", "org/m", "--served-model-name", "served", "--tensor-parallel-size", "4", "--max-model-len", "2048",
        "--gpu-memory-utilization", "0.8",
    ]  # fmt: skip
    assert [request.count for request in found.gpu_requests] == [4]
    assert units(text.replace("type: VLLMEngine", "type: EmbeddingEngine")) == []


def test_an_application_whose_builder_is_of_another_engine() -> None:
    text = """\
        applications:
          - name: a
            import_path: serving.builders:build_sglang_app
            args: {llm_configs: [{model_loading_config: {model_id: org/m}, engine_kwargs: {max_model_len: 8}}]}
        """
    assert units(text) == []
    assert len(units(text.replace("sglang", "llm"))) == 1


def test_deployments_that_are_configured_with_arguments_of_the_engine() -> None:
    text = """\
        applications:
          - name: app
            import_path: serve:app
            deployments:
              - name: Chat
                autoscaling_config: {min_replicas: 2}
                user_config: {engine_args: {model: org/chat, max_model_len: 8, tensor_parallel_size: 2}}
              - name: Embed
                num_replicas: 3
                user_config: {max_num_seqs: 4, gpu_memory_utilization: 0.3}
              - name: Gate
                user_config: {model: org/other, threshold: 0.5}
            runtime_env: {env_vars: {MODEL_ID: org/m}}
        """
    chat, embed = units(text)
    assert (chat.id, chat.span.line, chat.replicas) == ("f.yaml/app/Chat", 5, 2)
    assert [word.value for word in chat.words] == [
        "serve:app", "--model", "org/chat", "--max-model-len", "8", "--tensor-parallel-size", "2",
    ]  # fmt: skip
    assert (chat.words[0].splits, chat.storage_model, [request.count for request in chat.gpu_requests]) == (
        True, None, [2],
    )  # fmt: skip
    assert (embed.id, embed.span.line, embed.replicas) == ("f.yaml/app/Embed", 8, 3)
    assert embed.storage_model is not None
    assert embed.storage_model.value == "org/m"
    given = text.replace("deployments:", "args: {options: {model: org/given, max_loras: 2}}\n            deployments:")
    assert [unit.id for unit in units(given)] == ["f.yaml/app", "f.yaml/app/Chat", "f.yaml/app/Embed"]


def test_a_model_of_an_empty_name_is_none() -> None:
    text = """\
        applications:
          - name: llm
            import_path: ray.serve.llm:build_openai_app
            args: {llm_configs: [{model_loading_config: {model_id: "", model_source: ""}, engine_kwargs: {seed: 1}}]}
        """
    (found,) = units(text)
    assert [word.value for word in found.words] == ["--seed", "1"]


def test_the_models_of_a_builder_of_ones_own() -> None:
    text = """\
        applications:
          - name: a
            import_path: builder:build
            args:
              prefill_config:
                model_loading_config: {model_id: m, model_source: org/m}
                engine_kwargs: {max_num_seqs: 4}
              decode_config:
                model_loading_config: {model_id: m, model_source: org/m}
                engine_kwargs: {max_num_seqs: 8}
              ingress: {autoscaling_config: {min_replicas: 2}}
        """
    assert [(found.id, found.span.line, found.words[-1].value) for found in units(text)] == [
        ("f.yaml/a/prefill_config/m", 6, "4"),
        ("f.yaml/a/decode_config/m", 9, "8"),
    ]


def test_a_ray_job() -> None:
    text = """\
        apiVersion: ray.io/v1
        kind: RayJob
        metadata: {name: j}
        spec:
          entrypoint: vllm serve $MODEL --tensor-parallel-size 2
          runtimeEnvYAML: |
            env_vars: {MODEL: org/m}
          rayClusterSpec:
            headGroupSpec:
              template:
                spec:
                  containers: [{name: h, image: "vllm/vllm-openai:v0.9.0", resources: {limits: {nvidia.com/gpu: 1}}}]
            workerGroupSpecs:
              - replicas: 1
                template:
                  spec:
                    containers: [{name: w, image: "vllm/vllm-openai:v0.9.0", resources: {limits: {nvidia.com/gpu: 1}}}]
        """
    (found,) = units(text)
    assert (found.id, found.span.line) == ("RayJob/default/j/entrypoint", 5)
    assert [word.value for word in found.words] == ["org/m", "--tensor-parallel-size", "2"]
    assert [request.count for request in found.gpu_requests] == [2]
    assert found.image is not None


def test_shapes_that_ray_refuses() -> None:
    for config in ("vllm", "applications: vllm", "applications: [vllm, {args: {llm_configs: [{engine_kwargs: [x]}]}}]"):
        text = f"apiVersion: ray.io/v1\nkind: RayService\nspec:\n  serveConfigV2: |\n    {config}\n"
        assert isinstance(units(text), list)


def test_aliases_that_nest_in_arguments() -> None:
    nested = "".join(
        f"    k{level}: &a{level} {{{', '.join(f'm{n}: *a{level - 1}' for n in range(12))}}}\n" for level in range(1, 9)
    )
    text = f"applications:\n- import_path: a:b\n  args:\n    k0: &a0 {{x: 1}}\n{nested}"
    text += "  deployments:\n  - {name: d, user_config: *a8}\n# vllm\n"
    assert units(text) == []
