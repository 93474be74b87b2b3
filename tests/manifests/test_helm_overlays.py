"""Values files that are put over a chart of the tree, without rendering it by Helm."""

from __future__ import annotations

import time
from textwrap import dedent

import pytest

from kvgate.manifests.read import read_tree
from kvgate.manifests.unit import ServeUnit
from kvgate.source.text import SourceFile

TEMPLATE = """\
    apiVersion: apps/v1
    kind: Deployment
    metadata: {name: llm}
    spec:
      replicas: {{ .Values.replicas }}
      template:
        spec:
          containers:
            - name: vllm
              image: "vllm/vllm-openai:{{ .Values.tag }}"
              args:
                - --model={{ .Values.model }}
                - --max-model-len={{ .Values.length }}
                {{- range .Values.extraArgs }}
                - {{ . }}
                {{- end }}
              resources: {limits: {nvidia.com/gpu: {{ .Values.gpus }}}}
    """
VALUES = """\
    replicas: 1
    tag: v0.10.0
    model: org/m
    length: 4096
    gpus: 1
    extraArgs: [--enforce-eager, --seed=1]
    """
CHART = {"llm/Chart.yaml": "name: llm\n", "llm/values.yaml": VALUES, "llm/templates/deployment.yaml": TEMPLATE}


def units(files: dict[str, str]) -> list[ServeUnit]:
    return list(read_tree([SourceFile(path, dedent(text)) for path, text in sorted(files.items())]).units)


def told(found: list[ServeUnit]) -> list[tuple[str, str]]:
    return [(unit.path, " ".join(word.value for word in unit.words)) for unit in found]


OWN = ("llm/templates/deployment.yaml", "--model=org/m --max-model-len=4096 --enforce-eager --seed=1")


def test_values_somewhere_in_the_folder_of_a_chart() -> None:
    path = "llm/overrides/models/big.yaml"
    found = units({**CHART, path: "model: org/big\ngpus: 8\n# vllm; read for its keys: replicas\nreplicas: 2\n"})
    expected = (path, "--model=org/big --max-model-len=4096 --enforce-eager --seed=1")
    assert sorted(told(found)) == sorted([OWN, expected])
    assert [unit.replicas for unit in found if unit.path == path] == [2]
    assert told(units({**CHART, path: "model: org/big\nreplicas: 2\nother: 1\n# vllm\n"})) == [OWN]


def test_values_that_fit_one_chart_of_the_tree() -> None:
    # an image alone would be read by its shape, with what the chart adds missing
    text = "image: {repository: vllm/vllm-openai}\nlength: 8192\nmodel: org/big\ngpus: 4\n# vllm\n"
    chart = {**CHART, "llm/values.yaml": VALUES + "image: {repository: x}\n"}
    path = "clusters/values/llm-big.yaml"
    expected = (path, "--model=org/big --max-model-len=8192 --enforce-eager --seed=1")
    found = units({**chart, path: text})
    assert sorted(told(found)) == sorted([OWN, expected])
    assert [[request.count for request in unit.gpu_requests] for unit in found if unit.path == path] == [[4]]
    # not where two charts fit, where a key is not the chart's, or where too few are
    other = {place.replace("llm/", "old/"): body for place, body in chart.items()}
    for files in (
        {**chart, **other, path: text},
        {**chart, path: text + "mine: 1\n"},
        {**chart, path: "model: org/big\nlength: 8192\n# vllm\n"},
    ):
        assert expected[1] not in [words for _, words in told(units(files))]


@pytest.mark.parametrize(
    "path", ["llm/values-prod.yaml", "llm/prod-values.yaml", "llm/values/prod.yaml", "llm/ci/a.yaml"]
)
def test_values_beside_the_chart(path: str) -> None:
    found = units({**CHART, path: "length: 8192\nextraArgs: [--seed=2]\nreplicas: 3\ngpus: 2\n# vllm\n"})
    assert sorted(told(found)) == sorted([OWN, (path, "--model=org/m --max-model-len=8192 --seed=2")])
    prod = next(unit for unit in found if unit.path == path)
    assert (prod.replicas, [request.count for request in prod.gpu_requests]) == (3, [2])
    assert prod.image is not None
    assert prod.image.value == "vllm/vllm-openai:v0.10.0"
    assert prod.span.line == 1
    assert prod.id == f"Deployment/default/llm/vllm@{path.rpartition('/')[2]}"
    (length,) = [word for word in prod.words if "8192" in word.value]
    assert (length.text.slice(16, 20).span.path, length.text.slice(16, 20).span.line) == (path, 1)


