__version__: str

from .gallery.comparison import compare as compare
from .gallery.gallery import Gallery as Gallery
from .loading import load_model as load_model
from .models.crops import CropEmbedder as CropEmbedder
from .models.fingerprint import fingerprint as fingerprint
from .retrieval.ranking import evaluate as evaluate
from .training.run import train as train
