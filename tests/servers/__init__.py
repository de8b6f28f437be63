"""Servers that only tests start: Redis of several kinds, RabbitMQ, Neo4j. No tests."""
