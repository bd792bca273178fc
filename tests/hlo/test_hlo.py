import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hlo_programs import Builder, compiled
from hypothesis import given, settings
from hypothesis import strategies as st

from phasepoint.core.errors import SourceError
from phasepoint.core.tables import validate_table
from phasepoint.hlo.layers import direction_of_op_name, directions_of_module, layer_of_op_name
from phasepoint.hlo.module import decode_module, parse_module
from phasepoint.hlo.schema import load_schema
from phasepoint.hlo.shapes import read_shape
from phasepoint.sources.events.programs import read_programs


@pytest.mark.parametrize(
    ("op_name", "layer"),
    [
        ("jit(step)/jvp(M)/Conv_0/conv_general_dilated", "M/Conv_0"),
        ("jit(step)/transpose(jvp(M))/Conv_0/conv_general_dilated", "M/Conv_0"),
        ("jit(step)/jit(main)/jvp(M)/Conv_0/conv_general_dilated[window_strides=(1, 1) padding=a/b]", "M/Conv_0"),
        ("jit(step)/transpose(jvp(TF))/jvp(TF)/checkpoint/rematted_computation/Block_1/key/add", "TF/Block_1/key"),
        ("jit(step)/transpose(jvp(TF))/jvp(TF)/checkpoint/Block_0/Dense_0/dot_general", "TF/Block_0/Dense_0"),
        ("jit(step)/jvp(TF)/Attention_0/...hqk,...khd->...qhd/dot_general", "TF/Attention_0"),
        ("jit(step)/jvp(TF)/Embed_0/jit(_take)/jit(_where)/select_n", "TF/Embed_0"),
        ("jit(f)/jvp()/while/body/closed_call/cell/tanh", "cell"),
        ("jit(f)/jvp()/while/body/eval_jaxpr/attention/vmap()/reduce_max", "attention"),  # JAX 0.11
        ("jit(f)/vmap(enc)/linear_0/dot_general", "enc/linear_0"),
        ("jit(f)/vmap(transpose(jvp(enc/linear_0)))/dot_general", "enc/linear_0"),
        ("jit(f)/cond/branch_1_fun/head/add", "head"),
        ("jit(f)/shard_map/encoder/mul", "encoder"),
        ("pmap(f)/net/~/linear/dot_general", "net/~/linear"),
        ("jit(step)/jvp(jit(relu))/max", None),
        ("jit(step)/transpose(jvp())/mul", None),
        ("jit(step)/add", None),
        ("p['net/linear']['w']", None),
        ("o[0].mu['params']['Conv_0']['bias']", None),
        ("reduce_sum", None),
        ("", None),
        ("///", None),
    ],
)
def test_layer_of_op_name(op_name, layer):
    assert layer_of_op_name(op_name) == layer


@pytest.mark.parametrize(
    ("op_name", "direction"),
    [
        ("jit(step)/jvp(M)/Conv_0/conv_general_dilated", "forward"),
        ("jit(step)/transpose(jvp(M))/Conv_0/conv_general_dilated", "backward"),
        ("jit(step)/transpose(jvp(bsd,de->bse))/dot_general", "backward"),
        ("jit(step)/transpose(jvp(TF))/jvp(TF)/checkpoint/rematted_computation/add", "backward"),
        ("jit(step)/M/Conv_0/transpose", None),
        ("", None),
        (None, None),
    ],
)
def test_direction_of_op_name(op_name, direction):
    assert direction_of_op_name(op_name) == direction


@given(st.text(alphabet="ab/()[]_'", max_size=30))
def test_any_name_has_a_layer_or_none(op_name):
    layer = layer_of_op_name(op_name)
    assert layer is None or layer


def test_shapes_read_as_hlo_writes_them():
    shape = load_schema("hlo")["ShapeProto"]
    tile = load_schema("hlo")["TileProto"]
    matrix = shape(element_type=16, dimensions=[256, 1024])
    matrix.layout.minor_to_major.extend((1, 0))
    assert read_shape(matrix).text == "bf16[256,1024]{1,0}"
    assert (read_shape(matrix).elements, read_shape(matrix).size_bytes) == (2**18, 2**19)
    matrix.layout.tiles.extend((tile(dimensions=[8, 128]), tile(dimensions=[2, 1])))
    matrix.layout.memory_space = 1
    assert read_shape(matrix).text == "bf16[256,1024]{1,0:T(8,128)(2,1)S(1)}"
    packed = shape(element_type=21, dimensions=[3])
    packed.layout.minor_to_major.append(0)
    packed.layout.element_size_in_bits = 4
    assert (read_shape(packed).text, read_shape(packed).size_bytes) == ("s4[3]{0:E(4)}", 2)
    both = shape(element_type=13, tuple_shapes=[matrix, shape(element_type=4), shape(element_type=17)])
    assert read_shape(both).text == "(bf16[256,1024]{1,0:T(8,128)(2,1)S(1)}, s32[], token[])"
    assert (read_shape(both).size_bytes, len(read_shape(both).leaves())) == (24, 3)
    assert read_shape(shape(element_type=99)).text == "type99[]"


