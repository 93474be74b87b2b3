"""Tiny models, manifests for them, the fake server, and real vLLM where there is one."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
_SCRUBBED = re.compile(
    r"GITHUB_|CI$|HF_|HUGGING|VLLM_|NO_COLOR|FORCE_COLOR|KVGATE_|COLUMNS|PYTEST_|TERM$|XDG_|PYTHONSAFE"
)

#: Four layers, 2 KV heads of 32: 32 tokens in float32 are 65,536 bytes; 1,280 blocks of 32 are a pool of 40,960 tokens.
LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 128, "intermediate_size": 256,
    "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "vocab_size": 512,
    "max_position_embeddings": 16384, "bos_token_id": 0, "eos_token_id": 1, "torch_dtype": "float32",
    "rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": False,
}  # fmt: skip


def write_model(folder: Path, config: dict[str, Any]) -> Path:
    """A model directory without weights: config.json and a tokenizer of as many words as the vocabulary has."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    size = config.get("vocab_size", 512)
    words = {f"<{index}>" if index < 3 else f"t{index}": index for index in range(size)}
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
        "pre_tokenizer": {"type": "Whitespace"}, "post_processor": None, "decoder": None,
        "model": {"type": "WordLevel", "vocab": words, "unk_token": "<2>"},
    }  # fmt: skip
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    names = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<0>", "eos_token": "<1>", "unk_token": "<2>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(names), encoding="utf-8")
    return folder


def pod(arguments: list[str], workload: dict[str, int] | None = None, env: dict[str, str] | None = None) -> str:
    """A manifest that serves ``/models/tiny`` on vLLM's CPU backend."""
    annotations = {f"kvgate.dev/{name}": str(value) for name, value in (workload or {}).items()}
    variables = {"VLLM_CPU_KVCACHE_SPACE": "1", **(env or {})}
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "tiny", "annotations": annotations},
            "spec": {
                "containers": [
                    {
                        "name": "vllm",
                        "image": "vllm/vllm-openai-cpu:v0.32.0",
                        "args": ["--model", "/models/tiny", *arguments],
                        "env": [{"name": name, "value": value} for name, value in variables.items()],
                    }
                ]
            },
        },
        indent=1,
    )


ARTICLE = ["--dtype", "float32", "--enforce-eager", "--block-size", "32", "--num-gpu-blocks-override", "1280"]
ARTICLE_LOAD = {"prompt-tokens": 7500, "output-tokens": 1000, "peak-concurrency": 20}


@dataclass
class Tree:
    """A folder with a model, a manifest and a kvgate.yaml, and the command line run in it."""

    folder: Path
    python: str = str(HERE / "fake_vllm.py")
    environment: dict[str, str] = field(default_factory=dict)

    def write(self, manifest: str, config: dict[str, Any] | None = None, allow: str = '["tiny"]') -> "Tree":
        write_model(self.folder / "tiny", config or LLAMA)
        (self.folder / "pod.json").write_text(manifest, encoding="utf-8")
        (self.folder / "kvgate.yaml").write_text(
            f"version: 1\nmodels: {{/models/tiny: tiny}}\nsmoke: {{allow: {{models: {allow}}}}}\n", encoding="utf-8"
        )
        return self

    @property
    def pids(self) -> list[int]:
        """What the fake server started as; itself first."""
        try:
            return [int(line) for line in (self.folder / "pids").read_text(encoding="utf-8").split()]
        except FileNotFoundError:
            return []

    def variables(self) -> dict[str, str]:
        kept = {key: value for key, value in os.environ.items() if not _SCRUBBED.match(key)}
        return {
            **kept,
            "PYTHONUTF8": "1",
            "HF_HOME": str(self.folder / "no-hub"),
            "HF_HUB_OFFLINE": "1",
            "VLLM_FAKE_PIDS": str(self.folder / "pids"),
            "KVGATE_VLLM_PYTHON": self.python,
            **self.environment,
        }

    def start(self, *arguments: str | Path) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "kvgate", *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.folder,
            env=self.variables(),
            # a shell that runs the tests in the background has them ignore ctrl-C, and so would the child
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
        )

    def run(self, *arguments: str | Path, timeout: float = 120) -> "Result":
        process = self.start(*arguments)
        try:
            out, err = process.communicate(timeout=timeout)
        finally:
            process.kill()
        assert "Traceback" not in err, err
        return Result(process.returncode, out, err)

    def smoke(self, *arguments: str | Path, timeout: float = 120) -> "Result":
        return self.run("smoke", "pod.json", "--format", "json", *arguments, timeout=timeout)


@dataclass
class Result:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def alive(pid: int) -> bool:
    """Whether a process still runs (a dead one that nobody has waited for does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[0] not in ("Z", "X")
    except OSError:
        return False


def wait_for(condition: Callable[[], Any], seconds: float = 20) -> Any:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(f"not within {seconds} seconds")


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Tree]:
    """A folder in which a smoke run finds the fake server; at the end nothing of it may be alive."""
    if not Path("/proc/self/stat").exists():
        pytest.skip("processes are looked up in /proc")
    made = Tree(tmp_path)
    yield made
    left = [pid for pid in made.pids if alive(pid)]
    for pid in left:
        os.kill(pid, 9)
    assert not left, "processes of the server were left running"


@pytest.fixture
def article() -> str:
    """The article's deployment: a pool of 40,960 tokens, twenty clients of 7,500 + 1,000 tokens."""
    return pod(ARTICLE, ARTICLE_LOAD)


@pytest.fixture
def manifest() -> Callable[[dict[str, int]], str]:
    """The same deployment under another load."""
    return lambda workload: pod(ARTICLE, workload)


@pytest.fixture
def wait() -> Callable[..., Any]:
    return wait_for


@pytest.fixture
def is_alive() -> Callable[[int], bool]:
    return alive


@pytest.fixture
def make_pod() -> Callable[..., str]:
    """A manifest for other arguments."""
    return pod


@pytest.fixture
def below() -> Callable[[int], list[int]]:
    """Processes below one, by the pids of their parents."""

    def find(pid: int) -> list[int]:
        from kvgate.smoke.processes import descendants

        return sorted(child for child, _ in descendants(pid))

    return find
