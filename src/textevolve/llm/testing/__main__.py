"""Run the scripted server: `python -m textevolve.llm.testing`; see
`textevolve.llm.testing.server`."""

from textevolve.llm.testing.server import main

main()
