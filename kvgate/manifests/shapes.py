"""What kind of document a YAML document is, by its shape alone. Cheap, so that only the readers needed are imported."""

from __future__ import annotations

from typing import Final

from kvgate.manifests.tree import items_at, node_at, text_at
from kvgate.source.yaml_tree import Mapping, Node, Scalar, Sequence

KUSTOMIZATION_NAMES: Final = ("kustomization.yaml", "kustomization.yml", "Kustomization")


def is_kubernetes(document: Node) -> bool:
    """Whether a document is a Kubernetes object; one that was repaired may have lost its ``apiVersion``."""
    kind = text_at(document, "kind")
    return kind is not None and (node_at(document, "apiVersion") is not None or node_at(document, "spec") is not None)


def is_kustomization(document: Node) -> bool:
    """Whether a document is a kustomization."""
    kind = text_at(document, "kind")
    if kind is None:
        return isinstance(document, Mapping) and any(
            isinstance(document.get(key), Sequence) for key in ("patches", "patchesStrategicMerge", "patchesJson6902")
        )
    version = text_at(document, "apiVersion")  # kustomize itself does not ask for one
    return kind in ("Kustomization", "Component") and (version is None or version.startswith("kustomize.config.k8s.io"))


def is_compose(document: Node) -> bool:
    """Whether a document is a Compose file: services that are images, builds, commands or extensions."""
    services = node_at(document, "services")
    if node_at(document, "apiVersion") is not None:
        return False
    if not isinstance(services, Mapping):
        names = [item if isinstance(item, Scalar) else node_at(item, "path") for item in items_at(document, "include")]
        return any(isinstance(name, Scalar) and name.value.endswith((".yaml", ".yml")) for name in names)
    return any(
        isinstance(entry.value, Mapping)
        and any(entry.value.get(key) is not None for key in ("image", "build", "command", "entrypoint", "extends"))
        for entry in services.items()
    )


def is_serve_config(document: Node) -> bool:
    """Whether a document is a configuration file of Ray Serve, or of models for it."""
    applications = items_at(document, "applications")
    return any(node_at(item, "import_path") is not None for item in applications) or bool(ray_models(document))


def ray_models(document: Node) -> list[Node]:
    """The models of a document that is nothing but one of Ray Serve's, or a list of them."""
    if is_ray_model(document):
        return [document]
    items = document.items if isinstance(document, Sequence) else items_at(document, "llm_configs")
    return [item for item in items if is_ray_model(item)]


# What stands beside the model's name in Ray's `LLMConfig`, and in the files of RayLLM before it.
_BESIDE_MODEL: Final = ("accelerator_type", "deployment_config", "engine_kwargs", "llm_engine", "scaling_config")


def is_ray_model(document: Node) -> bool:
    """Whether a document is one ``LLMConfig`` of Ray Serve's, or a model of RayLLM's."""
    if not any(text_at(document, key, "model_id") for key in ("model_loading_config", "engine_config")):
        return False
    return any(node_at(document, key) is not None for key in _BESIDE_MODEL)


# Keys at the top of what plans or records measurements: with some of them a document is about a server, and none.
_MEASURED: Final = frozenset(
    {
        "benchmark", "benchmarks", "config_id", "experiment", "load", "measurements", "metrics", "results", "run",
        "run_id", "sampling", "scenario", "sweep", "timestamp", "timestamp_utc", "warmup", "workload",
    }
)  # fmt: skip
MIN_MEASURED_KEYS: Final = 3


def is_measurement(document: Node) -> bool:
    """Whether a document plans or records measurements of a server: most of its keys, or several, are about these."""
    if not isinstance(document, Mapping):
        return False
    keys = [entry.key.value for entry in document.entries]
    found = sum(key in _MEASURED for key in keys)
    return found >= MIN_MEASURED_KEYS or (found > 1 and found >= len(keys) - 1)
