GUIDE = "You inspect weld seams. Rate porosity, undercut and spatter from 1 to 5, explain each rating in one sentence and give an overall verdict. Write JSON."
def build(b64):
    return [{"role": "system", "content": GUIDE}, {"role": "user", "content": [
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{b64}"}},
        {"type": "text", "text": "Rate this seam."}]}]
