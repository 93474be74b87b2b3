from datetime import datetime, timezone

RULES = "You write release notes. Group the changes, name breaking ones first, and link each to its pull request.\n" * 3


def build(changes, llm):
    today = datetime.now(timezone.utc).isoformat()[:10]
    day = datetime.now().date()
    system = f"Release date: {today} ({day})\n{RULES}"
    return llm.chat([{"role": "system", "content": system}, {"role": "user", "content": changes}])
