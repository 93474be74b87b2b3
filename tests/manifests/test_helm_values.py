"""Values files of Helm charts, releases that carry values, and kinds whose controllers make the command line."""

from __future__ import annotations

from textwrap import dedent

import pytest

from kvgate.manifests.read import read_tree
from kvgate.manifests.unit import ServeUnit
from kvgate.source.text import SourceFile


def units(text: str, path: str = "values.yaml", **others: str) -> list[ServeUnit]:
    files = [SourceFile(path, dedent(text))]
    files += [SourceFile(name.replace("_DOT_", "."), dedent(body)) for name, body in others.items()]
    return list(read_tree(files, named=frozenset({path})).units)


def one(text: str, path: str = "values.yaml", **others: str) -> ServeUnit:
    (found,) = units(text, path, **others)
    return found


def words(unit: ServeUnit) -> str:
    return " ".join(("?" if word.unresolved else "") + word.value for word in unit.words)


def gpus(unit: ServeUnit) -> list[int | None]:
    return [request.count for request in unit.gpu_requests]


def test_a_list_of_models_serves_nothing() -> None:
    catalog = """\
        apiVersion: platform.example/v1
        kind: ModelCatalog
        metadata: {name: models}
        spec:
          models:
            - {id: org/m, runtime: vllm, contextWindow: 32768}
            - {id: org/n, runtime: ollama}
        """
    assert units(catalog, "catalog.yaml") == []
    assert units("litellm:\n  models:\n    - id: org/m\n      url: http://vllm:8000/v1\n") == []
    own = "image: {dockerfile: x}\nmodels:\n  one-vllm: {id: org/m, storage: {bucket: b}}\n"
    assert units(own, "config.yaml") == []
    # where a chart starts them, they stand under names
    served = one("global:\n  models:\n    small: {id: org/m, args: [--max-model-len, '4096']}\n")
    assert words(served) == "--model org/m --served-model-name org/m --max-model-len 4096"


# -- known charts ------------------------------------------------------------------------------------------------------


def test_production_stack() -> None:
    first, second = units(
        """\
        servingEngineSpec:
          modelSpec:
          - name: a
            repository: lmcache/vllm-openai
            tag: v0.3.9
            modelURL: org/a
            replicaCount: 2
            requestGPU: 4
            vllmConfig:
              maxModelLen: 4096
              enableChunkedPrefill: false
              enablePrefixCaching: true
              tensorParallelSize: 4
              extraArgs: ["--gpu-memory-utilization", "0.8"]
          - name: b
            modelURL: org/b
            enableTool: true
            toolCallParser: hermes
        """
    )
    assert words(first) == (
        "--model org/a --max-model-len 4096 --tensor-parallel-size 4 --enable-prefix-caching "
        "--no-enable-chunked-prefill --gpu-memory-utilization 0.8"
    )
    assert first.image is not None
    assert (first.image.value, first.replicas, gpus(first)) == ("lmcache/vllm-openai:v0.3.9", 2, [4])
    assert words(second) == (
        "--model org/b --enable-auto-tool-choice --tool-call-parser hermes"  # the template asks `with vllmConfig`
    )
    assert first.id == "values.yaml/servingEngineSpec/modelSpec/[0]"


def test_modelservice() -> None:
    decode, prefill = sorted(
        units(
            """\
            modelArtifacts: {uri: "hf://org/m", name: served}
            decode:
              replicas: 2
              parallelism: {tensor: 4, data: 1}
              containers:
              - name: vllm
                image: ghcr.io/llm-d/llm-d-cuda:v0.4.0
                modelCommand: vllmServe
                args: ["--max-model-len", "8192"]
            prefill:
              containers:
              - {name: vllm, modelCommand: custom, command: [vllm, serve], args: [org/other, --port, "8000"]}
            """
        ),
        key=lambda unit: unit.id,
    )
    assert words(decode) == "--model org/m --served-model-name served --tensor-parallel-size 4 --max-model-len 8192"
    assert (decode.replicas, gpus(decode)) == (2, [4])
    assert words(prefill) == "org/other --port 8000"


def test_scenario_with_a_custom_command() -> None:
    unit = one(
        """\
        scenario:
        - name: s
          modelservice:
            decode:
              replicas: 2
              parallelism: {tensor: 2, dataLocal: 4}
              vllm:
                customCommand: |
                  . /env.sh
                  vllm serve /cache/$MODEL_PATH \\
                    --tensor-parallel-size $TP_SIZE --data-parallel-size-local $DP_SIZE_LOCAL
        """,
        "scenario.yaml",
    )
    assert words(unit) == "?/cache/$MODEL_PATH --tensor-parallel-size 2 --data-parallel-size-local 4"
    assert (gpus(unit), unit.replicas) == ([8], 2)


@pytest.mark.parametrize("common", ["", "common"])
def test_scenario_whose_command_is_made_of_its_parts(common: str) -> None:
    model = "model: {name: org/m, huggingfaceId: org/m-hf, maxModelLen: 4096, gpuMemoryUtilization: USE}\n"
    decode = "decode: {replicas: 2, parallelism: {tensor: 2}, vllm: {additionalFlags: [--seed=1]}}\n"
    off = "prefill: {enabled: false}\n"
    if common:
        text = f"scenario:\n  - common:\n      {model}    modelservice:\n      {decode}      {off}"
    else:
        shared = "shared: {vllmCommon: {flags: {enforceEager: true}}}\n"
        text = f"{shared}scenario:\n  - name: a\n    {model}    {decode}    {off}"
    unit = one(text.replace("USE", "0.9"), "scenario.yaml")
    assert words(unit) == (
        "--model org/m-hf --served-model-name org/m --max-model-len 4096 --gpu-memory-utilization 0.9 "
        + ("" if common else "--enforce-eager ")
        + "--tensor-parallel-size 2 --seed=1"
    )
    assert (gpus(unit), unit.replicas) == ([2], 2)
    # none is what a machine without GPUs is told
    assert "utilization" not in words(one(text.replace("USE", "0"), "scenario.yaml"))


def test_a_model_by_reference() -> None:
    unit = one(
        "replicaCount: 2\nimage: {repository: rhaiis/vllm-cuda-rhel9}\n"
        "configuration: {modelReference: org/m, extraArgs: [--max-model-len=4096]}\n"
        "resources: {limits: {nvidia.com/gpu: 1}}\n"
    )
    assert words(unit) == "--model org/m --max-model-len=4096"
    assert (gpus(unit), unit.replicas) == ([1], 2)