def test_values_that_change_nothing_of_the_server() -> None:
    assert told(units({**CHART, "llm/values-prod.yaml": "ingress: {host: vllm.example.com}\n"})) == [OWN]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("deploy.sh", "helm upgrade --install llm ./llm \\\n  -f deploy/base.yaml \\\n  --values=deploy/prod.yaml\n"),
        ("Makefile", "up:\n\thelm install llm llm/ -f deploy/base.yaml,deploy/prod.yaml\n"),
        (
            "app.yaml",
            "apiVersion: argoproj.io/v1alpha1\nkind: Application\nspec: {source: {path: llm, helm: {valueFiles: "
            "[../deploy/base.yaml, ../deploy/prod.yaml]}}}\n",
        ),
    ],
)
def test_values_elsewhere_that_something_installs_the_chart_with(path: str, text: str) -> None:
    files = {
        **CHART,
        path: text,
        "deploy/base.yaml": "length: 100 # vllm\ntag: v0.11.0\n",
        "deploy/prod.yaml": "length: 200 # vllm\n",
    }
    found = [unit for unit in units(files) if unit.path.startswith("deploy/")]
    assert told(found) == [("deploy/prod.yaml", "--model=org/m --max-model-len=200 --enforce-eager --seed=1")]
    assert found[0].image is not None
    assert found[0].image.value == "vllm/vllm-openai:v0.11.0"


def test_values_that_are_called_as_a_charts_own_but_lie_elsewhere() -> None:
    others = {f"models/{name}/values.yaml": f"model: org/{name}\nlength: 8192\ngpus: 2\n" for name in ("a", "b")}
    found = units({**CHART, **others})
    rest = "--max-model-len=8192 --enforce-eager --seed=1"
    assert told(found) == [OWN, *((path, f"--model=org/{path[7]} {rest}") for path in others)]
    # each has a name that no other has
    assert [unit.id.partition("@")[2] for unit in found] == ["", "a/values.yaml", "b/values.yaml"]


def test_values_for_a_chart_below() -> None:
    files = {
        "app/Chart.yaml": "name: app\ndependencies: [{name: llm, condition: llm.enabled}]\n",
        "app/values.yaml": "llm: {enabled: false}\n",
        "app/values-gpu.yaml": "llm: {enabled: true, length: 64}\n# vllm\n",
        **{f"app/charts/{path}": text for path, text in CHART.items()},
    }
    assert told(units(files)) == [("app/values-gpu.yaml", "--model=org/m --max-model-len=64 --enforce-eager --seed=1")]


def test_a_chart_whose_templates_are_elsewhere() -> None:
    files = {
        "llm/Chart.yaml": "name: llm\ndependencies: [{name: vllm-stack, repository: https://example.com}]\n",
        "llm/values.yaml": "servingEngineSpec: {modelSpec: [{name: a, modelURL: org/a, requestGPU: 1}]}\n",
        "llm/values-prod.yaml": "servingEngineSpec: {modelSpec: [{name: b, modelURL: org/b, requestGPU: 2}]}\n# vllm\n",
        "llm/values-same.yaml": "servingEngineSpec: {runtimeClassName: nvidia}\n# vllm\n",
    }
    assert told(units(files)) == [("llm/values-prod.yaml", "--model org/b")]


@pytest.mark.parametrize(
    "text", ["helm " * 100_000 + "-f", "helm \\\n" * 100_000 + "-f", "helm install " + "a/ " * 100_000 + "-f"]
)
def test_hostile_commands_cost_little(text: str) -> None:
    begin = time.process_time()
    units({**CHART, "run.sh": text})
    assert time.process_time() - begin < 5


KSERVE = {
    "k/Chart.yaml": "apiVersion: v2\nname: k\nversion: 1.0.0\n",
    "k/values.yaml": """\
        model: {uri: "hf://org/m", length: 4096}
        image: quay.io/x/vllm:1
        """,
    "k/templates/runtime.yaml": """\
        apiVersion: serving.kserve.io/v1alpha1
        kind: ServingRuntime
        metadata: {name: "{{ .Release.Name }}-runtime"}
        spec:
          containers:
          - name: kserve-container
            image: {{ .Values.image }}
            command: [python, -m, vllm.entrypoints.openai.api_server]
            args:
            - --model=/mnt/models
            - --served-model-name={{ "{{.Name}}" }}
            - --max-model-len={{ .Values.model.length }}
            envFrom: [{configMapRef: {name: "{{ .Release.Name }}-env"}}]
        """,
    "k/templates/service.yaml": """\
        apiVersion: serving.kserve.io/v1beta1
        kind: InferenceService
        metadata: {name: "{{ .Release.Name }}"}
        spec:
          predictor:
            model:
              modelFormat: {name: huggingface}
              runtime: "{{ .Release.Name }}-runtime"
              storageUri: {{ .Values.model.uri }}
              args: [--enforce-eager]
        """,
    "k/templates/env.yaml": """\
        apiVersion: v1
        kind: ConfigMap
        metadata: {name: "{{ .Release.Name }}-env"}
        data: {VLLM_LOGGING_LEVEL: DEBUG, HF_HOME: "{{ .Values.none }}"}
        """,
}  # fmt: skip


