"""Commands of load generators: in scripts, in steps of a pipeline, and in manifests."""

from __future__ import annotations

import time

import pytest

from kvgate.prompts.generators import load_generators
from kvgate.source.text import SourceFile

URL = "http://vllm:8000/v1/completions"


def found(text: str, path: str = "bench.sh") -> list[tuple[str, str | None, bool, str, int]]:
    return [
        (str(one.values["what"]), one.variant, one.mild, one.span.text, one.span.line)
        for one in load_generators(SourceFile(path, text))
    ]


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (f"ab -n 100 -c 10 -p request.json -T application/json {URL}", "ab"),
        (f"hey -n 200 -m POST -T application/json -D body.json {URL}", "hey"),
        (f'hey -z 60s -m POST -d \'{{"prompt": "hi"}}\' {URL}', "hey"),
        ("oha -n 1000 -m POST -D body.json \\\n  http://$HOST/v1/chat/completions", "oha"),
        (f"bombardier -c 64 -m POST -f body.json {URL}", "bombardier"),
        (f"echo 'POST {URL}' | vegeta attack -body=body.json -rate=50", "vegeta"),
        (f"siege -c 20 '{URL} POST < body.json'", "siege"),
    ],
)
def test_one_body_again_and_again(command: str, name: str) -> None:
    ((what, variant, mild, at, line),) = found(f"#!/bin/sh\nset -e\n{command}\n")
    assert (what, variant, mild, at, line) == (f"{name} sends one body with each request", None, False, name, 3)


SHARES = [
    # 4,096 of 4,096 + 512
    ("vllm bench serve --dataset-name random --random-prefix-len 4096 --random-input-len 512", 4096, 4608),
    # the default of the input is 1,024
    ("python3 ../benchmark_serving.py --dataset-name random --random-prefix-len=2000", 2000, 3024),
    ("N=3000\nLEN=100\n\"$VENV/bin/vllm\" bench serve --dataset-name random --random-prefix-len $N \\\n"
     "  --random-input-len ${LEN}", 3000, 3100),
    ("vllm bench serve --dataset-name prefix_repetition --num-prompts 100", 256, 512),
    ("python -m sglang.bench_serving --dataset-name generated-shared-prefix --gsp-question-len 64", 2048, 2112),
    ("genai-perf profile --num-prefix-prompts 1 --prefix-prompt-length 900 --isl 100", 900, 1000),
    ("aiperf profile -m m --shared-system-prompt-length 1650", 1650, 2200),
    ("guidellm benchmark --data 'prompt_tokens=256,output_tokens=128,prefix_tokens=768'", 768, 1024),
    ("guidellm benchmark --data '{\"prompt_tokens\": 256, \"prefix_tokens\": 768}'", 768, 1024),
]  # fmt: skip


@pytest.mark.parametrize(("command", "prefix", "whole"), SHARES)
def test_a_prefix_that_requests_share(command: str, prefix: int, whole: int) -> None:
    ((what, variant, mild, _, _),) = found(command + "\n")
    assert what == f"{prefix:,} of the {whole:,} tokens of each prompt are a prefix that requests share"
    assert (variant, mild) == ("shared-prefix", True)


@pytest.mark.parametrize(
    "command",
    [
        "vllm bench serve --dataset-name random --random-input-len 1024 --num-prompts 500",
        "vllm bench serve --dataset-name random --random-prefix-len 25 --random-input-len 300",
        "vllm bench serve --dataset-name random --random-prefix-len $PREFIX --random-input-len 300",
        "vllm bench serve --dataset-name random-mm --random-prefix-len 2500 --random-input-len 300",
        "vllm bench serve --dataset-name sharegpt --dataset-path sharegpt.json",
        "# vllm bench serve --dataset-name random --random-prefix-len 4096",
        "aiperf profile -m m --isl 2000",
        "guidellm benchmark --data prompts.jsonl",
        "hey -n 1000 http://vllm:8000/health",
        f"wrk -t 8 -s post.lua {URL}",
        f"curl -d @body.json {URL}",
        "ab -n 100 -p body.json http://shop/cart",
    ],
)
def test_loads_that_differ_and_other_commands(command: str) -> None:
    assert found(command + "\n") == []


WORKFLOW = f"""\
on: workflow_dispatch
jobs:
  load:
    runs-on: gpu
    steps:
      - run: |
          echo go
          hey -n 500 -m POST -D body.json {URL}
      - name: sweep
        run: |
          for rate in 1 2 4; do
            vllm bench serve --dataset-name random --request-rate $rate
          done
"""
JOB = """\
apiVersion: batch/v1
kind: Job
metadata: {name: load}
spec:
  template:
    spec:
      containers:
        - name: bench
          image: vllm/vllm-openai:v0.19.1
          command: ["vllm", "bench", "serve"]
          args:
            - --dataset-name
            - random
            - --random-prefix-len=3000
            - --random-input-len
            - "1000"
        - name: other
          command: [sh, -c]
          args:
            - |
              set -e
              vllm bench serve --dataset-name prefix_repetition --prefix-repetition-prefix-len 1024
"""


def test_steps_of_a_pipeline() -> None:
    assert [(what, at, line) for what, _, _, at, line in found(WORKFLOW, ".github/workflows/load.yml")] == [
        ("hey sends one body with each request", "hey", 8),
        ("each step of the loop draws the same random prompts, from the default seed, 0,", "vllm bench serve", 12),
    ]


def test_words_and_scripts_of_a_job() -> None:
    assert [(what, line) for what, _, _, _, line in found(JOB, "job.yaml")] == [
        ("3,000 of the 4,000 tokens of each prompt are a prefix that requests share", 10),
        ("1,024 of the 1,280 tokens of each prompt are a prefix that requests share", 22),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "vllm bench serve " * 20_000,
        "hey /v1/completions " * 20_000,
        "a/" * 200_000 + " bench",
        '"' * 200_000 + " bench",
        "vllm bench serve --dataset-name random --random-prefix-len $X --random-input-len $Y\n" * 15_000,
    ],
    ids=["words", "generators", "path", "quotes", "variables"],
)
def test_hostile_scripts_cost_little(text: str) -> None:
    begin = time.process_time()
    found(text)
    assert time.process_time() - begin < 4
