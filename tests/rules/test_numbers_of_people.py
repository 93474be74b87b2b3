"""Numbers beyond all measure, which Python refuses to read, cannot hold, or would count up to for days."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvgate.app import check, prompt_paths
from kvgate.inputs import CheckOptions

LONG = "9" * 5000  # more digits than int() takes
HUGE = "9" * 400  # more than a float holds
COMPOSE = """\
services:
  a: &server
    image: vllm/vllm-openai:v0.19.1
    command: --model m/m --enable-lora --max-lora-rank {number} --gpu-memory-utilization 0.9
    user: "{number}"
    mem_limit: {number}g
    cpus: "{number}"
    stop_grace_period: {number}s
    healthcheck: {{test: curl localhost, start_period: {number}s, retries: {number}}}
    deploy:
      resources: {{reservations: {{devices: [{{driver: nvidia, count: {number}, capabilities: [gpu]}}]}}}}
  b: *server
"""
SCRIPT = """\
docker run --gpus {number} --user {number} -m {number}g --stop-timeout {number} vllm/vllm-openai:v0.19.1 --model a/a &
docker run --gpus {number} vllm/vllm-openai:v0.19.1 --model a/b &
shift {number}
vllm bench serve --dataset-name random --random-prefix-len {number} --random-input-len {number}
guidellm benchmark --data 'prompt_tokens={number},prefix_tokens={number}'
"""
TASK = """\
{{"family": "f", "containerDefinitions": [{{"name": "v", "image": "vllm/vllm-openai:v0.19.1",
  "command": ["--model", "m/m"], "resourceRequirements": [{{"type": "GPU", "value": "{number}"}}]}}]}}
"""
CLIENT = """\
import openai
client.chat.completions.create(model='m', max_tokens={number})
top_k = {number}
chunk_size = {number}
"""
POD = """\
apiVersion: apps/v1
kind: Deployment
metadata: {{name: chat}}
spec:
  replicas: 2
  strategy: {{rollingUpdate: {{maxSurge: {number}%, maxUnavailable: {number}}}}}
  template:
    spec:
      terminationGracePeriodSeconds: {number}
      containers:
        - name: vllm
          image: vllm/vllm-openai:v0.19.1
          args: [--model=m/m, --max-model-len={number}, --block-size={number}, --port={number}]
          resources: {{limits: {{nvidia.com/gpu: {number}, memory: {number}Gi, cpu: {number}}}}}
          livenessProbe: {{httpGet: {{path: /health, port: {number}}}, periodSeconds: {number}}}
---
kv-cache-block-size: {number}
"""


@pytest.mark.parametrize("number", [LONG, HUGE, "9" * 12, "²", "0"], ids=["long", "huge", "many", "raised", "zero"])
def test_no_number_is_too_much(number: str, tmp_path: Path) -> None:
    texts = {"compose.yaml": COMPOSE, "run.sh": SCRIPT, "task.json": TASK, "client.py": CLIENT, "pod.yaml": POD}
    for name, text in texts.items():
        (tmp_path / name).write_text(text.format(number=number), encoding="utf-8")
    report = check(tmp_path)
    assert len(report.units) >= 4
    assert report.errors == ()
    assert prompt_paths([tmp_path], CheckOptions()).errors == ()
