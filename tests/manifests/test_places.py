"""Places where arguments hide that whole repositories showed: one small file of each kind."""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import dedent

import pytest

from kvgate.manifests.collect import collect
from kvgate.manifests.read import read_tree
from kvgate.manifests.unit import Reading, ServeUnit
from kvgate.source.text import SourceFile


def reading(files: dict[str, str]) -> Reading:
    return read_tree([SourceFile(path, dedent(text)) for path, text in files.items()])


def units(files: dict[str, str]) -> list[ServeUnit]:
    return list(reading(files).units)


def one(files: dict[str, str]) -> ServeUnit:
    (found,) = units(files)
    return found


def words(unit: ServeUnit) -> str:
    return " ".join(("?" if word.unresolved else "") + word.value for word in unit.words)


# -- scripts -----------------------------------------------------------------------------------------------------------


def test_a_script_sources_its_settings_from_beside_itself_and_keeps_the_containers_id() -> None:
    script = """\
        HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
        source "${HERE}/../config/serving.env"
        ARGS=(--model "${MODEL_PATH}" --tensor-parallel-size "${TP}")
        ARGS+=(--enforce-eager)
        ID=$(docker run -d --gpus all -e "CUDA_VISIBLE_DEVICES=${GPUS}" \\
            "${IMAGE}" "${ARGS[@]}")
        echo "$ID"
        """
    settings = "IMAGE=vllm/vllm-openai:v0.24.0\nMODEL_PATH=/models/m\nTP=2\nGPUS=0,1\n"
    found = one({"scripts/start.sh": script, "config/serving.env": settings})
    assert words(found) == "--model /models/m --tensor-parallel-size 2 --enforce-eager"
    assert found.image is not None
    assert found.image.value == "vllm/vllm-openai:v0.24.0"
    assert [request.count for request in found.gpu_requests] == [2]
    assert found.span.line == 5


def test_a_script_that_only_runs_another_one_has_no_server_of_its_own() -> None:
    inner = 'vllm serve "${MODEL:-org/m}" --seed=1\n'
    outer = 'HERE="$(cd "$(dirname "$0")" && pwd)"\n{}bash "$HERE/../deploy/launch.sh"\n# vllm\n'
    plain = units({"bench/run.sh": outer.format(""), "deploy/launch.sh": inner})
    assert [(unit.path, words(unit)) for unit in plain] == [("deploy/launch.sh", "org/m --seed=1")]
    told = units({"bench/run.sh": outer.format("export MODEL=org/other\n"), "deploy/launch.sh": inner})
    assert [(unit.path, words(unit)) for unit in told] == [("bench/run.sh", "org/other --seed=1")]


def test_objects_that_a_script_writes_out() -> None:
    text = """\
        MODEL=${MODEL:-org/m}
        cat <<EOF | kubectl apply -n "$NAMESPACE" -f -
        apiVersion: apps/v1
        kind: Deployment
        metadata: {name: llm}
        spec:
          replicas: ${REPLICAS}
          template:
            spec:
              containers:
                - name: vllm
                  image: vllm/vllm-openai:v0.10.0
                  args: ["--model=${MODEL}", "--max-model-len=${LEN}"]
                  resources: {limits: {nvidia.com/gpu: 2}}
        EOF
        kubectl apply -f - <<'YAML'
        apiVersion: v1
        kind: Pod
        metadata: {name: p}
        spec:
          containers:
            - {name: vllm, image: vllm/vllm-openai, args: [--model, $(MODEL)], env: [{name: MODEL, value: x}]}
        YAML
        cat <<EOF > notes.txt
        kind: nothing, vllm
        EOF
        """
    found = units({"install.sh": text})
    assert [(unit.id, words(unit), unit.span.line) for unit in found] == [
        ("Deployment/default/llm/vllm", "--model=org/m ?--max-model-len=${LEN}", 11),
        ("Pod/default/p/vllm", "--model x", 22),
    ]
    assert [request.count for request in found[0].gpu_requests] == [2]
    assert found[0].replicas is None