def test_opea_kubeai_and_recipes() -> None:
    unit = one("LLM_MODEL_ID: org/m\nport: 2080\nimage: {repository: opea/vllm}\nextraCmdArgs: [--enforce-eager]\n")
    assert words(unit) == "--model org/m --port 2080 --host 0.0.0.0 --download-dir /data --enforce-eager"
    # a service that asks the server of the chart below it for the same model
    unit = one("image: {repository: opea/app}\nLLM_MODEL_ID: org/m\nvllm: {enabled: true, LLM_MODEL_ID: org/m}\n")
    assert (words(unit), unit.span.line) == ("--model org/m --host 0.0.0.0 --download-dir /data", 3)
    assert units("LLM_MODEL_ID: org/m\nvllm: {enabled: false}\nimage: {repository: opea/app}\nservice: {}\n") == []
    unit = one("catalog:\n  a: {url: hf://org/m, engine: VLLM, args: [--max-model-len=4096], minReplicas: 1}\n"
               "  b: {url: ollama://x, engine: OLlama}\n")  # fmt: skip
    assert words(unit) == "--model org/m --max-model-len=4096"
    unit = one("workload: {model: {name: org/m}, gpus: 4, framework: vllm}\nservice: {}\n")
    assert (words(unit), gpus(unit)) == ("--model org/m", [4])
    assert units("workload: {model: {name: org/m}, gpus: 4, framework: sglang}\nservice: {}\n") == []


def test_a_known_chart_below_another() -> None:
    text = """\
        app: {image: x}
        vllm-stack:
          enabled: true
          servingEngineSpec:
            modelSpec:
            - {name: a, modelURL: org/a, requestGPU: 2, vllmConfig: {maxModelLen: 1}}
        """
    unit = one(text)
    assert (words(unit), gpus(unit)) == ("--model org/a --max-model-len 1 --no-enable-prefix-caching", [2])
    assert units(text.replace("enabled: true", "enabled: false")) == []
    unit = one("serving:\n  catalog:\n    a: {url: hf://org/m, engine: VLLM}\n")
    assert words(unit) == "--model org/m"


def test_production_stack_with_a_file_of_arguments() -> None:
    unit = one("servingEngineSpec: {modelSpec: [{name: a, vllmConfig: {extraArgs: [--config, /p/a.yaml]}}]}\n")
    assert words(unit) == "--no-enable-prefix-caching --config /p/a.yaml"


# -- by shape ----------------------------------------------------------------------------------------------------------


