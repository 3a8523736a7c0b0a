"""The best batch size in a fixed time, or at another equal cost, from final losses of runs."""
