"""The release that a project's own files install."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvgate.manifests.collect import collect
from kvgate.manifests.read import read_tree

SERVE = 'from vllm import LLM\n\nllm = LLM(model="Qwen/Qwen2.5-7B-Instruct", max_model_len=8192)\n'


def requirement(root: Path, files: dict[str, str]) -> str | None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    reading = read_tree(collect([root], root).files, root)
    (unit,) = reading.units
    return unit.requirement.value if unit.requirement is not None else None


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("requirements.txt", "torch\nvllm==0.11.0  # pinned\n", "vllm==0.11.0"),
        ("requirements.txt", "vllm>=0.11.0\n", None),
        ("requirements.txt", "llama-vllm==1.0.0\n", None),
        ("pyproject.toml", '[project]\ndependencies = ["vllm[audio]==0.19.1"]\n', "vllm[audio]==0.19.1"),
        ("uv.lock", '[[package]]\nname = "vllm"\nversion = "0.21.0"\n', "==0.21.0"),
        ("uv.lock", '[[package]]\nname = "vllm"\nversion = "0.1.0"\nsource = { virtual = "." }\n', None),
        ("pyproject.toml", '[project]\nname = "vllm"\nversion = "0.1.0"\n', None),
        ("uv.lock", '[[package]]\nname = "vllm-plugin"\nversion = "0.21.0"\n', None),
        ("Pipfile.lock", '{"default": {"vllm": {"hashes": [], "version": "==0.10.2"}}}\n', "==0.10.2"),
    ],
)
def test_a_project_pins_vllm(tmp_path: Path, name: str, text: str, expected: str | None) -> None:
    assert requirement(tmp_path, {"serve.py": SERVE, name: text}) == expected


def test_the_nearest_folder_decides_and_a_lock_goes_before_what_it_locks(tmp_path: Path) -> None:
    files = {
        "requirements.txt": "vllm==0.9.2\n",
        "app/pyproject.toml": '[project]\ndependencies = ["vllm==0.18.0"]\n',
        "app/uv.lock": '[[package]]\nname = "vllm"\nversion = "0.19.0"\n',
        "app/src/serve.py": SERVE,
    }
    assert requirement(tmp_path, files) == "==0.19.0"


def test_an_image_is_not_what_the_project_installs(tmp_path: Path) -> None:
    script = "docker run --gpus all vllm/vllm-openai:v0.19.1 --model Qwen/Qwen2.5-7B-Instruct\n"
    assert requirement(tmp_path, {"run.sh": script, "requirements.txt": "vllm==0.9.2\n"}) is None