def test_arguments_in_camel_case() -> None:
    unit = one(
        """\
        replicaCount: 3
        image: {repository: vllm/vllm-openai, tag: v0.10.0}
        resources: {limits: {nvidia.com/gpu: "2"}}
        vllm:
          model: org/m
          maxModelLen: 4096
          tensorParallelSize: 2
          enforceEager: false
          enableChunkedPrefill: true
          gpuMemoryUtilization: null
          dtype: auto
          extraArgs: [--reasoning-parser=qwen3]
          env: [{name: HF_HOME, value: /x}]
        """
    )
    assert words(unit) == (
        "--model org/m --max-model-len 4096 --tensor-parallel-size 2 --enable-chunked-prefill --dtype auto "
        "--reasoning-parser=qwen3"
    )
    assert unit.image is not None
    assert (unit.image.value, unit.replicas, gpus(unit), unit.span.line) == ("vllm/vllm-openai:v0.10.0", 3, [2], 4)
    assert [(item.name, item.value and item.value.value) for item in unit.environment] == [("HF_HOME", "/x")]


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ("amdGpus: '4'", [4]),
        ("gpu: {number: 2, vendor: x}", [2]),
        ("gpu_count: 3", [3]),
        ("resources: {gpus: 2}", [2]),
        ("gpuMemory: 80", []),
        ("gpu: {enabled: true}", []),
    ],
)
def test_counts_of_gpus(keys: str, expected: list[int]) -> None:
    assert gpus(one(f"image: vllm/vllm-openai\nmodel: org/m\nmaxModelLen: 8\n{keys}\n")) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("deploy: {image: {repository: vllm/vllm-openai}, args: [--model, org/m], resources: {}}\n", "--model org/m"),
        ("image: vllm/vllm-openai\ncommand: [vllm, serve, org/m]\nargs: [--port, '1']\n", "org/m --port 1"),
        ("server: {image: {}, command: 'vllm serve org/m --port 1'}\nservice: {}\n", "org/m --port 1"),
        ("model: {repoId: org/m, maxModelLen: 4096}\nvllm: {gpuMemoryUtil: 0.8, tpSize: 2}\n",
         "--model org/m --gpu-memory-utilization 0.8 --tensor-parallel-size 2 --max-model-len 4096"),
        ("vllm: {model: org/m, config: {max_model_len: '4096', trust_remote_code: true}}\n",
         "--model org/m --max-model-len 4096 --trust-remote-code"),
        ("vllm: {enabled: false, model: org/m, maxModelLen: 1, tensorParallelSize: 1}\n", None),
        # an image of vLLM, a model and a pod's settings are a server, without arguments too
        ("image: {repository: vllm/vllm-openai}\nmodel: org/m\nresources: {}\n", "--model org/m"),
        ("image: {repository: org/app}\nmodel: org/m\nresources: {}\nproxy: vllm\n", None),
        ("image: {repository: vllm/vllm-openai}\nmodel: {name: org/m, maxModelLen: 4096, dtype: half}\nreplicas: 1\n",
         "--model org/m --max-model-len 4096 --dtype half"),
        ("image: {repository: vllm/vllm-openai}\nservice: {}\nmodel: {id: '', maxModelLen: 1, maxNumSeqs: 2}\n",
         "--max-model-len 1 --max-num-seqs 2"),  # another file names the model
        ("image: {repository: vllm/vllm-openai}\nmodel: {dtype: auto}\nservice: {}\n", None),
        ("image: {repository: vllm/vllm-openai}\nmodel: {repository: org/m, generationConfig: vllm}\nservice: {}\n",
         "--model org/m --generation-config vllm"),
        # and so is a model with arguments, if the file says vLLM
        ("image: {repository: org/own}\nresources: {}\nselector: {app: vllm}\n"
         "model: {name: org/m, quantization: awq, tensorParallelSize: 1, maxNumSeqs: 2, gpuMemoryUtilization: 0.9,"
         " maxNumBatchedTokens: 8}\n",
         "--model org/m --tensor-parallel-size 1 --max-num-seqs 2 --gpu-memory-utilization 0.9"
         " --max-num-batched-tokens 8 --quantization awq"),
        ("image: {repository: org/own}\nresources: {}\nmodel: {name: org/m, tensorParallelSize: 1, maxNumSeqs: 2,"
         " gpuMemoryUtilization: 0.9, maxNumBatchedTokens: 8}\n", None),
        # its own variables say vLLM, those of a client do not
        ("model: {name: org/m, maxModelLen: 8, dtype: auto}\nresources: {}\n"
         "extraEnv: [{name: VLLM_WORKER_MULTIPROC_METHOD, value: spawn}]\n",
         "--model org/m --max-model-len 8 --dtype auto"),
        ("model: {name: org/m, maxModelLen: 8, dtype: auto}\nresources: {}\nextraEnv: {VLLM_BASE_URL: x}\n", None),
        ("model: {name: org/m, dtype: auto}\nresources: {}\nextraEnv: {VLLM_USE_V1: '1'}\n", None),
        # a chart of vLLM's that another file tells the model
        ("image: {repository: vllm/vllm-openai}\nmodel: {path: ''}\nvllm: {maxModelLen: 8, dtype: auto}\n",
         "--max-model-len 8 --dtype auto"),
        ("image: {repository: vllm/vllm-openai}\nmodel: {path: ''}\nvllm: {maxModelLen: 8}\n", None),
        ("image: {repository: vllm/vllm-openai}\nmodel: {hfId: '', dtype: half, maxModelLen: 8}\nresources: {}\n",
         "--max-model-len 8 --dtype half"),
        ("image: {repository: org/app}\nmodel: {hfId: '', dtype: half, maxModelLen: 8}\nresources: {}\n", None),
        ("image: {repository: org/app}\nmodel: {path: ''}\nvllm: {maxModelLen: 8, dtype: auto}\n", None),
        # a bare command is told the rest by the mappings beside it
        ("models:\n- {modelId: org/a, command: [vllm, serve], vllm: {maxNumSeqs: 1, defaultChatTemplateKwargs: x}}\n",
         "--model org/a --max-num-seqs 1 --default-chat-template-kwargs x"),
        # arguments may stand in mappings of any name beside the model
        ("image: {repository: vllm/vllm-openai}\nmodel: {id: org/m, servedName: s}\nextraArgs: []\n"
         "server: {port: 80, gpuMemoryUtilization: 0.8}\ntoolCalling: {enabled: true, parser: hermes}\n",
         "--model org/m --served-model-name s --gpu-memory-utilization 0.8 --port 80 "
         "--enable-auto-tool-choice --tool-call-parser hermes"),
        ("model: org/m\nservedModelName: s\nvllm: {extraArgs: [--max-model-len=1]}\nservice: {}\n",
         "--model org/m --served-model-name s --max-model-len=1"),
        ("image: vllm/vllm-openai\nmodel: org/m\nextraArgs: []\nfeatures: {toolCalling: {enabled: false, parser: x}}\n"
         "prefixCaching: {enabled: false}\nmaxModelLen: 1\n", "--model org/m --max-model-len 1"),
        ("image: {repository: vllm/vllm-openai}\nmodel: {name: org/m, args: [--enforce-eager]}\nservice: {}\n",
         "--model org/m --enforce-eager"),
        ("vllm: {command: [/bin/sh, -c], args: ['vllm serve org/m --port 1']}\nimage: {repository: vllm/vllm-openai}\n"
         "tests: {enabled: true}\n", "org/m --port 1"),
        # of several names of a model, the one that says where it is
        ("model: {name: shown, huggingfaceRepo: org/m}\nvllm: {tensorParallelSize: 2, maxModelLen: 1}\n",
         "--model org/m --tensor-parallel-size 2 --max-model-len 1"),
        ("model: {name: shown, storage: {uri: hf://org/m}, runtime: {args: [--max-num-seqs=4]}}\nvllm: {}\n",
         "--model org/m --max-num-seqs=4"),
        ("model: {name: only}\nvllm: {tensorParallelSize: 2, maxModelLen: 1}\n",
         "--model only --tensor-parallel-size 2 --max-model-len 1"),
        # a container that is called model is no model
        ("containers: {model: {image: {repository: vllm/vllm-openai}, name: x, args: [org/m, --port=1]}}\n",
         "org/m --port=1"),
        # a chart's `tpl` puts values into values
        ("vllm: {model: org/m, port: 80, args: ['--model={{ .Values.vllm.model }}',"
         " '--port={{ .Values.vllm.port | quote }}', '--seed={{ .Values.none }}']}\n"
         "image: {repository: vllm/vllm-openai}\n",
         "--model=org/m --port=80 ?--seed={{ .Values.none }}"),
        # words under whatever key says so, if they begin with a flag
        ("vllm: {image: {tag: v1}, extra: --dtype half --enforce-eager, loraArgs: [--seed, '1'], initArgs: [-x]}\n",
         "--dtype half --enforce-eager"),
        ("vllm: {model: org/m, serveFlags: [--max-num-seqs=4]}\nimage: {repository: vllm/vllm-openai}\n",
         "--model org/m --max-num-seqs=4"),
        ("backend: vllm\nworkers: [{model: {path: org/m, tensorParallelSize: 1, maxLoras: 8, args: --enable-lora}}]\n",
         "--model org/m --tensor-parallel-size 1 --max-loras 8 --enable-lora"),
        # arguments as a list of names and values
        ("vllm: {model: org/m, engineArgs: [{name: max-model-len, value: 8}, {name: dtype, value: half}]}\n",
         "--model org/m --max-model-len 8 --dtype half"),
        ("vllm: {model: org/m, parameters: [{name: max-model-len}, {name: dtype, value: half}]}\n", None),
        # what stands under the server, by the names of the flags, and what other names mean
        ("image: vllm/vllm-openai\nmodel: {name: org/m}\nserver: {host: h, port: 1}\ngpu: {enabled: true,"
         " memoryFraction: 0.9}\nparallelism: {tensorParallel: 2}\nmultiNode: {pipelineParallelSize: 2}\n"
         "speculative: {tensorParallelSize: 1}\nresources: {}\n",
         "--model org/m --host h --port 1 --gpu-memory-utilization 0.9 --tensor-parallel-size 2"),
        ("image: vllm/vllm-openai\nmodel: {name: org/m}\ngpu: {enabled: false, memoryFraction: 0.9}\nservice: {}\n",
         "--model org/m"),
        ("image: {repository: vllm/vllm-openai}\nmodel: {name: org/m, servedName: s}\nengine: {maxModelLen: 8}\n"
         "kthena: {backend: {server: {replicas: 1, config: {max-num-seqs: '4', max-model-len: '9'}}}}\n",
         "--model org/m --served-model-name s --max-model-len 8 --max-num-seqs 4"),
        ("image: vllm/vllm-openai\nmodel: {repository: org/m, maxModelLen: 8, maxNumSeqs: 4}\n",
         "--model org/m --max-model-len 8 --max-num-seqs 4"),
        # what is said beside the address of a server is a client's
        ("image: {name: org/app}\nconfig: {vllmBaseUrl: 'http://vllm:80/v1', servedModelName: s, maxModelLen: 8}\n",
         None),
        ("image: {name: org/app}\nvllm: {config: {metricsUrl: 'http://x/y', servedModelName: s, maxModelLen: 8}}\n",
         "--served-model-name s --max-model-len 8"),
        # the length that a model is given is its server's, that of anything else is not
        ("image: vllm/vllm-openai\nmodel: {id: org/m, maxLen: 8}\nengine: {maxNumSeqs: 4, maxLen: 9}\n",
         "--model org/m --max-model-len 8 --max-num-seqs 4"),
        ("nm-vllm: {apiServer: {extraArgs: [--dtype, half]}, modelName: org/m, resources: {}}\ngrafana: {}\n",
         "--model org/m --dtype half"),
        ("nm-vllm: {apiServer: {extraArgs: [--dtype, half]}, modelName: org/m, baseUrl: x}\ngrafana: {}\n", None),
        ("models: {a: {engine: vllm, weights: {hfRepo: org/m}, serving: {dtype: half, toolCallParser: x}}}\n",
         "--model org/m --tool-call-parser x --dtype half"),
        # a file of arguments that stands beside, and the values that make it
        ("image: {repository: vllm/vllm-openai, command: [/bin/bash, -c], args: ['vllm serve --config /c.yaml']}\n"
         "model: {name: org/shown}\nvllm: {config: {model: org/m, max_model_len: 8, max_num_seqs: 4}}\n",
         "--config /c.yaml --model org/m --max-model-len 8 --max-num-seqs 4"),
        # references are to the values of the chart that they stand in
        ("below: {raw: {containers: [{image: '{{ .Values.vllm.image }}', args: ['--model={{ .Values.models.a.model }}',"
         " '--max-model-len={{ .Values.models.a.maxModelLen }}', '--dtype={{ .Values.vllm.args.dtype }}']}]},"
         " models: {a: {model: org/m, maxModelLen: 8}}, vllm: {image: vllm/vllm-openai, args: {dtype: half}}}\n",
         "--model=org/m --max-model-len=8 --dtype=half"),
        # a model of KServe's and the runtime that it is served by
        ("servingruntime: {container: {image: {repository: q.io/x/vllm}, command: [python, -m,"
         " vllm.entrypoints.openai.api_server], args: {port: 1}}}\ninferenceservice: {predictor: {model: {args:"
         " [--dtype=half, --max-model-len=8], modelFormat: {name: vLLM}, storageUri: 'oci://org/m:1'}}}\n",
         "--port 1 --dtype=half --max-model-len=8"),
        ("inferenceservice: {predictor: {model: {args: [--max-model-len=8], modelFormat: {name: vLLM},"
         " storageUri: 'oci://org/m:1'}}}\n", "--model oci://org/m:1 --max-model-len=8"),
        ("inferenceservice: {predictor: {model: {args: [--max-model-len=8], modelFormat: {name: onnx},"
         " storageUri: 'oci://org/m:1'}}}\nx: vllm\n", None),
        # of several profiles, the one that another value chooses; what is said beside it goes before
        ("gpu: {profile: b, profiles: {a: {maxModelLen: 1}, b: {maxModelLen: 2, tensorParallelSize: 2}}}\nvllm: {}\n"
         "image: vllm/vllm-openai\n", "--max-model-len 2 --tensor-parallel-size 2"),
        ("preset: b\npresets: {a: {model: org/a, maxModelLen: 1}, b: {model: org/b, maxModelLen: 2, dtype: half}}\n"
         "vllm: {dtype: auto, maxModelLen: '', maxNumSeqs: 4}\n",
         "--model org/b --max-model-len 2 --max-num-seqs 4 --dtype auto"),
        ("vllm: {model: org/m, maxModelLen: 8, enforceEager: true}\n"
         "profiles: {a: {maxModelLen: 1, maxNumSeqs: 2}, b: {maxModelLen: 2, maxNumSeqs: 4}}\n",
         "--model org/m --max-model-len 8 --enforce-eager"),  # which one, the values do not say
        ("LLM_MODEL_ID: org/b\nmodelConfigs: {org/a: {extraCmdArgs: [--seed=1]}, org/b: {extraCmdArgs: [--seed=2]}}\n",
         "--model org/b --host 0.0.0.0 --download-dir /data --seed=2"),
        ("LLM_MODEL_ID: ''\nmodelConfigs: {org/a: {extraCmdArgs: [--seed=1]}, org/b: {extraCmdArgs: [--seed=2]}}\n",
         "--host 0.0.0.0 --download-dir /data"),
        # what a template writes into the file that a command names
        ("pod: {containers: {main: {image: {repository: org/own}, command: [/bin/sh, -c, 'x && exec vllm serve --config"
         " /c/config.yaml']}}}\nconfig: [{key: model, value: org/m}, {key: max-model-len, value: 8}, {key:"
         " max-num-seqs, value: 4}, {key: mm-encoder-attn-backend, value: X}]\n",
         "--config /c/config.yaml --model org/m --max-model-len 8 --max-num-seqs 4 --mm-encoder-attn-backend X"),
        ("command: vllm serve --config /c/config.yaml --port 1\nconfig: {max-model-len: 8, max-num-seqs: 4}\n",
         "--config /c/config.yaml --port 1"),
        # the parts of an image among other keys, or all of it under one
        ("imageName: docker.io/vllm/vllm-openai\nimageVersion: latest\nmodel: {path: org/m, name: '', args: ''}\n"
         "resources: {}\n", "--model org/m"),
        ("image: {version: 'vllm/vllm-openai:v0.9.0'}\nllm: {hfModelName: org/m, args: --dtype half}\n",
         "--model org/m --dtype half"),
        # the model that all of a chart is about
        ("huggingface: {model: org/m}\napi: {image: {containerImage: vllm/vllm-openai, version: v1}, service: {}}\n"
         "ui: {image: {repository: org/ui}, service: {}}\n", "--model org/m"),
        ("inferenceService: {storage: {storageUri: 'oci://org/m:1'}, args: [--max-model-len=8]}\nvllm: 1\n",
         "--model oci://org/m:1 --max-model-len=8"),
        ("servingRuntime: {name: vllm}\ninferenceService: {predictor: {runtime: vllm, storageUri: 's3://b/m'}}\n",
         "--model s3://b/m"),
        ("servingRuntime: {name: vllm}\ninferenceService: {predictor: {runtime: triton, storageUri: 's3://b/m'}}\n",
         None),
        # a chart may leave the kind of its workload open
        ("kind: StatefulSet\nimage: vllm/vllm-openai\nargs: []\nconfig: {model: org/m, max_model_len: 8}\n"
         "resources: {}\nservice: {}\n", "--model org/m --max-model-len 8"),
        ("kind: Pool\nimage: vllm/vllm-openai\nmodel: org/m\nmaxModelLen: 8\n", None),
        ("router: {image: lmcache/vllm-router, args: [--vllm-url, x], maxModelLen: 1, tensorParallelSize: 2}\n", None),
        ("tgi: {image: {repository: ghcr.io/huggingface/text-generation-inference}, args: [--model-id, vllm]}\n", None),
        ("engine: sglang\nmodel: vllm/m\nmaxModelLen: 4096\ntensorParallelSize: 2\n", None),
        ("model: org/m\nmaxModelLen: 4096\ntensorParallelSize: 2\n", None),  # nothing says vLLM
        ("suite: vllm\ntests: [{set: {vllm: {model: m, maxModelLen: 1, tensorParallelSize: 2}}}]\n", None),
        ("vllm: [1, 2]\nimage: x\n", None),
    ],
)  # fmt: skip
def test_shapes(text: str, expected: str | None) -> None:
    assert [words(unit) for unit in units(text)] == ([] if expected is None else [expected])


