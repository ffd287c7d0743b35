"""Write scikit-learn's handwritten digits in MNIST's format: 1,437 images for training and the last 360 for testing.

python docs/results/digits.py datasets/mnist
"""

import sys
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

if __name__ == "__main__":
    out = Path(sys.argv[1])
    out.mkdir(parents=True)
    digits = load_digits()  # 1,797 images of 8 x 8 pixels from 0 to 16
    small = np.round(digits.images * 255 / 16).astype(np.uint8)
    large = np.stack([Image.fromarray(image).resize((20, 20), Image.Resampling.BILINEAR) for image in small])
    images = np.pad(large, ((0, 0), (4, 4), (4, 4)))  # MNIST's digits of 20 x 20 are centred in 28 x 28
    for name, part in (("train", slice(-360)), ("t10k", slice(-360, None))):
        for suffix, array in (("images-idx3", images[part]), ("labels-idx1", digits.target[part])):
            sizes = np.array(array.shape, ">u4").tobytes()
            content = bytes([0, 0, 8, array.ndim]) + sizes + array.astype(np.uint8).tobytes()
            (out / f"{name}-{suffix}-ubyte").write_bytes(content)
