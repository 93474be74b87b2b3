from datetime import datetime

from langchain_core.tools import StructuredTool
from langchain_openai import ChatOpenAI

SYSTEM = "You plan the shifts of a hospital. Answer with the table only, and never move a night shift without a reason. " * 3


def roster(ward: str, day: str) -> str:
    return ""


def build_tools():
    tools = []
    tools.append(
        StructuredTool.from_function(
            name="roster",
            description=f"The roster of a ward. Current time: {datetime.now()}",  # <- volatile
            func=roster,
        )
    )
    return tools


def answer(question: str) -> str:
    llm = ChatOpenAI(model="m").bind_tools(build_tools())
    return llm.invoke([("system", SYSTEM), ("human", question)]).content
