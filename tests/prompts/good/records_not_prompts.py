"""Builds rows of a table, names of files and mails: times are everywhere, and none is in a prompt."""

import json
import uuid
from datetime import datetime
from pathlib import Path


def save_run(folder: Path, prompt: str, answer: str) -> Path:
    record = {
        "id": str(uuid.uuid4()),
        "time": datetime.now().isoformat(),
        "prompt": prompt,
        "answer": answer,
    }
    path = folder / f"prompt-{datetime.now():%Y%m%d-%H%M%S}-{record['id'][:8]}.json"
    path.write_text(json.dumps(record))
    return path


def mail_text(user_name: str, link: str) -> str:
    return (
        f"Dear {user_name},\n\nthis is an automatic message of {datetime.now():%d.%m.%Y %H:%M}. Your export is ready and "
        f"will be kept for seven days. You can download it here: {link}\n\nWith kind regards\nthe team of the portal"
    )


def chat_record(user, text):
    return {"user_id": user.id, "created_at": datetime.utcnow(), "text": text, "kind": "message"}
