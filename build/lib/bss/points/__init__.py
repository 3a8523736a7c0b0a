"""From loss curves to points, and what they say without a law."""
