"""What a person wants to be remembered: found by rules, recalled for a question, proposed, exported; and its tools."""
