"""The HTTP server: models, judges, agents, studies and jobs for other programs and for browsers.

`app` puts it together, `guard` and `access` say who may do what; each API is a room or a file of
its own. The web framework is used in this room alone, and nothing here is imported before a server
starts. What judges, models and studies do is the business of the rooms below.
"""