def classifier():
    """A linen network with a convolution, a dense layer and a transpose of its own."""
    import jax
    from flax import linen as nn

    class Net(nn.Module):
        @nn.compact
        def __call__(self, x):
            x = nn.relu(nn.Conv(4, (3, 3))(x)).mean((1, 2))
            with jax.named_scope("head"):
                return nn.Dense(10)(x)

    net, x = Net(), jax.ShapeDtypeStruct((2, 8, 8, 1), "float32")
    params = jax.eval_shape(net.init, jax.random.key(0), x)

    def step(params, x):
        return jax.grad(lambda params: (net.apply(params, x) ** 2).sum())(params)

    return step, params, x


@pytest.mark.jax
def test_a_real_program_row_by_row():
    pytest.importorskip("flax")
    data, truth, executable = compiled(*classifier())
    tables = read_programs({11: data}, window=5)
    validate_table("programs", tables.programs)
    validate_table("instructions", tables.instructions)
    (program,) = tables.programs.to_pylist()
    rows = tables.instructions.to_pylist()
    text = executable.as_text()
    assert (program["program"], program["name"], program["first_window"]) == (11, "jit_step", 5)
    assert program["instructions"] == len(rows) == text.count(" = ")
    assert program["flop"] == truth["flops"]
    for row in rows:
        root = "ROOT " if row["is_root"] else ""
        assert f"{root}%{row['op']} = {row['shape']} {row['opcode']}(" in text
    layers = {row["layer"] for row in rows if row["opcode"] in ("convolution", "dot")}
    assert layers == {"Net/Conv_0", "Net/head/Dense_0"}  # also of the filter's gradient, which XLA leaves nameless
    backward = [row for row in rows if "transpose(" in (row["op_name"] or "") and row["opcode"] == "dot"]
    assert {row["layer"] for row in backward} == {"Net/head/Dense_0"}
    entry = [row for row in rows if row["is_entry"]]
    assert sum(row["flop"] for row in entry) == program["flop"]
    assert sum(row["bytes"] for row in entry) == program["bytes"]
    fusions = [row for row in entry if row["opcode"] == "fusion"]
    assert all(row["calls"] and row["operands"] for row in fusions)
    assert {row["source_file"] for row in rows if row["opcode"] == "convolution"} != {None}
    assert all(row["source_line"] > 0 for row in rows if row["source_file"])


@pytest.mark.jax
def test_plain_functions_have_no_layer_and_named_scopes_have():
    jax = pytest.importorskip("jax")
    x = jax.ShapeDtypeStruct((8, 8), "float32")

    def scoped(x):
        with jax.named_scope("encoder"), jax.named_scope("linear_0"):
            return jax.numpy.tanh(x @ x)

    def layers(function):
        rows = read_programs({1: compiled(function, x)[0]}, window=0).instructions.to_pylist()
        return {row["layer"] for row in rows if row["opcode"] in ("dot", "tanh")}

    assert layers(lambda x: jax.numpy.tanh(x @ x)) == {None}
    assert layers(scoped) == {"encoder/linear_0"}


@pytest.mark.jax
def test_the_fingerprint_is_of_the_instructions_alone():
    jax = pytest.importorskip("jax")
    jnp = jax.numpy

    def one(x):
        return jnp.tanh(x @ x).sum()

    def same_elsewhere(other):
        with jax.named_scope("renamed"):
            return jnp.tanh(other @ other).sum()

    def fingerprint(function, *dims):
        data = compiled(function, jax.ShapeDtypeStruct(dims, "float32"))[0]
        return read_programs({1: data}, window=0).programs["fingerprint"][0].as_py()

    found = fingerprint(one, 8, 8)
    assert len(found) == 32
    assert fingerprint(same_elsewhere, 8, 8) == found
    others = {fingerprint(one, 4, 4), fingerprint(lambda x: jnp.sin(x @ x).sum(), 8, 8)}
    others.add(fingerprint(lambda x: jnp.tanh(x @ x.T).sum(), 8, 8))
    others.add(fingerprint(lambda x: jnp.tanh(x @ x).sum() * 3, 8, 8))
    assert found not in others
    assert len(others) == 4


