"""Tests of the project, by tier and folder: CONTRIBUTING.md says which. Nothing that ships imports them."""
