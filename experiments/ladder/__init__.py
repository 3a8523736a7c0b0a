"""E(S), rates, width and a mixture over sizes: each rung predicted from those below it."""
