"""Container images: version, trust, pin, backend."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvgate.engine.images import parse_image, release_named

DIGEST = "sha256:" + "ab" * 32


@pytest.mark.parametrize(
    ("text", "version", "official", "backend"),
    [
        ("vllm/vllm-openai:v0.11.0", "0.11.0", True, "cuda"),
        ("docker.io/vllm/vllm-openai:v0.10.0", "0.10.0", True, "cuda"),
        ("docker:vllm/vllm-openai:v0.10.0", "0.10.0", True, "cuda"),
        ("docker://vllm/vllm-openai:v0.10.0", "0.10.0", True, "cuda"),
        ("mirror.gcr.io/vllm/vllm-openai:v0.9.2", "0.9.2", True, "cuda"),
        ("123456789012.dkr.ecr.eu-west-1.amazonaws.com/docker-hub/vllm/vllm-openai:v0.8.5", "0.8.5", True, "cuda"),
        ("localhost:5000/vllm/vllm-openai:v0.8.5.post1", "0.8.5.post1", True, "cuda"),
        ("vllm/vllm-openai:v0.9.0.1", "0.9.0.1", True, "cuda"),
        ("vllm/vllm-openai:v0.11.0-x86_64", "0.11.0", True, "cuda"),
        ("vllm/vllm-openai:v0.19.1-x86_64-cu130", "0.19.1", True, "cuda"),
        ("vllm/vllm-openai:v0.20.1-cu129-ubuntu2404", "0.20.1", True, "cuda"),
        ("vllm/vllm-openai:v0.11.1rc3-aarch64", "0.11.1rc3", True, "cuda"),
        (f"vllm/vllm-openai:v0.11.0@{DIGEST}", "0.11.0", True, "cuda"),
        ("vllm/vllm-openai:v0.6.3.post1-rocm", "0.6.3.post1", True, "rocm"),
        ("vllm/vllm-openai-rocm:v0.14.0", "0.14.0", True, "rocm"),
        ("vllm/vllm-openai-cpu:v0.17.0", "0.17.0", True, "cpu"),
        ("public.ecr.aws/q9t5s3a7/vllm-cpu-release-repo:v0.9.0", "0.9.0", True, "cpu"),
        ("763104351884.dkr.ecr.us-east-1.amazonaws.com/vllm:0.11.0-gpu-py312-cu128", "0.11.0", True, "cuda"),
        ("public.ecr.aws/deep-learning-containers/vllm:0.9.2-gpu-py312", "0.9.2", True, "cuda"),
        ("vllm/vllm-openai:gemma4-cu130", None, True, "cuda"),
        ("vllm/vllm-tpu:nightly", None, True, "tpu"),
        ("ghcr.io/team/fast-vllm-runtime:0.1.1", None, False, None),  # before vLLM had an image: its own number
        ("rocm/vllm:rocm6.4.1_vllm_0.9.1_20250715", "0.9.1", False, "rocm"),
        ("nvcr.io/nvidia/vllm:25.08-py3", None, False, "cuda"),
        ("nvcr.io/nvidia/vllm:25.09-py3", "0.10.1.1", False, "cuda"),
        ("nvcr.io/nvidia/vllm:25.12.post1-py3", None, False, "cuda"),
        ("nvcr.io/nvidia/vllm:26.01-py3", "0.13.0", False, "cuda"),
        ("nvcr.io/nvidia/ai-dynamo/vllm-runtime:1.2.0", "0.20.1", False, "cuda"),
        ("nvcr.io/nvidia/ai-dynamo/vllm-runtime:1.2.0-cuda13", "0.20.1", False, "cuda"),
        ("nvcr.io/nvidia/ai-dynamo/vllm-runtime:1.2.0-deepseek-v4-dev.3", None, False, "cuda"),
        ("registry.example.com/team/vllm-runtime:1.2.0", None, False, "cuda"),
        ("registry.redhat.io/rhaiis/vllm-cuda-rhel9:3.2.1", None, False, "cuda"),
        ("ghcr.io/llm-d/llm-d-cuda:v0.9.0", None, False, "cuda"),
        ("nvcr.io/nvidia/ai-dynamo/vllm-runtime:0.3.2", None, False, "cuda"),
        ("lmcache/vllm-openai:v0.3.9", None, False, "cuda"),
        ("ghcr.io/someone/vllm-cpu:v0.11.0-cfc13f2", "0.11.0", False, "cpu"),
        ("registry.example.com/team/vllm-openai:v0.6.2-distributed", "0.6.2", False, None),
        ("local/vllm-openai-secrets:v0.17.0", "0.17.0", False, None),
        ("team/llm-server:vllm-0.9.1-2", "0.9.1", False, None),
        ("opea/vllm-gaudi", None, False, "hpu"),
        ("team/vllm-runtime-x:1.2.0", None, False, None),
        ("vllm-openai", None, False, None),
    ],
)  # fmt: skip
def test_vllm_images(text: str, version: str | None, official: bool, backend: str | None) -> None:
    image = parse_image(text)
    assert (image.vllm_version, image.official, image.backend, image.is_vllm) == (version, official, backend, True)


@pytest.mark.parametrize(
    "text",
    ["postgres:16", "nginx", "ghcr.io/team/vllm-router:v0.1.0", "prom/vllm-exporter:1", "rayproject/ray-llm:2.52.0",
     "ghcr.io/llm-d/llm-d-inference-scheduler:v0.3", "ghcr.io/llm-d/llm-d-inference-sim:v0.4", "vllm-proxy:latest",
     "${VLLM_IMAGE}", "{{ .Values.image }}", "$(vllm-image)", "", "<your-image>"],
)  # fmt: skip
def test_images_that_are_no_engine(text: str) -> None:
    image = parse_image(text)
    assert not image.is_vllm
    assert image.vllm_version is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("vllm/vllm-openai", "no tag"),
        ("vllm/vllm-openai:latest", '"latest" moves'),
        ("vllm/vllm-openai:nightly", '"nightly" moves'),
        ("vllm/vllm-openai:latest-cu130", '"latest-cu130" moves'),
        ("vllm/vllm-openai:cu130-nightly", '"cu130-nightly" moves'),
        ("team/vllm:main", '"main" moves'),
        ("vllm/vllm-openai:${TAG}", "the tag is not resolved"),
        ("vllm/vllm-openai:{{ .Values.tag }}", "the tag is not resolved"),
        ("${IMAGE}", "the image is not resolved"),
    ],
)
def test_references_that_move(text: str, reason: str) -> None:
    image = parse_image(text)
    assert not image.pinned
    assert image.mutable_reason is not None
    assert reason in image.mutable_reason


@pytest.mark.parametrize(
    "text",
    ["vllm/vllm-openai:v0.11.0", f"vllm/vllm-openai@{DIGEST}", f"vllm/vllm-openai:latest@{DIGEST}",
     "vllm/vllm-openai:nightly-0123456789abcdef0123456789abcdef01234567", "team/vllm:v0.9.1-dev", "team/vllm:build-17"],
)  # fmt: skip
def test_references_that_stay(text: str) -> None:
    image = parse_image(text)
    assert image.pinned
    assert image.mutable_reason is None


def test_the_parts() -> None:
    image = parse_image(f"registry.example.com:5000/a/b/vllm:v0.9.1@{DIGEST}")
    assert (image.registry, image.repository, image.tag, image.digest) == (
        "registry.example.com:5000",
        "a/b/vllm",
        "v0.9.1",
        DIGEST,
    )
    assert parse_image("vllm/vllm-openai").registry is None
    unresolved = parse_image("vllm/vllm-openai:${TAG}")
    assert (unresolved.repository, unresolved.is_vllm, unresolved.official) == ("vllm/vllm-openai", True, True)


def test_entrypoints() -> None:
    assert parse_image("vllm/vllm-openai:v0.11.0").entrypoint == ("python3", "-m", "vllm.entrypoints.openai.api_server")
    assert parse_image("vllm/vllm-openai:v0.14.0").entrypoint is None
    assert parse_image("vllm/vllm-openai:v0.13.0").entrypoint == ("python3", "-m", "vllm.entrypoints.openai.api_server")
    assert parse_image("vllm/vllm-openai:v0.26.0").entrypoint == ("vllm", "serve")
    assert parse_image("vllm/vllm-openai:latest").entrypoint == ("vllm", "serve")
    assert parse_image("vllm/vllm-tpu:nightly").entrypoint is None
    assert parse_image("team/vllm:v0.9.1").entrypoint is None


@given(st.text(max_size=40))
def test_any_text_is_an_image(text: str) -> None:
    image = parse_image(text)
    assert image.text == text
    assert image.pinned is (image.mutable_reason is None)
    assert image.is_vllm or image.vllm_version is None


@pytest.mark.parametrize(
    ("text", "declared"),
    [
        ("vllm/vllm-openai:v0.11.0", True),
        ("nvcr.io/nvidia/vllm:26.03-py3", True),
        ("nvcr.io/nvidia/ai-dynamo/vllm-runtime:0.8.1", True),
        ("rocm/vllm:rocm6.4.1_vllm_0.9.1_20250715", False),
        ("registry.example.com/team/vllm-openai:v0.6.2-distributed", False),
    ],
)
def test_a_version_is_declared_by_its_publisher_alone(text: str, declared: bool) -> None:
    image = parse_image(text)
    assert image.vllm_version is not None
    assert image.version_declared is declared


@pytest.mark.parametrize(
    ("text", "release"),
    [
        ("v0.11.2", "0.11.2"),
        ("0.9.1.dev287+g89b1388d8", "0.9.1.dev287+g89b1388d8"),
        ("vllm/vllm-openai:v0.10.0", "0.10.0"),
        ("nvcr.io/nvidia/vllm:26.01-py3 (as in the compose file)", "0.13.0"),
        ("vllm/vllm-openai:latest", None),
        ("newest", None),
        (" ", None),
    ],
)
def test_a_release_is_named_by_its_number_or_by_an_image(text: str, release: str | None) -> None:
    assert release_named(text) == release
