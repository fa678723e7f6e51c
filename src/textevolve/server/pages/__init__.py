"""HTML pages for browsers, rendered on the server: runs, agents, chats, memories, jobs and
labelling.

Each file has the paths of one kind of page; `drawing` fills in the templates. A page loads nothing
from other hosts, and contains no script or style itself: both are files in `static`.
"""
