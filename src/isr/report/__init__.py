"""The report: a model as one self-contained HTML page with a live explorer of its posterior.

The page opens without a network. Its equations run in the browser, so that an observation can be moved by hand.
"""

from isr.posterior.calibration import Calibration
from isr.report.gather import ReportData, gather
from isr.report.page import render, write_report

__all__ = ["Calibration", "ReportData", "gather", "render", "write_report"]
