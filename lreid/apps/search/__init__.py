"""Search a gallery of your own images: who is on this image, and is it anybody enrolled?

lreid search build people.gallery my/images --checkpoint task-10.pt    # folders, or a CSV file
lreid search calibrate people.gallery my/labelled --false-accept-rate 0.01
lreid search query people.gallery new.jpg                              # matches/matches.html, .json
lreid search add people.gallery my/images                              # those that are new
lreid search remove people.gallery --identity alice
lreid search info people.gallery
lreid search reindex people.gallery --checkpoint newer.pt              # rollback people.gallery undoes it
lreid search migrate people.gallery milvus:http://127.0.0.1:19530/people

A gallery is a file, or in Milvus: milvus:FILE.db or milvus:http://host:port/NAME; all commands are the same there.
In a folder, names like 0002_c1s1_000451_03.jpg tell identity and camera; otherwise the first folder below it is the
identity. A CSV file has the columns path,pid,camid,split; of it the gallery images are indexed, the queries calibrate.
"""

from lreid.apps.search.command_line import add_arguments, run
from lreid.apps.search.commands import add, build, calibrate, describe, query, remove
from lreid.apps.search.findings import verdict
from lreid.apps.search.named_gallery import NamedGallery, Narrowing
from lreid.apps.search.own_images import list_images
from lreid.apps.search.versions import migrate, reindex, roll_back

__all__ = [
    "NamedGallery",
    "Narrowing",
    "add",
    "add_arguments",
    "build",
    "calibrate",
    "describe",
    "list_images",
    "migrate",
    "query",
    "reindex",
    "remove",
    "roll_back",
    "run",
    "verdict",
]