@pytest.mark.parametrize(
    "line", ["export ID=$(docker run x:vllm serve m)", "echo `vllm serve m`", "wait $(vllm serve m)"]
)
def test_what_a_substitution_runs_is_run(line: str) -> None:
    assert "m" in words(one({"a.sh": line + "\n"}))


def test_a_script_that_stands_where_the_shell_went() -> None:
    text = """\
        apiVersion: apps/v1
        kind: Deployment
        metadata: {name: d}
        spec:
          template:
            spec:
              containers:
                - name: engine
                  image: example/vllm-engine:1
                  command: [bash, -c, "cd /work/bin && ./prefill.sh"]
                  resources: {limits: {nvidia.com/gpu: 2}}
                  volumeMounts: [{name: scripts, mountPath: /work/bin}]
              volumes: [{name: scripts, configMap: {name: scripts}}]
        ---
        apiVersion: v1
        kind: ConfigMap
        metadata: {name: scripts}
        data:
          prefill.sh: |
            exec vllm serve org/m --max-model-len 4096
        """
    assert words(one({"d.yaml": text})) == "org/m --max-model-len 4096"


def test_a_shell_that_runs_a_script_nobody_has_is_said() -> None:
    text = """\
        apiVersion: apps/v1
        kind: Deployment
        metadata: {name: d}
        spec:
          template:
            spec:
              containers:
                - name: engine
                  image: example/vllm-engine:1
                  command: [bash, -c, "cd /work && ./prefill.sh"]
                  resources: {limits: {nvidia.com/gpu: 2}}
        """
    found = reading({"d.yaml": text})
    assert found.units == ()
    assert [item.reason for item in found.unread] == [
        "./prefill.sh, which a vLLM image runs here, is not among the files read"
    ]


def test_leader_and_worker_that_run_the_same_unknown_script_are_one_server() -> None:
    pod = """\
          spec:
            containers:
              - name: engine
                image: example/neuron-vllm0.5.0:v8
                command: [/usr/local/bin/run.sh]
                env: [{name: MODEL, value: /models/m}, {name: MAX_MODEL_LEN, value: "8192"}]
                resources: {limits: {aws.amazon.com/neuron: 16}}
        """
    text = "apiVersion: leaderworkerset.x-k8s.io/v1\nkind: LeaderWorkerSet\nmetadata: {name: big}\nspec:\n"
    text += "  leaderWorkerTemplate:\n    size: 4\n"
    for name in ("leaderTemplate", "workerTemplate"):
        text += f"    {name}:\n" + "".join(f"      {line}\n" for line in dedent(pod).splitlines())
    found = one({"lws.yaml": text})
    assert found.storage_model is not None
    assert found.storage_model.value == "/models/m"
    assert words(found) == "?/usr/local/bin/run.sh --max-model-len 8192"
    assert [request.count for request in found.gpu_requests] == [64]


# -- objects -----------------------------------------------------------------------------------------------------------


def test_a_kind_that_stands_in_no_table() -> None:
    text = """\
        apiVersion: llm.example.dev/v1alpha1
        kind: ServedModel
        metadata: {name: qwen, namespace: ai}
        spec:
          model: {name: org/m, storage: {size: 30Gi}}
          resources: {gpu: {count: 2, type: nvidia}}
          serving:
            replicas: 1
            tensorParallelism: 2
            vllmArgs: [--quantization, gptq, --max-model-len, "8192"]
          access: {groups: [llm]}
        """
    found = one({"qwen.yaml": text})
    assert (found.kind, found.id) == ("ServedModel", "ServedModel/ai/qwen")
    assert words(found) == "--model org/m --tensor-parallel-size 2 --quantization gptq --max-model-len 8192"
    assert [request.count for request in found.gpu_requests] == [2]


