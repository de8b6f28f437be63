"""The caches that are compared: one class each, all with the same small interface (`competitors.competitor`)."""
