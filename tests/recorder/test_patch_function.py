"""A function is wrapped in place: every reference to it leads to the wrapper, and it is as before afterwards."""

import inspect
import types

import pytest

from phasepoint.recorder.seam.patch import patch_function


@pytest.fixture
def module():
    """A module with a function of every kind of argument, one with a closure, and a builtin."""
    made = types.ModuleType("made")
    code = """
def save(a, b=2, /, *more, c, d=4, **rest):
    "It saves."
    return a, b, more, c, d, rest

def closing(of):
    def inner(x):
        return x, of
    return inner

inner = closing("of")
length = len
"""
    exec(code, made.__dict__)
    return made


def noting(calls):
    def wrap(original):
        def noticed(*args, **kwargs):
            calls.append((args, kwargs))
            return original(*args, **kwargs)

        return noticed

    return wrap


def test_a_reference_taken_before_leads_to_the_wrapper(module):
    save, calls = module.save, []
    expected = save(1, 3, 5, c=6, e=7)
    code, signature = save.__code__, inspect.signature(save)
    remove = patch_function(module, "save", noting(calls))
    assert module.save is save
    assert save(1, 3, 5, c=6, e=7) == expected == (1, 3, (5,), 6, 4, {"e": 7})
    assert save(1, c=0) == (1, 2, (), 0, 4, {})
    assert calls == [((1, 3, 5), {"c": 6, "e": 7}), ((1,), {"c": 0})]
    assert (inspect.signature(save), save.__name__, save.__doc__) == (signature, "save", "It saves.")
    with pytest.raises(TypeError, match="missing 1 required keyword-only argument: 'c'"):
        save(1)
    remove()
    assert save(1, c=0) == (1, 2, (), 0, 4, {})
    assert len(calls) == 3
    assert (save.__code__, vars(save)) == (code, {})


def test_a_function_with_a_closure(module):
    inner, calls = module.inner, []
    remove = patch_function(module, "inner", noting(calls))
    assert inner(1) == (1, "of")
    remove()
    assert inner(2) == (2, "of")
    assert calls == [((1,), {})]


def test_one_wrapper_upon_another(module):
    save, first, second = module.save, [], []
    remove_first = patch_function(module, "save", noting(first))
    remove_second = patch_function(module, "save", noting(second))
    save(1, c=0)
    remove_second()
    save(2, c=0)
    remove_first()
    save(3, c=0)
    assert [args[0] for args, _ in first] == [1, 2]
    assert [args[0] for args, _ in second] == [1]
    assert vars(save) == {}


def test_code_that_somebody_else_put_in_is_left(module):
    save, calls = module.save, []
    remove = patch_function(module, "save", noting(calls))
    theirs = (lambda *args, **kwargs: "theirs").__code__
    save.__code__ = theirs
    remove()
    assert (save.__code__, save(1)) == (theirs, "theirs")


def test_what_is_no_python_function_is_wrapped_under_its_name(module):
    calls = []
    remove = patch_function(module, "length", noting(calls))
    assert (module.length([1]), len([1, 2])) == (1, 2)
    remove()
    assert module.length is len
    assert calls == [(([1],), {})]


def test_a_name_that_is_not_there(module):
    patch_function(module, "absent", noting([]))()
    assert not hasattr(module, "absent")