PRINT_FINGERPRINT = """
import jax
from hlo_programs import compiled
from phasepoint.sources.events.programs import read_programs

unrelated = compiled(lambda x: x + 1, jax.ShapeDtypeStruct((3,), "float32"))  # shifts ids and names
data = compiled(lambda y: jax.nn.softmax(y @ y.T), jax.ShapeDtypeStruct((8, 4), "float32"))[0]
print(read_programs({1: data}, window=0).programs["fingerprint"][0].as_py())
"""


@pytest.mark.jax
def test_the_fingerprint_is_the_same_in_another_process():
    jax = pytest.importorskip("jax")
    data = compiled(lambda x: jax.nn.softmax(x @ x.T), jax.ShapeDtypeStruct((8, 4), "float32"))[0]
    here = read_programs({1: data}, window=0).programs["fingerprint"][0].as_py()
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).parent),
        "PYTHONHASHSEED": "77",
        "JAX_PLATFORMS": "cpu",
    }
    command = [sys.executable, "-c", PRINT_FINGERPRINT]
    there = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=120)
    assert there.stdout.strip() == here


def fused(*opcodes, root_name="", inner_name=""):
    """A program of one fusion whose body is a chain of opcodes."""
    module = Builder()
    body = module.computation("fused_computation")
    value = module.add(body, "parameter", (4, 4))
    for opcode in opcodes:
        value = module.add(body, opcode, (4, 4), [value], dimensions=[1, 0] if opcode == "transpose" else [])
        value.metadata.op_name = inner_name
    value.metadata.op_name = root_name
    main = module.computation("main")
    x = module.add(main, "parameter", (4, 4))
    module.add(main, "fusion", (4, 4), [x], called_computation_ids=[body.id])
    return read_programs({1: module.bytes()}, window=0).instructions.to_pylist()[-1]


@pytest.mark.parametrize(
    ("opcodes", "category"),
    [
        (("copy",), "data_movement"),
        (("transpose", "copy", "bitcast"), "data_movement"),
        (("broadcast", "slice", "concatenate", "pad", "reshape"), "data_movement"),
        (("iota",), "data_movement"),
        (("convert",), "compute"),
        (("transpose", "add"), "compute"),
        (("dot",), "compute"),
        (("add", "all-reduce"), "communication"),
        ((), "data_movement"),
    ],
)
def test_a_fusion_is_what_stands_inside(opcodes, category):
    assert fused(*opcodes)["category"] == category


def test_a_fusion_without_a_name_takes_its_layer_from_inside():
    assert fused("add", "copy", root_name="jit(f)/root/copy", inner_name="jit(f)/inner/add")["layer"] == "root"
    assert fused("add", "copy", inner_name="jit(f)/inner/add")["layer"] == "inner"
    assert fused("add")["layer"] is None


def test_what_the_compiler_adds_belongs_to_whoever_reads_it():
    module = Builder()
    main = module.computation("main")
    x = module.add(main, "parameter", (4,))
    shared, own, chain = (module.add(main, "copy", (4,), [x]) for _ in range(3))
    chain = module.add(main, "bitcast", (4,), [chain])
    for place, operand in (("a", shared), ("b", shared), ("a", own), ("b", chain)):
        module.add(main, "negate", (4,), [operand]).metadata.op_name = f"jit(f)/{place}/neg"
    rows = read_programs({1: module.bytes()}, window=0).instructions.to_pylist()
    assert [row["layer"] for row in rows] == [None, None, "a", "b", "b", "a", "b", "a", "b"]


def test_bad_bytes_name_the_program_and_the_reason():
    good = Builder()
    good.add(good.computation("main"), "parameter", (2,))
    for data, reason in {
        b"": "no computations",
        b"\xff\xff\xff": "no HLO module in 3 bytes",
        b"\x0a\x7f": "no HLO module in 2 bytes",
        good.bytes()[:-1]: "no HLO module",
    }.items():
        with pytest.raises(SourceError, match=r"program 3 of window 9: .*" + reason):
            read_programs({3: data}, window=9)


