"""The tables: defaults, variables, replacements, and what must hold of every row."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kvgate.engine.defaults import DYNAMIC, default_of, env_known, env_presence
from kvgate.engine.flags import flag_presence, flags_of_release, lifetime_of
from kvgate.engine.releases import index_of, newest_release, releases
from kvgate.engine.replacements import replacement_of
from kvgate.tables import load_table


@pytest.mark.parametrize(
    ("dest", "version", "expected"),
    [
        ("gpu_memory_utilization", "0.19.1", 0.9),
        ("gpu_memory_utilization", "0.20.0", 0.92),
        ("gpu_memory_utilization", None, 0.92),
        ("tensor_parallel_size", "0.11.0", 1),
        ("swap_space", "0.10.2", 4),
        ("max_num_seqs", "0.6.3.post1", 256),
        ("max_num_seqs", "0.11.0", None),
        ("max_model_len", "0.11.0", None),
        ("kv_cache_dtype", "0.33.0", "auto"),
        ("max_lora_rank", "0.11.0", 16),
        ("port", "0.11.0", 8000),
        ("enable_lora", "0.11.0", False),
        ("enable_prefix_caching", "0.6.0", False),
        ("enable_prefix_caching", "0.11.0", None),
        ("allowed_origins", "0.7.3", ["*"]),
        ("compilation_config", "0.11.0", DYNAMIC),
        ("optimization_level", "0.33.0", 2),
        ("safetensors_prefetch_block_size", "0.33.0", 16 * 2**20),
    ],
)
def test_defaults(dest: str, version: str | None, expected: Any) -> None:
    assert default_of(dest, version) == expected


def test_no_default_without_the_argument() -> None:
    with pytest.raises(KeyError):
        default_of("swap_space", "0.33.0")
    assert repr(DYNAMIC) == "DYNAMIC"


def test_variables() -> None:
    old = env_known("VLLM_USE_V1", "0.11.0")
    assert old is not None
    assert (old.lifetime.first, old.lifetime.last, old.lifetime.gone_in) == ("0.6.4", "0.11.0", "0.11.1")
    assert (old.default, old.present) == (True, "present")
    gone = env_known("VLLM_USE_V1", "0.33.0")
    assert gone is not None
    assert (gone.default, gone.present) == (None, "absent")
    assert env_known("VLLM_NO_SUCH_THING", "0.33.0") is None
    graphs = [env_known("VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS", version) for version in ("0.19.1", "0.20.0")]
    assert [variable and variable.default for variable in graphs] == [False, True]
    assert env_presence("VLLM_USE_V1", "0.34.0") == "uncertain"
    assert env_presence("VLLM_PORT", "0.34.0") == "present"


@pytest.mark.parametrize(
    ("flag", "last", "gone"),
    [
        ("--swap-space", "0.17.1", "0.18.0"),
        ("--rope-scaling", "0.11.0", "0.11.1"),
        ("--guided-decoding-backend", "0.11.2", "0.12.0"),
        ("--task", "0.12.0", "0.13.0"),
        ("--preemption-mode", "0.10.2", "0.11.0"),
        ("--num-scheduler-steps", "0.10.0", "0.10.1"),
        ("--calculate-kv-scales", "0.27.1", "0.28.0"),
        ("--enable-reasoning", "0.9.2", "0.10.0"),
    ],
)
def test_lifetimes(flag: str, last: str, gone: str) -> None:
    life = lifetime_of(flag)
    assert life is not None
    assert (life.last, life.gone_in) == (last, gone)
    assert (flag_presence(flag, last), flag_presence(flag, gone)) == ("present", "absent")


def test_presence_between_and_beyond() -> None:
    assert flag_presence("--swap-space", "0.17.1.post1") == "uncertain"
    assert flag_presence("--port", "0.17.1.post1") == "present"
    assert flag_presence("--port", "99.0") == "present"
    assert flag_presence("--no-such", "99.0") == "uncertain"
    assert flag_presence("--no-such", "0.17.1.post1") == "absent"


@pytest.mark.parametrize(
    ("name", "version", "new", "delete"),
    [
        ("--rope-scaling", "0.33.0", "--hf-overrides", False),
        ("--guided-decoding-backend", "0.11.0", "--structured-outputs-config", False),
        ("--task", "0.13.0", "--runner", False),
        ("--cuda-graph-sizes", "0.13.0", "--cudagraph-capture-sizes", False),
        ("--disable-log-requests", "0.17.0", None, True),
        ("--swap-space", "0.33.0", None, True),
        ("--max-context-len-to-capture", "0.6.4", "--max-seq-len-to-capture", False),
        ("--max-context-len-to-capture", "0.11.0", None, True),
        ("VLLM_ATTENTION_BACKEND", "0.15.0", "--attention-backend", False),
        ("VLLM_USE_V1", None, None, True),
    ],
)
def test_replacements(name: str, version: str | None, new: str | None, delete: bool) -> None:
    found = replacement_of(name, version)
    assert found is not None
    assert (found.new, found.delete) == (new, delete)


def test_a_replacement_that_came_later_is_none() -> None:
    assert replacement_of("--task", "0.10.0") is None
    assert replacement_of("VLLM_ATTENTION_BACKEND", "0.12.0") is None
    assert replacement_of("--port", "0.33.0") is None


def test_every_replacement_is_of_something_known() -> None:
    variables = load_table("engine/env")["env"]
    for name, entries in load_table("engine/replacements")["replacements"].items():
        assert lifetime_of(name) is not None or name in variables, name
        assert all(("new" in entry) is not entry.get("delete", False) for entry in entries), name


def test_every_replacement_exists_where_it_is_offered() -> None:
    for release in releases():
        spellings = flags_of_release(release).spellings
        for name in load_table("engine/replacements")["replacements"]:
            found = replacement_of(name, release)
            assert found is None or found.new is None or found.new in spellings, (name, release)


def test_every_removed_engine_flag_of_the_last_years_has_a_replacement() -> None:
    # What people still have in their manifests: flags that 0.8.5 or later took and the newest release does not.
    known_without = {
        "--use-gpu-for-pooling-score", "--enable-bf16x3-router-gemm", "--logits-processor-pattern",
        "--override-attention-dtype", "--override-neuron-config",
    }  # fmt: skip
    newest = flags_of_release(newest_release()).spellings
    for name in load_table("engine/flags")["flags"]:
        life = lifetime_of(name)
        assert life is not None
        if name not in newest and index_of(life.last) >= index_of("0.8.5"):
            assert (replacement_of(name) is not None) is (name not in known_without), name


def test_runs_are_ordered_and_do_not_overlap() -> None:
    tables = [entry["runs"] for entry in load_table("engine/flags")["flags"].values()]
    tables += list(load_table("engine/env")["env"].values()) + list(load_table("engine/flags")["parser"].values())
    for runs in tables:
        at = -1
        for run in runs:
            assert at < index_of(run["first"]) <= index_of(run["last"])
            at = index_of(run["last"])
    assert load_table("engine/env")["releases"] == load_table("engine/flags")["releases"]


@pytest.mark.parametrize("release", releases())
def test_every_spelling_of_a_release_has_one_meaning(release: str) -> None:
    table = flags_of_release(release)
    for name, flag in table.flags.items():
        assert name in flag.names
        assert all(table.spellings[spelling] == (flag, True) for spelling in flag.names)
        assert flag.choices is None or flag.default in (None, DYNAMIC, *flag.choices), (name, flag.default)
        assert not (flag.many and flag.append)
        json.dumps(None if flag.default is DYNAMIC else flag.default)
    dests = [flag.dest for flag in table.flags.values()]
    assert len(dests) == len(set(dests))
    assert table.of_dest("max_model_len") is table.flags["--max-model-len"]
    assert table.of_dest("no_such") is None


@pytest.mark.parametrize(
    ("release", "kind"),
    [("0.8.3", "int"), ("0.8.4", "human-int"), ("0.13.0", "human-int"), ("0.14.0", "human-int-or-auto")],
)
def test_how_max_model_len_is_read(release: str, kind: str) -> None:
    assert flags_of_release(release).flags["--max-model-len"].kind == kind


def test_images_table_has_an_answer_for_every_entry() -> None:
    for entry in load_table("engine/images")["images"]:
        assert set(entry) <= {"repository", "official", "backend", "tag", "releases", "entrypoints"}
        assert all(version in releases() for version in entry.get("releases", {}).values())
        assert entry["official"] in (True, False)
