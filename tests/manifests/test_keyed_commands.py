"""Commands under keys that say so, in documents of no known kind."""

from __future__ import annotations

from textwrap import dedent

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvgate.manifests.keyed_commands import MAX_TEXT
from kvgate.manifests.read import read_tree
from kvgate.manifests.unit import ServeUnit
from kvgate.source.text import SourceFile


def units(text: str, path: str = "site.yaml") -> list[ServeUnit]:
    return list(read_tree([SourceFile(path, dedent(text))], None).units)


def shown(unit: ServeUnit) -> tuple[str, int, str]:
    words = " ".join(("?" if word.unresolved else "") + word.value for word in unit.words)
    return unit.id, unit.span.line, words


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (  # Ansible: variables of the play fill in what it writes in braces
            """\
            - hosts: gpu
              vars: {model: org/m}
              tasks:
                - ansible.builtin.shell: |
                    nohup vllm serve {{ model }} --port {{ port }} > /tmp/log 2>&1 &
                - command: {cmd: vllm serve org/n}
            """,
            [
                ("site.yaml/tasks.ansible.builtin.shell", 5, "org/m --port ?{{ port }}"),
                ("site.yaml/tasks.command.cmd", 6, "org/n"),
            ],
        ),
        (  # Taskfile
            """\
            version: '3'
            vars: {MODEL: org/m}
            tasks:
              serve:
                cmds:
                  - echo starting
                  - vllm serve {{.MODEL}} --port 80
            """,
            [("site.yaml/tasks.serve.cmds", 7, "org/m --port 80")],
        ),
        (  # cloud-init: items are texts or lists of words
            """\
            runcmd:
              - [systemctl, daemon-reload]
              - [vllm, serve, org/m, --served-model-name, a b]
              - docker run --gpus all vllm/vllm-openai:v0.8.5 --model org/n
            """,
            [("site.yaml/runcmd", 3, "org/m --served-model-name a b"), ("site.yaml/runcmd/2", 4, "--model org/n")],
        ),
        (  # CircleCI, Azure Pipelines, Buildkite
            """\
            jobs:
              e2e:
                steps:
                  - run: {name: server, command: "vllm serve org/m &", environment: {A: b}}
                  - bash: vllm serve $M
                    env: {M: org/n}
            """,
            [("site.yaml/jobs.e2e.steps.run.command", 4, "org/m"), ("site.yaml/jobs.e2e.steps.bash", 5, "org/n")],
        ),
        (  # a hosting service: words of one command, or one text
            """\
            services:
              - {type: web, startCommand: "vllm serve org/m --port $PORT"}
              - {type: web, command: [python3, -m, vllm.entrypoints.openai.api_server, --model, org/n]}
            """,
            [
                ("site.yaml/services.startCommand", 2, "org/m --port ?$PORT"),
                ("site.yaml/services.command", 3, "--model org/n"),
            ],
        ),
        (  # files that are written out
            """\
            write_files:
              - path: /opt/run
                content: |
                  #!/bin/bash
                  exec vllm serve org/m
              - path: /etc/systemd/system/v.service
                content: |
                  [Service]
                  ExecStart=/opt/venv/bin/vllm serve org/n --port 80
              - path: /etc/motd
                content: |
                  vllm serve org/o
            """,
            [("site.yaml/write_files.content", 5, "org/m"), ("site.yaml", 9, "org/n --port 80")],
        ),
        (  # Truss
            """\
            base_image: {image: "vllm/vllm-openai:v0.7.3"}
            docker_server:
              start_command: sh -c "HF_TOKEN=$(cat /secrets/hf) vllm serve org/m -tp 2"
            resources: {accelerator: "L4:2", use_gpu: true}
            """,
            [("site.yaml/start_command", 3, "org/m -tp 2")],
        ),
    ],
)
def test_commands_by_their_keys(text: str, expected: list[tuple[str, int, str]]) -> None:
    assert [shown(unit) for unit in units(text)] == expected


