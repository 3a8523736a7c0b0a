"""What the experiments' tests share."""

from dataclasses import replace

import pytest


@pytest.fixture(scope="session")
def corpora(tmp_path_factory):
    """The root of prepared corpora: what one test prepares, the next one finds."""
    return tmp_path_factory.mktemp("corpora")


@pytest.fixture
def moved(tmp_path, corpora):
    """A study whose runs and results lie in the test's folder, as "runs" and "results"."""

    def move(study):
        engine = replace(study.setup.engine, runs=str(tmp_path / "runs"))
        text = replace(study.setup.text, root=str(corpora))
        setup = replace(study.setup, engine=engine, text=text)
        return replace(study, setup=setup, results=str(tmp_path / "results"))

    return move
