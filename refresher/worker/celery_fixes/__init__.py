"""Changes to Celery and kombu, one subject per file; `fixes` lists each with its reason. Nothing else patches them."""
