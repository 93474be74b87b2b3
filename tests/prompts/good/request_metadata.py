import uuid, time, logging
from datetime import datetime
log = logging.getLogger(__name__)
SYSTEM_PROMPT = "You are HelpBot. " + "Follow the rules of the shop. " * 30
class Client:
    def __init__(self, http): self.http = http
    async def chat(self, req):
        rid = str(uuid.uuid4())
        t0 = time.time()
        body = {"model": "m", "messages": [{"role": "system", "content": SYSTEM_PROMPT}, *req.history, {"role": "user", "content": req.message}], "user": req.user_id, "metadata": {"request_id": rid, "ts": datetime.utcnow().isoformat()}}
        r = await self.http.post("/v1/chat/completions", json=body, headers={"x-request-id": rid})
        log.info("rid=%s took=%.2f at=%s", rid, time.time() - t0, datetime.now())
        return r.json()
