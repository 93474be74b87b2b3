"""Fixes: what they make of a file, to the letter; that a mended tree is clean; and what is left alone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kvgate.app import CheckOptions, check_paths, mend_paths, write_mended
from kvgate.findings.mend import Mended
from kvgate.findings.report import Report


def mended(folder: Path, **files: str) -> tuple[Report, Mended]:
    """A tree of files (``__`` in a name stands for a dot), checked and mended in memory."""
    (folder / "kvgate.yaml").write_text("version: 1\n")
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_bytes(text.encode())
    options = CheckOptions(config=folder / "kvgate.yaml", preview=True, profile="all")
    report = check_paths([folder], options)
    return report, mend_paths(report, [folder], options)


def pod(args: str, *, image: str = "vllm/vllm-openai:v0.19.1", more: str = "") -> str:
    return (
        "apiVersion: v1\nkind: Pod\nmetadata: {name: chat}\nspec:\n  containers:\n    - name: vllm\n"
        f"      image: {image}\n      args:{args}{more}"
    )


BLOCK = """
        - --model=Qwen/Qwen2.5-7B-Instruct
        # the old engine
        - --swap-space=16  # GiB
        - --max-model-len=8192
"""


@pytest.mark.parametrize(
    ("args", "after"),
    [
        pytest.param(
            BLOCK,
            BLOCK.replace("        - --swap-space=16  # GiB\n", ""),
            id="a line of a list, with its comment",
        ),
        pytest.param(
            '\n        - "--model"\n        - "Qwen/Qwen2.5-7B-Instruct"\n        - "--swap-space"\n        - "16"\n',
            '\n        - "--model"\n        - "Qwen/Qwen2.5-7B-Instruct"\n',
            id="flag and value as two items",
        ),
        pytest.param(
            ' ["--model", "Qwen/Qwen2.5-7B-Instruct", "--swap-space", "16", "--max-model-len", "8192"]\n',
            ' ["--model", "Qwen/Qwen2.5-7B-Instruct", "--max-model-len", "8192"]\n',
            id="items of a flow list",
        ),
        pytest.param(
            " [--model=Qwen/Qwen2.5-7B-Instruct, --swap-space=16]\n",
            " [--model=Qwen/Qwen2.5-7B-Instruct]\n",
            id="the last item of a flow list",
        ),
        pytest.param(
            "\n        - --model=Qwen/Qwen2.5-7B-Instruct\n        - --rope-scaling\n        - '{}'\n",
            None,
            id="a flag that needs thought",
        ),
        pytest.param(
            "\n        - --model=Qwen/Qwen2.5-7B-Instruct\n        - --enable-mamba-fine-grained-prefix-cache\n",
            None,
            id="a flag that is too new",
        ),
    ],
)
def test_a_removed_flag_goes_and_nothing_else_changes(tmp_path: Path, args: str, after: str | None) -> None:
    text = pod(args)
    _, found = mended(tmp_path, pod__yaml=text)
    if after is None:
        assert not found.after
        return
    assert found.after == {"pod.yaml": pod(after)}
    assert not found.refused
    assert [one.rule for one in found.fixed] == ["unknown-engine-flag"]
    assert "unknown-engine-flag" not in {one.rule for one in found.report.findings}


SCRIPT = """\
#!/bin/bash
docker run --gpus all vllm/vllm-openai:v0.19.1 \\
  --model Qwen/Qwen2.5-7B-Instruct \\
  --swap-space 16 \\
  --max-model-len 8192 \\
  --disable-log-requests
echo done
"""


def test_a_line_of_a_script_goes_with_its_continuation(tmp_path: Path) -> None:
    _, found = mended(tmp_path, start__sh=SCRIPT)
    assert found.after["start.sh"] == (
        "#!/bin/bash\ndocker run --gpus all vllm/vllm-openai:v0.19.1 \\\n"
        "  --model Qwen/Qwen2.5-7B-Instruct \\\n  --max-model-len 8192\necho done\n"
    )


COMPOSE = """\
services:
  vllm:
    image: vllm/vllm-openai:v0.19.1
    command: --model Qwen/Qwen2.5-7B-Instruct --swap-space 16 --max-model-len 8192
    environment:
      VLLM_USE_V1: "0"
      OTHER: "1"
    gpus: all
