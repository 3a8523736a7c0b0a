"""From loss curves to laws, and from laws to batch schedules.

points.py turns curves into steps-to-loss points, fit.py is the fitter every law shares, es*.py
hold the laws E(S), and recommend.py turns a fitted law into a batch schedule.
"""
