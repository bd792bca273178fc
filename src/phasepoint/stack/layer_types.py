"""The class of a layer, from what its calls or its path are called."""

import re

CALL = r"^(?:nn\.Module: |phasepoint\.layer#)"
"""How names of spans begin that are calls of a module."""

_NUMBERED = re.compile(r"_\d+$")
_RECORDED = re.compile(r"phasepoint\.layer#[^|]*\|(.+)")
_MODULE = re.compile(r"nn\.Module: (.+)")


def class_of_call(span_name: str) -> str | None:
    """Class that the span of a module's call names, None where it names none.

    Example:
        >>> class_of_call("phasepoint.layer#Net/0|Linear"), class_of_call("nn.Module: Linear_3")
        ('Linear', 'Linear')
    """
    if found := _RECORDED.fullmatch(span_name):
        return found[1]
    found = _MODULE.fullmatch(span_name)
    return _NUMBERED.sub("", found[1]) if found else None


def class_of_path(path: str) -> str:
    """Class of a layer as far as the last part of its path tells: `M/Conv_0` is a `Conv`.

    Example:
        >>> class_of_path("M/Conv_0")
        'Conv'
    """
    last = path.rpartition("/")[2]
    return _NUMBERED.sub("", last) or last
