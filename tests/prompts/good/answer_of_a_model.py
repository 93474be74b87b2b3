from datetime import date, datetime

PLAN = "Write three queries that a search engine understands, one on each line, and nothing else. " * 3
REPORT = "Write a report of one page from these notes. Begin with the answer, and end with what is not known. " * 3


async def research(llm, topic):
    asked = [
        {"role": "system", "content": PLAN},
        {"role": "user", "content": f"{topic} (today is {date.today()}, it is {datetime.now():%H:%M})"},
    ]
    plan = await llm.ainvoke(asked)
    return await llm.ainvoke(
        [
            {"role": "system", "content": f"The queries were {plan.content}. {REPORT}"},
            {"role": "user", "content": topic},
        ]
    )


def one_schema(manifests):
    schemas: set[str] = set()
    for manifest in manifests:
        schemas.add(manifest["schema"])
    return {"schema": next(iter(schemas)) if len(schemas) == 1 else "mixed", "prompt": "You are a validator."}
