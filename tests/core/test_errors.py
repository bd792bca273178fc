from phasepoint.core import errors


def test_every_error_has_an_exit_code_of_its_own():
    kinds = [k for k in vars(errors).values() if isinstance(k, type) and issubclass(k, errors.PhasepointError)]
    codes = [k.exit_code for k in kinds]
    assert len(set(codes)) == len(codes)
    assert all(0 < code < 64 for code in codes)
