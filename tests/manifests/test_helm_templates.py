"""Chart templates: the evaluation of Go templates, and the servers in them."""

from __future__ import annotations

import time
from textwrap import dedent

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvgate.manifests.helm.chart import render_statically
from kvgate.manifests.helm.evaluate import go_float
from kvgate.manifests.helm.go_template import TemplateError, parse_template
from kvgate.manifests.read import read_tree
from kvgate.manifests.tree import Tree
from kvgate.manifests.unit import Reading, ServeUnit
from kvgate.source.text import SourceFile

VALUES = """\
model: org/m
length: 1048576
ratio: 0.9
small: 4096
flag: true
off: false
empty: ""
list: [a, b]
map: {x: 1, y: {z: "2"}}
text: |
  one
  two
name: My-Name
"""


def evaluated(template: str, values: str = VALUES, **helpers: str) -> str:
    files = [
        SourceFile("c/Chart.yaml", "name: chart\nappVersion: v1.2\n"),
        SourceFile("c/values.yaml", values),
        SourceFile("c/templates/t.yaml", "r: |\n  " + template.replace("\n", "\n  ") + "\n"),
        *(SourceFile(f"c/templates/{name}.tpl", text) for name, text in helpers.items()),
    ]
    documents = render_statically(Tree(files), files[2]).documents
    (document,) = documents
    value = document.get("r")  # type: ignore[union-attr]
    return value.value.rstrip("\n")  # type: ignore[union-attr, no-any-return]


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{{ .Values.model }}", "org/m"),
        ("{{ .Values.length }} {{ .Values.length | int }}", "1.048576e+06 1048576"),
        ("{{ .Values.small }} {{ .Values.ratio }}", "4096 0.9"),
        ("{{ .Values.model | quote }} {{ squote .Values.small }}", "\"org/m\" '4096'"),
        ("{{ .Chart.Name }}-{{ .Chart.AppVersion }}", "chart-v1.2"),
        ("{{ .Values.none | default \"d\" }}{{ default 1 .Values.empty }}", "d1"),
        ("{{ (split \"/\" .Values.model)._1 }} {{ (splitn \"/\" 2 \"a/b/c\")._1 }}", "m b/c"),
        ("{{ first (regexSplit \"://\" \"hf://a/b\" -1) }} {{ last (regexSplit \"/\" \"a/b/c\" 2) }}", "hf b/c"),
        ("{{ regexReplaceAll \"[^a-z0-9]+\" \"a/B.c\" \"-\" }} {{ regexMatch \"^v[0-9]+$\" \"v12\" }}", "a-c true"),
        ("{{ regexMatch \"(a+)+b\" \"aaa\" | default \"x\" }}", "{{ regexMatch \"(a+)+b\" \"aaa\" | default \"x\" }}"),
        ("{{ substr 0 3 .Values.model }} {{ substr 1 -1 .Values.model }}", "org rg/m"),
        ("{{ semverCompare \"<0.13.0\" \"v0.11.2\" }} {{ semverCompare \">=0.9, <0.11\" \"0.11.0\" }}", "true false"),
        ("{{ semverCompare \"^1.2\" \"1.9.0\" }} {{ semverCompare \"~1.2\" \"1.3.0-rc1\" }}", "true false"),
        ("{{ mustToJson .Values.list }} {{ b64dec \"YWI=\" }} {{ cat \"a\" 1 }}", '["a","b"] ab a 1'),
        ("{{ any .Values.off .Values.flag }} {{ all .Values.off .Values.flag }}", "true false"),
        ("{{ if .Values.flag }}a{{ else }}b{{ end }}", "a"),
        ("{{ if .Values.off }}c{{ else if .Values.none }}d{{ else }}e{{ end }}", "e"),
        ("{{ range .Values.list }}[{{ . }}]{{ end }}", "[a][b]"),
        ("{{ range $k, $v := .Values.map }}{{ $k }};{{ end }}", "x;y;"),
        ("{{ range $i, $e := .Values.list }}{{ $i }}{{ $e }}{{ end }}", "0a1b"),
        ("{{ range .Values.none }}a{{ else }}none{{ end }}", "none"),
        ("{{ with .Values.map.y }}{{ .z }}{{ end }}{{ with .Values.none }}x{{ end }}", "2"),
        ("{{ $x := .Values.model }}{{ $x }}{{ if true }}{{ $x = \"changed\" }}{{ end }}{{ $x }}", "org/mchanged"),
        ("a {{- /* a comment */ -}} b", "ab"),
        ("{{ printf \"%s:%d %q\" .Values.model 3 .Values.name }}", "org/m:3 \"My-Name\""),
        ("{{ eq .Values.model \"org/m\" }} {{ ne 1 2 }}", "true true"),
        ("{{ and true .Values.off }} {{ or .Values.empty \"z\" }}", "false z"),
        ("{{ not .Values.flag }}{{ gt 2 1 }}{{ hasPrefix \"org\" .Values.model }}", "falsetruetrue"),
        ("{{ .Values.name | lower | trunc 4 | trimSuffix \"n\" }}", "my-"),
        ("{{ add 1 2 3 }} {{ mul 2 3 }} {{ div 7 2 }} {{ sub 5 1 }}", "6 6 3 4"),
        ("{{ ternary \"a\" \"b\" .Values.flag }}{{ coalesce .Values.empty .Values.name }}", "aMy-Name"),
        ("{{ index .Values.list 1 }}{{ (index .Values.map \"y\").z }}{{ len .Values.list }}", "b22"),
        ("{{ join \",\" .Values.list }} {{ .Values.map | toJson }}", "a,b {\"x\":1,\"y\":{\"z\":\"2\"}}"),
        ("{{ include \"n\" . }}|{{ template \"n\" . }}", "chart-x|chart-x"),
        ("{{ tpl \"{{ .Values.model }}!\" . }}", "org/m!"),
        ("{{`{{ .Raw }}`}}", "{{ .Raw }}"),
        ("{{ .Values.model | replace \"/\" \"--\" | upper }}", "ORG--M"),
        ("{{ dict \"a\" 1 \"b\" .Values.model | toJson }}", '{"a":1,"b":"org/m"}'),
        ("{{ kindIs \"map\" .Values.map }} {{ hasKey .Values.map \"x\" }}", "true true"),
        ("{{ has \"a\" .Values.list }} {{ has \"z\" .Values.list }}", "true false"),
        ("a:{{ .Values.map | toYaml | nindent 4 }}", "a:\n  x: 1\n  y:\n    z: \"2\""),
        ("a:{{ toYaml .Values.list | nindent 4 }}", "a:\n  - a\n  - b"),
        ("{{ $d := dict \"a\" 1 }}{{ $_ := set $d \"b\" .Values.model }}{{ range $d }}{{ . }};{{ end }}", "1;org/m;"),
        ("{{ $d := deepCopy .Values.map }}{{ $_ := set $d.y \"z\" 3 }}{{ $d.y.z }}{{ .Values.map.y.z }}", "32"),
        ("{{ (.Values.map | toYaml | fromYaml).y.z }}", "2"),
        ("{{ .Values.model | base }} {{ dir \"/a/b/c\" }}", "m /a/b"),
        ("{{ dig \"y\" \"z\" \"d\" .Values.map }}{{ dig \"y\" \"none\" \"d\" .Values.map }}", "2d"),
        ("{{ kebabcase \"maxModelLen\" }} {{ snakecase \"maxModelLen\" }}", "max-model-len max_model_len"),
        ("{{ list \"b\" \"a\" \"b\" \"\" | uniq | sortAlpha | compact | join \",\" }}", "a,b"),
        ("{{ without .Values.list \"a\" | first }}{{ initial .Values.list | last }}", "ba"),
        ("{{ reverse .Values.list | join \"\" }}", "ba"),
        ("{{ prepend .Values.list \"z\" | join \"\" }} {{ ceil 1.2 }}{{ floor 1.8 }}", "zab 21"),
    ],
)  # fmt: skip
def test_evaluation(template: str, expected: str) -> None:
    assert evaluated(template, n='{{ define "n" }}{{ .Chart.Name }}-x{{ end }}') == expected


