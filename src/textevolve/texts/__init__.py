"""What can be told of a text without a model: words and language, whether a pattern is found in it,
where JSON breaks its schema. Rules that are made of it live in the rooms above."""
