"""Time and memory of ``kvgate check`` as a process: on the README's example, and on a tree of 1,000 files.

    python tests/benchmarks/bench_check.py [--files N] [--rounds N]

The example is timed in turn with ``python -c "import yaml"``, which no tool that reads YAML can do without. The tree
holds one vLLM server to nine other manifests, as a platform team's repository does. Processor time is user and system
time of the whole process, memory its peak; medians. Nothing is asserted: numbers belong to the machine. Not under
PYTHONDONTWRITEBYTECODE: installed tools have their bytecode compiled.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

EXAMPLE = Path(__file__).parents[1] / "examples/deploy"
MODELS = ("meta-llama/Llama-3.1-8B-Instruct", "Qwen/Qwen3-30B-A3B", "google/gemma-3-27b-it", "openai/gpt-oss-20b")

SERVER = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: server-{number}
spec:
  replicas: 2
  selector:
    matchLabels: {{app: server-{number}}}
  template:
    metadata:
      labels: {{app: server-{number}}}
    spec:
      nodeSelector:
        nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3
      containers:
        - name: vllm
          image: vllm/vllm-openai:v0.1{minor}.0
          args: [--model={model}, --max-model-len={length}, --tensor-parallel-size=2]
          resources:
            limits: {{nvidia.com/gpu: 2}}
"""
OTHER = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: service-{number}
  labels: {{app: service-{number}, team: platform}}
spec:
  replicas: 3
  template:
    spec:
      containers:
        - name: app
          image: registry.example.com/service-{number}:1.{number}.0
          command: [/bin/sh, -c, "exec ./serve --port 8080 --workers ${{WORKERS:-4}}"]
          env:
            - name: WORKERS
              value: "8"
          resources:
            limits: {{cpu: "2", memory: 4Gi}}
---
apiVersion: v1
kind: Service
metadata:
  name: service-{number}
spec:
  selector: {{app: service-{number}}}
  ports:
    - port: 80
      targetPort: 8080
"""


class Run(NamedTuple):
    """One finished process."""

    wall_s: float
    cpu_s: float
    peak_mib: float


def run(command: Sequence[str], folder: Path) -> Run:
    begin = time.perf_counter()
    process = subprocess.Popen(
        command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    wall_s = time.perf_counter() - begin
    if process.returncode not in (0, 1):
        raise SystemExit(f"{' '.join(command)}: exit {process.returncode}")
    scale = 1 if sys.platform == "darwin" else 1024
    return Run(wall_s, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * scale / 2**20)


def median(runs: Sequence[Run]) -> Run:
    return Run(*(statistics.median(column) for column in zip(*runs, strict=True)))


def show(name: str, figures: Run) -> None:
    print(f"{name:32} {figures.wall_s:7.3f} s  {figures.cpu_s:7.3f} s CPU  {figures.peak_mib:6.0f} MiB at most")


def write_tree(folder: Path, files: int) -> None:
    for number in range(files):
        place = folder / f"team-{number % 20}" / f"{number}.yaml"
        place.parent.mkdir(exist_ok=True)
        model, length = MODELS[number // 10 % len(MODELS)], 8192 * (1 + number // 10 % 3)
        text = SERVER if number % 10 == 0 else OTHER
        place.write_text(text.format(number=number, minor=number // 10 % 10, model=model, length=length))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--files", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    check = [sys.executable, "-m", "kvgate", "check", "-q"]
    pairs = [
        (run([*check, str(EXAMPLE)], EXAMPLE), run([sys.executable, "-c", "import yaml"], EXAMPLE))
        for _ in range(options.rounds + 1)  # the first pair warms the caches
    ]
    ours, theirs = (median(side) for side in zip(*pairs[1:], strict=True))
    show("kvgate check of the example", ours)
    show("import yaml", theirs)
    ratio = statistics.median(one.cpu_s / other.cpu_s for one, other in pairs[1:])
    print(f"{ratio:.1f} times `import yaml` in processor time")
    with tempfile.TemporaryDirectory() as name:
        write_tree(Path(name), options.files)
        show(f"kvgate check of {options.files:,} files", median([run([*check, "."], Path(name)) for _ in range(3)]))


if __name__ == "__main__":
    main()
