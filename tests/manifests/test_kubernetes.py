"""Kubernetes objects as serve units."""

from __future__ import annotations

from textwrap import dedent

import pytest

from kvgate.manifests.quantities import quantity_bytes
from kvgate.manifests.read import read_tree
from kvgate.manifests.unit import Reading, ServeUnit
from kvgate.source.text import SourceFile

DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: llm
  namespace: ai
spec:
  replicas: 2
  template:
    spec:
      containers:
        - name: vllm
          image: vllm/vllm-openai:v0.10.0
          args: ["--model", "org/m", "--max-model-len=4096"]
          resources:
            limits:
              nvidia.com/gpu: 1
"""


def reading(*texts: str) -> Reading:
    return read_tree([SourceFile(f"f{number}.yaml", dedent(text)) for number, text in enumerate(texts)])


def units(*texts: str) -> list[ServeUnit]:
    return list(reading(*texts).units)


def unit(*texts: str) -> ServeUnit:
    (found,) = units(*texts)
    return found


def words(found: ServeUnit) -> str:
    return " ".join(("?" if word.unresolved else "") + word.value for word in found.words)


def pod(container: str, rest: str = "") -> str:
    body = "".join(f"      {line}\n" for line in dedent(container).splitlines())
    return f"apiVersion: v1\nkind: Pod\nmetadata:\n  name: p\nspec:\n  containers:\n    - name: c\n{body}{rest}"


# -- where things are --------------------------------------------------------------------------------------------------


def test_a_deployment() -> None:
    found = unit(DEPLOYMENT)
    assert found.id == "Deployment/ai/llm/vllm"
    assert (found.path, found.span.line, found.kind, found.namespace) == ("f0.yaml", 11, "Deployment", "ai")
    assert words(found) == "--model org/m --max-model-len=4096"
    assert [word.span.text for word in found.words] == ["--model", "org/m", "--max-model-len=4096"]
    assert found.words[2].span.line == 13
    assert found.image is not None
    assert found.image.value == "vllm/vllm-openai:v0.10.0"
    assert [(request.resource, request.count) for request in found.gpu_requests] == [("nvidia.com/gpu", 1)]
    assert found.replicas == 2
    assert found.replicas_span is not None
    assert found.replicas_span.line == 7


@pytest.mark.parametrize(
    ("kind", "template"),
    [
        ("StatefulSet", "template"),
        ("DaemonSet", "template"),
        ("ReplicaSet", "template"),
        ("Service", "template"),  # Knative's
        ("Job", "template"),
        ("CronJob", "jobTemplate.spec.template"),
    ],
)
def test_kinds(kind: str, template: str) -> None:
    text, indent = f"apiVersion: v1\nkind: {kind}\nmetadata:\n  name: x\nspec:\n", "  "
    for key in template.split("."):
        text += f"{indent}{key}:\n"
        indent += "  "
    text += f"{indent}spec:\n{indent}  containers:\n{indent}  - name: c\n{indent}    command: [vllm, serve, m]\n"
    found = unit(text)
    assert found.id == f"{kind}/default/x/c"
    assert words(found) == "m"
    assert found.positional_model


def test_lists_and_several_documents() -> None:
    spec = "{containers: [{name: c, command: [vllm, serve, m]}]}"
    one = f"kind: Pod\n  metadata: {{name: a}}\n  apiVersion: v1\n  spec: {spec}"
    text = f"apiVersion: v1\nkind: List\nitems:\n- {one}\n---\n{DEPLOYMENT}"
    assert [found.id for found in units(text)] == ["Pod/default/a/c", "Deployment/ai/llm/vllm"]


def test_the_same_object_twice_has_two_names() -> None:
    assert [found.id for found in units(DEPLOYMENT, DEPLOYMENT)] == [
        "Deployment/ai/llm/vllm",
        "Deployment/ai/llm/vllm#2",
    ]


def test_init_containers_serve_only_as_sidecars() -> None:
    text = """\
        apiVersion: v1
        kind: Pod
        metadata: {name: p}
        spec:
          initContainers:
            - {name: download, command: [vllm, serve, never]}
            - {name: sidecar, restartPolicy: Always, command: [vllm, serve, small]}
          containers:
            - {name: main, command: [vllm, serve, big]}
        """
    assert [found.id for found in units(text)] == ["Pod/default/p/main", "Pod/default/p/sidecar"]


# -- commands ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("container", "expected"),
    [
        ('command: ["python3", "-m", "vllm.entrypoints.openai.api_server"]\nargs: ["--model", "m"]', "--model m"),
        ('command: ["/bin/sh", "-c"]\nargs: ["vllm serve m --port 8000"]', "m --port 8000"),
        ('command: ["/bin/bash"]\nargs: ["-lc", "exec vllm serve m"]', "m"),
        ("command: [sh, -c, 'pip install x && vllm serve m']", "m"),
        ("command: [vllm serve m --a 1]", "m --a 1"),
        ("image: vllm/vllm-openai\nargs: [serve, m, --a]", "m --a"),
        ("image: rocm/vllm\nargs: [vllm, serve, m]", "m"),
        ("image: my/vllm-custom:1\nargs: [org/m, --port, '80']", "org/m --port 80"),
        ("image: ${VLLM_IMAGE}\nargs: [--model, m]", "--model m"),
        ("command: [/entrypoint.sh]\nimage: my/vllm\nargs: [--model, m]", "--model m"),
        (
            "args: [--model=m, --max-model-len=1, --kv-cache-dtype=fp8]",
            "--model=m --max-model-len=1 --kv-cache-dtype=fp8",
        ),
        ("command: [env, A=1, vllm, serve, m]", "m"),
        (
            "image: x/weights-client\nargs: [--model=m, --max-num-seqs=1, --max-model-len=1, --enforce-eager]\n"
            "resources: {limits: {nvidia.com/gpu: 1}}",
            "--model=m --max-num-seqs=1 --max-model-len=1 --enforce-eager",
        ),
        (
            "name: vllm\nimage: x/weights-client\nargs: [--model=m, --max-num-seqs=1]\n"
            "resources: {limits: {nvidia.com/gpu: 1}}",
            "--model=m --max-num-seqs=1",
        ),
    ],
)
def test_commands(container: str, expected: str) -> None:
    assert words(unit(pod(container))) == expected


@pytest.mark.parametrize(
    "container",
    [
        "image: vllm/vllm-openai:v1\ncommand: [sleep, infinity]",
        "image: vllm/vllm-openai:v1\ncommand: [vllm, bench, serve, --model, m]",
        "image: vllm/vllm-openai:v1\nargs: [bench, serve, --model, m]",
        "image: vllm/vllm-openai:v0.5.5\nenv: [{name: A, value: b}]",  # a patch of the image
        "image: lmsysorg/sglang\nargs: [--model, m, --tensor-parallel-size, '2', --served-model-name, x]",
        "image: ghcr.io/llm-d/llm-d-inference-sim:v1\nargs: [--model, m, --max-num-seqs, '2', --max-loras, '2']",
        "name: vllm\nimage: ghcr.io/llm-d/llm-d-inference-sim:v1\nargs: [--model, m, --max-loras, '2']\n"
        "resources: {limits: {nvidia.com/gpu: 1}}",
        'image: curlimages/curl\ncommand: [sh, -c, \'curl http://vllm/v1 -d {"model": "m"}\']',
        "name: vllm-render\nimage: ${IMAGE}\nargs: [--model=m, --port=1, --mode=echo]",
        "name: router\nimage: ${VLLM_IMAGE}\nargs: [--model=m, --port=1]",
        "image: x/vllm-client\nargs: [--model, m, --max-num-seqs, '2', --max-model-len, '1', --enforce-eager]",
        "image: x/vllm-router\nargs: [--port=8000, --vllm-port=8200, --data-parallel-size=4]",
        "image: python:3.12\ncommand: [sh, -c, 'echo vllm serve m; grep \"vllm serve\" /log']",
        "image: vllm/vllm-openai\ncommand: [sh, -c, 'python download.py --model m']",
        "image: rocm/vllm\ncommand: [python]\nargs: [benchmark_serving.py, --model, m, --max-concurrency, '64']",
    ],
)
def test_what_serves_nothing(container: str) -> None:
    assert units(pod(container)) == []


def test_a_script_of_several_commands_keeps_every_position() -> None:
    text = pod(
        """\
        image: my/image
        command:
          - sh
          - -c
          - |
            echo start
            export VLLM_USE_V1=1
            MODEL=org/m
            exec vllm serve "$MODEL" \\
              --max-model-len 4096 \\
              --port ${PORT:-8000}
        """
    )
    found = unit(text)
    assert words(found) == "org/m --max-model-len 4096 --port 8000"
    at = {word.value: word.span for word in found.words}
    lines = text.splitlines()
    assert lines[at["4096"].line - 1][at["4096"].column - 1 :] == "4096 \\"
    assert at["8000"].text == "8000"
    assert at["org/m"].text == "$MODEL"
    assert {variable.name: variable.value.value for variable in found.environment if variable.value} == {
        "VLLM_USE_V1": "1"
    }


def test_alternatives_are_units_of_their_own() -> None:
    found = units(pod("command: [sh, -c, 'if [ -f /lora ]; then vllm serve a; else vllm serve b; fi']"))
    assert [(item.id, words(item)) for item in found] == [("Pod/default/p/c", "a"), ("Pod/default/p/c/2", "b")]
    assert found[0].notes[0].text == "[ -f /lora ]"


def test_a_script_from_a_config_map() -> None:
    text = """\
        apiVersion: v1
        kind: ConfigMap
        metadata: {name: scripts}
        data:
          start.sh: |
            #!/bin/sh
            vllm serve $MODEL --seed 1
        ---
        apiVersion: v1
        kind: Pod
        metadata: {name: p}
        spec:
          containers:
            - name: c
              command: [sh, /scripts/start.sh]
              env: [{name: MODEL, value: m}]
              volumeMounts: [{name: s, mountPath: /scripts}]
          volumes:
            - {name: s, configMap: {name: scripts}}
        """
    found = unit(text)
    assert words(found) == "m --seed 1"
    assert found.words[1].span.line == 7
    assert found.span.line == 14


def test_a_launch_script_that_is_not_at_hand() -> None:
    text = pod(
        """\
        image: vllm/vllm-openai:v0.21.0
        command: [/bin/sh, /app/start.sh]
        env: [{name: MODEL_ID, value: org/m}]
        resources: {limits: {nvidia.com/gpu: 1}}
        """
    )
    found = unit(text)
    assert found.storage_model is not None
    assert found.storage_model.value == "org/m"
    assert found.words[0].splits
    assert found.words[0].unresolved[0].reason == "the script is not among the files read"
    unknown = reading(text.replace("MODEL_ID", "OTHER"))
    assert unknown.units == ()
    assert [(item.reason, item.span.line) for item in unknown.unread] == [
        ("/app/start.sh, which a vLLM image runs here, is not among the files read", 7)
    ]


def test_a_scripts_size_is_bounded() -> None:
    text = pod("command: [sh, -c, '" + "vllm serve m; " * 30_000 + "']")
    found = reading(text)
    assert found.units == ()
    assert [item.serves for item in found.unread] == [True]


# -- environment -------------------------------------------------------------------------------------------------------

CONFIG = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: conf, namespace: default}
data:
  MODEL: "org/m"
  TP: "2"
  HIDDEN: "${FROM_ENVSUBST}"
"""


