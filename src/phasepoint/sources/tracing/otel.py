"""OpenTelemetry traces as JSON (OTLP: the collector's file exporter, one object or one a line) → tables.

Source: open-telemetry/opentelemetry-proto, `trace/v1/trace.proto`, and the JSON mapping of OTLP 1.x; before 1.0 scopes
were called instrumentation libraries.
"""

import time
from collections.abc import Iterator, Mapping
from functools import partial
from sys import intern
from typing import Any

import msgspec

from phasepoint.core.errors import SourceError
from phasepoint.sources.events.capture import Capture, CaptureRequest
from phasepoint.sources.events.damaged_json import read_json
from phasepoint.sources.events.rows import MISSING
from phasepoint.sources.events.tables import Account
from phasepoint.sources.tracing.facts import read_integer
from phasepoint.sources.tracing.forest import TracedSpan, capture_of_spans
from phasepoint.sources.tracing.levels import decode_whole, member, open_level, read_levels

_RESOURCES = ("resourceSpans", "resource_spans")
_SCOPES = ("scopeSpans", "scope_spans", "instrumentationLibrarySpans", "instrumentation_library_spans")
_OTHER_SIGNALS = ("resourceMetrics", "resourceLogs", "resource_metrics", "resource_logs")
_EXPECTED = (
    'expected {"resourceSpans": [{"resource": …, "scopeSpans": […]}]}, as the collector\'s file exporter writes it'
)


def read_otel(data: bytes, request: CaptureRequest) -> Capture:
    """Convert one file.

    Args:
        data: the JSON: one object, or objects line by line.
        request: what else is known of the window.

    Returns:
        Tables as declared; `programs` and `instructions` are empty.

    Raises:
        SourceError: it is no trace of OpenTelemetry.
    """
    started_ns = time.thread_time_ns()
    (spans, apart), problem = read_levels(partial(_documents, data), _read_spans)
    return capture_of_spans(spans, apart, request, problem=problem, started_ns=started_ns)


def _documents(data: bytes, shape: Any) -> tuple[list[Any], str | None]:
    """The objects of the file: the whole, or a line each; of damaged lines what stands before the damage.

    Args:
        data: the file.
        shape: as what the objects are given: `Any`, or `msgspec.Raw` for text.

    Raises:
        SourceError: there is none.
    """
    try:
        whole = open_level(msgspec.json.decode(data, type=shape))
        return (whole if isinstance(whole, list) else [whole]), None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    lines = [line for line in data.splitlines() if line.strip()]
    if sum(line.lstrip().startswith(b'{"resource') for line in lines) < 2:
        lines = [data]
    documents, problems = [], []
    for line in lines:
        document: Any
        try:
            document, problem = read_json(line, shape)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            problem = f"a line that is no JSON ({error}) is lost"
        else:
            documents.append(document)
        if problem:
            problems.append(problem)
    if not documents:
        raise SourceError(f"no JSON: {problems[0] if problems else 'the file is empty'}; {_EXPECTED}")
    more = f"; {len(problems) - 1} more lines are damaged" if len(problems) > 1 else ""
    return documents, problems[0] + more if problems else None


def _read_spans(documents: list[Any]) -> tuple[list[TracedSpan], list[Account]]:
    spans: list[TracedSpan] = []
    counts = {"event": 0, "span": 0, "metrics or logs": 0}
    found = False
    for document in map(open_level, documents):
        counts["metrics or logs"] += isinstance(document, dict) and any(key in document for key in _OTHER_SIGNALS)
        found |= isinstance(document, dict) and any(key in document for key in _RESOURCES)
        for resource in _listed(document, _RESOURCES):
            process = _process(resource)
            for scope in _listed(resource, _SCOPES):
                listed = member(scope, "spans")
                for span in map(decode_whole, listed if isinstance(listed, list) else ()):
                    if not isinstance(span, dict):
                        counts["span"] += 1
                        continue
                    counts["event"] += len(span["events"]) if isinstance(span.get("events"), list) else 0
                    spans.append(_traced(span, process))
    if not found:
        raise SourceError(f"no spans of OpenTelemetry; {_EXPECTED}")
    reasons = {
        "event": "an instant, no stretch of work",
        "span": "no JSON object",
        "metrics or logs": "only traces are read",
    }
    return spans, [Account("skipped", what, reasons[what], rows) for what, rows in counts.items() if rows]


def _listed(holder: Any, keys: tuple[str, ...]) -> Iterator[Mapping[str, Any]]:
    """Objects of the first of some lists that an object has, a level of each."""
    for key in keys:
        found = member(holder, key) if isinstance(holder, dict) else None
        if isinstance(found, list):
            return (one for one in map(open_level, found) if isinstance(one, dict))
    return iter(())


def _process(resource: Mapping[str, Any]) -> str:
    described = decode_whole(resource.get("resource"))
    tags = _tags(described.get("attributes")) if isinstance(described, dict) else {}
    name = str(tags.get("service.name") or "service")
    apart = tags.get("service.instance.id", tags.get("process.pid", tags.get("host.name")))
    return name if apart is None else f"{name} {apart}"


def _traced(span: Mapping[str, Any], process: str) -> TracedSpan:
    trace = str(_first(span, "traceId", "trace_id") or "")
    above = _first(span, "parentSpanId", "parent_span_id")
    return TracedSpan(
        key=(trace, str(_first(span, "spanId", "span_id") or "")),
        parent=(trace, str(above)) if above and set(str(above)) != {"0"} else None,
        name=intern(str(span.get("name", "span without a name"))),
        start_ns=_time(_first(span, "startTimeUnixNano", "start_time_unix_nano")),
        end_ns=_time(_first(span, "endTimeUnixNano", "end_time_unix_nano")),
        process=process,
        tags=_tags(span.get("attributes")),
    )


def _first(span: Mapping[str, Any], *keys: str) -> Any:
    return next((span[key] for key in keys if span.get(key) is not None), None)


def _time(value: Any) -> int:
    """Unix ns, which OTLP writes as text; 0 and what is no number are not known."""
    number = read_integer(value)
    return number if 0 < number < 1 << 62 else MISSING


def _tags(attributes: Any) -> dict[str, Any]:
    listed = (one for one in attributes if isinstance(one, dict)) if isinstance(attributes, list) else ()
    return {str(one.get("key")): _value(one.get("value")) for one in listed}


def _value(value: Any) -> Any:
    """The value of `{"intValue": "5"}`; integers are texts in OTLP's JSON."""
    if not isinstance(value, dict) or not value:
        return None
    kind, found = next(iter(value.items()))
    if kind in ("intValue", "int_value") and isinstance(found, str):
        try:
            return int(found)
        except ValueError:
            return None
    return found