@pytest.mark.parametrize(
    "template",
    ["{{ .Release.Name }}", "{{ include \"elsewhere\" . }}", "{{ now }}", "{{ lookup \"v1\" | noSuchFunction }}",
     "{{ .Release.Name | quote | upper }}", "{{ default \"x\" .Release.Name }}"],
)  # fmt: skip
def test_what_is_not_known_stays_as_written(template: str) -> None:
    inside = template[2:-2].strip()
    assert evaluated(template) == "{{ " + inside + " }}"


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{{ list \"--model\" .Release.Name | join \" \" }}", "--model {{ .Release.Name }}"),
        ("{{ list \"a\" .Release.Name 2 | toJson }}", '["a","{{ .Release.Name }}",2]'),
        ("{{ dict \"a\" (list (now) \"\\\"\") | toRawJson }}", '{"a":["{{ unknown }}","\\""]}'),
        ("{{ cat \"a\" .Values.model .Release.Name }}", "{{ cat \"a\" .Values.model .Release.Name }}"),
        ("{{ list .Release.Name .Values.small | toStrings | last }}", "4096"),
        ("{{ list .Release.Name | toString }}", '["{{ .Release.Name }}"]'),
        ("{{ printf \"--seed=%d --port=%v\" .Release.Revision 80 }}", "--seed={{ .Release.Revision }} --port=80"),
        ("{{ include (printf \"%s.x\" .Release.Name) . }}", "{{ include (printf \"%s.x\" .Release.Name) . }}"),
    ],
)  # fmt: skip
def test_what_is_not_known_inside_of_what_is_known(template: str, expected: str) -> None:
    assert evaluated(template) == expected