def test_an_object_with_its_container_beside_its_arguments() -> None:
    text = """\
        apiVersion: llm.example.dev/v1
        kind: ServedModel
        metadata: {name: m}
        spec:
          model: {name: org/m}
          vllmConfig: {max-model-len: 2000, block-size: 16}
          containers:
            - {name: log, image: "example/log:1"}
            - {name: vllm, image: "vllm/vllm-openai:v0.6.2"}
        """
    found = one({"m.yaml": text})
    assert sorted(words(found).split("--")) == ["", "block-size 16", "max-model-len 2000 ", "model org/m "]
    assert found.image is not None
    assert found.image.value == "vllm/vllm-openai:v0.6.2"


def test_an_object_that_names_its_engine_and_little_else() -> None:
    text = """\
        apiVersion: serve.example.dev/v1
        kind: ChatModel
        metadata: {name: whole}
        spec:
          model: {id: org/m, servedName: chat}
          engine:
            type: vllm
            contextLength: 16384
            enforceEager: true
            image: vllm/vllm-openai:v0.11.0
            args: {max-num-seqs: "64"}
            extraArgs: [--swap-space, "8"]
          scaling: {replicas: 3}
          resources: {gpu: {count: 4}}
        ---
        apiVersion: serve.example.dev/v1
        kind: ChatModel
        metadata: {name: parts}
        spec:
          model: {id: org/big}
          engine: {type: vLLM}
          scaling:
            prefill: {replicas: 2, gpu: {count: 4}}
            decode: {replicas: 5, gpu: {count: 2}}
        ---
        apiVersion: serve.example.dev/v1
        kind: Endpoint
        metadata: {name: plain}
        spec: {runtime: vllm, model: org/n, replicas: 2}
        ---
        apiVersion: serve.example.dev/v1
        kind: VLLMModel
        metadata: {name: kind}
        spec: {modelId: org/k, contextLength: 2048, resources: {gpu: {count: 1}}, args: {dtype: half}}
        ---
        apiVersion: serve.example.dev/v1
        kind: ChatModel
        metadata: {name: other}
        spec:
          model: {id: org/m-gguf}
          engine: {type: llamacpp}
          resources: {cpu: 8}
        """
    whole, prefill, decode, plain, by_kind = units({"m.yaml": text})
    assert words(whole) == (
        "--model org/m --served-model-name chat --max-model-len 16384 --enforce-eager --swap-space 8 --max-num-seqs 64"
    )
    assert whole.image is not None
    assert whole.image.value == "vllm/vllm-openai:v0.11.0"
    assert [found.id for found in (prefill, decode)] == [
        "ChatModel/default/parts/scaling/prefill",
        "ChatModel/default/parts/scaling/decode",
    ]
    assert [words(found) for found in (prefill, decode, plain)] == [
        "--model org/big",
        "--model org/big",
        "--model org/n",
    ]
    assert words(by_kind) == "--model org/k --max-model-len 2048 --dtype half"
    assert [found.replicas for found in (whole, prefill, decode, plain)] == [3, 2, 5, 2]
    gpus = [[request.count for request in found.gpu_requests] for found in (whole, prefill, decode, plain)]
    assert gpus == [[4], [4], [2], []]


@pytest.mark.parametrize(
    "text",
    [
        "apiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\nspec: {groups: [{name: vllm, rules: []}]}\n",
        "apiVersion: route.example.com/v1\nkind: ModelRoute\nspec: {model: {name: org/m}, engine: vllm}\n",
        "apiVersion: train.example.com/v1\nkind: TrainJob\nspec: {trainer: {args: [--use_vllm]}, model: org/m}\n",
        # a client, a router's view of servers that others start, weights that are only fetched
        "apiVersion: a.example.com/v1\nkind: Chat\nspec: {backend: vllm, model: org/m, replicas: 2, at: http://v/v1}\n",
        "apiVersion: a.example.com/v1\nkind: ModelServer\nspec: {inferenceEngine: vLLM, model: org/m, selector: {}}\n",
        "apiVersion: a.example.com/v1\nkind: ModelCache\nspec: {engine: vllm, model: org/m, replicas: 2}\n",
    ],
)
def test_other_objects_that_mention_vllm_are_no_servers(text: str) -> None:
    assert units({"o.yaml": text}) == []