def test_variables_from_the_environment_and_config_maps() -> None:
    container = """\
        command: [vllm, serve, $(MODEL), --tp, $(COUNT), --x=$(BOTH), --y, $(SECRET), --z, $(NOWHERE), --w, $$(MODEL)]
        envFrom:
          - configMapRef: {name: conf}
        env:
          - {name: COUNT, valueFrom: {configMapKeyRef: {name: conf, key: TP}}}
          - {name: BOTH, value: "$(MODEL)-$(COUNT)"}
          - {name: SECRET, valueFrom: {secretKeyRef: {name: s, key: k}}}
          - {name: POD, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
        """
    found = unit(pod(container), CONFIG)
    assert words(found) == "org/m --tp 2 --x=org/m-2 --y ?s.k --z ?$(NOWHERE) --w $(MODEL)"
    at = {word.value: word for word in found.words}
    assert at["org/m"].span.text == "$(MODEL)"
    assert at["s.k"].unresolved[0].reason == "it comes from Secret s"
    assert at["$(NOWHERE)"].unresolved[0].reason == "NOWHERE is set in no file here"
    environment = {variable.name: variable for variable in found.environment}
    assert environment["MODEL"].value is not None
    assert environment["MODEL"].value.value == "org/m"
    assert environment["HIDDEN"].value is None
    assert environment["POD"].unresolved is not None
    assert environment["POD"].unresolved.reason == "status.podIP of the pod is known at run time only"


