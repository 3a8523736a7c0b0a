"""The functional law of loss curves under any schedule."""
