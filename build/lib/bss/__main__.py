"""`python -m bss` is the `bss` command."""

import sys

from bss.cli import main

sys.exit(main())