def test_a_patch_of_a_custom_resource_makes_a_server_of_the_overlay() -> None:
    base = """\
        apiVersion: serving.kserve.io/v1beta1
        kind: InferenceService
        metadata: {name: llm}
        spec:
          predictor:
            model: {modelFormat: {name: vLLM}, storageUri: "hf://org/m", args: [--max-model-len=8192]}
        """
    overlay = """\
        kind: Kustomization
        resources: [../base]
        patches:
          - target: {kind: InferenceService, name: llm}
            patch: |
              apiVersion: serving.kserve.io/v1beta1
              kind: InferenceService
              metadata: {name: llm}
              spec:
                predictor:
                  model: {args: [--max-model-len=4096, --max-num-seqs=64]}
        """
    found = units(
        {
            "base/isvc.yaml": base,
            "base/kustomization.yaml": "kind: Kustomization\nresources: [isvc.yaml]\n",
            "dev/kustomization.yaml": overlay,
        }
    )
    assert [(unit.path, words(unit)) for unit in found] == [
        ("dev/kustomization.yaml", "--max-model-len=4096 --max-num-seqs=64")
    ]


def test_the_models_of_rayllm_in_a_configmap() -> None:
    text = """\
        apiVersion: v1
        kind: ConfigMap
        metadata: {name: models}
        data:
          m.yaml: |
            deployment_config: {autoscaling_config: {min_replicas: 2}}
            engine_config:
              model_id: org/m
              type: VLLMEngine
              engine_kwargs: {max_num_seqs: 64, trust_remote_code: true}
            scaling_config: {num_workers: 2, num_gpus_per_worker: 1}
        """
    found = one({"m.yaml": text})
    assert words(found) == "--model org/m --served-model-name org/m --max-num-seqs 64 --trust-remote-code"
    assert (found.replicas, [request.count for request in found.gpu_requests]) == (2, [2])
    assert found.span.line == 6


def test_the_machine_of_a_resource_profile() -> None:
    text = """\
        apiVersion: kubeai.org/v1
        kind: Model
        metadata: {{name: m}}
        spec: {{url: "hf://org/m", engine: VLLM, resourceProfile: "{profile}", args: [--max-model-len=8192]}}
        """
    found = one({"m.yaml": text.format(profile="nvidia-gpu-a100-80gb:8")})
    assert [(hint.key, hint.values) for hint in found.node_hints] == [("gpu", ("a100-80gb",))]
    assert [request.count for request in found.gpu_requests] == [8]
    assert one({"m.yaml": text.format(profile="cpu:6")}).gpu_requests == ()


