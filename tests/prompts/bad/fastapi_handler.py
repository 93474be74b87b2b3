import uuid
from datetime import datetime

import httpx
from fastapi import FastAPI
from pydantic import BaseModel

app = FastAPI()
VLLM_URL = "http://vllm:8000/v1/chat/completions"
POLICY = open("policy.txt").read()


class ChatRequest(BaseModel):
    message: str
    history: list = []


@app.post("/chat")
async def chat(req: ChatRequest):
    system_prompt = f"""You are HelpBot.
Current time: {datetime.utcnow().isoformat()}Z  # <- volatile
{POLICY}
"""
    payload = {
        "model": "m",
        "messages": [{"role": "system", "content": system_prompt}, *req.history, {"role": "user", "content": req.message}],
    }
    async with httpx.AsyncClient() as c:
        r = await c.post(VLLM_URL, json=payload)
    return r.json()
