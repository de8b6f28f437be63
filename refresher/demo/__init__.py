"""The demo: servers, worker and readers under load, a kill in the middle, a checker. Nothing else imports it."""
