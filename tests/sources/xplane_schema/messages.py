"""XSpace as protobuf messages, declared at run time: a second reader that shares no code with the source."""

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_F = descriptor_pb2.FieldDescriptorProto
_TYPES = {
    "int64": _F.TYPE_INT64,
    "uint64": _F.TYPE_UINT64,
    "double": _F.TYPE_DOUBLE,
    "string": _F.TYPE_STRING,
    "bytes": _F.TYPE_BYTES,
}
_MESSAGES = {
    "XSpace": ["planes=1 *XPlane", "errors=2 *string", "warnings=3 *string", "hostnames=4 *string"],
    "XPlane": [
        "id=1 int64",
        "name=2 string",
        "lines=3 *XLine",
        "event_metadata=4 *EventEntry",
        "stat_metadata=5 *StatEntry",
        "stats=6 *XStat",
    ],
    "EventEntry": ["key=1 int64", "value=2 XEventMetadata"],
    "StatEntry": ["key=1 int64", "value=2 XStatMetadata"],
    "XLine": [
        "id=1 int64",
        "name=2 string",
        "timestamp_ns=3 int64",
        "events=4 *XEvent",
        "duration_ps=9 int64",
        "display_id=10 int64",
        "display_name=11 string",
    ],
    "XEvent": [
        "metadata_id=1 int64",
        "offset_ps=2 int64 data",
        "duration_ps=3 int64",
        "stats=4 *XStat",
        "num_occurrences=5 int64 data",
    ],
    "XStat": [
        "metadata_id=1 int64",
        "double_value=2 double value",
        "uint64_value=3 uint64 value",
        "int64_value=4 int64 value",
        "str_value=5 string value",
        "bytes_value=6 bytes value",
        "ref_value=7 uint64 value",
    ],
    "XEventMetadata": [
        "id=1 int64",
        "name=2 string",
        "metadata=3 bytes",
        "display_name=4 string",
        "stats=5 *XStat",
        "child_id=6 *int64",
    ],
    "XStatMetadata": ["id=1 int64", "name=2 string", "description=3 string"],
}


def _declare():
    file = descriptor_pb2.FileDescriptorProto(name="xplane_of_tests.proto", package="t", syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for text in fields:
            head, kind, *oneof = text.split()
            field_name, number = head.split("=")
            label = _F.LABEL_REPEATED if kind.startswith("*") else _F.LABEL_OPTIONAL
            kind = kind.removeprefix("*")
            field = message.field.add(name=field_name, number=int(number), label=label)
            field.type = _TYPES.get(kind, _F.TYPE_MESSAGE)
            if kind not in _TYPES:
                field.type_name = f".t.{kind}"
            if oneof:
                if not message.oneof_decl:
                    message.oneof_decl.add(name=oneof[0])
                field.oneof_index = 0
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("t.XSpace"))


XSpace = _declare()
