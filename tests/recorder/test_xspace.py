"""How much of a capture is programs: against the schema, and of captures that JAX makes."""

from pathlib import Path

import pytest

from phasepoint.recorder.profilers.xspace import program_bytes

SCHEMA = Path(__file__).parents[1] / "sources"


@pytest.fixture
def space(monkeypatch):
    monkeypatch.syspath_prepend(str(SCHEMA))
    from xplane_schema.messages import XSpace

    return XSpace()


def test_the_plane_of_programs_is_found_among_others(space):
    for number, name in enumerate(("/host:CPU", "/host:metadata", "/device:GPU:0")):
        plane = space.planes.add(id=number * 1000, name=name)
        plane.lines.add(name="x" * 5000).events.add(offset_ps=1, duration_ps=2)
    assert program_bytes(space.SerializeToString()) == space.planes[1].ByteSize()


@pytest.mark.parametrize(
    "data", [b"", b"\x08\x01", b"capture", b"\x0a\xff\xff\xff\xff\x0f", b"\x0a\x00", b"\x0a\x02\x08\x01"]
)
def test_other_bytes_hold_none(data):
    assert program_bytes(data) == 0


@pytest.mark.jax
@pytest.mark.parametrize("with_programs", [True, False])
def test_of_a_capture_of_jax(space, with_programs):
    import jax
    import jax.numpy as jnp

    from phasepoint.recorder.profilers.jax import JaxSession

    session, step = JaxSession(), jax.jit(lambda x: jnp.tanh(x @ x).sum())
    step(jnp.ones((32, 32))).block_until_ready()
    session.start(with_programs=with_programs)
    step(jnp.ones((32, 32))).block_until_ready()
    data = session.stop()()
    space.ParseFromString(data)
    sizes = [plane.ByteSize() for plane in space.planes if plane.name == "/host:metadata"]
    assert program_bytes(data) == sum(sizes)
    assert bool(sum(sizes) > 1000) is with_programs
