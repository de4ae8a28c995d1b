"""Server-initiated requests: sampling, elicitation, roots, tasks, and time limits that pause meanwhile."""
