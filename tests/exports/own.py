"""Trainers of a user's own: one that goes by settings, and one that is none."""

from bss.exports import Export

STEPS = Export("MyTrainer", lambda plan: iter([f"steps: {plan.steps}"]))
NONE = "steps"
