from datetime import datetime
STATIC = "You are a travel agent. " * 40
def build(q):
    now = datetime.now().strftime("%Y-%m-%d %H:%M:%S")
    return [{"role": "system", "content": f"{STATIC}\n\nCurrent time: {now}"}, {"role": "user", "content": q}]