def test_a_runtime_and_its_service_in_one_chart_are_one_server() -> None:
    """What a chart's other templates say counts with the values of the chart, or of the release that is read."""
    files = {**KSERVE, "k/values-long.yaml": "model: {length: 8192}  # vllm\n"}
    found = units(files)
    words = "--model=/mnt/models --served-model-name={{.Name}} --max-model-len=4096 --enforce-eager"
    assert told(found) == [
        ("k/templates/service.yaml", words),
        ("k/values-long.yaml", words.replace("4096", "8192")),
    ]
    assert [unit.storage_model and unit.storage_model.value for unit in found] == ["hf://org/m"] * 2
    names = {item.name: str(item.value) for item in found[0].environment}
    assert names == {"VLLM_LOGGING_LEVEL": "DEBUG", "HF_HOME": ""}
    reading = read_tree([SourceFile(path, dedent(text)) for path, text in sorted(KSERVE.items())])
    assert reading.unread == ()  # KServe's own placeholder is none of the chart
    # a runtime of another chart of the same name is none of this one's
    apart = {path.replace("k/templates/runtime", "other/templates/runtime"): text for path, text in KSERVE.items()}
    apart |= {"other/Chart.yaml": "name: other\n", "other/values.yaml": KSERVE["k/values.yaml"]}
    assert len(units(apart)) == 2


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (
            "apps/big.yaml",
            """\
            apiVersion: argoproj.io/v1alpha1
            kind: Application
            metadata: {name: big}
            spec:
              source:
                path: llm
                helm: {valuesObject: {length: 8192}, parameters: [{name: model, value: org/big}]}  # vllm
            """,
        ),
        (
            "apps/flux.yaml",
            """\
            apiVersion: helm.toolkit.fluxcd.io/v2
            kind: HelmRelease
            metadata: {name: big}
            spec:
              chart: {spec: {chart: ./x/llm}}  # vllm
              values: {length: 8192, model: org/big}
            """,
        ),
        (
            "apps/helmfile.yaml",
            "releases: [{name: big, chart: ../x/llm, values: [{length: 8192, model: org/big}]}]  # vllm\n",
        ),
    ],
)
def test_a_release_of_a_chart_of_the_tree(path: str, text: str) -> None:
    """What a release says is put over the values of the chart, where that is at hand."""
    chart = {name.replace("llm/", "x/llm/", 1): body for name, body in CHART.items()}
    text = text.replace("path: llm", "path: x/llm")
    found = units({**chart, path: text})
    own = (f"x/{OWN[0]}", OWN[1])
    assert told(found) == [(path, "--model=org/big --max-model-len=8192 --enforce-eager --seed=1"), own]
    assert found[0].id == "Deployment/default/llm/vllm@big"
    # a chart that is not there leaves what the values say themselves
    assert units({path: text}) == []


def test_values_files_of_a_helmfile() -> None:
    files = {
        **CHART,
        "deploy/helmfile.yaml": "releases: [{name: big, chart: ../llm, values: [big.yaml]}]\n",
        "deploy/big.yaml": "length: 8192  # vllm\n",
    }
    assert told(units(files)) == [
        ("deploy/big.yaml", OWN[1].replace("4096", "8192")),
        OWN,
    ]