def test_a_manifest_with_tags_of_handlebars() -> None:
    text = """\
        apiVersion: apps/v1
        kind: Deployment
        metadata: {name: m}
        spec:
          template:
            spec:
              nodeSelector:
                {{{PREFIX}}}/pool: one
              containers:
                - name: vllm
                  image: vllm/vllm-openai:v0.9.0
                  args:
                    - --model={{{MODEL}}}
                    {{#unless small}}
                    - --max-model-len=4096
                    {{/unless}}
                  {{#if two}}
                  resources: {limits: {nvidia.com/gpu: 2}}
                  {{else}}
                  resources: {limits: {nvidia.com/gpu: 4}}
                  {{/if}}
        """
    (unit,) = reading(d_DOT_yaml=text).units
    assert words(unit) == "?--model={{ MODEL }} ?{{ if not small }}--max-model-len=4096{{ end }}"
    assert [request.count for request in unit.gpu_requests] == [2]
    assert unit.span.line == 10
    assert [word.span.line for word in unit.words] == [13, 15]
    assert reading(d_DOT_yaml=text.replace("{{/if}}", "")).units == ()


def test_json_that_a_template_makes_and_quotes() -> None:
    text = POD.replace("NAME", "c.fullname").replace("CONTAINER", "vllm")
    made = """printf "--speculative-config=%s" (dict "model" .Values.draft "n" (int .Values.n) | toJson) | quote"""
    (unit,) = reading(
        d_DOT_yaml=text.replace("REST", f"args:\n          - --model=org/m\n          - {{{{ {made} }}}}")
    ).units
    assert [(word.value, word.resolved) for word in unit.words] == [
        ("--model=org/m", True),
        ('--speculative-config={"model":"{{ .Values.draft }}","n":"{{ .Values.n }}"}', False),
    ]


