"""Predictions of JAX functions, from Python; and of programs that no compiler has seen."""

import pytest

from phasepoint.core.errors import UsageError
from phasepoint.learn.predict.predict import predict_function, predict_kernel_times

jax = pytest.importorskip("jax", reason="functions are traced by JAX")
pytestmark = pytest.mark.jax


def dense(x, w):
    return jax.numpy.tanh(x @ w).sum()


def shapes():
    float32 = jax.numpy.float32
    return jax.ShapeDtypeStruct((32, 784), float32), jax.ShapeDtypeStruct((784, 10), float32)


def test_plain_jitted_lowered_and_compiled_are_one():
    lowered = jax.jit(dense).lower(*shapes())
    plain = predict_function(dense, *shapes(), device="TPU v4")
    assert predict_function(jax.jit(dense), *shapes(), device="TPU v4") == plain
    assert predict_function(lowered.compile(), device="TPU v4") == plain
    assert predict_function(lowered, device="TPU v4").kernels == plain.kernels
    assert plain.time_ps > 0


def test_what_is_not_optimised_is_compiled_first_and_said():
    lowered = jax.jit(dense).lower(*shapes())
    plain = predict_function(lowered, device="TPU v4")
    texts = [lowered.as_text().encode(), lowered.as_text("hlo").encode()]
    for found in predict_kernel_times(texts, "TPU v4"):
        assert found.kernels == plain.kernels
        assert found.notes[0] == "HLO was not optimised; it was compiled here, for the CPU"


def test_a_function_is_not_run():
    def noisy(x):
        jax.debug.callback(lambda value: pytest.fail("it ran"), x)
        return x * 2.0

    assert predict_function(noisy, shapes()[0], device="TPU v4").kernels


def test_what_is_no_function_is_refused():
    with pytest.raises(UsageError, match="is a int; expected a function"):
        predict_function(3, device="TPU v4")
    with pytest.raises(UsageError, match="takes arguments"):
        predict_function(dense, device="TPU v4")