def test_presets_of_kaito_that_never_say_vllm() -> None:
    text = """\
        apiVersion: kaito.sh/v1beta1
        kind: Workspace
        metadata: {name: w}
        resource: {count: 2, instanceType: Standard_NC80adis_H100_v5}
        inference: {preset: {name: deepseek-r1-0528}}
        ---
        apiVersion: kaito.sh/v1alpha1
        kind: InferenceSet
        metadata: {name: s}
        spec:
          replicas: 3
          template:
            resource: {instanceType: Standard_NC24ads_A100_v4}
            inference: {preset: {name: phi-4}}
        ---
        apiVersion: kaito.sh/v1alpha1
        kind: MultiRoleInference
        metadata: {name: m}
        spec:
          model: {name: phi-4-mini-instruct}
          roles:
            - {type: prefill, replicas: 1, instanceType: Standard_NC24ads_A100_v4}
            - {type: decode, replicas: 2, instanceType: Standard_NC24ads_A100_v4}
        ---
        apiVersion: kaito.sh/v1beta1
        kind: Workspace
        metadata: {name: t}
        tuning: {preset: {name: phi-4}}
        """
    found = units({"k.yaml": text})
    assert [(unit.id, words(unit), unit.replicas) for unit in found] == [
        ("Workspace/default/w", "--model deepseek-r1-0528", 1),
        ("InferenceSet/default/s", "--model phi-4", 3),
        ("MultiRoleInference/default/m/prefill", "--model phi-4-mini-instruct", 1),
        ("MultiRoleInference/default/m/decode", "--model phi-4-mini-instruct", 2),
    ]
    machines = [unit.node_hints[0].values for unit in found]
    assert machines == [("Standard_NC80adis_H100_v5",), *[("Standard_NC24ads_A100_v4",)] * 3]


def test_a_workspace_of_kaito_below_a_specification_that_it_should_not_have() -> None:
    found = one(
        {
            "k.yaml": """\
            apiVersion: kaito.sh/v1beta1
            kind: Workspace
            metadata: {name: w}
            spec:
              resource: {instanceType: Standard_NC80adis_H100_v5}
              inference: {preset: {name: phi-4}}
            """
        }
    )
    assert words(found) == "--model phi-4"
    assert found.node_hints[0].values == ("Standard_NC80adis_H100_v5",)


def test_the_engines_in_the_settings_of_a_program_that_serves() -> None:
    one_engine = """\
        server: {host: 0.0.0.0, port: 8000}
        model:
          name: chat
          path: /models/m
          quantization: fp8
          revision: null
        engine:
          gpu_memory_utilization: 0.8
          max_model_len: 4096
          max_num_seqs: 8
          enforce_eager: false
          workers: 3
          sliding_window: null
        logging: {level: info}
        """
    (found,) = units({"config.yaml": one_engine})
    assert (found.id, found.span.line) == ("config.yaml/vllm-config/engine", 7)
    assert words(found) == (
        "--model /models/m --quantization fp8 --gpu-memory-utilization 0.8 --max-model-len 4096"
        " --max-num-seqs 8 --no-enforce-eager"
    )
    parted = one_engine.rstrip(" ") + "        loading: {max_model_len: 4096, swap_space: 4, kv_cache_dtype: fp8}\n"
    (found,) = units({"config.yaml": parted})
    assert words(found).endswith(
        " --swap-space 4 --kv-cache-dtype fp8 --gpu-memory-utilization 0.8 --max-num-seqs 8 --no-enforce-eager"
    )
    several = """\
        server: {port: 80}
        engines:
          small: {model: org/s, max_model_len: 4096, gpu_memory_utilization: 0.3, max_num_seqs: 4}
          large: {model: org/l, max_model_len: 8192, gpu_memory_utilization: 0.6, tensor_parallel_size: 2}
          other: {model: org/o, max_model_len: 8192, gpu_memory_utilization: 0.6, max_num_seqs: 4, backend: sglang}
        embeddings: {e: {model_name: org/e, max_length: 512}}
        """
    found_all = units({"config.yaml": several})
    assert [(found.id.rpartition("/")[2], found.span.line, words(found).split()[1]) for found in found_all] == [
        ("engines.small", 3, "org/s"),
        ("engines.large", 4, "org/l"),
    ]


