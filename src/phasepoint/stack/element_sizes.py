"""How many bytes an element of a type takes, by the names of XLA and of our shapes."""

ELEMENT_BYTES = {
    "pred": 1,
    "bool": 1,
    "s4": 1,
    "u4": 1,
    "s8": 1,
    "i8": 1,
    "u8": 1,
    "f8e4m3fn": 1,
    "f8e5m2": 1,
    "s16": 2,
    "i16": 2,
    "u16": 2,
    "f16": 2,
    "bf16": 2,
    "s32": 4,
    "i32": 4,
    "u32": 4,
    "f32": 4,
    "s64": 8,
    "i64": 8,
    "u64": 8,
    "f64": 8,
    "c64": 8,
    "c128": 16,
}
"""Bytes of one element. Types of four bits take a whole byte, as XLA stores them unless told to pack them."""
