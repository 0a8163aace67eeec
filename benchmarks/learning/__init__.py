"""What is learned and promoted where the truth is known."""
