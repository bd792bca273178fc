"""Where operands lie, against distances worked out by hand."""

from hlo_texts import module_of_text

from phasepoint.learn.hlo_graph.kernels import kernels_of_module
from phasepoint.learn.hlo_graph.locality import LOCALITY_NAMES, UNPLACED, place_of

KB = 1024

CHAIN = """HloModule m, is_scheduled=true
ENTRY main { p = f32[256]{0} parameter(0)
  big = f32[65536]{0} parameter(1)
  a = f32[256]{0} negate(p)
  far = f32[65536]{0} exponential(big)
  b = f32[256]{0} abs(a)
  ROOT r = (f32[256]{0}, f32[65536]{0}) tuple(b, far) }
"""


def localities(text):
    kernels = kernels_of_module(module_of_text(text)).kernels
    return {kernel.name: dict(zip(LOCALITY_NAMES, kernel.locality, strict=True)) for kernel in kernels}


def test_what_was_touched_in_between_is_the_distance():
    found = localities(CHAIN)
    # between a and b the exponential reads and writes 256 KB each: 512 KB, and the 1 KB itself
    assert found["b"]["read_within_2048k_bytes"] == 1 * KB
    assert found["b"]["read_within_512k_bytes"] == 0
    assert found["a"]["footprint_bytes"] == (2 + 2) * KB + 512 * KB


def test_parameters_are_as_far_as_the_whole_program():
    found = localities(CHAIN)
    assert found["a"]["read_within_2048k_bytes"] == 1 * KB
    short = localities(CHAIN.replace("65536", "256"))
    assert short["a"]["read_within_32k_bytes"] == 1 * KB


def test_results_of_the_program_are_told():
    found = localities(CHAIN)
    assert {name: row["result_bytes"] for name, row in found.items()} == {"a": 0, "far": 256 * KB, "b": 1 * KB}


def test_freed_memory_is_used_again():
    text = """HloModule m, is_scheduled=true
ENTRY main { p = f32[256]{0} parameter(0)
  big = f32[65536]{0} parameter(1)
  a = f32[256]{0} negate(p)
  b = f32[256]{0} abs(a)
  c = f32[256]{0} sine(b)
  far = f32[65536]{0} exponential(big)
  d = f32[256]{0} cosine(c)
  ROOT r = (f32[256]{0}, f32[65536]{0}) tuple(d, far) }
"""
    found = localities(text)
    assert found["c"]["written_within_32k_bytes"] == 1 * KB  # where `a` was, which nobody needs any more
    assert found["far"]["written_within_512k_bytes"] == 256 * KB  # its own memory, a run ago


def test_a_kernel_without_a_program_has_no_place():
    assert UNPLACED[LOCALITY_NAMES.index("is_placed")] == 0
    assert len(UNPLACED) == len(LOCALITY_NAMES)


def test_a_place_is_where_most_bytes_lie():
    row = dict.fromkeys(LOCALITY_NAMES, 0.0) | {"read_within_512k_bytes": 9.0, "written_within_far_bytes": 1.0}
    assert place_of(tuple(row.values())) == (2, 6)


FREED = """HloModule m, is_scheduled=true
ENTRY main { p = f32[1024]{0} parameter(0)
  q = f32[4096]{0} parameter(1)
  r = f32[1024]{0} parameter(2)
  a = f32[1024]{0} negate(p)
  b = f32[4096]{0} negate(q)
  c = f32[] custom-call(a, b), custom_call_target="sum"
  d = f32[1024]{0} broadcast(c), dimensions={}
  e = f32[4096]{0} broadcast(c), dimensions={}
  ROOT s = f32[] custom-call(d, e, r), custom_call_target="sum" }
"""


def test_the_same_program_has_the_same_localities_wherever_it_lies_in_memory():
    """Arrays that are freed at one time are used again in the order in which they were read."""
    kept, found = [], set()
    for number in range(20):
        kept.append([object() for _ in range(37 * number)])  # instructions at other addresses
        module = module_of_text(FREED)
        kept.append(module)
        found.add(tuple(kernel.locality for kernel in kernels_of_module(module).kernels))
    assert len(found) == 1
