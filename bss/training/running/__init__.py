"""The steps of runs: what feeds them, what they are compiled to, the one loop over them."""
