"""A small JAX job recorded by the test itself: several threads, a scan, a parallel convolution, queues."""

import functools

WARM_STEPS, STEPS = 4, 12


@functools.cache
def record(*, wait_each_step):
    import jax
    import jax.numpy as jnp
    from jax._src.lib import _profiler

    def train(p, x):
        y, _ = jax.lax.scan(lambda c, _: (jnp.tanh(c @ p), None), x, None, length=4)
        z = jax.lax.conv_general_dilated(
            y.reshape(16, 16, 16, 4), jnp.ones((3, 3, 4, 8)), (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        return p - 1e-3 * jax.grad(lambda q: (jnp.tanh(x @ q) ** 2).sum())(p), z.sum()

    step, other = jax.jit(train), jax.jit(lambda x: jnp.sort(x, axis=0).sum())
    p, x = jnp.ones((64, 64)) * 0.01, jnp.ones((256, 64))
    p, loss = step(p, x)
    jax.block_until_ready((p, loss, other(x)))
    options = _profiler.ProfileOptions()
    options.python_tracer_level, options.host_tracer_level = 0, 2
    for _ in range(WARM_STEPS):
        p, loss = step(p, x)
    session = _profiler.ProfilerSession(options)
    for k in range(STEPS):
        with jax.profiler.StepTraceAnnotation("phasepoint.step", step_num=100 + k):
            p, loss = step(p, x)
            if k % 3 == 0:
                other(x)
            if wait_each_step or k == 7:
                loss.block_until_ready()
    jax.block_until_ready((p, loss))
    return session.stop()


@functools.cache
def record_twice():
    """Two captures of one program; only the first carries it."""
    import jax
    import jax.numpy as jnp
    from jax._src.lib import _profiler

    @jax.jit
    def forward(x):
        with jax.named_scope("Encoder"):
            return jnp.tanh(x @ x).sum()

    x = jnp.ones((64, 64))
    forward(x).block_until_ready()
    captures = []
    for with_programs in (True, False):
        options = _profiler.ProfileOptions()
        options.python_tracer_level, options.host_tracer_level, options.enable_hlo_proto = 0, 2, with_programs
        session = _profiler.ProfilerSession(options)
        for k in range(3):
            with jax.profiler.StepTraceAnnotation("phasepoint.step", step_num=k):
                forward(x).block_until_ready()
        captures.append(session.stop())
    return tuple(captures)
