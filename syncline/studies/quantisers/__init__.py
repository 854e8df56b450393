"""What becomes of a sum's sign when workers send small integers."""
