"""What the values of known charts become on vLLM's command line.

Each row says where a chart keeps its servers and which value becomes which argument, as the chart's own templates do
it. Charts that are in no row are read by the shape of their values (:mod:`kvgate.manifests.helm.values`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kvgate.records import record

Path = tuple[str, ...]
"""Keys from the site of a server; ``..`` goes to the mapping around it."""


@record
class Chart:
    """One chart.

    Attributes:
        sites: paths from the root to the servers, ``*`` for any key and ``[]`` for any item.
        needs: paths from a site of which one must be there for it to be a server; ``needs_too`` are others.
        without: paths from a site of which none may be there: it is a chart around that of the server.
        equals: paths from a site with the text that must stand there, in any case.
        model: paths to the model, the first that is there counts.
        flags: path -> flag; a value that is empty, null or false gives none.
        negated: path -> flag; false, and with ``absent`` a missing key too, gives its ``--no-`` form.
        absent: flags of ``negated`` that a missing key negates as well.
        within: a key is only missing where the mapping that would hold it has anything (a template's ``with``).
        above: paths of ``flags`` whose value counts only above a number.
        words: paths to lists (or texts) of further words.
        entries: paths to mappings whose keys are flags; an empty value makes a bare flag.
        commands: paths to a command that replaces the image's.
        scripts: paths to scripts that start the server.
        image: paths to an image, or to the repository and the tag.
        replicas: paths to the number of replicas.
        gpus: paths to numbers of GPUs (or to ``profile:number``), multiplied.
        environment: variables that the chart sets: name -> path.
        strip: prefixes that are taken off the model.
        constants: words that the chart always adds.
    """

    name: str
    sites: tuple[Path, ...]
    needs: tuple[Path, ...]
    needs_too: tuple[Path, ...] = ()
    without: tuple[Path, ...] = ()
    equals: tuple[tuple[Path, str], ...] = ()
    model: tuple[Path, ...] = ()
    flags: tuple[tuple[Path, str], ...] = ()
    negated: tuple[tuple[Path, str], ...] = ()
    absent: frozenset[str] = frozenset()
    within: bool = False
    above: tuple[tuple[Path, float], ...] = ()
    words: tuple[Path, ...] = ()
    entries: tuple[Path, ...] = ()
    commands: tuple[Path, ...] = (("command",),)
    scripts: tuple[Path, ...] = ()
    image: tuple[tuple[Path, Path] | tuple[Path], ...] = ()
    replicas: tuple[Path, ...] = ()
    gpus: tuple[Path, ...] = ()
    environment: tuple[tuple[str, Path], ...] = ()
    strip: tuple[str, ...] = ()
    constants: tuple[str, ...] = ()


def _same_names(*paths: tuple[str, ...]) -> tuple[tuple[Path, str], ...]:
    """Rows of values whose last key is the flag's name in camel case."""
    return tuple((path, flag_of_key(path[-1])) for path in paths)


def flag_of_key(key: str) -> str:
    """``maxModelLen`` and ``max_model_len`` as ``max-model-len``."""
    dashed = "".join(f"-{char.lower()}" if char.isupper() else char for char in key)
    return dashed.replace("_", "-").lstrip("-")


# https://docs.llm-d.ai, chart llm-d-modelservice: `vllmServe` and `imageDefault` build the command, `custom` takes it.
_MODELSERVICE_FLAGS: Final = (
    (("..", "..", "modelArtifacts", "name"), "served-model-name"),
    (("..", "parallelism", "tensor"), "tensor-parallel-size"),
    (("..", "parallelism", "data"), "data-parallel-size"),
    (("..", "parallelism", "dataLocal"), "data-parallel-size-local"),
)
_PARALLEL: Final = tuple((("..", "parallelism", key), 1.0) for key in ("tensor", "data", "dataLocal"))

# Where a scenario of llm-d-benchmark has its model, from one of its pods: beside it, in common, for all scenarios.
_SCENARIO: Final[tuple[Path, ...]] = (
    ("..",), ("..", ".."), ("..", "common"), ("..", "..", "common"), ("..", "..", "shared"),
)  # fmt: skip


def _in_scenario(*rows: tuple[Path, str]) -> Iterator[tuple[Path, str]]:
    """Rows of values wherever a scenario may have them, the nearest last."""
    return (((*path, *keys), flag) for keys, flag in rows for path in reversed(_SCENARIO))


CHARTS: Final[tuple[Chart, ...]] = (
    Chart(
        name="vllm production-stack",
        sites=(
            ("servingEngineSpec", "modelSpec", "[]"),
            ("modelSpec", "[]"),
            ("*", "servingEngineSpec", "modelSpec", "[]"),
        ),
        needs=(("modelURL",), ("vllmConfig",)),
        model=(("modelURL",),),
        flags=(
            (("modelRevision",), "revision"),
            (("enableLoRA",), "enable-lora"),
            (("enableTool",), "enable-auto-tool-choice"),
            (("toolCallParser",), "tool-call-parser"),
            *_same_names(
                ("vllmConfig", "maxModelLen"),
                ("vllmConfig", "dtype"),
                ("vllmConfig", "tensorParallelSize"),
                ("vllmConfig", "pipelineParallelSize"),
                ("vllmConfig", "maxNumSeqs"),
                ("vllmConfig", "gpuMemoryUtilization"),
                ("vllmConfig", "maxLoras"),
                ("vllmConfig", "runner"),
                ("vllmConfig", "convert"),
            ),
        ),
        negated=(
            (("vllmConfig", "enablePrefixCaching"), "enable-prefix-caching"),
            (("vllmConfig", "enableChunkedPrefill"), "enable-chunked-prefill"),
        ),
        absent=frozenset({"enable-prefix-caching"}),
        within=True,
        words=(("vllmConfig", "extraArgs"),),
        image=((("repository",), ("tag",)),),
        replicas=(("replicaCount",),),
        gpus=(("requestGPU",),),
    ),
    Chart(
        name="llm-d modelservice",
        sites=tuple((*above, role, "containers", "[]") for above in ((), ("*",)) for role in ("prefill", "decode")),
        needs=(("modelCommand",),),
        model=(("..", "..", "modelArtifacts", "uri"),),
        flags=_MODELSERVICE_FLAGS,
        above=_PARALLEL,
        words=(("args",),),
        image=((("image",),),),
        replicas=(("..", "replicas"),),
        gpus=(("..", "parallelism", "tensor"), ("..", "parallelism", "dataLocal")),
        strip=("hf://",),
    ),
    Chart(
        name="llm-d-benchmark",
        sites=(
            ("scenario", "[]", "prefill"),
            ("scenario", "[]", "decode"),
            ("scenario", "[]", "standalone"),
            ("scenario", "[]", "*", "prefill"),
            ("scenario", "[]", "*", "decode"),
            ("scenario", "[]", "*", "standalone"),
        ),
        needs=(("vllm", "customCommand"),),
        scripts=(("vllm", "customCommand"),),
        replicas=(("replicas",),),
        gpus=(("parallelism", "tensor"), ("parallelism", "dataLocal")),
        environment=(("TP_SIZE", ("parallelism", "tensor")), ("DP_SIZE_LOCAL", ("parallelism", "dataLocal"))),
    ),
    # without a command of its own, llm-d-benchmark makes one of the model and the common flags
    Chart(
        name="llm-d-benchmark",
        sites=tuple(("scenario", "[]", *way, role) for way in ((), ("*",)) for role in ("prefill", "decode")),
        needs=tuple((*path, "model", "name") for path in _SCENARIO),
        model=tuple((*path, "model", key) for path in _SCENARIO for key in ("huggingfaceId", "name")),
        flags=(
            *_in_scenario(
                (("model", "name"), "served-model-name"),
                (("model", "maxModelLen"), "max-model-len"),
                (("model", "blockSize"), "block-size"),
                (("model", "gpuMemoryUtilization"), "gpu-memory-utilization"),
                (("vllmCommon", "flags", "enforceEager"), "enforce-eager"),
                (("vllmCommon", "flags", "disableLogRequests"), "no-enable-log-requests"),
                (("vllmCommon", "flags", "disableUvicornAccessLog"), "disable-uvicorn-access-log"),
                (("vllmCommon", "flags", "enablePrefixCaching"), "enable-prefix-caching"),
                (("vllmCommon", "flags", "noPrefixCaching"), "no-enable-prefix-caching"),
                (("vllmCommon", "flags", "chatTemplate"), "chat-template"),
            ),
            (("..", "..", "shared", "decode", "parallelism", "tensor"), "tensor-parallel-size"),
            (("parallelism", "tensor"), "tensor-parallel-size"),
        ),
        above=(
            *(((*path, "model", "gpuMemoryUtilization"), 0.0) for path in _SCENARIO),
            (("parallelism", "tensor"), 0.0),
        ),
        words=(("vllm", "additionalFlags"),),
        replicas=(("replicas",),),
        gpus=(("parallelism", "tensor"), ("parallelism", "dataLocal")),
    ),
    Chart(
        name="KubeAI models",
        sites=(("catalog", "*"), ("*", "catalog", "*")),
        needs=(("url",),),
        equals=((("engine",), "vllm"),),
        model=(("url",),),
        words=(("args",),),
        replicas=(("minReplicas",),),
        gpus=(("resourceProfile",),),
        strip=("hf://",),
    ),
    # the models of RayLLM, which came before Ray Serve's LLMConfig
    Chart(
        name="RayLLM",
        sites=((),),
        needs=(("engine_config", "engine_kwargs"),),
        model=(("engine_config", "hf_model_id"), ("engine_config", "model_id")),
        flags=((("engine_config", "model_id"), "served-model-name"),),
        entries=(("engine_config", "engine_kwargs"),),
        replicas=(("deployment_config", "autoscaling_config", "min_replicas"),),
        gpus=(("scaling_config", "num_workers"), ("scaling_config", "num_gpus_per_worker")),
    ),
    Chart(
        name="Red Hat llm-service",
        sites=(("global", "models", "*"), ("models", "*")),
        needs=(("id",),),
        needs_too=(("accelerators",), ("args",), ("device",), ("enabled",), ("inferenceService",)),
        model=(("id",),),
        flags=((("id",), "served-model-name"),),
        words=(("args",),),
        gpus=(("accelerators",),),
    ),
    Chart(
        name="Red Hat vllm-quickstart",
        sites=((),),
        needs=(("configuration", "modelReference"),),
        model=(("configuration", "modelReference"),),
        words=(("configuration", "extraArgs"),),
        image=((("image", "repository"), ("image", "tag")),),
        replicas=(("replicaCount",),),
    ),
    *(
        Chart(
            name="Red Hat vllm-kserve",
            sites=((),),
            needs=(("model", "uri"),),
            needs_too=(("deploymentMode",), ("servingRuntime",), ("servingTopology",)),
            equals=((("servingTopology",), "multinode"),) if nodes else (),
            model=(("model", "uri"),),
            flags=((("model", "modelNameOverride"), "served-model-name"), *nodes),
            words=(("model", "args"),),
            image=((("image", "image"), ("image", "tag")),),
            replicas=(("scaling", "minReplicas"),),
            gpus=(("resources", "limits", "nvidia.com/gpu"), *((nodes[0][0],) if nodes else ())),
        )
        for nodes in (
            (
                (("multiNode", "pipelineParallelSize"), "pipeline-parallel-size"),
                (("multiNode", "tensorParallelSize"), "tensor-parallel-size"),
            ),
            (),
        )
    ),
    Chart(
        name="OPEA vllm",
        sites=((), ("vllm",)),
        needs=(("LLM_MODEL_ID",), ("extraCmdArgs",)),
        without=(("vllm",), ("tgi",)),
        model=(("LLM_MODEL_ID",),),
        flags=((("port",), "port"),),
        words=(("extraCmdArgs",),),
        image=((("image", "repository"), ("image", "tag")),),
        replicas=(("replicaCount",),),
        constants=("--host", "0.0.0.0", "--download-dir", "/data"),  # noqa: S104 - what the chart binds
    ),
    Chart(
        name="GPU recipes",
        sites=(("workload",),),
        needs=(("model", "name"),),
        equals=((("framework",), "vllm"),),
        model=(("model", "name"),),
        image=((("image",),),),
        gpus=(("gpus",),),
    ),
)
