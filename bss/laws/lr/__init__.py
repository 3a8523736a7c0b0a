"""The best peak learning rate of each model size, budget and batch size, and its law."""
