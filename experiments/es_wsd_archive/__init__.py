"""Laws and figures of committed E(S) tables, for the notebooks and the demo."""
