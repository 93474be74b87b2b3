"""Where a model is looked for, in which order, and that nothing outside the tree and the cache is read."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvgate.models.hub import cache_directory
from kvgate.models.resolve import ModelLookup, find_model

COMMIT = "89abcdef0123456789abcdef0123456789abcdef"
OTHER = "11111111111111111111111111111111111111aa"


def put(path: Path, value: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


def config(mark: str) -> dict[str, object]:
    return {"architectures": ["LlamaForCausalLM"], "mark": mark}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    root.mkdir()
    return root


def found(lookup: ModelLookup) -> tuple[str, object]:
    assert lookup.model is not None, lookup.reason
    return lookup.model.source, lookup.model.config.get("mark")


def reason(lookup: ModelLookup) -> str:
    assert lookup.model is None
    assert lookup.reason is not None
    assert "\n" not in lookup.reason
    return lookup.reason


def fake_cache(home: Path, hub_id: str, commit: str, mark: str, reference: str | None = "main") -> Path:
    """The layout that huggingface_hub keeps: blobs, and snapshots that link to them."""
    repository = home / "hub" / ("models--" + hub_id.replace("/", "--"))
    blob = repository / "blobs" / f"blob-{mark}"
    put(blob, config(mark))
    snapshot = repository / "snapshots" / commit
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").symlink_to(os.path.relpath(blob, snapshot))
    if reference:
        (repository / "refs").mkdir(exist_ok=True)
        (repository / "refs" / reference).write_text(commit)
    return snapshot


# --- order ------------------------------------------------------------------------------------------------------------


def test_each_source_hides_the_later_ones(tree: Path, tmp_path: Path) -> None:
    hub_id = "Qwen/Qwen3-0.6B"
    environ = {"HF_HOME": str(tmp_path / "hf")}

    def look(mapping: dict[str, str] | None = None) -> tuple[str, object]:
        return found(find_model(hub_id, root=tree, mapping=mapping or {}, environ=environ))

    assert look() == ("bundled", None)
    fake_cache(tmp_path / "hf", hub_id, COMMIT, "cached")
    assert look() == ("cache", "cached")
    put(tree / "Qwen" / "Qwen3-0.6B" / "config.json", config("tree"))
    assert look() == ("local", "tree")
    put(tree / ".kvgate" / "models" / "Qwen__Qwen3-0.6B" / "config.json", config("locked"))
    assert look() == ("lock", "locked")
    put(tree / "elsewhere" / "config.json", config("mapped"))
    assert look({hub_id: "elsewhere"}) == ("local", "mapped")


def test_an_unknown_model_says_what_to_do(tree: Path) -> None:
    text = reason(find_model("acme/none", root=tree))
    assert text == (
        "acme/none is neither locked, local, cached nor bundled. "
        "Run `kvgate lock --online` to keep its config.json in the tree."
    )


# --- mapping ----------------------------------------------------------------------------------------------------------


def test_paths_are_mapped_to_ids_and_directories(tree: Path) -> None:
    mapping = {"/models/llama": "meta-llama/Llama-3.1-8B-Instruct", "s3://bucket/qwen/": "models/qwen"}
    lookup = find_model("/models/llama/", root=tree, mapping=mapping)
    assert lookup.model is not None
    assert (lookup.model.id, lookup.model.source) == ("meta-llama/Llama-3.1-8B-Instruct", "bundled")
    put(tree / "models" / "qwen" / "config.json", config("q"))
    assert found(find_model("s3://bucket/qwen", root=tree, mapping=mapping)) == ("local", "q")


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("acme/none", 'models: maps "/m" to "acme/none": acme/none is neither locked'),
        ("/etc", 'models: maps "/m" to "/etc": "/etc" is a path inside the container'),
        ("../outside", "../outside"),
        ("", "the model is empty"),
    ],
)
def test_a_mapping_to_nothing_says_so(tree: Path, target: str, expected: str) -> None:
    assert expected in reason(find_model("/m", root=tree, mapping={"/m": target}))


# --- the forms of a reference -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        (
            "/models/Qwen3-8B",
            "is a path inside the container: say in kvgate.yaml under models: "
            "which Hub id or directory of the tree it is (Qwen/Qwen3-8B?)",
        ),
        (
            "/model",
            "is a path inside the container: say in kvgate.yaml under models: which Hub id or directory of the ",
        ),
        ("s3://bucket/gpt-oss-20b/", "directory of the tree it is (openai/gpt-oss-20b?)"),
        ("https://huggingface.co/acme", "names a web address"),
        ("/mnt/models", "is a path inside the container"),
        ("~/models/x", "is a path inside the container"),
        ("C:\\models\\x", "is a path inside the container"),
        ("oci://registry.example.com/models/x:1", "names an OCI image"),
        ("s3://bucket/x", "names an S3 bucket"),
        ("gs://bucket/x", "names a Google Cloud Storage bucket"),
        ("pvc://claim/x", "names a volume claim"),
        ("https://example.com/x", "names a web address"),
        ("weird+x://y", "names a weird+x:// address"),
        ("hf://only-a-name", "names no Hub model"),
        ("hf://a/b/c", "names no Hub model"),
        ("unsloth/Qwen3-0.6B-GGUF:Q4_K_M", "is a GGUF model"),
        ("acme/model:Q4_K_M", "is a GGUF model"),
        ("./model-q8_0.gguf", "is a GGUF model"),
        ("${MODEL}", "is a placeholder"),
        ("{{ .Values.model }}", "is a placeholder"),
        ("<model-id>", "is a placeholder"),
        ("", "the model is empty"),
        ("a b/c", '"a b/c" is no directory of the tree with a config.json'),
        ("a/b/c", '"a/b/c" is no directory of the tree with a config.json'),
    ],
)
def test_what_names_no_hub_model_gives_its_reason(tree: Path, reference: str, expected: str) -> None:
    assert expected in reason(find_model(reference, root=tree))


@pytest.mark.parametrize(
    "reference",
    [
        "openai/gpt-oss-20b",
        "OPENAI/GPT-OSS-20B",
        "hf://openai/gpt-oss-20b",
        "hf://openai/gpt-oss-20b:main",
        "hf://openai/gpt-oss-20b@main",
        "HF://openai/gpt-oss-20b/",
        "https://huggingface.co/openai/gpt-oss-20b",
        "https://huggingface.co/openai/gpt-oss-20b/tree/main",
        "/root/.cache/huggingface/hub/models--openai--gpt-oss-20b/snapshots/0123456789abcdef0123456789abcdef01234567",
        "./models/models--openai--gpt-oss-20b/",
    ],
)
def test_hub_references_resolve(tree: Path, reference: str) -> None:
    lookup = find_model(reference, root=tree)
    assert lookup.model is not None
    # total_size of the repository's safetensors index
    assert lookup.model.checkpoint_bytes == 13761264768
    assert lookup.model.config["architectures"] == ["GptOssForCausalLM"]


@given(st.text(max_size=40) | st.text(alphabet="./\\~-_:@ab\0 ", max_size=20))
def test_any_reference_gives_a_model_or_one_line(reference: str) -> None:
    lookup = find_model(reference, root=Path(__file__).parent, mapping={})
    assert (lookup.model is None) == (lookup.reason is not None)
    if lookup.reason:
        assert len(lookup.reason) < 1000


# --- nothing outside the tree -----------------------------------------------------------------------------------------


def test_no_path_leaves_the_tree(tree: Path, tmp_path: Path) -> None:
    put(tmp_path / "secret" / "config.json", config("secret"))
    (tree / "link").symlink_to(tmp_path / "secret")
    (tree / "half").mkdir()
    (tree / "half" / "config.json").symlink_to(tmp_path / "secret" / "config.json")
    absolute = str(tmp_path / "secret")
    assert "leads out of the tree" in reason(find_model("../secret", root=tree))
    assert "leads out of the tree" in reason(find_model("half/../../secret", root=tree))
    assert "path inside the container" in reason(find_model(absolute, root=tree))
    assert "path inside the container" in reason(find_model("/m", root=tree, mapping={"/m": absolute}))
    assert "link that leaves the tree" in reason(find_model("./link", root=tree))
    assert "link that leaves the tree" in reason(find_model("/m", root=tree, mapping={"/m": "link"}))
    assert "half/config.json: a link that leaves" in reason(find_model("./half", root=tree))
    # The answer is the same whether the place outside exists or not.
    assert reason(find_model("../secret", root=tree)) == reason(find_model("../nothing", root=tree)).replace(
        "nothing", "secret"
    )


def test_a_link_within_the_tree_is_followed(tree: Path) -> None:
    put(tree / "real" / "config.json", config("real"))
    (tree / "alias").symlink_to(tree / "real")
    assert found(find_model("./alias", root=tree)) == ("local", "real")


def test_a_lock_that_is_a_link_out_of_the_tree_is_refused(tree: Path, tmp_path: Path) -> None:
    put(tmp_path / "secret" / "config.json", config("secret"))
    (tree / ".kvgate" / "models").mkdir(parents=True)
    (tree / ".kvgate" / "models" / "acme__tiny").symlink_to(tmp_path / "secret")
    assert "a link that leaves the tree" in reason(find_model("acme/tiny", root=tree))


def test_a_link_loop_ends(tree: Path) -> None:
    (tree / "loop").symlink_to(tree / "loop")
    reason(find_model("./loop", root=tree))


# --- lock -------------------------------------------------------------------------------------------------------------


def test_a_lock_is_found_without_regard_to_case_and_by_revision(tree: Path) -> None:
    directory = tree / ".kvgate" / "models" / "Acme__Tiny"
    put(directory / "config.json", config("locked"))
    lock = {"schema": "kvgate.lock/1", "id": "Acme/Tiny", "requested_revision": "v2", "revision": COMMIT}
    put(directory / "lock.json", {**lock, "checkpoint_bytes": 77, "checkpoint_source": "total_size"})
    model = find_model("acme/tiny", root=tree).model
    assert model is not None
    assert (model.source, model.revision, model.checkpoint_bytes, model.checkpoint_source) == (
        "lock",
        COMMIT,
        77,
        "total_size",
    )
    assert find_model("Acme/Tiny", root=tree, revision="v2").model == model.__class__(
        "Acme/Tiny", model.config, "lock", {}, 77, "total_size", COMMIT
    )
    assert find_model("Acme/Tiny", root=tree, revision=COMMIT).model is not None
    assert "neither locked" in reason(find_model("Acme/Tiny", root=tree, revision=OTHER))


def test_a_broken_lock_is_reported_with_its_place(tree: Path) -> None:
    directory = tree / ".kvgate" / "models" / "acme__tiny"
    directory.mkdir(parents=True)
    (directory / "config.json").write_text('{"a": 1,}')
    assert reason(find_model("acme/tiny", root=tree)).startswith(".kvgate/models/acme__tiny/config.json:1:9: not JSON")


# --- Hugging Face cache -----------------------------------------------------------------------------------------------


def test_the_cache_is_read_by_reference_and_commit(tree: Path, tmp_path: Path) -> None:
    home = tmp_path / "hf"
    fake_cache(home, "acme/tiny", COMMIT, "main")
    fake_cache(home, "acme/tiny", OTHER, "v2", reference="v2")
    environ = {"HF_HOME": str(home)}

    def look(revision: str | None) -> ModelLookup:
        return find_model("acme/tiny", root=tree, environ=environ, revision=revision)

    assert found(look(None)) == ("cache", "main")
    model = look(None).model
    assert model is not None
    assert model.revision == COMMIT
    assert found(look("v2")) == ("cache", "v2")
    assert found(look(OTHER)) == ("cache", "v2")
    assert found(find_model("hf://acme/tiny:v2", root=tree, environ=environ)) == ("cache", "v2")
    assert "neither locked" in reason(look("v3"))
    assert "neither locked" in reason(look("../../x"))


def test_a_cache_without_refs_counts_when_it_holds_one_snapshot(tree: Path, tmp_path: Path) -> None:
    environ = {"HF_HOME": str(tmp_path)}
    fake_cache(tmp_path, "acme/tiny", COMMIT, "one", reference=None)
    assert found(find_model("acme/tiny", root=tree, environ=environ)) == ("cache", "one")
    fake_cache(tmp_path, "acme/tiny", OTHER, "two", reference=None)
    assert "neither locked" in reason(find_model("acme/tiny", root=tree, environ=environ))


def test_a_cache_entry_that_links_elsewhere_is_refused(tree: Path, tmp_path: Path) -> None:
    put(tmp_path / "secret.json", config("secret"))
    snapshot = fake_cache(tmp_path, "acme/tiny", COMMIT, "x")
    (snapshot / "config.json").unlink()
    (snapshot / "config.json").symlink_to(tmp_path / "secret.json")
    text = reason(find_model("acme/tiny", root=tree, environ={"HF_HOME": str(tmp_path)}))
    assert text == "acme/tiny (cache)/config.json: a link that leaves models--acme--tiny"


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"HF_HUB_CACHE": "/a", "HF_HOME": "/b"}, "/a"),
        ({"HUGGINGFACE_HUB_CACHE": "/a", "HF_HOME": "/b"}, "/a"),
        ({"HF_HOME": "/b", "XDG_CACHE_HOME": "/c"}, "/b/hub"),
        ({"XDG_CACHE_HOME": "/c", "HOME": "/d"}, "/c/huggingface/hub"),
        ({"HOME": "/d"}, "/d/.cache/huggingface/hub"),
        ({"HF_HOME": "~/hf", "HOME": "/d"}, "/d/hf/hub"),
        ({}, None),
    ],
)
def test_the_cache_lies_where_the_environment_says(environ: dict[str, str], expected: str | None) -> None:
    assert cache_directory(environ) == (Path(expected) if expected else None)
