"""Work spread over the nodes of a Ray cluster: the counterpart of `local.stream`, and the only
package that knows Ray.

A worker is an actor, one for each node that has a processor. It works on items that it is given,
may ask the driver questions on the way, and tells it news. What goes between the two are letters,
many at once; the driver sends and fetches, so that one outside the cluster works alike. Ray is not
asked to start an actor again: the driver knows best what a worker that died had in hand, gives that
to others, and starts another worker where the node still lives. Nothing here knows what an item is.

`cluster`: Ray is loaded and joined; `worker`: what runs at a node; `spreading`: what the driver
does.
"""

from textevolve.engine.ray.cluster import join_cluster, load, pickled, unpickled
from textevolve.engine.ray.spreading import Crew, spread
from textevolve.engine.ray.worker import ItemWork, Line

__all__ = [
    "Crew",
    "ItemWork",
    "Line",
    "join_cluster",
    "load",
    "pickled",
    "spread",
    "unpickled",
]