def test_arguments_that_a_template_lists_as_json() -> None:
    text = POD.replace("NAME", "c.fullname").replace("CONTAINER", "vllm")
    rest = 'args: {{ list "--model" .Values.model "--port" "80" (printf "--seed=%v" .Values.seed) | toJson }}'
    (unit,) = reading(d_DOT_yaml=text.replace("REST", rest)).units
    assert [(word.value, word.resolved) for word in unit.words] == [
        ("--model", True), ("{{ .Values.model }}", False), ("--port", True), ("80", True),
        ("--seed={{ .Values.seed }}", False),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("number", "text"),
    [(1, "1"), (0.5, "0.5"), (1e6, "1e+06"), (1048576, "1.048576e+06"), (999999, "999999"), (1e-5, "1e-05"),
     (0.0001, "0.0001"), (-2.5, "-2.5"), (123456789, "1.23456789e+08"), (0, "0"), (1e21, "1e+21")],
)  # fmt: skip
def test_numbers_as_go_prints_them(number: float, text: str) -> None:
    assert go_float(number) == text


def test_what_is_set_under_an_unknown_condition_is_not_known() -> None:
    start = '{{ $d := dict "a" 1 }}{{ if .Release.X }}{{ $_ := set $d "KEY" 2 }}{{ end }}'
    assert evaluated(start.replace("KEY", "a") + "{{ $d.a }}").endswith("{{ $d.a }}")
    # what may be there as well stays open
    written = evaluated(start.replace("KEY", "b") + "{{ range $k, $v := $d }}{{ $k }};{{ end }}")
    assert "{{ if range $k, $v := $d }}" in written
    assert evaluated('{{ append .Release.List "x" | join "," }}') == '{{ append .Release.List "x" | join "," }}'


@pytest.mark.parametrize(
    "text", ["{{ if }}", "{{ if x }}", "{{ end }}", "{{ range .x }}", "{{ ( }}", "{{ | }}", "{{", "{{ .a ] }}"]
)
def test_what_go_would_refuse(text: str) -> None:
    with pytest.raises(TemplateError):
        parse_template(text)


# -- servers -----------------------------------------------------------------------------------------------------------

TEMPLATE = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ include "c.name" . }}
spec:
  replicas: {{ .Values.replicas }}
  template:
    spec:
      containers:
        - name: vllm
          image: "{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}"
          args:
            - --model
            - {{ .Values.vllm.model | quote }}
            - --max-model-len={{ .Values.vllm.maxModelLen }}
            {{- if .Values.vllm.eager }}
            - --enforce-eager
            {{- end }}
            {{- range .Values.vllm.extraArgs }}
            - {{ . | quote }}
            {{- end }}
          resources:
            {{- toYaml .Values.resources | nindent 12 }}
"""
CHART_VALUES = """\
replicas: 2
image: {repository: vllm/vllm-openai}
vllm: {model: org/m, maxModelLen: 4096, eager: true, extraArgs: [--port, "80"]}
resources: {limits: {nvidia.com/gpu: 2}}
"""


def reading(**files: str) -> Reading:
    names = {name.replace("__", "/").replace("_DOT_", "."): text for name, text in files.items()}
    return read_tree([SourceFile(name, dedent(text)) for name, text in names.items()], named=frozenset(names))


def words(unit: ServeUnit) -> str:
    return " ".join(("?" if word.unresolved else "") + word.value for word in unit.words)


def test_a_template_with_its_charts_values() -> None:
    found = reading(
        c__Chart_DOT_yaml="name: c\nappVersion: v0.9.0\n",
        c__values_DOT_yaml=CHART_VALUES,
        c__templates__d_DOT_yaml=TEMPLATE,
    )
    (unit,) = found.units
    assert words(unit) == "--model org/m --max-model-len=4096 --enforce-eager --port 80"
    assert unit.image is not None
    assert (unit.image.value, unit.replicas) == ("vllm/vllm-openai:v0.9.0", 2)
    assert [request.count for request in unit.gpu_requests] == [2]
    # the place of a value is where it can be changed
    model = unit.words[1].text.slice(0, 5).span
    assert (model.path, model.line, model.text) == ("c/values.yaml", 3, "org/m")
    assert (unit.path, unit.span.line) == ("c/templates/d.yaml", 10)
    assert unit.id == "Deployment/default/c/templates/d.yaml/vllm"


def test_a_template_without_values() -> None:
    found = reading(d_DOT_yaml=TEMPLATE)
    (unit,) = found.units
    assert words(unit) == (
        "--model ?{{ .Values.vllm.model | quote }} ?--max-model-len={{ .Values.vllm.maxModelLen }} "
        "?{{ if .Values.vllm.eager }}--enforce-eager{{ end }} "
        "?{{ if range .Values.vllm.extraArgs }} . | quote {{ end }}"
    )
    assert unit.words[3].unresolved[0].reason == "only if .Values.vllm.eager"
    assert [item.reason for item in found.unread] == ["a template, not rendered: its text was read without values"]


POD = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ include "NAME" . }}
spec:
  template:
    spec:
      containers:
        - name: CONTAINER
          image: "{{ .Values.image.repository }}:{{ .Values.image.tag }}"
          REST
"""


