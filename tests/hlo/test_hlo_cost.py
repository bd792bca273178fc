"""Cost of HLO programs against XLA's own `cost_analysis()`, and against brute force where XLA has no say."""

import json

import pytest
from hlo_programs import Builder, compiled, wrap_module
from hypothesis import given
from hypothesis import strategies as st

from phasepoint.hlo.schema import load_schema
from phasepoint.hlo.work import valid_positions
from phasepoint.sources.events.programs import read_programs

X, W = (8, 14, 14, 8), (3, 3, 8, 16)


def read_one(data):
    (row,) = read_programs({7: data}, window=0).programs.to_pylist()
    return row


def counts(row):
    return row["flop"], row["bytes"], row["transcendentals"]


def battery():
    import jax
    import jax.numpy as jnp
    from jax import lax

    def f(*dims, dtype="float32"):
        return jax.ShapeDtypeStruct(dims, dtype)

    def i(*dims):
        return f(*dims, dtype="int32")

    def conv(stride=1, padding="SAME", spread=1, dilation=1, groups=1):
        def apply(x, w):
            return lax.conv_general_dilated(
                x,
                w,
                (stride, stride),
                padding,
                lhs_dilation=(spread, spread),
                rhs_dilation=(dilation, dilation),
                feature_group_count=groups,
                dimension_numbers=("NHWC", "HWIO", "NHWC"),
            )

        return apply

    def grad(function):
        return lambda *a: jax.grad(lambda *b: (function(*b) ** 2).sum(), argnums=tuple(range(len(a))))(*a)

    def pool(x):
        return lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")

    def attention(q, k, v):
        return jax.nn.softmax(jnp.einsum("bhid,bhjd->bhij", q, k) / 8) @ v

    def normalise(x):
        return (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-6)

    def move_rows(x, i):
        return lax.dynamic_update_slice(x, lax.dynamic_slice(x, (i, 0), (4, 32)), (0, i))

    def transcend(x):
        return jnp.sin(x) + jnp.log1p(x) * lax.erf(x) + jax.nn.gelu(x) + x**2.5 + jnp.cbrt(x)

    x, w, heads = f(*X), f(*W), f(2, 4, 16, 8)
    return {
        "dense": (lambda x, w, b: jnp.maximum(x @ w + b, 0), f(32, 64), f(64, 128), f(128)),
        "batched dot": (lambda a, b: jnp.einsum("bij,bjk->bik", a, b), f(4, 16, 32), f(4, 32, 8)),
        "convolution": (conv(), x, w),
        "strided convolution": (conv(stride=2, padding="VALID"), x, w),
        "dilated convolution": (conv(dilation=2), x, w),
        "transposed convolution": (conv(spread=2, padding=((1, 2), (1, 2))), x, w),
        "grouped convolution": (conv(groups=4), x, f(3, 3, 2, 16)),
        "backward convolution": (grad(conv(stride=2)), x, w),
        "softmax": (jax.nn.softmax, f(64, 128)),
        "layer norm": (normalise, f(64, 32)),
        "attention": (attention, heads, heads, heads),
        "conditional": (lambda p, x: lax.cond(p, lambda x: x @ x, jnp.tanh, x), f(dtype="bool"), f(16, 16)),
        "reductions": (lambda x: (x.sum(0), x.max(1), jnp.prod(x)), f(64, 32)),
        "argmax": (lambda x: jnp.argmax(x, -1), f(64, 32)),
        "gather": (lambda t, i: t[i], f(1000, 32), i(64)),
        "scatter": (lambda t, i, u: t.at[i].add(u), f(1000, 32), i(64), f(64, 32)),
        "embedding backward": (lambda t, i: jax.grad(lambda t: (t[i] ** 2).sum())(t), f(1000, 32), i(64)),
        "argsort": (jnp.argsort, f(1000)),
        "cumulative sum": (lambda x: jnp.cumsum(x, 1), f(64, 100)),
        "max pool and back": (grad(pool), x),
        "dynamic slices": (move_rows, f(64, 32), i()),
        "transcendentals": (transcend, f(64, 32)),
        "random bits": (lambda k: lax.rng_bit_generator(k, (64, 32)), f(4, dtype="uint32")),
        "fourier": (jnp.fft.rfft2, f(4, 32, 64)),
        "large constant": (lambda x: x + jnp.linspace(0, 1, 2048).reshape(64, 32), f(64, 32)),
        "identity": (lambda x: x, f(3)),
        "convolutional net": training_step(convolutional_net(), f(8, 28, 28, 1), i(8)),
        "transformer": training_step(transformer(), i(4, 16), i(4, 16)),
    }  # fmt: skip


def convolutional_net():
    from flax import linen as nn

    class Net(nn.Module):
        @nn.compact
        def __call__(self, x):
            x = nn.avg_pool(nn.relu(nn.Conv(16, (3, 3))(x)), (2, 2), (2, 2))
            x = nn.max_pool(nn.relu(nn.Conv(32, (3, 3), strides=2)(x)), (2, 2), (2, 2))
            return nn.Dense(10)(x.mean((1, 2)))

    return Net()


