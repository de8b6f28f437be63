"""A refresh from acquire to commit. Knows neither Celery nor the graph driver: what it needs is passed in."""
