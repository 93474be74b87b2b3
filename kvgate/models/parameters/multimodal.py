"""Models with towers: which language model each takes, and what stands beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from kvgate.models.parameters import architectures as text
from kvgate.models.parameters import towers
from kvgate.models.parameters.blocks import Block, Linear, Norms, Several, Table, Vector
from kvgate.models.parameters.decoder import Decoder, Family, Tower
from kvgate.models.parameters.encoders import EMPTY, dense32, encoder, labels
from kvgate.models.parameters.keys import Keys
from kvgate.models.parameters.tally import FLOAT32

#: Language models that a nested configuration asks for by its ``model_type`` alone.
BY_MODEL_TYPE: Final[Mapping[str, str]] = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "ministral3": "Ministral3ForCausalLM",
    "mixtral": "MixtralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen2_moe": "Qwen2MoeForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "gemma": "GemmaForCausalLM",
    "gemma2": "Gemma2ForCausalLM",
    "gemma3_text": "Gemma3ForCausalLM",
    "gpt_oss": "GptOssForCausalLM",
    "granite": "GraniteForCausalLM",
    "granitemoehybrid": "GraniteMoeHybridForCausalLM",
    "granitemoe": "GraniteMoeForCausalLM",
    "cohere": "CohereForCausalLM",
    "cohere2": "Cohere2ForCausalLM",
    "opt": "OPTForCausalLM",
    "phi": "PhiForCausalLM",
    "phi3": "Phi3ForCausalLM",
    "internlm2": "InternLM2ForCausalLM",
    "internlm3": "InternLM3ForCausalLM",
    "deepseek_v2": "DeepseekV2ForCausalLM",
    "deepseek_v3": "DeepseekV3ForCausalLM",
    "deepseek_vl_v2": "DeepseekV2ForCausalLM",
    "kimi_k2": "DeepseekV3ForCausalLM",
    "kimi_linear": "KimiLinearForCausalLM",
    "nemotron_h": "NemotronHForCausalLM",
    "lfm2": "Lfm2ForCausalLM",
    "smollm3": "SmolLM3ForCausalLM",
    "exaone4": "Exaone4ForCausalLM",
    "glm4": "Glm4ForCausalLM",
    "ernie4_5": "Ernie4_5ForCausalLM",
    "olmo2": "Olmo2ForCausalLM",
    "olmo3": "Olmo3ForCausalLM",
    "hunyuan_v1_dense": "HunYuanDenseV1ForCausalLM",
    "mellum": "MellumForCausalLM",
    "bailing_moe": "BailingMoeForCausalLM",
}


def nested(keys: Keys) -> str:
    """The architecture of a nested language model: as it names it, else by its type."""
    names = keys.get("architectures")
    if names:
        return str(names[0])
    return BY_MODEL_TYPE.get(str(keys.get("model_type")), f"a {keys.get('model_type')!r} language model")


Text = Decoder | Callable[[Keys], str]


def vision(described: Text, *blocks: Block, config: str = "vision_config") -> Family:
    """A language model with a vision tower; the blocks read ``vision_config``."""
    return Family(described, (Tower(Several(blocks), config),))


def _pali_text_hidden(keys: Keys, layer: int = 0) -> int:
    """ColPali's files nest PaliGemma's configuration or are one."""
    del layer
    whole = keys.part("vlm_config")
    return (whole if whole.mapping else keys).part("text_config").hidden


LLAVA: Final = vision(nested, towers.VISION_TOWERS, towers.LLAVA_PROJECTOR)
GPT2_SCORE: Final = dense32("score", "hidden_size", labels, bias=0)


MULTIMODAL: Final[Mapping[str, Family]] = {
    "AriaForConditionalGeneration": vision(text.ARIA, towers.ARIA),
    "AudioFlamingo3ForConditionalGeneration": Family(nested, (Tower(towers.AUDIO_FLAMINGO, "audio_config"),)),
    "Blip2ForConditionalGeneration": Family(nested, towers.BLIP2),
    "Cohere2VisionForConditionalGeneration": vision(nested, towers.COHERE2_VISION),
    "ColPaliForRetrieval": Family(
        text.GEMMA,
        text_config=("vlm_config.text_config", "text_config"),
        towers=(
            Tower(towers.PALIGEMMA, "vlm_config.vision_config|vision_config"),
            Tower(
                dense32(
                    "custom_text_proj",
                    _pali_text_hidden,
                    "embedding_dim|embed_dim|dim|projection_dim|colbert_dim|=128",
                    bias=0,
                )
            ),
        ),
    ),
    "Cosmos3EdgeForConditionalGeneration": Family(
        text.COSMOS3_EDGE,
        (Tower(towers.COSMOS3_EDGE, "vision_config"), Tower(towers.COSMOS3_PROJECTOR, "projector_config")),
    ),
    "DiffusionGemmaForBlockDiffusion": vision(text.DIFFUSION_GEMMA, towers.GEMMA4),
    "InklingForConditionalGeneration": Family(text.INKLING),
    "KimiK3ForConditionalGeneration": vision(text.KIMI_LINEAR, towers.KIMI_K3),
    "WhisperForConditionalGeneration": encoder(
        towers.WHISPER_ENCODER,
        Table("decoder.embed_tokens", "vocab_size", "d_model", split=False),
        Vector("decoder.embed_positions", ("max_target_positions", "d_model")),
        towers.CrossDecoder(),
        Norms(1, 1, "d_model"),
    ),
    "Exaone4_5_ForConditionalGeneration": vision(text.EXAONE4, towers.EXAONE4_5),
    "Gemma3ForConditionalGeneration": vision(text.GEMMA3, towers.GEMMA3),
    "Gemma4ForConditionalGeneration": Family(
        text.GEMMA4,
        (Tower(towers.GEMMA4, "vision_config"), Tower(towers.Gemma4Audio(), "audio_config", optional=True)),
    ),
    "GlmAsrForConditionalGeneration": Family(text.LLAMA, (Tower(towers.GLM_ASR_AUDIO, "audio_config"),)),
    "Glm4vForConditionalGeneration": vision(text.GLM4, towers.GLM4V),
    "Glm4vMoeForConditionalGeneration": vision(text.GLM4_MOE, towers.GLM4V),
    "Glm5NextForConditionalGeneration": vision(text.GLM5_NEXT, towers.GLM5_NEXT),
    "GlmOcrForConditionalGeneration": vision(text.GLM4, towers.GLM_OCR),
    "GraniteSpeechForConditionalGeneration": Family(nested, towers.GRANITE_SPEECH),
    "GraniteSpeechPlusForConditionalGeneration": Family(nested, towers.GRANITE_SPEECH),
    "Idefics3ForConditionalGeneration": vision(text.LLAMA, towers.IDEFICS3),
    "InternVLForConditionalGeneration": vision(nested, towers.INTERNVL_HF),
    "KimiK25ForConditionalGeneration": vision(text.DEEPSEEK, towers.KIMI_K25),
    "Llama4ForConditionalGeneration": vision(text.LLAMA4, towers.LLAMA4),
    "LlavaForConditionalGeneration": LLAVA,
    "LlavaNextForConditionalGeneration": vision(
        nested, towers.VISION_TOWERS, towers.LLAVA_PROJECTOR, towers.IMAGE_NEWLINE
    ),
    "LlavaNextVideoForConditionalGeneration": vision(nested, towers.VISION_TOWERS, towers.LLAVA_WHOLE_PROJECTOR),
    "LlavaOnevisionForConditionalGeneration": vision(
        nested, towers.VISION_TOWERS, towers.LLAVA_WHOLE_PROJECTOR, towers.IMAGE_NEWLINE
    ),
    "MiniCPMV4_6ForConditionalGeneration": vision(text.QWEN3_5, towers.MINICPM4_6),
    "MiniCPMV4_7ForConditionalGeneration": vision(text.QWEN3_5, towers.MINICPM4_6),
    "Mistral3ForConditionalGeneration": vision(nested, towers.VISION_TOWERS, towers.MISTRAL3_PROJECTOR),
    "MuseGlimmerForConditionalGeneration": vision(text.MUSE_GLIMMER, towers.MUSE_GLIMMER),
    "PaddleOCRVLForConditionalGeneration": vision(text.LLAMA, towers.PADDLE_OCR),
    "PaliGemmaForConditionalGeneration": vision(nested, towers.PALIGEMMA),
    "Qwen2AudioForConditionalGeneration": Family(text.QWEN2, (Tower(towers.QWEN2_AUDIO, "audio_config"),)),
    "Qwen2VLForConditionalGeneration": vision(text.QWEN2, towers.QWEN2_VL),
    "Qwen2_5_VLForConditionalGeneration": vision(text.QWEN2, towers.QWEN2_5_VL),
    "Qwen2_5OmniForConditionalGeneration": Family(
        text.QWEN2,
        (
            Tower(towers.QWEN2_5_OMNI_AUDIO, "audio_config|thinker_config.audio_config"),
            Tower(towers.QWEN2_5_VL, "vision_config|thinker_config.vision_config"),
        ),
    ),
    "Qwen2_5OmniModel": Family(
        text.QWEN2,
        (
            Tower(towers.QWEN2_5_OMNI_AUDIO, "audio_config|thinker_config.audio_config"),
            Tower(towers.QWEN2_5_VL, "vision_config|thinker_config.vision_config"),
        ),
    ),
    "Qwen3ASRForConditionalGeneration": Family(
        text.QWEN3, (Tower(towers.QWEN3_AUDIO, "audio_config|thinker_config.audio_config"),)
    ),
    "Qwen3OmniMoeForConditionalGeneration": Family(
        text.QWEN3_MOE,
        (
            Tower(towers.QWEN3_AUDIO, "audio_config|thinker_config.audio_config"),
            Tower(towers.QWEN3_VL, "vision_config|thinker_config.vision_config"),
        ),
    ),
    "Qwen3VLForConditionalGeneration": vision(text.QWEN3, towers.QWEN3_VL),
    "Qwen3VLMoeForConditionalGeneration": vision(text.QWEN3_MOE, towers.QWEN3_VL),
    "Qwen3_5ForConditionalGeneration": vision(text.QWEN3_5, towers.QWEN3_VL),
    "Qwen3_5MoeForConditionalGeneration": vision(text.QWEN3_5, towers.QWEN3_VL),
    "SmolVLMForConditionalGeneration": vision(text.LLAMA, towers.IDEFICS3),
    "CLIPModel": Family(
        EMPTY,
        (
            Tower(towers.CLIP_TEXT, "text_config"),
            Tower(Several((towers.CLIP, Norms(1, 1))), "vision_config"),
            Tower(
                Several(
                    (
                        Linear(
                            "text_projection",
                            lambda keys, layer: keys.part("text_config").hidden,
                            "projection_dim",
                            quantized=False,
                        ),
                        Linear(
                            "visual_projection",
                            lambda keys, layer: keys.part("vision_config").hidden,
                            "projection_dim",
                            quantized=False,
                        ),
                    )
                )
            ),
        ),
    ),
    "SiglipModel": Family(
        EMPTY,
        (
            Tower(
                Several(
                    (
                        towers.CLIP_TEXT,
                        Linear(
                            "text_model.head", "hidden_size", "projection_size|hidden_size", bias=1, quantized=False
                        ),
                    )
                ),
                "text_config",
            ),
            Tower(Several((towers.SIGLIP, towers.SIGLIP_HEAD)), "vision_config"),
        ),
    ),
    "GPT2ForSequenceClassification": Family(text.GPT2_HEADLESS, (Tower(GPT2_SCORE),)),
    "JambaForSequenceClassification": Family(text.JAMBA, (Tower(GPT2_SCORE),)),
    "OpenAIPrivacyFilterForTokenClassification": Family(
        text.PRIVACY_FILTER, (Tower(dense32("score", "hidden_size", labels)),)
    ),
    "Gemma3TextModel": Family(text.GEMMA3_HEADLESS),
    "EmbeddingGemma2Model": Family(
        text.EMBEDDING_GEMMA2,
        (
            Tower(
                Linear(
                    "embedding_projection",
                    lambda keys, layer: keys.part("text_config").hidden,
                    lambda keys, layer: keys.get("embedding_dim") or keys.get("projection_dim") or 768,
                    quantized=False,
                )
            ),
        ),
    ),
}

__all__ = ["FLOAT32", "MULTIMODAL", "Vector"]
