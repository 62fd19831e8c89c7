"""Figures of a report, drawn from the frames of pipeline.report.points; SVG without a display."""