def test_servers_with_a_section_for_vllm() -> None:
    text = """\
        models:
          chat:
            modelName: org/chat
            servedModelName: chat
            vllm: {image: "vllm/vllm-openai:v1", maxModelLen: 8, gpuMemoryUtilization: "0.5"}
            resources: {limits: {nvidia.com/gpu: 2}}
          embed:
            modelName: org/embed
            vllm: {image: "vllm/vllm-openai:v2", task: embed}
            resources: {limits: {nvidia.com/gpu: 1}}
          other:
            modelName: org/other
            vllm: {image: "example/router:v1", task: embed}
            resources: {}
        """
    chat, embed = units(text)
    assert words(chat) == "--model org/chat --served-model-name chat --max-model-len 8 --gpu-memory-utilization 0.5"
    assert words(embed) == "--model org/embed --task embed"
    assert [(unit.image.value if unit.image else "", unit.span.line, gpus(unit)) for unit in (chat, embed)] == [
        ("vllm/vllm-openai:v1", 2, [2]),
        ("vllm/vllm-openai:v2", 7, [1]),
    ]


def test_a_model_that_its_chart_hands_on_by_a_variable() -> None:
    text = """\
        vllm:
          image: {repository: vllm/vllm-openai}
          env: {MODEL: org/m, MAX_MODEL_LEN: "8192", OTHER: x}
          resources: {}
        """
    found = one(text)
    assert words(found) == "--max-model-len 8192"
    assert found.storage_model is not None
    assert found.storage_model.value == "org/m"
    assert [note.text for note in found.notes[:1]] == ["MAX_MODEL_LEN"]
    assert units(text.replace("vllm/vllm-openai", "example/vllm-client")) == []
    assert units(text.replace("MODEL:", "NAME:")) == []


