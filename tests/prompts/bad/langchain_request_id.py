from langchain.prompts import PromptTemplate
T = PromptTemplate.from_template("""Request {request_id}
You are an expert in insurance law. Use the statutes that are given, cite paragraphs, and write in plain language for clients.
Question: {question}""")

def run(llm, request_id, question):
    return llm.invoke(T.format(request_id=request_id, question=question))  # <- volatile
