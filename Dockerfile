# Serves a gallery on the CPU, with a token:
#   docker build -t lreid .
#   docker run -p 8000:8000 -v "$PWD:/data" -e LREID_TOKEN=... --user "$(id -u):$(id -g)" lreid people.gallery --host 0.0.0.0
# The Python version is the one for which requirements.lock was made.
FROM python:3.11-slim
WORKDIR /source
COPY requirements.lock setup.py pyproject.toml README.md LICENSE ./

# PyTorch's build for the CPU; PyPI's build installs gigabytes of GPU packages.
RUN pip install --no-cache-dir --constraint requirements.lock --index-url https://download.pytorch.org/whl/cpu torch torchvision

COPY configs configs
COPY lreid lreid
RUN pip install --no-cache-dir --constraint requirements.lock ".[cpu,serve]" \
  && useradd --uid 1000 --create-home lreid

USER 1000
WORKDIR /data
EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s \
  CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8000/health', timeout=4)"]
ENTRYPOINT ["lreid", "serve"]
CMD ["people.gallery", "--host", "0.0.0.0"]
