"""Kernels of programs that JAX compiles: their work adds up to what XLA's own cost analysis says of the program."""

import pytest

from phasepoint.hlo.cost import cost_of_module
from phasepoint.hlo.module import parse_module_proto
from phasepoint.learn.hlo_graph.graphs import graph_of_kernel
from phasepoint.learn.hlo_graph.kernels import kernels_of_module

pytestmark = pytest.mark.jax


def compiled(function, *shapes):
    import jax

    shapes = [jax.ShapeDtypeStruct(shape, "float32") for shape in shapes]
    executable = jax.jit(function).lower(*shapes).compile()
    data = executable.runtime_executable().hlo_modules()[0].as_serialized_hlo_module_proto()
    return parse_module_proto(data), executable.cost_analysis()


def network(x, w, k):
    import jax
    import jax.numpy as jnp

    hidden = jax.nn.gelu(x @ w)
    normed = jax.nn.softmax(hidden, axis=-1) / (1e-5 + jnp.sqrt(jnp.mean(hidden * hidden, axis=0)))
    image = normed.reshape(4, 4, 4, -1)
    out = jax.lax.conv_general_dilated(image, k, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    return jnp.tanh(out).sum(axis=(1, 2)), normed.T


def test_parts_add_up_to_the_compilers_own_total():
    module, analysis = compiled(network, (64, 32), (32, 16), (3, 3, 16, 8))
    graphs = [graph_of_kernel(kernel) for kernel in kernels_of_module(module).kernels]
    assert sum(graph.feature("flop") for graph in graphs) == analysis["flops"]
    assert sum(graph.feature("transcendentals") for graph in graphs) == analysis["transcendentals"]
    moved = sum(graph.feature("bytes_read") + graph.feature("bytes_written") for graph in graphs)
    free = cost_of_module(module).total.bytes - moved  # what runs nothing: the entry's tuple, which XLA counts
    assert 0 <= free <= 8 * len(module.entry.root.operands)
    assert {"dot", "convolution"} <= {graph.kind for graph in graphs}
    assert all(graph.notes == () for graph in graphs)


def test_a_loop_runs_its_kernels_as_often_as_it_turns():
    import jax

    def scanned(x):
        return jax.lax.scan(lambda c, _: (c @ x, None), x, None, length=7)[0]

    module, _ = compiled(scanned, (16, 16))
    products = [kernel for kernel in kernels_of_module(module).kernels if graph_of_kernel(kernel).kind == "dot"]
    assert [kernel.executions for kernel in products] == [7]


def test_the_same_function_has_the_same_fingerprints():
    first, second = (compiled(network, (64, 32), (32, 16), (3, 3, 16, 8))[0] for _ in range(2))
    other = compiled(network, (64, 48), (48, 16), (3, 3, 16, 8))[0]
    prints = [[kernel.fingerprint for kernel in kernels_of_module(module).kernels] for module in (first, second, other)]
    assert prints[0] == prints[1]
    assert prints[0] != prints[2]
    assert len(set(prints[0]) & set(prints[2])) == len(set(prints[0])) - 1  # only the product reads another shape
