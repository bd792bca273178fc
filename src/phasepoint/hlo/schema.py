"""Message classes built at run time from our own `.proto` files.

Generated modules are tied to the protobuf release that made them and would need a compiler in the build; the schemas
here are small and flat, so they are read as they stand. A pool of their own keeps them apart from any other copy of
the same messages in the process.
"""

import re
from functools import cache
from importlib.resources import files
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_SCALARS = {
    "bool": descriptor_pb2.FieldDescriptorProto.TYPE_BOOL,
    "bytes": descriptor_pb2.FieldDescriptorProto.TYPE_BYTES,
    "int32": descriptor_pb2.FieldDescriptorProto.TYPE_INT32,
    "int64": descriptor_pb2.FieldDescriptorProto.TYPE_INT64,
    "string": descriptor_pb2.FieldDescriptorProto.TYPE_STRING,
}
_FIELD = re.compile(r"(repeated\s+)?(\w+)\s+(\w+)\s*=\s*(\d+)\s*;")
_MESSAGE = re.compile(r"message\s+(\w+)\s*\{([^{}]*)\}")
_PACKAGE = re.compile(r"package\s+([\w.]+)\s*;")


@cache
def load_schema(name: str) -> dict[str, Any]:
    """Message classes of `proto/NAME.proto`, by message name.

    The file may hold flat proto3 messages with scalar, message and repeated fields; no enums, maps, nesting or imports.

    Raises:
        ValueError: the file holds something else.
    """
    text = files(__package__).joinpath("proto", f"{name}.proto").read_text(encoding="utf-8")
    file = _parse_file(name, re.sub(r"//[^\n]*", "", text))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        message.name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{file.package}.{message.name}"))
        for message in file.message_type
    }


def _parse_file(name: str, text: str) -> descriptor_pb2.FileDescriptorProto:
    package = _PACKAGE.search(text)
    if package is None:
        raise ValueError(f"{name}.proto: no package")
    file = descriptor_pb2.FileDescriptorProto(name=f"phasepoint/{name}.proto", package=package[1], syntax="proto3")
    for match in _MESSAGE.finditer(text):
        _add_message(file, match[1], match[2])
    return file


def _add_message(file: descriptor_pb2.FileDescriptorProto, name: str, body: str) -> None:
    message = file.message_type.add(name=name)
    for repeated, type_name, field_name, number in _FIELD.findall(body):
        field = message.field.add(name=field_name, number=int(number))
        field.label = field.LABEL_REPEATED if repeated else field.LABEL_OPTIONAL
        if type_name in _SCALARS:
            field.type = _SCALARS[type_name]
        else:
            field.type = field.TYPE_MESSAGE
            field.type_name = f".{file.package}.{type_name}"
    left = _FIELD.sub("", body).strip()
    if left:
        raise ValueError(f"{file.name}, message {name}: not understood: {left[:60]!r}")