@pytest.mark.parametrize(
    ("name", "container", "rest", "expected"),
    [
        ("vllm.fullname", "main", "args: {{ toYaml .Values.x }}", ["?{{ toYaml .Values.x }}"]),
        # the part of a chart tells what it is, not the chart
        ("vllm.embeddings.fullname", "main", "args: {{ toYaml .Values.x }}", []),
        ("stack.vllm.fullname", "main", "args: {{ toYaml .Values.x }}", ["?{{ toYaml .Values.x }}"]),
        # a whole command that the values bring
        ("c.fullname", "vllm", "command: {{ toYaml .Values.x }}", ["?{{ toYaml .Values.x }}"]),
        ("c.fullname", "app", "command: {{ toYaml .Values.x }}", []),
        # an image that the values name whole, in a container that is called after the engine
        ("c.fullname", "vllm", "ports: []", ['?{{ .Values.image.repository }}:{{ .Values.image.tag }}']),
        ("c.fullname", "vllm-exporter", "ports: []", []),
        ("vllm.fullname", "main", "ports: []", []),
        # one that is told the model and arguments by variables
        ("vllm.fullname", "main", "env: [{name: MODEL, value: org/m}, {name: MAX_MODEL_LEN, value: {{ .Values.n }}}]",
         ["?{{ .Values.image.repository }}:{{ .Values.image.tag }} --max-model-len ?{{ .Values.n }}"]),
        ("vllm.fullname", "main", "env: [{name: MODEL, value: org/m}, {name: PORT, value: 80}]", []),
        ("c.fullname", "main", "env: [{name: MODEL, value: org/m}, {name: MAX_MODEL_LEN, value: 8}]", []),
        ("vllm.fullname", "router", "env: [{name: MODEL, value: org/m}, {name: MAX_MODEL_LEN, value: 8}]", []),
        # the model first, and the rest behind it
        ("vllm.fullname", "main", 'args: ["{{ .Values.model }}", "--port=80"]', ["?{{ .Values.model }} --port=80"]),
        ("c.fullname", "main", 'args: ["{{ .Values.model }}", "--port=80"]', []),
        ("vllm.fullname", "main", 'args: ["{{ .Values.mode }}", "--port=80"]', []),
        # arguments of the values' first, and the rest behind them
        ("vllm.fullname", "main", 'args: ["{{ toYaml .Values.args }}", "--port=80"]',
         ["?{{ toYaml .Values.args }} --port=80"]),
        ("c.fullname", "main", 'args: ["{{ toYaml .Values.args }}", "--port=80"]', []),
        # flags of llama.cpp
        ("c.fullname", "vllm", 'args: ["--model", "/m/{{ .Values.file }}", "--n-gpu-layers", "9", "--port=1"]', []),
        ("c.fullname", "vllm", 'args: ["--model", "/m/a", "--port=1"]', ["--model /m/a --port=1"]),
    ],
)  # fmt: skip
def test_which_containers_of_a_chart_serve(name: str, container: str, rest: str, expected: list[str]) -> None:
    text = POD.replace("NAME", name).replace("CONTAINER", container).replace("REST", rest)
    assert [words(unit) for unit in reading(d_DOT_yaml=text).units] == expected


