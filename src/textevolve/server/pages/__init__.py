"""Pages for browsers, made on the server: runs, agents, chats, jobs and labelling.

Each file has the paths of one kind of page; `drawing` fills in the templates. Nothing is loaded
from elsewhere, and no page has code or style of its own within it: both lie in `static`.
"""
