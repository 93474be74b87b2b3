from datetime import datetime
from uuid import uuid4

BOOTED = datetime.now().isoformat()
INSTANCE = uuid4().hex
SYSTEM_PROMPT = f"""Assistant started at {BOOTED} (instance {INSTANCE}).
You watch over a greenhouse. Report temperatures outside the limits, suggest what to do, and never open the roof at night."""


def build_messages(question):
    return [{"role": "system", "content": SYSTEM_PROMPT}, {"role": "user", "content": question}]
