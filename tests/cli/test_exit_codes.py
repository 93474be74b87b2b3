"""Exit codes: 0 clean, 1 findings or strict, 2 usage and configuration, 3 internal; one line each, no traceback."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

GOOD = """\
apiVersion: v1
kind: Pod
metadata: {name: tiny}
spec:
  nodeSelector: {nvidia.com/gpu.product: NVIDIA-L4}
  containers:
    - name: vllm
      image: vllm/vllm-openai:v0.19.1
      args: [--model, Qwen/Qwen2.5-0.5B-Instruct, --max-model-len, "4096"]
      resources: {limits: {nvidia.com/gpu: 1}}
"""


def test_nothing_to_check_is_clean_with_a_note(kvgate, tmp_path):
    (tmp_path / "other.yaml").write_text("a: 1\n")
    result = kvgate("check", ".")
    assert result.code == 0
    assert "no vLLM server found" in result.err


def test_nothing_to_check_is_a_failure_when_strict(kvgate):
    assert kvgate("check", ".", "--strict").code == 1


def test_a_sound_server_is_clean(kvgate, tmp_path):
    (tmp_path / "pod.yaml").write_text(GOOD)
    result = kvgate("check", ".", "--format", "json")
    assert (result.code, [found["rule"] for found in result.json["findings"]]) == (0, [])


def test_findings_fail_at_their_severity_only(kvgate, tmp_path):
    (tmp_path / "pod.yaml").write_text(GOOD.replace("v0.19.1", "latest"))
    assert kvgate("check", ".").code == 0, "image-not-pinned is no error"
    assert kvgate("check", ".", "--fail-on", "warning").code == 1
    assert kvgate("check", ".", "--fail-on", "never").code == 0


@pytest.mark.parametrize("form", ["text", "json", "sarif", "github", "gitlab", "junit", "markdown"])
def test_the_exit_code_does_not_depend_on_the_format(kvgate, example, form):
    assert kvgate("check", example, "--format", form).code == 1
    assert kvgate("check", example, "--format", form, "--fail-on", "never").code == 0


@pytest.mark.parametrize(
    ("args", "line"),
    [
        (["check", "nowhere"], "kvgate: nowhere: no such file or directory"),
        (["check", "--format", "xml"], "kvgate: Invalid value for '--format'"),
        (["check", "--config", "missing.yaml"], "kvgate: missing.yaml: No such file or directory"),
        (["check", "--gpu", "Voodoo 2"], "kvgate: --gpu:"),
        (["check", "--vllm-version", "soon"], 'kvgate: --vllm-version: a release such as 0.11.2 expected, got "soon"'),
        (["check", "--select", "no-such-rule"], 'kvgate: --select: there is no rule or family "no-such-rule"'),
        (["check", "--baseline", "missing.json"], "kvgate: missing.json: No such file or directory"),
        (["check", "--write-baseline"], "kvgate: --write-baseline: no file is named"),
        (["check", "--output", "a", "--output", "b"], "kvgate: 2 --output for 1 --format"),
        (["check", "--output", "no/folder/x"], "kvgate: no/folder/x: cannot be written: No such file or directory"),
        (["predict", "no-org/no-model"], "kvgate:"),
        (["predict", "meta-llama/Llama-3.1-8B-Instruct", "--gpu", "H200/H20"], "kvgate:"),
        (["predict", "meta-llama/Llama-3.1-8B-Instruct", "--format", "sarif"], "kvgate: predict prints text or json"),
        (["explain", "no-such-rule"], 'kvgate: there is no rule "no-such-rule"'),
        (["chekc"], "kvgate: No such command 'chekc'"),
    ],
)
def test_usage_is_2_and_one_line(kvgate, tmp_path, args, line):
    (tmp_path / "pod.yaml").write_text(GOOD)
    result = kvgate(*args)
    assert result.code == 2, result
    assert result.err.startswith(line)
    assert result.err.count("\n") == 1, result.err
    assert result.out == ""
    assert sorted(os.listdir(tmp_path)) == ["pod.yaml"], "nothing half written"


def test_a_wrong_kvgate_yaml_is_2_with_line_and_column(kvgate, tmp_path):
    (tmp_path / "kvgate.yaml").write_text("version: 1\nvllm_version: 0.11\n")
    result = kvgate("check", ".")
    assert result.code == 2
    assert result.err == 'kvgate: kvgate.yaml:2:15: 0.11 is a number in YAML: quote it, as in "0.11"\n'


def test_an_unknown_rule_in_kvgate_yaml_is_2(kvgate, tmp_path):
    (tmp_path / "kvgate.yaml").write_text("version: 1\nrules: {image-not-pined: off}\n")
    result = kvgate("check", ".")
    assert result.code == 2
    assert 'kvgate.yaml:2:26: there is no rule "image-not-pined", did you mean "image-not-pinned"?' in result.err


def test_a_wrong_rule_file_is_2_with_line_and_column(kvgate, tmp_path):
    folder = tmp_path / ".kvgate" / "rules"
    folder.mkdir(parents=True)
    (folder / "mine.yaml").write_text("id: mine\ntitel: x\n")
    (tmp_path / "pod.yaml").write_text(GOOD)
    result = kvgate("check", ".")
    assert result.code == 2
    assert result.err.startswith("kvgate: .kvgate/rules/mine.yaml:2:1: ")


def test_broken_yaml_costs_no_other_file(kvgate, tmp_path):
    (tmp_path / "a.yaml").write_text("kind: Deployment\n  vllm: [serve\n")
    (tmp_path / "b.yaml").write_text(GOOD)
    result = kvgate("check", ".", "--format", "json")
    assert [unit["path"] for unit in result.json["units"]] == ["b.yaml"]
    (found,) = [found for found in result.json["findings"] if found["rule"] == "unparsable-manifest"]
    assert (found["path"], found["line"]) == ("a.yaml", 2)
    assert result.code in (0, 1)


def test_a_huge_file_is_named_and_not_read(kvgate, tmp_path):
    with (tmp_path / "huge.yaml").open("wb") as stream:
        stream.truncate(200_000_000)
    (tmp_path / "b.yaml").write_text(GOOD)
    result = kvgate("check", "huge.yaml", "b.yaml", "--format", "json")
    assert result.code == 0
    assert len(result.json["units"]) == 1
    (left,) = result.json["unchecked"]
    assert left["path"] == "huge.yaml"
    assert "200 MB" in left["reason"]


@pytest.mark.skipif(os.name == "nt", reason="links need a privilege on Windows")
def test_a_directory_loop_ends(kvgate, tmp_path):
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (inner / "loop").symlink_to(tmp_path / "a")
    (inner / "pod.yaml").write_text(GOOD)
    result = kvgate("check", ".", "--format", "json")
    assert [unit["path"] for unit in result.json["units"]] == ["a/b/pod.yaml"]


@pytest.mark.skipif(os.name == "nt", reason="links need a privilege on Windows")
def test_a_link_out_of_the_tree_is_not_followed(kvgate, tmp_path):
    outside = tmp_path / "outside.yaml"
    outside.write_text(GOOD)
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "link.yaml").symlink_to(outside)
    result = kvgate("check", ".", "--format", "json", cwd=tree)
    assert result.json["units"] == []


def test_an_invalid_value_is_a_finding_at_its_place(kvgate, tmp_path):
    (tmp_path / "pod.yaml").write_text(GOOD.replace('"4096"', "lots"))
    result = kvgate("check", ".", "--format", "json", "--preview")
    (found,) = [found for found in result.json["findings"] if found["rule"] == "invalid-engine-value"]
    assert (found["path"], found["line"]) == ("pod.yaml", 9)
    assert '"lots"' in found["message"]


def test_secrets_are_masked_in_every_format(kvgate, tmp_path):
    secret = "sk-very-secret-0123"
    text = GOOD.replace('"4096"]', f'"4096", --api-key, {secret}]').replace(
        "      resources", f"      env: [{{name: MY_TOKEN, value: {secret}}}]\n      resources"
    )
    (tmp_path / "pod.yaml").write_text(text.replace("v0.19.1", "latest"))
    for form in ("text", "json", "sarif", "github", "gitlab", "junit", "markdown"):
        result = kvgate("check", ".", "--format", form, "-v")
        assert secret not in result.out + result.err, form


def test_formats_are_paired_with_outputs(kvgate, tmp_path, example):
    result = kvgate(
        "check", example, "--format", "sarif", "--output", "a.sarif", "--format", "json", "--output", "a.json",
        "--format", "text",
    )  # fmt: skip
    assert result.code == 1
    assert '"runs"' in (tmp_path / "a.sarif").read_text()
    assert '"kvgate.report/1"' in (tmp_path / "a.json").read_text()
    assert "rag-chat" in result.out


def test_the_baseline_accepts_what_is_there(kvgate, tmp_path, example):
    before = kvgate("check", example, "--baseline", "accepted.json", "--write-baseline")
    assert before.code == 0
    assert "findings accepted" in before.err
    after = kvgate("check", example, "--baseline", "accepted.json", "--format", "json")
    assert after.code == 0
    assert after.json["findings"] == []
    assert after.json["summary"]["suppressed"] > 0


def test_python_interface(example):
    import kvgate

    report = kvgate.check(example)
    assert report.as_dict()["schema"] == "kvgate.report/1"
    with pytest.raises(kvgate.errors.KvgateError):
        kvgate.check(Path("nowhere"))


def test_an_interrupt_in_text_that_is_run_is_130_as_well(tmp_path: Path) -> None:
    """``python -m`` would end by the signal itself: dataclasses and named tuples are made by running text."""
    (tmp_path / "probe.py").write_text(
        "from kvgate import app, cli\n\n\n"
        "def interrupted(*words):\n    exec('raise KeyboardInterrupt')\n\n\n"
        "app.list_rules = interrupted\ncli.main()\n",
        encoding="utf-8",
    )
    done = subprocess.run(
        [sys.executable, "-m", "probe", "rules"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr.strip()) == (130, "", "")
