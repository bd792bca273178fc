"""Speed of a pipeline of `tune_pipelines.py` fed by other libraries, each with what it picks or advises by itself.

    python benchmarks/tune_peers.py jpeg grain --seconds 20      # or: spdl, tfdata, torch

Run in an environment of its own (`pip install grain spdl tensorflow-cpu` beside what the pipelines need). The step is
the pipeline's own, and so is the making of a sample, but for `tfdata`, which decodes JPEG files with TensorFlow's own
operations.

- `grain`: `grain.experimental.pick_performance_config`, then `mp_prefetch` with what it gives
- `spdl`: a pipeline whose stage runs on as many threads as there are cores
- `tfdata`: `num_parallel_calls=AUTOTUNE` and `prefetch(AUTOTUNE)`
- `torch`: a `DataLoader` as it is without arguments, and with as many workers as cores, which is what PyTorch advises
"""

import argparse
import json
import os
import sys
import time
from functools import partial

import numpy as np

CORES = len(os.sched_getaffinity(0))


def grain_batches(pipeline, data):
    import grain
    from grain.experimental import pick_performance_config

    def stack(samples):
        return [np.stack(parts) for parts in zip(*samples, strict=True)]

    def plain(sample):
        parts = sample.values() if isinstance(sample, dict) else sample if isinstance(sample, tuple) else (sample,)
        return tuple(np.asarray(part) for part in parts)

    dataset = grain.MapDataset.source(data).shuffle(0).map(plain).batch(pipeline.batch_size, batch_fn=stack).repeat()
    dataset = dataset.to_iter_dataset(grain.ReadOptions(num_threads=0, prefetch_buffer_size=0))
    picked = pick_performance_config(ds=dataset, ram_budget_mb=4096, max_workers=CORES, max_buffer_size=None)
    workers = picked.multiprocessing_options
    print(f"picked: {workers}", file=sys.stderr)
    return dataset.mp_prefetch(workers) if workers and workers.num_workers else dataset


def spdl_batches(pipeline, data):
    from spdl.pipeline import PipelineBuilder

    def indices():
        chance = np.random.default_rng(0)
        while True:
            yield from chance.permutation(len(data)).tolist()

    builder = PipelineBuilder().add_source(indices()).pipe(data.__getitem__, concurrency=CORES, output_order="input")
    built = builder.aggregate(pipeline.batch_size).add_sink(8).build(num_threads=CORES)
    built.start()
    return built


def tfdata_batches(pipeline, data):
    import tensorflow as tf

    tune = tf.data.AUTOTUNE

    def decode(path):
        picture = tf.io.decode_jpeg(tf.io.read_file(path), channels=3)
        cut = tf.image.random_crop(picture, (160, 160, 3))
        return tf.cast(tf.image.random_flip_left_right(cut), tf.float32) / 255

    def other(index):
        return tf.numpy_function(lambda i: np.asarray(_first(data[int(i)])), [index], tf.float32)

    if hasattr(data, "paths"):
        source, make = tf.data.Dataset.from_tensor_slices([str(path) for path in data.paths]), decode
    else:
        source, make = tf.data.Dataset.range(len(data)), other
    shuffled = source.shuffle(5000, seed=0).repeat()
    made = shuffled.map(make, num_parallel_calls=tune).batch(pipeline.batch_size, drop_remainder=True)
    return made.prefetch(tune)


def torch_batches(pipeline, data, *, workers):
    from torch.utils.data import DataLoader

    while True:
        yield from DataLoader(data, pipeline.batch_size, shuffle=True, drop_last=True, num_workers=workers)


def _first(sample):
    return np.asarray(sample[0] if isinstance(sample, tuple) else sample, np.float32)


PEERS = {
    "grain": grain_batches,
    "spdl": spdl_batches,
    "tfdata": tfdata_batches,
    "torch": partial(torch_batches, workers=0),
    "torch-cores": partial(torch_batches, workers=CORES),
}


def main():
    from tune_pipelines import PIPELINES, network

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=PIPELINES)
    parser.add_argument("peer", choices=PEERS)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--settle-s", type=float, default=5.0)
    args = parser.parse_args()
    pipeline = PIPELINES[args.name]
    data = pipeline.data()
    batches = PEERS[args.peer](pipeline, data)
    step = network() if pipeline.body_s is None else lambda _: time.sleep(pipeline.body_s)
    began, asked = None, []
    for batch in batches:
        began = began or time.perf_counter()
        step(batch)
        asked.append(time.perf_counter() - began)
        if asked[-1] > args.seconds:
            break
    steady = [at for at in asked if at >= args.settle_s]
    print(
        json.dumps({"name": args.name, "peer": args.peer, "steps_per_s": (len(steady) - 1) / (steady[-1] - steady[0])})
    )
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
