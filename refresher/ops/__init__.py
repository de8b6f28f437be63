"""What an operator looks at: status, health, doctor, dead keys. Nothing here loads."""
