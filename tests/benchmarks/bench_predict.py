"""Time and memory of one prediction, and of importing the arithmetic.

    python tests/benchmarks/bench_predict.py

Prints medians over models of different kinds. Nothing is asserted: numbers belong to the machine they are measured on.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
import tracemalloc

MODELS = (
    "meta-llama/Llama-3.1-8B-Instruct",
    "Qwen/Qwen3-30B-A3B",
    "deepseek-ai/DeepSeek-V3",
    "google/gemma-3-27b-it",
    "openai/gpt-oss-120b",
    "Qwen/Qwen3-Next-80B-A3B-Instruct",
)
ROUNDS = 30


def start_seconds(statement: str) -> float:
    """Median wall time of a fresh interpreter that runs one statement."""
    times = []
    for _ in range(7):
        begin = time.perf_counter()
        subprocess.run([sys.executable, "-c", statement], check=True)
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def main() -> None:
    from kvgate.capacity.predict import predict_capacity
    from kvgate.capacity.prediction import Workload
    from kvgate.hardware.catalogue import find_gpu
    from kvgate.models.cards import find_card

    gpu, load = find_gpu("H100 80GB"), Workload(7500, 1000, 1500, 20)
    for name in MODELS:
        card = find_card(name)
        if card is None:
            continue
        times = []
        for _ in range(ROUNDS):
            begin = time.perf_counter()
            predict_capacity(card, {"tensor_parallel_size": 8}, version="0.19.1", gpu=gpu, workload=load)
            times.append(time.perf_counter() - begin)
        tracemalloc.start()
        predict_capacity(card, {"tensor_parallel_size": 8}, version="0.19.1", gpu=gpu, workload=load)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        print(f"{name:40} {1000 * statistics.median(times):6.2f} ms  {peak / 1024:8.0f} KiB at most")
    bare, loaded = start_seconds("pass"), start_seconds("import kvgate.capacity.predict")
    print(f"import of kvgate.capacity.predict: {1000 * (loaded - bare):.0f} ms beyond a bare interpreter")


if __name__ == "__main__":
    main()
