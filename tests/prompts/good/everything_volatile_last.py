from datetime import datetime
from uuid import uuid4

INSTRUCTIONS = """# Role
You are an operator of a call centre for lost baggage. Take the report, give a reference, and close the call.
# Rules
Never promise a time of delivery. Spell names back. Stay polite when the caller is not."""


def build_system_prompt(caller_name: str, session_id: str) -> str:
    return "\n".join(
        [
            INSTRUCTIONS,
            "# This call",
            f"Caller: {caller_name}",
            f"Session: {session_id}",
            f"Time: {datetime.now():%H:%M:%S}",
            f"Reference: {uuid4()}",
        ]
    )


def messages(caller_name, session_id, text):
    return [
        {"role": "system", "content": build_system_prompt(caller_name, session_id)},
        {"role": "user", "content": text},
    ]