@pytest.mark.parametrize(
    "text",
    [
        """\
        apiVersion: argoproj.io/v1alpha1
        kind: Application
        metadata: {name: big}
        spec:
          sources:
          - {path: llm, helm: {valueFiles: [values.yaml, $mine/apps/big.yaml]}}
          - {ref: mine}
        """,
        """\
        apiVersion: argoproj.io/v1alpha1
        kind: ApplicationSet
        metadata: {name: set}
        spec:
          generators: [{list: {elements: [{name: none}, {name: big}]}}]
          template:
            metadata: {name: "{{name}}"}
            spec: {source: {path: llm, helm: {valueFiles: ["../apps/{{name}}.yaml"]}}}
        """,
    ],
)
@pytest.mark.parametrize("name", ["big.yaml", "big/values.yaml"])
def test_values_files_of_an_application_outside_its_chart(text: str, name: str) -> None:
    application = text.replace("big.yaml", name).replace("{{name}}.yaml", name.replace("big", "{{name}}"))
    found = units({**CHART, "argo/app.yaml": application, f"apps/{name}": "length: 8192  # vllm\n"})
    assert told(found) == [(f"apps/{name}", OWN[1].replace("4096", "8192")), OWN]


def test_several_servers_of_one_name_and_what_describes_a_chart() -> None:
    """Neither makes a chart's own servers once more."""
    template = TEMPLATE.replace("{{ .Values.model }}", "{{ . }}").replace(" .Values.", " $.Values.")
    looped = f"    {{{{- range .Values.models }}}}\n    ---\n{template}    {{{{- end }}}}\n"
    chart = {
        "llm/Chart.yaml": "name: vllm\ndescription: models by vLLM\nversion: 1.0.0\n",
        "llm/values.yaml": VALUES.replace("model: org/m", "models: [org/a, org/b]"),
        "llm/templates/deployment.yaml": looped,
    }
    words = [OWN[1].replace("org/m", name) for name in ("org/a", "org/b")]
    assert told(units(chart)) == [(OWN[0], text) for text in words]
    # of an overlay, those that it changes
    found = told(units({**chart, "llm/values-big.yaml": "models: [org/a, org/c]\n# vllm\n"}))
    assert ("llm/values-big.yaml", OWN[1].replace("org/m", "org/c")) in found
    assert len(found) == 3


def test_values_without_which_a_chart_starts_nothing() -> None:
    """One key tells the chart where it makes servers with it, and none without."""
    template = TEMPLATE.replace("{{ .Values.model }}", "{{ .model }}").replace("range .Values", "range $.Values")
    template = template.replace("{{ .Values.", "{{ $.Values.")
    chart = {
        "llm/Chart.yaml": "name: llm\n",
        "llm/values.yaml": VALUES.replace("model: org/m", "models: []"),
        "llm/templates/deployment.yaml": f"{{{{- range .Values.models }}}}\n---\n{dedent(template)}{{{{- end }}}}\n",
    }
    assert units(chart) == []
    for path in ("my.values.yaml", "llm/examples/my-values.yaml"):
        found = units({**chart, path: "models: [{model: org/a}]  # vllm\n"})
        assert told(found) == [(path, OWN[1].replace("org/m", "org/a"))]
    other = {name.replace("llm/", "old/"): text for name, text in chart.items()}
    for values in ("models: [{model: org/a}]\nmine: 1\n", "replicas: 2\n"):
        assert units({**chart, "my.values.yaml": values + "# vllm\n"}) == []
    assert OWN[1] not in [
        text for _, text in told(units({**chart, **other, "my.values.yaml": "models: [{model: m}]\n"}))
    ]


def test_values_that_tell_more_than_a_chart_without_its_helpers() -> None:
    chart = {
        "stack/Chart.yaml": "name: stack\n",
        "stack/values.yaml": "servingEngineSpec: {modelSpec: []}\n",
        "stack/templates/engine.yaml": """\
            {{- range .Values.servingEngineSpec.modelSpec }}
            ---
            apiVersion: v1
            kind: Pod
            metadata: {name: {{ .name }}}
            spec:
              containers: [{name: vllm, command: [vllm, serve, '{{ include "elsewhere.model" . }}', --port, "80"]}]
            {{- end }}
            """,
    }
    text = "servingEngineSpec: {modelSpec: [{name: a, modelURL: org/a, vllmConfig: {maxModelLen: 8}}]}\n"
    own = "--model org/a --max-model-len 8 --no-enable-prefix-caching"
    assert told(units({**chart, "my-values.yaml": text})) == [("my-values.yaml", own)]
    chart["stack/templates/engine.yaml"] = chart["stack/templates/engine.yaml"].replace(
        '{{ include "elsewhere.model" . }}', "{{ .modelURL }}"
    )
    assert told(units({**chart, "my-values.yaml": text})) == [("my-values.yaml", "org/a --port 80")]


def test_values_beside_templates_are_the_chart_s_own_without_its_metadata() -> None:
    found = units({path: text for path, text in CHART.items() if "Chart" not in path})
    assert {unit.path for unit in found} == {"llm/templates/deployment.yaml"}
