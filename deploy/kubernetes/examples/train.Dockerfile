# SPDX-License-Identifier: Apache-2.0
# An image for the examples: PyTorch, the wheel (the Dockerfile beside this folder makes it in dist/) and train.py.
FROM python:3.11-slim-bookworm
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates libcjson1 libcurl4 libexpat1 libisal2 libssl3 \
    && rm -rf /var/lib/apt/lists/*
COPY dist/ /tmp/dist/
# hadolint ignore=DL3013
RUN pip install --no-cache-dir torch==2.13.0 /tmp/dist/*.whl && rm -r /tmp/dist
COPY deploy/kubernetes/examples/train.py /app/train.py
USER 10001:10001
CMD ["torchrun", "/app/train.py"]
