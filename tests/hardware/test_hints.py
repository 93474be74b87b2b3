"""Node labels, instance types and resources: what each says of the GPU, and what they say together."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvgate.hardware import hints as hints_module
from kvgate.hardware.catalogue import GIB, entries, match_gpu
from kvgate.hardware.hints import GpuHint, Operator, gpu_from_hints, gpus_of_instance

DATA = Path(hints_module.__file__).parent / "data"
LABELS = json.loads((DATA / "labels.json").read_text())
INSTANCES = json.loads((DATA / "instances.json").read_text())

GKE = "cloud.google.com/gke-accelerator"
PRODUCT = "nvidia.com/gpu.product"
INSTANCE = "node.kubernetes.io/instance-type"
KARPENTER = "karpenter.k8s.aws/instance-gpu-name"
ONE_GPU = GpuHint("nvidia.com/gpu", ("1",))


def hint(key: str, *values: str, operator: Operator = "In") -> GpuHint:
    return GpuHint(key, values, operator)


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        (GKE, "nvidia-l4", "NVIDIA L4"),
        (GKE, "nvidia-tesla-t4", "NVIDIA T4"),
        (GKE, "nvidia-tesla-a100", "NVIDIA A100 40GB"),
        (GKE, "nvidia-a100-80gb", "NVIDIA A100 80GB"),
        (GKE, "nvidia-h100-80gb", "NVIDIA H100 80GB"),
        (GKE, "nvidia-h100-mega-80gb", "NVIDIA H100 80GB"),
        (GKE, "nvidia-h200-141gb", "NVIDIA H200"),
        (GKE, "nvidia-b200", "NVIDIA B200"),
        (GKE, "nvidia-rtx-pro-6000", "NVIDIA RTX PRO 6000 Blackwell"),
        (PRODUCT, "NVIDIA-H100-80GB-HBM3", "NVIDIA H100 80GB"),
        (PRODUCT, "NVIDIA-A10G", "NVIDIA A10G"),
        (PRODUCT, "AGX-Thor", "NVIDIA Jetson AGX Thor"),
        (PRODUCT, "NVIDIA-A100-SXM4-80GB-MIG-3g.40gb", "NVIDIA A100 80GB MIG 3g.40gb"),
        (KARPENTER, "l40s", "NVIDIA L40S"),
        ("eks.amazonaws.com/instance-gpu-name", "h100", "NVIDIA H100 80GB"),
        ("karpenter.k8s.aws/instance-family", "g6e", "NVIDIA L40S"),
        (INSTANCE, "g5.2xlarge", "NVIDIA A10G"),
        ("beta.kubernetes.io/instance-type", "p4de.24xlarge", "NVIDIA A100 80GB"),
        ("eks.amazonaws.com/instance-type", "p5en.48xlarge", "NVIDIA H200"),
        (INSTANCE, "a2-highgpu-1g", "NVIDIA A100 40GB"),
        (INSTANCE, "a2-ultragpu-4g", "NVIDIA A100 80GB"),
        (INSTANCE, "a3-megagpu-8g", "NVIDIA H100 80GB"),
        (INSTANCE, "g2-standard-24", "NVIDIA L4"),
        (INSTANCE, "Standard_NC24ads_A100_v4", "NVIDIA A100 80GB"),
        (INSTANCE, "Standard_NC40ads_H100_v5", "NVIDIA H100 NVL"),
        (INSTANCE, "Standard_ND96asr_v4", "NVIDIA A100 40GB"),
        (INSTANCE, "Standard_ND96isr_MI300X_v5", "AMD Instinct MI300X"),
        (INSTANCE, "Standard_NC4as_T4_v3", "NVIDIA T4"),
        (INSTANCE, "BM.GPU.H200.8", "NVIDIA H200"),
        (INSTANCE, "gx3-24x120x1l40s", "NVIDIA L40S"),
        ("gpu.nvidia.com/class", "A100_NVLINK_80GB", "NVIDIA A100 80GB"),
        ("gpu.nvidia.com/class", "RTX_A6000", "NVIDIA RTX A6000"),
        ("gpu.nvidia.com/model", "H200", "NVIDIA H200"),
        ("machine.cluster.vke.volcengine.com/gpu-name", "NVIDIA-L20", "NVIDIA L20"),
        ("aliyun.accelerator/nvidia_name", "Tesla-V100-SXM2-16GB", "NVIDIA V100 16GB"),
        ("doks.digitalocean.com/gpu-model", "h100", "NVIDIA H100 80GB"),
        ("amd.com/gpu.product-name", "AMD_Instinct_MI300X_OAM", "AMD Instinct MI300X"),
        ("accelerator", "nvidia-l40s", "NVIDIA L40S"),
        ("example.com/gpu-type", "rtx-4090", "NVIDIA GeForce RTX 4090"),
        ("nvidia.com/mig-1g.5gb", "1", "NVIDIA A100 40GB MIG 1g.5gb"),
    ],
)
def test_one_hint_names_the_gpu(key: str, value: str, expected: str) -> None:
    vendor = "amd.com" if "mi300x" in value.lower() else "nvidia.com"
    for hints in ([hint(key, value)], [hint(f"{vendor}/gpu", "1"), hint(key, value)]):
        finding = gpu_from_hints(hints)
        assert finding.gpu is not None, finding.reason
        assert (finding.gpu.name, finding.basis) == (expected, "declared")
        assert finding.hint is not None
        assert finding.hint.key == key


@pytest.mark.parametrize(
    ("instance", "count"),
    [
        ("g5.xlarge", 1),
        ("g5.12xlarge", 4),
        ("g5.48xlarge", 8),
        ("ml.g6e.12xlarge", 4),
        ("p5.48xlarge", 8),
        ("p6-b200.48xlarge", 8),
        ("a2-megagpu-16g", 16),
        ("g2-standard-96", 8),
        ("Standard_NC80adis_H100_v5", 2),
        ("gx3d-160x1792x8h100", 8),
        ("gd-8xh100ib-i128", 8),
        ("g5.unheard-of", None),
    ],
)
def test_gpus_per_node(instance: str, count: int | None) -> None:
    known = gpus_of_instance(instance)
    assert known is not None
    assert known[1] == count
    assert gpu_from_hints([hint(INSTANCE, instance)]).count_hint == count


def test_resources_count_before_the_node_does() -> None:
    assert gpu_from_hints([hint(INSTANCE, "g5.48xlarge"), hint("nvidia.com/gpu", "2")]).count_hint == 2
    assert gpu_from_hints([hint("nvidia.com/gpu", "2"), hint("nvidia.com/gpu", "1")]).count_hint == 3
    assert gpu_from_hints([hint("nvidia.com/gpu", "")]).count_hint is None
    assert gpu_from_hints([hint(KARPENTER, "l40s"), hint("karpenter.k8s.aws/instance-gpu-count", "4")]).count_hint == 4


# --- together ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hints", "expected"),
    [
        ([hint(INSTANCE, "g6e.2xlarge", "g6e.4xlarge")], "NVIDIA L40S"),
        ([hint(KARPENTER, "a100"), hint("karpenter.k8s.aws/instance-family", "p4d")], "NVIDIA A100 40GB"),
        ([hint(KARPENTER, "a100"), hint("karpenter.k8s.aws/instance-gpu-memory", "81920")], "NVIDIA A100 80GB"),
        ([hint(KARPENTER, "a10g"), hint("karpenter.k8s.aws/instance-gpu-memory", "24576")], "NVIDIA A10G"),
        ([hint(KARPENTER, "a10g"), hint("karpenter.k8s.aws/instance-gpu-memory", "22888")], "NVIDIA A10G"),
        ([hint(KARPENTER, "l40s"), hint("nvidia.com/gpu.memory", "46068")], "NVIDIA L40S"),
        ([hint("gpu.nvidia.com/vram", "80"), hint("gpu.nvidia.com/model", "A100_NVLINK")], "NVIDIA A100 80GB"),
        ([hint(KARPENTER, "a100"), hint(PRODUCT, "NVIDIA-A100-SXM4-40GB", operator="NotIn")], "NVIDIA A100 80GB"),
        ([hint("karpenter.k8s.aws/instance-family", "g5", "g6"), hint(KARPENTER, "l4", "t4")], "NVIDIA L4"),
        ([hint(PRODUCT, "NVIDIA-H100-80GB-HBM3"), hint("nvidia.com/mig-3g.40gb", "1")], "NVIDIA H100 80GB MIG 3g.40gb"),
        (
            [hint(GKE, "nvidia-a100-80gb"), hint("cloud.google.com/gke-gpu-partition-size", "1g.10gb")],
            "NVIDIA A100 80GB MIG 1g.10gb",
        ),
        ([hint("gpu-vendor", "nvidia"), hint("accelerator", "nvidia"), hint(KARPENTER, "t4")], "NVIDIA T4"),
        ([hint(INSTANCE, "m5.large"), hint(PRODUCT, "NVIDIA-L4")], "NVIDIA L4"),
    ],
)
def test_hints_narrow_one_another(hints: list[GpuHint], expected: str) -> None:
    finding = gpu_from_hints(hints)
    assert finding.gpu is not None, finding.reason
    assert finding.gpu.name == expected


@pytest.mark.parametrize(
    ("hints", "reason"),
    [
        (
            [hint(INSTANCE, "g6e.2xlarge", "g5.4xlarge")],
            "node.kubernetes.io/instance-type: g6e.2xlarge, g5.4xlarge leaves several GPUs (NVIDIA L40S, NVIDIA A10G)",
        ),
        (
            [hint(KARPENTER, "a100"), ONE_GPU],
            f"{KARPENTER}: a100 leaves several GPUs (NVIDIA A100 80GB, NVIDIA A100 40GB)",
        ),
        ([hint(PRODUCT, "Foo-9000"), ONE_GPU], f'{PRODUCT}: "Foo-9000" is no GPU that the catalogue knows'),
        (
            [hint(PRODUCT, "NVIDIA-L4"), hint("amd.com/gpu", "1")],
            f"no GPU of the catalogue is {PRODUCT}: NVIDIA-L4 and amd.com/gpu: 1",
        ),
        (
            [hint(PRODUCT, "NVIDIA-A100-SXM4-80GB-MIG-3g.40gb", "NVIDIA-A100-SXM4-80GB-MIG-2g.20gb")],
            f"{PRODUCT}: NVIDIA-A100-SXM4-80GB-MIG-3g.40gb, NVIDIA-A100-SXM4-80GB-MIG-2g.20gb allows slices of",
        ),
        (
            [hint("nvidia.com/mig-1g.5gb", "1"), hint("nvidia.com/mig-2g.10gb", "1")],
            "several MIG profiles (1g.5gb, 2g.10gb)",
        ),
        (
            [hint("nvidia.com/mig-1g.5gb", "1"), hint(PRODUCT, "NVIDIA-L4"), hint(KARPENTER, "t4")],
            f"no GPU of the catalogue is {PRODUCT}: NVIDIA-L4 and {KARPENTER}: t4",
        ),
        (
            [hint("nvidia.com/mig-1g.5gb", "1"), hint(PRODUCT, "NVIDIA-L4")],
            '"NVIDIA L4 MIG 1g.5gb": NVIDIA L4 has no MIG',
        ),
        ([ONE_GPU], "nvidia.com/gpu does not say which GPU: name it in kvgate.yaml (gpu:) or with --gpu"),
        ([hint("amd.com/gpu", "1")], "amd.com/gpu does not say which GPU"),
        ([hint("device", "2")], "no file says which GPU"),
        ([hint("nvidia.com/gpu", "true"), ONE_GPU], "nvidia.com/gpu does not say which GPU"),
        ([hint("nvidia.com/gpu.family", "ampere")], "nvidia.com/gpu.family: ampere leaves several GPUs"),
        ([hint("google.com/tpu", "8")], "google.com/tpu is a TPU"),
        (
            [hint("cloud.google.com/gke-tpu-accelerator", "tpu-v6e-slice"), hint("google.com/tpu", "8")],
            "cloud.google.com/gke-tpu-accelerator: tpu-v6e-slice is a TPU",
        ),
        ([hint("habana.ai/gaudi", "1")], "habana.ai/gaudi is an Intel Gaudi accelerator"),
        ([hint("gpu.intel.com/xe", "1")], "gpu.intel.com/xe is an Intel GPU"),
        ([hint("huawei.com/Ascend910", "1")], "huawei.com/Ascend910 is a Huawei Ascend NPU"),
        ([hint("aws.amazon.com/neuron", "1")], "aws.amazon.com/neuron is an AWS Neuron accelerator"),
        (
            [hint(INSTANCE, "trn1.32xlarge")],
            "node.kubernetes.io/instance-type: trn1.32xlarge has an AWS Neuron accelerator",
        ),
        ([hint("accelerator", "gaudi3")], "accelerator: gaudi3 is an Intel Gaudi accelerator"),
    ],
)
def test_what_is_unknown_says_why(hints: list[GpuHint], reason: str) -> None:
    finding = gpu_from_hints(hints)
    assert finding.gpu is None
    assert finding.basis == "unknown"
    assert finding.reason is not None
    assert finding.reason.startswith(reason)


@pytest.mark.parametrize(
    "hints",
    [
        [],
        [hint("kubernetes.io/hostname", "node-4")],
        [hint("accelerator", "nvidia")],
        [hint("gpu", "true")],
        [hint("hardware", "gpu")],
        [hint(INSTANCE, "m5.large")],
        [hint(GKE, operator="Exists")],
    ],
)
def test_what_says_nothing_has_no_reason(hints: list[GpuHint]) -> None:
    finding = gpu_from_hints(hints)
    assert (finding.gpu, finding.reason, finding.count_hint) == (None, None, None)


def test_properties_alone_are_an_assumption() -> None:
    # Of the catalogue only the B200 is a Blackwell board of about 183,359 MiB.
    finding = gpu_from_hints(
        [hint("nvidia.com/gpu.family", "blackwell"), hint("nvidia.com/gpu.memory", "183359"), ONE_GPU]
    )
    assert finding.gpu is not None
    assert (finding.gpu.name, finding.basis) == ("NVIDIA B200", "assumed")
    assert finding.reason == "the only GPU of the catalogue that fits nvidia.com/gpu.memory: 183359"


def test_greater_and_less_compare_the_boards_memory() -> None:
    hopper = hint("nvidia.com/gpu.compute.major", "9")
    finding = gpu_from_hints([hopper, hint("nvidia.com/gpu.memory", "100000", operator="Gt")])
    assert {gpu.name for gpu in finding.candidates} == {"NVIDIA H200", "NVIDIA H20-3e"}
    finding = gpu_from_hints([hopper, hint("nvidia.com/gpu.memory", "88000", operator="Lt")])
    assert {gpu.name for gpu in finding.candidates} == {"NVIDIA H100 80GB", "NVIDIA H800"}


@pytest.mark.parametrize(
    "hints",
    [
        [hint(PRODUCT, "Tesla-T4-SHARED")],
        [hint(GKE, "nvidia-tesla-t4"), hint("cloud.google.com/gke-gpu-sharing-strategy", "time-sharing")],
        [hint(GKE, "nvidia-tesla-t4"), hint("nvidia.com/gpu.shared", "1")],
    ],
)
def test_time_sliced_gpus_are_marked(hints: list[GpuHint]) -> None:
    finding = gpu_from_hints(hints)
    assert finding.gpu is not None
    assert (finding.gpu.name, finding.shared) == ("NVIDIA T4", True)
    assert finding.reason == "time-sliced: other pods use the same GPU memory"


def test_a_share_of_a_gpu_has_its_share_of_the_memory() -> None:
    # Azure hands out sixths of an A10: 24 GiB / 6 = 4 GiB at most
    finding = gpu_from_hints([hint(INSTANCE, "Standard_NV6ads_A10_v5"), ONE_GPU])
    assert finding.gpu is not None
    assert (finding.gpu.name, finding.gpu.basis) == ("NVIDIA A10 (1/6)", "declared")
    assert finding.gpu.memory_high == 4 * GIB
    assert finding.gpu.memory_low == 4 * GIB - 7 * GIB // 10
    assert finding.gpu.compute_capability == (8, 6)


def test_a_gpu_that_is_not_requested_is_no_request() -> None:
    assert gpu_from_hints([hint("google.com/tpu", "0"), hint(GKE, "nvidia-l4")]).gpu is not None


# --- tables -----------------------------------------------------------------------------------------------------------


def test_tables_name_gpus_of_the_catalogue() -> None:
    known = set(entries())
    assert {gpu for gpu, _ in INSTANCES["families"].values()} <= known
    assert {gpu for gpu, _ in INSTANCES["types"].values()} <= known
    assert {gpu for gpu, *_ in INSTANCES["partial"].values()} <= known
    assert {gpu for _, gpu in INSTANCES["patterns"]} <= known
    for values in LABELS["products"].values():
        assert set(values.values()) <= known
    assert set(LABELS["labels"].values()) | set(LABELS["generic"].values()) <= set(hints_module._READERS)
    assert all(name == name.lower() for name in (*INSTANCES["types"], *INSTANCES["families"], *INSTANCES["partial"]))


def test_own_product_values_differ_from_the_catalogues() -> None:
    # A row that the catalogue's own names give already is a row too many.
    for key, values in LABELS["products"].items():
        for value, name in values.items():
            gpu = match_gpu(value).gpu
            assert gpu is None or gpu.name != name, (key, value)


@given(
    st.lists(
        st.builds(
            GpuHint,
            st.sampled_from([*LABELS["labels"], "accelerator", "nvidia.com/gpu", "nvidia.com/mig-3g.40gb", "x/y"])
            | st.text(max_size=20),
            st.lists(
                st.sampled_from(["nvidia-l4", "a100", "8", "", "g5.xlarge", "81920"]) | st.text(max_size=12), max_size=3
            ),
            st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]),
        ),
        max_size=4,
    )
)
def test_any_hints_give_a_finding(hints: list[GpuHint]) -> None:
    finding = gpu_from_hints(hints)
    assert (finding.gpu is None) == (finding.basis == "unknown")
