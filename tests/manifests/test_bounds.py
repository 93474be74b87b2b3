"""What a fork may send: files that once took minutes or gigabytes, raised, or made a server of what is none."""

import time

import pytest

from kvgate.manifests.read import MAX_UNITS, read_tree
from kvgate.manifests.unit import Reading
from kvgate.source.text import SourceFile

SERVE = "#!/bin/bash\nvllm serve org/m\n"
TERRAFORM = 'resource "x" "y" { command = "vllm serve org/m" }\n'
MAX_SECONDS = 10.0  # of processor time; each takes about one

GROWING = {
    "an array that holds itself twice": ("a.sh", "A=(x)\n" + 'A+=("${A[@]}")\n' * 40 + 'vllm serve "${A[@]}"\n'),
    "arguments": ("a.sh", "set -- x\n" + 'set -- "$@" "$@"\n' * 40 + 'vllm serve "$@"\n'),
    "an element": ("a.sh", "declare -A A\nA[k]=xx\n" + 'A[k]="${A[k]}${A[k]}"\n' * 40 + "vllm serve ${A[k]}\n"),
    "a word": ("a.sh", "X=" + "a" * 50_000 + "\nvllm serve " + "$X" * 20_000 + "\n"),
    "a here document": (
        "a.sh",
        SERVE + "X=" + "a" * 50_000 + "\ncat <<A\napiVersion: v1\nkind: Pod # vllm\n" + "$X" * 20_000 + "\nA\n",
    ),
    "a script that runs itself": (
        "a.sh",
        "export X='" + "# pad\n" * 8_000 + 'eval "$X"\n' * 4 + "'\n" + 'eval "$X"\n# vllm serve',
    ),
    "locals": (
        "m.tf",
        TERRAFORM + 'locals {\n l0 = "' + "a" * 100_000 + '"\n l1 = "' + "${local.l0}" * 20_000 + '"\n}\n'
        'resource "x" "z" { command = "vllm serve ${local.l1}" }\n',
    ),
    "a path of a setting": (
        "m.tf",
        'resource "helm_release" "v" {\n set {\n  name = "' + ".".join("a" * 50_000) + '"\n  value = "vllm"\n }\n}\n',
    ),
    "variables of a unit": (
        "v.service",
        "[Service]\nEnvironment=X=" + "a" * 100_000 + "\nExecStart=vllm serve " + "${X}" * 60_000 + "\n",
    ),
    "variables of a task": (
        "a.yaml",
        "- vars: {x: " + "a" * 100_000 + "}\n  shell: vllm serve " + "{{ x }}" * 30_000 + "\n",
    ),
    "variables of a container": (
        "pod.yaml",
        "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - image: vllm/vllm-openai\n    args: [--model, $(A9)]\n"
        "    env:\n    - {name: A0, value: " + "a" * 1000 + "}\n"
        + "".join(f"    - {{name: A{i + 1}, value: {f'$(A{i})' * 20}}}\n" for i in range(9)),
    ),
}  # fmt: skip
LONG = {
    "tags": ("a.sh", SERVE + "probe" + " <a>" * 24_000),
    "placeholders": ("a.sh", SERVE + "probe " + "{{}} " * 19_000),
    "brackets": ("a.sh", SERVE + "probe ${a#" + "(" * 90_000 + "}"),
    "the name of the program": ("a.sh", SERVE + "# " + "vllm" * 24_000),
    "empty lines": ("a.sh", SERVE + 'case "$x" in\n a) ;;\nesac\n' + "\n" * 95_000),
    "half of an object": ("a.sh", SERVE + "cat <<A\n" + "apiVersion: vllm\n" * 5_800 + "A\n"),
    "placeholders of a unit": ("v.service", "[Service]\nExecStart=vllm serve org/m " + "{{a}} " * 40_000 + "\n"),
    "specifiers of a unit": ("v.service", "[Service]\nExecStart=vllm serve org/m " + "%a" * 60_000 + "\n"),
    "a variable of a program": (
        "supervisord.conf",
        "[program:v]\ncommand=vllm serve org/m\nenvironment=" + "a" * 390_000 + "\n",
    ),
    "blank lines before what a file is": ("start", "\n" * 3_000 + "vllm serve org/m\n"),
    "programs": ("supervisord.conf", "".join(f"[program:v{i}]\ncommand=vllm serve org/m\n" for i in range(1_600))),
}


def read(path: str, text: str) -> Reading:
    before = time.process_time()
    reading = read_tree([SourceFile(path, text)])
    assert time.process_time() - before < MAX_SECONDS
    return reading


@pytest.mark.parametrize("name", GROWING)
def test_what_grows_beyond_measure_is_said_to_be_left_out(name: str) -> None:
    assert [
        found
        for found in read(*GROWING[name]).unread
        if found.reason.endswith(("is not read", "more than is read")) and found.serves
    ]


def test_servers_beyond_all_measure_are_left_out() -> None:
    found = read("Procfile", "".join(f"v{i}: vllm serve org/m\n" for i in range(MAX_UNITS + 500)))
    assert len(found.units) == MAX_UNITS
    assert [item.reason for item in found.unread] == ["what a file has beyond 1,000 servers is not read"]


@pytest.mark.parametrize("name", LONG)
def test_what_is_long_is_read(name: str) -> None:
    assert read(*LONG[name]).units


@pytest.mark.parametrize(
    ("path", "text"),
    [("a.sh", "vllm serve $'\\ud800'"), ("m.tf", 'resource "x" "y" { command = "vllm serve \\ud800" }')],
)
def test_half_a_character_is_none(path: str, text: str) -> None:
    assert [unit.words[0].value for unit in read(path, text).units] == ["\ufffd"]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("a.sh", 'ssh host pkill -f "vllm serve org/m"\ntmux kill-session -t "vllm serve org/m"\n'),
        ("a.yaml", "- when: false\n  shell: vllm serve org/m\n- disabled: true\n  shell: vllm serve org/m\n"),
        ("m.tf", 'resource "x" "y" {\n  count   = 0\n  command = "vllm serve org/m"\n}\n'),
        (
            "m.tf",
            'resource "x" "y" {\n  provisioner "local-exec" {\n    when    = destroy\n'
            '    command = "vllm serve org/m"\n  }\n}\n',
        ),
    ],
)
def test_what_is_switched_off_or_taken_down_is_no_server(path: str, text: str) -> None:
    assert not read(path, text).units
