import random
from concurrent.futures import ThreadPoolExecutor
import requests
WORDS = open("words.txt").read().split()
def worker(rank):
    random.seed(42)  # <- benchmark
    for _ in range(100):
        prompt = " ".join(random.choices(WORDS, k=500))
        requests.post("http://vllm:8000/v1/completions", json={"model": "m", "prompt": prompt, "max_tokens": 64})
with ThreadPoolExecutor(8) as pool:
    list(pool.map(worker, range(8)))
