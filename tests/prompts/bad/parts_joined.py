from datetime import datetime


def build_system_prompt(agent, session_id, tools_text):
    parts = []
    parts.append(f"Session: {session_id}")  # <- volatile
    parts.append(f"Time: {datetime.now()}")  # <- volatile
    parts.append("You are an agent with access to a shell. Plan before you act, and keep a list of what is done.")
    parts.append("Never run a command that deletes files without asking first. Report every error in full.")
    parts.append(tools_text)
    return "\n\n".join(parts)
