"""Names of the features of a kernel's nodes: one column each, raw.

Lists of varying length are cut off at `LISTED` (windows: `WINDOWED`) entries and accompanied by sum and product. What
decides on a CPU is whether the innermost dimension in memory is walked in order, so each opcode that may break that
order says what becomes of the innermost dimension ("minor").
"""

import numpy as np

LISTED, WINDOWED = 6, 4
_WINDOW_LISTS = ("size", "stride", "padding_low", "padding_high", "dilation", "base_dilation", "reversed")


def _listed(name: str, length: int = LISTED) -> tuple[str, ...]:
    return tuple(f"{name}_{place}" for place in range(length))


NODE_FEATURE_NAMES: tuple[str, ...] = (
    # the value: type, shape (logical order), layout (minor to major), sizes in the order of memory
    *("is_float", "is_integer", "is_predicate", "is_complex", "element_bytes", "rank"),
    *_listed("dim"),
    *("dim_sum", "elements", "size_bytes"),
    *_listed("layout"),
    *("minor_size", "second_minor_size", "minor_bytes"),
    # its place in the kernel
    *("is_root", "is_parameter", "is_output", "users", "operands", "input_elements", "input_bytes"),
    # its work, and what one application of a reduction's computation costs
    *("flop", "transcendentals", "applied_flop", "applied_instructions"),
    # window: dimensions that do nothing (size 1, stride 1, no padding) are left out
    *(name for entry in _WINDOW_LISTS for name in _listed(f"window_{entry}", WINDOWED)),
    *("window_size_sum", "window_size_product", "window_stride_sum", "window_stride_product", "window_padding_sum"),
    *("window_dilation_product", "window_base_dilation_product", "window_reversed_sum", "window_covers_minor"),
    # dot: sizes, and whether the dimension summed over is innermost in each operand
    *("dot_batch", "dot_m", "dot_n", "dot_k", "dot_lhs_k_minor", "dot_rhs_k_minor"),
    # convolution
    *("conv_batch", "conv_in", "conv_out", "conv_groups", "conv_batch_groups", "conv_output_places"),
    *("conv_kernel_places", "conv_input_feature_minor", "conv_output_feature_minor", "conv_kernel_output_minor"),
    # reduce: which dimensions, in the order of memory
    *_listed("reduced"),
    *("reduced_elements", "reduced_sum", "reduces_minor"),
    # transpose, copy, reshape
    *_listed("permutation"),
    *("moves_minor", "changes_layout"),
    # slice, pad
    *_listed("slice_start"),
    *_listed("slice_limit"),
    *_listed("slice_stride"),
    *("slice_stride_product", "taken_ratio", "takes_whole_minor", "minor_stride"),
    # gather, scatter, dynamic slices
    *("indexed_elements", "index_count", "indexes_whole_minor"),
    # broadcast
    *("broadcast_factor", "broadcasts_minor", "broadcasts_scalar"),
    # concatenate, sort, iota, reverse: the dimension along which
    *("axis_size", "axis_is_minor"),
    # costly arithmetic
    *("is_division", "is_integer_division", "is_comparison", "is_select", "is_conversion"),
    # what the features do not know
    *("is_dynamic", "is_opaque"),
)
"""Name of each column of `node_features`; sizes count elements unless the name says bytes."""

COLUMN_OF = {name: place for place, name in enumerate(NODE_FEATURE_NAMES)}
"""Name → column."""

_FLAG_WORDS = ("is_", "moves_", "changes_", "takes_", "indexes_", "reduces_", "broadcasts_", "window_covers_")
NODE_FLAGS = np.array(
    [name.startswith(_FLAG_WORDS) or name.endswith(("_minor", "_ratio")) for name in NODE_FEATURE_NAMES]
)
"""Which columns are flags or ratios, 0 to 1; the others are sizes and counts."""