def transformer():
    from flax import linen as nn

    class TraceBlock(nn.Module):
        @nn.compact
        def __call__(self, x):
            h = nn.LayerNorm()(x)
            x = x + nn.MultiHeadDotProductAttention(4)(h, h)
            return x + nn.Dense(32)(nn.gelu(nn.Dense(64)(nn.LayerNorm()(x))))

    class Transformer(nn.Module):
        @nn.compact
        def __call__(self, tokens):
            x = nn.Embed(100, 32)(tokens)
            return nn.Dense(100)(nn.remat(TraceBlock)()(x))

    return Transformer()


def training_step(model, x, y):
    import jax
    import optax

    optimizer = optax.adam(1e-3)
    params = jax.eval_shape(model.init, jax.random.key(0), x)
    state = jax.eval_shape(optimizer.init, params)

    def step(params, state, x, y):
        def loss(params):
            return optax.softmax_cross_entropy_with_integer_labels(model.apply(params, x), y).mean()

        value, gradient = jax.value_and_grad(loss)(params)
        updates, state = optimizer.update(gradient, state, params)
        return optax.apply_updates(params, updates), state, value

    return step, params, state, x, y


@pytest.mark.jax
def test_counts_equal_xla_s_own():
    """flop, bytes and transcendentals: equal, not near."""
    pytest.importorskip("flax")
    differing = {}
    for name, (function, *args) in battery().items():
        data, truth, _ = compiled(function, *args)
        expected = tuple(truth.get(key, 0) for key in ("flops", "bytes accessed", "transcendentals"))
        if counts(read_one(data)) != expected:
            differing[name] = (counts(read_one(data)), expected)
        assert read_one(data)["notes"] is None, name
    assert differing == {}


@pytest.mark.jax
def test_a_loop_counts_as_often_as_it_runs():
    """XLA's own analysis counts a loop's body once; here the trip count that the compiler found multiplies it."""
    jax = pytest.importorskip("jax")
    import jax.numpy as jnp

    weights = jax.ShapeDtypeStruct((64, 64), "float32")

    def repeat(n):
        return lambda x, w: jax.lax.scan(lambda c, _: (jnp.tanh(c @ w), None), x, None, length=n)[0]

    data, once, _ = compiled(repeat(10), weights, weights)
    row = read_one(data)
    assert row["notes"] is None
    assert row["transcendentals"] == 10 * once["transcendentals"] == 10 * 64 * 64
    dots_flop = 10 * 2 * 64**3
    assert dots_flop <= row["flop"] < 1.001 * dots_flop
    more = read_one(compiled(repeat(20), weights, weights)[0])
    assert more["flop"] - row["flop"] == pytest.approx(once["flops"] * 10, rel=1e-3)

    forever = lambda x: jax.lax.while_loop(lambda c: c.sum() < 1e9, lambda c: c * 2 + 1, x)  # noqa: E731
    data, once, _ = compiled(forever, weights)
    row = read_one(data)
    assert row["flop"] == once["flops"]
    assert row["notes"] == "a while loop with unknown trip count is counted as one iteration"


@pytest.mark.jax
def test_what_a_custom_call_does_is_not_known():
    """`cost_analysis()` adds -1 for each; here the count is null and a note names the target."""
    jax = pytest.importorskip("jax")
    data, truth, _ = compiled(lambda x: jax.lax.top_k(x, 5)[0] * 2, jax.ShapeDtypeStruct((64, 100), "float32"))
    tables = read_programs({7: data}, window=0)
    (row,) = tables.programs.to_pylist()
    assert truth["flops"] == 64 * 5 - 1
    assert row["flop"] == 64 * 5
    assert row["notes"] == "operations of custom call 'TopK' are not known"
    (call,) = [r for r in tables.instructions.to_pylist() if r["opcode"] == "custom-call"]
    assert (call["flop"], call["transcendentals"]) == (None, None)
    assert call["bytes"] == 64 * 100 * 4 + 64 * 5 * 8


def contracting(dim):
    return {"dot_dimension_numbers": {"lhs_contracting_dimensions": [str(dim)]}}


@pytest.mark.parametrize(
    ("target", "config", "flop"),
    [
        ("__cublas$gemm", {"gemm_backend_config": contracting(1)}, 2 * 8 * 4 * 16),
        ("__cublas$lt$matmul", contracting(0), 2 * 8 * 4 * 8),
        ("__onednn$matmul", {"onednn_matmul_config": {}}, 2 * 8 * 4 * 16),
        ("__cublas$gemm", {}, None),
        ("__cublas$gemm", contracting(9), None),
        ("Sharding", {}, 0),
        ("my_kernel", {}, None),
    ],
)  # fmt: skip
def test_matrix_products_by_library_call(target, config, flop):
    module = Builder()
    entry = module.computation("main")
    lhs = module.add(entry, "parameter", (8, 16))
    rhs = module.add(entry, "parameter", (16, 4), parameter_number=1)
    wire = json.dumps(config).encode()
    module.add(entry, "custom-call", (8, 4), [lhs, rhs], custom_call_target=target, backend_config=wire)
    instructions = read_programs({1: module.bytes()}, window=0).instructions.to_pylist()
    assert instructions[-1]["flop"] == flop
    assert (read_one(module.bytes())["notes"] is None) == (flop is not None)


