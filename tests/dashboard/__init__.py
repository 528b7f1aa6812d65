"""Tests of the dashboard; a package, as other folders have a test_page.py, too."""