def test_models_by_name_below_another_chart() -> None:
    text = """\
        service:
          models:
            small: {id: org/small, enabled: true, args: [--max-model-len, "4096", --enable-lora]}
            large: {id: org/large, enabled: false, args: [--max-model-len, "4096"]}
            named: {name: n, modelName: org/named, args: [--max-model-len, "8", --enable-lora]}
        comment: vllm
        """
    small, named = units(text)
    assert (small.id, words(small)) == (
        "values.yaml/service/models/small", "--model org/small --max-model-len 4096 --enable-lora",
    )  # fmt: skip
    assert words(named) == "--model org/named --max-model-len 8 --enable-lora"


def test_values_are_recognised_by_name_or_by_what_they_hold() -> None:
    text = "vllm: {model: org/m, maxModelLen: 1, tensorParallelSize: 2}\n"
    assert units(text, "app/config.yaml") == []
    assert len(units(text, "values-prod.yaml")) == 1
    assert len(units(text + "ingress: {}\n", "app/config.yaml")) == 1


# -- releases ----------------------------------------------------------------------------------------------------------


def test_flux_release() -> None:
    unit = one(
        """\
        apiVersion: helm.toolkit.fluxcd.io/v2
        kind: HelmRelease
        metadata: {name: llm, namespace: ai}
        spec:
          values:
            controllers:
              vllm:
                replicas: 2
                containers:
                  app:
                    image: {repository: vllm/vllm-openai, tag: v0.9.0}
                    args: [--model, org/m]
                    resources: {limits: {amd.com/gpu: "1"}}
              other: {containers: {app: {image: {repository: ghcr.io/ggml-org/llama.cpp}, args: [-hf, vllm]}}}
        """,
        "release.yaml",
    )
    assert unit.id == "HelmRelease/ai/llm/controllers/vllm/containers/app"
    assert (unit.kind, words(unit), unit.replicas, gpus(unit)) == ("HelmRelease", "--model org/m", 2, [1])


def test_parameters_of_an_application() -> None:
    (unit,) = units(
        """\
        apiVersion: argoproj.io/v1alpha1
        kind: Application
        metadata: {name: a, namespace: argocd}
        spec:
          source:
            path: charts/vllm
            helm:
              values: |
                image: {repository: vllm/vllm-openai}
                vllm: {maxModelLen: 1, enforceEager: true}
              parameters:
              - {name: vllm.model, value: org/m}
              - {name: vllm.maxModelLen, value: "4096"}
              - {name: "vllm.extraArgs[0]", value: --seed=1}
              - {name: resources.limits.nvidia\\.com/gpu, value: "2"}
              - {name: vllm.enableLora, value: "true"}
        """,
        "app.yaml",
    )
    assert words(unit) == "--model org/m --max-model-len 4096 --enforce-eager --enable-lora --seed=1"
    assert (gpus(unit), unit.kind, unit.words[3].text.span.line) == ([2], "Application", 13)


