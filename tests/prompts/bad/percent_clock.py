import time

from vllm import LLM, SamplingParams

llm = LLM("mistralai/Mistral-7B-Instruct-v0.3")
HEAD = "Time: %s\nYou summarise meeting notes. Write decisions first, then open questions, then who does what until when.\n\n%s"


def summarise(notes):
    prompt = HEAD % (time.ctime(), notes)  # <- volatile
    return llm.generate([prompt], SamplingParams(max_tokens=256))
