from datetime import datetime

from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder

PROMPT = ChatPromptTemplate.from_messages(
    [
        ("system", "You are a helpful travel agent. Offer at most three connections, the cheapest first, with all changes."),
        MessagesPlaceholder("history"),
        ("human", "{input}\n\n(asked at {now})"),
    ]
)


def run(model, history, text):
    value = PROMPT.invoke({"now": datetime.now().strftime("%H:%M"), "history": history, "input": text})
    return model.invoke(value)
