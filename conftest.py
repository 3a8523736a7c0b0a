"""Tests read tables as a pipe gets them: workers of pytest-xdist have a width of their own."""

import pytest


@pytest.fixture(autouse=True)
def _piped(monkeypatch, pytestconfig):
    monkeypatch.chdir(pytestconfig.rootpath)  # a page may leave it
    monkeypatch.delenv("COLUMNS", raising=False)
