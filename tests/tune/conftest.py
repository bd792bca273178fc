"""The tests that take longest begin first, so that no worker is left alone with them at the end."""

LONGEST = ("test_torch_loader.py",)


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: item.path.name not in LONGEST)