@pytest.mark.parametrize(
    ("rest", "positional"),
    [
        ("args: {{ toYaml .Values.x }}", False),
        ("{{- with .Values.vllmArgs }}\n          args: {{ toYaml . }}\n          {{- end }}", False),
        ('args: ["{{ .Values.model }}"]', True),
    ],
)
def test_whole_arguments_of_values_are_no_model(rest: str, positional: bool) -> None:
    text = POD.replace("NAME", "vllm.fullname").replace("CONTAINER", "main").replace("REST", rest)
    (unit,) = reading(d_DOT_yaml=text).units
    assert unit.positional_model is positional


@pytest.mark.parametrize(("container", "servers"), [("server", 1), ("router", 0), ("metrics-exporter", 0)])
def test_containers_with_an_image_that_a_chart_of_vllm_names(container: str, servers: int) -> None:
    text = POD.replace("NAME", "c.fullname").replace("CONTAINER", container)
    text = text.replace('"{{ .Values.image.repository }}:{{ .Values.image.tag }}"', '{{ include "vllm.image" . }}')
    text = text.replace("REST", "args:\n            {{- toYaml .Values.args | nindent 12 }}\n            - --port=80")
    found = reading(d_DOT_yaml=text).units
    assert [words(unit) for unit in found] == ["?{{ toYaml .Values.args | nindent 12 }} --port=80"] * servers
    # the first of all the arguments is not said to be the model
    assert all(not unit.positional_model for unit in found)


def test_a_model_and_flags_under_one_condition() -> None:
    text = POD.replace("NAME", "c.fullname").replace("CONTAINER", "main")
    command = """\
command: [sh]
          args:
            - -c
            - >-
              vllm serve
              {{- if .Values.local }}
              {{ .Values.folder }}/weights
              --served-model-name={{ .Values.name }} --seed 1
              {{- end }}
              --port 80"""
    (unit,) = reading(d_DOT_yaml=text.replace("REST", command)).units
    assert [word.value for word in unit.words] == [
        "{{ .Values.folder }}/weights", "--served-model-name={{ .Values.name }} --seed 1", "--port", "80",
    ]  # fmt: skip
    assert [word.resolved for word in unit.words] == [False, False, True, True]


def test_items_under_a_condition_with_comments_and_quotes() -> None:
    text = POD.replace("NAME", "vllm.fullname").replace("CONTAINER", "vllm")
    items = """args:
            - --model=org/m
            {{- if .Values.x }}
            # a line of its own
            - "--swap-space={{ .Values.x }}" # GiB
            - '--override={"a": "it''s"}'   # as JSON
            - "{\\"b\\": \\"#\\"}"
            - "{{ include "c.name" . }}"
            - --seed={{ .Values.seed }}   # any
            - --max-model-len=8#9
            {{- end }}"""
    (unit,) = reading(d_DOT_yaml=text.replace("REST", items)).units
    assert [word.value for word in unit.words] == [
        "--model=org/m",
        "{{ if .Values.x }}--swap-space= .Values.x {{ end }}",
        '{{ if .Values.x }}--override={"a": "it\'s"}{{ end }}',
        '{{ if .Values.x }}{"b": "#"}{{ end }}',
        '{{ if .Values.x }} include "c.name" . {{ end }}',
        "{{ if .Values.x }}--seed= .Values.seed {{ end }}",
        "{{ if .Values.x }}--max-model-len=8#9{{ end }}",
    ]
    assert all(word.unresolved for word in unit.words[1:])


def test_conditions_on_lines_of_a_folded_command() -> None:
    text = POD.replace("NAME", "c.fullname").replace("CONTAINER", "main")
    command = """\
command: [bash, -c]
          args:
            - >-
              vllm serve {{ .Values.model }}
              {{ if .Values.q }}--quantization={{ .Values.q }}{{ end }}
              {{- with .Values.length }}
              --max-model-len={{ . }}
              {{- end }}
              {{ if .Values.eager }}
              --enforce-eager
              {{ end }}
              --port 80"""
    (unit,) = reading(d_DOT_yaml=text.replace("REST", command)).units
    assert [word.value for word in unit.words] == [
        "{{ .Values.model }}", "--quantization={{ .Values.q }}", "--max-model-len={{ . }}", "--enforce-eager",
        "--port", "80",
    ]  # fmt: skip


