"""The page of an experiment: one HTML file that holds its text, tables and figures."""

from bss.report.page import write_report

__all__ = ["write_report"]
