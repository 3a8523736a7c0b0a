"""What the experiments' tests share."""

import pytest


@pytest.fixture(scope="session")
def corpora(tmp_path_factory):
    """The root of prepared corpora: what one test prepares, the next one finds."""
    return tmp_path_factory.mktemp("corpora")
