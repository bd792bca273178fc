"""Jaeger's span JSON (its query API, its UI, MLModelScope's files) → tables.

Times are microseconds since 1970. XSP's levels, kernels and correlation ids stand in tags.
"""

import time
from collections.abc import Iterator, Mapping
from decimal import Decimal, InvalidOperation
from functools import partial
from sys import intern
from typing import Any

import msgspec

from phasepoint.core.errors import SourceError
from phasepoint.core.units import PS_PER_NS, PS_PER_US
from phasepoint.sources.events.capture import Capture, CaptureRequest
from phasepoint.sources.events.damaged_json import read_json
from phasepoint.sources.events.rows import MISSING
from phasepoint.sources.events.tables import Account
from phasepoint.sources.tracing.forest import Key, TracedSpan, capture_of_spans
from phasepoint.sources.tracing.levels import decode_whole, member, open_level, read_levels

_EXPECTED = 'expected {"data": [{"traceID": …, "spans": […], "processes": {…}}]}, as Jaeger\'s UI saves it'


def read_jaeger(data: bytes, request: CaptureRequest) -> Capture:
    """Convert one file.

    Args:
        data: the JSON: traces, one trace, or spans.
        request: what else is known of the window.

    Returns:
        Tables as declared; `programs` and `instructions` are empty.

    Raises:
        SourceError: it is no file of Jaeger.
    """
    started_ns = time.thread_time_ns()
    try:
        (spans, apart), problem = read_levels(partial(read_json, data), _read_traces)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise SourceError(f"no JSON: {error}; {_EXPECTED}") from error
    return capture_of_spans(spans, apart, request, problem=problem, started_ns=started_ns)


def _read_traces(document: Any) -> tuple[list[TracedSpan], list[Account]]:
    spans: list[TracedSpan] = []
    logs = strange = 0
    found = False
    for span, processes in _spans_of(document):
        found = True
        if not isinstance(span, dict):
            strange += 1
            continue
        logs += len(span["logs"]) if isinstance(span.get("logs"), list) else 0
        spans.append(_traced(span, processes))
    if not found:
        raise SourceError(f"no spans of Jaeger; {_EXPECTED}")
    apart = [Account("skipped", "log", "an instant, no stretch of work", logs)] if logs else []
    return spans, [*apart, Account("skipped", "span", "no JSON object", strange)] if strange else apart


def _spans_of(document: Any) -> Iterator[tuple[Any, Mapping[str, Any]]]:
    """Spans with the processes of their trace, wherever a file keeps them."""
    level = open_level(document)
    if isinstance(level, list):
        for one in level:
            yield from _spans_of(one)
    elif isinstance(level, dict):
        if isinstance(spans := member(level, "spans"), list):
            processes = decode_whole(level.get("processes"))
            for span in spans:
                yield decode_whole(span), processes if isinstance(processes, dict) else {}
        elif "spanID" in level and "operationName" in level:
            yield decode_whole(document), {}
        else:
            for key in ("data", "traces", "trace", "trace_information", "_source", "hits"):
                yield from _spans_of(level.get(key))


def _traced(span: Mapping[str, Any], processes: Mapping[str, Any]) -> TracedSpan:
    process = span.get("process") or processes.get(str(span.get("processID")))
    service = process.get("serviceName") if isinstance(process, dict) else None
    start_ns, dur_ns = _nanoseconds(span.get("startTime")), _nanoseconds(span.get("duration"))
    trace = str(span.get("traceID", ""))
    return TracedSpan(
        key=(trace, str(span.get("spanID", ""))),
        parent=_parent(span, trace),
        name=intern(str(span.get("operationName", "span without a name"))),
        start_ns=start_ns,
        end_ns=MISSING if MISSING in (start_ns, dur_ns) else start_ns + dur_ns,
        process=intern(str(service or span.get("processID") or "service")),
        tags=_tags(span.get("tags")),
    )


def _parent(span: Mapping[str, Any], trace: str) -> Key | None:
    """The span it is a child of; what it merely follows is no parent."""
    references = span.get("references")
    for one in references if isinstance(references, list) else ():
        if isinstance(one, dict) and one.get("refType", "CHILD_OF") == "CHILD_OF" and one.get("spanID"):
            return str(one.get("traceID", trace)), str(one["spanID"])
    above = span.get("parentSpanID")  # older files; "" or 0 at the top
    return (trace, str(above)) if above and above != "0" else None


def _tags(tags: Any) -> dict[str, Any]:
    """Tags by key: Jaeger lists them as `{"key": …, "value": …}`, MLModelScope has an object of them."""
    if isinstance(tags, dict):
        return tags
    listed = (one for one in tags if isinstance(one, dict)) if isinstance(tags, list) else ()
    return {str(one.get("key")): one.get("value") for one in listed}


def _nanoseconds(microseconds: Any) -> int:
    """Microseconds as ns; `MISSING` where there is no number that fits."""
    if type(microseconds) is int and abs(microseconds) < 1 << 52:  # as nearly all are
        return microseconds * (PS_PER_US // PS_PER_NS)
    if isinstance(microseconds, bool) or not isinstance(microseconds, int | float | str):
        return MISSING
    try:
        number = int(Decimal(str(microseconds)) * (PS_PER_US // PS_PER_NS))
    except (InvalidOperation, ValueError, OverflowError):
        return MISSING
    return number if abs(number) < 1 << 62 else MISSING
