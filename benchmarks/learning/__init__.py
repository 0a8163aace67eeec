"""What is learned and comes into force where the truth is known."""
