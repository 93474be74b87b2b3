def run(llm, image):
    prompt = "USER: <image>\nDescribe the machine part. Name the type, the material, visible wear, and whether it can be used again. Answer as a list with one line for each point and nothing else.\nASSISTANT:"  # <- media
    return llm.generate({"prompt": prompt, "multi_modal_data": {"image": image}})
