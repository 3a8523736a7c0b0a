"""Corpora by name: Python files, text files by a pattern, tfds data sets, or a user's own.

`stdlib` is the embedded default: the sources of the running interpreter's standard library.
`files:PATTERN` is one's own text. Any other name is of a tensorflow-datasets data set ("c4/en"), or
`package.module:ATTRIBUTE`.
"""

import re
from dataclasses import replace

from bss.data.corpus import Corpus, CorpusRequest
from bss.data.python_files import PythonFiles
from bss.data.text_files import TextFiles
from bss.data.tfds_text import TfdsText
from bss.registry import Registry

CORPORA: Registry[Corpus] = Registry(
    "corpus",
    {"stdlib": PythonFiles(), "files": TextFiles(""), "tfds": TfdsText()},
    of=Corpus,
)
_OWN = re.compile(r"[\w.]+:[^\W\d][\w.]*")  # what follows the name of a data set is a version


def corpus_of(request: CorpusRequest) -> Corpus:
    """The corpus that a config asks for.

    Raises:
        InputError: a name or a module that is not there, an attribute that is no corpus.
    """
    name, _, rest = request.name.partition(":")
    if name not in CORPORA:
        name, rest = (request.name, "") if _OWN.fullmatch(request.name) else ("tfds", request.name)
    return CORPORA[name].given(replace(request, rest=rest))
