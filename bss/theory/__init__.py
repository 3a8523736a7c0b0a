"""The regression theory of the scaling laws, computed exactly.

It covers power-law kernel regression under one-pass SGD and its functional scaling law (Li et al.,
arXiv 2509.19189). Batch schedules that are optimal under it follow Wang et al. (arXiv 2602.14208).
Everything is float64; counts are samples.
"""