APPLICATION_SET = """\
    apiVersion: argoproj.io/v1alpha1
    kind: ApplicationSet
    metadata: {name: set, namespace: argocd}
    spec:
      goTemplate: true
      generators:
      - list:
          elements:
          - {name: a, model: org/a, tp: "2", eager: "true"}
          - {name: b, model: org/b, tp: "4"}
      template:
        metadata: {name: "{{ .name }}-vllm"}
        spec:
          source:
            chart: vllm
            helm:
              valuesObject:
                image: {repository: vllm/vllm-openai}
                model: "{{ .model }}"
                tensorParallelSize: "{{ .tp }}"
                resources: {limits: {nvidia.com/gpu: "{{ .tp }}"}}
      templatePatch: |
        spec:
          source:
            helm:
              valuesObject:
                maxModelLen: 4096
                {{- if .eager }}
                enforceEager: true
                {{- end }}
    """


def test_an_application_set_makes_a_server_of_each_element() -> None:
    found = [(unit.id, words(unit), gpus(unit)) for unit in units(APPLICATION_SET, "set.yaml")]
    assert found == [
        ("ApplicationSet/argocd/a-vllm",
         "--model org/a --tensor-parallel-size 2 --max-model-len 4096 --enforce-eager", [2]),
        ("ApplicationSet/argocd/b-vllm", "--model org/b --tensor-parallel-size 4 --max-model-len 4096", [4]),
    ]  # fmt: skip
    # without Go's templates the names stand alone; a matrix combines what its generators yield
    plain = APPLICATION_SET.replace("{{ .", "{{").replace("goTemplate: true", "goTemplate: false")
    plain = plain.replace("{{- if eager }}", "").replace("{{- end }}", "")
    assert [unit.id for unit in units(plain, "set.yaml")] == [unit for unit, *_ in found]
    matrix = APPLICATION_SET.replace(
        "      - list:\n          elements:\n          - {name: a,",
        "      - matrix:\n          generators:\n          - clusters: {}\n          - list: {elements: [{where: x}]}\n"
        "          - list:\n             elements:\n             - {name: a,",
    ).replace("          - {name: b", "             - {name: b")
    assert [(unit.id, words(unit), gpus(unit)) for unit in units(matrix, "set.yaml")] == found


def test_an_application_set_whose_elements_say_nothing_of_the_server() -> None:
    where = APPLICATION_SET.replace('model: org/a, tp: "2", eager: "true"', "x: 1").replace(
        'model: org/b, tp: "4"', "x: 2"
    )
    (unit,) = units(where, "set.yaml")
    assert words(unit) == "--model ?{{ .model }} --tensor-parallel-size ?{{ .tp }} --max-model-len 4096"
    elements = APPLICATION_SET.index("      - list:"), APPLICATION_SET.index("      template:")
    files = APPLICATION_SET[: elements[0]] + "      - git: {files: [{path: x.yaml}]}\n" + APPLICATION_SET[elements[1] :]
    (unit,) = units(files, "set.yaml")
    assert words(unit).endswith("--max-model-len 4096 --enforce-eager")  # what the condition says is not known
    # more than is worth reading is read once
    many = APPLICATION_SET.replace(
        "- {name: b, ",
        "\n".join(f"          - {{name: n{n}, model: m{n}}}" for n in range(2000)).lstrip()
        + "\n          - {name: b, ",
    )
    assert len(units(many, "set.yaml")) == 100


def test_several_servers_beside_an_image_stay_several() -> None:
    found = units(
        """\
        image: {repository: vllm/vllm-openai}
        model: org/m
        resources: {}
        prefill: {maxModelLen: 1, maxNumSeqs: 2}
        decode: {maxModelLen: 3, maxNumSeqs: 4}
        """
    )
    assert [words(unit) for unit in found] == [
        "--model org/m --max-model-len 1 --max-num-seqs 2",
        "--model org/m --max-model-len 3 --max-num-seqs 4",
    ]


def test_values_as_a_text() -> None:
    unit = one(
        """\
        apiVersion: argoproj.io/v1alpha1
        kind: Application
        metadata: {name: llm}
        spec:
          source:
            helm:
              values: |
                servingEngineSpec:
                  modelSpec:
                  - modelURL: org/m
                    vllmConfig: {maxModelLen: 2048, enablePrefixCaching: true}
        """,
        "app.yaml",
    )
    assert words(unit) == "--model org/m --max-model-len 2048 --enable-prefix-caching"
    assert (unit.span.line, unit.words[3].span.text) == (10, "2048")


def test_helmfile() -> None:
    unit = one(
        "releases:\n- name: a\n  chart: x/y\n  values:\n  - vllm: {model: org/m, maxModelLen: 4096}\n", "helmfile.yaml"
    )
    assert (unit.id, words(unit)) == ("helmfile/default/a/vllm", "--model org/m --max-model-len 4096")


# -- controllers -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected", "unit_id"),
    [
        (
            "apiVersion: kubeai.org/v1\nkind: Model\nmetadata: {name: m}\nspec: {url: hf://org/m, engine: VLLM, "
            "args: [--max-model-len=1], resourceProfile: 'nvidia-l4:2'}\n",
            "--model org/m --max-model-len=1",
            "Model/default/m",
        ),
        (
            "apiVersion: inference.llmaz.io/v1alpha1\nkind: BackendRuntime\nmetadata: {name: vllm}\nspec:\n"
            "  command: [python3, -m, vllm.entrypoints.openai.api_server]\n"
            "  image: vllm/vllm-openai\n  version: v0.6.0\n"
            "  recommendedConfigs: [{name: default, args: [--model, '{{ .ModelPath }}', -tp, '1']}]\n",
            "--model ?{{ .ModelPath }} -tp 1",
            "BackendRuntime/default/vllm/recommendedConfigs/[0]",
        ),
        (
            "apiVersion: workload.serving.volcano.sh/v1alpha1\nkind: ModelBooster\nmetadata: {name: b}\nspec:\n"
            "  backends:\n  - {name: a, type: vLLM, modelURI: 'hf://org/m', minReplicas: 1, workers: [{type: server, "
            "image: vllm/vllm-openai, config: {max-model-len: 4096, enforce-eager: ''}}]}\n",
            "--model org/m --max-model-len 4096 --enforce-eager",
            "ModelBooster/default/b/backends/[0]/workers/[0]",
        ),
        (
            "apiVersion: production-stack.vllm.ai/v1alpha1\nkind: VLLMRuntime\nmetadata: {name: r}\nspec:\n"
            "  model: {modelURL: org/m, maxModelLen: 4096}\n"
            "  vllmConfig: {tensorParallelSize: 2, enablePrefixCaching: true}\n"
            "  deploymentConfig: {replicas: 2, resources: {gpu: '2'}, image: {name: 'vllm/vllm-openai:v0.9.0'}}\n",
            "--model org/m --max-model-len 4096 --tensor-parallel-size 2 --no-enable-chunked-prefill "
            "--enable-prefix-caching",
            "VLLMRuntime/default/r",
        ),
        (
            "apiVersion: fma.llm-d.ai/v1alpha1\nkind: InferenceServerConfig\nmetadata: {name: i}\nspec:\n"
            "  modelServerConfig: {port: 8005, options: '--model org/m --enable-sleep-mode'}\n",
            "--port 8005 --model org/m --enable-sleep-mode",
            "InferenceServerConfig/default/i/modelServerConfig",
        ),
    ],
)  # fmt: skip
def test_controllers(text: str, expected: str, unit_id: str) -> None:
    unit = one("# vllm\n" + text, "object.yaml")
    assert (words(unit), unit.id) == (expected, unit_id)


