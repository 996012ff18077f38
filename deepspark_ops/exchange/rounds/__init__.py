"""What happens at the end of a round: who is waited for, and how the center moves by what all have pushed."""
