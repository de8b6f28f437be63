"""What several tests share: worlds, harnesses, programs that tests start, plugins of pytest. No tests."""
