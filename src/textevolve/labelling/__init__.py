"""Labelling by people: what is asked of them, in which order it is shown, how far they agree.

Nothing here reads files or a store, and nothing knows a page; who keeps tasks and labels is the
business of `store`, where items come from that of `studies`.
"""