def test_kaito_workspace() -> None:
    unit = one(
        """\
        apiVersion: kaito.sh/v1beta1
        kind: Workspace
        metadata: {name: w}
        resource: {instanceType: Standard_NC24ads_A100_v4}
        inference: {preset: {name: phi-4}, config: cm}
        ---
        apiVersion: v1
        kind: ConfigMap
        metadata: {name: cm}
        data:
          inference_config.yaml: |
            # vllm
            vllm:
              max-model-len: 4096
              cpu-offload-gb: 0
        """,
        "workspace.yaml",
    )
    assert words(unit) == "--model phi-4 --max-model-len 4096 --cpu-offload-gb 0"
    assert unit.node_hints[0].values == ("Standard_NC24ads_A100_v4",)


def test_objects_of_other_groups_are_none() -> None:
    assert units("apiVersion: x/v1\nkind: Model\nspec: {url: hf://org/m, engine: VLLM}\n", "m.yaml") == []
    assert units("apiVersion: kubeai.org/v1\nkind: Model\nspec: {url: ollama://vllm, engine: OLlama}\n", "m.yaml") == []


def test_templates_in_a_config_map() -> None:
    found = units(
        """\
        apiVersion: v1
        kind: ConfigMap
        metadata: {name: templates, namespace: ai}
        data:
          decode: |
            apiVersion: apps/v1
            kind: Deployment
            spec:
              template:
                spec:
                  containers:
                  - name: vllm
                    command: [vllm, serve, "{{ .Model }}"]
                    {{- if .Secure }}
                    env: [{name: A, value: b}]
                    {{- end }}
          list.yaml: |
            - name: batch
              spec:
                engine: {type: vllm, image: "vllm/vllm-openai:v0.6.3", serve_args: [--port=8000]}
                model_source: {uri: s3://b/m, revision: main}
                accelerator: {type: L40S, count: 2}
                parallelism: {tp: 2, pp: 1}
                engine_args: {max_model_len: 4096, enable_prefix_caching: true}
            - name: mock
              spec: {engine: {type: mock}, model_source: {uri: vllm}}
        """,
        "cm.yaml",
    )
    assert [(unit.id, words(unit)) for unit in found] == [
        ("Deployment/ai/templates/decode/vllm", "?{{ .Model }}"),
        (
            "ModelDeploymentTemplate/ai/batch",
            "--model s3://b/m --revision main --tensor-parallel-size 2 --max-model-len 4096 --enable-prefix-caching "
            "--port=8000",
        ),
    ]
    assert gpus(found[1]) == [2]


def test_scenario_as_a_script() -> None:
    found = units(
        """\
        export LLMDBENCH_DEPLOY_MODEL_LIST="org/m"
        export LLMDBENCH_VLLM_COMMON_MAX_MODEL_LEN=16000
        export LLMDBENCH_VLLM_MODELSERVICE_PREFILL_REPLICAS=0
        export LLMDBENCH_VLLM_MODELSERVICE_PREFILL_EXTRA_ARGS="[--enforce-eager]"
        export LLMDBENCH_VLLM_MODELSERVICE_DECODE_REPLICAS=2
        export LLMDBENCH_VLLM_MODELSERVICE_DECODE_TENSOR_PARALLELISM=4
        export LLMDBENCH_VLLM_MODELSERVICE_DECODE_EXTRA_ARGS="[\\
        --kv-transfer-config____'{\\"kv_role\\":\\"kv_both\\"}'____\\
        --max-model-len____REPLACE_ENV_LLMDBENCH_VLLM_COMMON_MAX_MODEL_LEN____\\
        --block-size____REPLACE_ENV_UNKNOWN\\
        ]"
        """,
        "scenario.sh",
    )
    assert [(unit.id, words(unit), unit.replicas, gpus(unit)) for unit in found] == [
        (
            "scenario.sh/decode",
            '--model org/m --tensor-parallel-size 4 --kv-transfer-config {"kv_role":"kv_both"} --max-model-len 16000 '
            "--block-size ?REPLACE_ENV_UNKNOWN",
            2,
            [4],
        )
    ]


def test_the_model_among_the_arguments_is_nearer_than_one_around() -> None:
    unit = one(
        """\
        model: {name: org/outer}
        image: {repository: vllm/vllm-openai}
        replicaCount: 1
        vllm:
          config:
            model: org/inner
            max_model_len: 4096
            dtype: bfloat16
        """
    )
    assert [word.value for word in unit.words if word.value.startswith("org/")] == ["org/inner"]


def test_a_model_that_is_the_server_itself() -> None:
    unit = one(
        """\
        gateway: {name: main}
        model:
          enabled: true
          uri: oci://registry.example.com/models/m:1
          resources: {cpu: "8", gpu: "2"}
          vllmArgs: "--max-model-len 8192 --tensor-parallel-size 2"
          replicas: 3
        """
    )
    assert words(unit) == "--model oci://registry.example.com/models/m:1 --max-model-len 8192 --tensor-parallel-size 2"
    assert (unit.replicas, gpus(unit)) == (3, [2])


def test_arguments_under_keys_that_begin_with_vllm() -> None:
    unit = one(
        """\
        vllmConfig:
          vllmModel: org/m
          vllmIsTrustRemoteCode: true
          vllmMaxNumBatchedTokens: 1024
        pod:
          image: {repository: vllm/vllm-openai, tag: v0.6.4}
        """
    )
    assert words(unit) == "--model org/m --max-num-batched-tokens 1024 --trust-remote-code"
    # a client's settings are none
    assert units("chat:\n  vllmHost: http://vllm\n  vllmPort: 8000\n  vllmModel: org/m\n") == []


@pytest.mark.parametrize("key", ["downloadJob", "extra"])
def test_what_a_shell_is_given_is_no_argument(key: str) -> None:
    (unit,) = units(
        f"""\
        image:
          repository: vllm/vllm-openai
          command: [vllm, serve, org/m, --enforce-eager]
        prepare:
          {key}:
            args: ["-euc", "aws s3 sync s3://models /data"]
        """
    )
    assert words(unit) == "org/m --enforce-eager"


