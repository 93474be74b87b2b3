from llama_index.core import ChatPromptTemplate
from llama_index.core.llms import ChatMessage, MessageRole

RULES = "Answer from the passages only, name the page of each, and say so when none of them answers the question. " * 3

qa_template = ChatPromptTemplate(
    message_templates=[
        ChatMessage(
            role=MessageRole.SYSTEM,
            content=(
                "Passages:\n"
                "{context_str}\n"  # <- retrieval
                "That was all. " + RULES
            ),
        ),
        ChatMessage(role=MessageRole.USER, content="{query_str}"),
    ]
)


def engine(index):
    return index.as_query_engine(text_qa_template=qa_template)