def test_modules_that_do_not_hang_together():
    circle = Builder()
    main = circle.computation("main")
    circle.add(main, "call", (), called_computation_ids=[main.id])
    orphan = Builder()
    main = orphan.computation("main")
    orphan.add(main, "call", (), called_computation_ids=[999])
    early = Builder()
    main = early.computation("main")
    early.add(main, "negate", ()).operand_ids.append(77)
    entry = Builder()
    entry.add(entry.computation("main"), "parameter", ())
    entry.hlo.hlo_module.entry_computation_id = 1234
    for module, reason in ((circle, "circle"), (orphan, "missing"), (early, "before"), (entry, "its entry")):
        with pytest.raises(SourceError, match=reason):
            read_programs({1: module.bytes()}, window=0)


@pytest.fixture(scope="module")
def real_module():
    pytest.importorskip("flax")
    return compiled(*classifier())[0]


@pytest.mark.jax
@given(place=st.integers(0, 10**9), garbage=st.binary(min_size=1, max_size=8))
@settings(max_examples=150)
def test_damage_is_refused_or_read_but_never_crashes(real_module, place, garbage):
    place %= len(real_module)
    damaged = real_module[:place] + garbage + real_module[place + len(garbage) :]
    try:
        tables = read_programs({1: damaged}, window=0)
    except SourceError:
        return
    validate_table("programs", tables.programs)
    validate_table("instructions", tables.instructions)


OPCODES = sorted(
    {
        "dot",
        "convolution",
        "fusion",
        "reduce",
        "reduce-window",
        "select-and-scatter",
        "scatter",
        "gather",
        "sort",
        "fft",
    }
    | {"map", "while", "conditional", "call", "custom-call", "slice", "dynamic-slice", "dynamic-update-slice", "tuple"}
    | {"transpose", "cholesky", "triangular-solve", "all-reduce", "rng", "infeed", "outfeed", "add", "parameter"}
    | {"get-tuple-element", "async-start", "a-new-opcode", ""}
)


@given(
    opcode=st.sampled_from(OPCODES),
    operands=st.lists(st.sampled_from([(), (3,), (4, 5), (2, 3, 4), [(2,), (3,)]]), max_size=4),
    called=st.integers(0, 3),
    dims=st.sampled_from([(), (4, 5), [(2,), ()], (-1, 2**40)]),
    config=st.sampled_from(
        [b"", b"{", b"[1]", b'{"known_trip_count": 3}', b'{"known_trip_count": {"n": "x"}}', b"{" * 9000]
    )
    | st.sampled_from([b'{"gemm_backend_config": 1}', b'{"dot_dimension_numbers": {"lhs_contracting_dimensions": 4}}'])
    | st.sampled_from([b'{"onednn_matmul_config": []}', b'{"known_trip_count": {"n": "99999999999999999999999"}}']),
    target=st.sampled_from(["", "__cublas$gemm", "__onednn$matmul", "__cudnn$convForward"]),
    window=st.lists(st.integers(-2, 2**50), max_size=2),
)
@settings(max_examples=300)
def test_instructions_that_make_no_sense_are_unknown(opcode, operands, called, dims, config, target, window):
    module = Builder()
    callees = [module.computation(f"callee_{i}") for i in range(called)]
    for callee in callees:
        module.add(callee, "add", (2,), [module.add(callee, "parameter", (2,), parameter_number=9)] * 2)
    main = module.computation("main")
    values = [module.add(main, "parameter", shape) for shape in operands]
    calls = [callee.id for callee in callees]
    one = module.add(main, opcode, dims, values, backend_config=config, custom_call_target=target, dimensions=[5])
    one.called_computation_ids.extend(calls)
    one.dot_dimension_numbers.lhs_contracting_dimensions.append(1)
    for size in window:
        one.window.dimensions.add(size=size, stride=size, base_dilation=size)
        one.convolution_dimension_numbers.input_spatial_dimensions.append(0)
        one.convolution_dimension_numbers.kernel_spatial_dimensions.append(0)
        one.convolution_dimension_numbers.output_spatial_dimensions.append(0)
    tables = read_programs({1: module.bytes()}, window=0)
    counts = [row[name] for row in tables.instructions.to_pylist() for name in ("flop", "bytes", "transcendentals")]
    assert all(count is None or count >= 0 for count in counts)


