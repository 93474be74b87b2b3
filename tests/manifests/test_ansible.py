"""What a role of Ansible fills in of its tasks and templates."""

from __future__ import annotations

import time

import pytest

from kvgate.manifests.read import read_tree
from kvgate.manifests.unit import ServeUnit
from kvgate.source.text import SourceFile

DEFAULTS = """\
model: org/m
home: /opt/vllm
venv: "{{ home }}/venv"
port: 8000
length: "4096"
revision: ""
eager: false
reasoning: true
image: vllm/vllm-openai:v0.10.0
extra: [--enable-prefix-caching, "--max-model-len={{ length }}"]
nothing: []
env:
  HF_HOME: "{{ home }}/hf"
  VLLM_LOGGING_LEVEL: DEBUG
"""


def units(files: dict[str, str]) -> list[ServeUnit]:
    return list(read_tree([SourceFile(path, text) for path, text in files.items()]).units)


def words(unit: ServeUnit) -> list[str | None]:
    return [word.value if word.resolved else None for word in unit.words]


def role(path: str, text: str, **others: str) -> ServeUnit:
    files = {f"ansible/roles/vllm/{path}": text, "ansible/roles/vllm/defaults/main.yml": DEFAULTS, **others}
    (unit,) = units(files)
    return unit


UNIT = """\
[Service]
{% for key, value in env.items() %}
Environment="{{ key }}={{ value }}"
{% endfor %}
ExecStart={{ venv }}/bin/vllm serve {{ model }} \\
  --port {{ port | int }} \\
{% if eager %}
  --enforce-eager \\
{% endif %}
{% if reasoning | bool %}
  --reasoning-parser qwen3 \\
{% endif %}
  {% for word in extra %}{{ word }} {% endfor %}--seed {{ seed }}
"""


def test_the_template_of_a_role_is_filled_in_with_its_defaults() -> None:
    unit = role("templates/vllm.service.j2", UNIT)
    assert words(unit) == [
        "org/m", "--port", "8000", "--reasoning-parser", "qwen3", "--enable-prefix-caching", "--max-model-len=4096",
        "--seed", None,
    ]  # fmt: skip
    assert {variable.name: variable.value and variable.value.value for variable in unit.environment} == {
        "HF_HOME": "/opt/vllm/hf",
        "VLLM_LOGGING_LEVEL": "DEBUG",
    }


def test_a_script_of_a_role_is_filled_in_with_its_defaults() -> None:
    unit = role(
        "templates/serve.sh.j2",
        "#!/bin/bash\nexec {{ venv }}/bin/vllm serve {{ model }} --port {{ port }} {{ extra | join(' ') }} "
        "{{ nothing | join(' ') }} --revision {{ revision }}\n",
    )
    assert words(unit) == [
        "org/m", "--port", "8000", "--enable-prefix-caching", "--max-model-len=4096", "--revision", None,
    ]  # fmt: skip


def test_the_tasks_of_a_role_are_filled_in_with_its_defaults() -> None:
    command = role(
        "tasks/main.yml",
        "- name: Start\n  ansible.builtin.command:\n    argv: [vllm, serve, '{{ model }}', --port, '{{ port }}']\n",
    )
    assert words(command) == ["org/m", "--port", "8000"]
    container = role(
        "tasks/main.yml",
        "- name: Start\n  community.docker.docker_container:\n    name: vllm\n    image: '{{ image }}'\n"
        "    command: --model {{ model }} --port {{ port }}\n    env: '{{ env }}'\n",
    )
    assert words(container) == ["--model", "org/m", "--port", "8000"]
    assert container.image is not None
    assert container.image.value == "vllm/vllm-openai:v0.10.0"
    assert [variable.name for variable in container.environment] == ["HF_HOME", "VLLM_LOGGING_LEVEL"]


def test_variables_of_all_hosts_and_of_the_role_win_over_its_defaults() -> None:
    text = "[Service]\nExecStart=vllm serve {{ model }} --port {{ port }}\n"
    hosts = {"ansible/group_vars/all.yml": "model: org/all\nport: 1\n"}
    assert words(role("templates/vllm.service.j2", text, **hosts)) == ["org/all", "--port", "1"]
    hosts["ansible/roles/vllm/vars/main.yml"] = "port: 2\n"
    assert words(role("templates/vllm.service.j2", text, **hosts)) == ["org/all", "--port", "2"]


@pytest.mark.parametrize(
    "path", ["ansible/roles/vllm/files/vllm.service.j2", "ansible/roles/other/templates/vllm.service.j2"]
)
def test_what_is_no_template_of_a_role_is_left_alone(path: str) -> None:
    text = "[Service]\nExecStart=vllm serve {{ model }}\n"
    (unit,) = units({path: text, "ansible/roles/vllm/defaults/main.yml": DEFAULTS})
    assert words(unit) == [None]


def test_variables_that_name_each_other_end() -> None:
    text = "[Service]\nExecStart=vllm serve {{ a }} --port 1\n"
    files = {"r/templates/v.service.j2": text, "r/defaults/main.yml": "a: '{{ b }}'\nb: '{{ a }}'\n"}
    assert words(units(files)[0]) == [None, "--port", "1"]


@pytest.mark.parametrize(
    "body",
    ["{% if a" + " " * 50_000, "{% if x %}" * 5_000, "{{ a " * 20_000, "{% for a in extra %}{{ a }}" * 5_000,
     " " * 100_000 + "{% endif %}", "{{ " + "x" * 100_000, "{% if x -%}\n" + "\n" * 50_000],
)  # fmt: skip
def test_templates_of_any_shape_are_read_quickly(body: str) -> None:
    text = "[Service]\nExecStart=vllm serve {{ model }} " + body
    started = time.process_time()
    units({"r/templates/v.service.j2": text, "r/defaults/main.yml": DEFAULTS})
    assert time.process_time() - started < 4


def test_variables_that_multiply_are_bounded() -> None:
    lines = ["v0: " + "x" * 100] + [f"v{n}: '" + f"{{{{ v{n - 1} }}}}" * 100 + "'" for n in range(1, 8)]
    lists = ["l0: [x]"] + [f"l{n}: [" + ", ".join([f"'{{{{ l{n - 1} }}}}'"] * 20) + "]" for n in range(1, 8)]
    started = time.process_time()
    units({
        "r/templates/v.service.j2": "[Service]\nExecStart=vllm serve m {{ v7 }}\n",
        "r/tasks/main.yml": "- command: vllm serve m\n  vars: '{{ l7 }}'\n",
        "r/defaults/main.yml": "\n".join(lines + lists),
    })  # fmt: skip
    assert time.process_time() - started < 10
