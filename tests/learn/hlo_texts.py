"""Programs for the tests of the featuriser, written as HLO text; jaxlib's parser turns them into protos."""

from phasepoint.hlo.module import Module, parse_module


def module_of_text(text: str) -> Module:
    """The module that a text says."""
    return parse_module(wrap_module(proto_of_text(text)))


def proto_of_text(text: str) -> bytes:
    """A serialised HloModuleProto."""
    from jaxlib import _hlo

    return _hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto()


def wrap_module(module: bytes) -> bytes:
    """HloModuleProto → HloProto: the module is its field 1."""
    size, prefix = len(module), bytearray(b"\x0a")
    while size > 127:
        prefix.append(size & 127 | 128)
        size >>= 7
    prefix.append(size)
    return bytes(prefix) + module


SOFTMAX = """HloModule softmax
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b) }
fused { p = f32[8,16]{1,0} parameter(0)
  m = f32[8]{0} parameter(1)
  mb = f32[8,16]{1,0} broadcast(m), dimensions={0}
  d = f32[8,16]{1,0} subtract(p, mb)
  e = f32[8,16]{1,0} exponential(d)
  zero = f32[] constant(0)
  ROOT r = f32[8]{0} reduce(e, zero), dimensions={1}, to_apply=add }
ENTRY main { x = f32[8,16]{1,0} parameter(0)
  y = f32[8]{0} parameter(1)
  ROOT softmax_fusion = f32[8]{0} fusion(x, y), kind=kLoop, calls=fused }
"""

LOOPS = """HloModule loops
body { p = (s32[], f32[4,4]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[4,4] get-tuple-element(p), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  y = f32[4,4] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT t = (s32[], f32[4,4]) tuple(next, y) }
cond { p = (s32[], f32[4,4]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(5)
  ROOT less = pred[] compare(i, n), direction=LT }
left { a = f32[4,4] parameter(0)
  ROOT l = f32[4,4] exponential(a) }
right { a = f32[4,4] parameter(0)
  ROOT r = f32[4,4] negate(a) }
ENTRY main { x = f32[4,4] parameter(0)
  c = pred[] parameter(1)
  zero = s32[] constant(0)
  start = (s32[], f32[4,4]) tuple(zero, x)
  known = (s32[], f32[4,4]) while(start), condition=cond, body=body,
    backend_config={"known_trip_count":{"n":"5"}}
  z = f32[4,4] get-tuple-element(known), index=1
  b = f32[4,4] conditional(c, z, z), true_computation=left, false_computation=right
  ROOT copied = f32[4,4]{0,1} copy(b) }
"""
