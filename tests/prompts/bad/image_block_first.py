GUIDE = "You inspect weld seams. Rate porosity, undercut and spatter from 1 to 5, explain each rating in one sentence and give an overall verdict. Write JSON."
def build(b64):
    return [{"role": "user", "content": [
        {"type": "image", "image": f"data:image/png;base64,{b64}"},  # <- media
        {"type": "text", "text": GUIDE}]}]
