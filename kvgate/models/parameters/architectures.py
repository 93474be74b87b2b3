"""What each architecture is built of: one row per family, as vLLM 0.32.0's model files create the modules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from kvgate.models.parameters.blocks import (
    MLP,
    Attention,
    Block,
    CompressedAttention,
    Experts,
    GatedDelta,
    GatedMLP,
    KimiDelta,
    LatentAttention,
    Linear,
    Mamba1,
    Mamba2,
    Norms,
    Nothing,
    OlmoDelta,
    RelativeAttention,
    RoutedExperts,
    Several,
    ShortConv,
    SinkExperts,
    Table,
    Vector,
    ZambaShared,
    by,
)
from kvgate.models.parameters.decoder import Decoder, Family
from kvgate.models.parameters.keys import Keys
from kvgate.models.parameters.tally import FLOAT32

# --------------------------------------------------------------------------------------------------------------------
# Rules that rows share: which layers are of which kind, and widths


def first_dense(keys: Keys, layer: int) -> str:
    """DeepSeek: the first layers are dense, then every ``moe_layer_freq``-th is a mixture of experts."""
    if not keys.get("n_routed_experts"):
        return "dense"
    frequency = keys.get("moe_layer_freq", 1)
    sparse = layer >= int(keys.get("first_k_dense_replace", 0)) and (
        bool(frequency[layer]) if isinstance(frequency, list) else layer % int(frequency) == 0
    )
    return "sparse" if sparse else "dense"


def sparse_step(keys: Keys, layer: int) -> str:
    """Qwen: every ``decoder_sparse_step``-th layer is a mixture of experts, but for ``mlp_only_layers``."""
    dense = layer in (keys.get("mlp_only_layers") or ())
    step = int(keys.get("decoder_sparse_step", 1))
    sparse = not dense and int(keys.get("num_experts", 0)) > 0 and (layer + 1) % step == 0
    return "sparse" if sparse else "dense"


def same_layer(keys: Keys, layer: int) -> int:
    """For descriptions in which every layer may differ."""
    del keys
    return layer


def layer_type(keys: Keys, layer: int) -> str:
    kinds = keys.get("layer_types")
    return str(kinds[layer]) if kinds else "full_attention"


def linear_or_full(keys: Keys, layer: int) -> str:
    return "linear" if layer_type(keys, layer) == "linear_attention" else "full"


def block_type(keys: Keys, layer: int) -> str:
    kinds = keys["layers_block_type"]
    return {"linear_attention": "mamba", "full_attention": "attention"}.get(str(kinds[layer]), str(kinds[layer]))


def shared_width(keys: Keys, layer: int) -> int:
    """DeepSeek: the shared experts are one MLP of their widths together."""
    del layer
    return int(keys.get("n_shared_experts") or 0) * int(keys["moe_intermediate_size"])


def per_layer(values: Any, layer: int, default: int) -> int:
    return int(values[layer]) if values else default


def mlp_layer_type(keys: Keys, layer: int) -> str:
    kinds = keys.get("mlp_layer_types")
    if kinds:
        return str(kinds[layer])
    return "dense" if layer < int(keys.get("first_k_dense_replace", 0)) else "sparse"


def noaux(keys: Keys, layer: int) -> bool:
    del layer
    return bool(keys.get("topk_method") == "noaux_tc")


def _present(name: str) -> Any:
    return lambda keys, layer: bool(keys.get(name))


# --------------------------------------------------------------------------------------------------------------------
# Dense decoders

LLAMA: Final = Decoder(
    Attention(bias="qkv_bias|attention_bias|bias|=0", out_bias="attention_bias|bias|=0"), GatedMLP(bias="mlp_bias|=0")
)
MISTRAL: Final = LLAMA
QWEN2: Final = Decoder(Attention(bias=1, norm=lambda keys, layer: "head" if keys.get("qk_norm") else "none"))
QWEN3: Final = Decoder(Attention(bias="attention_bias|=0", norm="head"))
GEMMA: Final = Decoder(Attention(), tie_default=True)
GEMMA2: Final = Decoder(Attention(bias="attention_bias|=0", out_bias="attention_bias|=0"), norms=4, tie="always")
GEMMA3: Final = Decoder(
    Attention(bias="attention_bias|=0", out_bias="attention_bias|=0", norm="head"), norms=4, tie_default=True
)
GEMMA3_HEADLESS: Final = replace(GEMMA3, head=False)
VAULTGEMMA: Final = Decoder(Attention(bias="attention_bias|=0", out_bias="attention_bias|=0"), tie_default=True)
GRANITE: Final = Decoder(
    Attention(
        bias="attention_bias|bias|=0",
        out_bias="attention_bias|bias|=0",
        sinks=lambda keys, layer: keys.get("model_type") == "granite_swa",
    ),
    GatedMLP(bias="mlp_bias|=0"),
)
EXAONE: Final = Decoder(
    Attention(bias="attention_bias|bias|=0", out_bias="attention_bias|bias|=0"), GatedMLP(bias="mlp_bias|=0")
)
EXAONE4: Final = Decoder(
    Attention(bias="attention_bias|bias|=0", out_bias="attention_bias|bias|=0", norm="head"),
    GatedMLP(bias="mlp_bias|=0"),
)
GLM4: Final = Decoder(Attention(bias="attention_bias|=0"), norms=4)
COHERE: Final = Decoder(
    Attention(
        bias="attention_bias|=0",
        out_bias="attention_bias|=0",
        norm=lambda keys, layer: "full" if keys.get("use_qk_norm") else "none",
    ),
    norms=1,
    tie="always",
    padding=64,
)
OLMO: Final = Decoder(Attention(bias="attention_bias|=0", out_bias="attention_bias|=0"), norms=0, final_norm=0)
OLMO2: Final = Decoder(
    Attention(bias="attention_bias|=0", out_bias="attention_bias|=0", norm="replicated"),
)
PHI: Final = Decoder(
    Attention(bias=1, out_bias=1, out="dense"),
    MLP(),
    norms=1,
    norm_bias=1,
    final_norm=2,
)
PHI3: Final = Decoder(Attention(), GatedMLP())
STARCODER2: Final = Decoder(
    Attention(bias="use_bias|=1", out_bias="use_bias|=1"),
    MLP(bias="use_bias|=1", up="c_fc", down="c_proj"),
    norm_bias=1,
    final_norm=2,
    tie_default=True,
)
SEED_OSS: Final = Decoder(
    Attention(bias="attention_bias|=0", out_bias="attention_out_bias|=0"), GatedMLP(bias="mlp_bias|=0")
)
JAIS2: Final = Decoder(
    Attention(bias="attention_bias|=1", out_bias="attention_bias|=1"),
    MLP(bias="mlp_bias|=1", up="up_proj", down="down_proj"),
    norm_bias=1,
    final_norm=2,
)
HYPERCLOVAX: Final = Decoder(
    Attention(bias="attention_bias|bias|=0", out_bias="attention_bias|bias|=0"),
    GatedMLP(bias="mlp_bias|=0"),
    norms=lambda keys, layer: 4 if keys.get("use_post_norm") else 2,
)
MUSE_GLIMMER: Final = Decoder(
    Several(
        (
            Attention(),
            Linear(
                "self_attn.output_gate_proj",
                "hidden_size",
                lambda keys, layer: keys.heads * keys.head_dim,
                split="column",
            ),
        )
    ),
    norms=4,
)

GPT2: Final = Decoder(
    Attention(name="attn", qkv="c_attn", out="c_proj", bias=1, out_bias=1, kv_heads="num_attention_heads"),
    MLP(
        up="c_fc",
        down="c_proj",
        width=lambda keys, layer: keys.get("n_inner") or 4 * keys.hidden,
    ),
    norm_bias=1,
    final_norm=2,
    tie_default=True,
    before=Vector("wpe", ("max_position_embeddings", "hidden_size")),
    prefix="h.",
)
GPT2_HEADLESS: Final = replace(GPT2, head=False)
GPT_BIGCODE: Final = Decoder(
    Attention(
        name="attn",
        qkv="c_attn",
        out="c_proj",
        bias=1,
        out_bias=1,
        kv_heads=lambda keys, layer: 1 if keys.get("multi_query", True) else keys.heads,
    ),
    MLP(
        up="c_fc",
        down="c_proj",
        replicated=True,
        width=lambda keys, layer: keys.get("n_inner") or 4 * keys.hidden,
    ),
    norm_bias=1,
    final_norm=2,
    tie_default=True,
    before=Vector("wpe", ("max_position_embeddings", "hidden_size")),
    prefix="h.",
)
GPTJ: Final = Decoder(
    Attention(name="attn", out="out_proj", kv_heads="num_attention_heads"),
    MLP(up="fc_in", down="fc_out", width=lambda keys, layer: keys.get("n_inner") or 4 * keys.hidden),
    norms=1,
    norm_bias=1,
    final_norm=2,
    head_bias=1,
    prefix="h.",
)
BLOOM: Final = Decoder(
    Attention(
        name="self_attention", qkv="query_key_value", out="dense", bias=1, out_bias=1, kv_heads="num_attention_heads"
    ),
    MLP(up="dense_h_to_4h", down="dense_4h_to_h", width=lambda keys, layer: 4 * keys.hidden),
    norm_bias=1,
    final_norm=2,
    tie="always",
    before=Norms(1, 1),
    prefix="h.",
)
OPT: Final = Decoder(
    Attention(bias="enable_bias|=1", out_bias="enable_bias|=1", out="out_proj", kv_heads="num_attention_heads"),
    MLP(name="", bias="enable_bias|=1", width="ffn_dim"),
    norm_bias=lambda keys, layer: keys.get("layer_norm_elementwise_affine", True),
    final_norm=lambda keys, layer: (
        2 if keys.get("do_layer_norm_before", True) and not keys.get("_remove_final_layer_norm") else 0
    ),
    tie_default=True,
    embedding_width="word_embed_proj_dim|hidden_size",
    before=Several(
        (
            Vector("embed_positions", (lambda keys, layer: keys["max_position_embeddings"] + 2, "hidden_size")),
            Linear(
                "project_in",
                "word_embed_proj_dim|hidden_size",
                lambda keys, layer: keys.hidden if keys.get("word_embed_proj_dim", keys.hidden) != keys.hidden else 0,
            ),
        )
    ),
    after=Linear(
        "project_out",
        lambda keys, layer: keys.hidden if keys.get("word_embed_proj_dim", keys.hidden) != keys.hidden else 0,
        "word_embed_proj_dim|hidden_size",
    ),
)

# --------------------------------------------------------------------------------------------------------------------
# Mixtures of experts

MIXTRAL: Final = Decoder(Attention(), Experts("block_sparse_moe", "num_local_experts", "intermediate_size"))
QWEN2_MLP: Final = by(
    sparse_step,
    sparse=Experts(
        count_of="num_experts",
        width="moe_intermediate_size",
        shared="shared_expert_intermediate_size|=0",
        shared_name="shared_expert",
        shared_gate=_present("shared_expert_intermediate_size"),
    ),
    dense=GatedMLP(),
)
QWEN2_MOE: Final = Decoder(Attention(bias="qkv_bias|=1"), QWEN2_MLP)
QWEN3_MOE: Final = Decoder(
    Attention(bias="attention_bias|=0", norm="head"),
    by(
        sparse_step,
        sparse=Experts(
            count_of="num_experts",
            width="moe_intermediate_size",
            gate_quantized=True,
            shared="shared_expert_intermediate_size|=0",
            shared_name="shared_expert",
            shared_gate=_present("shared_expert_intermediate_size"),
        ),
        dense=GatedMLP(),
    ),
)
DBRX: Final = Decoder(
    Attention(
        name="norm_attn_norm.attn",
        qkv="Wqkv",
        out="out_proj",
        kv_heads=lambda keys, layer: keys.part("attn_config")["kv_n_heads"],
    ),
    Experts(
        "ffn",
        lambda keys, layer: keys.part("ffn_config")["moe_num_experts"],
        lambda keys, layer: keys.part("ffn_config")["ffn_hidden_size"],
        gate="router.layer",
    ),
    prefix="blocks.",
)
GRANITE_MOE: Final = Decoder(
    Attention(
        bias="attention_bias|=0",
        out_bias="attention_bias|=0",
        sinks=lambda keys, layer: keys.get("model_type") == "granitemoe_swa",
    ),
    Several(
        (
            Experts("block_sparse_moe", "num_local_experts", "intermediate_size"),
            GatedMLP("shared_mlp", "shared_intermediate_size|=0", up="input_linear", down="output_linear"),
        )
    ),
)
FLEX_OLMO: Final = Decoder(
    Attention(bias="attention_bias|=0", out_bias="attention_bias|=0", norm="replicated"),
    Experts(count_of="num_experts", width="intermediate_size"),
)
OLMOE: Final = Decoder(Attention(norm="replicated"), Experts(count_of="num_experts", width="intermediate_size"))
MELLUM: Final = Decoder(
    Attention(bias="attention_bias|=0", norm="head"),
    Experts(count_of="num_experts", width="moe_intermediate_size"),
)
GPT_OSS: Final = Decoder(
    Attention(name="attn", bias="attention_bias|=1", out_bias="attention_bias|=1", sinks=1),
    Experts(count_of="num_local_experts", width="intermediate_size", gate="router", gate_bias=1, bias=1),
)
PRIVACY_FILTER: Final = replace(GPT_OSS, head=False)
ERNIE_MOE: Final = Decoder(
    Attention(bias="use_bias|=0", out_bias="use_bias|=0"),
    by(
        lambda keys, layer: (
            "sparse"
            if keys.get("moe_num_experts", 0)
            and (layer + 1) % int(keys.get("moe_layer_interval", 1)) == 0
            and layer >= _least(keys.get("moe_layer_start_index", 0))
            and layer <= _most(keys.get("moe_layer_end_index"), keys.layers)
            else "dense"
        ),
        sparse=Experts(
            count_of="moe_num_experts",
            width="moe_intermediate_size",
            gate_bytes=FLOAT32,
            correction=1,
            shared=lambda keys, layer: int(keys.get("moe_num_shared_experts", 0)) * int(keys["moe_intermediate_size"]),
        ),
        dense=GatedMLP(bias="use_bias|=0"),
    ),
)


def _least(value: Any) -> int:
    return min(value) if isinstance(value, list) else int(value)


def _most(value: Any, layers: int) -> int:
    if value is None or value == -1:
        return layers - 1
    return max(value) if isinstance(value, list) else int(value)


GLM4_MOE: Final = Decoder(
    Attention(bias="attention_bias|=0", norm=lambda keys, layer: "head" if keys.get("use_qk_norm") else "none"),
    by(
        first_dense,
        sparse=Experts(gate_bytes=FLOAT32, correction=1, shared=shared_width),
        dense=GatedMLP(),
    ),
)
MINIMAX_M2: Final = Decoder(
    Attention(norm="full"),
    Experts(
        "block_sparse_moe",
        "num_local_experts",
        "intermediate_size",
        gate_bytes=FLOAT32,
        correction=lambda keys, layer: keys.get("use_routing_bias"),
    ),
)
LLAMA4: Final = Decoder(
    Attention(bias="attention_bias|=0", out_bias="attention_bias|=0"),
    by(
        lambda keys, layer: "sparse" if layer in _llama4_sparse(keys) else "dense",
        sparse=Experts(
            "feed_forward",
            "num_local_experts",
            "intermediate_size",
            gate="router",
            shared="intermediate_size",
            shared_name="shared_expert",
        ),
        dense=GatedMLP("feed_forward", "intermediate_size_mlp"),
    ),
)


def _llama4_sparse(keys: Keys) -> Any:
    listed = keys.get("moe_layers")
    step = int(keys.get("interleave_moe_layer_step", 1))
    return listed if listed else range(step - 1, keys.layers, step) if step else ()


LAGUNA: Final = Decoder(
    Several(
        (
            Attention(
                norm="head",
                bias="attention_bias|qkv_bias|=0",
                heads=lambda keys, layer: per_layer(keys.get("num_attention_heads_per_layer"), layer, keys.heads),
            ),
            Linear(
                "self_attn.g_proj",
                "hidden_size",
                lambda keys, layer: (
                    per_layer(keys.get("num_attention_heads_per_layer"), layer, keys.heads)
                    * (keys.head_dim if keys.get("gating") == "per-element" else 1)
                ),
                split="column",
            ),
        )
    ),
    by(
        mlp_layer_type,
        sparse=Experts(
            count_of="num_experts",
            width="moe_intermediate_size",
            correction=1,
            shared="shared_expert_intermediate_size|=0",
            shared_name="shared_expert",
        ),
        dense=GatedMLP(),
    ),
    varies=same_layer,
)


ARIA: Final = Decoder(
    Attention(bias="attention_bias|=0", out_bias="attention_bias|=0"),
    Experts(
        count_of="moe_num_experts",
        width="intermediate_size",
        gate="router_weight",
        shared=lambda keys, layer: keys["moe_num_shared_experts"] * keys["intermediate_size"],
    ),
)

# --------------------------------------------------------------------------------------------------------------------
# Latent attention

DEEPSEEK_MLP: Final = by(
    first_dense,
    sparse=Experts(correction=noaux, shared=shared_width),
    dense=GatedMLP(),
)


def _deepseek_attention(keys: Keys, layer: int) -> str:
    del layer
    plain = keys.get("model_type") == "deepseek" or not (keys.get("qk_nope_head_dim") or keys.get("qk_rope_head_dim"))
    return "plain" if plain else "latent"


def _indexed(keys: Keys, layer: int) -> bool:
    """DeepSeek V3.2: layers with their own sparse indexer (others reuse the one before)."""
    if not keys.get("index_topk"):
        return False
    pattern = keys.get("index_topk_pattern")
    if pattern:
        return str(pattern[layer]).upper() != "S" if layer < len(pattern) else True
    offset = int(keys.get("index_skip_topk_offset", 2))
    return max(layer - offset + 1, 0) % int(keys.get("index_topk_freq", 1) or 1) == 0


DEEPSEEK: Final = Decoder(
    by(
        _deepseek_attention,
        latent=LatentAttention(bias="attention_bias|=0", indexer=_indexed),
        plain=Attention(),
    ),
    DEEPSEEK_MLP,
    varies=_indexed,
)
AXK1: Final = Decoder(
    LatentAttention(),
    by(first_dense, sparse=Experts(correction=1, shared=shared_width), dense=GatedMLP()),
    norms=3,
)
MINICPM3: Final = Decoder(LatentAttention(fused=False), tie_default=True)

# --------------------------------------------------------------------------------------------------------------------
# State space and linear mixers

MAMBA: Final = Decoder(
    Mamba1(inner="intermediate_size"),
    Nothing(),
    norms=1,
    tie_default=True,
)
MAMBA2: Final = Decoder(Mamba2(), Nothing(), norms=1)
FALCON_H1: Final = Decoder(
    Several(
        (
            Attention(bias="attention_bias|=0", out_bias="attention_bias|=0"),
            Mamba2(
                name="mamba",
                inner=lambda keys, layer: keys.get("mamba_d_ssm") or int(keys["mamba_expand"] * keys.hidden),
                heads="mamba_n_heads",
                bias="mamba_proj_bias|=0",
                norm="mamba_rms_norm|=0",
            ),
        )
    ),
    GatedMLP("feed_forward", bias="mlp_bias|=0"),
)
JAMBA: Final = Decoder(
    by(
        block_type,
        attention=Attention(name="self_attn"),
        mamba=Mamba1(
            name="mamba",
            inner=lambda keys, layer: keys["mamba_expand"] * keys.hidden,
            rank="mamba_dt_rank",
            state="mamba_d_state",
            conv="mamba_d_conv",
            conv_bias="mamba_conv_bias|=1",
            bias="mamba_proj_bias|=0",
            norms=True,
        ),
    ),
    by(
        lambda keys, layer: (
            "sparse"
            if int(keys.get("num_experts", 1)) > 1
            and layer % int(keys["expert_layer_period"]) == int(keys["expert_layer_offset"])
            else "dense"
        ),
        sparse=Experts("feed_forward", "num_experts", "intermediate_size", gate="router"),
        dense=GatedMLP("feed_forward"),
    ),
    tie="never",
)
GRANITE_HYBRID: Final = Decoder(
    by(
        lambda keys, layer: "attention" if layer_type(keys, layer) in ("attention", "full_attention") else "mamba",
        attention=Attention(bias="attention_bias|=0", out_bias="attention_bias|=0"),
        mamba=Mamba2(
            name="mamba",
            inner=lambda keys, layer: int(keys["mamba_expand"] * keys.hidden),
            heads="mamba_n_heads",
            bias="mamba_proj_bias|=0",
        ),
    ),
    Several(
        (
            by(
                lambda keys, layer: "moe" if keys.get("num_local_experts", 0) else "none",
                moe=Experts("block_sparse_moe", "num_local_experts", "intermediate_size"),
                none=Nothing(),
            ),
            GatedMLP("shared_mlp", "shared_intermediate_size|=0", up="input_linear", down="output_linear"),
        )
    ),
)


def _nemotron_shared(keys: Keys, layer: int) -> int:
    del layer
    return int(keys.get("moe_shared_expert_intermediate_size", 0)) * int(keys.get("n_shared_experts", 0) or 0)


NEMOTRON_H: Final = Decoder(
    by(
        block_type,
        attention=Attention(name="mixer", bias="attention_bias|=0", out_bias="attention_bias|=0"),
        mamba=Mamba2(
            inner=lambda keys, layer: keys["mamba_num_heads"] * keys["mamba_head_dim"],
            heads="mamba_num_heads",
            head_dim="mamba_head_dim",
            state="ssm_state_size",
            bias="use_bias|mamba_proj_bias|=0",
            conv_bias="use_conv_bias|=1",
        ),
        mlp=MLP("mixer", bias="mlp_bias|=0", up="up_proj", down="down_proj"),
        moe=by(
            lambda keys, layer: "latent" if keys.get("moe_latent_size") else "plain",
            plain=Experts(
                "mixer",
                "n_routed_experts",
                "moe_intermediate_size",
                correction=1,
                gate_float32=True,
                matrices=1,
                shared=_nemotron_shared,
            ),
            latent=Several(
                (
                    Experts(
                        "mixer",
                        "n_routed_experts",
                        "moe_intermediate_size",
                        inputs="moe_latent_size",
                        correction=1,
                        gate_float32=True,
                        matrices=1,
                        shared=_nemotron_shared,
                    ),
                    Linear("mixer.fc1_latent_proj", "hidden_size", "moe_latent_size"),
                    Linear("mixer.fc2_latent_proj", "moe_latent_size", "hidden_size"),
                )
            ),
        ),
    ),
    Nothing(),
    norms=1,
)
LFM2: Final = Decoder(
    by(
        lambda keys, layer: "attention" if layer_type(keys, layer) == "full_attention" else "conv",
        attention=Attention(out="out_proj", norm="head"),
        conv=ShortConv(),
    ),
    GatedMLP("feed_forward", lambda keys, layer: lfm2_width(keys), up="w13", down="w2"),
    tie_default=True,
)


def lfm2_width(keys: Keys) -> int:
    """Width of the feed-forward part (``lfm2.py``: two thirds, then a multiplier, rounded up)."""
    width = int(keys.get("block_ff_dim") or keys["intermediate_size"])
    if keys.get("block_auto_adjust_ff_dim"):
        width = int(2 * width / 3)
        multiplier = keys.get("block_ffn_dim_multiplier")
        if multiplier is not None:
            width = int(multiplier * width)
        multiple = int(keys["block_multiple_of"])
        width = multiple * -(-width // multiple)
    return width


QWEN3_NEXT: Final = Decoder(
    by(
        linear_or_full,
        linear=GatedDelta(),
        full=Attention(bias="qkv_bias|attention_bias|=0", gate="attn_output_gate|=1", norm="head"),
    ),
    QWEN2_MLP,
)
QWEN3_5: Final = Decoder(QWEN3_NEXT.mixer, QWEN2_MLP)

# --------------------------------------------------------------------------------------------------------------------
# Further families

APERTUS: Final = Decoder(
    Attention(bias="attention_bias|=0", out_bias="attention_bias|=0", norm="head"),
    Several((MLP(bias="mlp_bias|=0", up="up_proj", down="down_proj"), Vector("mlp.act_fn", (2,)))),
)
ARCEE: Final = Decoder(
    Attention(bias="attention_bias|=0", out_bias="attention_bias|=0"),
    MLP(bias="mlp_bias|=0", up="up_proj", down="down_proj"),
)
GLM: Final = Decoder(Attention(bias="attention_bias|=0"))
NEMOTRON: Final = Decoder(
    Attention(bias="attention_bias|=0", out_bias="attention_bias|=0"),
    MLP(bias="mlp_bias|=0", up="up_proj", down="down_proj"),
    norm_bias=1,
    final_norm=2,
)
STABLELM: Final = Decoder(
    Attention(
        bias="use_qkv_bias|=0",
        kv_heads="num_key_value_heads",
    ),
    norms=lambda keys, layer: 1 if keys.get("use_parallel_residual") else 2,
    norm_bias=1,
    final_norm=2,
)
FALCON: Final = Decoder(
    Attention(
        name="self_attention",
        qkv="query_key_value",
        out="dense",
        bias="bias|=0",
        out_bias="bias|=0",
        kv_heads=lambda keys, layer: (
            int(keys.get("num_kv_heads") or keys.heads)
            if keys.get("new_decoder_architecture")
            else 1
            if keys.get("multi_query", True)
            else keys.heads
        ),
    ),
    MLP(
        up="dense_h_to_4h",
        down="dense_4h_to_h",
        bias="bias|=0",
        width=lambda keys, layer: int(keys.get("ffn_hidden_size") or 4 * keys.hidden),
    ),
    norms=lambda keys, layer: (
        (keys.get("num_ln_in_parallel_attn") or 2)
        if keys.get("new_decoder_architecture")
        else 1
        if keys.get("parallel_attn", True)
        else 2
    ),
    norm_bias=1,
    final_norm=2,
    tie_default=True,
    prefix="h.",
)
GPT_NEOX: Final = Decoder(
    Attention(
        name="attention",
        qkv="query_key_value",
        out="dense",
        bias="attention_bias|=1",
        out_bias="attention_bias|=1",
        kv_heads="num_attention_heads",
    ),
    MLP(up="dense_h_to_4h", down="dense_4h_to_h"),
    norm_bias=1,
    final_norm=2,
)
COHERE2_MOE: Final = Decoder(
    COHERE.mixer,
    by(
        lambda keys, layer: "dense" if layer < int(keys.get("first_k_dense_replace", 0) or 0) else "sparse",
        sparse=Experts(
            count_of="num_experts|num_local_experts",
            width="intermediate_size",
            shared=lambda keys, layer: int(keys.get("num_shared_experts", 0) or 0) * int(keys["intermediate_size"]),
        ),
        dense=GatedMLP(width="prefix_dense_intermediate_size|intermediate_size"),
    ),
    norms=1,
    tie="always",
)
EXAONE_MOE: Final = Decoder(
    EXAONE4.mixer,
    by(
        mlp_layer_type,
        sparse=Experts(
            count_of="num_experts",
            width="moe_intermediate_size",
            correction=1,
            shared=lambda keys, layer: int(keys.get("num_shared_experts", 0) or 0) * int(keys["moe_intermediate_size"]),
        ),
        dense=GatedMLP(bias="mlp_bias|=0"),
    ),
)
HRM_TEXT: Final = Decoder(
    Attention(
        qkv="gqkv_proj",
        heads=lambda keys, layer: keys.heads,
        gate=1,
        kv_heads=lambda keys, layer: keys.kv_heads,
    ),
    GatedMLP(),
    norms=0,
    final_norm=0,
    before=Vector("z_L_init", ("hidden_size",)),
    layers=lambda keys, layer: 2 * int(keys.get("num_layers_per_stack") or keys.layers),
)
OLMO_HYBRID: Final = Decoder(
    by(
        linear_or_full,
        linear=OlmoDelta(),
        full=Attention(bias="attention_bias|=0", out_bias="attention_bias|=0", norm="replicated"),
    ),
    norms=2,
)


def deci_attention(keys: Keys, layer: int) -> str:
    block = keys["block_configs"][layer]["attention"]
    if block.get("no_op"):
        return "none"
    return "linear" if block.get("replace_with_linear") else "attention"


def deci_group(keys: Keys, layer: int) -> int:
    """KV heads of a layer: the heads share them in groups of a size of its own."""
    return keys.heads // int(keys["block_configs"][layer]["attention"]["n_heads_in_group"])


def deci_width(keys: Keys, layer: int) -> int:
    block = keys["block_configs"][layer]["ffn"]
    if block.get("no_op"):
        return 0
    if block.get("intermediate_size"):
        return int(block["intermediate_size"])
    width = int(2 * float(block["ffn_mult"]) * keys.hidden / 3)
    return width if width % 256 == 0 else width + 256 - width % 256


DECI: Final = Decoder(
    by(
        deci_attention,
        attention=Several(
            (Attention(bias="attention_bias|=0", out_bias="attention_bias|=0", kv_heads=deci_group), Norms(1))
        ),
        none=Nothing(),
        linear=Several((Linear("self_attn", "hidden_size", "hidden_size"), Norms(1))),
    ),
    GatedMLP(width=deci_width, bias="mlp_bias|=0"),
    norms=lambda keys, layer: 0 if keys["block_configs"][layer]["ffn"].get("no_op") else 1,
    varies=same_layer,
)


# Gemma 3n and 4: layers at the end reuse keys and values; each layer may have an input of its own


def _shares_kv(keys: Keys, layer: int) -> bool:
    shared = int(keys.get("num_kv_shared_layers", 0) or 0)
    return shared > 0 and layer >= keys.layers - shared


def per_layer_value(name: str) -> Any:
    """A figure that single layers override (``per_layer_config``)."""

    def find(keys: Keys, layer: int) -> int:
        value = None
        for index, change in (keys.get("per_layer_config") or {}).items():
            if int(index) == layer:
                value = change.get(name)
        return int(value if value is not None else keys.kv_heads if "key_value" in name else keys.head_dim)

    return find


def _layer_input(keys: Keys, layer: int = 0) -> int:
    del layer
    return int(keys.get("hidden_size_per_layer_input", 0) or 0)


def padded(rows: Any) -> Any:
    """Rows of an embedding, padded to a multiple of 64."""
    return lambda keys, layer: -(-int(rows(keys)) // 64) * 64


LAYER_INPUTS: Final = Several(
    (
        Vector(
            "embed_tokens_per_layer",
            (
                padded(lambda keys: keys.get("vocab_size_per_layer_input") or keys.vocab),
                lambda keys, layer: keys.layers * _layer_input(keys),
            ),
            sharded=True,
        ),
        Linear(
            "per_layer_model_projection",
            "hidden_size",
            lambda keys, layer: keys.layers * _layer_input(keys),
            split="column",
        ),
        Vector("per_layer_projection_norm", (_layer_input,)),
    )
)
LAYER_INPUT: Final = Several(
    (
        Linear("per_layer_input_gate", "hidden_size", _layer_input),
        Linear("per_layer_projection", _layer_input, "hidden_size"),
        Norms(lambda keys, layer: 1 if _layer_input(keys) else 0),
    )
)
GEMMA4: Final = Decoder(
    Attention(
        bias="attention_bias|=0",
        out_bias="attention_bias|=0",
        norm="head",
        head_dim=per_layer_value("head_dim"),
        kv_heads=per_layer_value("num_key_value_heads"),
        shared_kv=_shares_kv,
    ),
    GatedMLP(
        width=lambda keys, layer: (
            int(keys["intermediate_size"]) * (2 if keys.get("use_double_wide_mlp") and _shares_kv(keys, layer) else 1)
        )
    ),
    norms=4,
    tie_default=True,
    extra=Several(
        (
            LAYER_INPUT,
            by(
                lambda keys, layer: "moe" if keys.get("enable_moe_block") else "none",
                moe=Several(
                    (
                        Vector("router.scale", ("hidden_size",)),
                        Vector("router.per_expert_scale", ("num_experts",)),
                        Linear("router.proj", "hidden_size", "num_experts", quantized=False),
                        RoutedExperts("experts", "num_experts", "moe_intermediate_size"),
                        Norms(3),
                    )
                ),
                none=Nothing(),
            ),
        )
    ),
    before=LAYER_INPUTS,
    varies=same_layer,
)
GEMMA3N: Final = Decoder(
    Attention(
        bias="attention_bias|=0",
        out_bias="attention_bias|=0",
        norm="head",
        shared_kv=_shares_kv,
    ),
    GatedMLP(width=lambda keys, layer: _at(keys["intermediate_size"], layer)),
    norms=4,
    tie="always",
    extra=Several(
        (
            LAYER_INPUT,
            Vector("altup.correct_output_scale", ("hidden_size",), itemsize=FLOAT32),
            Vector(
                "altup",
                (
                    lambda keys, layer: (
                        keys["altup_num_inputs"] ** 2
                        + keys["altup_num_inputs"] ** 3
                        + (keys["altup_num_inputs"] + 1) * keys.hidden
                    ),
                ),
            ),
            Linear("laurel.linear_left", "hidden_size", "laurel_rank", split="column"),
            Linear("laurel.linear_right", "laurel_rank", "hidden_size", split="row"),
            Norms(1),
        )
    ),
    before=Several(
        (
            LAYER_INPUTS,
            Vector(
                "altup_projections",
                (lambda keys, layer: 2 * (keys["altup_num_inputs"] - 1), "hidden_size", "hidden_size"),
                sharded=True,
            ),
        )
    ),
    varies=same_layer,
)


def _at(value: Any, layer: int) -> int:
    return int(value[layer]) if isinstance(value, list) else int(value)


EMBEDDING_GEMMA2: Final = Decoder(
    Attention(
        bias="attention_bias|=0",
        out_bias="attention_bias|=0",
        norm="head",
        head_dim=per_layer_value("head_dim"),
        kv_heads=per_layer_value("num_key_value_heads"),
    ),
    norms=4,
    head=False,
    extra=LAYER_INPUT,
    before=Several(
        (
            Linear(
                "per_layer_model_projection",
                "hidden_size",
                lambda keys, layer: keys.layers * _layer_input(keys),
                split="column",
            ),
            Vector("per_layer_projection_norm", (_layer_input,)),
        )
    ),
    varies=same_layer,
)


def _zamba_hybrids(keys: Keys) -> list[int]:
    kinds = keys["layers_block_type"]
    return [index for index, kind in enumerate(kinds) if kind == "hybrid"]


ZAMBA_MAMBA: Final = Mamba2(
    name="mamba",
    inner=lambda keys, layer: int(keys["mamba_expand"] * keys.hidden),
    heads="n_mamba_heads",
    groups="mamba_ngroups",
    state="mamba_d_state",
    conv="mamba_d_conv",
    conv_bias="use_conv_bias|=1",
    bias="add_bias_linear|=0",
)


ZAMBA2: Final = Decoder(
    by(
        lambda keys, layer: "hybrid" if keys["layers_block_type"][layer] == "hybrid" else "mamba",
        mamba=ZAMBA_MAMBA,
        hybrid=Several((ZAMBA_MAMBA, Linear("linear", "hidden_size", "hidden_size"))),
    ),
    Nothing(),
    norms=1,
    tie_default=True,
    before=ZambaShared(),
)


# --------------------------------------------------------------------------------------------------------------------
# DeepSeek V4, HY V4, Inkling, Kimi


def _hyper_connections(keys: Keys, layer: int = 0) -> int:
    """DeepSeek V4: for attention and MLP each a mixing matrix over the streams, its base, three scales."""
    del layer
    streams = int(keys["hc_mult"])
    return 2 * ((2 + streams) * streams * (streams * keys.hidden + 1) + 3)


DEEPSEEK_V4: Final = Decoder(
    CompressedAttention(),
    Experts(
        "ffn",
        "n_routed_experts",
        "moe_intermediate_size",
        correction=lambda keys, layer: (
            layer >= int(keys.get("num_hash_layers", 0)) and keys.get("topk_method") == "noaux_tc"
        ),
        shared=shared_width,
    ),
    extra=Several(
        (
            Vector(
                "hyper_connections",
                (_hyper_connections,),
                itemsize=FLOAT32,
            ),
            Vector(
                "ffn.gate.tid2eid",
                (
                    lambda keys, layer: (
                        keys.vocab * keys["num_experts_per_tok"] if layer < int(keys.get("num_hash_layers", 0)) else 0
                    ),
                ),
                itemsize=4,
            ),
        )
    ),
    after=Vector(
        "hc_head",
        (lambda keys, layer: keys["hc_mult"] * (keys["hc_mult"] * keys.hidden + 1) + 1,),
        itemsize=FLOAT32,
    ),
    varies=same_layer,
)
HY_V4: Final = Decoder(
    varies=lambda keys, layer: (keys.get("indexer_types") or {layer: 0})[layer],
    mixer=Several(
        (
            LatentAttention(
                indexer=lambda keys, layer: (
                    str(keys["indexer_types"][layer]) == "full" if keys.get("indexer_types") else True
                ),
                gate=1,
            ),
            Vector("self_attn.learnable_sink_param", ("num_attention_heads",), itemsize=FLOAT32, sharded=True),
        )
    ),
    mlp=by(
        mlp_layer_type,
        sparse=Experts(
            count_of="n_routed_experts",
            gate_bytes=FLOAT32,
            correction=1,
            shared=shared_width,
        ),
        dense=GatedMLP(),
    ),
    extra=Vector(
        "hyper_connections",
        (lambda keys, layer: 2 * (2 * keys["hc_mult"] * (keys["hc_mult"] * keys.hidden + 1) + 2),),
        itemsize=FLOAT32,
    ),
    after=Vector(
        "hc_head",
        (lambda keys, layer: keys["hc_mult"] * (keys["hc_mult"] * keys.hidden + 1) + 1,),
        itemsize=FLOAT32,
    ),
)


# --------------------------------------------------------------------------------------------------------------------

DIFFUSION_GEMMA: Final = replace(
    GEMMA4,
    after=Several(
        (
            Vector("self_conditioning.pre_norm", ("hidden_size",)),
            Linear("self_conditioning.gate_proj", "hidden_size", "intermediate_size", quantized=False),
            Linear("self_conditioning.up_proj", "hidden_size", "intermediate_size", quantized=False),
            Linear("self_conditioning.down_proj", "intermediate_size", "hidden_size", quantized=False),
        )
    ),
)
COSMOS3_EDGE: Final = Decoder(
    Attention(name="mixer", bias="attention_bias|=0", out_bias="attention_bias|=0"),
    MLP("mixer", bias="mlp_bias|=0", up="up_proj", down="down_proj"),
)
INKLING: Final = Decoder(
    RelativeAttention(),
    by(mlp_layer_type, sparse=SinkExperts(), dense=GatedMLP()),
    embedding=False,
    tie="never",
    before=Table("embed_tokens", "vocab_size", split=False),
    varies=lambda keys, layer: layer in (keys.get("local_layer_ids") or ()),
)


def kimi_kind(keys: Keys, layer: int) -> str:
    """Layers are numbered from one."""
    listed = (keys.get("linear_attn_config") or {}).get("kda_layers") or ()
    return "delta" if layer + 1 in listed else "latent"


def kimi_sparse(keys: Keys, layer: int) -> str:
    if not keys.get("num_experts"):
        return "dense"
    dense = layer < int(keys.get("first_k_dense_replace", 0)) or layer % int(keys.get("moe_layer_freq", 1)) != 0
    return "dense" if dense else "sparse"


def _latent_width(keys: Keys, layer: int = 0) -> int:
    del layer
    return int(keys.get("routed_expert_hidden_size") or 0)


def _residuals(keys: Keys, layer: int) -> int:
    """Attention residuals: a norm and a projection to one weight, for each of the two parts."""
    del layer
    return 4 * keys.hidden if keys.get("attn_res_block_size") else 0


KIMI_LINEAR: Final = Decoder(
    by(
        kimi_kind,
        delta=KimiDelta(),
        latent=LatentAttention(gate="mla_use_output_gate|=0", gate_fused=True),
    ),
    by(
        kimi_sparse,
        dense=GatedMLP(),
        sparse=Several(
            (
                Experts(
                    "block_sparse_moe",
                    "num_experts",
                    "moe_intermediate_size",
                    inputs=lambda keys, layer: _latent_width(keys) or keys.hidden,
                    correction=1,
                    shared=lambda keys, layer: (
                        int(keys.get("num_shared_experts") or 0) * int(keys["moe_intermediate_size"])
                    ),
                ),
                Linear("block_sparse_moe.routed_expert_down_proj", "hidden_size", _latent_width),
                Linear("block_sparse_moe.routed_expert_up_proj", _latent_width, "hidden_size"),
                Norms(
                    lambda keys, layer: 1 if _latent_width(keys) and keys.get("latent_moe_use_norm") else 0,
                    width=_latent_width,
                ),
            )
        ),
    ),
    extra=Vector("residuals", (_residuals,)),
    after=Vector("output_attn_res", (lambda keys, layer: _residuals(keys, layer) // 2,)),
)


def _pooled_indexer(keys: Keys, layer: int = 0) -> int:
    """GLM 5 Next's indexer compresses several tokens' keys: positions in float32 beside a gate."""
    del layer
    return int(keys["index_head_dim"]) * (2 * int(keys.get("index_kpool") or 1) + keys.hidden)


GLM5_NEXT: Final = Decoder(
    by(
        linear_or_full,
        linear=KimiDelta(),
        full=Several(
            (LatentAttention(indexer=_present("index_topk")), Vector("self_attn.indexer.kpool", (_pooled_indexer,)))
        ),
    ),
    by(mlp_layer_type, sparse=Experts(correction=1, shared=shared_width), dense=GatedMLP()),
    extra=Vector(
        "hyper_connections",
        (lambda keys, layer: _hyper_connections(keys) if keys.get("mhc") else 0,),
        itemsize=FLOAT32,
    ),
)
ALICE_AI: Final = Decoder(
    by(linear_or_full, linear=KimiDelta("linear_attn"), full=Attention(gate=1, norm="head")),
    Experts(
        count_of="num_experts",
        width="moe_intermediate_size",
        correction=1,
        shared="shared_expert_intermediate_size|=0",
        shared_name="shared_expert",
        shared_gate=1,
    ),
    # A norm and a projection to one weight of the MLP's residuals, and of the attention's but for the first layer.
    extra=Vector("residuals", (lambda keys, layer: (4 if layer else 2) * keys.hidden,)),
    after=Vector("residual", (lambda keys, layer: 2 * keys.hidden,)),
    varies=lambda keys, layer: layer == 0,
)
FLINT: Final = Decoder(
    Attention(bias="attention_bias|=0", norm="head"),
    Experts(
        count_of="num_experts",
        width="moe_intermediate_size",
        shared="shared_expert_intermediate_size",
        shared_name="shared_expert",
    ),
    tie="never",
)


def _dory_kind(keys: Keys, layer: int) -> str:
    return "mlp" if layer_type(keys, layer) == "mlp" else "attention"


def _dory_queries(keys: Keys, layer: int = 0) -> int:
    del layer
    return keys.heads * keys.head_dim


# One rank only: the learned scales are whole.
DORY: Final = Decoder(
    by(
        _dory_kind,
        attention=Several(
            (
                Attention("mixer"),
                Linear("mixer.g_proj", "hidden_size", _dory_queries, split="column"),
                Vector("mixer.scales", (lambda keys, layer: 2 * _dory_queries(keys) + keys.hidden,)),
            )
        ),
        mlp=Several(
            (
                GatedMLP("mixer"),
                Vector("mixer.scales", (lambda keys, layer: 2 * int(keys["intermediate_size"]) + keys.hidden,)),
            )
        ),
    ),
    Nothing(),
    norms=0,
    final_norm=0,
    tie="never",
    after=Vector("lm_head.logit_scale", ("vocab_size",)),
)


def _domyn_head(keys: Keys, layer: int) -> int:
    listed = keys["per_layer_config"]
    own = listed[layer] if isinstance(listed, list) else listed.get(str(layer), listed.get(layer)) or {}
    return int(own.get("head_dim") or keys.head_dim)


DOMYN_EDGE: Final = Decoder(
    Several((Attention("attention", head_dim=_domyn_head), Vector("attention.k_norm", (_domyn_head,)))),
    GatedMLP("feedforward"),
    norms=4,
    varies=_domyn_head,
)

_D: Final[Mapping[str, Decoder]] = {
    "AliceAIForCausalLM": ALICE_AI,
    "DomynEdgeForCausalLM": DOMYN_EDGE,
    "DoryForCausalLM": DORY,
    "FlintForCausalLM": FLINT,
    "KimiLinearForCausalLM": KIMI_LINEAR,
    "InklingForCausalLM": INKLING,
    "AXK1ForCausalLM": AXK1,
    "ApertusForCausalLM": APERTUS,
    "ArceeForCausalLM": ARCEE,
    "BloomForCausalLM": BLOOM,
    "Cohere2ForCausalLM": COHERE,
    "Cohere2MoeForCausalLM": COHERE2_MOE,
    "CohereForCausalLM": COHERE,
    "CwmForCausalLM": LLAMA,
    "DbrxForCausalLM": DBRX,
    "DeciLMForCausalLM": DECI,
    "DeepseekForCausalLM": DEEPSEEK,
    "DeepseekV2ForCausalLM": DEEPSEEK,
    "DeepseekV32ForCausalLM": DEEPSEEK,
    "DeepseekV3ForCausalLM": DEEPSEEK,
    "DeepseekV4ForCausalLM": DEEPSEEK_V4,
    "Ernie4_5ForCausalLM": LLAMA,
    "Ernie4_5_MoeForCausalLM": ERNIE_MOE,
    "Exaone4ForCausalLM": EXAONE4,
    "ExaoneForCausalLM": EXAONE,
    "ExaoneMoEForCausalLM": EXAONE_MOE,
    "ExaoneMoeForCausalLM": EXAONE_MOE,
    "FalconForCausalLM": FALCON,
    "FalconH1ForCausalLM": FALCON_H1,
    "FalconMambaForCausalLM": MAMBA,
    "FlexOlmoForCausalLM": FLEX_OLMO,
    "GPT2LMHeadModel": GPT2,
    "GPTBigCodeForCausalLM": GPT_BIGCODE,
    "GPTJForCausalLM": GPTJ,
    "GPTNeoXForCausalLM": GPT_NEOX,
    "Gemma2ForCausalLM": GEMMA2,
    "Gemma2Model": GEMMA2,
    "Gemma3ForCausalLM": GEMMA3,
    "Gemma3nForCausalLM": GEMMA3N,
    "Gemma4ForCausalLM": GEMMA4,
    "GemmaForCausalLM": GEMMA,
    "Glm4ForCausalLM": GLM4,
    "Glm4MoeForCausalLM": GLM4_MOE,
    "GlmForCausalLM": GLM,
    "Glm5NextForCausalLM": GLM5_NEXT,
    "GlmMoeDsaForCausalLM": DEEPSEEK,
    "GptOssForCausalLM": GPT_OSS,
    "GraniteForCausalLM": GRANITE,
    "GraniteMoeForCausalLM": GRANITE_MOE,
    "GraniteMoeHybridForCausalLM": GRANITE_HYBRID,
    "GraniteMoeSWAForCausalLM": GRANITE_MOE,
    "GraniteMoeSharedForCausalLM": GRANITE_MOE,
    "GraniteSWAForCausalLM": GRANITE,
    "HYV4ForCausalLM": HY_V4,
    "HrmTextForCausalLM": HRM_TEXT,
    "HyperCLOVAXForCausalLM": HYPERCLOVAX,
    "IQuestCoderForCausalLM": LLAMA,
    "InternLM3ForCausalLM": LLAMA,
    "Jais2ForCausalLM": JAIS2,
    "JambaForCausalLM": JAMBA,
    "LLaMAForCausalLM": LLAMA,
    "LagunaForCausalLM": LAGUNA,
    "Lfm2ForCausalLM": LFM2,
    "Llama4ForCausalLM": LLAMA4,
    "LlamaForCausalLM": LLAMA,
    "LlamaModel": LLAMA,
    "Mamba2ForCausalLM": MAMBA2,
    "MambaForCausalLM": MAMBA,
    "MellumForCausalLM": MELLUM,
    "MiMoForCausalLM": QWEN2,
    "MiniCPM3ForCausalLM": MINICPM3,
    "MiniMaxM2ForCausalLM": MINIMAX_M2,
    "Ministral3ForCausalLM": MISTRAL,
    "MistralForCausalLM": MISTRAL,
    "MistralModel": LLAMA,
    "MixtralForCausalLM": MIXTRAL,
    "MuseGlimmerForCausalLM": MUSE_GLIMMER,
    "NemotronForCausalLM": NEMOTRON,
    "NemotronHForCausalLM": NEMOTRON_H,
    "NemotronHPuzzleForCausalLM": NEMOTRON_H,
    "OPTForCausalLM": OPT,
    "Olmo2ForCausalLM": OLMO2,
    "Olmo3ForCausalLM": OLMO2,
    "OlmoForCausalLM": OLMO,
    "OlmoHybridForCausalLM": OLMO_HYBRID,
    "OlmoeForCausalLM": OLMOE,
    "Phi3ForCausalLM": PHI3,
    "PhiForCausalLM": PHI,
    "Qwen2ForCausalLM": QWEN2,
    "Qwen2Model": QWEN2,
    "Qwen2MoeForCausalLM": QWEN2_MOE,
    "Qwen3ForCausalLM": QWEN3,
    "Qwen3MoeForCausalLM": QWEN3_MOE,
    "Qwen3NextForCausalLM": QWEN3_NEXT,
    "Qwen3_5ForCausalLM": QWEN3_5,
    "Qwen3_5MoeForCausalLM": QWEN3_5,
    "RWForCausalLM": FALCON,
    "SeedOssForCausalLM": SEED_OSS,
    "SmolLM3ForCausalLM": LLAMA,
    "StableLMEpochForCausalLM": STABLELM,
    "StableLmForCausalLM": STABLELM,
    "Starcoder2ForCausalLM": STARCODER2,
    "TeleChat3ForCausalLM": LLAMA,
    "VaultGemmaForCausalLM": VAULTGEMMA,
    "Zamba2ForCausalLM": ZAMBA2,
}

FAMILIES: Final[dict[str, Family]] = {name: Family(decoder) for name, decoder in _D.items()}

__all__ = ["FAMILIES", "Block"]
