"""Programs for the tests of the HLO source: compiled here, or written by hand in the schema's own messages."""

from typing import Any

from phasepoint.hlo.schema import load_schema

F32, S32, PRED, TUPLE = 11, 4, 1, 13


def compiled(function: Any, *args: Any) -> tuple[bytes, dict[str, float], Any]:
    """A function compiled for CPU: its HloProto as a trace carries it, XLA's own cost analysis, the executable."""
    import jax

    executable = jax.jit(function).lower(*args).compile()
    module = executable.runtime_executable().hlo_modules()[0].as_serialized_hlo_module_proto()
    return wrap_module(module), executable.cost_analysis() or {}, executable


def wrap_module(module: bytes) -> bytes:
    """HloModuleProto → HloProto: the module is its field 1."""
    size, prefix = len(module), bytearray(b"\x0a")
    while size > 127:
        prefix.append(size & 127 | 128)
        size >>= 7
    prefix.append(size)
    return bytes(prefix) + module


class Builder:
    """Writes small modules by hand, for opcodes that no CPU program has."""

    def __init__(self, name: str = "hand_made") -> None:
        self.hlo = load_schema("hlo")["HloProto"]()
        self.hlo.hlo_module.name = name
        self._next_id = 1

    def computation(self, name: str) -> Any:
        computation = self.hlo.hlo_module.computations.add(name=name, id=self._id())
        self.hlo.hlo_module.entry_computation_id = computation.id
        return computation

    def add(self, computation: Any, opcode: str, dims: Any, operands: Any = (), **fields: Any) -> Any:
        one = computation.instructions.add(opcode=opcode, id=self._id(), **fields)
        one.name = one.name or f"{opcode}.{one.id}"
        one.operand_ids.extend(operand.id for operand in operands)
        self.shape(one.shape, dims)
        computation.root_id = one.id
        return one

    def shape(self, shape: Any, dims: Any) -> None:
        if isinstance(dims, list):
            shape.element_type = TUPLE
            for part in dims:
                self.shape(shape.tuple_shapes.add(), part)
            return
        shape.element_type = F32
        shape.dimensions.extend(dims)
        shape.layout.minor_to_major.extend(reversed(range(len(dims))))

    def bytes(self) -> bytes:
        return self.hlo.SerializeToString()

    def _id(self) -> int:
        self._next_id += 1
        return self._next_id