"""


def test_words_of_a_command_line_and_a_variable_go(tmp_path: Path) -> None:
    _, found = mended(tmp_path, compose__yaml=COMPOSE)
    assert found.after["compose.yaml"] == COMPOSE.replace(" --swap-space 16", "").replace(
        '      VLLM_USE_V1: "0"\n', ""
    )


def test_a_flag_with_a_new_name_keeps_its_value(tmp_path: Path) -> None:
    text = pod("\n        - --model=Qwen/Qwen2.5-7B-Instruct\n        - --cuda_graph_sizes=64\n")
    _, found = mended(tmp_path, pod__yaml=text)
    assert found.after == {"pod.yaml": text.replace("--cuda_graph_sizes", "--cudagraph-capture-sizes")}


def test_an_abbreviated_flag_is_spelled_out(tmp_path: Path) -> None:
    text = pod("\n        - --model=Qwen/Qwen2.5-7B-Instruct\n        - --max-model=8192\n")
    _, found = mended(tmp_path, pod__yaml=text)
    assert found.after == {"pod.yaml": text.replace("--max-model=8192", "--max-model-len=8192")}


def test_a_number_that_helm_printed_is_written_out(tmp_path: Path) -> None:
    text = pod("\n        - --model=Qwen/Qwen2.5-7B-Instruct\n        - --max-model-len=3e+04\n")
    _, found = mended(tmp_path, pod__yaml=text)
    assert found.after == {"pod.yaml": text.replace("3e+04", "30000")}


TWO = "\n        - --model=Qwen/Qwen2.5-7B-Instruct\n        - --tensor-parallel-size=2\n"
LIMITS = "      resources:\n        limits: {nvidia.com/gpu: 2}\n"


def test_shared_memory_is_added_behind_the_pod(tmp_path: Path) -> None:
    text = pod(TWO, more=LIMITS + "---\n{kind: Service, apiVersion: v1, metadata: {name: chat}}\n")
    _, found = mended(tmp_path, pod__yaml=text)
    added = (
        "      volumeMounts:\n        - name: dshm\n          mountPath: /dev/shm\n"
        "  volumes:\n    - name: dshm\n      emptyDir:\n        medium: Memory\n        sizeLimit: 8Gi\n"
    )
    assert found.after == {"pod.yaml": text.replace("---\n", added + "---\n")}


def test_shared_memory_joins_the_volumes_that_are_there(tmp_path: Path) -> None:
    mounts = "      volumeMounts:\n        - {name: models, mountPath: /models}\n      # end\n"
    volumes = "  volumes:\n  - name: models\n    emptyDir: {}\n  restartPolicy: Never\n"
    text = pod(TWO, more=LIMITS + mounts + volumes)
    _, found = mended(tmp_path, pod__yaml=text)
    assert found.after["pod.yaml"] == text.replace(
        "mountPath: /models}\n", "mountPath: /models}\n        - name: dshm\n          mountPath: /dev/shm\n"
    ).replace(
        "    emptyDir: {}\n",
        "    emptyDir: {}\n  - name: dshm\n    emptyDir:\n      medium: Memory\n      sizeLimit: 8Gi\n",
    )


def test_a_pod_in_brackets_is_left_to_people(tmp_path: Path) -> None:
    text = (
        "{apiVersion: v1, kind: Pod, metadata: {name: chat}, spec: {containers: [{name: vllm, "
        "image: 'vllm/vllm-openai:v0.19.1', args: [--model=Qwen/Qwen2.5-7B-Instruct, -tp=2], "
        "resources: {limits: {nvidia.com/gpu: 2}}}]}}\n"
    )
    report, found = mended(tmp_path, pod__yaml=text)
    assert "shm-missing-with-parallelism" in {one.rule for one in report.findings}
    assert not found.after


def test_a_text_that_several_servers_share_is_mended_once(tmp_path: Path) -> None:
    text = (
        "x-args: &args\n  - --model=Qwen/Qwen2.5-7B-Instruct\n  - --swap-space=4\n  - --max-model-len=8192\n"
        "services:\n  a:\n    image: vllm/vllm-openai:v0.19.1\n    command: *args\n    gpus: all\n"
        "  b:\n    image: vllm/vllm-openai:v0.19.1\n    command: *args\n    gpus: all\n"
    )
    _, found = mended(tmp_path, compose__yaml=text)
    assert found.after == {"compose.yaml": text.replace("  - --swap-space=4\n", "")}


def test_a_text_that_another_server_needs_stays(tmp_path: Path) -> None:
    text = (
        "x-args: &args\n  - --model=Qwen/Qwen2.5-7B-Instruct\n  - --swap-space=4\n  - --max-model-len=8192\n"
        "services:\n  new:\n    image: vllm/vllm-openai:v0.19.1\n    command: *args\n    gpus: all\n"
        "  old:\n    image: vllm/vllm-openai:v0.8.5\n    command: *args\n    gpus: all\n"
    )
    _, found = mended(tmp_path, compose__yaml=text)
    assert not found.after
    assert [one.rule for one in found.refused] == ["unknown-engine-flag"]


# -- files -------------------------------------------------------------------------------------------------------------


def test_line_ends_and_a_byte_order_mark_stay(tmp_path: Path) -> None:
    text = "\ufeff" + COMPOSE.replace("\n", "\r\n")
    report, found = mended(tmp_path, compose__yaml=text)
    options = CheckOptions(config=tmp_path / "kvgate.yaml", preview=True, profile="all")
    os.chmod(tmp_path / "compose.yaml", 0o640)
    assert report.findings
    write_mended(found, [tmp_path], options)
    expected = text.replace(" --swap-space 16", "").replace('      VLLM_USE_V1: "0"\r\n', "")
    assert (tmp_path / "compose.yaml").read_bytes() == expected.encode()
    assert (tmp_path / "compose.yaml").stat().st_mode & 0o777 == 0o640
    assert sorted(path.name for path in tmp_path.iterdir()) == ["compose.yaml", "kvgate.yaml"]
    again = check_paths([tmp_path], options)
    assert "unknown-engine-flag" not in {one.rule for one in again.findings}


def test_a_file_that_changed_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    _, found = mended(tmp_path, compose__yaml=COMPOSE)
    (tmp_path / "compose.yaml").write_text(COMPOSE + "# mine\n")
    with pytest.raises(Exception, match="changed while it was checked"):
        write_mended(found, [tmp_path], CheckOptions(config=tmp_path / "kvgate.yaml"))
    assert (tmp_path / "compose.yaml").read_text() == COMPOSE + "# mine\n"


def test_unsafe_fixes_are_only_suggested(tmp_path: Path) -> None:
    report, found = mended(
        tmp_path, pod__yaml=pod("\n        - --model=Qwen/Qwen2.5-7B-Instruct\n        - --max-model-len=65536\n")
    )
    (finding,) = [one for one in report.findings if one.rule == "max-model-len-exceeds-model"]
    assert finding.fix is not None
    assert not finding.fix.safe
    assert finding.fix.title == "set --max-model-len to 32768"
    assert [edit.replacement for edit in finding.fix.edits] == ["32768"]
    assert not found.after


def test_the_diff_is_one_that_patch_takes(tmp_path: Path) -> None:
    _, found = mended(tmp_path, compose__yaml=COMPOSE.rstrip("\n"))
    assert found.diff.startswith("--- a/compose.yaml\n+++ b/compose.yaml\n@@ -1,8 +1,7 @@\n")
    assert found.diff.endswith("     gpus: all\n\\ No newline at end of file\n")
