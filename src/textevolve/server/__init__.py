"""The HTTP server: models, judges, agents, studies and jobs for other programs and for browsers.

`app` puts the parts together. `guard` checks every request, `identity` finds out who sent it, and
`limits` counts what keys and namespaces use. Each API has a file or a package of its own. The web
framework is used in this package alone, and nothing here is imported before a server starts. The
code that judges, calls models and runs studies is in lower packages.
"""
