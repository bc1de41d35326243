"""The report of a compiled model's costs and risks, before any key is made: plain values, JSON, text and a picture."""

from cloakwork.models.report.costs import Report, report, report_json, sample_p_fail_log2
from cloakwork.models.report.picture import picture_svg, save_picture
from cloakwork.models.report.text import bytes_line, four_lines, graph_text, report_text, short_report, summary

__all__ = [
    "Report",
    "bytes_line",
    "four_lines",
    "graph_text",
    "picture_svg",
    "report",
    "report_json",
    "report_text",
    "sample_p_fail_log2",
    "save_picture",
    "short_report",
    "summary",
]