def test_a_config_map_that_is_not_among_the_files() -> None:
    found = unit(pod("command: [vllm, serve, $(MODEL)]\nenvFrom: [{configMapRef: {name: absent}}]"))
    assert found.words[0].unresolved[0].reason == "MODEL may come from ConfigMap absent, which is not among the files"


def test_config_maps_of_another_namespace_or_in_doubt_are_not_taken() -> None:
    container = "command: [vllm, serve, $(MODEL)]\nenvFrom: [{configMapRef: {name: conf}}]"
    text = pod(container).replace("name: p", "name: p\n  namespace: elsewhere")
    assert not unit(text, CONFIG).words[0].resolved
    other = CONFIG.replace("org/m", "org/other")
    assert not unit(pod(container), CONFIG, other).words[0].resolved
    assert unit(pod(container), CONFIG, CONFIG).words[0].resolved


def test_the_nearest_config_map_is_taken() -> None:
    container = pod("command: [vllm, serve, $(MODEL)]\nenvFrom: [{configMapRef: {name: conf}}]")
    files = [
        SourceFile("a/pod.yaml", container),
        SourceFile("a/conf.yaml", CONFIG),
        SourceFile("b/conf.yaml", CONFIG.replace("org/m", "org/other")),
    ]
    (found,) = read_tree(files).units
    assert found.words[0].value == "org/m"


