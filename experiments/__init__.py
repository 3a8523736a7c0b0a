"""One driver per question: `python -m experiments.NAME --config=configs/NAME.py:SIZE`."""
