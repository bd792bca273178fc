"""Tuning data in TpuGraphs' format, made from kernels in HLO text and times by a rule."""

from hlo_texts import proto_of_text

from phasepoint.hlo.schema import load_schema

PRODUCT = """HloModule product
fused {{ x = f32[{m},{k}]{{1,0:T(8,128)}} parameter(0)
  w = f32[{k},{n}]{{1,0:T(8,128)}} parameter(1)
  ROOT c = f32[{m},{n}]{{1,0:T(8,128)}} convolution(x, w), dim_labels=bf_io->bf }}
ENTRY main {{ x = f32[{m},{k}]{{1,0:T(8,128)}} parameter(0)
  w = f32[{k},{n}]{{1,0:T(8,128)}} parameter(1)
  ROOT f = f32[{m},{n}]{{1,0:T(8,128)}} fusion(x, w), kind=kOutput, calls=fused }}
"""
SUM = """HloModule sum{n}
fused {{ x = f32[{m},{n}]{{1,0:T(8,128)}} parameter(0)
  y = f32[{m},{n}]{{1,0:T(8,128)}} parameter(1)
  ROOT s = f32[{m},{n}]{{1,0:T(8,128)}} add(x, y) }}
ENTRY main {{ x = f32[{m},{n}]{{1,0:T(8,128)}} parameter(0)
  y = f32[{m},{n}]{{1,0:T(8,128)}} parameter(1)
  ROOT f = f32[{m},{n}]{{1,0:T(8,128)}} fusion(x, y), kind=kLoop, calls=fused }}
"""


def tuning_data(modules):
    """A `TuningData` message of (HLO text, runs); a run is (kernel bounds, output bounds, time in ns, is default)."""
    data = load_schema("tpu_graphs")["TuningData"]()
    for text, runs in modules:
        module = data.modules.add(module=proto_of_text(text))
        for kernel, output, time_ns, default in runs:
            run = module.runs.add(is_default=default, error=time_ns is None)
            run.op_config.tile_size_config.kernel_bounds.extend(kernel)
            run.op_config.tile_size_config.output_bounds.extend(output)
            run.profile.compute_time_ns = time_ns or 0
    return data.SerializeToString()


def sums(count=4):
    """Element-wise kernels whose tiles cost 1 µs an iteration and 10 ns for each 4 KiB register of a tile, moved once.

    The largest tile has the fewest iterations, the smallest the least that is exposed; the best lies between.
    """
    modules = []
    for place in range(count):
        m, n = 64 << place, 1024
        rows, columns = m // 8, n // 128
        runs = []
        for tall in (1, 2, 4, rows // 2, rows):
            for wide in (1, 2, columns):
                iterations = -(-rows // tall) * -(-columns // wide)
                time_ns = 1000 * iterations + 30 * rows * columns + 30 * tall * wide
                runs.append(((), (tall, wide), time_ns, tall == 1 and wide == 1))
        modules.append((SUM.format(m=m, n=n), runs))
    return modules
