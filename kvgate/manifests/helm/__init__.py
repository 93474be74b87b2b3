"""Helm: values files, chart templates, rendering."""