def test_variables_of_a_shell_string_from_the_environment() -> None:
    container = """\
        command: [sh, -c, 'vllm serve "$MODEL" --tp ${TP:-1} --seed $(SEED) --x $(nproc)']
        env: [{name: MODEL, value: m}, {name: SEED, value: "7"}]
        """
    assert words(unit(pod(container))) == "m --tp 1 --seed 7 --x ?$(nproc)"


def test_envsubst_placeholders_stay_unresolved() -> None:
    text = (
        DEPLOYMENT.replace("org/m", "${MODEL}").replace("replicas: 2", "replicas: ${N}").replace("gpu: 1", "gpu: ${G}")
    )
    found = unit(text)
    assert not found.words[1].resolved
    assert not found.words[1].splits
    assert found.replicas is None
    assert found.notes[0].text == "${N}"
    assert found.gpu_requests[0].count is None
    assert found.gpu_requests[0].reason is not None


# -- around the container ----------------------------------------------------------------------------------------------


def test_machine_annotations_and_shared_memory() -> None:
    text = """\
        apiVersion: apps/v1
        kind: Deployment
        metadata:
          name: d
          annotations: {kvgate.dev/peak-concurrency: "20", kvgate.dev/gpu: A, other: x}
        spec:
          template:
            metadata:
              annotations: {kvgate.dev/gpu: NVIDIA L4}
              labels: {app: x, gpu-type: l4}
            spec:
              nodeSelector: {cloud.google.com/gke-accelerator: nvidia-l4}
              affinity:
                nodeAffinity:
                  requiredDuringSchedulingIgnoredDuringExecution:
                    nodeSelectorTerms:
                      - matchExpressions:
                          - {key: nvidia.com/gpu.product, operator: In, values: [NVIDIA-L4, NVIDIA-A10]}
                          - {key: zone, operator: NotIn, values: [a]}
              containers:
                - name: c
                  command: [vllm, serve, m]
                  volumeMounts: [{name: shm, mountPath: /dev/shm}]
                  resources:
                    requests: {nvidia.com/gpu: 2, cpu: 4}
                    limits: {nvidia.com/mig-3g.40gb: "1", nvidia.com/gpumem: 8000}
              volumes:
                - {name: shm, emptyDir: {medium: Memory, sizeLimit: 16Gi}}
        """
    found = unit(text)
    assert {key: value.value for key, value in found.annotations.items()} == {
        "kvgate.dev/peak-concurrency": "20",
        "kvgate.dev/gpu": "NVIDIA L4",
    }
    assert [(hint.key, hint.values) for hint in found.node_hints] == [
        ("nvidia.com/gpumem", ("8000",)),
        ("cloud.google.com/gke-accelerator", ("nvidia-l4",)),
        ("nvidia.com/gpu.product", ("NVIDIA-L4", "NVIDIA-A10")),
        ("gpu-type", ("l4",)),
    ]
    assert [(request.resource, request.count) for request in found.gpu_requests] == [
        ("nvidia.com/mig-3g.40gb", 1),
        ("nvidia.com/gpu", 2),
    ]
    assert found.shared_memory is not None
    assert (found.shared_memory.how, found.shared_memory.bytes) == ("emptyDir", 16 * 2**30)


def test_host_ipc() -> None:
    found = unit(pod("command: [vllm, serve, m]", "  hostIPC: true\n"))
    assert found.shared_memory is not None
    assert (found.shared_memory.how, found.shared_memory.bytes) == ("hostIPC", None)


