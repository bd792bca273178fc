"""A training step whose time is predicted without running it: a dense network on digits, plain JAX.

    phasepoint predict examples/predict_step.py:step --args-from arguments --device tpu-v4
    phasepoint predict examples/predict_step.py:step --args-from arguments --device cpu

In Python:

    from phasepoint.learn.predict.predict import predict_function
    found = predict_function(step, *arguments(), device="H100 SXM5")
    found.time_ps, found.low_ps, found.high_ps, found.notes
"""

from typing import Any

import jax
import jax.numpy as jnp

BATCH, PIXELS, HIDDEN, CLASSES = 256, 784, 1024, 10
RATE = 0.01

Parameters = dict[str, Any]


def arguments() -> tuple[Parameters, Any, Any]:
    """Shapes of what the step takes; no array is made."""
    parameters = {
        "hidden": jax.ShapeDtypeStruct((PIXELS, HIDDEN), jnp.float32),
        "output": jax.ShapeDtypeStruct((HIDDEN, CLASSES), jnp.float32),
    }
    images = jax.ShapeDtypeStruct((BATCH, PIXELS), jnp.float32)
    labels = jax.ShapeDtypeStruct((BATCH,), jnp.int32)
    return parameters, images, labels


def loss(parameters: Parameters, images: Any, labels: Any) -> Any:
    """Mean cross entropy of the network."""
    hidden = jax.nn.relu(images @ parameters["hidden"])
    scores = jax.nn.log_softmax(hidden @ parameters["output"])
    return -jnp.take_along_axis(scores, labels[:, None], axis=1).mean()


@jax.jit
def step(parameters: Parameters, images: Any, labels: Any) -> Parameters:
    """One step of gradient descent."""
    gradient = jax.grad(loss)(parameters, images, labels)
    return jax.tree.map(lambda value, slope: value - RATE * slope, parameters, gradient)
