"""Sticky assignor."""
