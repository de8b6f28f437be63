"""A refresh from acquire to commit. Imports neither Celery nor the graph driver: its dependencies are passed in."""