def test_commands_of_macros_and_of_several_lines() -> None:
    text = """\
        macros:
          engine: vllm/vllm-openai:v0.9.1
          run: docker run --rm --gpus '"device=0"' -p ${PORT}:8000 ${engine}
        models:
          chat:
            cmd: |
              ${run}
              # a comment between two lines
              --model org/m
              --max-model-len 8192
          own:
            cmd: |
              bash -c '
              source bin/activate
              vllm serve org/n --port ${PORT}'
          other:
            cmd: |
              llama-server --port ${PORT}
              -m /models/x.gguf
        """
    found = units(text)
    assert [shown(unit)[::2] for unit in found] == [
        ("site.yaml/models.chat.cmd", "--model org/m --max-model-len 8192"),
        ("site.yaml/models.own.cmd", "org/n --port ?${PORT}"),
    ]
    assert found[0].image is not None
    assert found[0].image.value == "vllm/vllm-openai:v0.9.1"


def test_macros_that_hold_each_other_end() -> None:
    text = "macros: {a: '${b}${b} x', b: '${a}${a} y'}\nmodels: {m: {cmd: 'vllm serve org/m --seed 3 ${a}'}}\n"
    (found,) = units(text)
    assert shown(found)[2].startswith("org/m --seed 3 ")
    text = f"macros: {{a: {'x' * 60_000}}}\nmodels: {{m: {{cmd: 'vllm serve org/m ${{a}} ${{a}} ${{a}}'}}}}\n"
    (found,) = units(text)
    assert len(shown(found)[2]) < 2 * MAX_TEXT


def test_variables_of_an_azure_pipeline() -> None:
    text = """\
        variables: {model: org/m}
        steps:
          - script: vllm serve $(model) --port $(port) &
        """
    (found,) = units(text, "azure-pipelines.yml")
    assert shown(found) == ("azure-pipelines.yml/steps.script", 3, "org/m --port ?$(port)")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{image: 'vllm/vllm-openai:v1', command: [--model, org/m, --seed, '1']}", "--model org/m --seed 1"),
        ("{name: 'vllm/vllm-openai:v1', alias: llm, command: --model org/m --seed 1}", "--model org/m --seed 1"),
        ("{image: 'vllm/vllm-openai:v1', command: [vllm, serve], args: [org/m, --seed, '1']}", "org/m --seed 1"),
        ("{image: 'vllm/vllm-openai:v1', entrypoint: [sh, -c], command: [vllm serve org/m]}", "org/m"),
        ("{image: 'vllm/vllm-openai:v1', command: [sleep, infinity]}", None),
        ("{image: 'vllm/vllm-openai:v1', command: vllm bench serve --model org/m}", None),
        ("{name: 'vllm/vllm-openai:v1', entrypoint: ['']}", None),
        ("{image: 'vllm/vllm-openai:v1'}", None),
        ("{image: 'example/router:v1', command: [--model, org/m]}", None),
    ],
)
@pytest.mark.parametrize(
    "around", ["jobs: {{test: {{docker: [{image: python}, {}]}}}}", "stages: [{{services: [{}]}}]"]
)
def test_containers_that_run_beside_a_job(around: str, text: str, words: str | None) -> None:
    found = units(around.replace("{image: python}", "{{image: python}}").format(text), ".circleci/config.yml")
    assert [shown(unit)[2] for unit in found] == ([] if words is None else [words])
    assert [unit.image.value for unit in found if unit.image is not None] == ["vllm/vllm-openai:v1"] * len(found)


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        (
            "package.json",
            """\
            {"scripts": {
              "llm": "HF_HOME=/x vllm serve org/m --port 8001",
              "dev": "concurrently \\"vllm serve org/n\\" \\"next dev\\"",
              "load": "vllm bench serve --model org/m"},
             "dependencies": {"vllm serve": "1"}}
            """,
            [("package.json/scripts.llm", 2, "org/m --port 8001"), ("package.json/scripts.dev", 3, "org/n")],
        ),
        (
            ".vscode/launch.json",
            """\
            {
              // what "F5" starts
              "configurations": [
                {"name": "server", "module": "vllm.entrypoints.openai.api_server", // http://x
                 "args": ["--model", "org/m", "--max-model-len", "4096",]},
                {"program": "${workspaceFolder}/.venv/bin/vllm", "args": ["serve", "org/n", "-tp", "2"]},
                {"module": "vllm.entrypoints.cli.main", "args": ["bench", "serve", "--model", "org/m"]},
                {"program": "bench.py", "args": ["--model", "org/m", "--max-model-len", "1", "--max-num-seqs", "1"]},
              ],
            }
            """,
            [
                (".vscode/launch.json/configurations", 4, "--model org/m --max-model-len 4096"),
                (".vscode/launch.json/configurations/2", 6, "org/n -tp 2"),
            ],
        ),
        (  # Visual Studio Code's tasks
            "tasks.json",
            """\
            {"tasks": [{"label": "a", "command": "uv run vllm", "args": ["serve", "org/m"]},
                       {"label": "b", "command": "vllm serve org/n --port 1"}]}
            """,
            [("tasks.json/tasks", 1, "org/m"), ("tasks.json/tasks.command", 2, "org/n --port 1")],
        ),
        (
            "pyproject.toml",
            """\
            [project]
            dependencies = ["vllm==0.9.0"]  # for `vllm serve`
            [tool.pixi.tasks]
            serve = "vllm serve org/m -tp 2"
            multi = { cmd = ["vllm", "serve", "org/n"], env = { PORT = "1" } }
            [tool.poe.tasks.up]
            shell = \"\"\"
            vllm serve org/o \\\\
              --port $PORT
            \"\"\"
            [tool.hatch.envs.gpu.scripts]
            up = ["echo vllm serve", "vllm serve org/p"]
            """,
            [
                ("pyproject.toml/tool.pixi.tasks.serve", 4, "org/m -tp 2"),
                ("pyproject.toml/tool.pixi.tasks.multi.cmd", 5, "org/n"),
                ("pyproject.toml/tool.poe.tasks.up.shell", 8, "org/o --port ?$PORT"),
                ("pyproject.toml/tool.hatch.envs.gpu.scripts.up", 12, "org/p"),
            ],
        ),
        (
            "cerebrium.toml.tpl",
            """\
            [cerebrium.runtime.custom]
            entrypoint = ["vllm", "serve", "{model}", "--port", "8080", "-tp", "{n}"{eager}]
            """,
            [
                (
                    "cerebrium.toml.tpl/cerebrium.runtime.custom.entrypoint",
                    2,
                    "?{model} --port 8080 -tp ?{n} ?{eager}",
                )
            ],
        ),
        ("notes.toml", "text = 'vllm serve org/m'\n[package]\nname = 'vllm'\n", []),
    ],
)
def test_commands_of_editors_and_task_runners(path: str, text: str, expected: list[tuple[str, int, str]]) -> None:
    assert [shown(unit) for unit in units(text, path)] == expected


