"""`python -m bss.cli` is `bss`."""

import sys

from bss.cli import main

sys.exit(main())
