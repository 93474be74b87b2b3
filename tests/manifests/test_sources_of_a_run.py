"""What a run of the command line reads: standard input, and what it is asked to render first."""

from __future__ import annotations

import io
import json
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kvgate.app import CheckOptions, InputError, check_paths
from kvgate.cli import cli
from kvgate.manifests.helm import render
from kvgate.manifests.rendering import RenderError

needs_helm = pytest.mark.skipif(find_spec("helm_python") is None, reason="the extra [helm] is not installed")

TEMPLATE = """\
apiVersion: v1
kind: Pod
metadata: {name: llm}
spec:
  containers:
  - name: vllm
    image: vllm/vllm-openai:v0.10.0
    args: ["--model", {{ .Values.model }}, "--max-model-len={{ mul .Values.kilo 1024 }}"]
"""


def check(*words: str, stdin: str = "") -> Any:
    result = CliRunner().invoke(cli, ["check", "--format", "json", "-q", *words], input=stdin, catch_exceptions=False)
    return json.loads(result.stdout)


@pytest.fixture
def chart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "c" / "templates").mkdir(parents=True)
    (tmp_path / "c" / "Chart.yaml").write_text("apiVersion: v2\nname: llm\nversion: 0.1.0\n")
    (tmp_path / "c" / "values.yaml").write_text("model: org/m\nkilo: 4\n")
    (tmp_path / "prod.yaml").write_text("kilo: 16\n")
    (tmp_path / "c" / "templates" / "pod.yaml").write_text(TEMPLATE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("#!/bin/sh\nvllm serve org/m --max-model-len 8192\n", "script"),
        ("FROM vllm/vllm-openai:v0.10.0\nCMD [\"--model\", \"org/m\", \"--max-model-len=8192\"]\n", "image"),
        ("services:\n  a:\n    image: vllm/vllm-openai\n    command: --model org/m --max-model-len 8192\n", "compose"),
        ("[Service]\nExecStart=/opt/bin/vllm serve org/m --max-model-len 8192\n", "systemd"),
        ("docker run --gpus all vllm/vllm-openai:v0.10.0 --model org/m --max-model-len 8192\n", "script"),
    ],
)  # fmt: skip
def test_standard_input_is_read_as_what_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, kind: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (unit,) = check("-", stdin=text)["units"]
    assert unit["path"] == "<stdin>"
    assert unit["args"]["max_model_len"] == 8192, kind


def test_standard_input_beside_files(chart: Path) -> None:
    (chart / "run.sh").write_text("vllm serve org/other\n")
    units = check("run.sh", "-", stdin="vllm serve org/m\n")["units"]
    assert [unit["path"] for unit in units] == ["run.sh", "<stdin>"]


def test_a_dash_is_no_file_without_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="-: no such file"):
        check_paths([Path("-")], CheckOptions())


@needs_helm
def test_charts_are_rendered_when_asked(chart: Path) -> None:
    (unit,) = check("c", "--render", "helm")["units"]
    assert unit["args"]["max_model_len"] == 4096


@needs_helm
def test_charts_are_rendered_as_kvgate_yaml_says(chart: Path) -> None:
    (chart / "kvgate.yaml").write_text("version: 1\nrender: [helm]\ncharts: [{path: c, values: [prod.yaml]}]\n")
    (unit,) = check(".")["units"]
    assert unit["args"]["max_model_len"] == 16384
    (chart / "kvgate.yaml").write_text("version: 1\nrender: [helm]\ncharts: [{path: c, values: [none.yaml]}]\n")
    with pytest.raises(RenderError, match=r"none\.yaml: the values file of kvgate\.yaml cannot be read"):
        check_paths([Path()], CheckOptions())


def test_a_missing_extra_is_an_error_of_usage(chart: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(render, "find_spec", lambda name: None)
    with pytest.raises(RenderError) as error:
        check_paths([Path("c")], CheckOptions(render=("helm",)))
    assert error.value.exit_code == 2


def test_standard_input_that_is_no_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xff\xfe\0\x80vllm serve")))
    assert check("-", stdin="\0\1\2")["units"] == []
