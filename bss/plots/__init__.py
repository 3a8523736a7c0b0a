"""Every figure: functions from a table or a fit to a matplotlib Figure, without global state.

Lines differ in marker, line style and a colour of monotone lightness, so that a figure is readable
in grey. A fit that did not converge is named and not drawn.
"""