def test_library_convolutions_are_counted_as_the_forward_one():
    """Forward, backward to the input and to the filter of one convolution do the same multiplications."""
    image, kernel, result = (2, 8, 8, 3), (3, 3, 3, 5), (2, 6, 6, 5)
    flop = 2 * 2 * 6 * 6 * 3 * 3 * 3 * 5
    for target, shapes in {
        "__cudnn$convForward": (image, kernel, result),
        "__cudnn$convBackwardInput": (result, kernel, image),
        "__cudnn$convBackwardFilter": (image, result, kernel),
    }.items():
        module = Builder()
        entry = module.computation("main")
        operands = [module.add(entry, "parameter", dims, parameter_number=i) for i, dims in enumerate(shapes[:2])]
        call = module.add(entry, "custom-call", [shapes[2], (64,)], operands, custom_call_target=target)
        for size in (3, 3):
            call.window.dimensions.add(size=size, stride=1, window_dilation=1, base_dilation=1)
        numbers = call.convolution_dimension_numbers
        numbers.input_feature_dimension = numbers.output_feature_dimension = 3
        for spatial in (numbers.input_spatial_dimensions, numbers.output_spatial_dimensions):
            spatial.extend((1, 2))
        numbers.kernel_spatial_dimensions.extend((0, 1))
        assert read_one(module.bytes())["flop"] == flop, target


def test_collectives_and_triangles():
    module = Builder()
    add = module.computation("add")
    x = module.add(add, "parameter", ())
    module.add(add, "add", (), [x, x])
    main = module.computation("main")
    x = module.add(main, "parameter", (4, 8, 8))
    start = module.add(main, "all-reduce-start", (4, 8, 8), [x], called_computation_ids=[add.id])
    done = module.add(main, "all-reduce-done", (4, 8, 8), [start])
    module.add(main, "cholesky", (4, 8, 8), [done])
    b = module.add(main, "slice", (4, 8, 2), [done])
    module.add(main, "triangular-solve", (4, 8, 2), [x, b])
    rows = {row["opcode"]: row for row in read_programs({1: module.bytes()}, window=0).instructions.to_pylist()}
    size, part = 4 * 8 * 8 * 4, 4 * 8 * 2 * 4
    assert (rows["all-reduce-start"]["flop"], rows["all-reduce-start"]["bytes"]) == (256, 2 * size)
    assert (rows["cholesky"]["flop"], rows["cholesky"]["bytes"]) == (8 * 256 // 3, size)
    assert (rows["slice"]["flop"], rows["slice"]["bytes"]) == (0, 2 * part)
    assert (rows["triangular-solve"]["flop"], rows["triangular-solve"]["bytes"]) == (2 * 8 * 64, size // 2 + 2 * part)
    assert {rows[name]["category"] for name in ("all-reduce-start", "all-reduce-done")} == {"communication"}


@given(
    st.integers(1, 12), st.integers(1, 6), st.integers(1, 12),
    st.integers(1, 4), st.integers(1, 4), st.integers(1, 4), st.integers(-3, 8),
)  # fmt: skip
def test_positions_of_a_window_by_brute_force(inputs, kernel, outputs, stride, dilation, spread, low):
    window = load_schema("hlo")["WindowDimension"](
        size=kernel, stride=stride, padding_low=low, window_dilation=dilation, base_dilation=spread
    )
    places = [o * stride + k * dilation - low for o in range(outputs) for k in range(kernel)]
    inside = [place for place in places if place % spread == 0 and 0 <= place // spread < inputs]
    assert valid_positions(window, inputs, kernel, outputs) == len(inside)


@pytest.mark.jax
def test_counts_of_programs_before_optimisation():
    """Unfused modules have opcodes of their own (calls, tuples of sorts, loops): flop as XLA counts them."""
    jax = pytest.importorskip("jax")
    import jax.numpy as jnp

    def function(x):
        order = jnp.argsort(x, axis=1)
        total = jax.lax.fori_loop(0, 5, lambda i, c: c + jnp.cumsum(x, 1) * i, x)
        return jax.nn.softmax(total), order, jnp.var(x), jax.nn.relu(x) @ x.T

    lowered = jax.jit(function).lower(jax.ShapeDtypeStruct((8, 32), "float32"))
    module = lowered.compiler_ir("hlo").as_serialized_hlo_module_proto()
    row, truth = read_one(wrap_module(module)), lowered.cost_analysis()
    assert row["flop"] == truth["flops"]
    assert row["transcendentals"] == truth["transcendentals"]
