"""Directories and configuration files: what is read, what is refused, and the bytes of the weight files."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvgate.models.local import ModelError, directory_checkpoint_bytes, parse_object, read_object
from kvgate.models.resolve import load_model, model_from_mapping

CONFIG = {"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 2}


def write(directory: Path, name: str, data: object) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / name
    path.write_bytes(data if isinstance(data, bytes) else json.dumps(data).encode())
    return path


def safetensors(tensor_bytes: int) -> bytes:
    header = json.dumps({"w": {"dtype": "U8", "shape": [tensor_bytes], "data_offsets": [0, tensor_bytes]}}).encode()
    return len(header).to_bytes(8, "little") + header + bytes(tensor_bytes)


# --- JSON -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "c.json:1:1: not JSON: expecting value"),
        (b'{\n "a": 1,\n}', "c.json:3:1: not JSON: expecting property name enclosed in double quotes"),
        (b'{"a": }', "c.json:1:7: not JSON: expecting value"),
        (b"[]", "c.json:1:1: an object expected, got a list"),
        (b'"x"', "c.json:1:1: an object expected, got a string"),
        (b"null", "c.json:1:1: an object expected, got null"),
        (b"3", "c.json:1:1: an object expected, got a number"),
        (b'{"a": 1,\n "b": {"a": 1, "c": 2,\n  "c": 3}}', 'c.json:3:3: the key "c" stands twice'),
        (b'{"x": ["a", "a"], "x": 1}', 'c.json:1:19: the key "x" stands twice'),
        (b'{"a": "NaN",\n "b": NaN}', "c.json:2:7: NaN is no value"),
        (b'{\n"a": "\xff"}', "c.json:2: not UTF-8 text"),
        (b'{"a": ' + b"[" * 5000 + b"]" * 5000 + b"}", "c.json: nested more than 64 levels deep"),
        (b'{"a": ' + b"[" * 70 + b"]" * 70 + b"}", "c.json: nested more than 64 levels deep"),
        (b'{"a": ' + b"9" * 5000 + b"}", "c.json: not JSON: exceeds the limit"),
    ],
)
def test_hostile_json_gives_one_line(data: bytes, message: str) -> None:
    with pytest.raises(ModelError) as caught:
        parse_object(data, "c.json")
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_infinity_is_accepted_because_published_configurations_have_it() -> None:
    assert parse_object(b'{"time_step_limit": [0.0, Infinity]}', "c.json") == {"time_step_limit": [0.0, float("inf")]}


def test_byte_order_mark_is_dropped() -> None:
    assert parse_object(b'\xef\xbb\xbf{"a": 1}', "c.json") == {"a": 1}


@given(st.binary(max_size=200) | st.text(alphabet='{}[]",:\\ntrue1NaN -.eE\n', max_size=60).map(str.encode))
def test_any_bytes_give_an_object_or_a_model_error(data: bytes) -> None:
    try:
        value = parse_object(data, "c.json")
    except ModelError as error:
        message = str(error)
    else:
        message = "c.json"
        assert isinstance(value, dict)
    assert message.startswith("c.json")


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(st.text(max_size=8), _json, max_size=5))
def test_valid_objects_round_trip(value: dict[str, object]) -> None:
    assert parse_object(json.dumps(value).encode(), "c.json") == value


def test_size_is_bounded(tmp_path: Path) -> None:
    path = write(tmp_path, "config.json", b"{" + b" " * 100 + b"}")
    with pytest.raises(ModelError, match="larger than"):
        read_object(path, limit_bytes=50)
    assert read_object(path, limit_bytes=102) == {}


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "config.json")
    with pytest.raises(ModelError, match=r"config\.json: no regular file"):
        load_model(tmp_path)


# --- directories ------------------------------------------------------------------------------------------------------


def test_directory_with_the_files_beside_it(tmp_path: Path) -> None:
    write(tmp_path, "config.json", CONFIG)
    write(tmp_path, "hf_quant_config.json", {"quantization": {"quant_algo": "NVFP4"}})
    write(tmp_path, "preprocessor_config.json", {"size": 896})
    write(tmp_path, "sentence_bert_config.json", [1])  # not an object: not kept
    write(tmp_path, "tokenizer.json", {"big": True})  # not read
    model = load_model(tmp_path)
    assert (model.id, model.source, model.config) == (str(tmp_path), "local", CONFIG)
    assert model.files == {
        "hf_quant_config.json": {"quantization": {"quant_algo": "NVFP4"}},
        "preprocessor_config.json": {"size": 896},
    }
    assert model.checkpoint_bytes is None
    assert load_model(tmp_path / "config.json") == model


def test_a_configuration_under_another_name_stands_alone(tmp_path: Path) -> None:
    write(tmp_path, "hf_quant_config.json", {"a": 1})
    model = load_model(write(tmp_path, "llama.json", CONFIG))
    assert (model.config, model.files, model.checkpoint_bytes) == (CONFIG, {}, None)


def test_a_broken_file_beside_it_is_an_error(tmp_path: Path) -> None:
    write(tmp_path, "config.json", CONFIG)
    write(tmp_path, "hf_quant_config.json", b"{")
    with pytest.raises(ModelError, match=r"hf_quant_config.json:1:2: not JSON"):
        load_model(tmp_path)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (None, "has no config.json"),
        ("adapter_config.json", "holds a LoRA adapter"),
        ("model-Q4_K_M.gguf", "holds GGUF files only"),
    ],
)
def test_directories_without_a_configuration_say_what_they_hold(tmp_path: Path, name: str | None, message: str) -> None:
    if name:
        write(tmp_path, name, {})
    with pytest.raises(ModelError, match=message):
        load_model(tmp_path)


def test_missing_places_and_gguf_files(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"nowhere: no such file or directory"):
        load_model(tmp_path / "nowhere")
    with pytest.raises(ModelError, match="a GGUF file"):
        load_model(write(tmp_path, "m.gguf", b"GGUF"))
    with pytest.raises(ModelError, match=r"cannot be read|no such file"):
        load_model("a\0b")
    write(tmp_path, "config.json", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 3\n")
    with pytest.raises(ModelError, match="a Git LFS pointer"):
        load_model(tmp_path)


def test_mapping() -> None:
    model = model_from_mapping(CONFIG)
    assert (model.id, model.source, model.config) == (None, "mapping", CONFIG)


# --- bytes of the weight files ----------------------------------------------------------------------------------------


def test_a_single_safetensors_file_counts_without_its_header(tmp_path: Path) -> None:
    write(tmp_path, "model.safetensors", safetensors(1000))
    assert directory_checkpoint_bytes(tmp_path) == (1000, "size of model.safetensors")


def test_an_index_counts_the_files_it_names(tmp_path: Path) -> None:
    index = {"metadata": {"total_size": 5}, "weight_map": {"a": "m-1.safetensors", "b": "m-2.safetensors"}}
    write(tmp_path, "model.safetensors.index.json", index)
    assert directory_checkpoint_bytes(tmp_path) == (5, "total_size of model.safetensors.index.json")
    write(tmp_path, "m-1.safetensors", safetensors(700))
    assert directory_checkpoint_bytes(tmp_path) == (5, "total_size of model.safetensors.index.json")
    write(tmp_path, "m-2.safetensors", safetensors(300))
    write(tmp_path, "consolidated.safetensors", safetensors(1000))  # the same weights once more, not in the index
    assert directory_checkpoint_bytes(tmp_path) == (1000, "2 files of model.safetensors.index.json")


def test_lfs_pointers_count_as_the_file_they_stand_for(tmp_path: Path) -> None:
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:abc\nsize 16060556376\n"
    write(tmp_path, "model.safetensors", pointer)
    assert directory_checkpoint_bytes(tmp_path) == (16060556376, "size of model.safetensors")


def test_pytorch_files_and_duplicates_of_the_weights(tmp_path: Path) -> None:
    write(tmp_path, "pytorch_model-00001-of-00002.bin", bytes(10))
    write(tmp_path, "pytorch_model-00002-of-00002.bin", bytes(20))
    write(tmp_path, "training_args.bin", bytes(5))
    assert directory_checkpoint_bytes(tmp_path) == (30, "size of 2 files (pytorch_model*.bin)")
    write(tmp_path, "consolidated.safetensors", safetensors(64))
    write(tmp_path, "model.safetensors", safetensors(64))
    assert directory_checkpoint_bytes(tmp_path) == (64, "size of model.safetensors")


@pytest.mark.parametrize(
    "data",
    [b"", b"1234567", (1 << 62).to_bytes(8, "little") + b"{}", (100).to_bytes(8, "little") + b"{}"],
)
def test_broken_safetensors_headers_are_not_counted(tmp_path: Path, data: bytes) -> None:
    write(tmp_path, "model.safetensors", data)
    assert directory_checkpoint_bytes(tmp_path) == (None, None)


@pytest.mark.parametrize("total", [True, "12", -1, None, 1 << 61, [1]])
def test_odd_indexes_are_no_figure(tmp_path: Path, total: object) -> None:
    index = {"metadata": {"total_size": total}, "weight_map": {"a": "../../secret.safetensors", "b": 3}}
    write(tmp_path, "model.safetensors.index.json", index)
    assert directory_checkpoint_bytes(tmp_path) == (None, None)
