"""A prediction is arithmetic: it must stay cheap enough to run for every container of a large tree."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from kvgate.capacity.prediction import Prediction
from kvgate.models.model import Model


def test_a_prediction_takes_milliseconds(predict: Callable[..., Prediction], llama: Model) -> None:
    predict(llama, {"kv_cache_memory_bytes": 5 << 30})
    seconds = []
    for _ in range(15):
        start = time.perf_counter()
        predict(llama, {"kv_cache_memory_bytes": 5 << 30})
        seconds.append(time.perf_counter() - start)
    assert statistics.median(seconds) < 0.05  # about 1 ms; the margin is for loaded machines
