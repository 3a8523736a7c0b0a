"""The regression theory behind the laws, run exactly.

Power-law kernel regression under one-pass SGD (Li et al., arXiv 2509.19189), its functional
scaling law, and the batch schedules that are optimal under it (Wang et al., arXiv 2602.14208).
Everything is float64; counts are samples.
"""
