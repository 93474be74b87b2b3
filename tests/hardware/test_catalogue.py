"""The GPU catalogue: names, ambiguity, memory as the driver reports it, MIG slices."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvgate.hardware import catalogue
from kvgate.hardware.catalogue import (
    COMMON_WHAT_IF,
    GIB,
    all_gpus,
    common_what_if,
    entries,
    explain_gpu,
    find_gpu,
    match_gpu,
    mig_eighths,
    split_count,
)

DATA = Path(catalogue.__file__).parent / "data"
TABLE = json.loads((DATA / "gpus.json").read_text())
ALIASES = [(raw["name"], alias) for raw in TABLE["gpus"] for alias in (raw["name"], *raw.get("aliases", ()))]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("RTX 4090", "NVIDIA GeForce RTX 4090"),
        ("rtx4090", "NVIDIA GeForce RTX 4090"),
        ("nvidia-rtx-4090", "NVIDIA GeForce RTX 4090"),
        ("NVIDIA-GeForce-RTX-4090", "NVIDIA GeForce RTX 4090"),
        ("NVIDIA_GeForce_RTX_3090", "NVIDIA GeForce RTX 3090"),
        ("NVIDIAGeForceRTX4090", "NVIDIA GeForce RTX 4090"),
        ("NVIDIA GeForce RTX 4090 D", "NVIDIA GeForce RTX 4090 D"),
        ("4090D", "NVIDIA GeForce RTX 4090 D"),
        ("RTX 5090 32GB", "NVIDIA GeForce RTX 5090"),
        ("Tesla T4", "NVIDIA T4"),
        ("T4 16GB", "NVIDIA T4"),
        ("NVIDIA L40s", "NVIDIA L40S"),
        ("NVIDIA-A100-SXM4-80GB", "NVIDIA A100 80GB"),
        ("NVIDIA A100 80GB PCIe", "NVIDIA A100 80GB"),
        ("A100-80G", "NVIDIA A100 80GB"),
        ("A100-80", "NVIDIA A100 80GB"),
        ("NVIDIA-A100-PCIE-40GB", "NVIDIA A100 40GB"),
        ("nvidia-tesla-a100", "NVIDIA A100 40GB"),  # GKE's name of the 40 GB board
        ("H100", "NVIDIA H100 80GB"),
        ("NVIDIA-H100-80GB-HBM3", "NVIDIA H100 80GB"),
        ("H100 PCIe 80GB", "NVIDIA H100 80GB"),
        ("nvidia-h100-mega-80gb", "NVIDIA H100 80GB"),
        ("H100 NVL", "NVIDIA H100 NVL"),
        ("H100 94GB", "NVIDIA H100 NVL"),
        ("nvidia-h200-141gb", "NVIDIA H200"),
        ("NVIDIA GH200 480GB", "NVIDIA GH200 96GB"),
        ("GH200 (96 GB each)", "NVIDIA GH200 96GB"),
        ("Tesla V100-SXM2-32GB", "NVIDIA V100 32GB"),
        ("Tesla-V100-SXM2-16GB", "NVIDIA V100 16GB"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "NVIDIA RTX PRO 6000 Blackwell"),
        ("NVIDIA RTX 6000 Ada Generation", "NVIDIA RTX 6000 Ada Generation"),
        ("A6000", "NVIDIA RTX A6000"),
        ("DGX Spark (GB10)", "NVIDIA GB10"),
        ("AGX-Thor", "NVIDIA Jetson AGX Thor"),
        ("AMD_Instinct_MI300X_OAM", "AMD Instinct MI300X"),
        ("mi325x", "AMD Instinct MI325X"),
        ("Radeon RX 7900 XTX (gfx1100)", "AMD Radeon RX 7900 XTX"),
        ("NVIDIA-H100-80GB-HBM3-SHARED", "NVIDIA H100 80GB"),
        ("8xH100", "NVIDIA H100 80GB"),
        ("H100:8", "NVIDIA H100 80GB"),
        ("CPU", "cpu"),
    ],
)
def test_names_that_people_write(name: str, expected: str) -> None:
    gpu = find_gpu(name)
    assert gpu is not None, explain_gpu(name)
    assert gpu.name == expected


@pytest.mark.parametrize(
    ("name", "candidates"),
    [
        ("H200/H20", ["NVIDIA H200", "NVIDIA H20"]),
        ("A100", ["NVIDIA A100 80GB", "NVIDIA A100 40GB"]),
        ("A100 (Google Colab)", ["NVIDIA A100 80GB", "NVIDIA A100 40GB"]),
        ("V100", ["NVIDIA V100 32GB", "NVIDIA V100 16GB"]),
        ("RTX 4060 Ti", ["NVIDIA GeForce RTX 4060 Ti 16GB", "NVIDIA GeForce RTX 4060 Ti 8GB"]),
        ("RTX 6000", ["NVIDIA RTX 6000 Ada Generation", "Quadro RTX 6000"]),
        ("L4|A10G", ["NVIDIA L4", "NVIDIA A10G"]),
        ("RTX 5080 + RTX 5070 Ti", ["NVIDIA GeForce RTX 5080", "NVIDIA GeForce RTX 5070 Ti"]),
    ],
)
def test_ambiguous_names_are_unknown_and_say_why(name: str, candidates: list[str]) -> None:
    match = match_gpu(name)
    assert match.gpu is None
    assert [gpu.name for gpu in match.candidates] == candidates
    assert match.reason == f'"{name}" is ambiguous: it could be {", ".join(candidates)}'


@pytest.mark.parametrize("name", ["", "GPU", "NVIDIA", "80GB", "H100 40GB", "A100 96GB", "RTX", "TPU v5e", "Foo 9000"])
def test_unknown_names(name: str) -> None:
    match = match_gpu(name)
    assert (match.gpu, match.candidates) == (None, ())
    assert match.reason == f'"{name}" is no GPU that the catalogue knows'


@given(st.sampled_from(ALIASES), st.data())
def test_case_blanks_dashes_and_underscores_do_not_matter(named: tuple[str, str], data: st.DataObject) -> None:
    name, alias = named
    words = alias.replace("-", " ").split()
    joined = "".join(word + data.draw(st.sampled_from(["", " ", "-", "_", "  "])) for word in words)
    written = "".join(data.draw(st.sampled_from([letter.lower(), letter.upper()])) for letter in joined)
    assert name in [gpu.name for gpu in match_gpu(written).candidates]


@given(st.text(max_size=40))
def test_any_text_gives_a_gpu_or_a_reason(text: str) -> None:
    match = match_gpu(text)
    assert match.reason
    assert match.gpu is None or match.candidates


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("8xH100", ("H100", 8)),
        ("8 x H100", ("H100", 8)),
        ("H100:8", ("H100", 8)),
        ("L40S", ("L40S", None)),
        ("H100", ("H100", None)),
        ("RTX 4090", ("RTX 4090", None)),
    ],
)
def test_counts_in_names(text: str, expected: tuple[str, int | None]) -> None:
    assert split_count(text) == expected


# --- memory -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "low_gib", "high_gib", "capability"),
    [
        # totals printed in public start-up logs
        ("NVIDIA GeForce RTX 4090", 23.53, 23.68, (8, 9)),
        ("NVIDIA H100 80GB", 79.11, 79.33, (9, 0)),
        ("NVIDIA H100 NVL", 93.10, 93.11, (9, 0)),
        ("NVIDIA A100 80GB", 79.15, 79.25, (8, 0)),
        ("NVIDIA L4", 22.04, 22.04, (8, 9)),
        ("NVIDIA B200", 178.35, 178.36, (10, 0)),
        ("NVIDIA GB10", 119.63, 121.69, (12, 1)),
        ("AMD Instinct MI300X", 191.45, 191.98, None),
    ],
)
def test_totals_seen_in_logs(name: str, low_gib: float, high_gib: float, capability: tuple[int, int] | None) -> None:
    gpu = find_gpu(name)
    assert gpu is not None
    assert (gpu.memory_low, gpu.memory_high) == (round(low_gib * GIB), round(high_gib * GIB))
    assert (gpu.basis, gpu.compute_capability) == ("exact", capability)


def test_the_middle_is_the_median_or_the_usual_figure() -> None:
    gpu, with_ecc = find_gpu("RTX 4090"), find_gpu("A6000")
    assert gpu is not None
    assert with_ecc is not None
    assert gpu.memory_bytes == round(23.645 * GIB)  # of 23.53, 23.64, 23.65, 23.68
    assert with_ecc.memory_bytes == round(47.5 * GIB)  # ECC is off by default


def test_a_total_that_no_log_shows_is_declared_and_estimated_from_the_board() -> None:
    # 46,068 MiB = 44.9883 GiB; less 0.35 + 0.003 x 44.9883 = 0.4850 -> 44.5033; between 0.2 and 0.65 + 0.005 x 44.9883
    gpu = find_gpu("A40")
    assert gpu is not None
    assert gpu.basis == "declared"
    assert gpu.memory_bytes == pytest.approx(44.5033 * GIB, rel=1e-5)
    assert gpu.memory_high == pytest.approx(44.7883 * GIB, rel=1e-5)
    assert gpu.memory_low == pytest.approx(44.1133 * GIB, rel=1e-5)
    assert "less what the driver keeps" in explain_gpu("A40")


def test_the_estimate_covers_every_board_of_which_both_figures_are_known() -> None:
    # One total of the RTX A6000 was read with ECC on, which takes a sixteenth of the board.
    checked = 0
    for raw in TABLE["gpus"]:
        vendor = raw.get("vendor", "nvidia")
        if "board_mib" not in raw or "seen_gib" not in raw or raw.get("unified"):
            continue
        rule = TABLE["reservation"][vendor]
        board = raw["board_mib"] / 1024
        for seen in raw["seen_gib"]:
            if (raw["name"], seen) == ("NVIDIA RTX A6000", 44.55):
                continue
            assert rule["low_gib"] - 0.005 <= board - seen <= rule["high_gib"] + rule["high_per_gib"] * board, raw[
                "name"
            ]
            checked += 1
    assert checked >= 35


def test_every_entry_is_sound() -> None:
    for name, entry in entries().items():
        gpu = entry.gpu
        assert gpu.name == name
        assert gpu.memory_bytes is not None
        assert gpu.memory_low is not None
        assert gpu.memory_high is not None
        assert 0 < gpu.memory_low <= gpu.memory_bytes <= gpu.memory_high
        assert (gpu.compute_capability is None) == (gpu.vendor == "amd")
        assert entry.name_gb is not None
        # the driver never reports more than the product's name says, nor much less
        assert gpu.memory_high <= entry.name_gb * GIB * 1.001
        if "MI250" not in name:  # the name gives both dies, the driver one
            assert gpu.memory_low >= entry.name_gb * GIB * 0.82
    names = [raw["name"] for raw in TABLE["gpus"]]
    assert len(names) == len(set(names))
    assert len(all_gpus()) >= 100


def test_cpu_and_what_if() -> None:
    cpu = find_gpu("cpu")
    assert cpu is not None
    assert (cpu.vendor, cpu.memory_bytes) == ("cpu", None)
    assert [gpu.name for gpu in COMMON_WHAT_IF] == ["NVIDIA L4", "NVIDIA A100 80GB", "NVIDIA H100 80GB"]
    assert common_what_if() == COMMON_WHAT_IF
    with pytest.raises(AttributeError):
        catalogue.NO_SUCH_NAME  # noqa: B018


# --- MIG --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "expected", "low_gib", "high_gib", "capability"),
    [
        ("NVIDIA-A100-SXM4-80GB-MIG-3g.40gb", "NVIDIA A100 80GB MIG 3g.40gb", 39.25, 39.5, (8, 0)),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", "NVIDIA H100 80GB MIG 1g.10gb", 9.5, 9.75, (9, 0)),
        ("nvidia.com/mig-3g.40gb", "NVIDIA MIG 3g.40gb", 39.25, 39.5, None),
        ("mig-1g.5gb", "NVIDIA A100 40GB MIG 1g.5gb", 4.75, 4.95, (8, 0)),
        ("nvidia.com/mig-1g.18gb.me", "NVIDIA H200 MIG 1g.18gb", 16.0, 16.63, (9, 0)),
        ("H200 MIG 3g.71gb", "NVIDIA H200 MIG 3g.71gb", 69.5, 69.9, (9, 0)),
    ],
)
def test_mig_slices(
    name: str, expected: str, low_gib: float, high_gib: float, capability: tuple[int, int] | None
) -> None:
    gpu = find_gpu(name)
    assert gpu is not None, explain_gpu(name)
    assert (gpu.name, gpu.basis, gpu.compute_capability) == (expected, "declared", capability)
    assert (gpu.memory_low, gpu.memory_high) == (round(low_gib * GIB), round(high_gib * GIB))


def test_a_slice_without_a_print_is_a_share_of_its_parent() -> None:
    # half of 178.35 .. 178.36 GiB, less up to 0.75
    gpu = find_gpu("B200 MIG 3g.90gb")
    assert gpu is not None
    assert gpu.memory_high == pytest.approx(89.18 * GIB, rel=1e-6)
    assert gpu.memory_low == pytest.approx(88.425 * GIB, rel=1e-6)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("mig-9g.99gb", '"mig-9g.99gb" names no MIG profile that the catalogue knows'),
        ("T4 MIG 3g.40gb", '"T4 MIG 3g.40gb": NVIDIA T4 has no MIG profile 3g.40gb'),
        ("Foo MIG 3g.40gb", '"Foo MIG 3g.40gb" is no GPU that the catalogue knows'),
    ],
)
def test_slices_that_do_not_exist(name: str, expected: str) -> None:
    assert find_gpu(name) is None
    assert explain_gpu(name) == expected


def test_mig_tables_fit_the_catalogue() -> None:
    table = json.loads((DATA / "mig.json").read_text())
    for parent, profiles in table["parents"].items():
        whole = entries()[parent].gpu
        assert whole.memory_high is not None
        for profile, printed in profiles.items():
            gpu = find_gpu(f"{parent} MIG {profile}")
            assert gpu is not None
            assert gpu.memory_high is not None
            assert gpu.memory_high <= whole.memory_high * 1.001
            if printed:
                # The share that the table gives and the figures that were printed agree.
                share = whole.memory_high * mig_eighths(parent, profile) / 8 / GIB
                assert share * 0.9 <= printed[0] <= printed[1] <= share * 1.01, (parent, profile)
