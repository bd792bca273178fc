"""Speed of a pipeline of `tune_pipelines.py` fed by other libraries, each with what it picks or advises by itself.

    python benchmarks/tune_peers.py jpeg grain --seconds 20      # or: spdl, tfdata

Run in an environment of its own (`pip install grain spdl tensorflow-cpu` beside what the pipelines need), by hand or by
`tune.py --peers THAT_ENVIRONMENT/bin/python`. The step is the pipeline's own, and so are the order and the making of a
sample, but for `tfdata`, which decodes JPEG files with TensorFlow's own operations. PyTorch's default and what it
advises, as many workers as cores, are two points of the grid of `tune.py`.

- `grain`: `grain.experimental.pick_performance_config`, then `mp_prefetch` with what it gives
- `spdl`: a pipeline whose stage runs on as many threads as there are cores
- `tfdata`: `num_parallel_calls=AUTOTUNE` and `prefetch(AUTOTUNE)`
"""

import argparse
import json
import os
import sys
import threading
import time

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

    dataset = grain.MapDataset.source(data)
    dataset = dataset.shuffle(0) if pipeline.shuffles else dataset
    dataset = dataset.map(plain).batch(pipeline.batch_size, batch_fn=stack).repeat()
    dataset = dataset.to_iter_dataset(grain.ReadOptions(num_threads=0, prefetch_buffer_size=0))
    picked = pick_performance_config(ds=dataset, ram_budget_mb=4096, max_workers=CORES, max_buffer_size=None)
    workers = picked.multiprocessing_options
    print(f"picked: {workers}", file=sys.stderr)
    return dataset.mp_prefetch(workers) if workers and workers.num_workers else dataset


def spdl_batches(pipeline, data):
    from spdl.pipeline import PipelineBuilder
    from torch.utils.data import default_collate

    def indices():
        chance = np.random.default_rng(0)
        while True:
            yield from (chance.permutation(len(data)).tolist() if pipeline.shuffles else range(len(data)))

    builder = PipelineBuilder().add_source(indices()).pipe(data.__getitem__, concurrency=CORES, output_order="input")
    built = builder.aggregate(pipeline.batch_size).pipe(default_collate).add_sink(8).build(num_threads=CORES)
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

    if type(data).__name__ == "Pictures":
        source, make = tf.data.Dataset.from_tensor_slices([str(path) for path in data.paths]), decode
    else:
        source, make = tf.data.Dataset.range(len(data)), other
    shuffled = (source.shuffle(5000, seed=0) if pipeline.shuffles else source).repeat()
    made = shuffled.map(make, num_parallel_calls=tune).batch(pipeline.batch_size, drop_remainder=True)
    return made.prefetch(tune)


def _first(sample):
    if isinstance(sample, dict):
        return np.stack([np.asarray(part, np.float32) for part in sample.values()])
    return np.asarray(sample[0] if isinstance(sample, tuple) else sample, np.float32)


def _to_train(batch):
    """Pictures and labels as PyTorch's; a peer that hands over pictures alone gets labels of one class."""
    import torch

    pictures, *labels = batch if isinstance(batch, (list, tuple)) else (np.asarray(batch),)
    pictures = torch.as_tensor(pictures)
    return pictures, torch.as_tensor(labels[0]) if labels else torch.zeros(len(pictures), dtype=torch.long)


PEERS = {
    "grain": grain_batches,
    "spdl": spdl_batches,
    "tfdata": tfdata_batches,
}


def main():
    from tune_pipelines import PIPELINES, network, watch_memory

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=PIPELINES)
    parser.add_argument("peer", choices=PEERS)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--settle-s", type=float, default=5.0)
    args = parser.parse_args()
    pipeline = PIPELINES[args.name]
    data = pipeline.data()
    batches = PEERS[args.peer](pipeline, data)
    train = network() if pipeline.body_s is None else None
    threading.Thread(target=watch_memory, args=({"bytes": 0}, threading.Event()), daemon=True).start()
    began, asked = None, []
    for batch in batches:
        began = began or time.perf_counter()
        time.sleep(pipeline.body_s) if train is None else train(_to_train(batch))
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