@pytest.mark.parametrize(
    ("text", "count", "names"),
    [
        ("[cerebrium.hardware]\ngpu_count = 2\ncompute = 'HOPPER_H100'\n", 2, ("HOPPER_H100",)),
        ("[[vm]]\ngpus = 1\ngpu_kind = 'l40s'\n[[vm]]\nmemory = '1gb'\n", 1, ("l40s",)),
        ("[cerebrium.hardware]\ncompute = 'CPU'\n", None, None),
    ],
)
def test_the_machine_of_a_service(text: str, count: int | None, names: tuple[str, ...] | None) -> None:
    (found,) = units(f"[processes]\napp = 'vllm serve org/m'\n{text}", "fly.toml")
    assert [request.count for request in found.gpu_requests] == ([] if count is None else [count])
    assert [hint.values for hint in found.node_hints] == ([] if names is None else [names])


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ('"dockerArgs": "--model org/m --max-num-seqs 8"', "--model org/m --max-num-seqs 8"),
        ('"dockerArgs": "bash -c \\"vllm serve org/m\\""', "org/m"),
        ('"dockerStartCmd": ["--model", "org/m"]', "--model org/m"),
        ('"dockerEntrypoint": ["vllm", "serve"], "dockerStartCmd": ["org/m"]', "org/m"),
        ('"dockerEntrypoint": ["vllm", "serve", "org/m"]', "org/m"),
        ('"dockerEntrypoint": ["sleep"], "dockerStartCmd": ["infinity"]', None),
        ('"volumeInGb": 20', None),
    ],
)
def test_templates_of_pods_for_hire(given: str, expected: str | None) -> None:
    found = units(f'{{"name": "pod", "imageName": "vllm/vllm-openai:v0.9.0", {given}}}', "pods.json")
    assert [(shown(unit)[2], unit.image and unit.image.value) for unit in found] == (
        [] if expected is None else [(expected, "vllm/vllm-openai:v0.9.0")]
    )


