"""Times of made-up models on made-up devices, in the form of a file of measurements."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

FAMILIES = ("resnet", "vit", "mixer", "regnet", "convnext")


def made_models(count=120, seed=0, noise=0.03):
    """Four devices whose times are arithmetic, memory and calls in different parts, by family."""
    random = np.random.default_rng(seed)
    macs, acts, params = np.exp(random.normal(0, 1.2, (3, count)) + np.array([[1.0], [2.0], [3.0]]))
    families = [FAMILIES[place] for place in random.integers(0, len(FAMILIES), count)]
    bias = dict(zip(FAMILIES, random.normal(0, 0.15, len(FAMILIES)), strict=True))
    own = np.array([bias[family] for family in families])
    devices = {"A": (1.0, 0.2, 0.1), "B": (0.5, 0.6, 0.05), "C": (4.0, 0.5, 0.3), "D": (2.0, 1.2, 0.2)}
    times = {
        name: (part * macs * np.exp(own) + part_acts * acts + calls) * np.exp(random.normal(0, noise, count))
        for name, (part, part_acts, calls) in devices.items()
    }
    return macs, acts, params, families, times


def write_made(folder, **options):
    macs, acts, params, families, times = made_models(**options)
    rows = [
        {
            "device": device,
            "model": f"{family}{place}",
            "samples_per_s": 1 / seconds[place],
            "params_m": params[place],
            "gmacs": macs[place],
            "macts_m": acts[place],
            "image_size": 224,
        }
        for device, seconds in times.items()
        for place, family in enumerate(families)
    ]
    pq.write_table(pa.Table.from_pylist(rows), folder / "inference.parquet")
