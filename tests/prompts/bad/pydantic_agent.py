from datetime import datetime

from pydantic_ai import Agent, RunContext

RULES = "You help people who rent bicycles in a hilly town. Say which station has bicycles, and how steep the way is. " * 3
agent = Agent("openai:m", system_prompt=RULES)


@agent.system_prompt
def time_of_day(context: RunContext[str]) -> str:
    return f"The time is {datetime.now():%H:%M:%S}."  # <- volatile
