"""`python -m textevolve.llm.testing`: see `textevolve.llm.testing.process`."""

from textevolve.llm.testing.process import main

main()