def test_absurd_sizes_are_unknown_not_wrong():
    module = Builder()
    main = module.computation("main")
    x = module.add(main, "parameter", (2**40, 2**40))
    module.add(main, "negate", (2**40, 2**40), [x])
    (program,) = read_programs({1: module.bytes()}, window=0).programs.to_pylist()
    assert program["flop"] is not None
    assert program["notes"] == "cost of negate is not known"


def test_no_programs():
    tables = read_programs({}, window=0)
    assert len(tables.programs) == len(tables.instructions) == 0


def test_the_schema_reads_flat_messages_only():
    assert load_schema("hlo") is load_schema("hlo")
    fields = {f.name: f.number for f in load_schema("hlo")["HloInstructionProto"].DESCRIPTOR.fields}
    # From openxla/xla, xla/service/hlo.proto.
    assert (fields["called_computation_ids"], fields["backend_config"], fields["custom_call_target"]) == (38, 43, 28)


def test_a_large_program_is_read_in_seconds():
    module = Builder()
    rng = random.Random(1)
    main = module.computation("main")
    value = module.add(main, "parameter", (128, 128))
    for i in range(20_000):
        dims = (rng.randrange(1, 20), 128)
        value = module.add(main, ("add", "multiply", "tanh", "copy")[i % 4], dims, [value])
        value.metadata.op_name = f"jit(step)/jvp(Net)/Block_{i % 48}/Dense_{i % 7}/mul"
    data = module.bytes()
    began = time.process_time()
    tables = read_programs({1: data}, window=0)
    assert len(tables.instructions) == 20_001
    assert time.process_time() - began < 10  # measured: about 0.5 s; the margin is for busy machines


@pytest.mark.parametrize("filled", [b"\x1a\x00", b"\x08\x00", b"\x1a\x04\x12\x00\x12\x00"])
def test_more_messages_than_bytes_can_mean_are_refused_before_they_are_decoded(filled):
    with pytest.raises(SourceError, match=r"more than \d+ computations and instructions, .* made to fill the memory"):
        decode_module(filled * 500_000, "HloModuleProto")


def directions(builder):
    module = parse_module(builder.bytes())
    names = [one.name for computation in module.computations for one in computation.instructions]
    return dict(zip(names, directions_of_module(module), strict=True))


def named(one, op_name, file=""):
    one.metadata.op_name, one.metadata.source_file = op_name, file
    return one


def test_what_reads_a_gradient_is_the_optimizers_and_what_has_no_name_serves_its_readers():
    builder = Builder()
    entry = builder.computation("main")
    given = builder.add(entry, "parameter", (8,), name="given")
    plain = named(builder.add(entry, "add", (8,), [given], name="plain"), "jit(step)/add")
    turned = builder.add(entry, "copy", (8,), [given], name="turned")
    named(builder.add(entry, "multiply", (8,), [turned], name="forward"), "jit(step)/jvp(M)/mul")
    gradient = named(builder.add(entry, "multiply", (8,), [given], name="gradient"), "jit(step)/transpose(jvp(M))/mul")
    scaled = named(builder.add(entry, "multiply", (8,), [gradient], name="scaled"), "jit(step)/mul")
    builder.add(entry, "copy", (8,), [gradient], name="kept")
    named(builder.add(entry, "add", (8,), [plain, scaled], name="updated"), "jit(step)/add")
    named(builder.add(entry, "sqrt", (8,), [given], name="moment"), "jit(step)/sqrt", "/x/optax/_src/transform.py")
    named(builder.add(entry, "log", (8,), [given], name="loss"), "jit(step)/log", "/x/optax/losses/_classification.py")
    assert directions(builder) == {
        "given": None,
        "plain": None,
        "turned": "forward",
        "forward": "forward",
        "gradient": "backward",
        "scaled": "optimizer",
        "kept": "backward",
        "updated": "optimizer",
        "moment": "optimizer",
        "loss": None,
    }


def test_a_program_in_which_one_direction_is_known_has_it_throughout():
    builder = Builder()
    entry = builder.computation("main")
    given = builder.add(entry, "parameter", (8,), name="given")
    kept = builder.add(entry, "copy", (8,), [given], name="kept")
    made = named(builder.add(entry, "tanh", (8,), [given], name="made"), "jit(f)/jvp(M)/tanh")
    builder.add(entry, "tuple", [(8,), (8,)], [kept, made], name="all")
    assert set(directions(builder).values()) == {"forward"}
