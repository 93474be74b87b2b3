"""Texts of values."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvgate.engine.secrets import MASK, find_secrets, is_secret, mask_secrets
from kvgate.engine.values import (
    ValueRefusedError,
    read_boolean,
    read_dotted_value,
    read_human_int,
    read_human_int_or_auto,
    read_json,
    read_json_object,
    read_json_object_or_text,
    read_pairs,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("4096", 4096),
        (" 4096 ", 4096),
        ("-1", -1),
        ("1k", 1000),
        ("1K", 1024),
        ("25.6k", 25600),
        ("2M", 2 * 2**20),
        ("2m", 2_000_000),
        ("1.5g", 1_500_000_000),
        ("1G", 2**30),
        ("1T", 2**40),
        ("1t", 10**12),
    ],
)
def test_human_integers(text: str, expected: int) -> None:
    assert read_human_int(text) == expected


@pytest.mark.parametrize("text", ["1.5M", "1.5", "", "k", "1kk", "8 k", "1e3", "auto", "9" * 400 + "k", "9" * 5000])
def test_no_human_integers(text: str) -> None:
    with pytest.raises(ValueRefusedError):
        read_human_int(text)


@given(st.integers(0, 10**9), st.sampled_from("kmgtKMGT"))
def test_suffixes_multiply(number: int, suffix: str) -> None:
    factor = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}[suffix]
    # Lower-case suffixes go through a double in vLLM, exact up to 2**53.
    exact = number * factor
    assert abs(read_human_int(f"{number}{suffix}") - exact) <= exact >> 52


def test_auto() -> None:
    assert [read_human_int_or_auto(text) for text in ("auto", "Auto", "-1", "8k")] == [-1, -1, -1, 8000]


def test_json_values() -> None:
    assert read_json('["*"]') == ["*"]
    assert read_json("NaN") == "NaN"
    assert read_json_object('{"a": 80m, "b": "80m", "c": 1K}') == {"a": 80_000_000, "b": "80m", "c": 1024}
    with pytest.raises(ValueRefusedError):
        read_json_object('{"a": 80m}', numbers=False)
    with pytest.raises(ValueRefusedError):
        read_json_object("[1]")
    assert read_json_object_or_text(' {"a": 1}\n') == {"a": 1}
    assert read_json_object_or_text("fp8") == "fp8"
    with pytest.raises(ValueRefusedError):
        read_json_object_or_text("{a}")


def test_pairs_and_booleans() -> None:
    assert read_pairs("image=2, Video = 1") == {"image": 2, "video": 1}
    for text in ("image", "image=x", "a=1=2", ""):
        with pytest.raises(ValueRefusedError):
            read_pairs(text)
    assert [read_boolean(text) for text in ("true", "FALSE")] == [True, False]
    with pytest.raises(ValueRefusedError):
        read_boolean("1")


@pytest.mark.parametrize(
    ("text", "expected"), [("3", 3), ("true", True), ("mtp", "mtp"), ("80g", 80 * 10**9), ("[1]", [1])]
)
def test_dotted_values(text: str, expected: Any) -> None:
    assert read_dotted_value(text) == expected


def test_dotted_values_before_numbers_had_suffixes() -> None:
    assert read_dotted_value("80g", numbers=False) == "80g"


@pytest.mark.parametrize(
    "name",
    ["api_key", "--api-key", "HF_TOKEN", "OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY", "password", "authToken", "key",
     "ssl_keyfile_password", "client_secret", "S3_SECRET_ACCESS_KEY", "api_keys", "HUGGING_FACE_HUB_TOKEN"],
)  # fmt: skip
def test_secret_names(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize(
    "name",
    ["max_num_batched_tokens", "tokenizer", "tokenizer_mode", "ssl_keyfile", "num_speculative_tokens", "monkey",
     "long_prefill_token_threshold", "max_tokens", "disable_log_requests", "tokens_only", "model"],
)  # fmt: skip
def test_names_that_are_no_secrets(name: str) -> None:
    assert not is_secret(name)


def test_the_path_of_a_key_is_no_secret() -> None:
    words = ["--ssl-keyfile", "/tls/tls.key", "--ssl-keyfile-p", "hunter22", "--ssl_keyfile=/tls/b.key"]
    assert find_secrets(words, []) == {"hunter22"}


def test_passwords_in_addresses_end_with_them() -> None:
    address = '{"endpoint":"tcp://*:5557","topic":"kv@pod-1@org/m","store":"redis://u:hunter22@cache:6379"}'
    assert find_secrets([address], []) == {"hunter22"}


def test_secrets_are_masked_at_any_depth() -> None:
    value = {"a": [{"token": "x", "n": 1}], "api_key": "y", "password": "", "secret": 5}
    assert mask_secrets(value) == {"a": [{"token": MASK, "n": 1}], "api_key": MASK, "password": "", "secret": 5}
