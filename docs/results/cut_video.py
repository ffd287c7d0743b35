"""Cut the people out of OpenCV's sample video, once as filmed and once with colour casts.

python docs/results/cut_video.py vtest.avi
"""

import csv
import sys
from pathlib import Path

import cv2
import numpy as np

BOXES = Path(__file__).with_name("video-people.csv")
FRAMES = 795

if __name__ == "__main__":
    film = cv2.VideoCapture(sys.argv[1])
    rows = list(csv.DictReader(BOXES.open(encoding="utf-8")))
    out = Path("datasets/video")
    out.mkdir(parents=True)
    with (out / "index.csv").open("w", newline="", encoding="utf-8") as file:
        index = csv.DictWriter(file, ("path", "pid", "camid", "split", "domain"), extrasaction="ignore")
        index.writeheader()
        for number in range(FRAMES):
            frame = film.read()[1]
            for row in (row for row in rows if int(row["frame"]) == number):
                left, top, right, bottom = (int(row[side]) for side in ("left", "top", "right", "bottom"))
                image, random = frame[top:bottom, left:right], np.random.default_rng(int(row["camid"]))
                cast = 255 * (image / 255) ** random.uniform(0.7, 1.4) * random.uniform(0.75, 1.3, 3)
                for domain, pixels in (("as-filmed", image), ("casts", cast.clip(0, 255))):
                    path = f"{domain}-{number}-{left}.png"
                    cv2.imwrite(str(out / path), pixels.astype(np.uint8))
                    index.writerow(row | {"path": path, "domain": domain})
