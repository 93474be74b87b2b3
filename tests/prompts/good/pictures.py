import random

from diffusers import StableDiffusionPipeline

STYLE = "best quality, much detail, dramatic light, soft shadows, wide angle, grain of an old film, thirty-five mm. " * 3


def paint(count):
    pipe = StableDiffusionPipeline.from_pretrained("a/model")
    for index in range(count):
        animal = random.choice(["cat", "dog", "fox"])
        prompt = f"{random.randint(1, 9)} {animal}s, {STYLE}"
        pipe(prompt=prompt, num_inference_steps=30).images[0].save(f"{index}.png")
