"""Extract features of images, build a gallery of them, and search who is in a new image.

    python examples/extract_and_search.py [MODEL]

MODEL is a checkpoint of a run, an .onnx file of lreid export, or a model from the zoo. The images are synthetic.
"""

import sys
import tempfile
from pathlib import Path

import lreid
from lreid.data.synthetic import load_synthetic

model = lreid.load_model(sys.argv[1] if len(sys.argv) > 1 else "zoo:dwopp-synthetic-10")

# Twenty people who are not in the training data. A path names a file or, as here, a synthetic image.
people = load_synthetic("plaza", train_identities=0, test_identities=20, images_per_identity=6, distractors=10, seed=7)
known_paths, known_people, known_cameras = zip(*people.gallery, strict=True)
new_paths, new_people, new_cameras = zip(*people.query, strict=True)

# Images of any size are resized. Features of another model are refused from now on.
gallery = lreid.Gallery.build(known_paths, ids=known_people, cams=known_cameras, model=model)
print(f"{len(gallery)} images in the gallery, {gallery.width} numbers each")

matches = gallery.search(new_paths, 5, query_cams=new_cameras, exclude_same_camera=True)
for row in range(3):
    print(f"{new_paths[row]} looks most like {matches.paths[row, 0]} (cosine {matches.scores[row, 0]:.2f})")
right = (matches.ids[:, 0] == new_people).sum()
print(f"the best match is the same person for {right} of {len(new_paths)} new images")

# A person may be missing from the gallery: below the threshold the answer is "unknown". Here 5 % of impostors reach it.
gallery.calibrate(new_paths, new_people, false_accept_rate=0.05)
with tempfile.TemporaryDirectory() as folder:
    gallery.save(Path(folder) / "people.gallery")
    gallery = lreid.Gallery.load(Path(folder) / "people.gallery")
stranger = "synthetic:plaza/8/1000/1/0"  # from another population
matches = gallery.search(stranger, 1)
print(f"{stranger}: {'unknown' if matches.unknown[0] else f'taken for {matches.ids[0, 0]}'}")
