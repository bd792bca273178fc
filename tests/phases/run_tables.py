"""Small runs built by hand for the tests of estimates and summaries."""

import numpy as np
import pyarrow as pa

from phasepoint.core.tables import CATEGORIES

MS = 10**9


def steps_table(dur_ps, *, input_ps=None, compile_ps=None, start_ps=None, host=0, attempt=0, first_step=0):
    """A steps table with host and attempt, steps back to back unless start_ps says otherwise."""
    dur = np.asarray(dur_ps, np.int64)
    n = len(dur)
    start = np.concatenate(([0], np.cumsum(dur)[:-1])) if start_ps is None else np.asarray(start_ps)
    return pa.table(
        {
            "host": pa.array(np.full(n, host), pa.int64()),
            "attempt": pa.array(np.full(n, attempt), pa.int64()),
            "step": pa.array(np.arange(first_step, first_step + n), pa.int64()),
            "start_ps": pa.array(start[:n], pa.int64()),
            "dur_ps": pa.array(dur, pa.int64()),
            "input_ps": pa.array([None] * n if input_ps is None else list(input_ps), pa.int64()),
            "compile_ps": pa.array([None] * n if compile_ps is None else list(compile_ps), pa.int64()),
        }
    )


def captured_tables(parts, windows, *, probability=0.01, host=0):
    """Windows and breakdowns for `windows` [(window, first step, steps)], with `parts[step]` by category."""
    names = list(range(len(windows)))
    rows = [
        (window, step, category, int(parts[step][i]))
        for window, first, n in windows
        for step in range(first, first + n)
        for i, category in enumerate(CATEGORIES)
    ]
    chances = [probability] * len(names) if probability is None or np.isscalar(probability) else list(probability)
    ids = {"host": pa.int64(), "attempt": pa.int64(), "window": pa.int64()}
    window_table = pa.table(
        {
            "host": pa.array([host] * len(names), ids["host"]),
            "attempt": pa.array([0] * len(names), ids["attempt"]),
            "window": pa.array([w for w, _, _ in windows], ids["window"]),
            "probability": pa.array(chances, pa.float64()),
        }
    )
    breakdowns = pa.table(
        {
            "host": pa.array([host] * len(rows), pa.int64()),
            "attempt": pa.array([0] * len(rows), pa.int64()),
            "window": pa.array([r[0] for r in rows], pa.int64()),
            "step": pa.array([r[1] for r in rows], pa.int64()),
            "device": pa.array(["cpu:0"] * len(rows)),
            "category": pa.array([r[2] for r in rows], pa.string()),
            "wall_ps": pa.array([r[3] for r in rows], pa.int64()),
        }
    )
    return window_table, breakdowns


def noisy_run(n, rng, *, noise=0.05, correlated=0.9):
    """Step times and their parts `[n, 5]`, two kinds of step in turn, with noise that lasts for a few steps."""
    wave = np.zeros(n)
    for i in range(1, n):
        wave[i] = correlated * wave[i - 1] + rng.normal() * np.sqrt(1 - correlated**2)
    labels = (np.arange(n) // 100) % 4 == 3
    dur = np.where(labels, 1 * MS, 3 * MS) * np.exp(noise * rng.normal(size=n))
    compute = np.where(labels, 0.5, 0.7) + noise * wave
    host = 0.1 + 0.3 * noise * rng.normal(size=n)
    shares = np.clip(np.column_stack([compute, np.zeros(n), np.full(n, 0.05), host]), 0, None)
    shares /= np.maximum(shares.sum(axis=1, keepdims=True), 1)
    dur = dur.astype(np.int64)
    parts = np.floor(shares * dur[:, None]).astype(np.int64)
    return dur, np.column_stack([parts, dur - parts.sum(axis=1)]), labels.astype(np.int64)
