"""What is changed in Celery and kombu, one subject per file, each with its reason."""