def test_the_machine_of_a_truss() -> None:
    (found,) = units(
        "base_image: {image: 'vllm/vllm-openai:v0.7.3'}\ndocker_server: {start_command: vllm serve org/m}\n"
        "resources: {accelerator: 'L4:2'}\n"
    )
    assert [request.count for request in found.gpu_requests] == [2]
    assert [hint.values for hint in found.node_hints] == [("L4",)]
    assert found.image is not None
    assert found.image.value == "vllm/vllm-openai:v0.7.3"


@pytest.mark.parametrize(
    "text",
    [
        "description: run it with `vllm serve org/m`\n",
        "steps:\n  - name: vllm serve org/m\n    run: pytest\n",
        "steps:\n  - run: echo 'vllm serve org/m'\n",
        "steps:\n  - run: pip install vllm && vllm --version\n",
        "server: {enabled: false, command: vllm serve org/m}\n",
        "commands: &a\n  - vllm bench serve --model org/m\n",
        "run: vllm serve --help\n",
    ],
)
def test_what_starts_nothing(text: str) -> None:
    assert units(text) == []


def test_a_command_that_is_formatted_with_the_defaults_beside_it() -> None:
    text = """\
        container: vllm-node
        defaults: {port: 8000, length: 4096}
        command: |
          vllm serve org/m --port {port} --max-model-len {length} -tp {ranks} \\
            --default-chat-template-kwargs '{{"a":true}}'
        """
    (unit,) = units(text)
    assert shown(unit)[2] == (
        'org/m --port 8000 --max-model-len 4096 -tp ?{ranks} --default-chat-template-kwargs {"a":true}'
    )
    assert unit.words[2].span.line == 2
    (unit,) = units("command: vllm serve org/m --port {port}\n")
    assert shown(unit)[2] == "org/m --port ?{port}"


def test_where_reading_ends_is_said() -> None:
    variables = "".join(f"  V{number}: x\n" for number in range(3_000))
    steps = "".join(f"  - run: vllm serve org/m{number}\n" for number in range(3_000))
    found = read_tree([SourceFile("site.yaml", f"env:\n{variables}steps:\n{steps}")], None)
    assert 10 < len(found.units) < 3_000
    assert [item.reason for item in found.unread] == [
        "the rest of a document of so many parts and variables is not read"
    ]


_SCALARS = st.sampled_from(
    ["vllm serve m", "[Service]\nExecStart=vllm serve m", "#!/bin/sh\nvllm serve m", "", "{{ a }}", "x"]
)
_KEYS = st.sampled_from(["run", "command", "cmds", "content", "vars", "enabled", "scripts", "steps", "a"])


@given(
    st.recursive(
        _SCALARS,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=3),
        max_leaves=12,
    )
)
def test_any_document_is_read(document: object) -> None:
    import json

    for unit in units("note: vllm serve\nall: " + json.dumps(document) + "\n"):
        assert unit.path == "site.yaml"
        assert "vllm" in unit.span.file.text


def test_what_the_script_of_a_key_writes_out() -> None:
    """A unit file and an object; the variables are the script's."""
    found = units(
        """\
        runcmd:
          - |
            MODEL=org/m
            cat > /etc/systemd/system/vllm.service <<EOF
            [Service]
            ExecStart=/opt/vllm serve $MODEL --max-model-len 4096
            EOF
            kubectl apply -f - <<'EOF'
            apiVersion: v1
            kind: Pod
            metadata: {name: llm}
            spec: {containers: [{name: c, image: "vllm/vllm-openai:v0.9.1", args: [--model, org/n]}]}
            EOF
        """
    )
    assert [(unit.kind, shown(unit)[2]) for unit in found] == [
        ("systemd", "org/m --max-model-len 4096"),
        ("Pod", "--model org/n"),
    ]


def test_settings_of_a_server_in_toml_are_read_as_those_in_yaml() -> None:
    text = '[server]\nport = 8000\n\n[vllm]\nmodel = "org/m"\nmax_model_len = 4096\ngpu_memory_utilization = 0.8\n'
    (found,) = read_tree([SourceFile("conf/serving.toml", text)]).units
    assert (found.kind, found.span.line) == ("vllm-config", 5)
    assert [word.value for word in found.words] == [
        "--model", "org/m", "--max-model-len", "4096", "--gpu-memory-utilization", "0.8",
    ]  # fmt: skip