@pytest.mark.parametrize(
    ("scaler", "expected"),
    [
        ("apiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nspec:\n  minReplicas: 3\n", 3),
        ("apiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nspec:\n  maxReplicas: 3\n", 1),
        ("apiVersion: keda.sh/v1alpha1\nkind: ScaledObject\nspec:\n  minReplicaCount: 4\n", 4),
        ("apiVersion: keda.sh/v1alpha1\nkind: ScaledObject\nspec:\n  maxReplicaCount: 4\n", 0),
    ],
)
def test_an_autoscaler_sets_the_replicas(scaler: str, expected: int) -> None:
    text = scaler + "  scaleTargetRef: {kind: Deployment, name: llm}\nmetadata: {name: s, namespace: ai}\n"
    found = unit(DEPLOYMENT, text)
    assert found.replicas == expected
    assert found.replicas_span is not None
    assert found.replicas_span.path == "f1.yaml"
    assert unit(DEPLOYMENT, text.replace("name: llm", "name: other")).replicas == 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [("16Gi", 16 * 2**30), ("0.5Gi", 2**29), ("1G", 10**9), ("1e9", 10**9), ("512", 512), ("x", None), ("1 Gi", None)],
)
def test_quantities(text: str, expected: int | None) -> None:
    assert quantity_bytes(text) == expected


# -- what is broken ----------------------------------------------------------------------------------------------------


def test_a_broken_file_still_gives_its_servers() -> None:
    found = reading(DEPLOYMENT + "---\napiVersion: v1\nkind: Service\nspec:\n  type: LoadBalancer\n\tports: 1\n")
    assert [item.id for item in found.units] == ["Deployment/ai/llm/vllm"]
    (unread,) = found.unread
    assert (unread.rule, unread.span.line, unread.serves) == ("unparsable-manifest", 22, True)


def test_a_named_file_must_be_readable_whatever_it_holds() -> None:
    file = SourceFile("f.yaml", "a: [1\nb: 2\n")
    assert read_tree([file]) == Reading((), ())
    (unread,) = read_tree([file], named=frozenset({"f.yaml"})).unread
    assert (unread.rule, unread.span.line, unread.serves) == ("unparsable-manifest", 2, False)


def test_a_template_of_something_else_need_not_be_yaml() -> None:
    text = "# vLLM is watched here\na: [1\nb: 2\n"
    assert [unread.rule for unread in read_tree([SourceFile("rules.yml", text)]).unread] == ["unparsable-manifest"]
    assert read_tree([SourceFile("rules.yml.j2", text)]).unread == ()


def test_json_manifests() -> None:
    text = '{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},\n'
    text += ' "spec": {"containers": [{"name": "c", "command": ["vllm", "serve", "m", "--port", "80"]}]}}\n'
    found = unit(text)
    assert words(found) == "m --port 80"
    assert found.words[2].span.text == "80"


def test_a_misplaced_first_line() -> None:
    lines = DEPLOYMENT.splitlines(keepends=True)
    found = reading(lines[0] + "".join("    " + line for line in lines[1:]))
    assert [words(item) for item in found.units] == ["--model org/m --max-model-len=4096"]
    assert len(found.unread) == 1


def test_a_template_is_read_as_far_as_its_text_allows() -> None:
    found = reading(
        "kind: Pod\nspec:\n  containers:\n  - image: {{ .Values.vllm.image }}\n    command: [vllm, serve, m]\n"
    )
    assert [words(item) for item in found.units] == ["m"]
    assert [(item.reason, item.rule) for item in found.unread] == [
        ("a template, not rendered: its text was read without values", None)
    ]
    assert reading("a: {{ .Values.x }}\n") == Reading((), ())


def test_other_yaml_is_none_of_our_business() -> None:
    assert reading("vllm: {image: vllm/vllm-openai, model: m}\n", "- vllm serve m\n", "vllm serve\n") == Reading((), ())


@pytest.mark.parametrize(
    "text",
    [
        "kind: Pod\nspec: {containers: {name: vllm}}\n",
        "kind: Pod\nspec: [vllm]\n",
        "kind: Pod\nspec: {containers: [vllm, [vllm], {args: {a: vllm}, command: vllm}]}\n",
        "kind: Deployment\nspec: {template: {spec: {containers: [{name: [vllm], image: {a: vllm}, env: vllm}]}}}\n",
        "kind: Pod\nmetadata: vllm\nspec: {containers: [{command: [vllm, serve, [m], {a: b}, null]}]}\n",
        "kind: List\nitems: vllm\n",
    ],
)
def test_shapes_that_no_schema_allows(text: str) -> None:
    for item in units(text):
        assert item.span.line >= 1
