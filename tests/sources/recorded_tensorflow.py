"""A small TensorFlow job on CPU, recorded by `tf.profiler`: two layers, six steps, batches from `tf.data`.

    python recorded_tensorflow.py DIRECTORY

writes DIRECTORY/tensorflow_cpu.xplane.pb.gz. The file of that name beside this script was recorded so with tensorflow
2.21 (November 2026), in an environment of its own: neither Phasepoint nor its other tests need TensorFlow.
"""

import gzip
import os
import sys
from pathlib import Path

STEPS = 6


def record(folder):
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    import tensorflow as tf

    first = tf.Variable(tf.random.normal([64, 128], stddev=0.1))
    second = tf.Variable(tf.random.normal([128, 10], stddev=0.1))

    @tf.function
    def train_step(x, y):
        with tf.GradientTape() as tape:
            with tf.name_scope("dense_1"):
                hidden = tf.nn.relu(x @ first)
            with tf.name_scope("dense_2"):
                logits = hidden @ second
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits))
        for variable, gradient in zip([first, second], tape.gradient(loss, [first, second]), strict=True):
            variable.assign_sub(0.1 * gradient)
        return loss

    rows = tf.random.normal([512, 64]), tf.zeros([512], tf.int32)
    batches = iter(tf.data.Dataset.from_tensor_slices(rows).batch(32).repeat().prefetch(2))
    train_step(*next(batches))
    options = tf.profiler.experimental.ProfilerOptions(host_tracer_level=2, python_tracer_level=0)
    os.chdir(folder)
    tf.profiler.experimental.start("profile", options=options)
    for step in range(STEPS):
        with tf.profiler.experimental.Trace("train", step_num=step, _r=1):
            train_step(*next(batches))
    tf.profiler.experimental.stop()
    (written,) = Path("profile").rglob("*.xplane.pb")
    Path("tensorflow_cpu.xplane.pb.gz").write_bytes(gzip.compress(written.read_bytes(), 9, mtime=0))


if __name__ == "__main__":
    record(sys.argv[1])
