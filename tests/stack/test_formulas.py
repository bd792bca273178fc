import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phasepoint.stack.work.quantities import op_work, share_out

ATTENTION = "aten::_scaled_dot_product_flash"


@pytest.mark.parametrize(
    ("name", "shape", "flop", "read", "write"),
    [
        ("aten::mm", "f32[2,3], f32[3,5]", 60, 84, 40),
        ("aten::addmm", "bf16[5], bf16[2,3], bf16[3,5]", 60, 52, 20),
        ("aten::bmm", "f32[4,2,3], f32[4,3,5]", 240, 336, 160),
        ("aten::linear", "f16[7,2,3], f16[5,3], f16[5]", 420, 124, 140),
        ("aten::mv", "f32[4,3], f32[3]", 24, 60, 16),
        ("aten::dot", "f64[9], f64[9]", 18, 144, 8),
        ("aten::add", "f32[4,1,3], f32[5,1]", 60, 68, 240),
        (
            "aten::_scaled_dot_product_flash_attention",
            "bf16[2,4,8,16], bf16[2,4,6,16], bf16[2,4,6,16]",
            24576,
            5120,
            2048,
        ),
    ],
)
def test_flop_and_bytes_by_hand(name, shape, flop, read, write):
    work = op_work(name, shape)
    assert (work.flop, work.read_bytes, work.write_bytes) == (flop, read, write)


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("aten::mm", "f32[2,3], f32[4,5]"),
        ("aten::mm", "f32[2,3]"),
        ("aten::mm", ""),
        ("aten::mm", "?[2,3], ?[3,5]"),
        ("aten::conv2d", "f32[1,3,8,8], f32[4,3,3,3]"),
        ("my::op", "f32[2,3]"),
    ],
)
def test_what_does_not_fit_is_unknown(name, shape):
    assert op_work(name, shape) is None


groups = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 10**12)), min_size=1, max_size=30)


@given(groups, st.lists(st.integers(0, 10**15), min_size=5, max_size=5))
def test_shares_add_up_and_follow_the_weights(rows, values):
    owner, weight = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    parts = share_out(owner, np.array(values, np.int64)[owner], weight)
    for one in set(owner.tolist()):
        mine = owner == one
        assert parts[mine].sum() == values[one]
        total = int(weight[mine].sum())
        if total:
            exact = [values[one] * int(w) / total for w in weight[mine]]
            assert all(
                abs(part - want) <= 1 + 1e-9 * values[one] for part, want in zip(parts[mine], exact, strict=True)
            )
