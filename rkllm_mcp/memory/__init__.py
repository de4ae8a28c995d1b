"""What a person wants to be remembered: found in their words by rules, and recalled for a question by its words."""
