import time

from vllm import LLM, SamplingParams

PROMPT = "Write a story about a lighthouse keeper who finds a message in a bottle. " * 40


def main():
    llm = LLM("meta-llama/Llama-3.1-8B-Instruct")
    prompts = [PROMPT] * 1000  # <- benchmark
    start = time.perf_counter()
    llm.generate(prompts, SamplingParams(max_tokens=128))
    print(f"{1000 / (time.perf_counter() - start):.1f} requests/s")


if __name__ == "__main__":
    main()
