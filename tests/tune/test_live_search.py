"""What a search may try: within cores, memory, and what the user allows."""

import math
from types import SimpleNamespace

import pytest

from phasepoint.tune.knobs import Effect, Knob, Turn, worker_counts
from phasepoint.tune.live.memory_watch import MemoryWatch
from phasepoint.tune.live.search import NOT_THE_SAME, Search
from phasepoint.tune.pipeline import PipelineTimes, Width

MS = 1_000_000
WRITTEN = {"num_workers": 0, "cache": False}
KNOBS = (
    Knob("num_workers", worker_counts(2, 0)),
    Knob("cache", (False, True), Effect.CACHE, Turn.EPOCH),
)


def width(setting):
    return Width(setting["num_workers"], 2 * setting["num_workers"], caches=setting["cache"])


def search(*, allow=(), limit_bytes=10**12, written=WRITTEN):
    source = SimpleNamespace(knobs=KNOBS, as_written=written, width=width)
    return Search(source, allow, 2.0, MemoryWatch(limit_bytes, lambda: 10**9))


def times(*, cpu_ratio=0.0, batch_ms=100, epoch_steps=1000, saved=0.0, cache_bytes=0.0):
    return PipelineTimes(
        body_ns=[10 * MS],
        body_cpu_ns=0.1 * MS,
        batch_ns=[batch_ms * MS],
        batch_cpu_ns=cpu_ratio * batch_ms * MS,
        receive_ns=0.1 * MS,
        cpus=2.0,
        epoch_steps=epoch_steps,
        saved_ns=saved * batch_ms * MS,
        cache_bytes=cache_bytes,
    )


def best(found, pipeline, current=WRITTEN):
    proposal = found.best(current, pipeline, 1000 / 110)
    return None if proposal is None else proposal.setting


@pytest.mark.parametrize(("cpu_ratio", "least", "most"), [(0.02, 10, 16), (0.25, 8, 8), (1.0, 1, 2)])
def test_more_workers_than_cores_are_tried_where_batches_wait(cpu_ratio, least, most):
    assert least <= best(search(), times(cpu_ratio=cpu_ratio))["num_workers"] <= most


def test_what_the_user_has_written_stays_within_reach():
    written = {"num_workers": 12, "cache": False}
    assert search(written=written)._fits(WRITTEN, written, 0, times(cpu_ratio=1.0))
    assert not search()._fits(WRITTEN, written, 0, times(cpu_ratio=1.0))


def test_workers_stay_within_the_memory():
    found = search(limit_bytes=10**9 + 3 * 150 * 10**6 + 1)
    assert best(found, times())["num_workers"] == 3


def test_a_cache_is_tried_where_it_is_allowed_pays_and_fits():
    pays = {"batch_ms": 100, "saved": 0.98, "cache_bytes": 1e6}
    assert best(search(allow=["cache"]), times(cpu_ratio=1.0, **pays))["cache"]
    assert not best(search(), times(cpu_ratio=1.0, **pays))["cache"]
    assert "allow=['cache'] is given" in search().not_allowed(WRITTEN, times(cpu_ratio=1.0, **pays), 1000 / 110)
    full = search(allow=["cache"], limit_bytes=10**9 + 10**9)
    assert not best(full, times(cpu_ratio=1.0, **pays))["cache"]  # 1,000 batches of 1 MB are more
    assert not best(search(allow=["cache"]), times(cpu_ratio=1.0, **pays | {"cache_bytes": 0.0}))["cache"]
    endless = times(cpu_ratio=1.0, epoch_steps=math.inf, **pays)
    assert not best(search(allow=["cache"]), endless)["cache"]


def test_samples_that_differ_when_made_again_end_the_cache_and_not_the_search():
    found = search(allow=["cache"])
    pipeline = times(cpu_ratio=1.0, saved=0.98, cache_bytes=1e6)
    found.found_other_batches(WRITTEN, {"num_workers": 0, "cache": True})
    assert not best(found, pipeline)["cache"]
    assert found.is_over(waits_for_epoch=False) is None
    found.found_other_batches(WRITTEN, {"num_workers": 1, "cache": False})
    assert found.is_over(waits_for_epoch=False) == NOT_THE_SAME