def test_an_engine_whose_arguments_are_below_its_port() -> None:
    text = """\
        {"models": {"chat": {"model": "org/m", "port": 8001, "timeouts": {"startup": 300},
         "config": {"max_num_seqs": 64, "max_model_len": 4096, "dtype": "float16", "swap_space": 4}}}}
        """
    found = one({"vllm.json": text})
    assert found.id == "vllm.json/vllm-config/models.chat.config"
    assert words(found) == "--model org/m --max-num-seqs 64 --max-model-len 4096 --dtype float16 --swap-space 4"
    assert units({"vllm.json": text.replace('"port": 8001, ', "")}) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("server:", "client:"),  # nobody answers
        ("path: /models/m", "tokenizer: t"),  # and no name
        ("max_num_seqs", "batch_size"),  # too few that only vLLM has
        ("logging:", "resources:"),  # values of a chart
        ("logging: {level: info}", "command: echo none"),  # a command, and what it is told
        ("logging: {level: info}", "benchmark: {duration: 60}\n        metrics: [ttft]\n        scenario: burst"),
    ],
)
def test_settings_that_describe_no_engine(old: str, new: str) -> None:
    text = """\
        server: {host: 0.0.0.0, port: 8000}
        model: {path: /models/m}
        engine: {gpu_memory_utilization: 0.8, max_model_len: 4096, max_num_seqs: 8}
        logging: {level: info}
        """
    assert len(units({"config.yaml": text})) == 1
    assert [found for found in units({"config.yaml": text.replace(old, new)}) if found.kind == "vllm-config"] == []


def test_a_section_of_somebodys_settings_with_the_model_in_it() -> None:
    text = """\
        server: {port: 8000}
        vllm:
          model: org/m
          tensor_parallel_size: 1
          max_model_len: 4096
          enforce_eager: false
        logging: {level: INFO}
        """
    found = one({"configs/serving.yaml": text})
    assert words(found) == "--model org/m --tensor-parallel-size 1 --max-model-len 4096 --no-enforce-eager"
    # what a trainer hands to vLLM names no model there
    assert units({"train.yaml": "model: org/m\nvllm: {tensor_parallel_size: 1, gpu_memory_utilization: 0.3}\n"}) == []


def test_values_that_terraform_fills_in(tmp_path: Path) -> None:
    text = """\
        servingEngineSpec:
          modelSpec:
            - name: small
              repository: vllm/vllm-openai
              tag: v0.8.5
              modelURL: org/m
              requestGPU: 1
              vllmConfig: {maxModelLen: 2048}
        """
    (tmp_path / "gpu.tpl").write_text(dedent(text))
    (tmp_path / "_helpers.tpl").write_text('{{- define "vllm.name" -}}\nimage: vllm/vllm-openai\n{{- end }}\n')
    found = read_tree(collect([tmp_path], tmp_path).files, tmp_path)
    assert [words(unit) for unit in found.units] == ["--model org/m --max-model-len 2048 --no-enable-prefix-caching"]


def test_json_with_a_variable_in_it_is_not_resolved() -> None:
    text = """\
        servingEngineSpec:
          modelSpec:
            - name: m
              modelURL: org/m
              vllmConfig:
                extraArgs: ["--speculative-config", '{"model": "${DRAFT}"}']
        """
    assert words(one({"values.yaml": text})).endswith('--speculative-config ?{"model": "${DRAFT}"}')
    text = "vllm:\n  image: {repository: vllm/vllm-openai}\n  model: org/m\n  engineArgs:\n    maxModelLen: 10\n"
    text += "    speculativeConfig: {model: '${DRAFT}', num_speculative_tokens: 2}\n"
    assert '?{"model": "${DRAFT}", "num_speculative_tokens": 2}' in words(one({"values.yaml": text}))


def test_a_variable_that_another_program_fills_in() -> None:
    text = """\
        apiVersion: ray.io/v1
        kind: RayService
        metadata: {name: r}
        spec:
          serveConfigV2: |
            applications:
              - name: llm
                import_path: vllm_app:app
                runtime_env: {env_vars: {MODEL_ID: org/m, MAX_MODEL_LEN: "$LENGTH"}}
          rayClusterConfig:
            headGroupSpec: {template: {spec: {containers: [{name: h, image: "example/vllm:1"}]}}}
        """
    assert words(one({"r.yaml": text})) == "?vllm_app:app --max-model-len ?$LENGTH"


