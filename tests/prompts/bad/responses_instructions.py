from openai import OpenAI
import random
client = OpenAI()
TIPS = ["a", "b"]
STATIC = "You are a writing coach. Give feedback on style, grammar and structure. Keep it to five sentences and be encouraging."

def run(q):
    nonce = random.randint(0, 10**9)
    resp = client.responses.create(
        model="m",
        instructions=f"#{nonce}\n{STATIC}",  # <- volatile
        input=q,
    )
    return resp.output_text