def test_a_text_of_arguments_that_a_shell_reads_has_its_variables_open() -> None:
    unit = one("""\
        image: {repository: vllm/vllm-openai, tag: v0.10.0}
        model: org/m
        extraArgs: "--max-model-len $LENGTH --block-size=${BLOCK:-32} --served-model-name=$NAME"
    """)
    shown = "--model org/m --max-model-len ?$LENGTH --block-size=32 ?--served-model-name=$NAME"
    assert words(unit) == shown


@pytest.mark.parametrize(("tensor", "expected"), [(0, ""), (2, " --tensor-parallel-size 2")])
def test_a_degree_of_none_gives_no_flag(tensor: int, expected: str) -> None:
    unit = one(f"""\
        scenario:
          - name: a
            model: {{name: org/m}}
            decode: {{replicas: 1, parallelism: {{tensor: {tensor}}}}}
    """)
    assert words(unit) == "--model org/m --served-model-name org/m" + expected


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("vllm serve org/m --max-model-len 4096", "org/m --max-model-len 4096"),
        ("join.sh; exec python3 -m vllm.entrypoints.openai.api_server --model org/m", "--model org/m"),
        ("curl http://vllm/serve", None),
        ("see 'vllm serve org/m --max-model-len 4096'", None),
    ],
)
def test_a_command_under_whatever_key(command: str, expected: str | None) -> None:
    found = units(f'replicas: 2\nresources: {{nvidia.com/gpu: "2"}}\ncli: "{command}"\n')
    assert [words(unit) for unit in found] == ([] if expected is None else [expected])


SECTIONS = """\
# a cluster of vLLM
model: {name: org/m, max_model_len: 4096}
distributed: {tensor_parallel_size: 2, pipeline_parallel_size: 2}
service: {host: 0.0.0.0, port: 8000, max_num_seqs: 4}
"""


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (SECTIONS, 1),
        (SECTIONS.replace("port: 8000", "tensor_parallel_size: 1"), 2),
        (SECTIONS.replace("port: 8000", "replicas: 2"), 2),
    ],
)
def test_sections_of_a_configuration_are_one_server(text: str, count: int) -> None:
    found = units(text, "cluster.yaml")
    assert len(found) == count
    if count == 1:
        assert words(found[0]) == (
            "--model org/m --tensor-parallel-size 2 --pipeline-parallel-size 2 --max-model-len 4096 "
            "--max-num-seqs 4 --host 0.0.0.0 --port 8000"
        )


@pytest.mark.parametrize("key", ["huggingface_name", "hf_model_id", "model_path", "repo_id"])
def test_keys_of_models_in_lists_of_servers(key: str) -> None:
    text = f"models:\n  chat:\n    {key}: org/m\n    vllm: {{max_model_len: 4096, tensor_parallel_size: 1}}\n"
    text += "resources: {memory: 16Gi}\n"
    (found,) = read_tree([SourceFile("models.yaml", text)]).units
    assert [word.value for word in found.words[:2]] == ["--model", "org/m"]


@pytest.mark.parametrize(
    ("topology", "expected", "count"),
    [
        ("singleNode", "--model oci://r/m:1 --served-model-name m --seed=1", 2),
        (
            "multiNode",
            "--model oci://r/m:1 --served-model-name m --pipeline-parallel-size 3 --tensor-parallel-size 2 --seed=1",
            6,
        ),
    ],
)
def test_values_of_a_chart_of_kserve_s_over_several_nodes(topology: str, expected: str, count: int) -> None:
    unit = one(f"""\
        servingTopology: {topology}
        model: {{uri: "oci://r/m:1", modelNameOverride: m, args: [--seed=1]}}
        multiNode: {{pipelineParallelSize: 3, tensorParallelSize: 2}}
        resources: {{limits: {{nvidia.com/gpu: 2}}}}
    """)
    assert (words(unit), gpus(unit)) == (expected, [count])


@pytest.mark.parametrize(
    ("text", "expected", "count"),
    [
        (
            "models: [{modelId: org/m, gpuRequestCount: 2}]\nimage: {repository: vllm/vllm-openai, tag: v0.11.0}\n",
            "org/m",
            2,
        ),
        ("models: {a: {model: org/m, gpuLimit: 4}}\nimage: {repository: vllm/vllm-openai, tag: v0.11.0}\n", "org/m", 4),
        ("models: [{name: a, model: org/m, image: 'vllm/vllm-openai:v0.11.0', gpus: 1}]\n", "org/m", 1),
        ("vllm: {model: org/m, gpuCount: 8}\nimage: {repository: vllm/vllm-openai}\n", "org/m", 8),
        ("model: org/m\ngpu: 2\nimage: {repository: vllm/vllm-openai}\n", "org/m", 2),
    ],
)
def test_a_model_and_the_image_of_vllm_are_a_server(text: str, expected: str, count: int) -> None:
    unit = one(text)
    assert (words(unit), gpus(unit)) == (f"--model {expected}", [count])


@pytest.mark.parametrize(
    "text",
    [
        "models: [{id: org/m, gpuRequestCount: 2}]\nimage: {repository: lmsysorg/sglang}\nreplicas: 1\n# no vllm\n",
        "router: {models: [{id: org/m}], image: {repository: vllm/vllm-openai}}\nreplicas: 1\n",
        "models: [{id: org/m}]\nimage: {repository: ghcr.io/x/ui}\nvllmUrl: http://vllm\nreplicas: 1\n",
    ],
)
def test_a_model_and_another_image_are_none(text: str) -> None:
    assert units(text) == []


def test_the_models_of_the_production_stack_alone() -> None:
    found = units(
        """\
        - {name: a, repository: vllm/vllm-openai, tag: v0.10.0, modelURL: org/m, requestGPU: 1,
           vllmConfig: {maxModelLen: 4096, enablePrefixCaching: true}}
        - {name: b, repository: vllm/vllm-openai, modelURL: org/n, requestGPU: 4,
           vllmConfig: {tensorParallelSize: 4, enablePrefixCaching: true}}
        """,
        "model-specs.yaml",
    )
    assert [(words(unit), gpus(unit)) for unit in found] == [
        ("--model org/m --max-model-len 4096 --enable-prefix-caching", [1]),
        ("--model org/n --tensor-parallel-size 4 --enable-prefix-caching", [4]),
    ]
    assert units("- {name: a, url: org/m}\n- vllm\n", "model-specs.yaml") == []