# -- Python ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call",
    [
        "aiplatform.Model.upload(serving_container_image_uri=IMAGE, serving_container_args=args, labels={})",
        "client.V1Container(name='m', image=IMAGE, args=args)",
        "docker_client.containers.run(IMAGE, command=args, detach=True)",
    ],
)
def test_a_library_that_starts_the_container(call: str) -> None:
    text = f"""\
        IMAGE = "registry.example/vllm-gemma:1"
        args = ["--model=org/m", "--max-model-len=8192"]
        if lora:
            args.append("--enable-lora")
        {call}
        """
    found = one({"deploy.py": text})
    assert words(found) == "--model=org/m --max-model-len=8192 ?--enable-lora"
    assert found.image is not None
    assert found.image.value == "registry.example/vllm-gemma:1"
    assert found.span.line == 5


def test_the_container_of_another_program() -> None:
    text = """\
        import docker
        client.containers.run("postgres:16", command=["postgres", "-c", "x=1"])
        client.containers.run("registry/vllm-router:1", command=["--port", "80"])
        """
    assert units({"deploy.py": text}) == []


def test_a_model_of_ray_serve_whose_keywords_are_a_mapping() -> None:
    text = """\
        from ray.serve.llm import LLMConfig
        engine = dict(max_model_len=4096, tensor_parallel_size=2)
        if FAST:
            engine["load_format"] = "runai_streamer"
        options = dict(model_loading_config=dict(model_id="m", model_source="org/m"), engine_kwargs=engine)
        config = LLMConfig(**options)
        """
    found = one({"app.py": text + "        # vllm\n"})
    expected = "--model org/m --served-model-name m --max-model-len 4096 --tensor-parallel-size 2"
    assert words(found) == expected + " ?--load-format ?runai_streamer"
    assert [request.count for request in found.gpu_requests] == [2]


# -- cloud services ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keys", ["lower", "upper"])
def test_a_task_definition_of_ecs(tmp_path: Path, keys: str) -> None:
    text = """{
      "family": "llm",
      "containerDefinitions": [
        {"name": "proxy", "image": "nginx:1"},
        {
          "name": "engine",
          "image": "vllm/vllm-openai:v0.10.0",
          "command": ["--model", "org/m", "--max-model-len", "8192"],
          "environment": [{"name": "A", "value": "b"}],
          "resourceRequirements": [{"type": "GPU", "value": "2"}]
        }
      ]
    }"""
    if keys == "upper":  # as CloudFormation writes it
        text = re.sub(r'"([a-z])(\w+)":', lambda match: f'"{match.group(1).upper()}{match.group(2)}":', text)
    (tmp_path / "task.json").write_text(text)
    (found,) = read_tree(collect([tmp_path], tmp_path).files, tmp_path).units
    assert (found.id, words(found)) == ("task.json/llm/engine", "--model org/m --max-model-len 8192")
    assert found.image is not None
    assert found.image.value == "vllm/vllm-openai:v0.10.0"
    assert [request.count for request in found.gpu_requests] == [2]
    assert [(item.name, item.value.value) for item in found.environment if item.value] == [("A", "b")]
    assert found.span.line == 6


def test_a_blueprint_of_oci() -> None:
    text = """\
        {"deployment_group": {"deployments": [{"recipe": {
          "deployment_name": "chat",
          "recipe_image_uri": "docker.io/vllm/vllm-openai:v0.9.1",
          "recipe_node_shape": "BM.GPU.H100.8",
          "recipe_replica_count": 2,
          "recipe_nvidia_gpu_count": 4,
          "recipe_container_env": [{"key": "MODEL", "value": "org/m"}],
          "recipe_container_command_args": ["--model", "$(MODEL)", "--tensor-parallel-size", "4"]
        }}, {"recipe": {
          "recipe_mode": "job",
          "recipe_image_uri": "docker.io/vllm/vllm-openai:v0.9.1",
          "recipe_container_command_args": ["--model", "org/m"]
        }}]}}
        """
    found = one({"blueprint.json": text})
    assert (found.id, words(found)) == ("blueprint.json/chat", "--model org/m --tensor-parallel-size 4")
    assert ([request.count for request in found.gpu_requests], found.replicas) == ([4], 2)
    assert [(hint.key, hint.values) for hint in found.node_hints] == [("instance-type", ("BM.GPU.H100.8",))]