def test_a_job_of_a_chart_whose_values_bring_all_serves_nothing() -> None:
    text = (
        POD.replace("NAME", "vllm.fullname")
        .replace("CONTAINER", "main")
        .replace("REST", "args: {{ toYaml .Values.x }}")
    )
    assert reading(d_DOT_yaml=text).units
    assert reading(d_DOT_yaml=text.replace("kind: Deployment", "kind: Job")).units == ()


def test_a_chart_below_another() -> None:
    found = reading(
        p__Chart_DOT_yaml="name: p\ndependencies: [{name: c, alias: engine, condition: engine.enabled}]\n",
        p__values_DOT_yaml="engine: {vllm: {model: org/parent}}\n",
        p__charts__c__Chart_DOT_yaml="name: c\n",
        p__charts__c__values_DOT_yaml=CHART_VALUES,
        p__charts__c__templates__d_DOT_yaml=TEMPLATE,
    )
    assert [words(unit).split()[1] for unit in found.units if unit.kind == "Deployment"] == ["org/parent"]


def test_a_chart_that_its_parent_switches_off() -> None:
    found = reading(
        p__Chart_DOT_yaml="name: p\ndependencies: [{name: c, condition: c.enabled}]\n",
        p__values_DOT_yaml="c: {enabled: false}\n",
        p__charts__c__Chart_DOT_yaml="name: c\n",
        p__charts__c__templates__d_DOT_yaml=TEMPLATE,
    )
    assert found.units == ()


def test_branches_around_a_script() -> None:
    found = reading(
        d_DOT_yaml="""\
        apiVersion: apps/v1
        kind: Deployment
        spec:
          template:
            spec:
              containers:
              - name: server
                {{- if eq .Values.backend "other" }}
                command: [other-server, --model, x]
                {{- else if eq .Values.backend "vllm" }}
                command:
                - sh
                - -c
                - |
                  exec vllm serve {{ .Values.model }} \\
                    --port 80 \\
                    {{- if .Values.lora }}
                    --enable-lora \\
                    {{- end }}
                    {{- if .Values.length }}
                    --max-model-len {{ .Values.length }} \\
                    {{- end }}
                    $@
                {{- end }}
                ports: [{containerPort: 80}]
        """
    )
    (unit,) = found.units
    assert words(unit) == "?{{ .Values.model }} --port 80 ?--enable-lora ?--max-model-len {{ .Values.length }}"


def test_a_branch_with_arguments_of_the_engine_is_taken_before_one_that_only_waits() -> None:
    text = """\
        apiVersion: apps/v1
        kind: Deployment
        metadata: {name: {{ include "vllm.fullname" . }}}
        spec:
          template:
            spec:
              containers:
              - name: server
                image: {{ .Values.image }}
                {{- if .Values.inspect }}
                command: [sh]
                args: [-c, "sleep infinity"]
                {{- else }}
                args:
                - --model
                - {{ .Values.model }}
                - --max-model-len
                - "4096"
                {{- end }}
        """
    (unit,) = reading(d_DOT_yaml=text).units
    assert words(unit) == "--model ?{{ .Values.model }} --max-model-len 4096"
    # neither of them says what it starts: the first one
    assert reading(d_DOT_yaml=text.replace("--max-model-len", "--other")).units == ()


