"""What a compiled model costs and risks, before any key is made: as plain values, JSON, text and a picture."""

from cloakwork.models.report.facts import report, report_json
from cloakwork.models.report.graph_text import graph_text, summary
from cloakwork.models.report.picture import picture_svg, save_picture
from cloakwork.models.report.text import report_text

__all__ = ["graph_text", "picture_svg", "report", "report_json", "report_text", "save_picture", "summary"]
