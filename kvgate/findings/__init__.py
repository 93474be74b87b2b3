"""Findings, unchecked places, reports, suppression and identity."""
