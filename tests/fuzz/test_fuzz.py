"""A short run of the fuzzer over made seeds, and what its long runs found."""

import pytest
from fuzz_target import FORMATS, Inputs, check

from fuzz import attempt

N_INPUTS = 40
N_RUNS = 12
"""A run is asked much more than a trace."""
DEEP = 20_000


@pytest.mark.parametrize("format", FORMATS)
def test_damaged_traces_and_runs_are_read_or_refused(format, tmp_path):
    inputs = Inputs(format, seed=7, real=False)
    path = tmp_path / "trace"
    n_inputs = N_RUNS if format == "run" else N_INPUTS
    n_read = 0
    for number in range(n_inputs):
        path.write_bytes(inputs.make(number))
        read, failure = attempt(path, format)
        assert failure is None, f"input {number}: {failure[1]}"
        n_read += read
        assert read or number >= inputs.n_seeds  # what is not damaged has something in it
    assert n_read > n_inputs // 4


def test_inputs_are_the_same_everywhere():
    for format in FORMATS:
        once, again = Inputs(format, seed=3, real=False), Inputs(format, seed=3, real=False)
        assert [once.make(n) for n in range(9)] == [again.make(n) for n in range(9)]


EVENT = b'{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": 9'
SPAN = b'{"traceId": "5b", "spanId": "%s", "name": "%s", "startTimeUnixNano": "5", "endTimeUnixNano": "%d"%s}'
LEVEL = b', "attributes": [{"key": "trace_level", "value": {"stringValue": "FRAMEWORK_TRACE"}}]'


@pytest.mark.parametrize(
    ("format", "data", "has_content"),
    [
        # Deeper than the stack, in an event that needs repair.
        ("kineto", b'{"traceEvents": [%s}, {"a": tru, %s' % (EVENT, b'{"a":' * DEEP), True),
        ("kineto", b'{"traceEvents": [%s}, {"b": "\n", "a": %s1%s}]}' % (EVENT, b'{"a":' * 400, b"}" * 400), True),
        # A time with an exponent that no context of decimals has room for.
        ("chrome", b'{"traceEvents": [%s}, {"ph": "X", "name": "b", "ts": 7e4023476, "dur": 1}]}' % EVENT, True),
        # Half a character, escaped, in a type and in a device's name.
        ("kineto", b'{"traceEvents": [%s, "args": {"Input Dims": [[8]], "Input type": ["\\ud800"]}}]}' % EVENT, True),
        ("kineto", b'{"deviceProperties": [{"id": 0, "name": "\\ud800"}], "traceEvents": [%s}]}' % EVENT, True),
        # A section that is neither as expected nor UTF-8, and one that is nested too deep.
        ("rocprof", b'{"rocprofiler-sdk-tool": [{"buffer_records": {"kernel_dispatch": [7, "\xff"]}}]}', False),
        ("rocprof", b'{"rocprofiler-sdk-tool": [{"buffer_records": {"kernel_dispatch": %s}}]}' % (b"[" * DEEP), False),
        ("jaeger", b'{"data": [{"traceID": "t", "spans": %s' % (b"[" * DEEP), False),
        ("otel", b'{"resourceSpans": %s' % (b"[" * DEEP), False),
        # A layer without a name, around another.
        ("otel", b'{"resourceSpans": [{"scopeSpans": [{"spans": [%s]}]}]}' % (SPAN % (b"1", b"", 9, LEVEL)), True),
    ],
)  # fmt: skip
def test_what_was_found(format, data, has_content, tmp_path):
    (tmp_path / "trace").write_bytes(data)
    assert check(tmp_path / "trace", format) == has_content
