"""Which run comes next: what candidates narrow of a goal, by a fitted law, and what they cost."""
