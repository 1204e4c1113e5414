"""The pages tell the truth: what they name exists, what exists they name, and what they tell people to type works."""
