"""A module that no parser would let through: an opcode that nobody knows."""

from phasepoint.hlo.module import Module, parse_module
from phasepoint.hlo.schema import load_schema

F32 = 11


def fused_module(opcode: str, *, elements: int = 4096, config: str = "") -> Module:
    """One fusion with one operation of the given opcode, and what the backend noted about it."""
    hlo = load_schema("hlo")["HloProto"]()
    module = hlo.hlo_module
    module.name = "by_hand"
    body, entry = (module.computations.add(name=name, id=number) for name, number in (("body", 1), ("main", 2)))
    module.entry_computation_id = 2
    _instruction(body, 10, "parameter", elements)
    _instruction(body, 11, opcode, elements, operands=[10])
    _instruction(entry, 20, "parameter", elements)
    fusion = _instruction(entry, 21, "fusion", elements, operands=[20])
    fusion.fusion_kind = "kLoop"
    fusion.backend_config = config.encode()
    fusion.called_computation_ids.append(1)
    return parse_module(hlo.SerializeToString())


def _instruction(computation, number, opcode, elements, *, operands=()):
    one = computation.instructions.add(name=f"{opcode}.{number}", opcode=opcode, id=number)
    one.shape.element_type = F32
    one.shape.dimensions.append(elements)
    one.shape.layout.minor_to_major.append(0)
    one.operand_ids.extend(operands)
    computation.root_id = number
    return one