def test_what_an_operator_adds_where_nothing_is_said() -> None:
    # its Go type has no third state: what is not said is false, and false is negated
    text = """\
        apiVersion: production-stack.vllm.ai/v1alpha1
        kind: VLLMRuntime
        metadata: {name: r}
        spec: {model: {modelURL: org/m}}
        """
    assert words(one({"r.yaml": text})) == "--model org/m --no-enable-chunked-prefill --no-enable-prefix-caching"


def test_the_engine_that_ray_data_runs() -> None:
    text = """\
        from ray.data.llm import vLLMEngineProcessorConfig
        config = vLLMEngineProcessorConfig(
            model_source="org/m",
            engine_kwargs=dict(max_model_len=8192, enforce_eager=True),
            batch_size=64,
        )
        """
    found = one({"batch.py": text})
    assert (found.kind, words(found)) == ("offline-engine", "--model org/m --max-model-len 8192 --enforce-eager")


def test_a_container_that_ansible_starts() -> None:
    unit = one(
        {
            "tasks/main.yml": """\
            - name: a folder
              ansible.builtin.file: {path: "{{ base }}", state: directory}
            - name: the server
              community.docker.docker_container:
                name: llm
                image: vllm/vllm-openai:v0.10.0
                env:
                  HF_HOME: /cache
                command: >
                  --model "{{ llm_model }}"
                  --max-model-len 4096
                device_requests:
                  - {driver: nvidia, count: 2, capabilities: gpu}
            """
        }
    )
    assert (unit.kind, unit.name, [request.count for request in unit.gpu_requests]) == ("ansible", "llm", [2])
    assert [word.value for word in unit.words] == ["--model", "{{ llm_model }}", "--max-model-len", "4096"]
    assert unit.words[1].unresolved
    assert [variable.name for variable in unit.environment] == ["HF_HOME"]


@pytest.mark.parametrize(
    ("directives", "rest", "count", "name"),
    [
        ("#SBATCH --gres=gpu:4", "", 4, None),
        ("#SBATCH --gres=gpu:a100:2\n#SBATCH --nodes=1", "", 2, "a100"),
        ("#SBATCH --gpus-per-node h100:8", "", 8, "h100"),
        ("#SBATCH -G 2\n#SBATCH -N 1", "export CUDA_VISIBLE_DEVICES=1\n", 1, None),
        ("#SBATCH --gpus=8\n#SBATCH --nodes=2", "", None, None),
        ("#SBATCH --mem=8G", "", None, None),
    ],
)
def test_gpus_of_a_batch_job(directives: str, rest: str, count: int | None, name: str | None) -> None:
    unit = one({"job.sbatch": f"#!/bin/bash\n{directives}\n{rest}vllm serve org/m\n"})
    assert [request.count for request in unit.gpu_requests] == ([] if count is None else [count])
    assert [hint.values for hint in unit.node_hints] == ([] if name is None else [(name,)])


def test_a_shell_of_linux_in_a_batch_file() -> None:
    line = 'wsl -d Ubuntu bash -c "source v/bin/activate && A=1 vllm serve org/m --max-model-len 4096 > log 2>&1"'
    unit = one({"start.bat": f"@echo off\r\n{line}\r\npause\r\n"})
    assert (words(unit), unit.span.line) == ("org/m --max-model-len 4096", 2)
    assert [variable.name for variable in unit.environment] == ["A"]
