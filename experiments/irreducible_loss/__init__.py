"""The fitted L_0 against the synthetic language's own entropy."""
