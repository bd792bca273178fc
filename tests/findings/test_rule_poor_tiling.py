"""POOR-TILING: products that do not fill the tile of a TPU or a tensor core; full tiles; unknown devices."""

import pytest
from device_runs import inside_ps, instruction, view_of_ops
from planted_runs import check_finding, within

from phasepoint.findings.finding import Unavailable
from phasepoint.findings.rules.device.poor_tiling import find

TPU = {"device": "tpu:0", "devices": ("tpu:0 TPU v4",)}
STEP_S = 0.030


def product(m, n, k, *, kind="bf16", batch=1):
    """A product whose padded work takes about half of its time at the peak, if it takes a tenth of the step."""
    shape = [f"{kind}[{batch},{a},{b}]{{2,1,0}}" for a, b in ((m, k), (k, n), (m, n))]
    size = 2 * batch * (m * k + k * n + m * n)
    return [
        instruction("left", "parameter", shape[0]),
        instruction("right", "parameter", shape[1]),
        instruction("dot.1", "dot", shape[2], "left", "right", flop=2 * batch * m * n * k, bytes=size),
    ]


def count_for(share, padded_flop, *, peak=275e12, efficiency=0.6):
    """Executions a step that take this share of it at this efficiency."""
    return max(round(share * STEP_S * peak * efficiency / padded_flop), 1)


@pytest.mark.parametrize("share", [0.1, 0.4, 0.8])
@pytest.mark.parametrize(
    ("dims", "padded"),
    [
        ((4096, 4096, 160), (4096, 4096, 256)),
        ((4096, 80, 4096), (4096, 80, 4096)),  # turned: 80 is a multiple of 8, 4096 of 128
        ((4095, 300, 4096), (4096, 304, 4096)),
        ((5000, 4001, 300), (5000, 4096, 384)),
    ],
)
def test_padding_is_claimed(tmp_path, dims, padded, share):
    count = count_for(share, 2 * padded[0] * padded[1] * padded[2])
    view = view_of_ops(tmp_path, {"dot.1": ("compute", share)}, product(*dims), count=count, **TPU)
    least = min(-(-a // 8) * 8 * -(-b // 128) * 128 * -(-dims[2] // 128) * 128 for a, b in (dims[:2], dims[1::-1]))
    wasted = 1 - dims[0] * dims[1] * dims[2] / least
    found = find(view)
    if wasted < 0.1 or wasted * share < 0.02:
        assert found == []
        return
    check_finding(view, found[0])
    assert within(found[0].claim.total_ps, wasted * share * inside_ps(view), 0.05)


def test_batches_do_not_count_as_rows(tmp_path):
    count = count_for(0.5, 2 * 4 * 2048 * 2048 * 384)
    view = view_of_ops(tmp_path, {"dot.1": ("compute", 0.5)}, product(2048, 2048, 260, batch=4), count=count, **TPU)
    (found,) = find(view)
    check_finding(view, found)
    assert within(found.claim.total_ps, 0.5 * (1 - 260 / 384) * inside_ps(view), 0.05)
    assert "dot.1 (2048 × 2048 × 260): tile 8 × 128" in found.remedy


def test_full_tiles_and_products_bound_by_something_else_are_told_nothing(tmp_path):
    full = view_of_ops(tmp_path / "full", {"dot.1": ("compute", 0.8)}, product(1024, 1024, 1024), **TPU)
    assert find(full) == []
    slow = view_of_ops(tmp_path / "slow", {"dot.1": ("compute", 0.8)}, product(8, 4096, 65), **TPU)
    assert find(slow) == []


def test_unknown_devices_and_captures_without_shapes_say_so(tmp_path):
    with pytest.raises(Unavailable, match="no tile is known for device 'cpu:0 cpu'"):
        find(view_of_ops(tmp_path / "cpu", {"dot.1": ("compute", 0.8)}, product(65, 65, 65)))
    with pytest.raises(Unavailable, match="no shapes of matrix products"):
        find(view_of_ops(tmp_path / "torch", {"aten::mm": ("compute", 0.8)}, program=None))