def test_objects_of_one_template_refer_to_each_other() -> None:
    """Also where the values of the chart are not at hand."""
    script = """\
        apiVersion: v1
        kind: ConfigMap
        metadata: {name: {{ include "c.fullname" . }}-scripts}
        data:
          start.sh: |
            exec python3 -m vllm.entrypoints.openai.api_server --model {{ .Values.model }} \\
              {{- if .Values.seed }}
              --seed {{ .Values.seed }} \\
              {{- end }}
              --port 80
        ---
        apiVersion: apps/v1
        kind: StatefulSet
        metadata: {name: {{ include "c.fullname" . }}}
        spec:
          template:
            spec:
              containers:
                - name: inference
                  image: {{ .Values.image }}
                  command: [bash, /scripts/start.sh]
                  volumeMounts: [{name: s, mountPath: /scripts}]
              volumes: [{name: s, configMap: {name: {{ include "c.fullname" . }}-scripts}}]
        """
    for path in ("d_DOT_yaml", "c__templates__d_DOT_yaml"):
        (unit,) = reading(**{path: script}).units
        assert (unit.kind, words(unit)) == (
            "StatefulSet",
            "--model ?{{ .Values.model }} ?--seed {{ .Values.seed }} --port 80",
        )
    served = """\
        apiVersion: serving.kserve.io/v1beta1
        kind: InferenceService
        metadata: {name: {{ .Values.name }}}
        spec:
          predictor:
            model: {modelFormat: {name: vLLM}, runtime: {{ .Values.name }}-runtime, args: [--seed=1], storageUri: oci://m}
        ---
        apiVersion: serving.kserve.io/v1alpha1
        kind: ServingRuntime
        metadata: {name: {{ .Values.name }}-runtime}
        spec:
          containers: [{name: main, image: vllm/vllm-openai:v1, args: [--model=/mnt/models, "--port={{ .Values.p }}"]}]
        """
    (unit,) = reading(d_DOT_yaml=served).units
    assert (unit.kind, words(unit)) == ("InferenceService", "--model=/mnt/models ?--port={{ .Values.p }} --seed=1")


def test_documents_that_a_trimmed_tag_joins_to_their_separator() -> None:
    found = reading(
        c__Chart_DOT_yaml="name: c\n",
        c__values_DOT_yaml="models: [{name: a, model: org/a}, {name: b, model: org/b}]\n",
        c__templates__p_DOT_yaml="""\
        {{- range $model := .Values.models }}
        {{- with $ -}}
        apiVersion: v1
        kind: Pod
        metadata: {name: {{ $model.name }}}
        spec:
          containers:
          - {name: vllm, image: vllm/vllm-openai, args: [--model, {{ $model.model }}]}
        {{- end }}
        ---
        {{- end }}
        """,
    )
    assert [(unit.name, words(unit), unit.span.line) for unit in found.units if unit.kind == "Pod"] == [
        ("a", "--model org/a", 8),
        ("b", "--model org/b", 8),
    ]


def test_whole_arguments_from_values() -> None:
    found = reading(
        c__Chart_DOT_yaml="name: c\n",
        c__values_DOT_yaml="image: vllm/vllm-openai\nargs: [--model, org/m]\n",
        c__templates__p_DOT_yaml="""\
        apiVersion: v1
        kind: Pod
        spec:
          containers:
          - name: vllm
            image: {{ .Values.image }}
            args: {{- toYaml .Values.args | nindent 10 }}
        """,
    )
    assert [words(unit) for unit in found.units if unit.kind == "Pod"] == ["--model org/m"]


@pytest.mark.parametrize(
    "text",
    [
        "{{ range .Values.x }}" * 50 + "{{ end }}" * 50,
        "{{ " + "(" * 100 + "1" + ")" * 100 + " }}",
        '{{ define "a" }}{{ include "a" . }}{{ end }}{{ include "a" . }}',
        "{{ range until 100000 }}{{ range until 100000 }}x{{ end }}{{ end }}",
        "{{ .Values.a." + "b." * 500 + "c }}",
        "vllm serve {{ if .Values.x }}" * 200,
        '{{ printf "%s%s" (printf "%s" .x) }}',
    ],
)
def test_hostile_templates_cost_little(text: str) -> None:
    start = time.process_time()
    reading(t_DOT_yaml="kind: Pod\nspec: {containers: [{command: [vllm, serve]}]}\n" + text)
    assert time.process_time() - start < 5


@given(st.text(alphabet='{}-. ifenda"x|()$:=\n', max_size=60))
def test_no_text_makes_it_raise(text: str) -> None:
    reading(t_DOT_yaml="kind: Pod # vllm serve {{ if .Values.x }}{{ end }}\n" + text)
