"""The driver of withdrawals: a client with books of its own."""
